"""Building a submission's extensions outside its process: what PyTorch would run, run by a builder, kept by content.

The submission's process asks in the middle of an operation, with the flags and sources that PyTorch itself would give
to compilers (`runner/extension`). The request is a submission's word: bounded, checked, and answered with a library, a
compiler's refusal, or a decline, after which PyTorch builds in the submission's process as ever. A builder runs only
compilers, on those sources, under a user of its own. What is kept is named by all that went in, so that one source can
never get what another one made: a compiler that a source has taken over could spoil its own artefact alone.

Not covered: `torch.compile` and Triton, which have caches of their own, and machines where no other user can be had.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..runner.machine_code import checked
from ..wire import Message
from ..zygote import Zygote
from .arm import Arm, ArmError
from .artifacts import Artifacts
from .flags import is_trusted, refused
from .setting import Setting
from .slim import PRELUDE, prelude, slim_headers

_SCHEMA = "1"
_MOST_REQUESTS = 256
"""Of one job: a submission is built again in each of its processes."""
_MOST_SOURCES = 12
"""Each is a descriptor in a message, which carries 16."""
_MOST_FLAGS = 256
_NAME = re.compile(r"[A-Za-z_]\w{0,99}")
_FILE = re.compile(r"[A-Za-z0-9_][\w.+-]{0,99}\.(?:cpp|cc|cxx|c|cu|cuh)")
_OBJECT = re.compile(r"[A-Za-z0-9_][\w.+-]{0,99}\.o")
_INCLUDES_FIRST = re.compile(r"\s*#include <torch/extension\.h>")
_TIMES = re.compile(r"__(?:DATE|TIME|TIMESTAMP)__")
_PLAIN = re.compile(
    r"-O\w*|-fPIC|-std=[\w+]+|-D(?:TORCH|PYBIND11|_GLIBCXX)_\w+(?:=\w*)?|-march=native|-ffast-math|-fopenmp"
)
"""Flags under which PyTorch's headers are worth precompiling: others come once."""
_WORTH_HEADERS, _HEADERS_AGAIN = 3, 16
_HEADERS_S, _LEFT_S = 60.0, 150.0
"""How long precompiling headers may take, and what must be left of the time for building before it starts."""
_COMPILERS = r"(?:[\w./+-]*/)?(?:cc1(?:plus)?|c\+\+|g\+\+|as|ld|collect2|cudafe\+\+|cicc|ptxas|nvcc)(?::| error| fatal)"
_LACKING = re.compile(
    rf"^(?:{_COMPILERS}[^\n]*(?:out of memory|memory exhausted|annot allocate|Killed|[Ss]ignal 9\b|bad_alloc)"
    r"|virtual memory exhausted)",
    re.MULTILINE,
)
"""Said by a program of the compiler's: in a source the same words mean nothing."""
_MISSING = re.compile(r"[Nn]o such file|file not found|could not open|cannot open source")
_PASSING = re.compile(
    r"No space|quota|size limit|too large|internal compiler error|temporarily|egmentation|cannot exec"
)


class _Declined(Exception):
    """PyTorch shall build this where it always did; says why."""


class _Refused(Exception):
    """A compiler refused the source; says what it said."""


@dataclass(frozen=True)
class _Source:
    name: str
    object: str
    cuda: bool
    text: str


@dataclass(frozen=True)
class _Request:
    name: str
    cxx: str
    nvcc: str | None
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    sources: tuple[_Source, ...]


@dataclass(frozen=True)
class _Unit:
    """One source that must be compiled: its key, and the commands of which the first that succeeds counts."""

    key: str
    source: _Source
    commands: list[list[str]]
    files: dict[str, str]


