"""kbenv: a Gymnasium environment in which language models write GPU kernels.

Importing it registers `kbenv/SingleTurn-v0` and `kbenv/MultiTurn-v0` and loads nothing heavy: torch and the sandbox
come with the first environment or evaluator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from kbenv.evaluator import Evaluator, evaluate
    from kbenv.pool import EvaluatorPool, evaluate_many, open_pool
    from kbenv.problems import list_problems, load_problem
    from kbenv.protocol import get_protocol
    from kbenv.verdict import Status, Verdict

    __version__: str

__all__ = [
    "Evaluator",
    "EvaluatorPool",
    "Status",
    "Verdict",
    "__version__",
    "evaluate",
    "evaluate_many",
    "get_protocol",
    "list_problems",
    "load_problem",
    "open_pool",
]

_HOMES = {
    "Evaluator": "kbenv.evaluator",
    "EvaluatorPool": "kbenv.pool",
    "Status": "kbenv.verdict",
    "Verdict": "kbenv.verdict",
    "evaluate": "kbenv.evaluator",
    "evaluate_many": "kbenv.pool",
    "open_pool": "kbenv.pool",
    "get_protocol": "kbenv.protocol",
    "list_problems": "kbenv.problems",
    "load_problem": "kbenv.problems",
}

gymnasium.register(
    id="kbenv/SingleTurn-v0",
    entry_point="kbenv.env:SingleTurnEnv",
    vector_entry_point="kbenv.vector:SingleTurnVectorEnv",
)
gymnasium.register(
    id="kbenv/MultiTurn-v0",
    entry_point="kbenv.env:MultiTurnEnv",
    vector_entry_point="kbenv.vector:MultiTurnVectorEnv",
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("kbenv")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kbenv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
