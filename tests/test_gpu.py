"""Devices by number and by UUID mean one GPU each, whatever CUDA_VISIBLE_DEVICES says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbenv.errors import UsageError
from kbenv.sandbox import gpu
from kbenv.sandbox.choice import choose_device
from kbenv.sandbox.gpu import Gpu, canonical, list_gpus, number_of, resolve_devices
from kbenv.sandbox.process import ProcessCarrier

A, B = "GPU-5f0ac0de-0000-0000-0000-00000000000a", "GPU-77777777-0000-0000-0000-00000000000b"


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "list_gpus", lambda: [Gpu(0, A, "NVIDIA H200"), Gpu(1, B, "NVIDIA H200")])


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "list_gpus", lambda: [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_driver_is_asked_for_its_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '0, {A}, NVIDIA H200'\necho '1, {B}, NVIDIA H200, of a kind'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert list_gpus() == [Gpu(0, A, "NVIDIA H200"), Gpu(1, B, "NVIDIA H200, of a kind")]
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert list_gpus() == []


@pytest.mark.parametrize("visible", [None, "1", B, ""])
@pytest.mark.usefixtures("two_gpus")
def test_numbers_are_the_machines(visible: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert resolve_devices(["cuda:0", "cuda:1"]) == [f"cuda:{A}", f"cuda:{B}"]
    assert resolve_devices(["all"]) == [f"cuda:{A}", f"cuda:{B}"]
    assert resolve_devices([B, "cpu"]) == [f"cuda:{B}", "cpu"]
    assert resolve_devices([f"cuda:{A}"]) == [f"cuda:{A}"]
    assert resolve_devices(["GPU-5f0"]) == [f"cuda:{A}"]  # cut short, as CUDA allows
    assert resolve_devices(["MIG-1a2b"]) == ["cuda:MIG-1a2b"]
    assert resolve_devices(["cpu", "cpu"]) == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([], "at least one"),
        (["cuda:0", A], "named twice"),
        (["cuda:2"], "this machine has cuda:0"),
        (["GPU-9"], "this machine has cuda:0"),
        (["GPU-"], "a device is cpu, cuda:N"),
        (["all", "cpu"], "a device is cpu, cuda:N"),
        (["0"], "a device is cpu, cuda:N"),
        (["cuda"], "a device is cpu, cuda:N"),
        (["tpu:0"], "a device is cpu, cuda:N"),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_what_names_no_one_device_is_refused(devices: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve_devices(devices)


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_here_names_are_passed_on_where_they_cannot_mislead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_devices(["cuda:1", A]) == ["cuda:1", f"cuda:{A}"]
    with pytest.raises(UsageError, match="lists none"):
        resolve_devices(["all"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(UsageError, match="give UUIDs"):
        resolve_devices(["cuda:1"])


@pytest.mark.usefixtures("two_gpus")
def test_two_names_of_one_gpu_have_one_lock() -> None:
    assert canonical("1") == canonical(B) == canonical("GPU-7777") == B
    assert canonical("MIG-1") == "MIG-1"
    assert canonical("5") == "5"
    assert (number_of(B), number_of("0"), number_of("MIG-1")) == ("1", "0", "MIG-1")


def test_a_judges_lock_is_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbenv.sandbox.process.canonical", lambda visible: f"lock of {visible}")
    assert ProcessCarrier("1").lock == "lock of 1"
    assert ProcessCarrier().lock == "cpu"


def test_a_uuid_is_what_the_judge_sees_whatever_pytorch_sees_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbenv.sandbox.choice._torch_has_cuda", lambda: True)
    monkeypatch.setattr("kbenv.sandbox.choice._visible_gpus", lambda: [])
    assert choose_device(f"cuda:{A}") == (f"cuda:{A}", A)
    monkeypatch.setattr("kbenv.sandbox.choice._torch_has_cuda", lambda: False)
    with pytest.raises(UsageError, match="without CUDA"):
        choose_device(f"cuda:{A}")
