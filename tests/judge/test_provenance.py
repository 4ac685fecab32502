"""What ran is seen in the real judge, on a CPU: a fused kernel has its share, a decoy none, a crash refuses nothing."""

from __future__ import annotations

import pytest

from kbenv.verdict import Provenance, Status
from tests.judge.corpus import TESTS, load_case

REQUIRED = {"require_custom_kernel": True, "custom_share_at_least": 0.02}
MOSTLY = {"require_custom_kernel": True, "custom_share_at_least": 0.5}
DECOY = """
import ctypes
import torch

library = ctypes.CDLL(None)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        library.abs(-1)
        {before}
        return torch.relu(x)
"""
DIES = "if torch.autograd._profiler_enabled(): import os; os._exit(1)"


def provenance_of(verdict) -> Provenance:
    assert verdict.provenance is not None, verdict.flags
    return verdict.provenance


@pytest.mark.parametrize("name", ["c_gate_up_interleaved", "c_flash_attention"])
def test_a_level_3_model_with_one_fused_kernel_is_credited_where_a_share_is_required(name, get_evaluator):
    case = load_case(TESTS / "honest" / f"{name}.py")
    verdict = get_evaluator("verified brisk", **REQUIRED).evaluate(case.problem, case.source)
    assert verdict.credited, verdict.message
    seen = provenance_of(verdict)
    assert 0.02 <= seen.custom_share < 0.9
    assert {"aten::mm", "aten::addmm"} & seen.library_calls.keys()
    assert "upper bound" in seen.method


def test_a_decoy_is_refused_where_a_share_is_required_and_told_where_none_is(get_evaluator):
    source = DECOY.format(before="")
    verdict = get_evaluator("verified brisk", **MOSTLY).evaluate("core/level1/relu", source)
    assert verdict.status is Status.NO_CUSTOM_KERNEL, verdict.message
    assert "aten::clamp_min" in verdict.message
    assert verdict.speedup is not None
    told = get_evaluator("verified brisk").evaluate("core/level1/relu", source)
    assert told.credited
    assert provenance_of(told).library_calls["aten::clamp_min"] > 0.5


def test_a_process_that_dies_under_the_profiler_is_judged_by_its_source(get_evaluator):
    verdict = get_evaluator("verified brisk", **MOSTLY).evaluate("core/level1/relu", DECOY.format(before=DIES))
    assert verdict.credited, verdict.message
    assert verdict.provenance is None
    assert any(flag.startswith("what ran was not measured: ") for flag in verdict.flags)


def test_a_matmul_has_its_cost_and_its_device_rates(get_evaluator):
    case = load_case(TESTS / "honest" / "c_matmul_split_k.py")
    verdict = get_evaluator("verified brisk", **REQUIRED).evaluate(case.problem, case.source)
    floor = verdict.plausibility
    assert floor is not None, verdict.flags
    assert (floor.flops, floor.bytes) == (402653184, 1048576 + 1572864 + 1572864)
    assert floor.operations_ms == pytest.approx(floor.flops / floor.rate * 1e3)
    assert floor.below_floor is False
    assert verdict.screen


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "least", "most"), [("triton_relu", 0.9, 1.0), ("nvrtc", 0.9, 1.0)])
def test_on_a_gpu_custom_kernels_are_seen(name, least, most, get_evaluator):
    case = load_case(TESTS / "honest" / "cuda" / f"{name}.py")
    verdict = get_evaluator("verified brisk", "cuda:0", **MOSTLY).evaluate(case.problem, case.source)
    assert verdict.credited, verdict.message
    assert least <= provenance_of(verdict).custom_share <= most
    assert verdict.plausibility is not None, verdict.flags
    assert not verdict.plausibility.below_floor


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "library"),
    [("matmul_tf32", "cuBLAS"), ("weights_packed_once", "cuBLAS"), ("cuda_graph_replay", "PyTorch")],
)
def test_on_a_gpu_library_kernels_are_known(name, library, get_evaluator):
    case = load_case(TESTS / "honest" / "cuda" / f"{name}.py")
    verdict = get_evaluator("verified brisk", "cuda:0", custom_share_at_least=0.0).evaluate(case.problem, case.source)
    seen = provenance_of(verdict)
    assert seen.custom_share == 0.0
    assert seen.library_calls.get(library, 0.0) > 0.5, seen.kernels
