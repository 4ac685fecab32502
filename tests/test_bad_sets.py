"""Whatever is wrong with a set's files, loading it says so: no input ends in an error that no user can act on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbenv.errors import ProblemNotFoundError
from kbenv.problems import SETS_VARIABLE, import_problems, list_problems, load_problem
from kbenv.problems.loaders import dataset
from kbenv.problems.loaders import kernelbench_x as kernelbench_x_loader
from tests.test_loaders import (
    DATA_UTILS,
    DEFINITION,
    FUNCTION,
    GPU_REFERENCE,
    HARD,
    HIDDEN,
    NPU,
    PLAIN,
    ROBUST,
    SEPARATOR,
    SETTINGS,
    TASK_YML,
    TEST,
    workload,
    write,
)


def kernelbench(folder: Path) -> None:
    for name in ("19_ReLU.py", "20_LeakyReLU.py"):
        write(folder / "KernelBench" / "level1" / name, PLAIN)


def verified(folder: Path) -> None:
    kernelbench(folder)
    write(folder / "hidden_tests" / "level1" / "19_hidden.py", HIDDEN)
    write(folder / "stripped_prompts" / "19_ReLU_prompt.py", "# shown\n")


def table(folder: Path) -> None:
    write(folder / "level_1.jsonl", json.dumps({"code": PLAIN, "level": 1, "name": "19_ReLU", "problem_id": 19}) + "\n")


def kernelbench_x(folder: Path) -> None:
    write(folder / "data" / "kernelbenchx" / "Quantization" / "scale.py", FUNCTION + SEPARATOR + TEST)
    write(folder / "utils" / "data_utils.py", DATA_UTILS)
    entry = {"file": "Quantization/scale.py", "difficulty": 3, "precision_thresholds": {"cosine_sim": 0.9}}
    write(folder / "data" / "kernelbenchx_v1.json", json.dumps([entry]))


def tritonbench(folder: Path) -> None:
    test = "import torch\nscale(torch.ones(3))\n"
    write(folder / "data" / "TritonBench_T_v1" / "scale.py", FUNCTION + SEPARATOR + test)


def multikernelbench(folder: Path) -> None:
    write(folder / "dataset.py", "")
    case = {"inputs": [{"name": "x", "dtype": "float32", "shape": [2]}, {"name": "alpha", "value": 2}]}
    write(folder / "reference" / "npukernelbench_level2" / "scale.py", NPU)
    write(folder / "reference" / "npukernelbench_level2" / "scale.json", f"{json.dumps(case)}\n{json.dumps(case)}\n")


def robust_kbench(folder: Path) -> None:
    for direction in ("forward", "backward"):
        write(folder / "tasks" / "scale" / f"func_{direction}.py", ROBUST)
        write(folder / "tasks" / "scale" / f"config_{direction}.json", SETTINGS)


def sol_execbench(folder: Path) -> None:
    write(folder / "scaled_add" / "definition.json", DEFINITION)
    write(folder / "scaled_add" / "workload.jsonl", f"{workload(3)}\n{workload(5)}\n")


def flashinfer_bench(folder: Path) -> None:
    write(folder / "definitions" / "add" / "scaled_add.json", DEFINITION)
    write(folder / "workloads" / "add" / "scaled_add.jsonl", workload(3))


def gpu_mode(folder: Path) -> None:
    pytest.importorskip("yaml", reason="this set needs PyYAML")
    write(folder / "problems" / "some" / "add" / "task.yml", TASK_YML)
    write(folder / "problems" / "some" / "add" / "reference.py", GPU_REFERENCE)
    write(folder / "problems" / "some" / "add" / "task.py", "input_t = output_t = object\n")
    write(
        folder / "problems" / "some" / "utils.py", "def make_match_reference(reference, **_):\n    return reference\n"
    )


def kernelbench_hard(folder: Path) -> None:
    pytest.importorskip("yaml", reason="this set needs PyYAML")
    text = 'name: 01_add\ndisplay_name: "Add"\nflops_formula: "batch"\ntolerance:\n  float32: {atol: 1, rtol: 2}\n'
    write(folder / "problems" / "01_add" / "problem.yaml", text)
    write(folder / "problems" / "01_add" / "reference.py", HARD)
    write(folder / "problems" / "01_add" / "shapes.py", 'SHAPES = [{"batch": 2}, {"batch": 3}]\n')


SETS = (
    kernelbench, verified, table, kernelbench_x, tritonbench, multikernelbench, robust_kbench, sol_execbench,
    flashinfer_bench, gpu_mode, kernelbench_hard,
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1e400,
    "",
    "x\ny",
    "../..",
    [],
    [1],
    [[]],
    {},
    {"a": 1},
    {"a": {"b": []}},
)
CONTENTS: tuple[bytes, ...] = (
    b"", b"\0", b"\xff\xfe", b"\n\n", b"[", b"]", b"null", b"1", b"[1]", b'"a"', b"{}", b"[[]]", b"{1: 2}", b"a: b",
    b"def f(:", b"((((((((((" * 20, b"x = 1\n", b"SHAPES = 1\n", b"SHAPES = [{1: 2}]\n", b"SHAPES = [{'batch': []}]\n",
    b"SHAPES = [{}]\n", b"---\na: 1\n---\nb: 2\n", b"&a [*a]", b"!!python/object:os.system {}", b"2001-01-01",
)  # fmt: skip


def load_all(folder: Path) -> None:
    """Everything that a set's user does before judging."""
    kernelbench_x_loader._index.cache_clear()
    dataset._rows.cache_clear()
    try:
        _, problems, refused = import_problems(folder)
    except ProblemNotFoundError as e:
        problems, refused = [], [str(e)]
    for problem in problems:
        assert isinstance(problem.name, str)
        assert problem.source_for("cpu")
        assert problem.source_shown("cuda", "blind") is not None
        compile(problem.source_judged("cpu"), "problem.py", "exec")
        problem.why_unjudged("fp32")
        for case in problem.cases:
            compile(problem.for_case(case.name).source_judged("cuda"), "case.py", "exec")
    for message in refused:
        assert "Traceback" not in message
        assert len(message) > 20


