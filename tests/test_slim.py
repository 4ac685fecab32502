"""Which sources get stand-ins for PyTorch's headers, and what is in them."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

from kbenv.sandbox.judge import slim_tensor as slim_tensor_module
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


def test_a_call_without_a_namespace_names_an_operator():
    headers = slim(PLAIN + "using torch::Tensor;\nTensor f(Tensor x) { return x.exp() + empty_like(x); }")
    assert headers is not None
    assert headers["kbenv/operators.h"] == "#include <ATen/ops/empty_like.h>\n"


def test_an_operators_other_forms_are_in_its_header():
    headers = slim(PLAIN + "void f(at::Tensor x) { relu_(x); at::add_out(x, x, x); at::mul_outf(x, x, x); }")
    assert headers is not None
    assert headers["kbenv/operators.h"] == "".join(f"#include <ATen/ops/{name}.h>\n" for name in ("add", "mul", "relu"))


OWN = """template <typename T> T load(const T *p) { return *p; }
at::Tensor relu(at::Tensor x) { return x; }
at::Tensor relu_(at::Tensor x) { return x; }
at::Tensor &add_out(at::Tensor &z, const at::Tensor &x, const at::Tensor &y) { return z; }
"""
CALLS = """void f(at::Tensor x, at::Half *p) {
    relu(x);
    relu_(x);
    add_out(x, x, x);
    load(p);
}
"""


def test_a_function_of_the_sources_own_is_as_ambiguous_as_with_the_real_headers(tmp_path):
    text = PLAIN.replace("__global__ ", "") + OWN
    headers = slim(text)
    assert headers is not None
    assert compiled(text, headers, tmp_path).returncode == 0
    headers = slim(text + CALLS)
    assert headers is not None
    said = [line for line in compiled(text + CALLS, headers, tmp_path).stderr.splitlines() if "ambiguous" in line]
    assert [name for name in ("relu(", "relu_(", "add_out(", "load(") if not any(name in line for line in said)] == []


def test_macros_for_logs_are_there_as_with_the_real_headers(tmp_path):
    text = PLAIN.replace("__global__ ", "") + "inline void CHECK(int error) {}\n"
    headers = slim(text)
    assert headers is not None
    assert "logging_is_not_google_glog.h" in compiled(text, headers, tmp_path).stderr


def test_a_comment_names_nothing():
    headers = slim(PLAIN + "// torch::nn and at::conv2d\n/* PYBIND11_MODULE\n at::sum */")
    assert headers is not None
    assert headers["kbenv/operators.h"] == ""


@pytest.mark.parametrize(
    "text",
    [
        "#include <torch/torch.h>", "torch::nn::ReLU r;", "TORCH_LIBRARY(a, m) {}", "PYBIND11_MODULE(a, m) {}",
        "auto o = x.options().requires_grad(true);", "torch::autograd::Variable v;", "py::object o;",
        '#if __has_include("x.h")', "auto t = torch::tensor({1});", "#ifdef AT_DISALLOW_COPY_AND_ASSIGN\n#endif",
        "#if defined(TORCH_FN) || PY_VERSION_HEX > 0\n#endif", "#  elif C10_LOG_API_USAGE_ONCE\n",
        "using namespace torch;", "using namespace ::at::indexing;", "auto y = torch::var(x, 1);", "print(x);",
        "int numel(const at::Tensor &x) { return 1; }",
    ],
)  # fmt: skip
def test_a_source_that_evidently_needs_all_gets_no_stand_ins(text):
    assert slim(PLAIN + text) is None


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize("header", ["torch/extension.h", "torch/all.h"])
def test_a_condition_on_pytorchs_version_is_what_it_is_with_the_real_headers(header, cuda, tmp_path):
    text = f"#include <{header}>\n#if TORCH_VERSION_MAJOR < 2\n#error of long ago\n#endif\n"
    headers = slim(text, cuda=cuda)
    assert headers is not None
    found = compiled(text, headers, tmp_path, "-E", f"-I{sysconfig.get_path('include')}")
    assert found.returncode == 0, found.stderr[:2000]


@pytest.mark.parametrize(
    "text", ["#ifndef CHECK_CUDA\n#endif", "#ifdef TORCH_EXTENSION_NAME\n#endif", "#if __CUDA_ARCH__"]
)
def test_other_conditions_need_nothing_more(text):
    assert slim(PLAIN + text) is not None


def test_a_message_calls_nothing():
    assert slim(PLAIN + 'const char *f() { return "\\"x\\" must be of size (N, 3)"; }') is not None


def test_a_source_without_the_large_headers_gets_none():
    assert slim("#include <cuda.h>\nextern \"C\" __global__ void k(float *x) {}\n") is None  # fmt: skip


def test_a_binding_is_for_c_plus_plus_alone():
    binding = "#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
    headers = slim(binding, cuda=False)
    assert headers is not None
    assert "pybind.h" in headers["kbenv/prelude.h"]
    assert slim(binding) is None
    for header in ("torch/types.h", "torch/all.h", "ATen/ATen.h"):  # with the real ones it does not compile
        headers = slim(binding.replace("torch/extension.h", header), cuda=False)
        assert headers is not None
        assert not any("pybind" in text for text in headers.values())


# -- tensors ----------------------------------------------------------------------------------------------------------

HOST = """#include <torch/extension.h>
at::Tensor f(const at::Tensor &x, std::optional<torch::Tensor> b) {
    TORCH_CHECK(x.is_contiguous() && x.dim() == 2, "x");
    auto y = torch::zeros({x.size(0), 4}, x.options().dtype(torch::kFloat32));
    auto z = (x.view({-1, 4}).to(torch::kHalf) + y * 2.0).sum(1) / 3;
    return b.has_value() ? torch::matmul(z, b.value().t()) : -x[0];
}
"""


def compiled(text: str, headers: dict[str, str], folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    for path, content in {**headers, "a.cpp": text}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    api = os.path.join(INCLUDE, "torch", "csrc", "api", "include")
    command = ["c++", "-std=c++20", *(flags or ["-fsyntax-only"]), f"-I{folder}", f"-I{INCLUDE}", f"-I{api}"]
    command.append(str(folder / "a.cpp"))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_tensor_has_the_methods_that_a_source_names_and_compiles_with_them(tmp_path):
    headers = slim(HOST)
    assert headers is not None
    found = compiled(HOST, headers, tmp_path)
    assert found.returncode == 0, found.stderr[:2000]
    tensor = headers["ATen/core/TensorBody.h"]
    assert "Tensor::cumsum(" not in tensor
    assert "Tensor::view(" in tensor
    assert len(tensor) < 0.3 * os.path.getsize(os.path.join(INCLUDE, "ATen/core/TensorBody.h"))
    hidden = HOST.replace("x[0]", "x.cum\\\nsum(0)")
    assert compiled(hidden, headers, tmp_path).returncode != 0  # an error, never a method without its definition


def test_every_method_is_declared_as_often_as_it_is_defined():
    real = slim_tensor_module._read(INCLUDE)
    assert len(real.methods) > 500
    names = frozenset(real.methods) - real.unknown
    whole = slim_tensor_module.slim_tensor(names, INCLUDE)
    assert whole is not None
    for match in slim_tensor_module._DEFINITION.finditer(real.text):
        assert (match[0] in whole["ATen/core/TensorBody.h"]) == (match["method"] in names)


@pytest.mark.parametrize(
    "text", ["x.__iand__(y);", "c10::DeviceGuard guard(x.device());", "#include <ATen/native/TensorIterator.h>\n"]
)
def test_what_needs_more_of_a_tensor_gets_the_whole_class(text):
    headers = slim(PLAIN + text)
    assert headers is not None
    assert "ATen/core/TensorBody.h" not in headers


def test_headers_of_another_form_are_left_as_they_are(tmp_path):
    for path in ("ATen/core/TensorBody.h", "ATen/MethodOperators.h", "ATen/TensorOperators.h"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("class Tensor {};\n")
    assert slim_tensor_module.slim_tensor(frozenset({"view"}), str(tmp_path)) is None
    assert slim_tensor_module.slim_tensor(frozenset({"view"}), str(tmp_path / "nowhere")) is None


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
