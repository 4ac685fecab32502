"""Measures how long a submission's extensions take to build, and whether stand-in headers change what is accepted.

For each source: a build with nothing kept (cold), the same again (warm), the same with changed device code, and all of
it with PyTorch's whole headers. Accepting or refusing must come out alike: the script ends with 1 where it does not.
A refusal is one with the whole headers in any case (what does not compile with stand-ins is tried again), so that with
`--no-times` only what stand-ins let through is built again.
Sources are `.py` files that call `load_inline` or `load` when they are imported, and `.cu` files; they are imported
here, so give it only what you trust. Needs root (a builder has a user of its own), and a CUDA toolkit for CUDA sources.

    python benchmarks/build.py                       # our own kernels
    python benchmarks/build.py FOLDER --no-times     # only: is the same accepted?
    python benchmarks/build.py FOLDER --front-end    # the same of CUDA sources in less time (see `compare_front_ends`)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kbenv.sandbox.judge.slim import slim_headers  # noqa: E402
from tests.builds import BuildServer  # noqa: E402

OWN = ("benchmarks/kernels/relu_cuda.py", "tests/honest/cuda", "tests/honest/cpp_load_inline.py")
CAPTURE_S = 300.0
BUILD_S = 600.0
CAPTURE = r"""
import importlib.util, json, os, sys, threading
sys.path.insert(0, sys.argv[1])
import torch
from kbenv.sandbox.runner.extension import Extensions
from kbenv.sandbox.wire import Channel, pair

ours, theirs = map(Channel, pair())

def serve():
    asked = ours.receive()["build"]
    with open(sys.argv[3], "w") as file:
        json.dump(asked, file)
    os._exit(0)  # one is enough

threading.Thread(target=serve, daemon=True).start()
Extensions(theirs).install()
from torch.utils import cpp_extension

def stop(*_, **__):
    os._exit(3)  # it would be built by PyTorch

cpp_extension._run_ninja_build = stop
path = sys.argv[2]
if path.endswith(".cu"):
    cpp_extension.load(name="source", sources=[path])
else:
    spec = importlib.util.spec_from_file_location("submission", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
"""


@dataclass(frozen=True)
class Outcome:
    """Of one source. Seconds; None where it was not built."""

    folder: str
    name: str
    slim: str
    """What became of it with stand-ins allowed: "library", "refused", or in other words."""
    full: str
    stand_ins: str
    """"enough" for all that it consists of, "fell back" where some did not compile with them, "not for all" where some
    evidently need the whole headers."""
    error: str = ""
    """The first that the compiler said, where it was refused."""
    cold_s: float | None = None
    warm_s: float | None = None
    changed_s: float | None = None
    full_s: float | None = None
    full_changed_s: float | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="files or folders of .py and .cu sources")
    parser.add_argument("--no-times", action="store_true", help="build each source once with and once without")
    parser.add_argument("--front-end", action="store_true", help="only CUDA sources, only nvcc's front end")
    parser.add_argument("--limit", type=int, help="at most so many sources")
    parser.add_argument("--out", type=Path, help="also write the table there")
    options = parser.parse_args()
    if os.geteuid() != 0 and not options.front_end:
        parser.error("a builder needs a user of its own: run as root")
    paths = find_sources(options.folders or [ROOT / place for place in OWN])[: options.limit]
    times = not (options.no_times or options.front_end)
    outcomes = list(compare_front_ends(paths) if options.front_end else measure(paths, times=times))
    text = render(outcomes, len(paths), times=times)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return int(any(outcome.slim != outcome.full for outcome in outcomes))


def find_sources(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        found += [place] if place.is_file() else sorted([*place.rglob("*.py"), *place.rglob("*.cu")])
    return [path.resolve() for path in found]


def capture(path: Path) -> dict[str, Any] | None:
    """What PyTorch would run for the first extension of a source; None where it has none that a judge would build."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "asked.json"
        environment = os.environ | {"TORCH_EXTENSIONS_DIR": folder, "TORCH_NO_COMPILER_WRAPPER": "1"}
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-c", CAPTURE, str(ROOT), str(path), str(asked)],
                cwd=folder, env=environment, capture_output=True, timeout=CAPTURE_S, check=False,
            )  # fmt: skip
        return json.loads(asked.read_text()) if asked.exists() and asked.stat().st_size else None


def measure(paths: Sequence[Path], *, times: bool) -> Iterator[Outcome]:
    with contextlib.ExitStack() as stack:
        servers = []
        for slim in (True, False):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.chmod(0o755)
            servers.append(stack.enter_context(BuildServer(folder, max_bytes=16 << 30, slim=slim)))
        for path in paths:
            asked = capture(path)
            if asked is None:
                print(f"{path.name}: no extension that a judge would build", file=sys.stderr, flush=True)
                continue
            outcome = measure_one(path, asked, *servers, times=times)
            print(outcome, file=sys.stderr, flush=True)
            yield outcome


def measure_one(path: Path, asked: dict[str, Any], slim: BuildServer, full: BuildServer, *, times: bool) -> Outcome:
    cold_s, reply = build(slim, asked)
    facts = reply["facts"]
    again = times or (reply.get("built") == "library" and facts["slim"] > 0)
    full_s, whole = build(full, asked) if again else (None, reply)
    stand_ins = "enough" if facts["slim"] == len(asked["sources"]) else "not for all"
    outcome = Outcome(
        path.parent.name, path.name, kind_of(reply), kind_of(whole),
        "fell back" if facts["slim_failed"] else stand_ins, first_error(whole.get("text", "")), cold_s, full_s=full_s,
    )  # fmt: skip
    if not times or reply.get("built") != "library":
        return outcome
    warm_s, _ = build(slim, asked)
    other = changed(asked)
    changed_s, full_changed_s = build(slim, other)[0], build(full, other)[0]
    return replace(outcome, warm_s=warm_s, changed_s=changed_s, full_changed_s=full_changed_s)


