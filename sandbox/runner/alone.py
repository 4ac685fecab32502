"""A submission's forward in a process of its own, outside of any job's slots: what NVIDIA's tools are put around.

Nothing here is timed, compared, or believed. The draw is one that the submission may see: a standard trial's, or under
secret seeds one that belongs to no trial.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from . import model as models
from .extension import Extensions


def run(path: str) -> None:
    """Builds `ModelNew` and calls it.

    Args:
        path: a file with `problem` and `source` (texts), `seed`, `construction_seed`, `precision`, `tf32`, `threads`,
            `device`, and `profiled`: then the call is the second one, and between CUDA's marks for profilers.
    """
    with open(path, encoding="utf-8") as file:
        wanted = json.load(file)
    torch.set_num_threads(wanted["threads"])
    _Kept().install()
    models.set_tf32(wanted["tf32"])
    problem = models.load_module("problem", wanted["problem"])
    submission = models.load_module("submission", wanted["source"])
    device, precision = wanted["device"], wanted["precision"]
    model = models.build(submission, "ModelNew", problem, wanted["construction_seed"], device, precision, None)
    inputs = models.cast_inputs(_draw(problem, wanted["seed"], device), device, models.DTYPES[precision])
    profiler: Any = torch.cuda.profiler
    with torch.no_grad():
        if wanted["profiled"]:
            _call(model, inputs)
            profiler.start()
        _call(model, inputs)
        if wanted["profiled"]:
            profiler.stop()


def _call(model: Any, inputs: Any) -> None:
    _ = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _draw(problem: Any, seed: int, device: str) -> Any:
    """On the device, or on the CPU where `get_inputs` insists on that."""
    try:
        torch.manual_seed(seed)
        with torch.device(device):
            return problem.get_inputs()
    except Exception:
        torch.manual_seed(seed)
        return problem.get_inputs()


class _Kept(Extensions):
    """Extensions that an earlier process of this job has built, as they lie in its folder."""

    def __init__(self) -> None:
        super().__init__(None)

    def _build(self, module: Any, call: dict[str, Any]) -> bool:
        return os.path.exists(os.path.join(call["build_directory"], call["name"] + module.LIB_EXT))