def in_turn(make: Callable[[Path], None], folder: Path) -> Iterator[Path]:
    """Each file of a set that is whole again."""
    make(folder)
    for name in sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()):
        shutil.rmtree(folder)
        make(folder)
        yield folder / name


@pytest.mark.parametrize("make", SETS)
def test_a_file_that_is_missing_or_something_else_is_said_to_be(tmp_path: Path, make: Callable[[Path], None]) -> None:
    folder = tmp_path / "set"
    make(folder)
    load_all(folder)
    for path in in_turn(make, folder):
        path.unlink()
        load_all(folder)
        path.mkdir()
        load_all(folder)
        path.rmdir()
        path.symlink_to("nowhere")
        load_all(folder)
        path.unlink()
        for content in CONTENTS:
            path.write_bytes(content)
            load_all(folder)


@pytest.mark.parametrize("make", SETS)
def test_a_value_of_another_kind_is_said_to_be(tmp_path: Path, make: Callable[[Path], None]) -> None:
    folder = tmp_path / "set"
    for path in in_turn(make, folder):
        if path.suffix in (".json", ".jsonl", ".yml", ".yaml"):
            for changed in changes(path):
                path.write_text(changed)
                load_all(folder)


def changes(path: Path) -> Iterator[str]:
    """The file with each of its values left out, and each odd one in its place."""
    text = path.read_text()
    if path.suffix in (".yml", ".yaml"):
        import yaml

        yield from (yaml.safe_dump(data) for data in changed(yaml.safe_load(text)))
    elif path.suffix == ".jsonl" or "\n" in text.strip():
        first, *rest = text.split("\n")
        yield from ("\n".join([json.dumps(data), *rest]) for data in changed(json.loads(first)))
    else:
        yield from (json.dumps(data) for data in changed(json.loads(text)))


def changed(data: Any) -> Iterator[Any]:
    yield from ODD
    if isinstance(data, dict):
        for key in data:
            yield {name: value for name, value in data.items() if name != key}
            yield from ({**data, key: value} for value in changed(data[key]))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from ([*data[:index], value, *data[index + 1 :]] for value in changed(item))


def test_a_folder_that_holds_no_set_is_named_with_what_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    for name, words in (("empty", ": in no format that is known; these are: "), ("none", ", .* no such folder")):
        monkeypatch.setenv(SETS_VARIABLE, str(tmp_path / name))
        with pytest.raises(ProblemNotFoundError, match=f"{SETS_VARIABLE} names .*/{name}{words}"):
            list_problems("tritonbench/*")


@pytest.mark.parametrize("content", [b"", b"\0", b"\xff", b"((" * 200, SEPARATOR.encode(), SEPARATOR.encode() + b"f()"])
def test_one_bad_file_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(content)
    with pytest.raises(ProblemNotFoundError, match=r"mine\.py: "):
        load_problem(str(path))
