"""PyTorch's C++ and CUDA extensions in a submission's process: their building is asked of the judge.

`load` and `load_inline` stay PyTorch's own. Underneath them one function turns sources and flags into a library; in its
place ours lets PyTorch write down what it would run and sends that to the judge, which may have the library already or
has it built by a process of another user. Whatever is unusual (other files, threads, compilers, flags that the judge
does not know) is built here, as PyTorch does it. A submission can undo all this; that costs only itself.

`import cuda_raw` finds our module of that name (`runner/cuda_raw`).
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ..wire import MAX_RUNNER_FRAME_BYTES, Channel, Message

EXTENSIONS, _RAW = "torch.utils.cpp_extension", "cuda_raw"
_NEEDED = ("_write_ninja_file_and_build_library", "_write_ninja_file_to_build_library", "_prepare_ldflags", "LIB_EXT")
_MOST_TEXT = MAX_RUNNER_FRAME_BYTES // 3
"""Characters of all sources: JSON may need several bytes for one."""
_COMPILERS_READ = (
    "CC", "CXX", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH",
    "PATH", "PYTORCH_NVCC", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "LD_PRELOAD", "LD_LIBRARY_PATH",
    "CUDA_HOME", "CUDA_PATH", "CUDNN_HOME", "CUDNN_PATH",
)  # fmt: skip
"""Environment variables; where a submission has changed one, it builds itself."""
_COMMANDS = {
    "compile": r"\$cxx -MMD -MF \$out\.d \$cflags -c \$in -o \$out \$post_cflags",
    "cuda_compile": r"\$nvcc [^$]*(?:\$out\.d )?\$cuda_cflags -c \$in -o \$out \$cuda_post_cflags",
    "link": r"\$cxx \$in \$ldflags -o \$out",
}
"""Of the rules that PyTorch writes for ninja."""
_VARIABLES = {"cxx", "nvcc", "cflags", "cuda_cflags", "ldflags"}
_EMPTY_VARIABLES = {"post_cflags", "cuda_post_cflags", "cuda_dlink_post_cflags", "sycl_dlink_post_cflags"}
_PATH = re.compile(r"[^\n\\]{1,255}")


class Extensions(importlib.abc.MetaPathFinder):
    """Puts ours in PyTorch's place once a submission imports it: imported earlier it would be found in every child."""

    def __init__(self, channel: Channel | None) -> None:
        self._channel = channel
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._environment = _environment()

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name == _RAW:
            return importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), f"{_RAW}.py"))
        if name != EXTENSIONS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.take_over)
        return spec

    def take_over(self, module: Any) -> None:
        """Replaces the one function below `load` and `load_inline`, where PyTorch has it as we know it."""
        if not all(hasattr(module, name) for name in _NEEDED) or sys.platform != "linux":
            return
        original = module._write_ninja_file_and_build_library
        signature = inspect.signature(original)

        @functools.wraps(original)
        def build(*arguments: Any, **keywords: Any) -> None:
            if not self._build(module, signature.bind(*arguments, **keywords).arguments):
                original(*arguments, **keywords)

        module._write_ninja_file_and_build_library = build
        if hasattr(module, "_check_and_build_extension_h_precompiler_headers"):
            # It would write beside PyTorch's own headers, where nobody may. The judge precompiles them unasked.
            module._check_and_build_extension_h_precompiler_headers = lambda *_, **__: None

    def _build(self, module: Any, call: dict[str, Any]) -> bool:
        """Whether the library is there now. Raises RuntimeError, as PyTorch would, when a compiler refused."""
        here = (self._process, self._thread) == (os.getpid(), threading.get_ident())
        if self._channel is None or not here or _environment() != self._environment:
            return False
        request = _describe(module, call)
        if request is None:
            return False
        self._channel.send({"build": request})
        answer, descriptors = self._channel.receive_with_descriptors()
        if answer["built"] == "refused":
            _refuse(call["name"], answer["text"], verbose=call["verbose"])
        for descriptor in descriptors:
            with open(descriptor, "rb") as file:
                path = os.path.join(call["build_directory"], call["name"] + module.LIB_EXT)
                _write(path, file.read())
        return bool(answer["built"] == "library")


class _Loader(importlib.abc.Loader):
    """Another loader, and something to do with the module afterwards."""

    def __init__(self, loader: importlib.abc.Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:  # get_source and the like, for inspect
        return getattr(self._loader, name)


def _environment() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in _COMPILERS_READ}


