"""A warm judge in a container, for all tests that look into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kbenv.sandbox.engine import connect
from tests.docker.rules import quick_protocol
from tests.docker.warm import Warm
from tests.judge.evaluators import GetEvaluator, get_evaluator, make_protocol
from tests.judge.inside import run_inside

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["get_evaluator"]


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerClient]:
    client = connect()
    yield client
    client.close()


@pytest.fixture(scope="session")
def warm(get_evaluator: GetEvaluator, engine: DockerClient) -> Warm:
    """Under "verified tight" rules that are over sooner still, and limits as on an engine with little memory."""
    tight, quick = make_protocol("verified tight"), quick_protocol()
    limits = tight.limits.model_copy(
        update={"build_s": 8.0, "call_s": 3.0, "host_memory_bytes": 1 << 30, "scratch_bytes": 256 << 20}
    )
    timing = quick.timing.model_copy(update={"runner_pairs": 2, "slow_runner_pairs": 2})
    evaluator = get_evaluator(
        "verified tight",
        sandbox="docker",
        limits=limits,
        timing=timing,
        standard_trials=2,
        hidden_inputs=quick.hidden_inputs,
    )
    carrier: Any = evaluator._sandbox._carrier
    carrier._facts = replace(carrier._facts, memory_bytes=5 << 29)
    return Warm(evaluator, engine)


@pytest.fixture(params=["judge", "submission"])
def run(request: pytest.FixtureRequest, warm: Warm) -> Callable[[str], dict[str, Any]]:
    """Runs code as the judge or as a submission; what it leaves in the dict `seen` comes back."""
    return warm.run_as_judge if request.param == "judge" else partial(run_inside, warm.evaluator)
