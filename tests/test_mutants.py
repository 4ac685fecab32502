"""The corpus of mutants is what it says: made again alike, split by groups, each wrong where its witness says."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kbenv.evaluator import Evaluator
from tests.judge.evaluators import make_protocol
from tests.mutants.corpus import (
    DROPPED,
    MANIFEST,
    Patch,
    as_record,
    from_record,
    load_manifest,
    load_seeds,
    patched,
    stand_alone,
)
from tests.mutants.generate import candidates
from tests.mutants.witness import Reference, honest_scores, in_child, make_pool, replay

if not MANIFEST.exists():
    pytest.skip("the search for witnesses is not finished: there is no manifest yet", allow_module_level=True)

SEEDS = {seed.name: seed for seed in load_seeds()}
RECORDS = load_manifest()
REPLAYED = (
    "group_norm_c", "log_softmax_c", "cross_entropy_weighted_c", "max_pool_torch", "cumprod_torch",
    "linear_recurrence_c",
)  # fmt: skip


def load_benchmark():
    path = Path(__file__).parent.parent / "benchmarks" / "mutants.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_mutants", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a fork of a process with threads may hang
    yield
    torch.set_num_threads(threads)


def test_there_are_a_thousand_mutants_and_a_hundred_of_them_for_a_gpu():
    languages = Counter(record["language"] for record in RECORDS)
    assert len(RECORDS) >= 1000
    assert languages["triton"] + languages["cuda"] >= 100
    assert len({record["problem"] for record in RECORDS}) >= 27
    assert len({record["id"] for record in RECORDS}) == len(RECORDS)


@pytest.mark.parametrize("name", sorted(SEEDS)[::6])
def test_the_generator_makes_the_manifest_again(name):
    made = {mutant.id: as_record(mutant) for mutant in candidates(SEEDS[name])}
    assert [mutant.id for mutant in candidates(SEEDS[name])] == list(made)
    for record in RECORDS:
        if record["seed"] == name:
            assert {key: record[key] for key in made[record["id"]]} == made[record["id"]]


def test_patches_apply_and_leave_python():
    for record in RECORDS:
        mutant = from_record(record)
        assert mutant.id == record["id"]
        assert mutant.source != stand_alone(mutant.seed.text)
        ast.parse(mutant.source)
        assert "tests.mutants" not in mutant.source


def test_the_split_is_even_and_keeps_near_duplicates_together():
    sides = Counter(record["split"] for record in RECORDS)
    assert set(sides) == {"tune", "held-out"}
    assert min(sides.values()) > 0.4 * len(RECORDS)
    groups = defaultdict(set)
    for record in RECORDS:
        groups[record["problem"], record["operator"]].add(record["split"])
        assert record["split"] == from_record(record).split
    assert all(len(split) == 1 for split in groups.values())
    assert len(groups) > 300


def test_what_was_dropped_is_counted():
    dropped = json.loads(DROPPED.read_text())
    assert dropped["kept"] == len(RECORDS)
    assert dropped["generated"] == len(RECORDS) + sum(dropped["dropped"]["all"].values())


@pytest.mark.parametrize("name", REPLAYED)
def test_a_mutant_is_wrong_on_its_witness_and_its_seed_is_not(name, one_thread):
    records = [record for record in RECORDS if record["seed"] == name][:3]
    reference = Reference(SEEDS[name].problem)
    assert max(honest_scores(SEEDS[name], reference, make_pool(reference)[:3])) < 0.5
    for record in records:
        found = in_child(lambda record=record: replay(from_record(record), reference, record["witness"]))
        assert found.get("score", 0.0) > 1, (record["id"], found)


def test_seeds_are_credited_and_mutants_that_show_are_not():
    """Two of each language that needs no GPU; CUDA is emulated."""
    with Evaluator(protocol=make_protocol("verified brisk"), device="cpu", sandbox="process") as evaluator:
        for name in ("leaky_relu_c", "mean_axis_torch", "hinge_loss_cuda"):
            seed = SEEDS[name]
            shows = next(record for record in RECORDS if record["seed"] == name and record["base_score"] > 100)
            assert evaluator.evaluate(seed.problem, stand_alone(seed.text)).credited, name
            assert not evaluator.evaluate(seed.problem, from_record(shows).source).credited, shows["id"]


@given(
    st.text(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), st.text(max_size=5)), max_size=4)
)
def test_a_patch_changes_its_place_alone(text, places):
    patches, end, expected = [], 0, ""
    for offset, length, new in sorted(places):
        if offset >= end and offset + length <= len(text) and offset not in {patch.offset for patch in patches}:
            patches.append(Patch(offset, text[offset : offset + length], new))
            expected += text[end:offset] + new
            end = offset + length
    assert patched(text, tuple(patches)) == expected + text[end:]


def test_a_patch_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="expected 'b' at offset 0"):
        patched("a", (Patch(0, "b", "c"),))


def test_the_bound_is_clopper_and_pearsons():
    bound = load_benchmark().upper_bound
    assert bound(0, 100) == pytest.approx(1 - 0.05**0.01)
    assert bound(5, 100) == pytest.approx(0.1022533, abs=1e-6)  # scipy.stats.beta.ppf(0.95, 6, 95)
    assert bound(3, 3) == 1.0


def test_the_table_counts_what_was_credited(tmp_path):
    benchmark = load_benchmark()
    first, second, third = [record for record in RECORDS if record["split"] == "tune"][:3]
    lines = [
        {"id": first["seed"], "status": "PASSED"}, {"id": first["id"], "status": "PASSED"},
        {"id": second["id"], "status": "WRONG_VALUE"}, {"id": third["id"], "status": "no verdict"},
    ]  # fmt: skip
    (tmp_path / "verified-tune-cpu.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"id": "cu')
    text = "\n".join(benchmark.table(tmp_path))
    assert "| verified, tune-cpu | 2 | 1/2 (50.0%) | 97.47% |" in text
    assert f"`{first['id']}`" in text
    assert f"`{second['id']}`" not in text
