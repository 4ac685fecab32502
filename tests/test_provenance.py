"""What a source says of itself, and what ran: prose is no evidence, no source is too odd, and doubt is credited."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest

from kbenv.backends import NO_BACKEND, backend_names
from kbenv.protocol import get_protocol
from kbenv.provenance import (
    cross_check,
    custom_kernel_evidence,
    defined_kernels,
    detect_backend,
    read_provenance,
    why_not_custom,
)
from kbenv.sandbox.judge.provenance import read_trace
from kbenv.sandbox.runner.trace import _quickest
from kbenv.sandbox.runner.trace import trace as trace_forward

MODEL = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
TORCH = f"import torch\n\n\n{MODEL}"
TRITON = f"import torch\nimport triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n\n\n{MODEL}"
CUDA = (
    "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
    f'SOURCE = """\n// a kernel\n__global__ void relu(float *x) {{}}\n"""\n'
    f'module = load_inline("relu", cpp_sources="", cuda_sources=SOURCE)\n\n\n{MODEL}'
)
CPP = f'from torch.utils.cpp_extension import load_inline\n\nmodule = load_inline("r", cpp_sources="")\n\n\n{MODEL}'
C = f'import ctypes\nimport torch\n\nlibrary = ctypes.CDLL("./kernel.so")\n\n\n{MODEL}'


@pytest.mark.parametrize(
    ("source", "backend"),
    [
        (TORCH, "torch"),
        (TRITON, "triton"),
        (CUDA, "cuda"),
        (CPP, "cpp"),
        (C, "c"),
        (TRITON.replace("@triton.jit", "@triton.autotune([], key=[])\n@triton.jit"), "triton"),
        (f"from triton import jit\n\n\n@jit\ndef kernel(x):\n    pass\n{MODEL}", "triton"),
        (f'import cupy\nkernel = cupy.RawKernel("", "relu")\n{MODEL}', "cuda_raw"),
        (f'import torch\nkernel = torch.cuda._compile_kernel("", "relu")\n{MODEL}', "cuda_raw"),
        (f"import cffi\n{MODEL}", "c"),
        ("", "torch"),
    ],
)
def test_the_backend_is_what_the_source_points_to(source, backend):
    assert detect_backend(source) == backend
    assert backend in (*backend_names(), NO_BACKEND)
    assert bool(custom_kernel_evidence(source)) is (backend != NO_BACKEND)


@pytest.mark.parametrize(
    "prose",
    [
        "# __global__ void relu() by load_inline, ctypes.CDLL, @triton.jit\n",
        '"""A __global__ kernel through load_inline or CDLL."""\n',
        'def f():\n    """Uses nvrtc."""\n',
        'class A:\n    """Like a cffi library."""\n',
        'async def f():\n    """load_inline"""\n    return 1\n',
    ],
)
def test_comments_and_docstrings_are_no_evidence(prose):
    assert custom_kernel_evidence(prose + TORCH) == {}


def test_a_jit_that_is_not_tritons_is_no_evidence():
    assert custom_kernel_evidence(f"import torch\n\n\n@torch.jit.script\ndef f(x):\n    return x\n\n\n{MODEL}") == {}
    assert custom_kernel_evidence(f"import jax\n\n\n@jax.jit\ndef f(x):\n    return x\n\n\n{MODEL}") == {}


def test_the_evidence_says_what_was_seen():
    assert custom_kernel_evidence(CUDA) == {
        "cuda": ("a __global__ function", "load_inline with CUDA sources"),
        "cpp": ("a C++ extension",),
    }


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def broken(:\n" + CUDA, id="syntax error"),
        pytest.param(CUDA + "\0", id="null byte"),
        pytest.param(CUDA + 's = "\ud800"\n', id="surrogate"),
        pytest.param("\ufeff" + CUDA, id="byte order mark"),
        pytest.param(CUDA.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(CUDA + "n = " + "+".join(["1"] * 900) + "\n", id="a long sum"),
        pytest.param(CUDA + "n = " + "+".join(["1"] * 20_000) + "\n", id="a very long sum"),
        pytest.param(CUDA + "n = " + "-" * 5000 + "1\n", id="many signs"),
        pytest.param(CUDA + "n = " + "(" * 500 + ")" * 500 + "\n", id="many parentheses"),
        pytest.param(CUDA + "x" + ".a" * 5000 + "\n", id="a long chain"),
    ],
)
def test_no_source_is_too_odd_to_be_read(source):
    assert detect_backend(source) == "cuda"


def test_a_sources_own_warnings_are_not_ours():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert detect_backend('pattern = "\\d"\nif pattern is "x":\n    pass\n' + C) == "c"


# -- what ran ---------------------------------------------------------------------------------------------------------

METHOD = "device time"


def trace(*kernels: tuple[str, float], outside: float | None = None) -> dict[str, Any]:
    return {"kernels": [[name, share, 3] for name, share in kernels], "outside": outside, "method": METHOD}


