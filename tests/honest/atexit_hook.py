"""Registers an atexit hook that removes its temporary folder, and installs a signal handler of its own."""

import atexit
import shutil
import signal
import tempfile

import torch

PROBLEM = "core/level1/relu"

folder = tempfile.mkdtemp()
atexit.register(shutil.rmtree, folder, ignore_errors=True)
signal.signal(signal.SIGUSR1, lambda *_: None)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
