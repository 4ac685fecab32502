"""Profiler feedback: what limits a right answer, in words, and nothing that a submission could whisper."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kbenv.diagnosis import read_diagnosis
from kbenv.profile import (
    NCU_METRICS,
    Counters,
    find_limit,
    list_kernels,
    measure_roof,
    parse_ncu,
    render_profile,
)
from kbenv.protocol import get_protocol
from kbenv.provenance import OUTSIDE
from kbenv.sandbox.runner.tool import NCU_OPTIONS
from kbenv.verdict import KernelShare, Provenance, Stage, Status, Verdict
from tests.fakes import make_plausibility, make_verdict
from tests.test_feedback import assert_golden
from tests.test_machine_code import ROWS

SOURCE = "__global__ void matmul(const float *a) {}\n__global__ void relu(float4 *x) {}\n"
RAW = """\
==PROF== Connected to process 4242 (/usr/bin/python3.11)
==PROF== Profiling "matmul" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum",\
"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"launch__registers_per_thread","sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","%","us","%","%","register/thread","n/a"
"0","4242","python3.11","127.0.0.1","matmul(const float *, const float *, float *, int)","1","7","(256, 1, 1)",\
"(64, 64, 1)","0","9.0","12.5","1,537.25","30.00","91.5","168","n/a"
"1","4242","python3.11","127.0.0.1","relu","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0","88","12.5","88","10","10","0"
==PROF== Disconnected from process 4242
"""
DETAILS = """\
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","python","127.0.0.1","relu","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","GPU Speed Of Light Throughput",\
"Memory Throughput","%","4.10"
"0","1","python","127.0.0.1","relu","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","GPU Speed Of Light Throughput",\
"DRAM Throughput","%","3.00"
"0","1","python","127.0.0.1","relu","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","GPU Speed Of Light Throughput",\
"Duration","us","2.50"
"0","1","python","127.0.0.1","relu","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","GPU Speed Of Light Throughput",\
"Compute (SM) Throughput","%","1.00"
"0","1","python","127.0.0.1","relu","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","Memory Workload Analysis",\
"Memory Throughput","Gbyte/s","170.5"
"0","1","python","127.0.0.1","relu","1","7","(32, 1, 1)","(4, 1, 1)","0","9.0","Launch Statistics","Waves Per SM","",\
"0.02"
"""


DIAGNOSIS = read_diagnosis({"code": ROWS, "counters": RAW, "missing": {}})


def provenance(*kernels: tuple[str, float, int, str]) -> Provenance:
    shares = tuple(KernelShare(name=n, share=s, count=c, kind=k) for n, s, c, k in kernels)  # type: ignore[arg-type]
    return Provenance(
        custom_share=sum(kernel.share for kernel in shares if kernel.kind == "custom"), kernels=shares,
        library_calls={}, method="device time of kernels in 3 calls of forward, from PyTorch's profiler",
    )  # fmt: skip


def verdict(latency_ms: float = 1.0, **ceiling: Any) -> Verdict:
    made = make_verdict(speedup=1.5, clock="judge-gated", plausibility=make_plausibility(None, **ceiling))
    hardware = made.hardware.model_copy(update={"device": "cuda:0", "name": "Scripted GPU"}) if made.hardware else None
    return made.model_copy(update={"latency_ms": latency_ms, "hardware": hardware})


@pytest.mark.parametrize(
    ("latency_ms", "gigabytes", "operations_ms", "bound"),
    [
        (1.0, 3.6, 0.0, "memory"),
        (1.0, 0.4, 0.9, "compute"),
        (1.0, 0.4, 0.3, "overhead"),
        (0.01, 0.004, 0.0, "latency"),
        (0.01, 0.036, 0.0, "memory"),
    ],
)
def test_the_nearer_ceiling_is_the_limit(latency_ms, gigabytes, operations_ms, bound) -> None:
    ceiling = {"bytes": round(gigabytes * 1e9), "operations_ms": operations_ms, "flops": round(operations_ms * 4e11)}
    roof = measure_roof(verdict(latency_ms, **ceiling))
    assert roof is not None
    assert roof.bound == bound
    assert roof.bandwidth == pytest.approx(gigabytes * 1e9 / latency_ms * 1e3)
    assert roof.bandwidth_share == pytest.approx(gigabytes / 4 / latency_ms)
    assert (roof.rate_share is None) == (operations_ms == 0)


def test_without_ceilings_or_latency_there_is_no_roof() -> None:
    assert measure_roof(make_verdict(speedup=2.0)) is None
    assert measure_roof(make_verdict(Status.WRONG_VALUE)) is None


def test_names_are_told_only_where_the_source_or_a_library_has_them() -> None:
    rows = list_kernels(
        provenance(
            ("void relu<4>(float4 const*, float4*)", 0.5, 3, "custom"),
            ("secret_31415(float*)", 0.3, 3, "custom"),
            ("_Z6matmulPKf", 0.1, 6, "custom"),
            ("void at::native::vectorized_elementwise_kernel<4, secret>", 0.096, 300, "library"),
            ("cublas_27182", 0.0, 3, "library"),
            ("another_27182", 0.004, 1, "other"),
        ),
        SOURCE,
    )
    assert [(row.name, row.percent, row.launches) for row in rows] == [
        ("relu", 50, 1),
        ("a kernel whose name is not in the source", 30, 1),
        ("matmul", 10, 2),
        ("elementwise", 10, None),
    ]


@pytest.mark.parametrize("kind", ["custom", "library", "compiled", "copy", "other"])
def test_no_kernel_can_carry_a_word_of_its_own(kind) -> None:
    (row,) = list_kernels(provenance(("cublas::secret_31415<hidden>", 1.0, 3, kind)), SOURCE)
    assert "secret" not in row.name
    assert "31415" not in row.name


def test_equal_names_are_one_row() -> None:
    kernels = [(f"hidden_{number}", 0.1, 3, "custom") for number in range(10)]
    (row,) = list_kernels(provenance(*kernels), SOURCE)
    assert (row.percent, row.launches) == (100, 10)


def test_ncus_raw_page_is_read_with_its_units() -> None:
    matmul, relu = parse_ncu(RAW)
    assert (matmul.kernel.split("(")[0], matmul.block, matmul.grid) == ("matmul", "(256, 1, 1)", "(64, 64, 1)")
    assert matmul.values == {
        "dram": 12.5, "duration": pytest.approx(1.53725), "memory": 30.0, "compute": 91.5, "registers": 168.0,
    }  # fmt: skip
    assert relu.values["duration"] == pytest.approx(0.0125)


def test_ncus_details_page_is_read_and_its_second_memory_throughput_is_not() -> None:
    (relu,) = parse_ncu(DETAILS)
    assert relu.values == {
        "memory": 4.1, "dram": 3.0, "duration": pytest.approx(0.0025), "compute": 1.0, "waves": 0.02,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "==ERROR== ERR_NVGPUCTRPERM", '"ID","Kernel Name"', '"a","b"\n"1","2"', RAW[:300]]
)
def test_what_is_no_table_holds_no_launches(text: str) -> None:
    assert parse_ncu(text) == ()


def test_ncu_is_asked_to_leave_the_clocks_alone_and_for_every_metric() -> None:
    options = dict(pairwise(NCU_OPTIONS))
    assert options["--clock-control"] == "none"
    assert set(options["--metrics"].split(",")) == set(NCU_METRICS.values())


def limit(**values: float) -> tuple[str, tuple[str, ...]]:
    found = find_limit(Counters("relu", "", "", values))
    assert found is not None
    return found.resource, found.causes


@pytest.mark.parametrize(
    ("values", "resource", "causes"),
    [
        ({"compute": 10, "memory": 92, "dram": 92}, "DRAM bandwidth", ()),
        ({"compute": 10, "memory": 85, "dram": 40, "l2": 85}, "L2 bandwidth", ()),
        (
            {"compute": 40, "memory": 85, "l1": 85, "bank_conflicts": 9e6, "load_requests": 1e6, "load_sectors": 4e6},
            "L1 and shared memory", ("bank-conflicts",),
        ),
        ({"compute": 90, "memory": 30, "tensor": 80}, "tensor cores", ()),
        ({"compute": 90, "memory": 30}, "arithmetic", ("no-tensor-cores",)),
        ({"compute": 5, "memory": 10, "waves": 0.1}, "latency", ("small-grid",)),
        (
            {"compute": 30, "memory": 40, "occupancy_possible": 25, "limit_registers": 2, "limit_shared": 8},
            "latency", ("occupancy-registers",),
        ),
        (
            {"compute": 30, "memory": 40, "occupancy_possible": 25, "limit_registers": 9, "limit_shared": 2},
            "latency", ("occupancy-shared",),
        ),
        ({"compute": 30, "memory": 40, "occupancy_possible": 100, "occupancy": 20}, "latency", ("occupancy",)),
        (
            {"compute": 10, "memory": 70, "dram": 70, "load_requests": 1e6, "load_sectors": 3.2e7}, "DRAM bandwidth",
            ("uncoalesced",),
        ),
        ({"compute": 30, "memory": 50, "local_loads": 5, "stall_memory": 9}, "latency", ("spills", "waits-for-memory")),
        ({"compute": 30, "memory": 50, "stall_barrier": 9, "stall_memory": 2}, "latency", ("waits-at-barriers",)),
    ],
)  # fmt: skip
def test_the_limit_and_its_causes(values, resource, causes) -> None:
    assert limit(**values) == (resource, causes)


def test_without_throughputs_there_is_no_limit() -> None:
    assert find_limit(Counters("relu", "", "", {"dram": 90.0})) is None


def test_the_whole_profile_reads_well() -> None:
    shares = provenance(("relu", 0.92, 3, "custom"), ("cublasGemm", 0.08, 3, "library"))
    made = verdict(1.4, bytes=5_368_709_120, flops=0, bandwidth=4.3e12).model_copy(
        update={"provenance": shares, "diagnosis": DIAGNOSIS}
    )
    text = render_profile(made, SOURCE)
    assert text is not None
    assert_golden("profile", text)


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.PASSED, Status.NO_CUSTOM_KERNEL)])
def test_of_a_wrong_answer_nothing_is_profiled(status: Status) -> None:
    failed = make_verdict(
        status, plausibility=make_plausibility(1.0), provenance=provenance(("relu", 1.0, 3, "custom")),
        protocol=get_protocol("hardened"), diagnosis=DIAGNOSIS,
    )  # fmt: skip
    assert render_profile(failed, SOURCE) is None


def test_a_verdict_without_measurements_has_no_profile() -> None:
    assert render_profile(make_verdict(speedup=2.0), SOURCE) is None
    untimed = make_verdict(Status.NO_CUSTOM_KERNEL, stage=Stage.PROVENANCE, diagnosis=DIAGNOSIS)
    assert render_profile(untimed, SOURCE) is None


def test_on_a_cpu_it_speaks_of_loops_and_not_of_launches() -> None:
    made = make_verdict(speedup=1.5, plausibility=make_plausibility(None, bytes=10**6, bandwidth=1e10))
    text = render_profile(made.model_copy(update={"provenance": provenance((OUTSIDE, 0.9, 1, "custom"))}), SOURCE)
    assert text is not None
    assert "loops are not vectorised" in text
    assert "- 90% outside of PyTorch's operators (custom)" in text


def test_counters_of_kernels_that_the_source_lacks_are_told_without_their_names() -> None:
    text = render_profile(verdict().model_copy(update={"diagnosis": DIAGNOSIS}), "x")
    assert text is not None
    assert "a library's kernel" in text
    assert "matmul" not in text


def test_what_was_asked_for_and_is_not_known_is_said_with_its_reason() -> None:
    refused = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\nPASSED: every check passed.\n"
    diagnosis = read_diagnosis({"code": [], "counters": refused, "missing": {"code": "no cuobjdump here"}})
    text = render_profile(verdict().model_copy(update={"diagnosis": diagnosis}), SOURCE)
    assert text is not None
    assert "Not known: the machine code (quoted):\n| no cuobjdump here" in text
    assert "Not known: the hardware counters (quoted):\n| " in text
    assert "ERR_NVGPUCTRPERM" in text
    assert "PASSED" not in text


def test_machine_code_that_the_submission_itself_told_of_is_marked() -> None:
    rows = [{**row, "self_reported": True} for row in ROWS]
    diagnosis = read_diagnosis({"code": rows, "missing": {}})
    text = render_profile(verdict().model_copy(update={"diagnosis": diagnosis}), SOURCE)
    assert text is not None
    assert "- matmul (as its compiler's cache in your process has it): 168 registers" in text
