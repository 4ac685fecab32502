"""Constants become the same draws in a model and in its rewrites; nothing else of construction changes."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from kbenv.problems import load_problem
from kbenv.sandbox.runner.redraw import Key, Redraw, keys_from_json, keys_to_json

SECRET = 1234567


def build(make: Callable[[], nn.Module], known: set[Key] | None = None, seed: int = 0) -> tuple[nn.Module, Redraw]:
    """A model with its constants drawn, as a runner builds it."""
    redraw = Redraw(SECRET, known)
    torch.manual_seed(seed)
    with torch.no_grad(), redraw.during_construction():
        model = make()
    redraw.finish(model)
    return model, redraw


def plain(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make()


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.state_dict())


def is_constant(x: torch.Tensor) -> bool:
    return bool((x == x.flatten()[0]).all())


class Assigned(nn.Module):
    """A scale and a bias in one of the ways in which code makes them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        if how == "parameter":
            self.scale, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
        elif how == "init":
            self.scale, self.bias = nn.Parameter(torch.empty(8)), nn.Parameter(torch.empty(8))
            nn.init.constant_(self.scale, 1.0)
            nn.init.zeros_(self.bias)
        elif how == "fill":
            self.scale, self.bias = nn.Parameter(torch.empty(8)), nn.Parameter(torch.Tensor(8))
            self.scale.data.fill_(1)
            with torch.no_grad():
                self.bias.zero_()
        elif how == "data":
            self.scale, self.bias = nn.Parameter(torch.rand(8)), nn.Parameter(torch.rand(8))
            self.scale.data = torch.ones(8)
            self.bias.data = torch.zeros(8)
        else:
            self.register_parameter("scale", nn.Parameter(torch.full((8,), 1.0)))
            self.register_parameter("bias", nn.Parameter(torch.full((8,), 0.0)))


# -- what is drawn -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["parameter", "init", "fill", "data", "register"])
def test_a_constant_is_drawn_however_it_was_written(how):
    model, redraw = build(lambda: Assigned(how))
    assert sorted(redraw.drawn) == [("parameter", (8,), 0.0, 0), ("parameter", (8,), 1.0, 0)]
    state, reference = tensors(model), tensors(build(lambda: Assigned("parameter"))[0])
    for name in ("scale", "bias"):
        assert not is_constant(state[name])
        assert torch.equal(state[name], reference[name])
    assert bool(((state["scale"] >= 0.5) & (state["scale"] <= 1.5)).all())
    assert bool((state["bias"].abs() <= 0.5).all())


NORMALISATIONS = {
    "batch norm": (lambda: nn.BatchNorm2d(16), {"weight", "bias", "running_mean", "running_var"}),
    "batch norm without affine": (lambda: nn.BatchNorm1d(16, affine=False), {"running_mean", "running_var"}),
    "batch norm without statistics": (lambda: nn.BatchNorm2d(16, track_running_stats=False), {"weight", "bias"}),
    "layer norm": (lambda: nn.LayerNorm((4, 16)), {"weight", "bias"}),
    "layer norm without bias": (lambda: nn.LayerNorm(16, bias=False), {"weight"}),
    "rms norm": (lambda: nn.RMSNorm(16), {"weight"}),
    "group norm": (lambda: nn.GroupNorm(4, 16), {"weight", "bias"}),
    "instance norm": (lambda: nn.InstanceNorm2d(16), set()),
    "instance norm with all": (
        lambda: nn.InstanceNorm3d(16, affine=True, track_running_stats=True),
        {"weight", "bias", "running_mean", "running_var"},
    ),
    "attention": (lambda: nn.MultiheadAttention(16, 4), {"in_proj_bias", "out_proj.bias"}),
    "attention with bias": (lambda: nn.MultiheadAttention(16, 4, add_bias_kv=True), {"in_proj_bias", "out_proj.bias"}),
    "prelu": (lambda: nn.PReLU(16), {"weight"}),
    "linear": (lambda: nn.Linear(16, 4), set()),
    "embedding": (lambda: nn.Embedding(16, 4, padding_idx=0), set()),
}  # fmt: skip


