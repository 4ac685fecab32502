"""A model's parameters and buffers as an audit wants them: which are constant, and what one of them does to the output.

Nothing here is asked of a submission's runner.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..wire import Message


def describe_tensors(model: Any) -> list[Message]:
    """Parameters, then buffers, in the order of their names' first appearance; of what is no nn.Module none.

    `module` is the class that holds the tensor, `constant` its one value where all elements are equal.
    """
    if not isinstance(model, nn.Module):
        return []
    named: list[tuple[str, str, torch.Tensor]] = [("parameter", *item) for item in model.named_parameters()]
    named += [("buffer", *item) for item in model.named_buffers()]
    found = []
    for role, name, tensor in named:
        owner, _, own = name.rpartition(".")
        found.append({
            "role": role, "name": name, "module": type(model.get_submodule(owner)).__name__, "own_name": own,
            "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
            "constant": _constant(tensor),
        })  # fmt: skip
    return found


def _constant(tensor: torch.Tensor) -> float | None:
    """Of a floating tensor whose elements are all equal and finite."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None
    first = tensor.detach().reshape(-1)[0]
    equal = bool(torch.isfinite(first)) and bool((tensor.detach() == first).all())
    return float(first) if equal else None


class Perturbation:
    """One parameter with noise added, until it is undone."""

    def __init__(self, model: nn.Module, index: int, seed: int, share: float) -> None:
        """Adds normal noise of `share` of the parameter's root mean square (of 1, where that is 0)."""
        self._parameter = list(model.parameters())[index]
        self._kept = self._parameter.detach().clone()
        generator = torch.Generator(self._kept.device).manual_seed(seed)
        with torch.no_grad():
            size = float(self._kept.double().square().mean().sqrt()) or 1.0
            noise = torch.randn(self._kept.shape, generator=generator, device=self._kept.device)
            self._parameter.add_((noise * (share * size)).to(self._kept.dtype))

    def undo(self) -> None:
        with torch.no_grad():
            self._parameter.copy_(self._kept)


def seed_generators(seed: int, device: str) -> None:
    """Those of the CPU and of the device, as `torch.manual_seed` does.

    That one also notes down, with a traceback, what it would do on kinds of devices that are not in use: 0.2 ms each
    time, which two hundred draws a turn feel.
    """
    torch.default_generator.manual_seed(seed)
    if device == "cuda":
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)


def generator_state(device: str) -> torch.Tensor:
    """Of every generator that forward could draw from without being given one."""
    states = [torch.get_rng_state()]
    if device == "cuda":
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)
