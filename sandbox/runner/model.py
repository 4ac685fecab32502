"""Loading a model from source, its weights, and PyTorch's TF32 flags: what a runner does before its first call."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import mmap
import os
import sys
from types import ModuleType
from typing import Any

import torch

from ..buffers import descriptor_bytes
from ..layout import map_tensors
from .redraw import Redraw
from .switch import EVALUATES, dtype_of

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class NoModelError(Exception):
    """The source defines no class of the expected name."""


def set_tf32(flags: dict[str, bool]) -> dict[str, str]:
    """Sets the flags through the legacy API only, and returns what PyTorch then reports.

    Setting the new `fp32_precision` attributes makes every later read of the legacy ones raise (torch 2.9 to 2.13),
    which breaks torch.compile and honest submissions; after the legacy setters both APIs can be read. The legacy API
    has one flag for cuDNN's convolutions and recurrent layers.
    """
    if flags["conv"] != flags["rnn"]:
        raise ValueError("conv and rnn share cuDNN's one legacy flag")
    torch.backends.cuda.matmul.allow_tf32 = flags["matmul"]
    torch.backends.cudnn.allow_tf32 = flags["conv"]
    cudnn: Any = torch.backends.cudnn
    return {
        "matmul": torch.backends.cuda.matmul.fp32_precision,
        "conv": cudnn.conv.fp32_precision,
        "rnn": cudnn.rnn.fp32_precision,
    }


def load_module(name: str, source: str) -> ModuleType:
    """Executes `source` as module `name` from a file in the working directory, so that its source can be inspected."""
    path = os.path.abspath(f"{name}.py")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    code = compile(source.encode(), path, "exec", dont_inherit=True)  # never the bytecode that an earlier process left
    exec(code, module.__dict__)
    return module


def build(
    module: ModuleType, entry: str, problem: ModuleType, seed: int, device: str, precision: str, redraw: Redraw | None
) -> Any:
    """Constructs `entry` as upstream does: seed, `get_init_inputs`, seed, constructor on the CPU, then moved and cast.

    Casts are float-only: `Module.to(dtype)` leaves integer parameters and buffers alone; a problem may keep its types,
    and may want evaluation mode.
    `redraw` replaces constant parameters meanwhile.
    """
    dtype = dtype_of(problem, DTYPES[precision])
    model_class = getattr(module, entry, None)
    if model_class is None:
        raise NoModelError(f"the source defines no class {entry}")
    with torch.no_grad():
        torch.manual_seed(seed)
        init_inputs = cast_inputs(problem.get_init_inputs(), device, dtype)
        torch.manual_seed(seed)
        keywords = init_inputs if isinstance(init_inputs, dict) else {}
        with redraw.during_construction() if redraw is not None else contextlib.nullcontext():
            model = model_class(*([] if keywords else init_inputs), **keywords)
        if redraw is not None:
            redraw.finish(model)
        if not callable(model):
            raise NoModelError(f"{entry} cannot be called; it needs a forward method")
        if isinstance(model, torch.nn.Module):
            model = model.to(device=device, dtype=dtype)
            if getattr(problem, EVALUATES, False):
                model.eval()
    return model


def in_double(model: Any) -> Any:
    """A copy in float64, to compute what is exact for our purposes."""
    return copy.deepcopy(model).to(torch.float64)


def cast_inputs(inputs: Any, device: str, dtype: torch.dtype | None) -> Any:
    """Tensors to `device`, floating ones to `dtype` unless it is None; integers keep their type (class indices do)."""
    return map_tensors(
        inputs, lambda tensor: tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
    )


def state_of(model: Any) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name; empty for what is no nn.Module."""
    return dict(model.state_dict()) if isinstance(model, torch.nn.Module) else {}


def describe_state(model: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
         "bytes": tensor.numel() * tensor.element_size()}
        for name, tensor in state_of(model).items()
    ]  # fmt: skip


def write_state(model: Any, descriptor: int) -> None:
    offset = 0
    for tensor in state_of(model).values():
        descriptor_bytes(descriptor, offset, tensor)
        offset += tensor.numel() * tensor.element_size()


def load_state(model: Any, described: list[dict[str, Any]], descriptor: int) -> str:
    """Loads the reference's state when names, shapes and types match; says what was done: state_dict, seed or none."""
    own = state_of(model)
    if not own and not described:
        return "none"
    matches = [item["name"] for item in described] and {
        item["name"]: (item["shape"], item["dtype"]) for item in described
    } == {name: (list(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in own.items()}
    if not matches:
        return "seed"
    offset = 0
    total = sum(item["bytes"] for item in described)
    if total:
        with torch.no_grad(), mmap.mmap(descriptor, total, mmap.MAP_PRIVATE) as memory:
            data = torch.frombuffer(memory, dtype=torch.uint8)
            for item in described:
                target = own[item["name"]]
                if item["bytes"]:
                    raw = data[offset : offset + item["bytes"]].clone()  # aligned for its type
                    target.copy_(raw.view(target.dtype).reshape(target.shape))
                offset += item["bytes"]
            del data
    return "state_dict"
