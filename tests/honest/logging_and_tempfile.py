"""Logs to a file and to stderr in UTF-8, keeps notes in temporary files, and switches the garbage collector off."""

import faulthandler
import gc
import json
import logging
import os
import sys
import tempfile
import warnings

import torch

PROBLEM = "core/level1/relu"

folder = tempfile.TemporaryDirectory(prefix="kernel-")
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
logger = logging.getLogger("kernel — größer")
logger.addHandler(logging.FileHandler(os.path.join(folder.name, "kernel.log"), encoding="utf-8"))
faulthandler.enable()
gc.disable()


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with tempfile.NamedTemporaryFile("w", suffix=".json", dir=folder.name, delete=False) as file:
            json.dump({"floor": 0.0}, file)
        self.settings = file.name

    def forward(self, x):
        with open(self.settings) as file:
            floor = json.load(file)["floor"]
        logger.debug("%s → max(x, %g) ✓", tuple(x.shape), floor)
        warnings.warn("nothing is wrong", stacklevel=1)
        return x.clamp(min=floor)
