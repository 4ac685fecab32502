"""The judge's own copies go back when they are closed."""

from __future__ import annotations

import weakref

import torch

from kbenv.sandbox.judge.plan import Plan
from kbenv.sandbox.judge.slots import Signature, Store
from kbenv.sandbox.layout import Layout, leaf_of

PLAN = Plan(
    slots=2, calls=1, exclusive=False, l2_cold=False, need_bytes=0, have_bytes=0, room_for_contexts=0, runner_bytes=0
)


def test_a_closed_store_gives_its_memory_back_whoever_holds_it():
    layout = Layout([leaf_of(torch.zeros(3))])
    store = Store("cpu", Signature(None, None, layout, layout), PLAN)
    store.keep_snapshot()
    memory = [weakref.ref(arena.flat) for arena in (store.masters, store.expected, store.snapshot)]
    store.close()
    assert [reference() for reference in memory] == [None, None, None]
