"""The loop of a runner: it answers the judge, one message at a time, until the socket closes.

The same code serves the reference, the submission and the null runner. In a submission's runner the submission can
change any of it: nothing it answers is believed beyond what costs only itself. The judge's clock, buffers and
comparisons are elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..buffers import Mapping, create_mapping, make_ready, wait_for_value
from ..confine import begin
from ..layout import (
    Arena,
    Layout,
    UnsupportedError,
    flatten,
    flatten_output,
    leaf_from_json,
    leaf_of,
    map_tensors,
    structure_of,
    unflatten,
)
from ..wire import Channel, ClosedError, Message
from . import model as models
from .compiler import Compiler
from .cost import count_cost
from .error import Mismatch, describe_error
from .extension import EXTENSIONS, Extensions
from .parameters import Perturbation, describe_tensors, generator_state, seed_generators
from .redraw import Redraw, keys_from_json, keys_to_json
from .rounded import RoundedOperators
from .switch import BITS, CHECKER, WRITES, Written, as_bits, dtype_of
from .tool import Tools
from .trace import trace
from .truncated import dithered_products, truncated_products

_SHORT_MS, _SHORT_CALLS = 2.0, 20
_WORDS = 200


def serve(channel: Channel, request: Message) -> None:
    """Answers until the other end closes. `request`: role, device, threads."""
    torch.set_num_threads(request["threads"])
    role = request["role"]
    try:
        if request["device"] == "cuda":  # builders run for the CPU
            torch.zeros(1, device="cuda")  # makes the context: the longest part of a runner's start
            torch.cuda.empty_cache()
        make_ready(request["device"])
    except (ImportError, RuntimeError) as e:
        channel.send({"error": describe_error(e)})
        return
    runner: Any = Compiler() if role == "builder" else Runner(channel, request["device"], role)
    if role == "submission":
        Extensions(channel).install()
        if request["device"] == "cuda":
            with contextlib.suppress(Exception):  # where it fails, it fails again in the submission
                importlib.import_module(EXTENSIONS)  # a tenth of a second and more, which a blank runner has
    channel.send({"ready": True, "device": runner.describe()})
    while True:
        try:
            message, descriptors = channel.receive_with_descriptors()
        except ClosedError:
            return
        try:
            answer = getattr(runner, "do_" + message.pop("op"))(message, descriptors)
        except BaseException as e:
            answer = {"error": describe_error(e)}
        _flush()
        channel.send(answer)
        if "error" in answer and answer["error"]["fatal"]:
            os._exit(3)  # a CUDA fault sticks to the context: nothing after it would mean anything


def _flush() -> None:
    """What was printed reaches the judge before the answer does. The streams may be anything that a submission made."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).fflush(None)


