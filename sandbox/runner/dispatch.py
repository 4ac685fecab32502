"""A base for modes that see every operator."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__
    """A TorchDispatchMode that does not import the compiler, which takes two to five seconds, to be hidden from it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def makes_view(function: Any) -> bool:
    """Whether an operator returns memory that it was given."""
    return any(a.alias_info is not None and not a.alias_info.is_write for a in function._schema.arguments)
