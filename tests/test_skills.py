"""The library of skills is whole, and retrieval finds what fits and nothing else, the same every time."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from kbenv.agents.skills.feature import Feature, extract_features, problem_features, profile_features, source_features
from kbenv.agents.skills.library import (
    KERNELS,
    Case,
    Condition,
    Pair,
    Skill,
    load_library,
    read_kernel,
    retrieve,
)
from kbenv.errors import UsageError
from kbenv.problems import load_problem
from kbenv.verdict import HIDDEN_STAGES, Diagnosis, MachineCode, Status, Verdict
from tests.fakes import RELU_SOURCE, make_plausibility, make_verdict
from tests.test_profile import DIAGNOSIS, SOURCE, provenance, verdict

pytest.importorskip("yaml", reason="the library of skills needs PyYAML (the extra skills)")

LIBRARY = load_library()
of_every_skill = pytest.mark.parametrize("skill", LIBRARY, ids=lambda skill: skill.id)


def features_of(case: Pair | Case, kernel: str) -> dict[str, Feature]:
    """Of an answer of the library, with what the case says was measured."""
    reference = load_problem(case.problem).source_for("cuda")
    features = extract_features(reference, read_kernel(kernel)) | dict(case.measured)
    return features | dict(case.measured_after) if isinstance(case, Pair) and kernel == case.after else features


# -- the library ------------------------------------------------------------------------------------------------------


def test_there_are_at_least_two_dozen_skills_each_shown_by_a_pair_of_its_own() -> None:
    assert len(LIBRARY) >= 24
    assert len({(skill.pair.before, skill.pair.after) for skill in LIBRARY}) == len(LIBRARY)


def test_no_skill_is_named_by_naming_another() -> None:
    """The planner's choice is read off the ids in its answer."""
    assert not [(one, other) for one in LIBRARY for other in LIBRARY if one is not other and one.id in other.id]


def test_every_kernel_belongs_to_a_pair() -> None:
    used = {name for skill in LIBRARY for name in (skill.pair.before, skill.pair.after)}
    assert {path.stem for path in KERNELS.glob("*.py")} == used


@of_every_skill
def test_its_kernels_are_answers_to_its_problem(skill: Skill) -> None:
    reference = ast.parse(load_problem(skill.pair.problem).source)
    wanted = [argument.arg for argument in _method(reference, "Model", "forward").args.args]
    for name in (skill.pair.before, skill.pair.after):
        source = read_kernel(name)
        assert ast.get_docstring(ast.parse(source)), name
        assert [argument.arg for argument in _method(ast.parse(source), "ModelNew", "forward").args.args] == wanted


def _method(tree: ast.Module, owner: str, name: str) -> ast.FunctionDef:
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    return next(node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == name)


@of_every_skill
def test_its_precondition_holds_before_and_no_longer_after(skill: Skill) -> None:
    assert skill.applies(features_of(skill.pair, skill.pair.before))
    assert not skill.applies(features_of(skill.pair, skill.pair.after))


@of_every_skill
def test_its_precondition_is_false_in_its_counter_case(skill: Skill) -> None:
    assert skill.counter.because
    assert not skill.applies(features_of(skill.counter, skill.counter.kernel))


@of_every_skill
def test_what_was_measured_of_the_same_answer_makes_its_precondition_false(skill: Skill) -> None:
    """Each measured condition by itself, at its bound and short of it."""
    features = features_of(skill.pair, skill.pair.before)
    of_a_run = ("profile.", "code.", "counters.")
    measured = {name: test for name, test in skill.unless.items() if name.startswith(of_a_run)}
    assert measured or skill.id == "results-in-place"  # which saves memory, however fast the answer is
    for name, test in measured.items():
        bound = test.at_least if test.at_least is not None else test.equals
        assert bound is not None
        assert not skill.applies(features | {name: bound})
        assert skill.applies(features | {name: not bound if isinstance(bound, bool) else float(bound) - 0.01})


@of_every_skill
def test_it_is_retrieved_for_its_own_case(skill: Skill) -> None:
    assert skill in retrieve(features_of(skill.pair, skill.pair.before), most=4)


@of_every_skill
def test_every_feature_that_it_asks_for_is_one_that_is_extracted(skill: Skill) -> None:
    asked = set(skill.when) | set(skill.unless)
    told = set(skill.pair.measured) | set(skill.pair.measured_after) | set(skill.counter.measured)
    assert asked | told <= known_features()


@pytest.mark.parametrize("name", ["profile.bound", "profile.launches", "profile.library_share", "code.spills",
                                  "code.occupancy", "counters.occupancy"])  # fmt: skip
def test_preconditions_read_what_was_measured_of_a_run(name: str) -> None:
    assert any(name in skill.when or name in skill.unless for skill in LIBRARY)


