"""Timing a job: turns of reference, submission and null runner, paired, over re-created pairs of runners.

Every timed call sees fresh inputs, perturbed where the protocol says so, and every output is compared.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..layout import Arena
from .clock import GateError, Turn
from .compare import Comparison
from .nvml import Clocks
from .place import BASELINE
from .statistics import MEDIAN_OF_PAIRS, Ratio, bootstrap_ratio, centre, is_tight, lower_quartile, robust_error

if TYPE_CHECKING:
    from .job import Job

_Measured = TypeVar("_Measured")
_ARMS = ("reference", "submission", "null")
_LONG_ROUND_MS = 400.0
_LEAST_SINGLE = 3
_GAP = 0.03
_NULL_GAP = 0.05
_WIDE = 4.0
_DRIFT, _STEADY_MS = 1.1, 0.02
"""Pairs of runners of the same code differ by 1% to 2% on an H200, calls shorter than this by more."""
_SIGMAS = 3
_APART_MS = 0.1
"""On a GPU, turns of one call in different runners of the same code differ steadily by about that (0.07 ms on an H200,
standard deviation): how soon the device goes from one process to another, which no turns of one pair show."""
_MOST_NOISE = 0.1
_OPEN = "a call waits for the device on the host, or launches too much for its queue: timed without the gate"
_OPEN_OVERHEAD_MS = 2.0
"""Messages, launch, and a small slot's copies in an open turn of one call (below 1 ms on an H200)."""
_SLOW_TURN = 4
"""A turn of a slow submission lasts at most this many times the protocol's target."""
_LEAST_OF_NULL = 0.05
"""Of the null runner's turn, a turn's forwards take at least: less is lost in what such turns differ by."""
_RESOLUTION_MS = 1e-5
"""A latency is never reported below this: the null runner's turn can be the longer one for an all but empty kernel."""


@dataclass
class Series:
    """Turns in milliseconds, per arm, and how they were run; those of one call are taken apart."""

    calls: int
    gated: bool
    turns: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in (*_ARMS, BASELINE)})
    copies: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in (*_ARMS, BASELINE)})

    @property
    def apart(self) -> bool:
        return self.calls == 1

    def latencies(self, arm: str, null: float | None = None) -> list[float]:
        """Per call, `null` (or the null runner's median turn) subtracted and late work added."""
        null = statistics.median(self.turns["null"]) if null is None else null
        late = self._late(arm)
        return [max((turn - null) / self.calls + late, self.least(null)) for turn in self.turns[arm]]

    def least(self, null: float) -> float:
        """What a latency is never below."""
        return max(_RESOLUTION_MS, 0.0 if self.apart else _LEAST_OF_NULL * null / self.calls)

    def _late(self, arm: str) -> float:
        """By how much an arm's copies take longer than the null runner's, where that is more than their noise."""
        if not self.apart:
            return 0.0
        excess = statistics.median(self.copies[arm]) - statistics.median(self.copies["null"])
        return excess if excess > _SIGMAS * robust_error(self.copies["null"]) else 0.0


def merge(several: list[Series]) -> Series:
    """Their turns as those of one."""
    merged = Series(several[0].calls, several[0].gated)
    for series in several:
        for arm in series.turns:
            merged.turns[arm] += series.turns[arm]
            merged.copies[arm] += series.copies[arm]
    return merged


