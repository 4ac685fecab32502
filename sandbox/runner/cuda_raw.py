"""Raw CUDA kernels without PyTorch's headers: a source and a launch signature, compiled by NVRTC in about a second.

In a submission `import cuda_raw` finds this module; elsewhere it is `kbenv.sandbox.runner.cuda_raw`.

    import cuda_raw

    relu = cuda_raw.compile(SOURCE, "relu(const float* x, float* y, long long n)")
    relu((n + 255) // 256, 256, x, y, n)

The source is plain CUDA C++ for the device: `__global__` functions, no host code, the toolkit's device headers
(`cuda_fp16.h`, `mma.h`) where they are installed. A kernel of a template is named with its arguments:
`"scale<float, 4>(float* x, float factor)"`. Launches go to PyTorch's current stream and are not waited for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import torch

_SIGNATURE = re.compile(r"\s*(?P<name>[\w:]+(?:\s*<[^()]*>)?)\s*\((?P<parameters>[^()]*)\)\s*;?\s*")
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict)\b")
_PARAMETER = re.compile(r"(?P<type>[\w: ]+?)\s*(?P<star>\*?)\s*(?P<name>\b[A-Za-z_]\w*)?")
_SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool, "char": ctypes.c_int8, "int8_t": ctypes.c_int8, "signed char": ctypes.c_int8,
    "unsigned char": ctypes.c_uint8, "uint8_t": ctypes.c_uint8, "short": ctypes.c_int16, "int16_t": ctypes.c_int16,
    "int": ctypes.c_int32, "int32_t": ctypes.c_int32, "unsigned": ctypes.c_uint32, "unsigned int": ctypes.c_uint32,
    "uint32_t": ctypes.c_uint32, "long": ctypes.c_int64, "long long": ctypes.c_int64, "int64_t": ctypes.c_int64,
    "unsigned long": ctypes.c_uint64, "unsigned long long": ctypes.c_uint64, "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_uint64, "float": ctypes.c_float, "double": ctypes.c_double,
}  # fmt: skip
_DTYPES = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16, "bool": torch.bool, "unsigned char": torch.uint8, "uint8_t": torch.uint8,
    "signed char": torch.int8, "char": torch.int8, "int8_t": torch.int8, "short": torch.int16, "int16_t": torch.int16,
    "int": torch.int32, "int32_t": torch.int32, "long": torch.int64, "long long": torch.int64, "int64_t": torch.int64,
}  # fmt: skip
"""What a pointer must point to; other pointers (void*, float4*) take tensors of any type."""
_PLAIN_SHARED_BYTES = 48 << 10


class CompileError(RuntimeError):
    """NVRTC refused the source; the message is its log."""


class Kernel:
    """A compiled kernel; call it to launch it."""

    def __init__(self, function: Any, name: str, parameters: Sequence[tuple[str, bool]]) -> None:
        self._function = function
        self._parameters = tuple(parameters)
        self._types = tuple(ctypes.c_void_p if pointer else _SCALARS[kind] for kind, pointer in parameters)
        self._shared_bytes = _PLAIN_SHARED_BYTES
        self.name = name

    def __call__(
        self, grid: int | Sequence[int], block: int | Sequence[int], *arguments: Any, shared_bytes: int = 0
    ) -> None:
        """Launches on the current stream.

        Args:
            grid, block: one to three numbers.
            arguments: one per parameter: a CUDA tensor for a pointer (its first element is meant, whatever its
                strides), None for a null pointer, a number for a number.
            shared_bytes: of dynamic shared memory.

        Raises:
            TypeError: the arguments do not fit the signature.
            RuntimeError: CUDA refused the launch.
        """
        from cuda.bindings import driver

        if len(arguments) != len(self._parameters):
            raise TypeError(f"{self.name} takes {len(self._parameters)} arguments; found {len(arguments)}")
        values = tuple(
            _pointer(self.name, number, kind, value) if pointer else value
            for number, ((kind, pointer), value) in enumerate(zip(self._parameters, arguments, strict=True))
        )
        if shared_bytes > self._shared_bytes:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.cuFuncSetAttribute(self._function, attribute, shared_bytes))
            self._shared_bytes = shared_bytes
        stream = torch.cuda.current_stream().cuda_stream
        _check(
            driver.cuLaunchKernel(
                self._function, *_three(grid), *_three(block), shared_bytes, stream, (values, self._types), 0
            )
        )


def compile(source: str, signature: str, options: Sequence[str] = ()) -> Kernel:
    """Compiles a kernel for the current device.

    Args:
        source: CUDA C++.
        signature: the kernel's name and parameters, as they are declared.
        options: further options of NVRTC, such as "--use_fast_math".

    Raises:
        ValueError: the signature is none, or has a type that cannot be passed.
        CompileError: NVRTC refused the source.
    """
    from cuda.bindings import driver

    name, parameters = read_signature(signature)
    torch.cuda.current_stream().synchronize()  # PyTorch's context is current now
    image, lowered = _compile(source, name, tuple(options), torch.cuda.get_device_capability())
    module = _check(driver.cuModuleLoadData(image))
    return Kernel(_check(driver.cuModuleGetFunction(module, lowered)), name, parameters)


def read_signature(signature: str) -> tuple[str, list[tuple[str, bool]]]:
    """The name, and of each parameter its type without const and whether it is a pointer. Raises ValueError."""
    match = _SIGNATURE.fullmatch(signature.removeprefix("void ").strip())
    if match is None:
        raise ValueError(f'a signature is "name(type parameter, ...)"; found {signature!r}')
    parameters = []
    for text in filter(str.strip, match["parameters"].split(",")):
        parts = _PARAMETER.fullmatch(_QUALIFIER.sub(" ", text).strip())
        kind = " ".join(parts["type"].split()) if parts is not None else ""
        pointer = parts is not None and parts["star"] == "*"
        if parts is not None and not pointer and parts["name"] and f"{kind} {parts['name']}" in _SCALARS:
            kind = f"{kind} {parts['name']}"  # a type of two words, and no name
        if not pointer and kind not in _SCALARS:
            raise ValueError(f"{text.strip()!r} must be a pointer or a number: one of {', '.join(sorted(_SCALARS))}")
        parameters.append((kind, pointer))
    return match["name"], parameters


@functools.cache
def _compile(source: str, name: str, options: tuple[str, ...], capability: tuple[int, int]) -> tuple[bytes, bytes]:
    """The machine code and the kernel's name in it."""
    from cuda.bindings import nvrtc

    program = _check(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    _check(nvrtc.nvrtcAddNameExpression(program, name.encode()))
    target = f"--gpu-architecture=sm_{capability[0]}{capability[1]}"
    words = [target, "--std=c++17", *(f"-I{folder}" for folder in _include_folders()), *options]
    given = [word.encode() for word in words]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program))
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        raise CompileError(log.decode(errors="replace").strip(" \0\n") or str(result))
    lowered = _check(nvrtc.nvrtcGetLoweredName(program, name.encode()))
    image = b" " * _check(nvrtc.nvrtcGetCUBINSize(program))
    _check(nvrtc.nvrtcGetCUBIN(program, image))
    _keep(image)
    return image, lowered