class Builds:
    """The builds of one job.

    Args:
        artifacts: what is kept between jobs.
        limits: the protocol's; a builder may use what a submission may.
        uid: a builder's own.
        on_left: called with a reason when something of a builder could not be removed.
    """

    def __init__(
        self, zygote: Zygote, artifacts: Artifacts, limits: Message, uid: int, on_left: Callable[[str], None]
    ) -> None:
        self._zygote = zygote
        self._artifacts = artifacts
        self._limits = limits
        self._setting = Setting("cpu", 1, limits)  # whatever the device: a compiler needs none
        self._uid = uid
        self._on_left = on_left
        self._closed = False
        self._watch: Callable[[], None] = lambda: None
        self._given: set[str] = set()
        """Keys of libraries that this job got."""
        self._include = os.path.join(os.path.dirname(torch.__file__), "include")
        self.facts: Message = {
            "requested": 0, "from_cache": 0, "compiled": 0, "slim": 0, "slim_failed": 0, "headers_precompiled": 0,
            "declined": [], "seconds": 0.0,
        }  # fmt: skip

    def close(self) -> None:
        """From now on there is nothing but what this job got already.

        A submission that has seen hidden inputs could tell the next one about them by what is kept.
        """
        self._closed = True

    def answer(self, request: Any, timeout_s: float, watch: Callable[[], None]) -> tuple[Message, list[int]]:
        """The reply to a runner, and descriptors to go with it (the caller's).

        Args:
            watch: called now and then while a builder works; what it raises ends that.

        Raises ArmError "timeout" or "memory" when the build used more than a submission may.
        """
        started = time.monotonic()
        self.facts["requested"] += 1
        try:
            if self.facts["requested"] > _MOST_REQUESTS:
                raise _Declined(f"more than {_MOST_REQUESTS} builds in one job")
            self._watch = watch
            return {"built": "library"}, [self._build(_read(request), started + timeout_s)]
        except _Refused as e:
            return {"built": "refused", "text": str(e)}, []
        except _Declined as e:
            if len(self.facts["declined"]) < 8:
                self.facts["declined"].append(str(e)[:200])
            return {"built": "declined"}, []
        finally:
            self.facts["seconds"] = round(self.facts["seconds"] + time.monotonic() - started, 4)

    def read_code(self, timeout_s: float) -> tuple[list[Message] | None, str | None]:
        """The kernels in the libraries that this job got (`runner/machine_code.read_rows`), and why not all are told.

        None where the job got no library, or it is not kept. A builder reads them, not the submission.
        """
        self._watch = lambda: None
        with contextlib.ExitStack() as stack:
            kept = [self._artifacts.open(library) for library in sorted(self._given)]
            found = [item[1] for item in kept if item is not None and item[0] == "library"][:_MOST_SOURCES]
            for descriptor in found:
                stack.callback(os.close, descriptor)
            if not found:
                return None, None
            try:
                answer = self._ask_builder("dump", time.monotonic() + timeout_s, found)
            except (ArmError, _Declined) as e:
                return None, f"the machine code was not read: {e}"
        reason = answer.get("reason")
        return checked(answer.get("kernels")), reason if isinstance(reason, str) else None

    def _build(self, request: _Request, deadline: float) -> int:
        """A sealed memory file with the library."""
        units = [self._plan(request, source, f"slim-{n}") for n, source in enumerate(request.sources)]
        compiler = _identity(request.cxx)
        library = _key("library", compiler, request.name, request.ldflags, [unit.key for unit in units])
        if self._closed and library not in self._given:
            raise _Declined("it was asked for after the hidden checks began")
        with contextlib.ExitStack() as stack:
            self._given.add(library)
            if (kept := self._open(library, stack)) is not None:
                self.facts["from_cache"] += 1
                return _sealed(kept)
            if self._closed:
                raise _Declined("it is not kept any more")
            objects = {unit.key: self._open(unit.key, stack) for unit in units}
            return _sealed(self._compile(request, library, units, objects, deadline, stack))

    def _open(self, key: str, stack: contextlib.ExitStack) -> int | None:
        """A descriptor of what is kept. Raises _Refused when that is a refusal."""
        found = self._artifacts.open(key)
        if found is None:
            return None
        kind, descriptor = found
        stack.callback(os.close, descriptor)
        if kind == "failure":
            self.facts["from_cache"] += 1
            raise _Refused(_contents(descriptor).decode(errors="replace"))
        return descriptor

    def _plan(self, request: _Request, source: _Source, folder: str) -> _Unit:
        flags = list(request.cuda_cflags if source.cuda else request.cflags)
        program = request.nvcc if source.cuda and request.nvcc is not None else request.cxx
        command = [program, *flags, "-c", source.name, "-o", source.object]
        others = {other.name: other.text for other in request.sources if other is not source}
        beside = others if any(name in source.text for name in others) else {}  # it may include them
        commands, files = [command], {source.name: source.text, **beside}
        slim = slim_headers("\n".join([source.text, *beside.values()]), self._include, cuda=source.cuda)
        if slim is not None:
            commands = [[program, f"-I{folder}", *command[1:]], command]
            files |= {f"{folder}/{path}": text for path, text in slim.items()}
        compilers = [_identity(request.cxx), *([_identity(program)] if source.cuda else [])]
        folders = [os.stat(path).st_mtime_ns for path in _folders(flags)]
        key = _key("object", compilers, flags, folders, source.name, source.text, slim, beside)
        return _Unit(key, source, commands, files)

    def _compile(
        self, request: _Request, library: str, units: Sequence[_Unit], objects: dict[str, int | None], deadline: float,
        stack: contextlib.ExitStack,
    ) -> int:  # fmt: skip
        missing = [unit for unit in units if objects[unit.key] is None]
        given = {unit.source.object: kept for unit in units if (kept := objects[unit.key]) is not None}
        files = {path: text for unit in missing for path, text in unit.files.items()}
        commands = [unit.commands for unit in missing]
        for index, unit in enumerate(missing):
            if not unit.source.cuda and len(unit.commands) > 1 and _INCLUDES_FIRST.match(unit.source.text):
                headers = self._headers(request, deadline, stack)
                if headers is not None:
                    given[f"headers/{PRELUDE}.gch"] = headers
                    files[f"headers/{PRELUDE}"] = prelude()  # when it is included again
                    slim, whole = unit.commands
                    # By -include: a header that another one includes is never looked for precompiled.
                    commands[index] = [[request.cxx, "-Iheaders", "-include", PRELUDE, *slim[1:]], whole]
        link = [request.cxx, *(unit.source.object for unit in units), *request.ldflags, "-o", "library.so"]
        wanted = [*(unit.source.object for unit in missing), "library.so"]
        answer, results = self._session(files, given, commands, link, wanted, deadline, stack)
        compiled = list(zip(missing, answer["units"], results, strict=False))
        for unit, result, made in sorted(compiled, key=lambda item: item[1]["status"] != 0):
            self._keep(unit, result, made)  # what went well first: a refusal is the end
        if answer["link"] is None or answer["link"]["status"] != 0:
            raise _Declined("the linker failed")
        self._artifacts.put(library, "library", _elf(results[-1]))
        return results[-1]

    def _keep(self, unit: _Unit, result: Message, made: int) -> None:
        self.facts["compiled"] += 1
        status, text = result["status"], result["text"]
        tried_slim = len(unit.commands) > 1
        self.facts["slim"] += tried_slim and result["attempt"] == 0
        self.facts["slim_failed"] += tried_slim and result["attempt"] > 0
        if status == 0:
            self._artifacts.put(unit.key, "object", _elf(made))
            return
        if _MISSING.search(text):
            raise _Declined("the source includes a file that is not the system's")
        if status < 0 or _LACKING.search(text):
            raise ArmError("memory", "compiling needs more memory than is allowed", text)
        text = f"{text.rstrip()}\nFAILED: {' '.join(unit.commands[-1])}\n"
        if "error" in text and not _PASSING.search(text):
            with _memory_file() as file:
                os.write(file, text.encode())
                self._artifacts.put(unit.key, "failure", file)
        raise _Refused(text)

    def _headers(self, request: _Request, deadline: float, stack: contextlib.ExitStack) -> int | None:
        """Headers precompiled for these flags, by a builder that sees no source of a submission's.

        They take twice the time of a compilation without them and save two thirds of one: only the third to ask makes
        any, whichever judge it asks, and the sixteenth after it where they did not come of it or have been removed.
        """
        flags = [flag for flag in request.cflags if not flag.startswith("-DTORCH_EXTENSION_NAME=")]
        options = [flag for flag, before in zip(flags, ["", *flags], strict=False) if _is_option(flag, before)]
        key = _key("headers", _identity(request.cxx), flags, prelude())
        if not all(_PLAIN.fullmatch(option) for option in options):
            return None
        if (kept := self._artifacts.open(key)) is not None:
            stack.callback(os.close, kept[1])
            return kept[1]
        seldom = self._artifacts.count(key) % _HEADERS_AGAIN != _WORTH_HEADERS
        if seldom or deadline - time.monotonic() < _LEFT_S or not _is_gcc(request.cxx):
            return None
        command = [request.cxx, "-I.", *flags, "-x", "c++-header", "all.h", "-o", "all.h.gch"]
        files = {PRELUDE: prelude(), "all.h": f"#include <{PRELUDE}>\n"}
        try:
            deadline = time.monotonic() + _HEADERS_S
            answer, (made,) = self._session(files, {}, [[command]], None, ["all.h.gch"], deadline, stack)
        except (ArmError, _Declined):  # not the submission's doing: it is built without
            return None
        if answer["units"][0]["status"] != 0:
            return None
        self.facts["headers_precompiled"] += 1
        self._artifacts.put(key, "headers", made)
        return made

    def _session(
        self, files: dict[str, str], given: dict[str, int], units: list[list[list[str]]], link: list[str] | None,
        wanted: list[str], deadline: float, stack: contextlib.ExitStack,
    ) -> tuple[Message, list[int]]:  # fmt: skip
        """One builder's life; its answer, checked, and what it made. See `Compiler.do_compile`."""
        results = [stack.enter_context(_memory_file()) for _ in wanted]
        descriptors = [*given.values(), *results]
        answer = self._ask_builder(
            "compile", deadline, descriptors, files=files, given=list(given), units=units, link=link, wanted=wanted
        )
        if not _is_answer(answer, len(units), has_link=link is not None):
            raise _Declined("the builder's answer has no known form")
        return answer, results

    def _ask_builder(self, op: str, deadline: float, descriptors: Sequence[int], **content: Any) -> Message:
        """One builder's life: one question, and its answer as it came."""
        remaining = deadline - time.monotonic()
        scratch = self._zygote.new_scratch("builder", self._uid, self._limits["scratch_bytes"])
        try:
            with Arm(self._zygote, "builder", self._setting, self._uid, scratch) as arm:
                arm.watch = self._watch
                given = [os.dup(descriptor) for descriptor in descriptors]
                return arm.ask(op, timeout_s=max(0.0, remaining), descriptors=given, **content)
        except ArmError as e:
            if e.kind == "timeout":
                raise ArmError("timeout", f"building took longer than {max(0.0, remaining):.4g} s") from e
            if e.kind == "memory" or e.signal == signal.SIGKILL:
                raise ArmError("memory", f"building needs more memory than is allowed ({e.message})") from e
            raise _Declined(f"the builder failed: {e.message}") from e
        finally:
            try:
                self._zygote.wipe_scratch("builder")
            except (OSError, RuntimeError) as e:
                self._on_left(str(e))


