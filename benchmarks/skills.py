"""What each skill of the library gains: judges the two answers of its pair, and compares them.

    python benchmarks/skills.py --events --budget-s 200
    python benchmarks/skills.py --budget-s 540
    python benchmarks/skills.py --table

The first measures without a judge: both answers of a pair in this process, their outputs compared with the reference's,
timed in turns by CUDA events (on a CPU by the process's clock). The second judges each answer under `verified`, and
looks at kernels and machine code, which some preconditions read; `--only no-spills,smaller-buffers` names skills. Both
append a line for each pair or answer to a file of runs/skills; run again, they go on where they stopped, and measure
again where a source has changed. All three write the table, benchmarks/results/skills.md, and what the skills agent
is told of each pair, agents/skills/shown.json, from all such files. On a GPU the pairs in CUDA, in Triton and of
PyTorch's operators are measured, on a CPU those in C.

The effect by events is the ratio of median times, with a 95% bootstrap interval over paired rounds. By the judge it is
the ratio of the two speedups over PyTorch, each measured against the reference in its own job, so that a device that
was slower for a while cancels out; its interval is the widest that the two intervals allow.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.util
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kbenv import Evaluator
from kbenv.agents.skills.feature import extract_features, roof_features
from kbenv.agents.skills.library import KERNELS, SHOWN, Skill, load_library, read_kernel
from kbenv.agents.skills.memory import LEAST_GAIN
from kbenv.errors import SandboxError
from kbenv.problems import load_problem
from kbenv.profile import roof_of
from kbenv.protocol import PROFILE, get_protocol
from kbenv.sandbox.judge.plausibility import measure_rates
from kbenv.sandbox.runner.cost import count_cost
from kbenv.verdict import Plausibility, Verdict

RESULTS = Path("benchmarks/results/skills.md")
ABSOLUTE, RELATIVE = 1e-2, 1e-3
"""How far outputs may be from the reference's without TF32: the widest tolerance of `verified`."""
ROUNDS, ROUND_MS, RESAMPLES = 20, 2.0, 1000
BUILDERS = 8
"""Of nvcc, at once."""
LAST_PAIR_S = 10.0
"""What a pair may take, its compilers included: none is begun with less of the budget left."""
HEAD = ("skill", "problem", "before", "ms", "after", "ms", "effect", "memory", "shows", "precondition before/after")

Lines = Mapping[str, dict[str, Any]]
"""The last line of each answer, by its name."""


def wanted_skills(only: str | None) -> list[Skill]:
    """Those of these ids, or all. Raises SystemExit: there is none of that id."""
    library = {skill.id: skill for skill in load_library()}
    names = list(library) if only is None else [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in library]:
        raise SystemExit(f"--only: there is no skill {', '.join(unknown)}; there are {', '.join(library)}")
    return [library[name] for name in names]


def answers(kind: str, only: str | None = None) -> Iterator[tuple[str, str]]:
    """Problem and kernel of each answer that runs on such a device, each once, pair by pair."""
    seen = set()
    for skill in wanted_skills(only):
        for kernel in (skill.pair.before, skill.pair.after):
            answer = (skill.pair.problem, kernel)
            if ("_c_" in kernel) == (kind == "cpu") and answer not in seen:
                seen.add(answer)
                yield answer


def fingerprint(kernel: str) -> str:
    return hashlib.sha256(read_kernel(kernel).encode()).hexdigest()


def read(path: Path) -> Lines:
    """The lines that are whole and of the sources as they are now."""
    lines = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:  # the last one, when a run was killed
            continue
        lines[line["kernel"]] = line
    return {kernel: line for kernel, line in lines.items() if line["source"] == fingerprint(kernel)}


