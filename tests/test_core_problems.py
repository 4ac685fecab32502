"""kbenv's own problems hold what a problem must: on the CPU at their CPU sizes, by arithmetic at their GPU sizes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kbenv.problems import Problem, list_problems
from kbenv.protocol import D1_D4, get_protocol

PROBLEMS = list_problems("core/*")
FACTORS = [hidden.factor for hidden in D1_D4]
TOLERANCE = get_protocol("verified").tolerance
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)

# One H200: copy bandwidth counting reads and writes, and dense TF32 matrix products.
BYTES_PER_S = 4.3e12
TF32_FLOP_PER_S = 350e12


def build(problem: Problem, device: str = "cpu") -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """The reference and its inputs, at the sizes and on the device of `device` ("meta": GPU sizes, no memory)."""
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(problem.source_for(device), namespace)
    torch.manual_seed(42)
    with torch.device(device):
        model = namespace["Model"](*namespace["get_init_inputs"]())
        return model, namespace["get_inputs"]()


def run(model: torch.nn.Module, inputs: list[torch.Tensor], factor: float = 1.0) -> list[torch.Tensor]:
    with torch.no_grad():
        return tree_leaves(model(*(factor * tensor for tensor in inputs)))


# Where the two operands begin among the arguments.
_FIRST_OPERAND = {
    torch.ops.aten.mm.default: 0,
    torch.ops.aten.bmm.default: 0,
    torch.ops.aten.addmm.default: 1,
    torch.ops.aten.convolution.default: 0,
}


class RoundedToTF32(TorchDispatchMode):
    """Rounds the operands of matrix products and convolutions to TF32's ten bits, as tensor cores do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = _FIRST_OPERAND.get(func)
        if first is not None:
            args = list(args)
            args[first : first + 2] = [_round_to_tf32(operand) for operand in args[first : first + 2]]
        return func(*args, **(kwargs or {}))


