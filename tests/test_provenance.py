"""What a source says of itself: comments and prose are no evidence, and no source is too odd to be read."""

from __future__ import annotations

import warnings

import pytest

from kbenv.provenance import BACKENDS, custom_kernel_evidence, detect_backend

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
        (f'import cupy\nkernel = cupy.RawKernel("", "relu")\n{MODEL}', "cuda"),
        (f'import torch\nkernel = torch.cuda._compile_kernel("", "relu")\n{MODEL}', "cuda"),
        (f"import cffi\n{MODEL}", "c"),
        ("", "torch"),
    ],
)
def test_the_backend_is_what_the_source_points_to(source, backend):
    assert detect_backend(source) == backend
    assert backend in (*BACKENDS, "torch")
    assert bool(custom_kernel_evidence(source)) is (backend != "torch")


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
    assert custom_kernel_evidence(f"import numba\n\n\n@numba.jit\ndef f(x):\n    return x\n\n\n{MODEL}") == {}


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
