"""The image that Docker sandboxes run: built by the engine, and removed again with what else we left there.

The image holds Python, torch and compilers and nothing of kbenv (image/Dockerfile). Sandboxes never build or pull:
`build` is the only place where either happens.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbenv.errors import SandboxError
from kbenv.sandbox.docker import remove_orphans
from kbenv.sandbox.engine import IMAGE, EngineError, EngineFacts, facts_of

if TYPE_CHECKING:
    from docker import DockerClient

OnLine = Callable[[str], None]

HEADING = "== "
"""Starts the lines of a build's output that name its steps."""
CPU_BASE = "python:3.11-slim"
IMAGE_LABEL = "kbenv.image"
PYTHON_LABEL = "kbenv.python"
TORCH_LABEL = "kbenv.torch"

_DOCKERFILE = Path(__file__).with_name("image") / "Dockerfile"
_FACTS = "/etc/kbenv-image.json"
_REFUSAL = "kbenv: "
"""Starts what the Dockerfile says of a base that will not do."""
_PIP_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_PROXY_SETTINGS = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_LAST_LINES = 8
_PULL_INTERVAL_S = 5.0
_NOISE = re.compile(r"Step \d+/\d+ : | ---> |Removing intermediate container |Successfully (built|tagged) ")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Image:
    """What was built."""

    id: str
    name: str
    size_bytes: int
    python: str
    torch: str


def build(client: DockerClient, base: str | None, tag: str = IMAGE, on_line: OnLine = lambda line: None) -> Image:
    """Builds the image on `base` (None: `default_base`), which is pulled if the engine lacks it, and names it `tag`.

    Only an image that passed the Dockerfile's checks gets the name. The one that had it before is removed unless a
    container still runs it. The environment's settings of pip and of proxies are handed to the build; who can read the
    image can read those of pip, passwords in addresses included.

    Args:
        on_line: called with each line of output as it comes; lines that name a step start with `HEADING`.

    Raises:
        EngineError: the base will not do or cannot be had, or a name is none.
        SandboxError: a step failed, or the engine went away.
    """
    from docker.errors import DockerException

    base = base if base is not None else default_base(facts_of(client))
    try:
        before = _id_of(client, tag)
        _ensure_base(client, base, on_line)
        arguments = {name: os.environ[name] for name in _PIP_SETTINGS + _PROXY_SETTINGS if os.environ.get(name)}
        arguments |= {"BASE_IMAGE": base, "TORCH": _torch_version()}
        unnamed = _run_build(client, _DOCKERFILE.read_bytes(), on_line, buildargs=arguments, network_mode="host")
        facts = _read_facts(client, unnamed)
        labels = {PYTHON_LABEL: facts["python"], TORCH_LABEL: facts["torch"]}
        named = _run_build(client, f"FROM {unnamed}\n".encode(), on_line, labels=labels, tag=tag)
        image = client.images.get(named)
        if before is not None and before != image.id:
            _remove_nameless(client, before)
    except (DockerException, OSError) as e:
        raise SandboxError(f"building {tag} on {base} failed: {_reason(e)}") from e
    return Image(str(image.id), tag, int(image.attrs["Size"]), facts["python"], facts["torch"])