@pytest.mark.parametrize(("make", "drawn"), NORMALISATIONS.values(), ids=NORMALISATIONS)
def test_what_modules_leave_constant_is_drawn_and_nothing_else(make, drawn):
    before, after = tensors(plain(make)), tensors(build(make)[0])
    assert before.keys() == after.keys()
    assert {name for name in before if not torch.equal(before[name], after[name])} == drawn
    assert not any(is_constant(after[name]) for name in drawn)
    assert all(bool(torch.isfinite(x).all()) for x in after.values())


def test_a_variance_stays_positive_and_is_no_usual_one():
    model, _ = build(lambda: nn.BatchNorm2d(4096))
    variance = tensors(model)["running_var"]
    assert float(variance.min()) > 0
    assert float(variance.max()) / float(variance.min()) > 10
    assert tensors(model)["num_batches_tracked"].item() == 0


def test_a_models_own_statistics_are_drawn_by_their_names_and_other_buffers_of_several_elements_as_they_are():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("running_mean", torch.zeros(16))
            self.register_buffer("running_var", torch.ones(16))
            self.register_buffer("table", torch.zeros(16))
            self.register_buffer("setting", torch.zeros(1))
            self.register_buffer("none", None)

    state = tensors(build(Own)[0])
    norm = tensors(build(lambda: nn.BatchNorm1d(16, affine=False))[0])
    assert torch.equal(state["running_mean"], norm["running_mean"])
    assert torch.equal(state["running_var"], norm["running_var"])
    assert not is_constant(state["table"])
    assert float(state["setting"]) == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Parameter(torch.zeros(4, dtype=torch.int64), requires_grad=False),
        lambda: nn.Parameter(torch.ones(4, dtype=torch.bool), requires_grad=False),
        lambda: nn.Parameter(torch.full((4,), -math.inf)),
        lambda: nn.Parameter(torch.full((4,), math.nan)),
        lambda: nn.Parameter(torch.ones(1).expand(4)),
        lambda: nn.Parameter(torch.zeros(0, 4)),
        lambda: nn.Parameter(torch.ones(4, dtype=torch.complex64)),
        lambda: nn.Parameter(torch.zeros(4, device="meta")),
        lambda: nn.parameter.UninitializedParameter(),
        lambda: nn.Parameter(torch.tensor([1.0, 1.0, 2.0])),
    ],
)  # fmt: skip
def test_what_is_no_finite_floating_constant_is_left_alone(make):
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = make()

    _, redraw = build(Holder)
    assert redraw.drawn == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_constants_of_other_floating_types_are_drawn_in_these(dtype):
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = nn.Parameter(torch.ones(8, dtype=dtype))

    model, _ = build(Holder)
    reference, _ = build(lambda: Assigned("parameter"))
    assert model.held.dtype is dtype
    assert torch.allclose(model.held.double(), reference.scale.double(), atol=0.01)


# -- the same in a rewrite ---------------------------------------------------------------------------------------------


class Reference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.gate = nn.Parameter(torch.zeros(1))
        self.last = nn.LayerNorm(10)


class OtherNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, 8, 3)
        self.n = nn.BatchNorm2d(8)
        self.s = nn.Parameter(torch.ones(8, 1, 1))
        self.g = nn.Parameter(torch.zeros(1))
        self.l = nn.LayerNorm(10)


class OtherOrder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.LayerNorm(10)
        self.gate = nn.Parameter(torch.full((1,), 0.0))
        self.scale = nn.Parameter(torch.empty(8, 1, 1))
        nn.init.ones_(self.scale)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(3, 8, 3)