def _folders(flags: Sequence[str]) -> list[str]:
    """Those in which headers are looked for."""
    return [path for flag, before in zip(flags, ["", *flags], strict=False)
            if (path := flag.removeprefix("-I") if flag.startswith("-I") and flag != "-I" else
                flag if before in ("-I", "-isystem") else "")]  # fmt: skip


def _is_option(flag: str, before: str) -> bool:
    """Whether it is neither a folder of headers nor the word before one."""
    return before not in ("-isystem", "-I") and not flag.startswith(("-isystem", "-I"))


def _is_answer(answer: Message, units: int, *, has_link: bool) -> bool:
    results = answer.get("units")
    if not isinstance(results, list) or len(results) != units:
        return False
    results = [*results, *([answer.get("link")] if has_link and answer.get("link") is not None else [])]
    kinds = {"status": int, "text": str, "attempt": int}
    return all(
        isinstance(result, dict) and all(type(result.get(name)) is kind for name, kind in kinds.items())
        for result in results
    )


# -- the request ------------------------------------------------------------------------------------------------------


def _read(request: Any) -> _Request:
    """The request of a runner, checked. Raises _Declined."""
    try:
        sources = [
            _Source(item["name"], item["object"], item["cuda"] is True, item["text"]) for item in request["sources"]
        ]
        read = _Request(
            name=request["name"], cxx=request["cxx"], nvcc=request["nvcc"], cflags=tuple(request["cflags"]),
            cuda_cflags=tuple(request["cuda_cflags"]), ldflags=tuple(request["ldflags"]), sources=tuple(sources),
        )  # fmt: skip
        texts = [read.name, read.cxx, *read.cflags, *read.cuda_cflags, *read.ldflags]
        texts += [text for source in sources for text in (source.name, source.object, source.text)]
        if not all(isinstance(text, str) for text in [*texts, read.nvcc or ""]):
            raise TypeError
    except (TypeError, KeyError) as e:
        raise _Declined("a request of no known form") from e
    _check_names(read)
    for kind, flags in (("c++", read.cflags), ("cuda", read.cuda_cflags), ("link", read.ldflags)):
        if len(flags) > _MOST_FLAGS or (flag := refused(kind, flags)) is not None:
            raise _Declined(f"a flag that is not known: {'too many' if len(flags) > _MOST_FLAGS else flag}")
    if read.cxx != os.environ.get("CXX", "c++") or shutil.which(read.cxx) is None:
        raise _Declined(f"another compiler: {read.cxx}")
    if any(source.cuda for source in sources) and (
        read.nvcc is None or os.path.basename(read.nvcc) != "nvcc" or not is_trusted(read.nvcc)
    ):
        raise _Declined(f"another CUDA compiler: {read.nvcc}")
    return read


