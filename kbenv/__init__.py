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
    from kbenv.problems import list_problems, load_problem
    from kbenv.protocol import get_protocol
    from kbenv.verdict import Status, Verdict

    __version__: str

__all__ = [
    "Evaluator",
    "Status",
    "Verdict",
    "__version__",
    "evaluate",
    "get_protocol",
    "list_problems",
    "load_problem",
]

_HOMES = {
    "Evaluator": "kbenv.evaluator",
    "Status": "kbenv.verdict",
    "Verdict": "kbenv.verdict",
    "evaluate": "kbenv.evaluator",
    "get_protocol": "kbenv.protocol",
    "list_problems": "kbenv.problems",
    "load_problem": "kbenv.problems",
}

gymnasium.register(id="kbenv/SingleTurn-v0", entry_point="kbenv.env:SingleTurnEnv")
gymnasium.register(id="kbenv/MultiTurn-v0", entry_point="kbenv.env:MultiTurnEnv")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("kbenv")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kbenv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
