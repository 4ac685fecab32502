"""Warm evaluators, one for each set of rules and shared by all tests of a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import pytest

from kbenv.corpus import Case, quick
from kbenv.evaluator import Evaluator
from kbenv.protocol import Protocol, get_protocol
from kbenv.sandbox.docker import DockerSettings

SECRET = "KBENV_TEST_SECRET"
DOCKER = DockerSettings(mounts=tuple(filter(None, os.environ.get("KBENV_TEST_DOCKER_MOUNTS", "").split(":"))))
"""See tests/docker/mounted_image.py."""

GetEvaluator = Callable[..., Evaluator]


def make_protocol(rules: str, device: str = "cpu") -> Protocol:
    """A protocol in full ("verified"), at quick effort ("verified brisk"), or with tight limits too ("... tight").

    Nothing that decides about correctness differs. `hardened` does not ask for a custom kernel here.
    """
    name, _, how = rules.partition(" ")
    protocol = get_protocol(name, require_custom_kernel=False)
    if how == "tight":
        return quick(protocol, device)
    return protocol.with_effort("quick" if how == "brisk" else "full")


def with_limits(protocol: Protocol, **limits: Any) -> Protocol:
    """The same protocol with other limits."""
    return protocol.model_copy(update={"limits": protocol.limits.model_copy(update=limits)})


@contextmanager
def limited(evaluator: Evaluator, **limits: Any) -> Iterator[None]:
    """Jobs of `evaluator` have other limits meanwhile."""
    before = evaluator.protocol
    evaluator.protocol = with_limits(before, **limits)
    try:
        yield
    finally:
        evaluator.protocol = before


def limited_for(case: Case, evaluator: Evaluator) -> AbstractContextManager[None]:
    """One that can only end at a limit meets that on its first call soon; on a GPU that may compile before."""
    if case.expect != ("TIMEOUT",):
        return nullcontext()
    return limited(evaluator, build_s=5.0 if evaluator.device == "cpu" else 20.0)


@pytest.fixture(scope="session")
def get_evaluator() -> Iterator[GetEvaluator]:
    """`get_evaluator(rules, device="cpu", sandbox="process", **changes)`: see `make_protocol`.

    `changes` are the protocol's own fields.

    A secret lies in the host's environment meanwhile.
    """
    evaluators: dict[Any, Evaluator] = {}
    os.environ[SECRET] = f"{SECRET} must not be seen"
    with ExitStack() as stack:

        def get(rules: str, device: str = "cpu", sandbox: str = "process", **changes: Any) -> Evaluator:
            key = (rules, device, sandbox, *sorted(changes.items()))
            if key not in evaluators:
                protocol = make_protocol(rules, device).model_copy(update=changes)
                evaluator = Evaluator(protocol=protocol, device=device, sandbox=sandbox, docker=DOCKER)
                evaluators[key] = stack.enter_context(evaluator)
            return evaluators[key]

        yield get
    os.environ.pop(SECRET, None)
