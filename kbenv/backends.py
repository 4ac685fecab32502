"""The kernel languages that a submission may be written in, one declaration each.

Nothing else compares a backend's name: what is to be known of one is a field of its `Backend`. How a source comes to
run is the source's own affair (a submission is a Python module that builds what it needs), so `loading` says it in
words, and `needs` what must be installed where it is judged. A backend of which no kernel has been judged is declared
only (`proven` is None): its sources are recognised and judged like any other, and `kbenv doctor` says what it needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "google", "huawei", "cpu"]
Dialect = Literal["threads", "tiles", "loops"]


@dataclass(frozen=True)
class Requirement:
    """One thing that must be installed: any of these programs on PATH, this Python package, or a folder.

    Attributes:
        programs: names to look for on PATH, the first that is there does; empty when it is a package.
        package: name of a distribution; None when it is something else.
        variable: of the environment, naming a folder; None when it is something else.
        advice: what to do where it is missing.
    """

    programs: tuple[str, ...] = ()
    package: str | None = None
    variable: str | None = None
    advice: str = ""


@dataclass(frozen=True)
class Backend:
    """One kernel language.

    Attributes:
        name: what `--backend` and a verdict call it.
        title: what people call it.
        vendor: whose devices it is for.
        device: the kind of device on which kbenv judges it ("cpu", "cuda"); None where kbenv has no such device.
        evidence: (pattern, words) that speak for a kernel in this language; searched in the source without comments.
        imports: where not empty, the source imports one of these modules, else nothing is evidence.
        loading: how a source is loaded, in words.
        needs: what must be installed where it is judged.
        built_ahead: a pattern of sources that may build something before any device is there, through
            `torch.utils.cpp_extension`; None where nothing is.
        snippet: the template under `prompts/` that tells a model how to write it.
        dialect: how its kernels are written, for what is read off their text: C++ of a thread of a block ("threads"),
            Python over tiles ("tiles"), C over whole arrays ("loops"); None where nothing is read off it.
        proven: where kernels of it have been judged; None where none has: it is declared only.
        offered: whether prompts offer it unasked, where it is proven; not where what it needs comes neither with kbenv
            nor with PyTorch nor with a compiler.
    """

    name: str
    title: str
    vendor: Vendor
    device: Literal["cpu", "cuda"] | None
    evidence: tuple[tuple[str, str], ...]
    loading: str
    needs: tuple[Requirement, ...] = ()
    imports: tuple[str, ...] = ()
    built_ahead: str | None = None
    dialect: Dialect | None = None
    proven: str | None = None
    offered: bool = True
    snippet: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "snippet", f"backends/{self.name}.j2")

    def find_evidence(self, text: str) -> tuple[str, ...]:
        """What in `text`, a source without comments, points to a kernel in this language."""
        if self.imports and not re.search(_import_of(self.imports), text, re.MULTILINE):
            return ()
        return tuple(words for pattern, words in self.evidence if re.search(pattern, text))

    def may_build_ahead(self, source: str) -> bool:
        """Whether `source` may build something before any device is there."""
        return self.built_ahead is not None and re.search(self.built_ahead, source) is not None


def _import_of(modules: tuple[str, ...]) -> str:
    """A pattern for `import a.b`, `from a.b import c` and `from a import b`."""
    forms = []
    for module in modules:
        whole = re.escape(module)
        forms.append(rf"(?:import|from)\s+{whole}\b")
        if "." in module:
            parent, name = module.rsplit(".", 1)
            forms.append(rf"from\s+{re.escape(parent)}\s+import\b[^\n]*\b{re.escape(name)}\b")
    return rf"^\s*(?:{'|'.join(forms)})"


_NVCC = Requirement(programs=("nvcc",), advice="install the CUDA toolkit that fits torch's CUDA version")
_CXX = Requirement(programs=("c++", "g++", "clang++"), advice="install a C++ compiler")
_TRITON = Requirement(package="triton", advice="pip install triton")
_NINJA = Requirement(package="ninja", advice="pip install ninja")
_EXTENSION = r"\bload_inline\b|\bcpp_extension\b"

BACKENDS: tuple[Backend, ...] = (
    Backend(
        name="cute",
        title="CuTe (the CuTe DSL, or CUTLASS's headers)",
        vendor="nvidia",
        device="cuda",
        evidence=(
            (r"\bcute\.(?:jit|kernel|compile)\b", "a CuTe DSL function"),
            (r"#\s*include\s*<cute/|\bcute::", "CuTe's headers"),
        ),
        loading="the CuTe DSL compiles a function when it is first called",
        needs=(Requirement(package="nvidia-cutlass-dsl", advice="pip install nvidia-cutlass-dsl"),),
        proven="H200",
        offered=False,
    ),
    Backend(
        name="tilelang",
        title="TileLang",
        vendor="nvidia",
        device="cuda",
        evidence=((r"\bprim_func\b|\btilelang\.(?:jit|compile)\b|@\s*jit\b", "a TileLang kernel"),),
        imports=("tilelang",),
        loading="tilelang compiles a function when it is first called",
        needs=(Requirement(package="tilelang", advice="pip install tilelang"), _NVCC),
        proven="H200",
        offered=False,
    ),
    Backend(
        name="helion",
        title="Helion",
        vendor="nvidia",
        device="cuda",
        evidence=((r"@\s*(?:\w+\.)*kernel\b", "a Helion kernel"),),
        imports=("helion",),
        loading="helion generates Triton code when a kernel is first called, and tunes it unless a config is given",
        needs=(
            Requirement(package="helion", advice="pip install a helion that fits torch (helion 1.4 fits 2.11)"),
            _TRITON,
        ),
        proven="H200",
        offered=False,
    ),
    Backend(
        name="thunderkittens",
        title="ThunderKittens",
        vendor="nvidia",
        device="cuda",
        evidence=((r"\bkittens(?:\.cuh|::)|\bnamespace\s+kittens\b", "ThunderKittens' headers"),),
        loading="load_inline with CUDA sources and the headers' folder (environment variable THUNDERKITTENS_ROOT)",
        built_ahead=_EXTENSION,
        needs=(
            _NVCC,
            _CXX,
            _NINJA,
            Requirement(
                variable="THUNDERKITTENS_ROOT",
                advice="git clone https://github.com/HazyResearch/ThunderKittens and set THUNDERKITTENS_ROOT to it",
            ),
        ),
        proven="H200",
        offered=False,
    ),
    Backend(
        name="hip",
        title="HIP",
        vendor="amd",
        device=None,
        evidence=(
            (r"hip/hip_runtime\.h", "HIP's header"),
            (r"\bhipLaunchKernelGGL\b|\bhiprtc\w*", "a HIP launch"),
        ),
        loading="load_inline with CUDA sources, compiled by hipcc in a ROCm build of PyTorch",
        needs=(Requirement(programs=("hipcc",), advice="install ROCm, and a ROCm build of PyTorch"),),
    ),
    Backend(
        name="sycl",
        title="SYCL",
        vendor="intel",
        device=None,
        evidence=((r"sycl/sycl\.hpp|\bsycl::|\bsycl_sources\b", "SYCL"),),
        loading="load_inline with SYCL sources, compiled by icpx in an XPU build of PyTorch",
        needs=(Requirement(programs=("icpx",), advice="install oneAPI's compiler, and an XPU build of PyTorch"),),
    ),
    Backend(
        name="pallas",
        title="Pallas",
        vendor="google",
        device=None,
        evidence=((r"\bpallas_call\b", "a Pallas call"),),
        imports=("jax.experimental.pallas",),
        loading="jax compiles a function when it is first called, through torch_xla's jax bridge",
        needs=(Requirement(package="jax", advice="pip install 'jax[tpu]' and torch_xla"),),
    ),
    Backend(
        name="ascendc",
        title="Ascend C",
        vendor="huawei",
        device=None,
        evidence=((r"\bkernel_operator\.h\b|\b__aicore__\b|\bAscendC::", "Ascend C"),),
        loading="an operator project built by CANN and loaded through torch_npu",
        needs=(
            Requirement(programs=("msopgen",), advice="install CANN"),
            Requirement(package="torch-npu", advice="pip install torch-npu"),
        ),
    ),
    Backend(
        name="cuda_raw",
        title="CUDA C++ without PyTorch's headers",
        vendor="nvidia",
        device="cuda",
        evidence=(
            (r"\bRawKernel\b|\bRawModule\b", "a CuPy raw kernel"),
            (r"\b_compile_kernel\b|\bnvrtc\b", "NVRTC"),
        ),
        loading="torch.cuda._compile_kernel, NVRTC through cuda-bindings, or CuPy's RawKernel: no host compiler",
        needs=(Requirement(package="cuda-bindings", advice="pip install 'kbenv[cuda]'"),),
        dialect="threads",
        proven="H200",
    ),
    Backend(
        name="cuda",
        title="CUDA C++ through load_inline",
        vendor="nvidia",
        device="cuda",
        evidence=(
            (r"__global__", "a __global__ function"),
            (r"\bcuda_sources\b", "load_inline with CUDA sources"),
        ),
        loading="torch.utils.cpp_extension.load_inline, compiled by nvcc",
        built_ahead=_EXTENSION,
        needs=(_NVCC, _CXX, _NINJA),
        dialect="threads",
        proven="H200",
    ),
    Backend(
        name="triton",
        title="Triton",
        vendor="nvidia",
        device="cuda",
        evidence=((r"@\s*(?:\w+\.)*jit\b", "a jit function"),),
        imports=("triton",),
        loading="triton compiles a function when it is first launched",
        needs=(_TRITON,),
        dialect="tiles",
        proven="H200",
    ),
    Backend(
        name="numba",
        title="Numba",
        vendor="cpu",
        device="cpu",
        evidence=((r"@\s*(?:\w+\.)*(?:n?jit|vectorize|guvectorize)\b", "a Numba function"),),
        imports=("numba",),
        loading="numba compiles a function when it is first called, over NumPy views of the tensors",
        needs=(Requirement(package="numba", advice="pip install numba"),),
        proven="CPU",
        offered=False,
    ),
    Backend(
        name="cpp",
        title="C++ through load_inline",
        vendor="cpu",
        device="cpu",
        evidence=((_EXTENSION, "a C++ extension"),),
        loading="torch.utils.cpp_extension.load_inline, compiled by the C++ compiler",
        built_ahead=_EXTENSION,
        needs=(_CXX, _NINJA),
        dialect="loops",
        proven="CPU",
    ),
    Backend(
        name="c",
        title="C (OpenMP included) through ctypes",
        vendor="cpu",
        device="cpu",
        evidence=((r"\bCDLL\b|\bLoadLibrary\b", "a library loaded by ctypes"), (r"\bcffi\b", "cffi")),
        loading="compiled by `cc` into a shared library in TMPDIR and loaded by ctypes",
        needs=(Requirement(programs=("cc", "gcc", "clang"), advice="install a C compiler"),),
        dialect="loops",
        proven="CPU",
    ),
)
"""From the most particular to the most general: a source is in the first language that it shows evidence of."""

AUTO = "auto"
"""For a choice of backend: whichever the source is in."""
NO_BACKEND = "torch"
"""What a source is written in that shows no evidence of any kernel language."""


def backend_names() -> tuple[str, ...]:
    """The names of all backends, in order."""
    return tuple(backend.name for backend in BACKENDS)


def find_backend(name: str) -> Backend | None:
    """The backend `name`; None when there is none."""
    return next((backend for backend in BACKENDS if backend.name == name), None)


def backends_for(device: str) -> tuple[Backend, ...]:
    """The backends that prompts offer on devices of the kind of `device` ("cpu", "cuda:1"), in order."""
    kind = device.split(":")[0]
    return tuple(one for one in BACKENDS if one.device == kind and one.proven is not None and one.offered)