def _check_names(request: _Request) -> None:
    sources = request.sources
    names = [*(source.name for source in sources), *(source.object for source in sources)]
    if (
        not _NAME.fullmatch(request.name)
        or not 0 < len(sources) <= _MOST_SOURCES
        or len(set(names)) != len(names)
        or not all(_FILE.fullmatch(source.name) and _OBJECT.fullmatch(source.object) for source in sources)
    ):
        raise _Declined("names that are not plain")
    if any(_TIMES.search(source.text) for source in sources):
        raise _Declined("a source that asks for the time")


# -- keys -------------------------------------------------------------------------------------------------------------


def _key(*parts: Any) -> str:
    """Over all that a result depends on, beside what `parts` say: PyTorch, Python, this machine's processor."""
    environment = [
        _SCHEMA, torch.__version__, torch.version.git_version, torch.version.cuda, list(sys.version_info[:3]),
        sys.abiflags, os.path.dirname(torch.__file__), _processor(), _packages(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps([environment, *parts]).encode()).hexdigest()


@functools.cache
def _identity(program: str) -> list[str | int]:
    """A compiler's path, size, age and words about itself. Raises _Declined when it has none."""
    path = os.path.realpath(shutil.which(program) or program)
    try:
        found = os.stat(path)
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60.0, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        raise _Declined(f"{program} does not say its version") from e
    return [path, found.st_size, found.st_mtime_ns, said.stdout]


def _is_gcc(program: str) -> bool:
    return "Free Software Foundation" in str(_identity(program)[-1])


def _packages() -> int:
    """When the system's packages last changed: the headers of its libraries come with them."""
    try:
        return os.stat("/var/lib/dpkg/status").st_mtime_ns
    except OSError:
        return 0


@functools.cache
def _processor() -> str:
    """What `-march=native` means here."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        lines = [line for line in file if line.startswith(("flags", "Features", "model name", "CPU part"))]
        return hashlib.sha256("".join(sorted(set(lines))).encode()).hexdigest()
    return ""


# -- memory files -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _memory_file() -> Iterator[int]:
    descriptor = os.memfd_create("kbenv-build", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _contents(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _elf(descriptor: int) -> int:
    """The descriptor, if what it holds begins as an object or a library does. Raises _Declined."""
    if os.pread(descriptor, 4, 0) != b"\x7fELF":
        raise _Declined("what the compiler made is no object")
    return descriptor


def _sealed(source: int) -> int:
    """A copy in memory that nobody can change (the caller's): no file of ours gets into a submission's hands."""
    copy = os.memfd_create("kbenv-library", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(os.dup(copy), "wb") as file:
        file.write(_contents(source))
    os.lseek(copy, 0, os.SEEK_SET)  # who gets it shares the position
    fcntl.fcntl(copy, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return copy
