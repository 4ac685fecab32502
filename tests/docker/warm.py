"""A warm judge and its container, looked into as root there, which is what the judge runs as."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbenv.evaluator import Evaluator
from tests.docker.traces import containers_of, until
from tests.judge.inside import HONEST, PRELUDE, run_inside, seen_in

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

_REMAINS = """
folders = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/kbenv/scratch", "/run/kbenv/scratch/trusted")
entries = [entry for folder in folders for entry in os.scandir(folder)]
seen["files"] = [entry.path for entry in entries if entry.stat(follow_symlinks=False).st_uid != 0][:20]
seen["processes"] = []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/status") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        continue
    if facts["Uid"].split() != ["0"] * 4:
        seen["processes"].append(f"{name} {facts['Name'].strip()} {facts['State'].strip()}")
seen["objects"] = []
for kind in ("shm", "sem", "msg"):
    with open(f"/proc/sysvipc/{kind}") as table:
        seen["objects"] += table.read().splitlines()[1:]
with open("/proc/net/unix") as table:
    seen["sockets"] = [line.split()[7] for line in table if len(line.split()) > 7 and line[0] != "N"]
for kind in ("tcp", "tcp6", "udp", "udp6"):
    with open(f"/proc/net/{kind}") as table:
        seen["sockets"] += table.read().splitlines()[1:]
"""


@dataclass
class Warm:
    """An evaluator, and the container that its judge runs in."""

    evaluator: Evaluator
    engine: DockerClient
    _id: str | None = None

    @property
    def container(self) -> Container:
        """The container that the next job runs in, unless it is found unfit."""
        if self._id not in containers_of(self.engine):
            name = run_inside(self.evaluator, "seen['name'] = os.uname().nodename")["name"]
            self._id = self.engine.containers.get(name).id
        return self.engine.containers.get(self._id)

    def run_as_judge(self, code: str) -> dict[str, Any]:
        """Runs `code` as root in the container; what it leaves in the dict `seen` comes back."""
        program = f"{PRELUDE}\nseen = {{}}\n{textwrap.dedent(code)}\nprint('SEEN', json.dumps(seen), flush=True)\n"
        found = self.container.exec_run(["python3", "-I", "-c", program], user="0")
        return seen_in(found.output.decode(errors="replace"), found)

    def remains(self) -> dict[str, list[str]]:
        """What anybody but root has in the container, by kind, where there is any: between jobs nothing is right."""
        return {kind: found for kind, found in self.run_as_judge(_REMAINS).items() if found}


@contextlib.contextmanager
def unharmed(warm: Warm) -> Iterator[None]:
    """What runs inside leaves nothing, and the next honest submission is credited, by the same judge."""
    container = warm.container.id
    yield
    until(lambda: not warm.remains(), "nothing of a job is left in the container")
    verdict = warm.evaluator.evaluate(HONEST.problem, HONEST.source)
    assert verdict.credited, verdict.message
    assert warm.container.id == container