def default_base(facts: EngineFacts) -> str:
    """PyTorch's own CUDA image where the engine gives containers a GPU, a bare Python elsewhere."""
    if not facts.gpu_access:
        return CPU_BASE
    found = re.search(r"^ARG BASE_IMAGE=(\S+)$", _DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def clean(client: DockerClient, *, all_owners: bool = False, image: str | None = None) -> list[str]:
    """Removes our containers whose process is gone, and on request the image; returns the names of what was removed.

    Args:
        all_owners: the containers of living processes and of other machines, too.
        image: this image, and what unfinished builds left.

    Raises:
        EngineError: a container still uses the image.
        SandboxError: the engine went away.
    """
    from docker.errors import DockerException

    try:
        removed = remove_orphans(client, everyone=all_owners)
        if image is not None:
            if _id_of(client, image) is not None:
                _remove_image(client, image)
                removed.append(image)
            client.images.prune(filters={"dangling": True, "label": IMAGE_LABEL})
    except (DockerException, OSError) as e:
        raise SandboxError(f"cleaning up failed: {_reason(e)}") from e
    return removed


def _remove_image(client: DockerClient, image: str) -> None:
    from docker.errors import APIError

    try:
        client.images.remove(image)
    except APIError as e:
        raise EngineError(
            f"the image {image} cannot be removed ({_reason(e)}); `kbenv sandbox clean --all` removes our containers, "
            "those in use as well"
        ) from e


def _id_of(client: DockerClient, name: str) -> str | None:
    """None for an image that the engine lacks. Raises EngineError for what is no name of an image."""
    from docker.errors import APIError, ImageNotFound, NullResource

    try:
        return str(client.images.get(name).id)
    except ImageNotFound:
        return None
    except (APIError, NullResource) as e:
        raise EngineError(f"{name!r} is not the name of an image ({_reason(e)}); expected one such as {IMAGE}") from e


def _ensure_base(client: DockerClient, base: str, on_line: OnLine) -> None:
    """Pulls the base unless the engine has it, and refuses one that no build can mend."""
    if _id_of(client, base) is None:
        try:
            _pull(client, base, on_line)
        except OSError as e:
            raise EngineError(
                f"the engine has no image {base} and cannot pull it ({_reason(e)}); load it there (`docker load`), or "
                "name another with --base"
            ) from e
    config = client.images.get(base).attrs["Config"]
    if any(entry.startswith("LD_PRELOAD=") for entry in config.get("Env") or ()):
        raise EngineError(
            f"the base {base} sets LD_PRELOAD, which would run in every process: take another with --base"
        )
    if config.get("Volumes"):
        raise EngineError(
            f"the base {base} declares volumes, which stay writable in a container: take another with --base"
        )


def _pull(client: DockerClient, base: str, on_line: OnLine) -> None:
    """Pulls, and says now and then how far it is. Raises OSError."""
    said, said_at = f"pulling {base}", time.monotonic()
    on_line(HEADING + said)
    amounts: dict[str, tuple[int, int]] = {}
    for message in _messages(client.api.pull(base, stream=True, decode=True)):
        if "error" in message:
            raise OSError(message["error"])
        layer, detail = str(message.get("id")), message.get("progressDetail") or {}
        if message.get("status") == "Downloading" and detail.get("total"):
            amounts[layer] = int(detail["current"]), int(detail["total"])
        elif layer in amounts:  # it is whole, and being unpacked
            amounts[layer] = amounts[layer][1], amounts[layer][1]
        current, total = (sum(column) for column in zip((0, 0), *amounts.values(), strict=True))
        how_far = (
            f"pulling {base}: {current / 1e6:.0f} of {total / 1e6:.0f} MB" if current < total else f"unpacking {base}"
        )
        if amounts and time.monotonic() - said_at > _PULL_INTERVAL_S and said != how_far:
            said, said_at = how_far, time.monotonic()
            on_line(HEADING + said)


def _torch_version() -> str:
    """Of this machine, for a base that has none; empty for a version that no index offers."""
    public = version("torch").partition("+")[0]
    return public if re.fullmatch(r"[\d.]+", public) else ""


def _run_build(client: DockerClient, dockerfile: bytes, on_line: OnLine, **options: Any) -> str:
    """The id of what was built.

    Raises:
        EngineError: the Dockerfile refused the base.
        SandboxError: a step failed, or the engine ended the build without a result.
        OSError: the engine did not answer.
    """
    output = _Output(on_line)
    messages = client.api.build(
        fileobj=io.BytesIO(dockerfile), rm=True, forcerm=True, pull=False, decode=True, **options
    )
    built = None
    for message in _messages(messages):
        output.add(str(message.get("stream", "")))
        if "error" in message:
            raise output.failure(str(message["error"]))
        built = (message.get("aux") or {}).get("ID", built)
    if built is None:
        raise SandboxError("the engine ended the build without a result; its log says why")
    return str(built)


@dataclass
class _Output:
    """What the steps of a build print, in whole lines."""

    on_line: OnLine
    heading: str | None = None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    rest: str = ""

    def add(self, text: str) -> None:
        *lines, self.rest = (self.rest + _COLOUR.sub("", text)).split("\n")
        for line in lines:
            line = line.rstrip()
            if not line or _NOISE.match(line):
                continue
            if line.startswith(HEADING):
                self.heading = line.removeprefix(HEADING)
                self.last.clear()
            else:
                self.last.append(line)
            self.on_line(line)

    def failure(self, error: str) -> Exception:
        """Why the build ended: what the step said last, or where none began the engine's own words."""
        self.add("\n")
        for line in self.last:
            if line.startswith(_REFUSAL):
                return EngineError(line.removeprefix(_REFUSAL))
        if self.heading is None:
            return SandboxError(f"the engine could not build the image: {error[:300]}")
        return SandboxError(f"building the image failed at {self.heading!r}: {' | '.join(self.last) or error[-100:]}")


def _messages(stream: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The engine's messages. Raises OSError when they stop in the middle."""
    from docker.errors import StreamParseError
    from urllib3.exceptions import HTTPError

    try:
        yield from stream
    except (StreamParseError, HTTPError) as e:
        raise OSError(f"the engine stopped answering ({e})") from e


def _read_facts(client: DockerClient, image: str) -> dict[str, str]:
    """What the build wrote down of itself, read through a container that never starts."""
    container = client.api.create_container(image)["Id"]
    try:
        chunks, _ = client.api.get_archive(container, _FACTS)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            member = archive.extractfile(os.path.basename(_FACTS))
            assert member is not None
            return {name: str(value) for name, value in json.load(member).items()}
    finally:
        client.api.remove_container(container, force=True)


def _remove_nameless(client: DockerClient, image: str) -> None:
    """Removes an image that lost its name; one that has others, children or containers stays."""
    from docker.errors import APIError

    with contextlib.suppress(APIError):
        if not client.images.get(image).tags:
            client.images.remove(image)


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "explanation", None) or error).split())[:300]
