"""What a model's forward runs, as PyTorch's profiler in this process reports it: names, device times, counts.

In a submission's runner all of it is the submission's to forge: it is told as self-reported, and nothing that credits
a kernel follows from it alone. On a CPU the profiler sees PyTorch's operators and no other code: what a call takes
outside of them (a kernel called by ctypes or from an extension, the interpreter, the profiler itself) is one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.profiler import profile, record_function

from ..wire import Message

_MOST_NAMES = 64
_NAME_CHARACTERS = 400
_WARM_UP, _CALL = "kbenv::warm_up", "kbenv::forward"

Spans = dict[str, tuple[float, int]]
"""Microseconds and count by name."""


def trace(forward: Callable[[], object], calls: int, device: str) -> Message:
    """Runs `forward` a few times under the profiler.

    Returns:
        kernels: [name, microseconds, count] each, the longest first, at most 64 of them;
        total_us: of all calls; on a GPU the time of all kernels and copies;
        outside_us: on a CPU what of it lies outside of PyTorch's operators; None on a GPU.
        On a CPU each of these is that of the call in which it took least, times the calls.
    """
    return _trace_device(forward, calls) if device == "cuda" else _trace_host(forward, calls)


def _trace_device(forward: Callable[[], object], calls: int) -> Message:
    # Of `torch.profiler.profile`, which imports the inductor (a second), only the part that records. One session, since
    # the profiler's second one in a process that holds CUDA graphs has been known to crash.
    with profile(use_kineto=True, use_cpu=False, use_device="cuda") as profiler:
        for _ in range(calls):
            forward()
        torch.cuda.synchronize()
    spans: Spans = {}
    for event in _events(profiler):
        if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False):
            _add(spans, event.name, event.time_range.elapsed_us())
    return _answer(spans, sum(time_us for time_us, _ in spans.values()), None)


def _trace_host(forward: Callable[[], object], calls: int) -> Message:
    with profile(use_kineto=True) as profiler:
        for name in (_WARM_UP, *[_CALL] * calls):
            with record_function(name):
                forward()
    each: list[tuple[float, Spans]] = []
    for event in _events(profiler):
        if event.name == _CALL:
            spans: Spans = {}
            for operator in _below(event):
                _add(spans, operator.name, operator.self_cpu_time_total)
            each.append((event.self_cpu_time_total, spans))
    return _quickest(each)


def _quickest(each: list[tuple[float, Spans]]) -> Message:
    """Of several calls by the least that each operator, and the rest, took in one: other processes only ever add."""
    outside_us = len(each) * min((outside for outside, _ in each), default=0.0)
    merged: Spans = {}
    for name in {name for _, spans in each for name in spans}:
        times, counts = zip(*(spans.get(name, (0.0, 0)) for _, spans in each), strict=True)
        merged[name] = (len(each) * min(times), sum(counts))
    return _answer(merged, outside_us + sum(time_us for time_us, _ in merged.values()), outside_us)


def _events(profiler: profile) -> Iterable[Any]:
    return profiler.function_events or ()


def _below(event: Any) -> Iterable[Any]:
    pending = list(event.cpu_children)
    while pending:
        child = pending.pop()
        yield child
        pending += child.cpu_children


def _add(spans: Spans, name: str, time_us: float) -> None:
    name = name[:_NAME_CHARACTERS]
    before_us, count = spans.get(name, (0.0, 0))
    spans[name] = (before_us + time_us, count + 1)


def _answer(spans: Spans, total_us: float, outside_us: float | None) -> Message:
    longest = sorted(spans.items(), key=lambda item: item[1], reverse=True)[:_MOST_NAMES]
    kernels = [[name, time_us, count] for name, (time_us, count) in longest]
    return {"kernels": kernels, "total_us": total_us, "outside_us": outside_us}
