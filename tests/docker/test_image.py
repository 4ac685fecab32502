"""The sandbox's image, built for real on the base of tests/docker/base_image.py: what is in it, and what is refused."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import docker
import pytest
import torch

from kbenv.cli import main
from kbenv.errors import SandboxError
from kbenv.sandbox import image
from kbenv.sandbox.engine import EngineError, connect
from kbenv.sandbox.image import PYTHON_LABEL, TORCH_LABEL, Image, build, clean
from tests.docker.base_image import ensure_base_image
from tests.docker.proxy import EngineProxy

pytestmark = pytest.mark.docker

PREFIX = f"kbenv-test-{os.getpid()}"
TAG = f"{PREFIX}-image"
KBENV = [sys.executable, "-c", "import sys; from kbenv.cli import main; sys.exit(main())"]
IMPORT = "import torch, numpy, setuptools; print(float(torch.ones(3).sum()))"
COMPILE = """
import torch
from torch.utils.cpp_extension import load_inline
module = load_inline("plus", "torch::Tensor plus(torch::Tensor a) { return a + 1; }", functions=["plus"])
print(float(module.plus(torch.ones(3)).sum()))
"""
HANG = 'python=$(command -v python3); rm "$python"; printf "#!/bin/sh\\nexec sleep 600" >"$python"; chmod 755 "$python"'
TORCH = "$(dirname $(python3 -I -c 'import torch; print(torch.__file__)'))"
AGE_TORCH = f"sed -i 's/{torch.__version__}/2.8.1/' {TORCH}/version.py"
HIDE_NUMPY = "chmod 700 $(dirname $(python3 -I -c 'import numpy; print(numpy.__file__)'))"


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = connect()
    yield client
    client.close()


@pytest.fixture(scope="module")
def base(client: docker.DockerClient) -> str:
    return ensure_base_image(client)


@pytest.fixture(scope="module")
def built(client: docker.DockerClient, base: str) -> Iterator[Image]:
    yield build(client, base, TAG)
    clean(client, image=TAG)  # also what the builds left that are to fail


@pytest.fixture
def variant(client: docker.DockerClient, base: str) -> Iterator[Callable[[str], str]]:
    """Makes a base that differs by one instruction of a Dockerfile."""
    made: list[str] = []

    def make(instruction: str) -> str:
        name = f"{PREFIX}-base-{len(made)}"
        dockerfile = f"FROM {base}\n{instruction}\n".encode()
        client.images.build(fileobj=io.BytesIO(dockerfile), tag=name, rm=True, forcerm=True, network_mode="none")
        made.append(name)
        return name

    yield make
    for name in made:
        client.images.remove(name, force=True)


def run_hardened(client: docker.DockerClient, code: str, user: str) -> str:
    """What `python3 -I` prints in a container as locked down as a sandbox's, on one line."""
    output: bytes = client.containers.run(
        TAG, ["python3", "-I", "-c", code], user=user, remove=True, network_mode="none", read_only=True,
        cap_drop=["ALL"], security_opt=["no-new-privileges"], environment={"HOME": "/tmp"},
        tmpfs={"/tmp": "exec,mode=1777,size=1g", "/run/kbenv": ""},
    )  # fmt: skip
    return output.decode().strip()


def test_the_image_says_what_is_in_it(built: Image, client: docker.DockerClient) -> None:
    found = client.images.get(TAG)
    python = "{}.{}.{}".format(*sys.version_info[:3])
    assert built == Image(found.id, TAG, found.attrs["Size"], python, torch.__version__)
    assert found.labels.items() >= {"kbenv.image": "1", PYTHON_LABEL: python, TORCH_LABEL: torch.__version__}.items()
    config = found.attrs["Config"]
    assert not config.get("Entrypoint")
    assert not config.get("Volumes")
    assert config["User"] == "0:0"
    assert not [entry for entry in config["Env"] if entry.startswith("LD_PRELOAD=")]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("user", ["0:0", "20000:20000"])
def test_python_and_torch_can_be_read_without_privileges(user: str, client: docker.DockerClient) -> None:
    assert run_hardened(client, IMPORT, user) == "3.0"


@pytest.mark.usefixtures("built")
def test_an_extension_compiles_on_a_read_only_root(client: docker.DockerClient) -> None:
    assert run_hardened(client, COMPILE, "20000:20000") == "6.0"


@pytest.mark.usefixtures("built")
def test_imports_find_their_bytecode(client: docker.DockerClient) -> None:
    """Else every start compiles torch's sources anew, for nothing can be kept on a read-only root."""
    code = (
        "import torch, sys, os; specs = [getattr(module, '__spec__', None) for module in sys.modules.values()]; "
        "print([spec.origin for spec in specs if spec and spec.cached and not os.path.exists(spec.cached)])"
    )
    assert run_hardened(client, code, "20000:20000") == "[]"