def known_features() -> set[str]:
    """Every name that extraction can yield."""
    names: set[str] = {"counters." + cause for cause in CAUSES}
    for skill in LIBRARY:
        for kernel in (skill.pair.before, skill.pair.after):
            names |= set(features_of(Pair(problem=skill.pair.problem, before=kernel, after=kernel), kernel))
    told = verdict(1.0, bytes=10**9, operations_ms=0.5, flops=10**9).model_copy(
        update={"provenance": provenance(("relu", 1.0, 3, "custom")), "diagnosis": DIAGNOSIS}
    )
    return names | set(profile_features(told, SOURCE)) | {"counters.occupancy"}


CAUSES = {"uncoalesced", "bank-conflicts", "small-grid", "waits-for-memory", "waits-at-barriers"}


def test_a_skill_that_does_not_follow_the_format_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbenv.agents.skills import library

    (tmp_path / "bad.yaml").write_text("- id: x\n  title: y\n  when: {source.dot: {equals: true, below: 3}}\n")
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    with pytest.raises(UsageError, match="one of equals"):
        load_library.__wrapped__()
    (tmp_path / "bad.yaml").write_text("id: x\n")
    with pytest.raises(UsageError, match="a list of skills"):
        load_library.__wrapped__()


# -- retrieval --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "value", "holds"),
    [
        ({"equals": True}, True, True),
        ({"equals": True}, 1, False),
        ({"equals": "cuda"}, "cuda", True),
        ({"equals": "cuda"}, None, False),
        ({"one_of": ["a", "b"]}, "b", True),
        ({"one_of": ["a", "b"]}, "c", False),
        ({"at_least": 2}, 2, True),
        ({"at_least": 2}, 1.9, False),
        ({"below": 0.5}, 0.4, True),
        ({"below": 0.5}, 0.5, False),
        ({"below": 0.5}, None, False),
        ({"below": 0.5}, "memory", False),
    ],
)
def test_conditions(test: dict[str, Any], value: Feature | None, holds: bool) -> None:
    assert Condition.model_validate(test).holds(value) is holds


def test_retrieval_puts_the_likeliest_gain_first_and_is_the_same_every_time() -> None:
    features = features_of(
        Case(problem="core/level1/matmul", kernel="matmul_triton_small_tiles"), "matmul_triton_small_tiles"
    )
    found = retrieve(features, most=10)
    assert found[0].id == "larger-tiles"
    assert [skill.gain for skill in found] == sorted((skill.gain for skill in found), reverse=True)
    assert retrieve(dict(reversed(features.items())), most=10) == found


def test_a_skill_that_was_spent_is_not_retrieved() -> None:
    features = features_of(
        Case(problem="core/level1/matmul", kernel="matmul_triton_small_tiles"), "matmul_triton_small_tiles"
    )
    assert "larger-tiles" not in [skill.id for skill in retrieve(features, without={"larger-tiles"}, most=10)]


def test_nothing_is_retrieved_for_an_answer_of_which_nothing_is_known() -> None:
    assert retrieve({}) == ()
    assert retrieve(extract_features("not python (", "neither (")) == ()


def test_a_measurement_can_say_that_nothing_is_left_to_gain() -> None:
    case = Case(problem="core/level1/relu", kernel="relu_cuda_scalar", measured={"profile.bandwidth_share": 0.95})
    assert retrieve(features_of(case, case.kernel)) == ()


# -- features ---------------------------------------------------------------------------------------------------------


def test_features_of_a_problem() -> None:
    relu = problem_features(RELU_SOURCE)
    assert (relu["problem.row_length"], relu["problem.rows"], relu["problem.elementwise"]) == (128, 64, 1)
    attention = problem_features(load_problem("core/level3/attention_block").source)
    assert attention["problem.attention"] is True
    assert attention["problem.products"] == 4
    softmax = problem_features(load_problem("core/level1/softmax").source_for("cuda"))
    assert (softmax["problem.row_length"], softmax["problem.reduction"], softmax["problem.attention"]) == (
        128,
        True,
        False,
    )


def test_features_of_a_source() -> None:
    vector = source_features(read_kernel("relu_cuda_vector"))
    assert (vector["source.backend"], vector["source.vector_access"], vector["source.threads"]) == ("cuda", True, 256)
    tiled = source_features(read_kernel("matmul_cuda_shared"))
    assert (tiled["source.threads"], tiled["source.shared_memory"], tiled["source.own_product"]) == (1024, True, True)
    triton = source_features(read_kernel("matmul_triton_one_stage"))
    assert (triton["source.tile"], triton["source.stages"], triton["source.warps"]) == (128, 1, 8)
    operators = source_features(read_kernel("linear_gelu_operators"))
    assert (operators["source.elementwise_operators"], operators["source.library_products"]) == (2, 1)
    assert source_features("class Broken(") == {"source.backend": "torch", "source.kernels": 0}


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
@pytest.mark.parametrize("stage", sorted(HIDDEN_STAGES))
def test_of_a_hidden_failure_there_is_one_feature(status: Status, stage: Any) -> None:
    if status is Status.NO_CUSTOM_KERNEL:
        return
    failed = make_verdict(status, stage=stage, plausibility=make_plausibility(1.0))
    assert profile_features(failed, SOURCE) == {"profile.status": "WRONG_HIDDEN"}


