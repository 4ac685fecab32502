"""Audits of small problems, each with something to be found in it.

Several are small copies of situations known from KernelBench: a difference from its own mean, a mean over a
normalisation, a softmax over long rows, dropout in the forward pass, a scale of ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kbenv.audit import Audit, varying
from kbenv.audit_fact import State
from kbenv.cli.audit import rules
from kbenv.errors import SandboxError, UsageError
from kbenv.evaluator import Evaluator
from kbenv.problems.problem import Problem

GetAudit = Callable[[Problem], Audit]


def problem(forward: str, inputs: str = "[torch.rand(64, 64)]", construct: str = "pass", **fields: object) -> Problem:
    body = "\n".join(f"        {line}" for line in forward.split("\n"))
    built = "\n".join(f"        {line}" for line in construct.split("\n"))
    source = (
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{built}\n\n    def forward(self, x, *rest):\n{body}\n\n\n"
        f"def get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return Problem(id="test/problem", name="problem", level=None, source=source, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    protocol = rules("fp32", 240.0).model_copy(update={"probes": ("rows", "large", "small")})  # fewer, to be quick
    with Evaluator(protocol=protocol, device="cpu", sandbox="process") as evaluator:
        yield evaluator


@pytest.fixture(scope="module")
def get_audit(evaluator: Evaluator) -> GetAudit:
    return evaluator.audit


def degenerate(audit: Audit) -> list[str]:
    return [finding.kind for finding in audit.degenerate]


def flags(audit: Audit) -> list[str]:
    return [finding.flag for finding in audit.notes]


def text_of(audit: Audit, kind: str) -> str:
    (finding,) = [finding for finding in (*audit.degenerate, *audit.notes) if finding.kind == kind]
    return finding.text


def judged(audit: Audit) -> State:
    assert audit.judged is not None
    return audit.judged


def test_a_sound_problem_has_no_findings_and_every_number(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return self.linear(x)", "[torch.randn(512, 64)]", "self.linear = nn.Linear(64, 64)"))
    assert degenerate(audit) == []
    assert [flag for flag in flags(audit) if flag != "launch-bound"] == []
    assert audit.size is not None
    assert audit.size.weight_bytes == 4 * (64 * 64 + 64)
    assert audit.size.device_ms is None
    assert [tensor.name for tensor in audit.tensors] == ["linear.weight", "linear.bias"]
    assert [item.change for item in audit.inputs] == [pytest.approx(1.4, abs=0.2)]
    assert all(parameter.change is not None and parameter.change > 0.01 for parameter in audit.parameters)
    assert {d.name for d in judged(audit).distributions} >= {"D1", "D2", "D3", "D4", "rows", "large"}
    assert 0 < judged(audit).errors["rounding"] < 1e-6
    (output,) = judged(audit).outputs
    assert output.rms == pytest.approx(0.66, abs=0.15)
    assert output.tolerances.zeros is not None
    assert output.tolerances.zeros > 0.3
    assert Audit.model_validate_json(audit.model_dump_json()) == audit


def test_equal_problems_give_equal_numbers(get_audit: GetAudit) -> None:
    first, second = (get_audit(problem("return torch.tanh(x)")) for _ in range(2))
    assert first.given == second.given
    assert first.key == second.key


def test_a_difference_from_its_own_mean_is_constant(get_audit: GetAudit) -> None:
    audit = get_audit(
        problem(
            "y = torch.amax(self.linear(x), dim=1, keepdim=True)\n"
            "return nn.functional.gelu(y - y.mean(dim=1, keepdim=True))",
            construct="self.linear = nn.Linear(64, 64)",
        )
    )
    assert degenerate(audit) == ["constant"]
    assert {"zeros<=1e-04", "mean<=1e-04", "frozen<=1e-04", "small"} <= set(flags(audit))
    assert "unused-parameter" not in {finding.kind for finding in audit.notes}  # nothing can have an effect


def test_a_mean_over_a_normalisation_is_constant_up_to_rounding(get_audit: GetAudit) -> None:
    audit = get_audit(
        problem(
            "return self.norm(self.conv(x)).mean(dim=(1, 2, 3))",
            "[torch.rand(32, 3, 24, 24)]",
            "self.conv = nn.Conv2d(3, 8, 3)\nself.norm = nn.GroupNorm(4, 8)",
        )
    )
    assert degenerate(audit)[0] == "constant"
    assert "zeros<=1e-04" in flags(audit)
    assert audit.identity_kinds == {"GroupNorm.weight = 1": 1, "GroupNorm.bias = 0": 1}
    assert audit.given is not None
    assert audit.given.ill_conditioned
    assert audit.redrawn is not None
    assert not audit.redrawn.ill_conditioned  # weights of their own keep the mean from vanishing


def test_dropout_behind_a_clamp_that_leaves_nothing_is_constant_and_draws_numbers(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return nn.functional.dropout(torch.clamp(x.clamp(max=0.0), 0.0, 1.0), 0.2)"))
    assert degenerate(audit) == ["constant"]
    assert "draws-numbers" in flags(audit)


def test_dropout_in_forward_is_random_save_in_evaluation_mode(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return torch.softmax(self.drop(x), dim=1)", construct="self.drop = nn.Dropout(0.2)"))
    assert degenerate(audit) == ["random"]
    assert "in evaluation mode they agree" in text_of(audit, "random")
    stubborn = get_audit(problem("return nn.functional.dropout(x, 0.5)"))
    assert "in evaluation mode still" in text_of(stubborn, "random")


def test_an_output_that_plain_draws_leave_at_zero_is_degenerate_though_others_do_not(get_audit: GetAudit) -> None:
    audit = get_audit(
        problem(
            "return torch.relu((self.linear(x) - 2.0) * 1.5)",
            "[torch.rand(64, 512)]",
            "self.linear = nn.Linear(512, 256)",
        )
    )
    assert degenerate(audit) == ["constant-on-plain"]
    assert "zeros<=1e-04" in flags(audit)
    assert audit.given is not None
    assert "D2" in varying(audit.given)


def test_a_softmax_over_long_rows_is_small_and_zeros_pass(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return torch.softmax(x, dim=1)", "[torch.rand(16, 40000)]"))
    assert degenerate(audit) == []
    assert {"zeros<=1e-04", "mean<=1e-04", "frozen<=1e-04", "small"} <= set(flags(audit))


def test_a_loss_that_hardly_varies_passes_with_the_value_of_another_draw(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return torch.mean((x - rest[0]) ** 2)", "[torch.rand(512, 512), torch.rand(512, 512)]"))
    assert degenerate(audit) == []
    assert "frozen<=1e-03" in flags(audit)
    assert not [flag for flag in flags(audit) if flag.startswith("zeros")]


def test_overflow_and_logarithms_show_on_the_distribution_that_meets_them(get_audit: GetAudit) -> None:
    overflow = get_audit(problem("return torch.exp(40 * x)"))
    logarithm = get_audit(problem("return torch.log(x + 1e-3)"))
    assert degenerate(overflow) == degenerate(logarithm) == []
    assert "D2" in text_of(overflow, "nan-or-inf")
    assert "D4" in text_of(logarithm, "nan-or-inf")
    finite = {d.name: d.is_finite for d in judged(logarithm).distributions}
    assert not finite["D4"]
    assert finite["D2"]
    assert finite["D3"]


def test_identity_parameters_are_counted_redrawn_and_tried(get_audit: GetAudit) -> None:
    audit = get_audit(
        problem(
            "return torch.softmax(self.scale * self.norm(self.linear(x)), dim=1)",
            construct="self.linear = nn.Linear(64, 32)\nself.norm = nn.BatchNorm1d(32)\n"
            "self.scale = nn.Parameter(torch.ones(1))",
        )
    )
    assert degenerate(audit) == []
    assert audit.identity_kinds == {"Model.scale = 1": 1, "BatchNorm1d.weight = 1": 1, "BatchNorm1d.bias = 0": 1}
    assert "identity(3)" in flags(audit)
    assert audit.redraw is not None
    assert audit.redraw.error is None
    assert audit.redraw.left == ()
    assert "linear.bias" in text_of(audit, "unused-parameter")  # the normalisation takes it out again
    changes = {parameter.name: parameter.change for parameter in audit.parameters}
    assert all(changes[name] > 1e-3 for name in ("scale", "norm.weight", "linear.weight"))  # type: ignore[operator]


def test_a_construction_that_does_not_bear_redrawing_is_judged_as_given(get_audit: GetAudit) -> None:
    audit = get_audit(
        problem(
            "return x * self.scale",
            construct="self.scale = nn.Parameter(torch.ones(64))\nassert float(self.scale.sum()) == 64",
        )
    )
    assert degenerate(audit) == []
    assert {"redraw-fails", "identity(1)"} <= set(flags(audit))
    assert audit.redrawn is None
    assert "rows" in {d.name for d in judged(audit).distributions}


def test_what_inputs_do_is_seen(get_audit: GetAudit) -> None:
    inputs = "[torch.rand(64, 64), torch.rand(64, 64), torch.ones(64)]"
    audit = get_audit(problem("x.mul_(2.0)\nreturn x + rest[1]", inputs))
    assert degenerate(audit) == []
    assert {"mutates:0", "unused-input:1", "same-input:2"} <= set(flags(audit))
    assert [item.varies for item in audit.inputs] == [True, True, False]


def test_an_output_of_parameters_alone_is_independent_of_the_inputs(get_audit: GetAudit) -> None:
    audit = get_audit(
        problem("return self.table.expand(len(x), -1)", construct="self.table = nn.Parameter(torch.randn(1, 64))")
    )
    assert degenerate(audit) == ["input-independent"]


def test_an_output_made_of_rounding_errors_is_ill_conditioned(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return torch.sin(x * 1e7)"))
    assert degenerate(audit) == ["ill-conditioned"]
    assert judged(audit).errors["jitter"] > 0.1


def test_a_reference_that_raises_is_degenerate_and_says_where(get_audit: GetAudit) -> None:
    always = get_audit(problem("raise RuntimeError('the reference is broken')"))
    assert degenerate(always) == ["fails"]
    assert "the reference is broken" in text_of(always, "fails")
    assert always.given is None
    body = "if float(x.min()) < 0:\n    raise ValueError('not below zero')\nreturn torch.sqrt(x)"
    sometimes = get_audit(problem(body))
    assert degenerate(sometimes) == ["fails"]
    assert "not below zero" in text_of(sometimes, "fails")
    assert {d.name: d.error is None for d in judged(sometimes).distributions}["D3"]


def test_a_failure_that_the_problem_records_is_not_held_against_it(get_audit: GetAudit) -> None:
    body = "if float(x.abs().mean()) < 0.2 and float(x.std()) < 0.2:\n    raise ValueError('too small')\nreturn 2 * x"
    audit = get_audit(problem(body, dropped={"D3": "the reference refuses small numbers"}))
    found = {d.name: d for d in judged(audit).distributions}["D3"]
    assert found.error is not None
    assert found.dropped is not None
    assert "D3" not in "".join(finding.flag for finding in audit.degenerate)


def test_a_reference_with_fp32_of_its_own_has_no_float64(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return x @ torch.eye(64, dtype=torch.float32)"))
    assert degenerate(audit) == []
    assert "no-float64" in flags(audit)
    assert "rounding" not in judged(audit).errors


def test_integer_outputs_and_nested_ones(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return x.argmax(dim=1), [x.amax(dim=1), (x > 0.5)]"))
    assert degenerate(audit) == []
    kinds = [output.dtype for output in judged(audit).outputs]
    assert kinds == ["int64", "float32", "bool"]
    assert judged(audit).outputs[0].tolerances.zeros is None


def test_shapes_that_change_from_draw_to_draw_fail(get_audit: GetAudit) -> None:
    audit = get_audit(problem("return x + 1", "[torch.rand(int(torch.randint(50, 1000, ())), 8)]"))
    assert degenerate(audit) == ["fails"]
    assert "other shapes" in text_of(audit, "fails")


def test_the_time_limit_cuts_an_audit_short_and_says_what_it_left_out() -> None:
    slow = problem("import time\ntime.sleep(0.1)\nreturn torch.tanh(x)")
    with Evaluator(protocol=rules("fp32", 4.0), device="cpu", sandbox="process") as evaluator:
        audit = evaluator.audit(slow)
        assert audit.given is not None
        assert "cut-short" in flags(audit)
        assert "small" in audit.skipped
        endless = problem("import time\ntime.sleep(0.5)\nreturn x")
        with pytest.raises(SandboxError, match="too long for an audit"):
            evaluator.audit(endless)


def test_an_audit_needs_a_calibrated_protocol() -> None:
    with Evaluator(protocol="verified", device="cpu", sandbox="process") as evaluator, pytest.raises(UsageError):
        evaluator.audit("core/level1/relu")