class Functional(nn.Module):
    """The normalisation without its module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
        self.register_buffer("running_mean", torch.zeros(8))
        self.register_buffer("running_var", torch.ones(8))
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.gate = nn.Parameter(torch.zeros(1))
        self.last = nn.LayerNorm(10)


class Packed(nn.Module):
    """Folds everything in its constructor and keeps only the result."""

    def __init__(self) -> None:
        super().__init__()
        whole = Reference()
        self.packed = {
            "factor": (whole.norm.weight / (whole.norm.running_var + 1e-5).sqrt()).detach() * whole.scale.flatten(),
            "gate": whole.gate.detach().clone(),
            "last": torch.cat([whole.last.weight, whole.last.bias]).detach(),
        }


@pytest.mark.parametrize("make", [OtherNames, OtherOrder, Functional, Packed])
def test_a_rewrite_draws_what_the_reference_drew(make):
    reference, drawn = build(Reference)
    known = keys_from_json(json.loads(json.dumps(keys_to_json(drawn.drawn))))
    assert len(known) == len(drawn.drawn) == 8
    model, redraw = build(make, known)
    assert set(redraw.drawn) == known
    if make is OtherNames:
        for ours, theirs in zip(tensors(model).values(), tensors(reference).values(), strict=True):
            assert torch.equal(ours, theirs)
    if make is Packed:
        norm = reference.norm
        factor = norm.weight / (norm.running_var + 1e-5).sqrt() * reference.scale.flatten()
        assert torch.equal(model.packed["factor"], factor)
        assert torch.equal(model.packed["gate"], reference.gate)
        assert torch.equal(model.packed["last"], torch.cat([reference.last.weight, reference.last.bias]))


def test_equal_constants_are_told_apart_by_their_order():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)

    model, redraw = build(Two)
    assert not torch.equal(model.first.weight, model.second.weight)
    assert sorted(key[3] for key in redraw.drawn) == [0, 0, 1, 1]


def test_a_parameter_of_one_element_is_drawn_once_and_before_anything_reads_it():
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(()))
            self.again = self.scale
            self.packed = torch.stack([self.scale.detach()[0], self.shift.detach()])

    model, redraw = build(One)
    assert len(redraw.drawn) == 2
    assert torch.equal(model.packed, torch.stack([model.scale[0], model.shift]))
    assert model.scale.item() != 1.0


def test_a_submissions_own_constants_stay_unless_the_reference_has_them():
    class More(Reference):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(torch.ones(8, 4))
            self.another = nn.Parameter(torch.full((10,), 2.0))
            self.second = nn.LayerNorm(10)

    _, drawn = build(Reference)
    model, redraw = build(More, set(drawn.drawn))
    assert set(redraw.drawn) == set(drawn.drawn)
    for constant in (model.own, model.another, model.second.weight, model.second.bias):
        assert is_constant(constant)
    nothing, _ = build(Reference, set())
    assert torch.equal(nothing.norm.running_var, torch.ones(8))


def test_another_secret_makes_other_draws():
    first, second = Redraw(1, None), Redraw(2, None)
    models = []
    for redraw in (first, second):
        with redraw.during_construction():
            models.append(nn.LayerNorm(16))
    assert first.drawn == second.drawn
    assert not torch.equal(models[0].weight, models[1].weight)


# -- what stays as it was ----------------------------------------------------------------------------------------------


class Whole(nn.Module):
    """Modules in lists, with parametrisations, tied weights and copies."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(3))
        self.named = nn.ModuleDict({"a": nn.LayerNorm(8)})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(2)])
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.embedding, self.head = nn.Embedding(11, 8, padding_idx=3), nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.lstm, self.gru = nn.LSTM(8, 8, 2, bidirectional=True), nn.GRU(8, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)))


def test_whole_models_construct_as_before_but_for_their_constants():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = tensors(plain(Whole))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="enable_nested_tensor")
        model, redraw = build(Whole)
    after = tensors(model)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        was_constant = tensor.numel() > 1 and is_constant(tensor) and tensor.is_floating_point()
        assert torch.equal(tensor, after[name]) != was_constant, name
        assert bool(torch.isfinite(after[name]).all()), name
    assert model.head.weight is model.embedding.weight
    assert bool((model.embedding.weight[3] == 0).all())
    assert len(set(redraw.drawn)) == len(redraw.drawn)


