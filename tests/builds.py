"""A judge's builds without a judge: a process with a zygote, artefacts and uids of its own, asked line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from kbenv.protocol import Limits

ROOT = Path(__file__).resolve().parent.parent
UID = 59990
"""Of builders here: of no judge's jobs."""
_PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX")
_SERVER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
from kbenv.sandbox.judge import build
from kbenv.sandbox.judge.arm import ArmError
from kbenv.sandbox.judge.artifacts import Artifacts
from kbenv.sandbox.zygote import Zygote

def spent():
    # processor time, in seconds, of what the zygote has started and waited for
    with open(f"/proc/{zygote.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

spec = json.loads(sys.argv[2])
if not spec["slim"]:
    build.slim_headers = lambda *_, **__: None
with Zygote.start(spec["root"], contained=False) as zygote:
    artifacts = Artifacts(spec["artifacts"], spec["max_bytes"])
    print("{}", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        left = []
        builds = build.Builds(zygote, artifacts, asked["limits"], spec["uid"], left.append)
        if asked["closed"]:
            builds.close()
        try:
            reply, descriptors = builds.answer(asked["request"], asked["timeout_s"], lambda: None)
            for descriptor in descriptors:
                with open(descriptor, "rb") as file:
                    reply["library"] = file.read().hex()
        except ArmError as e:
            reply = {"error": e.kind, "message": e.message}
        print(json.dumps(reply | {"facts": builds.facts, "left": left, "spent_s": spent()}), flush=True)
"""


class BuildServer:
    """A context manager.

    Args:
        tools: a folder in front of PATH.
        slim: whether sources may get stand-ins for PyTorch's headers.
    """

    def __init__(self, folder: Path, *, tools: Path | None = None, max_bytes: int = 1 << 30, slim: bool = True) -> None:
        self.artifacts = folder / "artifacts"
        root = folder / "root"
        root.mkdir(mode=0o711)
        spec = {"root": str(root), "artifacts": str(self.artifacts), "max_bytes": max_bytes, "uid": UID, "slim": slim}
        path = os.pathsep.join([*([str(tools)] if tools else []), os.environ["PATH"]])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(ROOT), json.dumps(spec)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            | {"PATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"},
        )  # fmt: skip

    def __enter__(self) -> Self:
        assert self._line() == {}
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60.0)

    def ask(self, request: Any, *, timeout_s: float = 60.0, closed: bool = False, **limits: Any) -> dict[str, Any]:
        """The reply, with the facts of this one build, as "library" the library's bytes, and as "spent_s" the processor
        time of all builds so far."""
        asked = {"request": request, "timeout_s": timeout_s, "closed": closed,
                 "limits": Limits(**limits).model_dump(mode="json")}  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        reply = self._line()
        if "library" in reply:
            reply["library"] = bytes.fromhex(reply["library"])
        return reply

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process with the builds ended"
        return json.loads(line)


def request(*sources: str | dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A request as a runner makes it, of C++ sources without any header of PyTorch's."""
    described = [
        source if isinstance(source, dict) else {"name": f"part{n}.cpp", "object": f"part{n}.o", "text": source}
        for n, source in enumerate(sources)
    ]
    return {
        "name": "kernels", "cxx": "c++", "nvcc": None, "cflags": ["-fPIC", "-std=c++17"], "cuda_cflags": [],
        "ldflags": ["-shared"], "sources": [{"cuda": False} | source for source in described],
    } | changes  # fmt: skip
