"""Constant parameters become seeded draws while a model is constructed, in the reference and in the submission alike.

A scale that is 1 and a bias that is 0 cannot be told from their absence, and code that looks for them could take a
shortcut. So a parameter that construction leaves constant, a buffer that is registered constant, and the running
statistics of normalisations are drawn instead, by a key of (kind, shape, constant, ordinal) and a secret: two models
that create equal constants in equal order get equal draws, whatever their parameters are called. It happens where the
constant is written, so that code which packs weights in its constructor packs the draws. Nothing is taken from
PyTorch's global generator.

In a submission only constants are drawn that the reference has, too: a scale of its own stays what it is. What evades
this keeps its constants, and is wrong wherever they matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

Key = tuple[str, tuple[int, ...], float, int]
_FEW = 4
"""Running variances in a model, at most, for them to be drawn from a wide range."""
_STATISTICS = ("running_mean", "running_var")


class Redraw:
    """The draws of one construction.

    Args:
        secret: seeds the draws.
        known: keys that may be drawn; None for all.
    """

    def __init__(self, secret: int, known: set[Key] | None) -> None:
        self._secret = secret
        self._known = known
        self._variances: list[tuple[Key, torch.Tensor]] = []
        self._wide = known is not None and _are_few(known)
        self._ordinals: dict[tuple[str, tuple[int, ...], float], int] = {}
        self._single: set[float] = set()
        """Draws of one element, each of which is a constant, too."""
        self.drawn: list[Key] = []

    @contextlib.contextmanager
    def during_construction(self) -> Iterator[None]:
        """While this lasts constants are drawn as they are written, and fresh memory is NaN, not by chance constant."""
        init: Any = nn.init
        norm: Any = nn.modules.batchnorm._NormBase
        fill, zero, reset = init._no_grad_fill_, init._no_grad_zero_, norm.reset_running_stats
        register = nn.Module.register_parameter
        register_buffer = nn.Module.register_buffer

        def fill_and_draw(tensor: torch.Tensor, value: float) -> torch.Tensor:
            fill(tensor, value)
            return self._draw("parameter", tensor)

        def zero_and_draw(tensor: torch.Tensor) -> torch.Tensor:
            zero(tensor)
            return self._draw("parameter", tensor)

        def reset_and_draw(module: Any) -> None:
            reset(module)
            if module.track_running_stats:
                for name in _STATISTICS:
                    self._draw(name, getattr(module, name))

        def register_and_draw(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            register(module, name, parameter)
            if parameter is not None:
                self._draw("parameter", parameter.data)

        def register_buffer_and_draw(module: nn.Module, name: str, tensor: Any, *rest: Any, **more: Any) -> None:
            register_buffer(module, name, tensor, *rest, **more)
            if tensor is not None and not isinstance(module, norm):
                if name in _STATISTICS:
                    self._draw(name, tensor)
                elif tensor.numel() > 1:  # a first state, a mask; one element is a setting
                    self._draw("buffer", tensor)

        patches: list[tuple[Any, str, Callable[..., Any]]] = [
            (init, "_no_grad_fill_", fill_and_draw), (init, "_no_grad_zero_", zero_and_draw),
            (norm, "reset_running_stats", reset_and_draw), (nn.Module, "register_parameter", register_and_draw),
            (nn.Module, "register_buffer", register_buffer_and_draw),
        ]  # fmt: skip
        with contextlib.ExitStack() as stack:
            for owner, name, function in patches:
                stack.enter_context(mock.patch.object(owner, name, function))
            stack.enter_context(_filled_memory())
            yield

    @torch.no_grad()
    def finish(self, model: Any) -> None:
        """Draws what is still constant, such as a parameter that was filled by its own method."""
        if isinstance(model, nn.Module):
            for parameter in model.parameters():
                self._draw("parameter", parameter.data)
        if self._known is None and _are_few(self.drawn):  # only now is it known how many there are
            for key, tensor in self._variances:
                narrow = _values(self._secret, key, wide=False).to(tensor)
                if torch.equal(tensor, narrow):  # else the constructor has written values of its own since
                    tensor.copy_(_values(self._secret, key, wide=True))

    @torch.no_grad()
    def _draw(self, kind: str, tensor: torch.Tensor) -> torch.Tensor:
        if nn.parameter.is_lazy(tensor) or not tensor.is_floating_point() or tensor.numel() == 0 or tensor.is_meta:
            return tensor
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            return tensor  # one element stands for several: nothing can be written to it
        first = tensor.reshape(-1)[0]
        if not bool((tensor == first).all()):  # NaN is no constant
            return tensor
        value = float(first) + 0.0  # one zero of both
        if not math.isfinite(value) or (tensor.numel() == 1 and value in self._single):
            return tensor
        counted = (kind, tuple(tensor.shape), value)
        ordinal = self._ordinals.get(counted, 0)
        self._ordinals[counted] = ordinal + 1
        key = (*counted, ordinal)
        if self._known is None or key in self._known:
            tensor.copy_(_values(self._secret, key, wide=self._wide))
            self.drawn.append(key)
            if kind == "running_var":
                self._variances.append((key, tensor))
            if tensor.numel() == 1:
                self._single.add(float(tensor))
        return tensor


def _are_few(keys: Iterable[Key]) -> bool:
    return sum(key[0] == "running_var" for key in keys) <= _FEW


def _values(secret: int, key: Key, *, wide: bool) -> torch.Tensor:
    """About the constant, half of it away at most, so that a scale stays positive; about 0, within a half of it.

    A running variance is drawn from 1/2 to 2 on a logarithmic scale; where `wide`, from 1e-3 to 8: an epsilon matters
    at one end. A hundred normalisations in a row would make anything of that.
    """
    digest = hashlib.sha256(repr((secret, key)).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    spread = torch.rand(key[1], generator=generator, dtype=torch.float64, device="cpu") - 0.5
    value = key[2]
    if key[0] == "running_var":
        low, high = (1e-3, 8.0) if wide else (0.5, 2.0)
        return torch.exp((spread + 0.5) * math.log(high / low) + math.log(low))
    return value * (1 + spread) if value != 0 else spread


@contextlib.contextmanager
def _filled_memory() -> Iterator[None]:
    # torch.use_deterministic_algorithms does the same and imports torch._inductor, which takes 1 to 4 seconds
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def keys_to_json(keys: list[Key]) -> list[list[Any]]:
    return [[kind, list(shape), value, ordinal] for kind, shape, value, ordinal in keys]


def keys_from_json(data: list[list[Any]]) -> set[Key]:
    return {(kind, tuple(shape), value, ordinal) for kind, shape, value, ordinal in data}