def test_a_complete_base_needs_no_network(client: docker.DockerClient, base: str) -> None:
    built = image._run_build(
        client, image._DOCKERFILE.read_bytes(), lambda line: None, buildargs={"BASE_IMAGE": base}, network_mode="none",
        nocache=True,
    )  # fmt: skip
    client.images.remove(built)


def test_the_command_line_builds_and_says_so_in_one_line(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    tag = f"{PREFIX}-by-hand"
    try:
        assert main(["sandbox", "build", "--base", base, "--tag", tag]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert re.fullmatch(
            rf"{tag}: \d\.\d\d GB, \d+ s, Python 3\.\d+\.\d+, torch {re.escape(torch.__version__)}", line
        )
    finally:
        with contextlib.closing(connect()) as client:
            assert clean(client, image=tag)[-1:] == [tag]
            assert clean(client, image=tag)[-1:] != [tag]


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        pytest.param("ENV LD_PRELOAD=/lib/x.so", "sets LD_PRELOAD", id="LD_PRELOAD"),
        pytest.param("VOLUME /data", "declares volumes", id="volume"),
        pytest.param("RUN echo /lib/x.so >/etc/ld.so.preload", "preloads libraries", id="ld.so.preload"),
        pytest.param("RUN rm $(command -v c++)", r"lacks g\+\+ and has no apt-get", id="no compiler"),
        pytest.param(f"RUN {HIDE_NUMPY}", "unprivileged user cannot import", id="unreadable"),
        pytest.param(f"RUN {AGE_TORCH}", "has torch 2.8.1, and kbenv needs 2.9 or newer", id="old torch"),
    ],
)
def test_a_base_that_will_not_do_is_refused_and_the_image_stays(
    instruction: str, message: str, built: Image, client: docker.DockerClient, variant: Callable[[str], str]
) -> None:
    with pytest.raises(EngineError, match=message):
        build(client, variant(instruction), TAG)
    assert client.images.get(TAG).id == built.id


def test_a_base_that_is_nowhere_is_named(client: docker.DockerClient) -> None:
    with pytest.raises(EngineError, match=r"no image registry\.invalid/nosuch:1 and cannot pull it.*name another"):
        build(client, "registry.invalid/nosuch:1", TAG)


@pytest.mark.parametrize("name", ["UPPER", "", "a b", ":1"])
def test_what_is_no_name_is_refused(name: str, client: docker.DockerClient, base: str) -> None:
    with pytest.raises(EngineError, match="is not the name of an image"):
        build(client, base, name)
    with pytest.raises(EngineError, match="is not the name of an image"):
        build(client, name, f"{PREFIX}-never")


def test_an_image_that_lost_its_name_is_removed(client: docker.DockerClient, variant: Callable[[str], str]) -> None:
    tag = f"{PREFIX}-renewed"
    try:
        first = build(client, variant("LABEL one=1"), tag)
        second = build(client, variant("LABEL two=2"), tag)
        assert client.images.get(tag).id == second.id != first.id
        with pytest.raises(docker.errors.ImageNotFound):
            client.images.get(first.id)
    finally:
        client.images.remove(tag, force=True)


def test_an_image_in_use_is_not_cleaned(client: docker.DockerClient, variant: Callable[[str], str]) -> None:
    name = variant("LABEL used=1")
    container = client.containers.create(name, ["true"])
    try:
        with pytest.raises(EngineError, match=f"the image {name} cannot be removed"):
            clean(client, image=name)
    finally:
        container.remove(force=True)


def test_an_interrupt_ends_the_build_on_the_engine(client: docker.DockerClient, variant: Callable[[str], str]) -> None:
    slow = variant(f"RUN {HANG}")
    command = [*KBENV, "sandbox", "build", "--base", slow, "--tag", f"{PREFIX}-never"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert child.stderr.readline() == "compiler and Python\n"
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=30)
    assert (child.returncode, output, errors) == (130, "", "kbenv: interrupted\n")
    wait_until_none_runs(client, slow)


def test_a_lost_engine_is_a_fault_of_the_machine(
    client: docker.DockerClient, variant: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = variant(f"RUN {HANG}")
    with EngineProxy() as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.address)
        with (
            contextlib.closing(connect()) as far,
            pytest.raises(SandboxError, match=f"building {PREFIX}-never on {slow} failed: "),
        ):
            build(far, slow, f"{PREFIX}-never", lambda line: proxy.cut())
    wait_until_none_runs(client, slow)


def wait_until_none_runs(client: docker.DockerClient, base: str) -> None:
    """No container of a build on `base` is left."""
    deadline = time.monotonic() + 30
    while client.containers.list(all=True, ignore_removed=True, filters={"ancestor": base}):
        assert time.monotonic() < deadline
        time.sleep(0.2)
