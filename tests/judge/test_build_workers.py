"""Build workers beside real judges: what they build is found, what they are given costs nothing else, and they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbenv.build_worker import BuildWorker
from kbenv.evaluator import Evaluator
from kbenv.pool import EvaluatorPool
from kbenv.verdict import Status
from tests.judge.corpus import TESTS, load_case
from tests.judge.evaluators import make_protocol, with_limits
from tests.judge.inside import SMALL_RELU
from tests.judge.test_builds import submission
from tests.judge.test_pool import descendants

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a builder has a user of its own")

ROOT = Path(__file__).resolve().parent.parent.parent
HOSTILE = (
    "i12_forge_build_requests", "i12_write_build_cache", "i13_kill_parent", "i3_system_exit_at_import",
    "i4_half_a_frame", "i4_oversized_frame", "i6_build_bombs", "i6_disk_filler", "i6_fork_bomb", "i6_infinite_import",
    "i6_memory_hog", "i6_plant_outside", "i6_stop_itself",
)  # fmt: skip
"""Of tests/exploits."""
CRASH = "import ctypes\n\nctypes.string_at(0)\n# load_inline\n"
REMEMBERING = """
import glob
import tempfile
import time

ME = os.path.basename(os.environ["HOME"])
PLACES = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", "."]
found = [path for place in PLACES for path in glob.glob(f"{place}/was-here-*") if not path.endswith(ME)]
if found:
    raise RuntimeError(f"left by another job of this submission: {found}")
for place in PLACES:
    try:
        open(f"{place}/was-here-{ME}", "w").close()
    except OSError:
        pass
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
"""
"""Leaves files wherever it can, and a process; refuses to work where it finds files of another scratch folder."""
IN_CONSTRUCTOR = """
import ctypes
import os
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        from torch.utils.cpp_extension import load_inline

        body = "for (long i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;"
        source = 'extern "C" void kernel(const float *x, float *y, long n) { %s }' % body
        load_inline("own_ext", source, no_implicit_headers=True, is_python_module=False)
        self.library = ctypes.CDLL(os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "own_ext", "own_ext.so"))
        self.library.kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]

    def forward(self, x):
        y = torch.empty_like(x)
        self.library.kernel(x.data_ptr(), y.data_ptr(), x.numel())
        return y
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is built, of this test's judges alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kbenv" / "builds"


OpenPool = Callable[..., EvaluatorPool]


@pytest.fixture
def open_pool(cache: Path) -> Iterator[OpenPool]:
    pools: list[EvaluatorPool] = []

    def opened(evaluator: Evaluator | None = None, **options: object) -> EvaluatorPool:
        rules = make_protocol("verified tight")
        evaluator = evaluator or Evaluator(protocol=rules, device="cpu", sandbox="process")
        pools.append(EvaluatorPool([evaluator], **{"build_workers": 1} | options))  # type: ignore[arg-type]
        return pools[-1]

    yield opened
    for pool in pools:
        pool.close()


def keys(cache: Path) -> set[str]:
    return {entry.name for entry in cache.iterdir()}


def test_the_second_is_built_while_the_first_is_judged_and_found_under_equal_keys(cache: Path, open_pool) -> None:
    judging, built = threading.Event(), threading.Event()
    seen: list[set[str]] = []

    def on_phase(phase: str) -> None:
        """The first is held in the middle of its job until the second is built."""
        if phase == "standard" and not judging.is_set():
            judging.set()
            assert built.wait(60)
            seen.append(keys(cache))

    def on_build(worker: str, doing: str) -> None:
        if judging.is_set() and doing == "waiting":
            built.set()

    evaluator = Evaluator(protocol=make_protocol("verified tight"), device="cpu", sandbox="process", on_phase=on_phase)
    pool = open_pool(evaluator, on_build=on_build)
    first = pool.submit(SMALL_RELU, submission())
    assert judging.wait(120)
    second = pool.submit(SMALL_RELU, submission("x[i] < 0 ? 0 : x[i]"))
    for verdict in (first.result(), second.result()):
        assert verdict.status is Status.PASSED, (verdict.status, verdict.message, verdict.detail)
        assert verdict.build is not None
        assert verdict.build.compiled == 0
        assert verdict.build.from_cache == verdict.build.requested > 0
        assert verdict.build.declined == ()
        assert verdict.build.ahead_seconds is not None
    assert len(seen[0]) == 4  # an object and a library for each
    assert keys(cache) == seen[0]  # the jobs asked for nothing else


def test_a_job_without_a_build_worker_says_so(open_pool) -> None:
    verdict = open_pool(build_workers=0).evaluate(SMALL_RELU, submission())
    assert verdict.build is not None
    assert verdict.build.ahead_seconds is None
    assert verdict.build.compiled == 1


def test_what_a_constructor_builds_is_built_ahead(open_pool) -> None:
    verdict = open_pool().evaluate(SMALL_RELU, IN_CONSTRUCTOR)
    assert verdict.status is Status.PASSED, (verdict.status, verdict.message, verdict.detail)
    assert verdict.build is not None
    assert (verdict.build.compiled, verdict.build.from_cache) == (0, verdict.build.requested)