def judge(options: argparse.Namespace) -> None:
    """Judges what has no line yet, while there is time."""
    deadline = time.monotonic() + options.budget_s
    protocol = get_protocol(options.protocol, require_custom_kernel=False)
    protocol = protocol.with_effort("quick" if options.short else "full")
    options.runs.mkdir(parents=True, exist_ok=True)
    with Evaluator(
        protocol=protocol, device=options.device, sandbox=options.sandbox, diagnostics=PROFILE
    ) as evaluator:  # fmt: skip
        kind = evaluator.device.split(":")[0]
        path = options.runs / f"{options.protocol}-{kind}.jsonl"
        done = {
            kernel for kernel, line in read(path).items() if line["verdict"]
        }  # a fault of the machine is tried again
        wanted = [answer for answer in answers(kind, options.only) if answer[1] not in done]
        for number, (problem, kernel) in enumerate(wanted, start=1):
            if time.monotonic() > deadline:
                print(f"{len(wanted) - number + 1} answers are left: run again", flush=True)
                return
            began = time.monotonic()
            try:
                verdict = evaluator.evaluate(problem, read_kernel(kernel)).model_dump(mode="json")
                said = verdict["status"]
            except SandboxError as e:
                verdict, said = None, f"no verdict: {e}"
            with path.open("a") as file:
                file.write(json.dumps({"kernel": kernel, "source": fingerprint(kernel), "verdict": verdict}) + "\n")
            print(f"{number}/{len(wanted)} {kernel}: {said[:200]} ({time.monotonic() - began:.1f} s)", flush=True)


# -- without a judge --------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> None:
    """Measures the pairs that have no line yet, while there is time."""
    deadline = time.monotonic() + options.budget_s - LAST_PAIR_S
    device = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device
    device = "cpu" if device == "auto" else device
    kind = device.split(":")[0]
    options.runs.mkdir(parents=True, exist_ok=True)
    path = options.runs / f"events-{kind}.jsonl"
    done = {skill for skill, line in read_pairs(path).items() if line.get("ceiling") or line["failed"]}
    wanted = [skill for skill in wanted_skills(options.only) if ("_c_" in skill.pair.after) == (kind == "cpu")]
    wanted = sorted((skill for skill in wanted if skill.id not in done), key=lambda skill: skill.pair.problem)
    with ThreadPoolExecutor(BUILDERS) as pool:  # importing builds what is in CUDA: nvcc runs beside the measurements
        kernels = {kernel for skill in wanted for kernel in (skill.pair.before, skill.pair.after)}
        modules = {kernel: pool.submit(load_kernel, kernel) for kernel in sorted(kernels)}
        for number, skill in enumerate(wanted, start=1):
            if time.monotonic() > deadline:
                print(f"{len(wanted) - number + 1} pairs are left: run again", flush=True)
                for module in modules.values():
                    module.cancel()
                break
            began = time.monotonic()
            line = measure_pair(skill, device, modules)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            told = line["failed"] or f"{describe_effect(*effect_of(line))}"
            print(f"{number}/{len(wanted)} {skill.id}: {told} ({time.monotonic() - began:.1f} s)", flush=True)


def read_pairs(path: Path) -> dict[str, dict[str, Any]]:
    """The lines that are whole and of the sources as they are now, by skill."""
    sources = {skill.id: [fingerprint(skill.pair.before), fingerprint(skill.pair.after)] for skill in load_library()}
    lines = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:  # the last one, when a run was killed
            continue
        lines[line["skill"]] = line
    return {skill: line for skill, line in lines.items() if line["sources"] == sources.get(skill)}


