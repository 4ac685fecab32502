"""Makes a base image for the sandbox out of the machine it runs on, where no registry can be reached.

`python -m tests.docker.base_image` prints the image's name. It holds what the Dockerfile of the sandbox looks for: the
files of some installed Debian packages (a C++ compiler and the tools it needs), the Python that runs this, and torch,
numpy, setuptools and ninja with what they require, from the environment that runs this. It is a stand-in for tests:
nothing is taken over from the packages but their files, and nothing in it can be updated.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import py_compile
import re
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, TYPE_CHECKING

from packaging.requirements import Requirement

from kbenv.sandbox.engine import EngineError, connect

if TYPE_CHECKING:
    from docker import DockerClient

NAME = "kbenv-test-base"
KEY_LABEL = "kbenv.test-base"

PACKAGES = [
    "bash",
    "coreutils",
    "dash",
    "debianutils",
    "findutils",
    "g++",
    "grep",
    "libc-bin",
    "libc6-dev",
    "mount",
    "ncurses-base",
    "openssl",
    "sed",
    "util-linux",
]
DISTRIBUTIONS = ("torch", "numpy", "setuptools", "ninja")
OPTIONAL_DISTRIBUTIONS = ("triton", "cuda-bindings")
# Of the interpreter: what no kernel needs. Of torch: tests, and programs save the one that it looks for on import.
LEFT_OUT = re.compile(
    r"lib/python3\.\d+/(site-packages|test|idlelib|lib2to3|turtledemo|config-[^/]+)/"
    r"|^torch/(test/|bin/(?!torch_shm_manager$))"
    r"|\.a$"
    r"|/__pycache__/"
)
PACKAGE_FILES_LEFT_OUT = re.compile(r"^/usr/share/(doc|info|locale|lintian|man|zoneinfo)/")
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
CHUNK = 1 << 20


def ensure_base_image(client: DockerClient) -> str:
    """The name of the base image, which is made first unless the engine has one of the same contents.

    Raises:
        EngineError: no Debian or Ubuntu, a package or distribution is missing, or the engine refused the import.
    """
    from docker.errors import APIError, ImageNotFound

    contents = _Contents.of_this_machine()
    try:
        old = client.images.get(NAME)
    except ImageNotFound:
        old = None
    if old is not None and old.labels.get(KEY_LABEL) == contents.key:
        return NAME
    path = SYSTEM_PATH if contents.python == Path("/usr") else f"{contents.image_python}/bin:{SYSTEM_PATH}"
    answer = client.api.import_image_from_data(
        _stream(contents),
        repository=NAME,
        tag="latest",
        changes=[f"ENV PATH={path}", f"LABEL {KEY_LABEL}={contents.key}"],
    )
    last = json.loads(answer.strip().splitlines()[-1])
    if "error" in last:
        raise EngineError(f"the engine did not take the base image: {last['error']}")
    if old is not None:
        with contextlib.suppress(APIError):  # an image was built on it, and goes on being used
            client.images.remove(old.id)
    return NAME


@dataclass(frozen=True)
class _Contents:
    """What goes into the image.

    Attributes:
        python: the prefix of the interpreter on this machine.
        image_python: its prefix in the image.
        site_packages: in the image, where `python3 -I` looks for distributions.
    """

    python: Path
    image_python: Path
    site_packages: Path
    distributions: tuple[Distribution, ...]
    key: str

    @classmethod
    def of_this_machine(cls) -> _Contents:
        python = Path(sys.base_prefix)
        image_python = python if python == Path("/usr") else Path("/opt/python")
        site = subprocess.run(
            [_base_interpreter(), "-I", "-c", "import site; print(site.getsitepackages()[0])"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        site_packages = Path(site)
        if image_python != python:
            site_packages = image_python / site_packages.relative_to(python)
        distributions = tuple(_closure(DISTRIBUTIONS, OPTIONAL_DISTRIBUTIONS))
        names = [f"{one.metadata['Name']}=={one.version}" for one in distributions]
        described = [sys.version, str(python), *PACKAGES, *sorted(names), Path(__file__).read_text()]
        key = hashlib.sha256("\0".join(described).encode()).hexdigest()[:16]
        return cls(python, image_python, site_packages, distributions, key)


def _base_interpreter() -> str:
    """The interpreter outside any virtual environment."""
    return str(Path(sys.base_prefix) / "bin" / VERSION)


def _closure(required: Sequence[str], optional: Sequence[str]) -> Iterator[Distribution]:
    """The distributions and all that they require here."""
    waiting = [(name, name in optional) for name in (*required, *optional)]
    seen = set()
    while waiting:
        name, may_be_missing = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:
            continue
        seen.add(key)
        try:
            found = distribution(name)
        except PackageNotFoundError as e:
            if may_be_missing:
                continue
            raise EngineError(f"the base image needs {name}, which this environment lacks: pip install {name}") from e
        yield found
        for text in found.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append((requirement.name, False))


def _stream(contents: _Contents) -> Iterator[bytes]:
    """The image's root as the bytes of a tar, made while they are read."""
    read_end, write_end = os.pipe()
    failures: list[BaseException] = []
    thread = threading.Thread(target=_write, args=(contents, write_end, failures), daemon=True)
    thread.start()
    with os.fdopen(read_end, "rb") as pipe:
        yield from iter(partial(pipe.read, CHUNK), b"")
    thread.join()
    if failures:
        raise failures[0]  # the request ends unfinished, and the engine drops what it has