def kind_of(name: str, source: str = CUDA) -> str:
    return read_provenance(trace((name, 1.0)), source).kernels[0].kind


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::launch_clamp_scalar(at::"
         "TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2ul> >(int)", "PyTorch"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*)", "PyTorch"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(float*)", "PyTorch"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(pytorch_flash::Params)", "PyTorch"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "PyTorch"),
        ("void at_cuda_detail::cub::DeviceReduceKernel<at_cuda_detail::cub::Policy>(float*)", "PyTorch"),
        ("nvjet_tss_128x64_64x8_2x1_v_bz_NNN", "cuBLAS"),
        ("ampere_sgemm_128x64_nn", "cuBLAS"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(float)", "cuBLAS"),
        ("cutlass3x_sm100_tensorop_s128x256x8gemm_f32", "cuBLAS"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_cublas", "cuBLAS"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)", "cuBLAS"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", "cuBLAS"),
        ("void gemv2T_kernel_val<int, int, float, float, float, 128, 16>(cublasGemvParamsEx<int>)", "cuBLAS"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", "cuDNN"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::params_t)", "cuDNN"),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>(int, int)", "cuDNN"),
        ("void regular_fft<256u, EPT<8u>, 8u, 4u, padding_t>(kernel_arguments_t<unsigned int>)", "cuFFT"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL"),
        ("void cub::DeviceReduceKernel<cub::Policy>(float*)", "CUB"),
        ("void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::Agent>(float*)", "Thrust"),
    ],
)  # fmt: skip
def test_library_kernels_are_known_by_their_names(name, library):
    found = read_provenance(trace((name, 1.0)), CUDA)
    assert (found.kernels[0].kind, found.library_calls, found.custom_share) == ("library", {library: 1.0}, 0.0)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("relu(float*)", CUDA),
        ("void (anonymous namespace)::relu<float, 4>(float const*, float*)", CUDA),
        ("kernel", TRITON),
        ("triton_poi_fused_relu_0", TRITON.replace("kernel", "triton_poi_fused_relu_0")),  # pasted from the inductor
        ("ampere_sgemm_mine", CUDA.replace("relu(", "ampere_sgemm_mine(")),
        ("made_by_a_macro_17(float*)", CUDA),
        ("void made_by_a_macro<c10::Half>(at::PackedTensorAccessor32<float>)", CUDA),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>(int)",
         CUDA.replace("// a kernel", "#include <cutlass/gemm.h>")),
        ("void cub::DeviceReduceKernel<Policy, Mine>(float*)", CUDA.replace("// a kernel", "#include <cub/cub.cuh>")),
    ],
)  # fmt: skip
def test_the_sources_own_kernels_are_custom_and_so_is_what_is_in_doubt(name, source):
    found = read_provenance(trace((name, 1.0)), source)
    assert (found.kernels[0].kind, found.custom_share) == ("custom", 1.0)


def test_a_header_does_not_make_cublas_own_cutlass_kernels_custom():
    source = CUDA.replace("// a kernel", "#include <cutlass/gemm.h>")
    assert kind_of("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(Params)", source) == "library"


@pytest.mark.parametrize(
    ("name", "source", "kind"),
    [
        ("triton_poi_fused_relu_0", TORCH, "compiled"),
        ("triton_red_fused_native_layer_norm_0", TRITON, "compiled"),
        ("triton_per_fused__softmax_1", TRITON, "compiled"),
        ("Memcpy DtoD (Device -> Device)", CUDA, "copy"),
        ("Memset (Device)", CUDA, "copy"),
        ("who_knows(float*)", TORCH, "other"),
    ],
)
def test_what_is_neither_custom_nor_a_library(name, source, kind):
    assert kind_of(name, source) == kind


def test_on_a_cpu_what_lies_outside_of_operators_is_custom_only_where_the_source_has_a_kernel():
    seen = trace(("aten::mm", 0.6), ("aten::mul", 0.1), outside=0.3)
    custom, plain = read_provenance(seen, C), read_provenance(seen, TORCH)
    assert custom.custom_share == pytest.approx(0.3)
    assert plain.custom_share == 0.0
    assert [kernel.kind for kernel in plain.kernels] == ["library", "other", "library"]
    assert custom.library_calls == {"aten::mm": 0.6, "aten::mul": 0.1}


def test_on_a_cpu_an_operator_of_the_sources_own_counts():
    assert read_provenance(trace(("mine::relu", 0.9), outside=0.1), CPP).custom_share == pytest.approx(1.0)
    assert kind_of("aten::relu", CPP) == "custom"  # no kernel on a GPU is called so: the source may have named one
    compiled = read_provenance(trace(("Torch-Compiled Region: 0/0", 0.8), outside=0.2), TORCH)
    assert [kernel.kind for kernel in compiled.kernels] == ["compiled", "compiled"]


# -- what is decided --------------------------------------------------------------------------------------------------

