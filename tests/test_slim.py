"""Which sources get stand-ins for PyTorch's headers, and what is in them."""

from __future__ import annotations

import os

import pytest
import torch

from kbenv.sandbox.judge.flags import is_trusted, refused
from kbenv.sandbox.judge.slim import slim_headers

INCLUDE = os.path.join(os.path.dirname(torch.__file__), "include")
PLAIN = "#include <torch/types.h>\n__global__ void k(float *x) {}\n"


def slim(text: str, *, cuda: bool = True) -> dict[str, str] | None:
    return slim_headers(text, INCLUDE, cuda=cuda)


def test_the_operators_that_a_source_names_are_included():
    headers = slim(PLAIN + "torch::Tensor f(torch::Tensor x) { return torch::empty_like(at::zeros({2})); }")
    assert headers is not None
    assert headers["kbenv/operators.h"] == "#include <ATen/ops/empty_like.h>\n#include <ATen/ops/zeros.h>\n"


def test_under_an_open_namespace_a_call_names_an_operator():
    headers = slim(PLAIN + "using namespace torch;\nTensor f(Tensor x) { return empty_like(x); }")
    assert headers is not None
    assert "empty_like.h" in headers["kbenv/operators.h"]
    assert "empty_like.h" not in str(slim(PLAIN + "int empty_like(int x); int y = empty_like(1);"))


def test_a_comment_names_nothing():
    headers = slim(PLAIN + "// torch::nn and at::conv2d\n/* PYBIND11_MODULE\n at::sum */")
    assert headers is not None
    assert headers["kbenv/operators.h"] == ""


@pytest.mark.parametrize(
    "text",
    [
        "#include <torch/torch.h>", "torch::nn::ReLU r;", "TORCH_LIBRARY(a, m) {}", "PYBIND11_MODULE(a, m) {}",
        "auto o = x.options().requires_grad(true);", "torch::autograd::Variable v;", "py::object o;",
        '#if __has_include("x.h")', "auto t = torch::tensor({1});",
    ],
)  # fmt: skip
def test_a_source_that_evidently_needs_all_gets_no_stand_ins(text):
    assert slim(PLAIN + text) is None


def test_a_source_without_the_large_headers_gets_none():
    assert slim("#include <cuda.h>\nextern \"C\" __global__ void k(float *x) {}\n") is None  # fmt: skip


def test_a_binding_is_for_c_plus_plus_alone():
    binding = "#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
    headers = slim(binding, cuda=False)
    assert headers is not None
    assert "pybind.h" in headers["kbenv/prelude.h"]
    assert slim(binding) is None


# -- flags ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        ["-O3", "--use_fast_math", "-lineinfo"], ["-Xptxas", "-O3,-v"], ["-Xptxas=-dlcm=cg"], ["-arch=sm_90a"],
        ["-gencode", "arch=compute_90a,code=sm_90a"], ["-gencode=arch=compute_80,code=[compute_80,sm_80]"],
        ["-Xcompiler", "-O3,-fopenmp"], ["--ptxas-options=-v"], ["--expt-extended-lambda"], ["-std=c++17"],
        ["-maxrregcount=64"], ["-U__CUDA_NO_HALF_OPERATORS__"], ["-DBLOCK=256"], ["-Wno-deprecated-declarations"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_usual_flags_of_nvcc_are_taken(flags):
    assert refused("cuda", flags) is None


@pytest.mark.parametrize(
    "flags",
    [
        ["-Xcompiler", "-fplugin=/tmp/x.so"], ["-ccbin", "/tmp/g++"], ["--compiler-bindir=/tmp"], ["-dc"],
        ["-Xptxas", "-v", "--keep"], ["--keep-dir", "/tmp"], ["-optf", "/tmp/x"], ["--run"], ["-Xlinker", "x"],
        ["-Xcompiler"], ["-gencode"], ["--dryrun"], ["-forward-unknown-to-host-compiler"], ["-Xcompiler=-B/tmp"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_other_flags_of_nvcc_are_not(flags):
    assert refused("cuda", flags) is not None


@pytest.mark.parametrize("flags", [["-lcublas", "-lcudnn"], ["-Wl,--as-needed", "-s"], ["-L/usr/lib", "-lm"]])
def test_usual_flags_of_a_linker_are_taken(flags):
    assert refused("link", flags) is None


def test_a_folder_counts_where_nobody_else_can_write(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    assert is_trusted(str(mine))
    assert not is_trusted("/tmp")
    assert not is_trusted("relative")
    assert not is_trusted(str(mine / "missing"))
    mine.chmod(0o777)
    (mine / "below").mkdir()
    assert not is_trusted(str(mine / "below"))


def test_cudas_context_is_slim_unless_it_is_asked_for():
    context = "ATen/cuda/CUDAContext.h"
    assert context in (slim(PLAIN) or {})
    assert context not in (slim(PLAIN + "AT_CUDA_CHECK(cudaGetLastError());") or {"": context})
    assert context not in (slim(PLAIN, cuda=False) or {"": context})
