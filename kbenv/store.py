"""A run on disk: every answer before it is judged, every verdict after, so that a run goes on where it stopped.

    DIR/run.json                                          the configuration
    DIR/<problem id>/sample-<i>/turn-<jjj>.json           one answer, then also its verdict and reward
    DIR/<problem id>/sample-<i>/call-<jjj>.json           one call whose answer the agent alone reads (a summary)

Each file is written beside its place and renamed into it, so that a reader sees all of it or none, and what a killed
process left half-written is removed when the run goes on. Nothing here asks a model or judges. One process at a time
may write to a run; its threads may.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from kbenv.errors import UsageError
from kbenv.protocol import Protocol
from kbenv.record import first_error
from kbenv.verdict import Verdict

RUN_FILE = "run.json"
_HALF_WRITTEN = re.compile(r"\..+\.(?:jsonl?|md)\.\d+-\d+")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


class StoreError(OSError):
    """The run can no longer be written: the disk is full, or the directory is gone or read-only."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StoredRun(_Stored):
    """What a run was started with; a run goes on only under an equal configuration."""

    schema_version: Literal[1] = 1
    config: dict[str, JsonValue]


class StoredMessage(_Stored):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class StoredCall(_Stored):
    """One call of a model: what was sent, what came back, what it cost. Fields as in `kbenv.agents.Completion`.

    `index` counts the calls of one kind (turns, others) within the sample; `observation` is the last message's text;
    `messages` is empty in runs of kbenv 0.1.
    """

    schema_version: Literal[1] = 1
    problem: str
    sample: int
    index: int
    model: str
    purpose: str = "answer"
    observation: str
    messages: tuple[StoredMessage, ...] = ()
    answer: str
    reasoning: str | None = None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None
    finish_reason: str | None
    outcome: str = "answered"
    attempts: int = 1
    seconds: float | None = None
    settings: dict[str, JsonValue] = {}


class StoredTurn(StoredCall):
    """An answer that is played in an environment and, once `judged`, what became of it.

    `verdict` may stay None in a judged turn: the agent said that it was done and sent no code.
    """

    code: str | None = None
    parents: tuple[int, ...] = ()
    feedback: str | None = None
    judged: bool = False
    reward: float | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Spent:
    """What calls have taken together; a cost of None: that of one of them is not known."""

    calls: int
    tokens: int
    cost_usd: float | None


class Store:
    """The directory of one run.

    Args:
        directory: made when absent.
        config: what the run is started with.

    Raises:
        UsageError: the directory cannot be written, belongs to another configuration, or holds a damaged `run.json`.
    """

    def __init__(self, directory: Path, config: dict[str, JsonValue]) -> None:
        self.directory = directory
        path = directory / RUN_FILE
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for left in [left for left in directory.rglob(".*-*") if _HALF_WRITTEN.fullmatch(left.name)]:
                left.unlink()
            if path.exists():
                _check_equal(path, StoredRun.model_validate_json(path.read_bytes()).config, config)
            elif any(directory.iterdir()):
                raise UsageError(
                    f"expected an empty or a new directory, or that of a run; {directory} has other files and "
                    f"no {RUN_FILE}: choose another --out"
                )
            # Written again on resuming, too: this is how a directory that became read-only is noticed in time.
            _write(path, StoredRun(config=config))
        except OSError as error:
            raise UsageError(f"cannot write the run to {directory}: {error.strerror}; choose another --out") from error
        except ValidationError as error:
            raise _damaged(path, error) from error

    def load(self, problem: str, sample: int, index: int) -> StoredTurn | None:
        """The turn on disk, or None.

        Raises:
            UsageError: the file is damaged.
        """
        return _read(self._path(problem, sample, index, "turn"), StoredTurn, (problem, sample, index))

    def load_call(self, problem: str, sample: int, index: int) -> StoredCall | None:
        """The call that is no turn, on disk, or None. Raises as `load`."""
        return _read(self._path(problem, sample, index, "call"), StoredCall, (problem, sample, index))

    def save(self, call: StoredCall) -> None:
        """Write the turn or call in place of what was stored for it.

        Raises:
            StoreError: it cannot be written.
        """
        path = self._path(call.problem, call.sample, call.index, "turn" if isinstance(call, StoredTurn) else "call")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, call)
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; make room, then run the same command again"
            ) from error

    def calls(self) -> Iterator[StoredCall]:
        """Every call on disk, as `read_calls`."""
        return read_calls(self.directory)

    def spent(self) -> Spent:
        """Of all calls on disk."""
        calls = list(self.calls())
        costs = [call.cost_usd for call in calls]
        return Spent(
            calls=len(calls),
            tokens=sum((call.prompt_tokens or 0) + (call.completion_tokens or 0) for call in calls),
            cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        )

    def write_text(self, name: str, text: str) -> None:
        """Put `text` into the file `name` of the run, at once.

        Raises:
            StoreError: it cannot be written.
        """
        write_file(self.directory / name, text)

    def _path(self, problem: str, sample: int, index: int, kind: str) -> Path:
        return self.directory / _folder(problem) / f"sample-{sample}" / f"{kind}-{index:03d}.json"