def load_kernel(name: str) -> ModuleType:
    """From its file, which Triton reads."""
    spec = importlib.util.spec_from_file_location(f"skill_{name}", KERNELS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_pair(skill: Skill, device: str, modules: Mapping[str, Future[ModuleType]]) -> dict[str, Any]:
    """A line: milliseconds of a call by round, of before and after, their peak bytes, the ceilings of a call; or why it
    has none."""
    line: dict[str, Any] = {
        "skill": skill.id, "sources": [fingerprint(skill.pair.before), fingerprint(skill.pair.after)],
        "machine": machine_here(device), "failed": None, "ms": None, "peak_bytes": None, "ceiling": None,
    }  # fmt: skip
    try:
        names = (skill.pair.before, skill.pair.after)
        calls, cost = prepare(skill, device, [modules[name].result() for name in names])
        line["ceiling"] = measure_ceiling(cost, device)
        line["peak_bytes"] = [peak_bytes(call, device) for call in calls]
        line["ms"] = time_in_turns(calls, device)
    except Exception as e:  # nvcc is missing, a kernel does not fit on this device, an output is wrong: the next pair
        line["failed"] = f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
    return line


def prepare(
    skill: Skill, device: str, modules: Sequence[ModuleType]
) -> tuple[list[Callable[[], Any]], Mapping[str, Any]]:
    """A call of each answer, with the reference's weights, and what one of the reference's costs.

    Raises:
        AssertionError: an output is wrong.
    """
    reference: dict[str, Any] = {"__name__": "reference"}
    exec(load_problem(skill.pair.problem).source_for(device.split(":")[0]), reference)
    torch.manual_seed(0)
    model = reference["Model"](*reference["get_init_inputs"]()).to(device)
    with torch.device(device):
        inputs = reference["get_inputs"]()
    answers = [module.ModelNew(*reference["get_init_inputs"]()).to(device) for module in modules]
    allow_tf32(False)
    with torch.no_grad():
        expected = outputs_of(model(*inputs))
        allow_tf32(True)
        for answer in answers:
            answer.load_state_dict(model.state_dict())
            for found, wanted in zip(outputs_of(answer(*inputs)), expected, strict=True):
                excess = float(((found - wanted).abs() - ABSOLUTE - RELATIVE * wanted.abs()).max())
                assert excess <= 0, f"an output is wrong by {excess:.3g} more than is allowed"
        cost = count_cost(lambda: model(*inputs), [*inputs, *model.state_dict().values()])
    return [lambda answer=answer: answer(*inputs) for answer in answers], cost


def measure_ceiling(cost: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Of a call of the reference's problem on this device, as in a verdict's `plausibility`, without a floor."""
    rates = measure_rates(device.split(":")[0], "fp32")
    ceiling = Plausibility(
        floor_ms=None, operations_ms=cost["flops"] / rates.rate * 1e3, bytes=sum(cost["reads"]) + cost["written"],
        flops=cost["flops"], below_floor=False, **asdict(rates),
    )  # fmt: skip
    return ceiling.model_dump()


def outputs_of(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def peak_bytes(call: Callable[[], Any], device: str) -> int | None:
    """What a call takes of the allocator at most, beyond what is there before it; None on a CPU."""
    if not device.startswith("cuda"):
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def time_in_turns(calls: Sequence[Callable[[], Any]], device: str) -> list[list[float]]:
    """Milliseconds per call, round by round, the order turning round; caches are as the calls leave them."""
    with torch.no_grad():
        repeats = []
        for call in calls:
            time_ms(call, 2, device)
            repeats.append(max(1, round(ROUND_MS / time_ms(call, 2, device))))
        times: list[list[float]] = [[] for _ in calls]
        for number in range(ROUNDS):
            for index in range(len(calls)) if number % 2 else reversed(range(len(calls))):
                times[index].append(time_ms(calls[index], repeats[index], device))
    return times


def time_ms(call: Callable[[], Any], repeats: int, device: str) -> float:
    """Of one call among several in a row."""
    if not device.startswith("cuda"):
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - began) * 1e3 / repeats
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / repeats


def machine_here(device: str) -> dict[str, str]:
    on_gpu = device.startswith("cuda")
    name = torch.cuda.get_device_name() if on_gpu else cpu_name()
    clock = "CUDA events" if on_gpu else "the process's clock"
    return {"name": name, "torch": torch.__version__, "clock": clock, "date": str(datetime.date.today())}


def cpu_name() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.split(":", 1)[1].strip()
    return platform.machine()


def effect_of(line: Mapping[str, Any]) -> tuple[float, float, float]:
    """The ratio of medians, and its 95% bootstrap interval over paired rounds."""
    rounds = list(zip(*line["ms"], strict=True))

    def ratio(sample: Sequence[tuple[float, float]]) -> float:
        before, after = zip(*sample, strict=True)
        return statistics.median(before) / statistics.median(after)

    draw = random.Random(0)
    ratios = sorted(ratio(draw.choices(rounds, k=len(rounds))) for _ in range(RESAMPLES))
    return ratio(rounds), ratios[RESAMPLES // 40], ratios[-RESAMPLES // 40]


def describe_effect(value: float, low: float, high: float) -> str:
    return f"{value:.3g}x [{low:.3g}, {high:.3g}]"


def make_pair_row(skill: Skill, line: Mapping[str, Any]) -> tuple[str, ...]:
    """As `make_row`; preconditions are looked at with the times against the device's ceilings."""
    ms, effect, memory, shows = ["", ""], str(line["failed"] or ""), "", "no"
    asked = "not asked"
    if line["failed"] is None:
        ms = [f"{statistics.median(times):.4g}" for times in line["ms"]]
        saved = 1.0
        if line["peak_bytes"][0] is not None:
            saved = max(1, line["peak_bytes"][0]) / max(1, line["peak_bytes"][1])
            memory = describe_memory(saved)
        value, low, high = effect_of(line)
        effect = describe_effect(value, low, high)
        shows = describe_shows(skill, value, low, saved)
        if line.get("ceiling"):
            asked = "/".join(_applies_at(skill, index, line) for index in range(2))
    pair = skill.pair
    return (skill.id, pair.problem, pair.before, ms[0], pair.after, ms[1], effect, memory, shows, asked)


def _applies_at(skill: Skill, index: int, line: Mapping[str, Any]) -> str:
    """Whether its precondition holds for before (0) or after (1) with the time that it took; events tell no more."""
    kernel = (skill.pair.before, skill.pair.after)[index]
    roof = roof_of(Plausibility.model_validate(line["ceiling"]), statistics.median(line["ms"][index]))
    reference = load_problem(skill.pair.problem).source_for("cpu" if "_c_" in kernel else "cuda")
    features = extract_features(reference, read_kernel(kernel)) | roof_features(roof)
    if any(name.startswith(("profile.", "code.", "counters.")) and name not in features for name in skill.when):
        return "not asked"
    return "holds" if skill.applies(features) else "not"


def describe_shows(skill: Skill, value: float, low: float, saved: float) -> str:
    """yes where the effect's interval lies above one, and the effect is one that the agent would call a gain; or, for a
    skill that saves memory alone, where that much less was needed."""
    return "yes" if (low > 1.0 and value >= LEAST_GAIN) or (skill.gain == 1 and saved >= LEAST_GAIN) else "no"


def describe_memory(saved: float) -> str:
    return f"{saved:.2f}x less" if saved > 1.01 else f"{1 / saved:.2f}x more" if saved < 0.99 else "same"


# -- the table --------------------------------------------------------------------------------------------------------


def write_table(options: argparse.Namespace) -> None:
    """One table for each device and clock, and what the agent is told; what the judge measured goes before events."""
    parts = ["# skills\n\nWhat each skill of agents/skills gains, by `python benchmarks/skills.py`.\n"]
    told: dict[str, dict[str, str]] = {}
    for path in sorted(options.runs.glob("*.jsonl"), key=lambda path: (not path.name.startswith("events"), path.name)):
        if path.name.startswith("events"):
            pairs = read_pairs(path)
            rows = [make_pair_row(skill, pairs[skill.id]) for skill in load_library() if skill.id in pairs]
            here = next(iter(pairs.values()))["machine"] if pairs else {}
            title = "{date}; {name}; torch {torch}; {clock} in one process, no judge".format(**here) if pairs else ""
        else:
            lines = read(path)
            rows = [row for skill in load_library() if (row := make_row(skill, lines)) is not None]
            title = machine(lines) if rows else ""
        if rows:
            shown = sum(row[8] == "yes" for row in rows)
            parts.append(f"## {title}\n\n{shown} of {len(rows)} pairs show their effect.\n")
            table = [HEAD, ("---",) * len(HEAD), *rows]
            parts.append("\n".join("| " + " | ".join(row) + " |" for row in table) + "\n")
            told |= {
                row[0]: {"effect": row[6], "memory": row[7], "shows": row[8], "where": title}
                for row in rows if row[6].startswith(tuple("0123456789"))
            }  # fmt: skip
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text("\n".join(parts))
    if told:
        options.shown.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    print(options.results.read_text())


def machine(lines: Lines) -> str:
    verdict = next(line["verdict"] for line in lines.values() if line["verdict"])
    hardware, software = verdict.get("hardware") or {}, verdict.get("software") or {}
    return (
        f"{datetime.date.today()}; {hardware.get('name')}; torch {software.get('torch')}; {verdict['protocol']['name']}"
    )


def make_row(skill: Skill, lines: Lines) -> tuple[str, ...] | None:
    """A row of the table; None where neither answer was judged.

    "shows" is yes where both are credited and `describe_shows` says so.
    """
    before, after = (_verdict(lines, name) for name in (skill.pair.before, skill.pair.after))
    if skill.pair.before not in lines and skill.pair.after not in lines:
        return None
    effect, memory, shows = "", "", "no"
    if before and after and before.speedup and after.speedup:
        value, low, high = (
            after.speedup.value / before.speedup.value,
            after.speedup.low / before.speedup.high,
            after.speedup.high / before.speedup.low,
        )
        effect = f"{value:.3g}x [{low:.3g}, {high:.3g}]"
        saved = 1.0
        if before.memory and after.memory:
            saved = before.memory.submission_peak_bytes / max(1, after.memory.submission_peak_bytes)
            memory = describe_memory(saved)
        credited = before.credited and after.credited
        shows = describe_shows(skill, value, low, saved) if credited else "no"
    return (
        skill.id, skill.pair.problem, skill.pair.before, _told(before), skill.pair.after, _told(after), effect, memory,
        shows, f"{_applies(skill, skill.pair.before, before)}/{_applies(skill, skill.pair.after, after)}",
    )  # fmt: skip


def _verdict(lines: Lines, kernel: str) -> Verdict | None:
    found = lines.get(kernel)
    return Verdict.model_validate(found["verdict"]) if found and found["verdict"] else None


def _told(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not judged"
    return f"{verdict.latency_ms:.4g}" if verdict.credited and verdict.latency_ms else verdict.status.value


def _applies(skill: Skill, kernel: str, verdict: Verdict | None) -> str:
    """Whether its precondition holds with what was measured."""
    if verdict is None:
        return "?"
    reference = load_problem(skill.pair.problem).source_for("cpu" if "_c_" in kernel else "cuda")
    return "holds" if skill.applies(extract_features(reference, read_kernel(kernel), verdict)) else "not"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write the table, judge nothing")
    parser.add_argument("--events", action="store_true", help="measure without a judge, by CUDA events")
    parser.add_argument(
        "--budget-s", type=float, default=1e9, help="begin nothing that would end after so many seconds"
    )
    parser.add_argument("--only", metavar="SKILL,...", help="of these skills alone")
    parser.add_argument("--short", action="store_true", help="a short clock: sooner done, and wider intervals")
    parser.add_argument("--protocol", default="verified")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs/skills"), metavar="DIR", help="where verdicts are kept")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--shown", type=Path, default=SHOWN, metavar="FILE", help="what the skills agent is told")
    options = parser.parse_args()
    if not options.table:
        (measure if options.events else judge)(options)
    write_table(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