HARDENED = get_protocol("hardened")
EVIDENCE = ("cuda: a __global__ function",)


def test_an_honest_level_3_model_with_one_fused_kernel_has_enough():
    seen = read_provenance(trace(("nvjet_tss_128x64", 0.93), ("relu(float*)", 0.07)), CUDA)
    assert why_not_custom(HARDENED, EVIDENCE, seen, "auto") is None
    assert cross_check(EVIDENCE, seen) == []


def test_a_decoy_has_too_little_and_the_message_says_what_ran_instead():
    kernels = (("nvjet_tss_128x64", 0.8), ("void at::native::f<1>(int)", 0.198), ("relu(float*)", 0.002))
    seen = read_provenance(trace(*kernels), CUDA)
    why = why_not_custom(HARDENED, EVIDENCE, seen, "auto")
    assert why is not None
    assert "hold 0.20% of the time and the protocol requires 1.00%" in why
    assert "cuBLAS 80.0%, PyTorch 19.8%" in why
    assert cross_check(EVIDENCE, seen) == [
        "the source holds a custom kernel, and custom kernels hold 0.20% of the time"
    ]


def test_what_was_not_measured_refuses_nothing():
    assert why_not_custom(HARDENED, EVIDENCE, None, "auto") is None
    assert why_not_custom(HARDENED, (), None, "auto") is not None


def test_a_protocol_without_a_share_goes_by_the_source():
    lenient = HARDENED.model_copy(update={"custom_share_at_least": None})
    nothing = read_provenance(trace(("nvjet_tss_128x64", 1.0)), CUDA)
    assert why_not_custom(lenient, EVIDENCE, nothing, "auto") is None
    assert why_not_custom(get_protocol("verified"), (), nothing, "auto") is None


def test_a_kernel_of_no_known_library_without_evidence_is_told():
    seen = read_provenance(trace(("who_knows(float*)", 1.0)), TORCH)
    assert cross_check((), seen) == [
        "of no library that is known, and the source shows no custom kernel: who_knows(float*)"
    ]


def test_kernels_that_a_source_defines_are_found():
    text = "__global__ void __launch_bounds__(256, 2) one(int a) {}\ntemplate <int N> __global__ void two (T *x) {}"
    assert defined_kernels(f'S = """{text}"""\n') == {"one", "two"}


# -- what a runner reports --------------------------------------------------------------------------------------------


def report(**changes: Any) -> dict[str, Any]:
    return {"kernels": [["relu", 30.0, 3]], "total_us": 40.0, "outside_us": None} | changes


def test_a_report_becomes_shares():
    assert read_trace(report()) == {"kernels": [["relu", 0.75, 3]], "outside": None}
    assert read_trace(report(outside_us=10)) == {"kernels": [["relu", 0.75, 3]], "outside": 0.25}
    assert read_trace(report(kernels=[["a\x1b[2J\n" + "b" * 999, 400.0, 3]])) == {
        "kernels": [["a [2J " + "b" * 394, 1.0, 3]], "outside": None
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"total_us": 0.0}, {"total_us": float("nan")}, {"total_us": "1"}, {"total_us": True}, {"kernels": None},
        {"kernels": [["relu", 1.0]]}, {"kernels": [[1, 1.0, 1]]}, {"kernels": [["relu", -1.0, 1]]},
        {"kernels": [["relu", 1.0, 0]]}, {"kernels": [["relu", 1.0, 1]] * 65}, {"outside_us": -1.0},
        {"total_us": 10**400}, {"outside_us": 10**400}, {"kernels": [["relu", 10**400, 1]]},
    ],
    ids=str,
)  # fmt: skip
def test_a_report_of_another_form_is_none(changes):
    assert read_trace(report(**changes)) is None
    assert read_trace({}) is None


def test_the_profiler_tells_operators_from_what_lies_outside_of_them():
    torch = pytest.importorskip("torch")
    x = torch.ones(100)

    def forward() -> None:
        torch.relu(x)
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass

    found = read_trace(trace_forward(forward, 2, "cpu"))
    assert found is not None
    assert found["outside"] > 0.5
    assert {"aten::relu", "aten::clamp_min"} <= {name for name, _, _ in found["kernels"]}
    assert next(count for name, _, count in found["kernels"] if name == "aten::relu") == 2
    assert found["outside"] + sum(share for _, share, _ in found["kernels"]) == pytest.approx(1.0, abs=0.05)


def test_a_call_that_was_interrupted_in_an_operator_moves_no_share():
    usual = {"aten::addmm": (90.0, 2), "aten::add": (5.0, 1)}
    interrupted = {"aten::addmm": (5000.0, 2), "aten::add": (6.0, 1)}
    report = _quickest([(5.0, usual), (7.0, interrupted), (400.0, usual)])
    assert report == {
        "kernels": [["aten::addmm", 270.0, 6], ["aten::add", 15.0, 3]], "total_us": 300.0, "outside_us": 15.0,
    }  # fmt: skip
