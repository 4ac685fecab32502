"""Measures what the Docker sandbox costs beside the process sandbox, on the CPU, in benchmarks/results/sandbox.md.

Both take the same submissions to a tiny problem in turn, under `verified` with a brisk clock. Each measurement waits
until the rest of the machine is quiet, not for ever; the table says how often it was. Needs an engine on this machine
with the image, and root for the process sandbox to have what Docker has.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kbenv.evaluator import CPU_THREADS, MAX_SOURCE_BYTES, Evaluator
from kbenv.problems import load_problem
from kbenv.protocol import Limits, Protocol, get_protocol
from kbenv.sandbox.docker import DockerCarrier, DockerSettings
from kbenv.sandbox.engine import IMAGE, LABEL, connect, facts_of
from kbenv.sandbox.host import Carrier, Sandbox
from kbenv.sandbox.job import Job
from kbenv.sandbox.process import ProcessCarrier

PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return []
"""
"""So small that what a sandbox adds is not lost in what forward takes."""
HONEST = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clamp(min=0)\n"
)
STUBBORN = """\
import os, signal, torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(50):
            if os.fork() == 0:
                os.setsid()
                signal.pause()
        while True:
            pass
"""
"""Never ends, and leaves fifty processes in sessions of their own that ignore SIGTERM."""
_HOST = """
import sys
from kbenv.evaluator import Evaluator
with Evaluator(device="cpu", sandbox=sys.argv[1], on_phase=lambda phase: print(phase, flush=True)) as evaluator:
    evaluator.evaluate(sys.argv[2], sys.argv[3])
"""
_IDLE_SHARE = 0.9
_LOOK_S = 0.3
_PATIENCE_S = 10.0

Samples = dict[str, list[float]]
"""Seconds by sandbox."""
waits: Counter[bool] = Counter()
"""How often the machine was quiet when a measurement began, and how often not."""


def quick_protocol(**limits: Any) -> Protocol:
    protocol = get_protocol("verified")
    timing = protocol.timing.model_copy(
        update={
            "warmup_calls": 1, "cpu_warmup_turns": 1, "timed_calls": 2, "runner_pairs": 1, "slow_runner_pairs": 1,
            "turns_per_pair": 2, "single_call_turns": 2, "bootstrap_resamples": 50,
        }
    )  # fmt: skip
    limits = protocol.limits.model_copy(update=limits)
    return protocol.model_copy(update={"timing": timing, "limits": limits})


def make_job(source: str, **limits: Any) -> Job:
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(PROBLEM)
        file.flush()
        problem = load_problem(file.name)
    return Job(problem, source, quick_protocol(**limits), "cpu", CPU_THREADS)


def carriers() -> dict[str, Carrier]:
    client = connect()
    return {"docker": DockerCarrier(client, facts_of(client), None, DockerSettings()), "process": ProcessCarrier()}


def wait_until_quiet() -> None:
    """Returns when the processors were idle for a moment, or after `_PATIENCE_S`: others use this machine too."""
    deadline = time.monotonic() + _PATIENCE_S
    quiet = False
    while not quiet and time.monotonic() < deadline:
        before = _processor_time()
        time.sleep(_LOOK_S)
        idle, total = (now - then for now, then in zip(_processor_time(), before, strict=True))
        quiet = idle >= _IDLE_SHARE * total
    waits[quiet] += 1


def _processor_time() -> tuple[int, int]:
    """Idle and all, in ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def processes_of(container: str) -> list[str]:
    """On this machine, in the container or serving it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if container in (folder / "cgroup").read_text() + (folder / "cmdline").read_text():
                found.append(folder.name)
    return found


def containers_of(client: Any, pid: int) -> list[Any]:
    found = client.containers.list(all=True, ignore_removed=True, filters={"label": LABEL})
    return [container for container in found if container.labels[LABEL].split()[2] == str(pid)]


# -- the measurements -------------------------------------------------------------------------------------------------


def measure_starts(repeats: int) -> dict[str, Samples]:
    """Start of a judge and its end, with no job in between."""
    rows: dict[str, Samples] = {name: {"docker": [], "process": []} for name in ("carrier", "ready", "ping", "closed")}
    client = connect()
    for _ in range(repeats):
        for name, carrier in carriers().items():
            wait_until_quiet()
            began = time.perf_counter()
            channel = carrier.start("cpu", Limits())
            rows["carrier"][name].append(time.perf_counter() - began)
            channel.receive(180.0)
            rows["ready"][name].append(time.perf_counter() - began)
            began = time.perf_counter()
            channel.send({"ping": True})
            channel.receive(15.0)
            rows["ping"][name].append(time.perf_counter() - began)
            (container,) = [own.id for own in containers_of(client, os.getpid())] or ["no container"]
            began = time.perf_counter()
            channel.close()
            carrier.stop()
            while processes_of(container):
                pass
            rows["closed"][name].append(time.perf_counter() - began)
    assert containers_of(client, os.getpid()) == []
    return rows