def test_nothing_is_taken_from_the_global_generator():
    states = []
    for make in (lambda: build(Whole, seed=7), lambda: plain(Whole, seed=7)):
        make()
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_fresh_memory_is_nan_so_that_it_is_constant_nowhere_by_chance():
    class Fresh(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.made = [torch.empty(50), torch.Tensor(50), torch.FloatTensor(50), torch.empty_like(torch.ones(50))]
            self.held = nn.Parameter(torch.empty(50))
            nn.init.uniform_(self.held)

    model, redraw = build(Fresh)
    assert all(bool(made.isnan().all()) for made in model.made)
    assert redraw.drawn == []
    assert bool(torch.isfinite(model.held).all())
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("raises", [False, True])
def test_construction_leaves_pytorch_as_it_was(raises):
    norm = nn.modules.batchnorm._NormBase
    before = [
        nn.init._no_grad_fill_, nn.init._no_grad_zero_, nn.Module.register_parameter, nn.Module.register_buffer,
        norm.reset_running_stats, torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    ]  # fmt: skip

    def make() -> nn.Module:
        if raises:
            raise RuntimeError("in a constructor")
        torch.use_deterministic_algorithms(True)
        return nn.LayerNorm(4)

    if raises:
        with pytest.raises(RuntimeError, match="in a constructor"):
            build(make)
    else:
        build(make)
    after = [
        nn.init._no_grad_fill_, nn.init._no_grad_zero_, nn.Module.register_parameter, nn.Module.register_buffer,
        norm.reset_running_stats, torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    ]  # fmt: skip
    assert after == before


def test_a_default_device_makes_no_difference():
    def make() -> nn.Module:
        with torch.device("meta"):
            held = nn.LayerNorm(4)
        held = held.to_empty(device="cpu")
        held.reset_parameters()
        return held

    model, redraw = build(make)
    assert torch.equal(model.weight, build(lambda: nn.LayerNorm(4))[0].weight)
    assert len(redraw.drawn) == 2


def test_a_model_that_is_no_module_is_left_alone():
    redraw = Redraw(SECRET, None)
    with redraw.during_construction():
        model = object()
    redraw.finish(model)
    assert redraw.drawn == []


CORE = {
    "core/level1/layer_norm": 0, "core/level1/relu": 0, "core/level2/residual_rms_norm": 0,
    "core/level3/attention_block": 0, "core/level3/conv_residual_block": 2,
}  # fmt: skip
"""Most of the core problems draw their scales and biases themselves."""


@pytest.mark.parametrize("name", CORE)
def test_core_problems_draw_what_they_have(name):
    namespace: dict = {}
    source = load_problem(name).source
    exec(compile(source, name, "exec"), namespace)
    _, redraw = build(lambda: namespace["Model"](*namespace["get_init_inputs"]()))
    assert len(redraw.drawn) == CORE[name], redraw.drawn


@pytest.mark.parametrize(("layers", "least", "most"), [(2, 1e-3, 8.0), (9, 0.5, 2.0)])
def test_running_variances_are_drawn_widely_where_they_are_few(layers, least, most):
    def make() -> nn.Module:
        return nn.Sequential(*(nn.BatchNorm1d(500) for _ in range(layers)))

    model, redraw = build(make)
    variances = torch.cat([value for name, value in tensors(model).items() if name.endswith("running_var")])
    assert least <= float(variances.min()) < 1.2 * least
    assert most >= float(variances.max()) > most / 1.2
    again = tensors(build(make, set(redraw.drawn))[0])
    assert all(torch.equal(value, again[name]) for name, value in tensors(model).items())


def test_running_variances_that_a_constructor_writes_itself_stay_in_both_models() -> None:
    def make() -> nn.Module:
        norm = nn.BatchNorm2d(16)
        assert norm.running_var is not None
        nn.init.uniform_(norm.running_var, 0.3, 1.0)
        return norm

    reference, first = build(make)
    submission, _ = build(make, keys_from_json(keys_to_json(first.drawn)))
    for model in (reference, submission):
        assert torch.equal(tensors(model)["running_var"], tensors(plain(make))["running_var"])