def _keep(image: bytes) -> None:
    """Beside what other compilers keep of this process's, for who wants to read the machine code."""
    folder = os.environ.get("CUDA_CACHE_PATH")
    if folder:
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"{hashlib.sha256(image).hexdigest()}.cubin"), "wb") as file:
                file.write(image)


def _include_folders() -> list[str]:
    """Where the toolkit's device headers may lie: a toolkit's, or those of the wheels that torch depends on."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    wheels = [os.path.join(folder, "nvidia") for folder in sys.path]
    places = [os.path.join(root, "include") for root in roots if root]
    places += [os.path.join(wheel, part, "include") for wheel in wheels for part in ("cuda_runtime", "cu13", "cu12")]
    return [place for place in places if os.path.exists(os.path.join(place, "cuda_fp16.h"))]


def _check(answer: tuple[Any, ...]) -> Any:
    """What a call of the bindings returned beside its status. Raises RuntimeError with CUDA's own word for it."""
    status, *values = answer
    if status != 0:
        raise RuntimeError(f"CUDA error: {getattr(status, 'name', status)}")
    return values[0] if values else None


def _pointer(name: str, number: int, kind: str, value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        raise TypeError(f"{name}, argument {number}: expected a CUDA tensor for {kind}*, found {type(value).__name__}")
    expected = _DTYPES.get(kind)
    if expected is not None and value.dtype != expected:
        raise TypeError(f"{name}, argument {number}: expected {expected} for {kind}*, found {value.dtype}")
    return value.data_ptr()


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    numbers = [size] if isinstance(size, int) else list(size)
    if not 1 <= len(numbers) <= 3:
        raise TypeError(f"a grid or a block has one to three numbers; found {size!r}")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z