def _round_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Estimate(TorchDispatchMode):
    """Adds up, operator by operator, the longer of the time to move its tensors and the time to do its products."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [leaf for leaf in tree_leaves((args, output)) if isinstance(leaf, torch.Tensor)]
            moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            count = flop_registry.get(func.overloadpacket)
            operations = count(*args, **(kwargs or {}), out_val=output) if count else 0
            self.seconds += max(moved / BYTES_PER_S, operations / TF32_FLOP_PER_S)
        return output


def test_there_are_four_problems_on_each_of_three_levels() -> None:
    assert [problem.level for problem in PROBLEMS] == [1] * 4 + [2] * 4 + [3] * 4
    assert len({problem.name for problem in PROBLEMS}) == 12


@each_problem
def test_the_plain_constants_are_the_gpu_sizes(problem: Problem) -> None:
    assert set(problem.sizes) == {"gpu", "cpu"}
    assert problem.sizes["gpu"].keys() == problem.sizes["cpu"].keys()
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(problem.source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    constants.pop("SIZES")
    assert constants == problem.sizes["gpu"]


@each_problem
def test_a_device_s_source_is_one_plain_file_with_its_sizes(problem: Problem) -> None:
    for device, sizes in (("cpu", problem.sizes["cpu"]), ("cuda:0", problem.sizes["gpu"])):
        source = problem.source_for(device)
        assert "SIZES" not in source
        namespace: dict[str, Any] = {"__name__": "reference"}
        exec(source, namespace)
        assert {name: namespace[name] for name in sizes} == dict(sizes)


@each_problem
def test_the_gpu_size_is_estimated_at_a_millisecond_or_more_on_an_h200(problem: Problem) -> None:
    model, inputs = build(problem, "meta")
    with torch.no_grad(), Estimate() as estimate:
        model(*inputs)
    assert 1.0e-3 <= estimate.seconds <= 5.0e-3


@each_problem
def test_outputs_are_finite_and_visible_to_the_tolerance(problem: Problem) -> None:
    model, inputs = build(problem)
    for factor in FACTORS:
        assert all(output.isfinite().all() for output in run(model, inputs, factor))
    for output in run(model, inputs):
        assert output.dtype == torch.float32
        assert output.std() > 10 * TOLERANCE.absolute


@each_problem
def test_the_reference_is_deterministic_and_leaves_its_inputs_alone(problem: Problem) -> None:
    model, inputs = build(problem)
    copies = [tensor.clone() for tensor in inputs]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = run(model, inputs)
    torch.manual_seed(7)
    second = run(model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(inputs, copies, strict=True))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


@each_problem
def test_outputs_depend_on_every_input_and_every_parameter(problem: Problem) -> None:
    model, inputs = build(problem)
    base = run(model, inputs)

    def moved() -> bool:
        return any(not _within(a, b) for a, b in zip(run(model, inputs), base, strict=True))

    for tensor in [*inputs, *(parameter.data for parameter in model.parameters())]:
        with _permuted(tensor):
            assert moved()
    assert not moved()


@each_problem
def test_no_parameter_is_the_identity(problem: Problem) -> None:
    model, _ = build(problem)
    for name, parameter in model.named_parameters():
        assert parameter.unique().numel() > 1, name


@each_problem
@pytest.mark.parametrize("factor", FACTORS)
def test_returning_an_input_is_wrong_on_every_distribution_that_shows_it(problem: Problem, factor: float) -> None:
    model, inputs = build(problem)
    output = run(model, inputs, factor)[0]
    same_shape = [factor * tensor for tensor in inputs if tensor.shape == output.shape]
    # At a hundredth some outputs lie below the tolerance, whatever a submission returns there.
    if factor != 0.01 or output.std() > 10 * TOLERANCE.absolute:
        assert not any(_within(tensor, output) for tensor in same_shape)
    if factor != 0.01:
        assert not _within(torch.zeros_like(output), output)
        assert not _within(output.mean().expand_as(output), output)


@each_problem
@pytest.mark.parametrize("factor", FACTORS)
def test_a_tf32_implementation_stays_well_within_the_tolerance(problem: Problem, factor: float) -> None:
    model, inputs = build(problem)
    exact = run(model, inputs, factor)
    with RoundedToTF32():
        rounded = run(model, inputs, factor)
    for expected, found in zip(exact, rounded, strict=True):
        # The GPU sizes have some hundred times more elements, whose largest error is some 1.4 times larger.
        assert _largest_part_of_tolerance(found, expected) < 0.65


@pytest.mark.gpu
@each_problem
def test_on_an_h200_the_gpu_size_takes_a_millisecond_and_tf32_passes(problem: Problem) -> None:
    if not torch.cuda.is_available() or "H200" not in torch.cuda.get_device_name():
        pytest.skip("needs an H200: the sizes are chosen for one")
    model, inputs = build(problem, "cuda")
    try:
        for factor in FACTORS:
            _allow_tf32(False)
            exact = run(model, inputs, factor)
            _allow_tf32(True)
            rounded = run(model, inputs, factor)
            for expected, found in zip(exact, rounded, strict=True):
                assert expected.isfinite().all()
                assert _within(found, expected)
            del exact, rounded
        assert _time_ms(model, inputs) >= 1.0
    finally:
        _allow_tf32(False)
        torch.cuda.empty_cache()


def _within(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, atol=TOLERANCE.absolute, rtol=TOLERANCE.relative)


def _largest_part_of_tolerance(found: torch.Tensor, expected: torch.Tensor) -> float:
    allowed = TOLERANCE.absolute + TOLERANCE.relative * expected.abs()
    return ((found - expected).abs() / allowed).max().item()


@contextmanager
def _permuted(tensor: torch.Tensor) -> Iterator[None]:
    """Its elements in another order meanwhile."""
    saved = tensor.clone()
    tensor.copy_(saved.flatten().roll(1).view_as(saved))
    yield
    tensor.copy_(saved)


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def _time_ms(model: torch.nn.Module, inputs: list[torch.Tensor]) -> float:
    """Median of ten calls, by CUDA events."""
    times = []
    with torch.no_grad():
        for _ in range(13):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            model(*inputs)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
    return sorted(times[3:])[5]
