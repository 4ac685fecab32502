"""Reads its own source with inspect, finds its own file, and has a `__main__` part that must not run."""

import inspect
import pathlib
import sys

import torch

PROBLEM = "core/level1/relu"


def clamp_at_zero(x):
    return x.clamp(min=0)


SOURCE = inspect.getsource(clamp_at_zero)
assert "clamp(min=0)" in SOURCE
assert pathlib.Path(__file__).read_text().startswith('"""Reads its own source')


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        assert sys.modules[type(self).__module__].ModelNew is type(self)
        assert "class ModelNew" in inspect.getsource(type(self))

    def forward(self, x):
        return clamp_at_zero(x)


if __name__ == "__main__":
    raise SystemExit("this module is imported, not run")