def write_file(path: Path, text: str) -> None:
    """Put `text` into a file, at once. Raises StoreError: it cannot be written."""
    try:
        _write_text(path, text)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; make room") from error


def find_runs(directory: Path) -> list[Path]:
    """`directory` where it holds a run, else its folders that do: `kbenv run` of several agents writes those.

    Raises:
        UsageError: there is no run.
    """
    if (directory / RUN_FILE).is_file():
        return [directory]
    found = [path.parent for path in sorted(directory.glob(f"*/{RUN_FILE}"))]
    if not found:
        raise UsageError(f"expected the directory of a run, with a {RUN_FILE}; {directory} has none")
    return found


def read_run(directory: Path) -> StoredRun:
    """What the run in `directory` was started with.

    Raises:
        UsageError: there is no run, or its file is damaged.
    """
    path = directory / RUN_FILE
    try:
        return StoredRun.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"expected the directory of a run, with a {RUN_FILE}; {directory} has none") from None
    except (OSError, ValidationError) as error:
        raise _damaged(path, error) from error


def read_calls(directory: Path) -> Iterator[StoredCall]:
    """Every call on disk, turns included, by problem, sample and index.

    Raises:
        UsageError: a file is damaged.
    """
    paths = [*directory.rglob("sample-*/turn-*.json"), *directory.rglob("sample-*/call-*.json")]
    for path in sorted(paths, key=_natural_order):
        call = _read(path, StoredTurn if path.name.startswith("turn-") else StoredCall, None)
        if call is not None:
            yield call


def read_turns(directory: Path) -> Iterator[StoredTurn]:
    """Every turn on disk, as `read_calls`."""
    return (call for call in read_calls(directory) if isinstance(call, StoredTurn))


class KeptVerdicts:
    """Verdicts on disk by what they are verdicts of, so that the same job is judged once.

    Args:
        directory: made when absent.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot keep verdicts in {directory}: {error.strerror}; choose another") from error

    @staticmethod
    def key(problem: str, reference: str, source: str, protocol: Protocol, kind: str, backend: str) -> str:
        """A name for one job: problem, reference and submission as they are judged, rules, and kind of device."""
        parts = [problem, reference, source, protocol.model_dump_json(), kind, backend]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self, key: str) -> Verdict | None:
        """The verdict of that job, if there is one, on whatever machine.

        Raises:
            UsageError: the file is damaged.
        """
        path = self._path(key)
        try:
            return Verdict.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise _damaged(path, error) from error

    def save(self, key: str, verdict: Verdict) -> None:
        """Keeps it, whole or not at all. Raises StoreError."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            _write(path, verdict)
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; make room, then run the same again to go on"
            ) from error

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.json"


_Call = TypeVar("_Call", bound=StoredCall)


def _read(path: Path, kind: type[_Call], place: tuple[str, int, int] | None) -> _Call | None:
    """What `path` holds, which should belong to `place` where that is given; None when there is no such file."""
    try:
        call = kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise _damaged(path, error) from error
    if place is not None and (call.problem, call.sample, call.index) != place:
        raise UsageError(
            f"{path} holds {path.name.split('-')[0]} {call.index} of sample {call.sample} of {call.problem}: a file "
            "was moved; put it back, or delete it to ask the model again"
        )
    return call


def _natural_order(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def _folder(problem: str) -> str:
    """The problem's folder inside the run: its id, or for a file's path its stem and a hash of the path."""
    if _PLAIN_ID.fullmatch(problem) and not problem.endswith(".py"):
        return problem
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", Path(problem).stem)
    return f"file/{stem}-{hashlib.sha256(problem.encode()).hexdigest()[:8]}"


def _check_equal(path: Path, stored: dict[str, JsonValue], config: dict[str, JsonValue]) -> None:
    names = sorted(name for name in stored.keys() | config.keys() if stored.get(name) != config.get(name))
    if names:
        found = "; ".join(_differences("", {name: stored.get(name) for name in names}, config))
        raise UsageError(
            f"{path} belongs to a run with another configuration ({_shorten(found)}); "
            "go on with the same options, or choose another --out"
        )


def _differences(prefix: str, stored: Mapping[str, JsonValue], config: Mapping[str, JsonValue]) -> Iterator[str]:
    """What differs, in words: of a table within only that which does."""
    for name, before in stored.items():
        after = config.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            union = {key: before.get(key) for key in (*before, *(key for key in after if key not in before))}
            yield from _differences(f"{prefix}{name}.", union, after)
        elif before != after:
            yield f"{prefix}{name} was {before!r} and is now {after!r}"


def _damaged(path: Path, error: Exception) -> UsageError:
    found = first_error(error) if isinstance(error, ValidationError) else " ".join(str(error).split())
    advice = "delete it: what it held is then asked and judged again"
    if path.name == RUN_FILE:  # without it the other files belong to no run
        advice = "choose another --out"
    return UsageError(f"{path} cannot be read as a file of a run ({_shorten(found)}); restore it, or {advice}")


def _shorten(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _write(path: Path, content: BaseModel) -> None:
    _write_text(path, content.model_dump_json(indent=2) + "\n")


def _write_text(path: Path, text: str) -> None:
    """Replace the file at once: a crash leaves the old one or the new one, whole."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