class Runner(Tools):
    """One model and its slots."""

    def __init__(self, channel: Channel, device: str, role: str) -> None:
        self._channel = channel
        self._device = device
        self._role = role
        self._problem: Any = None
        self._model: Callable[..., Any] | None = None
        self._dtype: torch.dtype | None = torch.float32
        self._written = Written()
        self._exact_model: Any = None
        self._mappings: dict[str, Mapping] = {}
        self._fill: list[torch.Tensor] = []
        self._perturbation: Perturbation | None = None
        self._training: dict[torch.nn.Module, bool] = {}
        self._to_freeze = 2  # before the first call, and after it: that may import, too

    def describe(self) -> Message:
        if self._device != "cuda":
            return {}
        properties = torch.cuda.get_device_properties(0)
        return {"name": properties.name}

    # -- loading ------------------------------------------------------------------------------------------------------

    def do_load(self, message: Message, _: list[int]) -> Message:
        """Executes the problem's source (for its `get_init_inputs`) and builds the model."""
        flags = models.set_tf32(message["tf32"])
        self._problem = models.load_module("problem", message["problem"])
        self._dtype = dtype_of(self._problem, models.DTYPES[message["precision"]])
        self._written = Written(getattr(self._problem, WRITES, ()))
        module = self._problem if message["source"] is None else models.load_module("submission", message["source"])
        wanted = message["redraw"]
        redraw = None
        if wanted is not None:
            known = None if wanted["known"] is None else keys_from_json(wanted["known"])
            redraw = Redraw(wanted["secret"], known)
        self._model = models.build(
            module, message["entry"], self._problem, message["seed"], self._device, message["precision"], redraw
        )
        self._synchronize()
        return {
            "tf32": flags, "state": models.describe_state(self._model),
            "redrawn": keys_to_json(redraw.drawn) if redraw is not None else [],
        }  # fmt: skip

    def do_compile(self, _: Message, __: list[int]) -> Message:
        """torch.compile with its defaults, and one call at slot 0, which compiles: the reference's only."""
        assert self._model is not None
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes beside the clock
        self._model = torch.compile(self._model)
        with torch.no_grad():
            self._apply(self._arguments[0])
        self._synchronize()
        return {}

    def do_write_state(self, _: Message, descriptors: list[int]) -> Message:
        models.write_state(self._model, descriptors[0])
        os.close(descriptors[0])
        return {}

    def do_load_state(self, message: Message, descriptors: list[int]) -> Message:
        weights = models.load_state(self._model, message["state"], descriptors[0])
        os.close(descriptors[0])
        return {"weights": weights}

    def do_begin(self, message: Message, _: list[int]) -> Message:
        """The turn of a runner that waited has come: see `confine.begin`."""
        begin(message["processes"])
        return {}

    def do_tf32(self, message: Message, _: list[int]) -> Message:
        return {"tf32": models.set_tf32(message["tf32"])}

    # -- the reference alone ------------------------------------------------------------------------------------------

    def do_inspect(self, message: Message, _: list[int]) -> Message:
        """Draws once and runs forward twice, outside any slot: what goes in, what comes out, what it needs."""
        on_device = message["drawing"] == "device"
        try:
            inputs = self._draw(message["seed"], on_device=on_device)
        except Exception:
            if not on_device or self._device == "cpu":
                raise
            on_device = False  # get_inputs insists on the CPU (numpy, an explicit device): draw there, then move
            inputs = self._draw(message["seed"], on_device=False)
        tree, tensors = flatten(inputs)
        leaves = [leaf_of(tensor) for tensor in tensors]
        if any(tensor.stride() != leaf.strides for tensor, leaf in zip(tensors, leaves, strict=True)):
            as_held = zip(tensors, leaves, strict=True)  # in slots nothing has gaps
            tensors = [tensor if tensor.stride() == leaf.strides else tensor.contiguous() for tensor, leaf in as_held]
            inputs = unflatten(tree, tensors)
        outputs, elapsed_ms = self._forward(inputs)
        outputs = None
        if self._device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        outputs, elapsed_ms = self._forward(inputs)
        if elapsed_ms < _SHORT_MS:
            elapsed_ms = self._forward(inputs, times=_SHORT_CALLS)[1]  # one alone shows mostly its launch
        output_tree, output_tensors = flatten_output(outputs, self._device)
        places = [{x.untyped_storage().data_ptr() for x in some if x.numel()} for some in (tensors, output_tensors)]
        peak = torch.cuda.max_memory_allocated() if self._device == "cuda" else 0
        answer = {
            "input_tree": tree, "inputs": [leaf.to_json() for leaf in leaves],
            "output_tree": output_tree, "outputs": [leaf_of(tensor).to_json() for tensor in output_tensors],
            "forward_ms": elapsed_ms, "peak_bytes": peak, "on_device": on_device,
            "aliases": not places[0].isdisjoint(places[1]),
        }  # fmt: skip
        del inputs, tensors, outputs, output_tensors
        return self.do_trim({}, []) | answer

    def do_check(self, message: Message, _: list[int]) -> Message:
        """The problem's own checker on what lies in a slot: the reference's only."""
        slot = message["slot"]
        arguments = map_tensors(self._arguments[slot], torch.clone)
        output = unflatten(self._output_tree, [view.clone() for view in self._outputs.views(slot)])
        output = output[0] if self._written.positions else output
        output = tuple(output) if isinstance(output, list) else output  # as functions return several values
        with torch.no_grad():
            return {"passed": bool(getattr(self._problem, CHECKER)(arguments, output))}

    def do_attach_exact(self, message: Message, descriptors: list[int]) -> Message:
        """Maps one slot for outputs in float64."""
        layout = Layout([leaf_from_json(leaf) for leaf in message["leaves"]])
        mapping = create_mapping(self._device, layout.slot_bytes, writable=True)
        mapping.attach(descriptors[0])
        self._mappings["exact"] = mapping
        self._exact = Arena(mapping.flat, layout, 1)
        return {}

    def do_truncated_turn(self, message: Message, descriptors: list[int]) -> Message:
        """`do_turn` with the operands of products cut to TF32; says how many products there were."""
        with truncated_products() as mode:
            return self.do_turn(message, descriptors) | {"products": mode.products}

    def do_rounded_turn(self, message: Message, descriptors: list[int]) -> Message:
        """`do_turn` with what operators return moved by a unit in the last place."""
        with RoundedOperators():
            return self.do_turn(message, descriptors)

    def do_dithered_turn(self, message: Message, descriptors: list[int]) -> Message:
        """The same, and the operands of products by a unit of TF32."""
        with dithered_products():
            return self.do_rounded_turn(message, descriptors)

    def do_exact(self, message: Message, _: list[int]) -> Message:
        """forward in float64 on an input slot, into the float64 slot."""
        if self._exact_model is None:
            self._exact_model = models.in_double(self._model)
        inputs = models.cast_inputs(self._arguments[message["slot"]], self._device, torch.float64)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # what forward makes without a dtype
        try:
            with torch.no_grad():
                outputs = self._apply(inputs, self._exact_model)
            tree, tensors = flatten_output(outputs, self._device)
        finally:
            torch.set_default_dtype(before)
        if structure_of(tree) != structure_of(self._output_tree):
            raise Mismatch("shape", "in float64 the output has another structure")
        for view, tensor, leaf in zip(self._exact.views(0), tensors, self._exact.layout.leaves, strict=True):
            if tensor.shape != leaf.shape or tensor.dtype != leaf.torch_dtype:
                raise Mismatch("dtype", f"in float64 the output is {tensor.dtype} {tuple(tensor.shape)}")
            view.copy_(tensor)
        self._synchronize()
        del outputs, tensors
        if self._device == "cuda":
            torch.cuda.empty_cache()  # the submission may need it meanwhile
        return {}

    def do_forget_exact(self, _: Message, __: list[int]) -> Message:
        """Before timing: the float64 model, its slot and what it allocated are gone."""
        self._exact_model = None
        if "exact" in self._mappings:
            del self._exact
            self._mappings.pop("exact").detach()
        return self.do_trim({}, [])

    def do_draw(self, message: Message, _: list[int]) -> Message:
        """Fills input slots with fresh draws, one seed a slot."""
        for slot, seed in enumerate(message["seeds"], start=message["first"]):
            tree, tensors = flatten(self._draw(seed, on_device=message["on_device"]))
            views = self._inputs.views(slot)
            if tree != self._input_tree or [leaf_of(t) for t in tensors] != list(self._inputs.layout.leaves):
                raise UnsupportedError("get_inputs returned other shapes, types or numbers than before")
            for view, tensor in zip(views, tensors, strict=True):
                view.copy_(tensor)
        self._synchronize()
        return {}

    def _draw(self, seed: int, *, on_device: bool) -> Any:
        seed_generators(seed, self._device)
        with torch.no_grad():
            if on_device:
                with torch.device(self._device):
                    inputs = self._problem.get_inputs()
            else:
                inputs = self._problem.get_inputs()
            return models.cast_inputs(inputs, self._device, self._dtype)

    # -- an audit's questions -----------------------------------------------------------------------------------------

    def do_describe_tensors(self, _: Message, __: list[int]) -> Message:
        return {"tensors": describe_tensors(self._model)}

    def do_perturb_parameter(self, message: Message, _: list[int]) -> Message:
        """Adds noise to one parameter, until `restore_parameter`."""
        assert isinstance(self._model, torch.nn.Module)
        self._perturbation = Perturbation(self._model, message["index"], message["seed"], message["share"])
        return {}

    def do_restore_parameter(self, _: Message, __: list[int]) -> Message:
        assert self._perturbation is not None
        self._perturbation.undo()
        self._perturbation = None
        return {}

    def do_watch_generator(self, message: Message, _: list[int]) -> Message:
        """Whether forward takes anything from PyTorch's global generators."""
        before = generator_state(self._device)
        with torch.no_grad():
            self._apply(self._arguments[message["slot"]])
        self._synchronize()
        return {"drew": not torch.equal(before, generator_state(self._device))}

    def do_evaluate(self, message: Message, _: list[int]) -> Message:
        """Puts the model in evaluation mode, or back as it was."""
        if isinstance(self._model, torch.nn.Module):
            if message["on"]:
                self._training = {module: module.training for module in self._model.modules()}
                self._model.eval()
            else:
                for module, training in self._training.items():
                    module.training = training
        return {}

    # -- slots --------------------------------------------------------------------------------------------------------

    def do_attach(self, message: Message, descriptors: list[int]) -> Message:
        """Maps input slots, output slots and (CUDA) the flag; again after `detach`, at the same addresses."""
        layouts = {name: Layout([leaf_from_json(leaf) for leaf in message[name]]) for name in ("inputs", "outputs")}
        sizes = {name: layout.slot_bytes * message["slots"] for name, layout in layouts.items()}
        sizes["flag"] = 4
        for name, descriptor in zip(("inputs", "outputs", "flag"), descriptors, strict=False):
            if name not in self._mappings:
                writable = name != "inputs" or message["inputs_writable"]
                self._mappings[name] = create_mapping(self._device, sizes[name], writable=writable)
            self._mappings[name].attach(descriptor)
        if not hasattr(self, "_inputs"):
            self._input_tree = message["input_tree"]
            self._output_tree = message["output_tree"]
            self._inputs = Arena(self._mappings["inputs"].flat, layouts["inputs"], message["slots"])
            self._outputs = Arena(self._mappings["outputs"].flat, layouts["outputs"], message["slots"])
            used = range(0 if self._role == "null" else message["slots"])
            self._arguments = [unflatten(self._input_tree, self._inputs.views(slot)) for slot in used]
        if self._role == "null":
            self._fill = [torch.ones_like(view) for view in self._outputs.views(0)]
        return {}

    def do_detach(self, _: Message, __: list[int]) -> Message:
        for mapping in self._mappings.values():
            mapping.detach()
        return self.do_trim({}, [])

    def do_trim(self, _: Message, __: list[int]) -> Message:
        """Gives back what is not in use; a null runner has no more turns before it is attached again."""
        self._fill = []
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        if self._device == "cuda":
            torch.cuda.empty_cache()
        return {}

    def do_collect(self, _: Message, __: list[int]) -> Message:
        """Before a turn: the garbage collector's work is done now, and it starts none of its own in the turn.

        What lives at the first of them was imported, and later ones need not look at it again (45 ms with Dynamo).
        """
        gc.collect()
        gc.disable()
        if self._to_freeze > 0:
            self._to_freeze -= 1
            gc.freeze()
        return {}

    # -- calls --------------------------------------------------------------------------------------------------------

    def do_turn(self, message: Message, _: list[int]) -> Message:
        """`calls` times: forward on slot k, copy to output slot k.

        Gated: everything is enqueued behind the flag, and the device does the work once the judge raises that. Open:
        the work begins at once. `announce`: "enqueued" is sent when all is. Apart: between forward and copy "computed"
        is sent, and the judge's answer awaited.
        """
        calls, gate, apart, announce = (message[name] for name in ("calls", "gate", "apart", "announce"))
        events: list[Any] = []
        if gate is not None:
            wait_for_value(self._mappings["flag"].flat[:4], gate)
        for slot in range(message["first"], message["first"] + calls):
            self._call(slot, events if message["events"] else None, partial(self._tell, announce) if apart else None)
        if announce and not apart:
            self._channel.send({"enqueued": True})
        self._synchronize()
        return {"event_ms": [start.elapsed_time(end) for start, end in events]}

    def _tell(self, announce: bool, tensors: list[torch.Tensor]) -> None:
        """That forward is enqueued, and then that it is computed; returns when the copy may begin.

        On the CPU also where its outputs are.
        """
        if announce:
            self._channel.send({"enqueued": True})
        self._synchronize()
        places = [(tensor.data_ptr(), tensor.stride()) for tensor in tensors] if self._device == "cpu" else None
        self._channel.send({"computed": True, "outputs": places})
        self._channel.receive()

    def _call(
        self, slot: int, events: list[Any] | None, before_copy: Callable[[list[torch.Tensor]], None] | None = None
    ) -> None:
        views = self._outputs.views(slot)
        if self._role == "null":
            if before_copy is not None:
                if self._device == "cuda":
                    torch.ones(1, device="cuda")  # for a kernel the device leaves the judge's process, as for forward's
                before_copy(self._fill)
            for view, value in zip(views, self._fill, strict=True):
                view.copy_(value)
            return
        assert self._model is not None
        new_event: Any = torch.cuda.Event
        with torch.no_grad():
            if events is not None and self._device == "cuda":
                start, end = (new_event(enable_timing=True) for _ in range(2))
                start.record()
                outputs = self._apply(self._arguments[slot])
                end.record()
                events.append((start, end))
            else:
                outputs = self._apply(self._arguments[slot])
            tensors = self._check(outputs)
            if before_copy is not None:
                tensors = [tensor.resolve_conj().resolve_neg() for tensor in tensors]  # what is to be computed yet
                before_copy(tensors)
            for view, tensor in zip(views, tensors, strict=True):
                view.copy_(tensor)

    def _apply(self, arguments: Any, model: Callable[..., Any] | None = None) -> Any:
        model = model or self._model
        assert model is not None
        if isinstance(arguments, dict):
            return model(**arguments)
        lent = self._written.lend(arguments)
        output = self._written.join(model(*lent), lent)
        return as_bits(output) if getattr(self._problem, BITS, False) else output

    def _check(self, outputs: Any) -> list[torch.Tensor]:
        if isinstance(outputs, torch.Tensor) and self._output_tree == {"tensor": 0}:  # the usual case, fast
            tensors = [outputs]
        else:
            tree, tensors = flatten_output(outputs, self._device)
            if structure_of(tree) != structure_of(self._output_tree):
                expected, found = (str(structure_of(it))[:_WORDS] for it in (self._output_tree, tree))
                raise Mismatch("shape", f"expected an output of structure {expected}, found {found}")
        for index, (tensor, leaf) in enumerate(zip(tensors, self._outputs.layout.leaves, strict=True)):
            if tensor.shape != leaf.shape:
                raise Mismatch("shape", f"output {index}: expected shape {leaf.shape}, found {tuple(tensor.shape)}")
            if tensor.dtype != leaf.torch_dtype:
                raise Mismatch("dtype", f"output {index}: expected dtype {leaf.dtype}, found {tensor.dtype}")
        return tensors

    def do_measure_memory(self, _: Message, __: list[int]) -> Message:
        """One call at slot 0, and the allocator's peak over its forward, weights included; None on the CPU."""
        gc.collect()
        if self._device != "cuda":
            self._call(0, None)
            return {"peak_bytes": None, "reserved_bytes": None}
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        peaks: list[int] = []
        read = (torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved)
        self._call(0, None, before_copy=lambda _: peaks.extend(peak() for peak in read))
        torch.cuda.synchronize()
        return {"peak_bytes": peaks[0], "reserved_bytes": peaks[1]}

    def do_trace(self, message: Message, _: list[int]) -> Message:
        """forward at slot 0, `calls` times under PyTorch's profiler: see `trace`."""
        with torch.no_grad():
            return trace(lambda: self._apply(self._arguments[0]), message["calls"], self._device)

    def do_cost(self, _: Message, __: list[int]) -> Message:
        """One call at slot 0, its operations and bytes counted: the reference's only."""
        state = list(models.state_of(self._model).values())
        with torch.no_grad():
            cost = count_cost(lambda: self._apply(self._arguments[0]), [*self._inputs.views(0), *state])
        self._synchronize()
        return cost

    def _forward(self, inputs: Any, times: int = 1) -> tuple[Any, float]:
        """The output, and milliseconds per call of `times` calls in a row."""
        self._synchronize()
        started = time.perf_counter()
        with torch.no_grad():
            for _ in range(times):
                outputs = self._apply(inputs)
        self._synchronize()
        return outputs, (time.perf_counter() - started) * 1e3 / times

    def _synchronize(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()