def _write(contents: _Contents, descriptor: int, failures: list[BaseException]) -> None:
    try:
        with os.fdopen(descriptor, "wb") as pipe, tarfile.open(fileobj=pipe, mode="w|", bufsize=CHUNK) as tar:
            _Root(tar, contents).write()
    except BaseException as e:
        failures.append(e)


@dataclass
class _Root:
    """Writes the image's root: every member once, owned by root, readable by all."""

    tar: tarfile.TarFile
    contents: _Contents
    written: set[str] = field(default_factory=set)
    binaries: list[Path] = field(default_factory=list)

    def write(self) -> None:
        for name, mode in (("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700), ("proc", 0o555), ("sys", 0o555)):
            self._add_folder(name, mode)
        for folder in ("dev", "run", "opt", "usr/local/bin"):
            self._add_folder(folder)
        for top in ("bin", "lib", "lib32", "lib64", "libx32", "sbin"):
            if Path("/", top).is_symlink():
                self._add_link(top, os.readlink(Path("/", top)))
        for name, text in ACCOUNTS.items():
            self._add_bytes(name, text.encode())
        is_distribution_python = self.contents.python == Path("/usr")
        packages = [*PACKAGES, VERSION, f"lib{VERSION}-dev"] if is_distribution_python else PACKAGES
        for path in _package_files(packages):
            self._add(path, self._resolved(path))
        self._add_alternatives()
        if is_distribution_python:
            self._add_link("usr/local/bin/python3", f"/usr/bin/{VERSION}")
        else:
            self._add_python()
        for one in self.contents.distributions:
            self._add_distribution(one)
        for path in _libraries(self.binaries):
            if not path.is_relative_to(self.contents.python) or is_distribution_python:
                for each in _chain(path):
                    self._add(each, self._resolved(each))

    def _add_python(self) -> None:
        for pattern in (
            "bin/python",
            "bin/python3",
            f"bin/{VERSION}",
            "lib/libpython*",
            f"lib/{VERSION}",
            f"include/{VERSION}",
        ):
            for path in self.contents.python.glob(pattern):
                self._add_tree(path, f"{self.contents.image_python}/{path.relative_to(self.contents.python)}")
        for path in self.contents.python.glob("lib/libpython*"):  # the interpreter was told another place to look in
            self._add_link(f"usr/lib/{path.name}", f"{self.contents.image_python}/lib/{path.name}")

    def _add_distribution(self, one: Distribution) -> None:
        if one.files is None:
            raise EngineError(f"{one.metadata['Name']} has no list of its files: install it with pip")
        root = Path(os.path.abspath(str(one.locate_file(""))))
        for listed in one.files:
            path = Path(os.path.abspath(str(one.locate_file(listed))))
            if path.is_relative_to(root):
                inner = str(path.relative_to(root))
                if not LEFT_OUT.search(inner):
                    self._add(path, f"{self.contents.site_packages}/{inner}")
            elif path.parent.name == "bin" and path.is_file() and _is_elf(path):  # scripts name another interpreter
                self._add(path, f"{self.contents.image_python}/bin/{path.name}")

    def _add_tree(self, path: Path, name: str) -> None:
        if path.is_dir() and not path.is_symlink():
            self._add_folder(name)
            for inner in sorted(path.iterdir()):
                if not LEFT_OUT.search(f"{name}/{inner.name}/" if inner.is_dir() else f"{name}/{inner.name}"):
                    self._add_tree(inner, f"{name}/{inner.name}")
        else:
            self._add(path, name)

    def _add_alternatives(self) -> None:
        """The links that packages get on installation, such as c++ for g++."""
        for entry in sorted(Path("/var/lib/dpkg/alternatives").iterdir()):
            link = Path(entry.read_text().splitlines()[1])
            if link.is_symlink() and os.path.realpath(link).lstrip("/") in self.written:
                for each in _chain(link):
                    self._add(each, self._resolved(each))

    def _resolved(self, path: Path) -> str:
        """The member's name: /bin/sh lies in usr/bin where /bin is a link."""
        return f"{os.path.realpath(path.parent)}/{path.name}"

    def _add(self, path: Path, name: str) -> None:
        """Adds a file, a link or a folder without what is in it; a Python source brings its bytecode."""
        name = name.lstrip("/")
        if name in self.written or not os.path.lexists(path):
            return
        info = self.tar.gettarinfo(path, arcname=name)
        if info is None:
            return
        if info.islnk():  # the other name of a hard link may not be in the image
            info.type, info.size = tarfile.REGTYPE, path.stat().st_size
        if not info.isfile():
            self._put(info)
            return
        with open(path, "rb") as stream:
            self._put(info, stream)
        if path.suffix == ".py":
            self._add_bytecode(path, name, info)
        elif ".so" in path.name or info.mode & stat.S_IXUSR:
            self.binaries.append(path)

    def _add_bytecode(self, path: Path, name: str, source: tarfile.TarInfo) -> None:
        """A container's root is read-only: without this every start would compile torch's sources anew."""
        cached = Path(importlib.util.cache_from_source(str(path)))
        bytecode = _fresh_bytecode(cached, source) or _compile(path, name)
        if bytecode is not None:
            cache = importlib.util.cache_from_source(name)
            self._add_folder(os.path.dirname(cache))
            self._add_bytes(cache, bytecode)

    def _add_folder(self, name: str, mode: int = 0o755) -> None:
        info = tarfile.TarInfo(name.lstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._put(info)

    def _add_link(self, name: str, target: str) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        self._put(info)

    def _add_bytes(self, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        self._put(info, io.BytesIO(content))

    def _put(self, info: tarfile.TarInfo, stream: IO[bytes] | None = None) -> None:
        if info.name in self.written:
            return
        self.written.add(info.name)
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = int(info.mtime)
        if info.name != "root":
            info.mode |= 0o555 if info.mode & stat.S_IXUSR else 0o444
        self.tar.addfile(info, stream)


def _fresh_bytecode(cached: Path, source: tarfile.TarInfo) -> bytes | None:
    """The bytes of a .pyc that the interpreter would accept for the source as it will be in the image."""
    try:
        content = cached.read_bytes()
    except OSError:
        return None
    by_time = 0
    stamp = struct.pack("<III", by_time, int(source.mtime) & 0xFFFFFFFF, source.size & 0xFFFFFFFF)
    expected = importlib.util.MAGIC_NUMBER + stamp
    return content if content.startswith(expected) else None


def _compile(path: Path, name: str) -> bytes | None:
    """None for a file that is no source of this version (packages carry such as data)."""
    with tempfile.NamedTemporaryFile(suffix=".pyc") as target:
        try:
            with warnings.catch_warnings(action="ignore"):
                py_compile.compile(
                    str(path), cfile=target.name, dfile=f"/{name}", doraise=True, quiet=2,
                    invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP,
                )  # fmt: skip
        except (py_compile.PyCompileError, ValueError):
            return None
        return Path(target.name).read_bytes()


def _package_files(packages: Sequence[str]) -> Iterator[Path]:
    """All paths of the packages and of what they depend on, as far as installed."""
    if shutil.which("dpkg") is None or shutil.which("apt-cache") is None:
        raise EngineError("the base image is made of Debian's packages, and this machine has no dpkg and apt-cache")
    options = ["--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"]
    listed = _output(["apt-cache", "depends", "--recurse", "--installed", *options, *packages])
    states = _output(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n"]).splitlines()
    installed = {state.split()[0] for state in states if state.endswith(" installed")}
    names = sorted(installed.intersection(listed.splitlines()))  # it lists what is merely named by another, too
    if missing := set(packages) - installed:
        raise EngineError(f"the base image needs installed packages: apt-get install {' '.join(sorted(missing))}")
    for line in _output(["dpkg", "-L", *names]).splitlines():
        if line.startswith("/") and line != "/." and not PACKAGE_FILES_LEFT_OUT.search(line):
            yield Path(line)


def _libraries(binaries: Sequence[Path]) -> set[Path]:
    """The system's shared libraries that the binaries load."""
    found: set[Path] = set()
    elves = [str(path) for path in binaries if _is_elf(path)]
    for start in range(0, len(elves), 100):
        answer = subprocess.run(["ldd", *elves[start : start + 100]], capture_output=True, text=True, check=False)
        found.update(Path(path) for path in re.findall(r"=> (/(?:usr/)?lib\S*) \(0x", answer.stdout))
    return found


def _chain(path: Path) -> Iterator[Path]:
    """The path, and where it is a link, what it leads to by and by."""
    yield path
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / os.readlink(path)))
        yield path


def _is_elf(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        raise EngineError(f"{command[0]} failed: {done.stderr.strip()[:300]}")
    return done.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the base image of the Docker tests, and print its name.")
    parser.parse_args()
    try:
        print(ensure_base_image(connect()))
    except EngineError as e:
        sys.exit(f"base image: {e}")