class Timer:
    """The turns of one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rule = job.protocol["timing"]
        self.calls = job.plan.calls
        self.gated = job.device == "cuda"
        self.statistic: str = self.rule["statistic" if job.device == "cuda" else "cpu_statistic"]
        self.outputs = Comparison()
        self.clock_notes: list[str] = []
        self.sm_clock = Clocks(job.device)
        self.slow_nulls: list[float] = []
        """Null turns beside the submission as multiples of those alone, where they were too long to be believed."""
        self.order = secrets.SystemRandom()
        self._offset = 0

    # -- one turn of each arm -----------------------------------------------------------------------------------------

    def round(self, series: Series, arms: tuple[str, ...], *, events: dict[str, list[float]] | None = None) -> None:
        """One paired turn of each arm in random order over the same fresh inputs."""
        first, calls, job = self.next_slots(series.calls), series.calls, self.job
        checked = "submission" in arms
        by_reference = checked and job.truth.calibrated
        job.prepare_timed(first, calls, expect=checked and not by_reference)
        found: Arena | None = None
        for arm in self.order.sample(arms, len(arms)):
            turn = self.turn(arm, first, series, with_events=events is not None)
            series.turns[arm].append(turn.ms)
            series.copies[arm].append(turn.copy_ms)
            if events is not None and turn.event_ms:
                events[arm] = list(turn.event_ms)
            if arm == "submission":
                found = job.store.keep_snapshot()
            elif arm == "reference" and by_reference:
                job.store.expect_snapshot()
        if found is not None:
            self.outputs.merge(job.truth.judge_timed(first, calls, found))
            if not self.outputs.passed:
                job.record_timed(self.outputs)

    def next_slots(self, calls: int) -> int:
        """Where the next turn's slots begin: turns shorter than all slots rotate, which keeps the L2 cache cold."""
        if self._offset + calls > self.job.plan.slots:
            self._offset = 0
        first = self._offset
        self._offset += calls
        return first

    def turn(self, arm: str, first: int, series: Series, *, with_events: bool) -> Turn:
        """One turn over prepared slots."""
        job = self.job
        with job.others_paused(arm):
            if arm == "submission":
                return job.call_submission(
                    "timing", first=first, calls=series.calls, gated=series.gated, apart=series.apart,
                    events=with_events,
                )  # fmt: skip
            return self._trusted_turn(arm, first, series, with_events=with_events)

    def _trusted_turn(self, arm: str, first: int, series: Series, *, with_events: bool) -> Turn:
        job = self.job
        # a variant that fails has no number, and that is all; a reference that fails ends the job
        with contextlib.nullcontext() if arm == BASELINE else job.reference_faults(), job.trusted.lent_to(job.arm(arm)):
            return job.clock.turn(
                job.arm(arm), job.trusted, first=first, calls=series.calls, gated=series.gated, apart=series.apart,
                events=with_events, gate_s=job.gate_s(series.calls),
            )  # fmt: skip

    # -- warming and the gate -----------------------------------------------------------------------------------------

    def warm_up(self, arms: tuple[str, ...], events: dict[str, list[float]]) -> Series:
        """Open turns over every slot; then finds out whether these arms' calls fit behind the gate."""
        slots = self.job.plan.slots
        series = Series(slots, gated=False)
        turns = max(1, math.ceil((self.rule["warmup_calls"] - self.gated) / slots))  # a gated one follows
        if self.job.device == "cpu":
            turns = max(turns, self.rule["cpu_warmup_turns"])
        for _ in range(turns):
            self._offset = 0
            self.round(series, arms, events=events)
        self._offset = 0
        tries = 2  # the first time behind a gate may load code, which waits for the device
        while self.gated:
            try:
                self.round(Series(self.calls, gated=True), arms)
                break
            except GateError:
                tries -= 1
                if tries > 0:
                    continue
                if self.calls > 1:
                    self.calls = max(1, self.calls // 4)  # the device's queue holds about a thousand launches
                else:
                    self.open()
        return series

    def alone(self) -> tuple[list[float], list[float]]:
        """The reference's latencies before any process has read the submission, and those in turns of one call."""
        self.warm_up(("reference", "null"), {})

        def measure() -> tuple[Series, Series]:
            series = Series(self.calls, self.gated)
            for _ in range(self.turns()):
                self.round(series, ("reference", "null"))
            single = series if series.apart else Series(1, self.gated)
            if single is not series:
                for _ in range(self.rule["single_call_turns"]):
                    self.round(single, ("reference", "null"))
            return series, single

        series, single = self.behind_gate(measure)
        for one in (series, single):
            self.job.null_alone[one.calls, one.gated] = statistics.median(one.turns["null"])
        return series.latencies("reference"), single.latencies("reference")

    def behind_gate(self, measure: Callable[[], _Measured]) -> _Measured:
        """What `measure` returns. Calls that only sometimes wait for the device, and so once more, are timed open."""
        for _ in range(2 if self.gated else 0):
            with contextlib.suppress(GateError):
                return measure()
        if self.gated:
            self.open()
        return measure()

    def open(self) -> None:
        """From now on nothing is put behind the gate."""
        self.gated = False
        self.clock_notes.append(_OPEN)

    def null_ms(self, series: Series) -> float:
        """What is subtracted from the series' turns.

        On a GPU a turn holds copies, whose time drifts from pair to pair by as much as a short kernel lasts: each pair
        has its own null turn. It is hardly longer than before the submission existed, or kernels that this left behind
        slow it down. On the CPU it holds none.
        """
        found = statistics.median(series.turns["null"])
        alone = self.job.null_alone.get((series.calls, series.gated))
        if self.job.device != "cuda" or alone is None:
            return found
        most = alone + max(_NULL_GAP * alone, _APART_MS if series.apart else 0.0)
        if found > most:
            self.slow_nulls.append(found / alone)
        return min(found, most)

    def turns(self) -> int:
        """Turns per pair of runners: enough for the protocol's timed calls; no more than that when calls are long."""
        needed: int = math.ceil(self.rule["timed_calls"] / (self.rule["runner_pairs"] * self.calls))
        long = self.job.forward_ms * self.calls > _LONG_ROUND_MS or self.job.plan.exclusive
        turns_per_pair: int = self.rule["turns_per_pair"]
        return needed if long else max(needed, turns_per_pair)

    # -- the whole ----------------------------------------------------------------------------------------------------

    def pairs(self, events: dict[str, list[float]]) -> tuple[list[Series], list[Series], list[Series]]:
        """Per pair of runners its timed turns, its turns of one call where a turn holds more, and the open turns that
        warmed it."""
        timed: list[Series] = []
        single: list[Series] = []
        opened: list[Series] = []
        wanted = self.rule["runner_pairs"]
        while len(timed) < wanted:
            if timed or opened:
                started = time.monotonic()
                self.job.recreate_pair()
                if time.monotonic() - started > self.rule["slow_pair_s"]:
                    wanted = min(wanted, self.rule["slow_runner_pairs"])
            before = (self.calls, self.gated)
            arms = tuple(arm for arm in _ARMS if not opened or arm != "null")  # that runner is the same in every pair
            opened.append(self.warm_up(arms, events))
            self.job.await_ended()
            if timed and before != (self.calls, self.gated):
                timed.clear()  # turns of another length, or without the gate, are no sample of the same thing
                single.clear()
            series = Series(self.calls, self.gated)
            try:
                for _ in range(self.turns()):
                    self.round(series, _ARMS)
                self.sm_clock.look()
            except GateError:  # a call that only sometimes waits for the device: none may be behind the gate
                self.open()
                timed.clear()
                single.clear()
                continue
            timed.append(series)
            if self.calls > 1:
                single.append(self.single_calls())
            if self._are_enough(timed):
                break
        return timed, single, opened

    def _are_enough(self, timed: list[Series]) -> bool:
        """Whether the pairs so far agree so well that another one would tell little.

        Looking after each pair is optional stopping, which the correction of an interval of few pairs outweighs: a
        simulation in tests/test_statistics.py holds it to its coverage.
        """
        enough: float | None = self.rule["enough"]
        calls = sum(len(series.turns["submission"]) * series.calls for series in timed)
        if enough is None or self.job.device != "cuda" or len(timed) < 2 or calls < self.rule["timed_calls"]:
            return False
        return is_tight(self.speedup(self.latencies(timed, list(map(self.null_ms, timed)))), enough)

    def latencies(self, timed: list[Series], nulls: list[float]) -> dict[str, list[list[float]]]:
        """Of reference and submission, by pair of runners."""
        return {
            arm: [series.latencies(arm, null) for series, null in zip(timed, nulls, strict=True)]
            for arm in ("reference", "submission")
        }

    def speedup(self, latencies: dict[str, list[list[float]]]) -> Ratio:
        """With its interval."""
        rule = self.rule
        pairs = [list(zip(*pair, strict=True)) for pair in zip(*latencies.values(), strict=True)]
        of_ratio = MEDIAN_OF_PAIRS if rule["ratio"] == MEDIAN_OF_PAIRS else self.statistic
        spread = rule["pair_spread" if self.job.device == "cuda" else "cpu_pair_spread"]
        return bootstrap_ratio(pairs, of_ratio, rule["bootstrap_resamples"], rule["confidence"], len(pairs), spread)

    def single_calls(self) -> Series:
        """Turns of one call, on this pair of runners."""
        turns, pairs = self.rule["single_call_turns"], self.rule["runner_pairs"]
        # On the CPU they scatter more, and those of all pairs are one sample.
        wanted = turns / pairs if self.job.device == "cuda" else min(turns, 2 * turns / pairs)
        turns = max(_LEAST_SINGLE, math.ceil(wanted))
        for gated in (self.gated, False):
            series = Series(1, gated)
            with contextlib.suppress(GateError):
                for _ in range(turns):
                    self.round(series, _ARMS)
                break
        return series

    @property
    def apart_ms(self) -> float:
        """Standard deviation of what runners of the same code differ by in turns of one call."""
        return _APART_MS if self.job.device == "cuda" else 0.0


def measure_alone(job: Job) -> None:
    """Before the submission starts: see Timer.alone."""
    timer = Timer(job)
    job.reference_alone, job.reference_alone_single = timer.alone()
    job.timer_start = (timer.calls, timer.gated, timer.clock_notes)


def measure(job: Job) -> None:
    """Times the submission against the reference; leaves `timing` in the job's result and the check of all outputs."""
    timer = Timer(job)
    timer.calls, timer.gated, timer.clock_notes = job.timer_start
    beyond_overhead_ms = max(job.submission_ms - _OPEN_OVERHEAD_MS, 1e-3)
    timer.calls = min(timer.calls, max(1, math.ceil(_SLOW_TURN * timer.rule["target_turn_ms"] / beyond_overhead_ms)))
    statistic = timer.statistic
    events: dict[str, list[float]] = {}
    job.spares.rest()
    timed, singles, opened = timer.pairs(events)

    if job.device == "cuda":
        nulls = [timer.null_ms(series) for series in timed]
    else:  # the scheduler only ever adds: the lower quartile of all
        nulls = [lower_quartile([turn for series in timed for turn in series.turns["null"]])] * len(timed)
    latencies = timer.latencies(timed, nulls)
    all_turns = {arm: [latency for pair in pairs for latency in pair] for arm, pairs in latencies.items()}
    submission, reference = (centre(all_turns[arm], statistic) for arm in ("submission", "reference"))
    ratio = timer.speedup(latencies)
    scale = low_scale = 1.0
    if ratio.high > _WIDE * ratio.low:
        job.flags.append(f"the speedup's interval spans a factor of {ratio.high / ratio.low:.3g}: hardly a measurement")

    one: dict[str, float] = {}
    single_counts = False
    if singles:
        if job.device == "cpu":  # what one pair shows is mostly what else the machine did then
            singles = [merge(singles)]
        single_nulls = [timer.null_ms(series) for series in singles]
        one = {arm: _median_of_all(singles, single_nulls, arm) for arm in ("reference", "submission")}
        single_counts = _slower_in_single_calls(singles, single_nulls, submission, reference, timer.apart_ms)
        if single_counts:
            scale = (one["reference"] / one["submission"]) / ratio.value
            submission, reference = one["submission"], one["reference"]
            job.flags.append("a call alone is slower than one of many in a row, beyond the noise: single calls count")

    turns_alone = job.reference_alone_single if single_counts else job.reference_alone
    alone = centre(turns_alone, statistic)
    if _slowed_down(reference, turns_alone):
        job.flags.append(
            f"the reference ran slower beside the submission ({reference:.4g} ms) than alone ({alone:.4g} ms)"
        )
        # On the CPU the submission was stopped meanwhile: it is the machine that is busier now. And on a GPU runners of
        # the same code differ: what may be that is no reason to correct the value, but one to be less sure of it. Where
        # calls alone count, as they seldom do of honest code, it may be several times what a call is worth.
        unsure_ms = 0.0 if single_counts else _SIGMAS * timer.apart_ms / timer.calls
        if job.device == "cuda" and _slowed_down(reference - unsure_ms, turns_alone):
            scale *= alone / reference
            reference = alone
        elif job.device == "cuda":
            low_scale = alone / reference
    job.record_timed(timer.outputs)
    job.flags.extend(dict.fromkeys(timer.clock_notes))
    if job.device == "cuda" and (drift := _drift(latencies["reference"])) > _DRIFT:
        job.flags.append(
            f"the device changed meanwhile: the reference took {drift:.3g} times as long in one pair of runners "
            "as in another"
        )
    if timer.slow_nulls:
        job.flags.append(
            f"turns of copies alone took up to {max(timer.slow_nulls):.3g} times what they took before the submission "
            "existed: little more than that is subtracted"
        )
    if submission <= 1.01 * max(series.least(null) for series, null in zip(timed, nulls, strict=True)):
        job.flags.append("the submission's latency is at or below the clock's resolution")
    job.result["timing"] = {
        "speedup": {"value": ratio.value * scale, "low": ratio.low * scale * low_scale, "high": ratio.high * scale},
        "latency_ms": submission,
        "reference_latency_ms": reference,
        "clock": "judge-gated" if timer.gated else "judge-open",
        "measurement": {
            "calls_per_turn": timer.calls,
            "turns": sum(len(series.turns["submission"]) for series in timed),
            "runner_pairs": len(timed),
            "slots": job.plan.slots,
            "l2_cold": job.plan.l2_cold,
            "submission_turns_ms": all_turns["submission"],
            "reference_turns_ms": all_turns["reference"],
            "null_turn_ms": statistics.median(nulls),
            "reference_alone_ms": centre(job.reference_alone, statistic),
            "submission_call_ms": _open_latency(opened, "submission"),
            "reference_call_ms": _open_latency(opened, "reference"),
            "submission_single_call_ms": one.get("submission"),
            "reference_single_call_ms": one.get("reference"),
            "single_call_counts": single_counts,
            "submission_event_ms": _median(events.get("submission")),
            "reference_event_ms": _median(events.get("reference")),
            "sm_clock": timer.sm_clock.seen(),
        },
    }


def _median_of_all(singles: list[Series], nulls: list[float], arm: str) -> float:
    """Of an arm's turns of one call in all pairs of runners, each pair's null turn subtracted."""
    pairs = zip(singles, nulls, strict=True)
    return statistics.median(latency for series, null in pairs for latency in series.latencies(arm, null))


def _slower_in_single_calls(
    singles: list[Series], nulls: list[float], submission: float, reference: float, apart_ms: float
) -> bool:
    """Whether a call alone takes longer than one in a row, by more than is true of the reference.

    So it is where one call does the work of all slots of a turn, and where forward writes into its output slot, or puts
    its work off to the copy, which is subtracted from a turn of many. The quick ones of each arm's calls are compared
    (of one arm's alone against another's usual ones, scatter would hide much), and held against the noise of the
    trusted runners, so that no jitter of its own hides anything; on a device that others disturb against no more than a
    share of a turn; and against what runners of the same code differ by (`apart_ms`).
    """
    excess, usual, noise = [], [], 0.0
    for series, null in zip(singles, nulls, strict=True):
        of_submission, of_reference = (series.latencies(arm, null) for arm in ("submission", "reference"))
        excess.append(lower_quartile(of_submission) - submission)
        usual.append(lower_quartile(of_reference) - reference)
        error = max(robust_error(of_reference), robust_error(series.turns["null"]))
        noise = max(noise, min(_SIGMAS * error, _MOST_NOISE * statistics.median(series.turns["reference"])))
    noise = max(noise, _SIGMAS * apart_ms / math.sqrt(len(singles)))
    beyond = statistics.fmean(excess) - max(0.0, statistics.fmean(usual))
    return beyond > noise and beyond > _GAP * submission


def _slowed_down(reference: float, alone: list[float]) -> bool:
    """Whether the reference's paired turns were slower than every one alone, by more than 3%."""
    return min(alone) > 2 * _RESOLUTION_MS and reference > (1 + _GAP) * max(alone)


def _drift(pairs: list[list[float]]) -> float:
    """The largest ratio between medians of one arm over pairs of runners; 1 where they are too short to tell.

    A clock that is throttled meanwhile slows both arms of a round, so that the speedup stands; the latencies do not.
    """
    medians = [statistics.median(pair) for pair in pairs]
    return max(medians) / min(medians) if min(medians) >= _STEADY_MS else 1.0


def _open_latency(opened: list[Series], arm: str) -> float:
    """Launch overhead included: the last open warm-up turn of each pair of runners, the median."""
    null = opened[0].turns["null"][-1]
    values = [(series.turns[arm][-1] - null) / series.calls for series in opened]
    return max(statistics.median(values), _RESOLUTION_MS)


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None
