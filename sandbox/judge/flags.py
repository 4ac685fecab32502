"""Which compiler flags a builder takes: those whose result depends on nothing but the source and this machine.

The list decides who compiles, never what may be written: anything else is compiled in the submission's own process, as
PyTorch does it. Paths must lie where only the system's owner writes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence

_WORD = r"[\w+.-]+"
_PTXAS = r"[\w+.=-]+(?:,[\w+.=-]+)*"
_COMMON = re.compile(
    rf"-O(?:[0-3sgz]|fast)?|-g[0-3]?|-w|-pthread|-fopenmp|-fPIC|-fpic|-D\w+(?:=[\w+.:/-]*)?|-U\w+"
    rf"|-std=(?:c|gnu)\+\+\w+|-W(?![lap],)[\w+=-]*|-m[\w.-]+(?:={_WORD})?|-pedantic"
)
_F_FLAG = re.compile(
    r"-f(?:no-)?(?:associative-math|finite-math-only|fast-math|math-errno|reciprocal-math|rounding-math"
    r"|signed-zeros|signaling-nans|trapping-math|unsafe-math-optimizations|cx-limited-range|excess-precision=\w+"
    r"|fp-contract=\w+|unroll-loops|unroll-all-loops|tree-\w[\w-]*|vect-cost-model=[\w-]+|ipa-[\w-]+|inline[\w-]*"
    r"|omit-frame-pointer|strict-aliasing|strict-overflow|wrapv|permissive|exceptions|rtti|visibility=\w+"
    r"|visibility-inlines-hidden|prefetch-loop-arrays|peel-loops|split-loops|unswitch-loops|gcse[\w-]*|ivopts"
    r"|modulo-sched|schedule-[\w-]+|rename-registers|align-[\w-]+(?:=\d+)?|function-sections|data-sections"
    r"|stack-protector[\w-]*|template-depth=\d+|constexpr-[\w-]+=\d+|char8_t|coroutines|concepts|openmp-simd"
    r"|semantic-interposition|plt|common|merge-constants|threadsafe-statics|lifetime-dse)"
)
_NVCC = re.compile(
    rf"-{{1,2}}use_fast_math|-lineinfo|--generate-line-info|--expt-relaxed-constexpr|--expt-extended-lambda"
    rf"|--extended-lambda|-extended-lambda|-{{1,2}}(?:ftz|prec-div|prec-sqrt|fmad)=(?:true|false)"
    rf"|-{{1,2}}maxrregcount=\d+|-{{1,2}}default-stream=[\w-]+|-t=?\d+|--threads=?\d+|-G|--resource-usage"
    rf"|-Xptxas={_PTXAS}|--ptxas-options={_PTXAS}|-{{1,2}}diag-(?:suppress|error|warn)=[\w,]+"
    rf"|-{{1,2}}extra-device-vectorization|-{{1,2}}restrict|--std=(?:c|gnu)\+\+\w+|-src-in-ptx"
    rf"|-arch=(?:sm|compute)_\w+|--gpu-architecture=(?:sm|compute)_\w+|-code=(?:sm|compute)_[\w,]+"
    rf"|-{{1,2}}(?:gencode|generate-code)=?(?:arch=compute_\w+,code=(?:\w+|\[[\w,]+\]))"
)
_NVCC_WITH_VALUE = {
    "-Xptxas": _PTXAS, "--ptxas-options": _PTXAS,
    "-gencode": r"arch=compute_\w+,code=(?:\w+|\[[\w,]+\])", "--generate-code": r"arch=compute_\w+,code=\w+",
    "-arch": r"(?:sm|compute)_\w+", "--gpu-architecture": r"(?:sm|compute)_\w+", "--default-stream": r"[\w-]+",
    "-maxrregcount": r"\d+", "--maxrregcount": r"\d+", "-std": r"(?:c|gnu)\+\+\w+", "--threads": r"\d+", "-t": r"\d+",
    "-Xcudafe": r"--diag_suppress=\w+", "-diag-suppress": r"[\d,]+",
}  # fmt: skip
_HOST = ("-Xcompiler", "--compiler-options")
_LINK = re.compile(
    rf"-shared|-l[\w+.-]+|-fopenmp|-pthread|-O[0-3s]?|-s|-Wl,(?:--as-needed|--no-as-needed|-O\d|--no-undefined"
    rf"|--gc-sections|-Bsymbolic|-s|--strip-all)|-Wl,-rpath[,=](?P<path>/{_WORD}(?:/{_WORD})*)"
)


def refused(kind: str, flags: Sequence[str]) -> str | None:
    """The first flag that a builder does not take; None where it takes all. `kind`: "c++", "cuda" or "link"."""
    for flag in _refused(kind, iter(flags)):
        return flag
    return None


def _refused(kind: str, flags: Iterator[str]) -> Iterator[str]:
    for flag in flags:
        option = flag[:2]
        if option in ("-I", "-L") or flag == "-isystem":
            path = next(flags, "") if flag in ("-I", "-L", "-isystem") else flag[2:]
            if not is_trusted(path) or (option == "-L") != (kind == "link"):
                yield f"{flag} {path}"
        elif kind == "link":
            match = _LINK.fullmatch(flag)
            if match is None or (match["path"] is not None and not is_trusted(match["path"])):
                yield flag
        elif kind == "cuda" and flag in _HOST:
            yield from _refused("c++", iter(next(flags, "-").split(",")))
        elif kind == "cuda" and flag.startswith(tuple(f"{name}=" for name in _HOST)):
            yield from _refused("c++", iter(flag.partition("=")[2].split(",")))
        elif kind == "cuda" and flag == "-ccbin":
            if (value := next(flags, "")) != os.environ.get("CC"):
                yield f"{flag} {value}"
        elif kind == "cuda" and flag in _NVCC_WITH_VALUE:
            value = next(flags, "")
            if not re.fullmatch(_NVCC_WITH_VALUE[flag], value):
                yield f"{flag} {value}"
        elif not (
            _COMMON.fullmatch(flag)
            or (kind == "c++" and _F_FLAG.fullmatch(flag))
            or (kind == "cuda" and _NVCC.fullmatch(flag))
        ):
            yield flag


def is_trusted(path: str) -> bool:
    """Whether it is an absolute path that exists, and at which nobody but root or the judge's user can put anything."""
    if not path.startswith("/") or "\0" in path or not os.path.exists(path) or os.stat(path).st_mode & stat.S_IWOTH:
        return False
    return all(_owned(parent) for spelling in {path, os.path.realpath(path)} for parent in _with_parents(spelling))


def _with_parents(path: str) -> Iterator[str]:
    while True:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)


def _owned(path: str) -> bool:
    found = os.stat(path)
    writable = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX  # what is ours in /tmp stays ours
    return found.st_uid in (0, os.geteuid()) and not writable