def _describe(module: Any, call: dict[str, Any]) -> Message | None:
    """What PyTorch would run, for the judge; None where that is unusual. Writes PyTorch's own build file."""
    if call.get("is_standalone") or call.get("with_sycl") or getattr(module, "IS_HIP_EXTENSION", False):
        return None
    try:
        rules = _parse(_write_rules(module, call))
        sources = _read_sources(rules["build"], call["build_directory"]) if rules is not None else None
    except (AttributeError, IndexError, OSError, TypeError, UnicodeError, ValueError):
        return None  # whatever it is, PyTorch's own way says it better
    if rules is None or sources is None:
        return None
    return {
        "name": call["name"], "cxx": _compiler(rules["cxx"]), "nvcc": _compiler(rules.get("nvcc")),
        "cflags": shlex.split(rules["cflags"]), "cuda_cflags": shlex.split(rules.get("cuda_cflags", "")),
        "ldflags": shlex.split(rules["ldflags"]), "sources": sources,
    }  # fmt: skip


def _write_rules(module: Any, call: dict[str, Any]) -> str:
    """The build file that PyTorch writes for ninja."""
    call = {name: list(value) if isinstance(value, list | tuple) else value for name, value in call.items()}
    path = os.path.join(call.pop("build_directory"), "build.ninja")
    verbose = call.pop("verbose")
    with_sycl = [False] if "with_sycl" in call else []
    call["extra_ldflags"] = module._prepare_ldflags(
        call["extra_ldflags"], call["with_cuda"], *with_sycl, verbose, False
    )
    module._write_ninja_file_to_build_library(path=path, **call)
    with open(path, encoding="utf-8") as file:
        return file.read()


def _compiler(command: str | None) -> str | None:
    """Without PyTorch's wrapper around it, which is a cache of compilations as well."""
    words = (command or "").split()
    return " ".join(words[1:] if words[:1] in (["ccache"], ["sccache"]) else words) or None


def _parse(text: str) -> Message | None:
    """The variables of PyTorch's build file and, under "build", object, rule and source of each step; None where it
    is of another form than we know."""
    found: Message = {"build": []}
    rule = ""
    for line in text.splitlines():
        key, equals, value = (part.strip() for part in line.partition("="))
        if line.startswith("rule "):
            rule = line[5:]
        elif line.startswith("build "):
            target, _, rest = line[6:].partition(": ")
            step, _, inputs = rest.partition(" ")
            if step in ("compile", "cuda_compile"):
                found["build"].append((target, step, inputs.replace("$ ", " ")))
            elif step != "link":
                return None
        elif line.startswith("  command ="):
            if rule not in _COMMANDS or not re.fullmatch(_COMMANDS[rule], value):
                return None
        elif equals and not line.startswith(" ") and key in _VARIABLES:
            if "$" in value or "`" in value:
                return None
            found[key] = value
        elif equals and key in _EMPTY_VARIABLES and value:
            return None
    return found if {"cxx", "cflags", "ldflags"} <= found.keys() else None


def _read_sources(steps: list[tuple[str, str, str]], folder: str) -> list[Message] | None:
    sources: list[Message] = []
    for target, step, path in steps:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read(_MOST_TEXT + 1)
        except (OSError, UnicodeDecodeError):
            return None
        if _names_a_file(text, {folder, os.path.dirname(path)}):
            return None
        cuda = step == "cuda_compile"
        sources.append({"name": os.path.basename(path), "object": target, "cuda": cuda, "text": text})
    return sources if sum(len(source["text"]) for source in sources) <= _MOST_TEXT else None


def _names_a_file(text: str, folders: set[str]) -> bool:
    """Whether something in quotes is a file here, which nobody else could read: a header, data to be embedded."""
    quoted = {part for part in re.split(r'\\?"', text)[1:-1] if _PATH.fullmatch(part)}  # between any two quotes
    return any(os.path.isfile(os.path.join(folder, name)) for name in quoted for folder in folders)


def _refuse(name: str, text: str, *, verbose: bool) -> None:
    """As PyTorch does when ninja fails."""
    if verbose:
        print(text, flush=True)
    try:
        raise subprocess.CalledProcessError(1, ["ninja", "-v"], output=text.encode())
    except subprocess.CalledProcessError as e:
        raise RuntimeError(f"Error building extension '{name}': {text}") from e


def _write(path: str, data: bytes) -> None:
    """In place of what may be there, and may be loaded already."""
    with open(f"{path}.new", "wb") as file:
        file.write(data)
    os.chmod(f"{path}.new", 0o755)
    os.replace(f"{path}.new", path)
