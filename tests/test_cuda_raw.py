"""Launch signatures, and what of a launch can be checked without a GPU; with one, a kernel that runs."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from kbenv.sandbox.runner import cuda_raw
from kbenv.sandbox.runner.error import describe_error

SOURCE = 'extern "C" __global__ void relu(const float* x, float* y, long long n) {}'


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("relu(const float* x, float* y, long long n)",
         ("relu", [("float", True), ("float", True), ("long long", False)])),
        ("void f(float const *__restrict__ x, unsigned int n, bool)",
         ("f", [("float", True), ("unsigned int", False), ("bool", False)])),
        ("ns::scale<float, 4>(void* x, float factor)", ("ns::scale<float, 4>", [("void", True), ("float", False)])),
        ("f()", ("f", [])),
        ("f(unsigned int)", ("f", [("unsigned int", False)])),
    ],
)  # fmt: skip
def test_a_signature_is_read(signature, expected):
    assert cuda_raw.read_signature(signature) == expected


@pytest.mark.parametrize("signature", ["relu", "relu(", "f(dim3 x)", "f(std::vector<float> x)", "f(float** x)"])
def test_what_is_no_signature_is_refused(signature):
    with pytest.raises(ValueError, match=r"signature|must be a pointer or a number"):
        cuda_raw.read_signature(signature)


def test_arguments_are_held_against_the_signature():
    kernel = cuda_raw.Kernel(None, *cuda_raw.read_signature("relu(const float* x, long long n)"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cuda", ModuleType("cuda"))
        patch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=None))
        with pytest.raises(TypeError, match="takes 2 arguments; found 1"):
            kernel(1, 1, None)
        with pytest.raises(TypeError, match="expected a CUDA tensor for float"):
            kernel(1, 1, torch.zeros(3), 3)


def test_a_refusal_of_nvrtc_is_a_compile_error(monkeypatch):
    def get_log(_, log):
        return (0,)

    nvrtc = SimpleNamespace(
        nvrtcCreateProgram=lambda *_: (0, "program"), nvrtcAddNameExpression=lambda *_: (0,),
        nvrtcCompileProgram=lambda *_: (6,), nvrtcResult=SimpleNamespace(NVRTC_SUCCESS=0),
        nvrtcGetProgramLogSize=lambda _: (0, 8), nvrtcGetProgramLog=get_log,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(nvrtc=nvrtc))
    with pytest.raises(cuda_raw.CompileError) as raised:
        cuda_raw._compile("not CUDA", "relu", (), (9, 0))
    assert describe_error(raised.value)["kind"] == "compile"


@pytest.mark.gpu
def test_a_kernel_runs_on_the_current_stream():
    source = """
    template <typename T> __global__ void scale(const T* x, T* y, T factor, long long n) {
      long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
      if (i < n) y[i] = x[i] * factor;
    }
    """
    scale = cuda_raw.compile(source, "scale<float>(const float* x, float* y, float factor, long long n)")
    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    scale(4, 256, x, y, 3.0, x.numel())
    torch.testing.assert_close(y, x * 3)
    with pytest.raises(TypeError, match="float32"):
        scale(4, 256, x.double(), y, 3.0, x.numel())


@pytest.mark.gpu
def test_a_source_that_is_wrong_is_refused_with_the_log():
    with pytest.raises(cuda_raw.CompileError, match="undeclared_name"):
        cuda_raw.compile('extern "C" __global__ void f(float* x) { *x = undeclared_name; }', "f(float* x)")