def test_a_refusal_is_found_too(open_pool) -> None:
    verdict = open_pool().evaluate(SMALL_RELU, submission("undeclared_name"))
    assert verdict.status is Status.COMPILE_ERROR
    assert verdict.build is not None
    assert (verdict.build.compiled, verdict.build.from_cache) == (0, 1)


def test_nothing_of_the_load_ahead_reaches_the_job(open_pool) -> None:
    doings: list[str] = []
    pool = open_pool(on_build=lambda worker, doing: doings.append(doing))
    verdict = pool.evaluate(SMALL_RELU, submission(before=REMEMBERING))
    assert doings == [f"building {SMALL_RELU.id}", "waiting"]
    assert verdict.status is Status.PASSED, (verdict.status, verdict.message, verdict.detail)
    assert verdict.build is not None
    assert verdict.build.compiled == 0


# -- one worker alone -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worker(tmp_path_factory) -> Iterator[tuple[BuildWorker, Path]]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        rules = with_limits(make_protocol("verified tight"), build_s=5.0)
        evaluator = Evaluator(protocol=rules, device="cpu", sandbox="process")
        (made,) = evaluator.build_workers(1)
        made.build(SMALL_RELU, "from torch.utils.cpp_extension import load_inline", None)  # its judge is there
        yield made, folder / "kbenv" / "builds"
        made.close()


@pytest.mark.parametrize("name", [*HOSTILE, "crash"])
def test_a_hostile_submission_costs_a_worker_its_time_and_nothing_else(worker, name: str) -> None:
    """Its judge goes on, none of its processes is left, and what is built next is what it would have been."""
    made, cache = worker
    before = descendants()
    source = CRASH if name == "crash" else load_case(TESTS / "exploits" / f"{name}.py").source
    made.build(SMALL_RELU, source, None)
    assert len(descendants()) <= len(before)
    known = keys(cache)
    made.build(SMALL_RELU, submission(include=f"// {name}"), None)
    assert len(keys(cache) - known) == 2
    assert all((cache / key).stat().st_uid == 0 for key in keys(cache))


def test_a_submission_that_asks_for_the_device_is_told_of_the_one_that_its_job_has(worker) -> None:
    made, cache = worker
    properties = {"name": "a GPU", "major": 9, "minor": 0, "multi_processor_count": 132}
    asks = "assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)"
    source = submission(before=asks, include="// of the device")
    known = keys(cache)
    made.build(SMALL_RELU, source, None)
    assert keys(cache) == known
    made.build(SMALL_RELU, source, {"properties": properties, "architectures": ["sm_90"]})
    assert len(keys(cache) - known) == 2


def test_a_worker_ends_with_its_pool_in_the_middle_of_a_build(open_pool) -> None:
    before, building = descendants(), threading.Event()
    pool = open_pool(on_build=lambda worker, doing: building.set())
    future = pool.submit(SMALL_RELU, "import time\n\ntime.sleep(600)\n# load_inline\n")
    assert building.wait(60)
    while len(descendants() - before) < 4:  # two judges with a fork server each
        pass
    pool.close()
    assert future.cancelled()
    assert descendants() <= before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_pool_that_is_killed_or_interrupted_leaves_no_process_of_its_workers(cache: Path, number: int) -> None:
    before = descendants()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.judge.killed_pool"], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "building core/level1/relu\n"
        judges: set[int] = set()
        try:
            deadline = time.monotonic() + 60
            while len(judges) < 5:  # judge and fork server, twice; a runner, which may be gone again on a busy machine
                assert time.monotonic() < deadline, judges
                judges |= descendants() - before
                time.sleep(0.01)
            time.sleep(1.0)  # where there are namespaces the fifth is their init, and a runner comes of it
            judges |= descendants() - before
            process.send_signal(number)
            process.wait(60)
        finally:
            process.kill()  # it would sleep for minutes
    deadline = time.monotonic() + 30
    while left := {pid for pid in judges if is_judge(pid)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def is_judge(pid: int) -> bool:
    try:
        return b"judge" in Path(f"/proc/{pid}/cmdline").read_bytes()  # empty of a zombie
    except OSError:
        return False


@pytest.mark.gpu
def test_a_cuda_extension_is_built_without_the_device_under_the_keys_of_a_job_on_it(cache: Path, open_pool) -> None:
    case = load_case(TESTS / "honest" / "cuda" / "load_inline_current_stream.py")
    seen: list[set[str]] = []

    def on_phase(phase: str) -> None:
        if phase == "build":
            seen.append(keys(cache))

    rules = make_protocol("verified tight", "cuda:0")
    evaluator = Evaluator(protocol=rules, device="cuda:0", sandbox="process", on_phase=on_phase)
    verdict = open_pool(evaluator).evaluate(case.problem, case.source)
    assert verdict.status is Status.PASSED, (verdict.status, verdict.message, verdict.detail)
    assert verdict.build is not None
    assert verdict.build.ahead_seconds is not None
    assert (verdict.build.compiled, verdict.build.from_cache) == (0, verdict.build.requested)
    assert keys(cache) == seen[0]
