"""Whether a kernel is the submission's own: what its source says, and what was seen to run. Pure functions.

Evidence in a source is telemetry: a kernel may be compiled and never launched. It decides NO_CUSTOM_KERNEL only in the
one direction that it can: a source without any such evidence has no custom kernel. What ran is read off the names that
the profiler in the submission's own process reports: it can be forged, library kernels are known by the names that they
had in the versions looked at, and what is in doubt counts as the submission's.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbenv.backends import AUTO, BACKENDS, NO_BACKEND
from kbenv.protocol import CUSTOM_SHARE, Protocol
from kbenv.verdict import KernelKind, KernelShare, Provenance

_LIBRARIES = (
    ("PyTorch", r"(?:^|^void |::type )(?:at|at_cuda_detail|c10|pytorch_flash)::|\bfmha_cutlass|\bcunn_"
     r"|\bsoftmax_warp_(?:for|back)ward\b|\bvectorized_layer_norm_kernel\b|\belementwise_kernel_with_index\b"),
    ("cuDNN", r"cudnn|xmma_(?:fprop|dgrad|wgrad)|\bimplicit_convolve_|\bnchwToNhwc|\bnhwcToNchw"
     r"|_(?:fprop|dgrad|wgrad)_"),
    ("cuBLAS", r"cublas|\bnvjet_|\b(?:maxwell|volta|turing|ampere|sm\d+)_\w*gemm|\bcutlass::Kernel2<\s*cutlass_"
     r"|\bcutlass\w*_(?:tensorop|simt)_"
     r"|\bgem(?:v2[TN]|vNSP|vx|mSN|mk1)|\bsplitK?reduce_kernel|\breduce_1Block_kernel"),
    ("cuFFT", r"\b(?:regular|vector|composite|bluestein|multi_bluestein)_fft|\bcufft"),
    ("cuSPARSE", r"\bcusparse"),
    ("cuSOLVER", r"\bcusolver|\b(?:getrf|potrf|geqrf|syevj|gesvdj)_"),
    ("NCCL", r"\bncclDevKernel|\bncclKernel"),
)  # fmt: skip
"""By what the names of their kernels hold. A kernel that the source defines by name is its own all the same."""
_TEMPLATES = (
    ("CUTLASS", r"\b(?:cutlass|cute)::", r"\b(?:cutlass|cute)/"),
    ("CUB", r"\bcub::", r"\bcub/"),
    ("Thrust", r"\bthrust::", r"\bthrust/"),
    ("FlashAttention", r"\bflash::", r"\bflash_(?:fwd|bwd)"),
)
"""Template libraries: whoever includes their headers compiles kernels of its own from them."""
_COMPILED = re.compile(r"^triton_(?:poi|red|per|tem|for|mm|bmm|unk)_|^(?:Torch-Compiled Region|TorchDynamo|Pregraph)")
_COPY = re.compile(r"^(?:Memcpy|Memset|\[CUDA mem)")
OUTSIDE = "outside of PyTorch's operators"


@functools.lru_cache(maxsize=4)  # of one source it is asked several times
def custom_kernel_evidence(source: str) -> Mapping[str, tuple[str, ...]]:
    """Per backend, what in the source (comments left out where it parses) points to a custom kernel."""
    text = _without_comments(source)
    found = {backend.name: backend.find_evidence(text) for backend in BACKENDS}
    return {name: words for name, words in found.items() if words}


def detect_backend(source: str) -> str:
    """The name of the first backend that the source points to, or `NO_BACKEND` when nothing does."""
    return next(iter(custom_kernel_evidence(source)), NO_BACKEND)


def read_provenance(trace: Mapping[str, Any], source: str) -> Provenance:
    """What ran, and whose it is. `trace`: see `kbenv.sandbox.judge.provenance`."""
    evidence = bool(custom_kernel_evidence(source))
    outside = trace["outside"]
    attribute = _device_kernel if outside is None else _host_operator
    defined, text = defined_kernels(source), _without_comments(source)
    kernels: list[KernelShare] = []
    library_calls: dict[str, float] = {}
    for name, share, count in trace["kernels"]:
        kind, library = attribute(name, defined, text, evidence=evidence)
        kernels.append(KernelShare(name=name, share=share, count=count, kind=kind))
        if library is not None:
            library_calls[library] = library_calls.get(library, 0.0) + share
    if outside is not None:
        compiled = any(kernel.kind == "compiled" for kernel in kernels)
        kernels.append(
            KernelShare(
                name=OUTSIDE, share=outside, count=1, kind="custom" if evidence else "compiled" if compiled else "other"
            )
        )
        kernels.sort(key=lambda kernel: kernel.share, reverse=True)
    return Provenance(
        custom_share=min(1.0, sum(kernel.share for kernel in kernels if kernel.kind == "custom")),
        kernels=tuple(kernels),
        library_calls=dict(sorted(library_calls.items(), key=lambda item: item[1], reverse=True)),
        method=trace["method"],
    )


def why_not_custom(
    protocol: Protocol, evidence: Sequence[str], provenance: Provenance | None, backend: str
) -> str | None:
    """Why a submission that is right is not credited under a protocol that requires a custom kernel; None if it is.

    What was not measured refuses nothing: the source's evidence is all there is then.
    """
    if not protocol.require_custom_kernel:
        return None
    if not evidence:
        wanted = "custom kernel" if backend == AUTO else f"{backend} kernel"
        return f"every check passed, but the source holds no {wanted} and the protocol requires one"
    least = protocol.custom_share_at_least
    if least is None or provenance is None or provenance.custom_share >= least:
        return None
    return (
        f"every check passed, but custom kernels hold {provenance.custom_share:.2%} of the time and the protocol "
        f"requires {least:.2%}; what ran instead: {_others(provenance)}"
    )


def cross_check(evidence: Sequence[str], provenance: Provenance) -> list[str]:
    """Where what ran and what the source says do not fit together, one line each."""
    flags = []
    if evidence and provenance.custom_share < CUSTOM_SHARE:
        flags.append(
            f"the source holds a custom kernel, and custom kernels hold {provenance.custom_share:.2%} of the time"
        )
    unknown = [kernel.name for kernel in provenance.kernels if kernel.kind == "other" and kernel.name != OUTSIDE]
    if unknown:
        flags.append(f"of no library that is known, and the source shows no custom kernel: {', '.join(unknown[:3])}")
    return flags


def defined_kernels(source: str) -> frozenset[str]:
    """Names of functions that a source defines for a device: after `__global__`, and of Python functions (Triton)."""
    names = set(re.findall(r"\bdef\s+(\w+)", source))
    for head in re.findall(r"__global__([^{;]*)", source):
        names.update(re.findall(r"\b(\w+)\s*\(", head))
    return frozenset(names - {"__launch_bounds__"})


def _device_kernel(name: str, defined: frozenset[str], text: str, *, evidence: bool) -> tuple[KernelKind, str | None]:
    if _COPY.search(name):
        return "copy", None
    if _base_name(name) in defined:
        return "custom", None
    for library, pattern in _LIBRARIES:
        if re.search(pattern, name):
            return "library", library
    for library, pattern, header in _TEMPLATES:
        if re.search(pattern, name):
            return ("custom", None) if re.search(header, text) else ("library", library)
    if _COMPILED.search(name):
        return "compiled", None
    return "custom" if evidence else "other", None


def _host_operator(name: str, _: frozenset[str], __: str, *, evidence: bool) -> tuple[KernelKind, str | None]:
    if _COMPILED.search(name):
        return "compiled", None
    if name.startswith(("aten::", "prim::", "prims::", "quantized::", "mkldnn::", "torch::")) or "::" not in name:
        return "library", name
    return "custom" if evidence else "other", None


def _base_name(name: str) -> str:
    """Of a demangled kernel: `void (anonymous namespace)::relu<float>(float*)` is `relu`."""
    words = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0].split()
    return words[-1].rsplit("::", 1)[-1] if words else ""


def _others(provenance: Provenance) -> str:
    """What held the time instead, the three largest parts."""
    parts: dict[str, float] = dict(provenance.library_calls)
    for kernel in provenance.kernels:
        if kernel.kind in ("compiled", "copy", "other"):
            words = {"compiled": "torch.compile", "copy": "copies", "other": kernel.name}[kernel.kind]
            parts[words] = parts.get(words, 0.0) + kernel.share
    return _listed(sorted(parts.items(), key=lambda item: item[1], reverse=True)[:3])


def _listed(parts: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name[:80]} {share:.1%}" for name, share in parts) or "nothing that was seen"


@functools.lru_cache(maxsize=4)
def _without_comments(source: str) -> str:
    """Docstrings and comments removed by a round trip through the syntax tree; the source itself if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a source's invalid escapes are its own affair
            tree = ast.parse(source.removeprefix("\ufeff"))
        for node in ast.walk(tree):
            match node:
                case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if ast.get_docstring(
                    node
                ):
                    node.body = [*node.body[1:], ast.Pass()]
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a long sum nests deeper than `unparse` can follow
        return source