def compare_front_ends(paths: Sequence[Path]) -> Iterator[Outcome]:
    """Of the CUDA sources (a `.cu` file with the flags of the first one) only nvcc's front end for the device.

    It reads a source's host code as well, and says what is wrong with it. Left out are C++ sources, the host compiler,
    ptxas, the linker and the builder.
    """
    flags: dict[str, Any] | None = None
    for path in paths:
        asked = flags if path.suffix == ".cu" and flags is not None else capture(path)
        if asked is None or asked["nvcc"] is None:
            print(f"{path.name}: no extension that a judge would build", file=sys.stderr, flush=True)
            continue
        flags = asked if path.suffix == ".cu" else flags
        texts = [source["text"] for source in asked["sources"] if source["cuda"]]
        text = path.read_text(encoding="utf-8") if path.suffix == ".cu" else "\n".join(texts)
        outcome = compare_front_end(path, text, [asked["nvcc"], *asked["cuda_cflags"]])
        print(outcome, file=sys.stderr, flush=True)
        yield outcome


def compare_front_end(path: Path, text: str, command: Sequence[str]) -> Outcome:
    headers = slim_headers(text, str(Path(torch.__file__).parent / "include"), cuda=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in (("source.cu", text), *(headers or {}).items()):
            place = folder / ("slim" if file != "source.cu" else "") / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
        slim_error = run_front_end([command[0], "-Islim", *command[1:]], folder) if headers is not None else None
        error = run_front_end(command, folder)
    full = "refused" if error else "library"
    if headers is None or slim_error:
        return Outcome(path.parent.name, path.name, full, full, "fell back" if slim_error else "not for all", error)
    return Outcome(path.parent.name, path.name, "library", full, "enough", error)


def run_front_end(command: Sequence[str], folder: Path) -> str:
    """The first error, or ""."""
    found = subprocess.run(
        [*command, "-ptx", "source.cu", "-o", "source.ptx"], cwd=folder, capture_output=True, text=True,
        timeout=BUILD_S, check=False, env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip
    said = found.stdout + found.stderr
    return "" if found.returncode == 0 else first_error(said) or said[-200:] or f"nvcc ended with {found.returncode}"


def build(server: BuildServer, asked: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    started = time.perf_counter()
    reply = server.ask(asked, timeout_s=BUILD_S, build_s=BUILD_S)
    return time.perf_counter() - started, reply


def kind_of(reply: dict[str, Any]) -> str:
    if reply.get("built") == "declined":
        return f"declined: {reply['facts']['declined'][-1]}"
    return str(reply.get("built") or reply.get("error"))


def first_error(text: str) -> str:
    return next((line.strip()[:200] for line in text.splitlines() if "error" in line), "")


def changed(asked: dict[str, Any]) -> dict[str, Any]:
    """The same with other device code, or other code where there is none for a device."""
    sources = [dict(source) for source in asked["sources"]]
    chosen = next((source for source in sources if source["cuda"]), sources[-1])
    chosen["text"] += "\nstatic int changed_for_a_measurement() { return 1; }\n"
    return asked | {"sources": sources}


def render(outcomes: Sequence[Outcome], sources: int, *, times: bool) -> str:
    differ = [outcome for outcome in outcomes if outcome.slim != outcome.full]
    accepted = sum(outcome.full == "library" for outcome in outcomes)
    lines = [
        f"{sources} sources, {len(outcomes)} with an extension: {accepted} accepted, "
        f"{len(outcomes) - accepted} not, {len(differ)} differently with stand-ins.",
        "",
    ]
    lines += [f"- {outcome.name}: {outcome.slim} with stand-ins, {outcome.full} without" for outcome in differ]
    lines += [""] if differ else []
    if not times:
        return "\n".join([*lines, *render_folders(outcomes)])
    lines += ["| source | stand-ins | cold | warm | changed | cold, whole headers | changed, whole headers |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    for outcome in outcomes:
        lines.append(f"| {outcome.name} | {outcome.stand_ins} | " + " | ".join(map(_seconds, _times(outcome))) + " |")
    columns = list(zip(*map(_times, outcomes), strict=True))
    medians = [statistics.median(known) if (known := [x for x in column if x is not None]) else None
               for column in columns]  # fmt: skip
    return "\n".join([*lines, f"| **median** | | {' | '.join(map(_seconds, medians))} |", "", "Seconds."])


def render_folders(outcomes: Sequence[Outcome]) -> list[str]:
    lines = ["| folder | sources | accepted both ways | refused both ways | differently "
             "| of the accepted: stand-ins enough | fell back | not for all |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for folder in dict.fromkeys(outcome.folder for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.folder == folder]
        accepted = [outcome for outcome in mine if outcome.slim == outcome.full == "library"]
        differ = sum(outcome.slim != outcome.full for outcome in mine)
        counts = [len(mine), len(accepted), len(mine) - len(accepted) - differ, differ]
        counts += [sum(outcome.stand_ins == kind for outcome in accepted)
                   for kind in ("enough", "fell back", "not for all")]  # fmt: skip
        lines.append(f"| {folder} | {' | '.join(map(str, counts))} |")
    return lines


def _times(outcome: Outcome) -> tuple[float | None, ...]:
    return outcome.cold_s, outcome.warm_s, outcome.changed_s, outcome.full_s, outcome.full_changed_s


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