def measure_jobs(repeats: int) -> dict[str, Samples]:
    """Warm jobs, the two sandboxes in turn: the whole, its phases, the rest, and the same with the largest source."""
    names = ("job", "phases", "rest", "large", "killed")
    rows: dict[str, Samples] = {name: {"docker": [], "process": []} for name in names}
    large = HONEST + "#" * (MAX_SOURCE_BYTES - len(HONEST))
    with contextlib.ExitStack() as stack:
        sandboxes = {name: stack.enter_context(Sandbox(carrier)) for name, carrier in carriers().items()}
        for sandbox in sandboxes.values():
            run(sandbox, make_job(HONEST))
        for index in range(repeats):
            for name in sorted(sandboxes, reverse=index % 2 == 1):
                whole, phases = run(sandboxes[name], make_job(HONEST))
                rows["job"][name].append(whole)
                rows["phases"][name].append(phases)
                rows["rest"][name].append(whole - phases)
                rows["large"][name].append(run(sandboxes[name], make_job(large))[0])
    with contextlib.ExitStack() as stack:
        sandboxes = {name: stack.enter_context(Sandbox(carrier)) for name, carrier in carriers().items()}
        for _ in range(repeats):
            for name, sandbox in sandboxes.items():
                whole, phases = run(sandbox, make_job(STUBBORN, call_s=1.0, build_s=2.0), "TIMEOUT")
                rows["killed"][name].append(whole - phases)
    return rows


def run(sandbox: Sandbox, job: Job, status: str = "PASSED") -> tuple[float, float]:
    """Seconds of a whole job, and of its phases together."""
    wait_until_quiet()
    began = time.perf_counter()
    result = sandbox.run(job, lambda phase: None)
    whole = time.perf_counter() - began
    assert result["status"] == status, result["message"]
    return whole, sum(result["seconds"].values())


def measure_host_death(repeats: int) -> Samples:
    """From SIGKILL of the host process in the middle of a job until no container and no process of it is left."""
    samples: Samples = {"docker": []}
    client = connect()
    for _ in range(repeats):
        command = [sys.executable, "-c", _HOST, "docker", "core/level1/relu", HONEST]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            next(line for line in process.stdout if line.strip() == "standard")
            (container,) = containers_of(client, process.pid)
            wait_s = time.perf_counter()
            process.kill()
            while client.containers.list(all=True, sparse=True, filters={"id": container.id}):
                pass
            while processes_of(container.id):
                pass
            samples["docker"].append(time.perf_counter() - wait_s)
    return samples


def warm_memory_bytes() -> int:
    """Of a container that has judged and waits, without the page cache that the kernel may drop."""
    client = connect()
    with Evaluator(protocol=quick_protocol(), device="cpu", sandbox="docker") as evaluator:
        evaluator.evaluate("core/level1/relu", HONEST)
        (container,) = containers_of(client, os.getpid())
        memory = container.stats(stream=False)["memory_stats"]
    facts = memory["stats"]
    return int(memory["usage"] - facts.get("total_inactive_file", facts.get("inactive_file", 0)))


# -- the table --------------------------------------------------------------------------------------------------------


def cell(seconds: Sequence[float] | None) -> str:
    """Median and quartiles in ms."""
    if not seconds:
        return ""
    low, middle, high = (1e3 * value for value in statistics.quantiles(seconds, n=4))
    digits = 0 if middle >= 20 else 1
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(repeats: int) -> Iterator[list[str]]:
    yield ["ms, median [quartiles]", "docker", "process", "docker - process", "n"]
    starts, jobs = measure_starts(repeats), measure_jobs(repeats)
    words = {
        "cold start, until the container runs or the process is started": starts["carrier"],
        "cold start, until the judge is ready": starts["ready"],
        "question to a warm judge and its answer": starts["ping"],
        "warm job, whole": jobs["job"],
        "warm job, its phases, with the runners' start": jobs["phases"],
        "warm job, all but its phases": jobs["rest"],
        "warm job with a source of 5 MB": jobs["large"],
        "from the decision TIMEOUT to the verdict, 51 processes killed": jobs["killed"],
        "from `close` until no process is left": starts["closed"],
        "from the host's SIGKILL until no container and no process is left": measure_host_death(max(3, repeats // 2)),
    }
    for what, samples in words.items():
        docker, process = samples["docker"], samples.get("process")
        pairs = [1e3 * (d - p) for d, p in zip(docker, process, strict=True)] if process else []
        difference = f"{statistics.median(pairs):+.1f}" if pairs else ""
        yield [what, cell(docker), cell(process), difference, str(len(docker))]
    yield [f"quiet when it began: {waits[True]} of {waits.total()} measurements", *[""] * 4]
    size = connect().images.get(IMAGE).attrs["Size"]
    yield [f"image: {size / 1e6:.0f} MB; a warm container: {warm_memory_bytes() / 1e6:.0f} MB of memory", *[""] * 4]


def machine() -> str:
    import torch

    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    facts = facts_of(connect())
    return (
        f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}; Docker {facts.version}, cgroup "
        f"v{facts.cgroup_version}; torch {torch.__version__}; Python {platform.python_version()}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(argv)
    command = shlex.join(["python", "benchmarks/sandbox.py", *(sys.argv[1:] if argv is None else argv)])
    with tempfile.TemporaryDirectory() as tempfile.tempdir:  # where locks lie: nobody else's jobs are waited for
        os.chmod(tempfile.tempdir, 0o711)
        rows = list(table(options.repeats))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    heading = f"# sandbox\n\n{datetime.date.today()}; {machine()}\n\n`{command}`\n\n"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sandbox.md").write_text(heading + "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