def test_features_of_a_run() -> None:
    shares = provenance(("relu", 0.6, 3, "custom"), ("at::native::elementwise", 0.4, 3, "library"))
    told = verdict(1.0, bytes=2 * 10**9).model_copy(update={"provenance": shares, "diagnosis": DIAGNOSIS})
    features = profile_features(told, SOURCE)
    assert features["profile.bound"] == "overhead"
    assert features["profile.bandwidth_share"] == 0.5
    assert (features["profile.library_share"], features["profile.elementwise_share"]) == (0.4, 0.4)
    assert (features["code.spills"], features["code.tensor_cores"], features["code.double"]) == (True, True, True)
    assert features["profile.launches"] == 2
    assert (features["code.occupancy"], features["code.occupancy_limit"]) == (0.125, "registers")
    assert (features["counters.resource"], features["counters.no-tensor-cores"]) == ("arithmetic", True)


def ran(latency_ms: float, code: MachineCode | None = None, *kernels: tuple[str, float, int, str]) -> Verdict:
    """Right, on a GPU, with a tenth of a millisecond's bytes, three calls looked at, and this machine code."""
    diagnosis = Diagnosis(code=() if code is None else (code,), counters=(), access=None, missing={})
    return verdict(latency_ms, bytes=4 * 10**8).model_copy(
        update={"provenance": provenance(*kernels), "diagnosis": diagnosis}
    )


def compiled(name: str, registers: int, shared_bytes: int, local: int) -> MachineCode:
    return MachineCode(
        name=name, capability=90, registers=registers, stack_bytes=0, shared_bytes=shared_bytes,
        instructions={"all": 100, "local": local}, self_reported=True,
    )  # fmt: skip


STEPS = tuple((f"at::native::elementwise_{number}", 0.25, 3 * 100, "library") for number in range(4))


@pytest.mark.parametrize(
    ("skill", "before", "after"),
    [
        ("one-launch-for-the-steps", ran(3.0, None, *STEPS), ran(0.05, None, ("scan", 1.0, 3, "custom"))),
        (
            "no-spills",
            ran(60.0, compiled("matmul", 32, 8192, 110), ("matmul", 1.0, 3, "custom")),
            ran(17.0, compiled("matmul", 92, 8192, 0), ("matmul", 1.0, 3, "custom")),
        ),
        (
            "smaller-buffers",
            ran(3.0, compiled("layer_norm", 31, 48016, 0), ("layer_norm", 1.0, 3, "custom")),
            ran(1.5, compiled("layer_norm", 31, 16, 0), ("layer_norm", 1.0, 3, "custom")),
        ),
    ],
)
def test_a_skill_that_reads_the_profile_is_found_by_the_verdict_and_gone_with_what_it_mended(
    skill: str, before: Verdict, after: Verdict
) -> None:
    (one,) = (entry for entry in LIBRARY if entry.id == skill)
    reference = load_problem(one.pair.problem).source_for("cuda")
    old, new = (extract_features(reference, read_kernel(name)) for name in (one.pair.before, one.pair.after))
    told = profile_features(before, read_kernel(one.pair.before))
    assert one in retrieve(old | told, most=4)
    assert not one.applies(new | profile_features(after, read_kernel(one.pair.after)))
    assert not one.applies(old)  # nothing was measured
    of_time = ("profile.bandwidth_share", "profile.rate_share")
    measured = {name: value for name, value in one.pair.measured.items() if name not in of_time}
    assert measured == {name: told[name] for name in measured}


def test_occupancy_is_of_the_block_that_the_source_launches() -> None:
    source = read_kernel("layer_norm_cuda_long_buffer")
    made = ran(3.0, compiled("layer_norm", 31, 48016, 0))
    features = profile_features(made, source)
    assert (features["code.occupancy"], features["code.occupancy_limit"]) == (0.25, "shared memory")
    twice = profile_features(made, source.replace("<<<rows, 128>>>", "<<<rows, 256>>>"))
    assert twice["code.occupancy"] == 0.5
    unknown = made.model_copy(
        update={"diagnosis": Diagnosis(
            code=(compiled("layer_norm", 31, 0, 0).model_copy(update={"capability": 0}),), counters=(), access=None,
            missing={},
        )}
    )  # fmt: skip
    assert "code.occupancy" not in profile_features(unknown, source)


def test_launches_are_told_up_to_the_number_that_a_profile_tells() -> None:
    few = profile_features(ran(1.0, None, ("gemm", 0.5, 6, "library"), ("relu", 0.5, 3, "library")), SOURCE)
    assert few["profile.launches"] == 3
    assert profile_features(ran(1.0, None, *STEPS), SOURCE)["profile.launches"] == 17
    on_a_cpu = make_verdict(speedup=1.0, provenance=provenance(*STEPS))
    assert "profile.launches" not in profile_features(on_a_cpu, SOURCE)
