"""A judge of a GPU that has nothing to do makes its next job's place, which serves that job or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbenv.protocol import Limits
from kbenv.sandbox.judge.place import Ahead
from kbenv.sandbox.judge.plan import CONTEXT_BYTES
from kbenv.sandbox.judge.setting import Setting

FIRST, FURTHER = ("reference", "null", "submission"), ["reference", "submission"] * 3


class FakePlace:
    def __init__(self, setting: Setting) -> None:
        self.setting, self.closed = setting, False
        self.wanted: list[list[str]] = []
        self.spares: Any = SimpleNamespace(complete=self.complete, have_answered=True)

    def complete(self, roles: Sequence[str]) -> None:
        self.wanted.append(list(roles))

    def close(self) -> None:
        self.closed = True


def setting_of(device: str, **limits: Any) -> Setting:
    return Setting(device, 4, Limits(**limits).model_dump())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakePlace]:
    properties = SimpleNamespace(total_memory=200 * CONTEXT_BYTES)  # of which a sixteenth is 12 contexts
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return []


def ahead_of(made: list[FakePlace]) -> Ahead:
    def make(setting: Setting) -> Any:
        made.append(FakePlace(setting))
        return made[-1]

    return Ahead(make)


def test_runners_are_started_in_two_steps_and_taken_by_a_job_of_the_same_setting(made: list[FakePlace]) -> None:
    ahead = ahead_of(made)
    ahead.expect(setting_of("cuda"), FIRST, FURTHER)
    ahead.go_on()
    assert made[0].wanted == [list(FIRST)]
    assert ahead.has_more
    ahead.go_on()
    assert made[0].wanted[1] == [*FIRST, *FURTHER]
    assert not ahead.has_more
    assert ahead.take(setting_of("cuda")) is made[0]
    assert not made[0].closed
    assert ahead.take(setting_of("cuda")) is None


def test_further_runners_wait_until_the_first_are_ready(made: list[FakePlace]) -> None:
    ahead = ahead_of(made)
    ahead.expect(setting_of("cuda"), FIRST, FURTHER)
    ahead.go_on()
    made[0].spares.have_answered = False
    ahead.go_on()
    assert ahead.has_more
    made[0].spares.have_answered = True
    ahead.go_on()
    assert made[0].wanted == [list(FIRST), [*FIRST, *FURTHER]]


def test_a_job_of_another_setting_gets_none_of_it(made: list[FakePlace]) -> None:
    ahead = ahead_of(made)
    ahead.expect(setting_of("cuda"), FIRST, FURTHER)
    ahead.go_on()
    assert ahead.take(setting_of("cuda", scratch_bytes=1 << 20)) is None
    assert made[0].closed
    assert not ahead.has_more


def test_what_is_not_taken_is_closed_with_the_judge(made: list[FakePlace]) -> None:
    with ahead_of(made) as ahead:
        ahead.expect(setting_of("cuda"), FIRST, FURTHER)
        ahead.go_on()
    assert made[0].closed


def test_contexts_take_no_more_than_their_share_of_the_memory(
    made: list[FakePlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = SimpleNamespace(total_memory=33 * CONTEXT_BYTES)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    ahead = ahead_of(made)
    ahead.expect(setting_of("cuda"), FIRST, FURTHER)
    ahead.go_on()
    ahead.go_on()
    assert made[0].wanted == [["reference", "null"]] * 2


def test_on_the_cpu_nothing_is_made(made: list[FakePlace]) -> None:
    ahead = ahead_of(made)
    ahead.expect(setting_of("cpu"), FIRST, FURTHER)
    ahead.go_on()
    assert made == []
    assert not ahead.has_more


def test_that_it_cannot_be_made_is_left_to_the_job() -> None:
    def make(_: Setting) -> Any:
        raise RuntimeError("the fork server failed")

    ahead = Ahead(make)
    ahead._setting, ahead._roles = setting_of("cuda"), [FIRST]
    ahead.go_on()
    assert ahead.take(setting_of("cuda")) is None
