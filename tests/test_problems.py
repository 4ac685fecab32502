"""Problems are found by id, pattern and path, and what cannot be read as one is refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbenv.errors import ProblemNotFoundError
from kbenv.problems import list_problems, load_problem
from kbenv.problems.loaders import core
from kbenv.problems.loaders.file import MAX_SOURCE_BYTES

SOURCE = """\
import torch

N = 1000  # elements
SIZES = {"gpu": {"N": 1000}, "cpu": {"N": 10}}


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
"""
PLAIN = SOURCE.replace('SIZES = {"gpu": {"N": 1000}, "cpu": {"N": 10}}\n', "")
LAST_LINE = PLAIN.count("\n")


@pytest.fixture(autouse=True)
def _no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KBENV_KERNELBENCH", raising=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A KernelBench checkout in small: two levels, and files that are no problems."""
    inner = tmp_path / "checkout" / "KernelBench"
    for name in ("level1/2_Add_one_.py", "level1/19_ReLU.py", "level1/90_cumprod.py", "level2/1_Add.py"):
        (inner / name).parent.mkdir(parents=True, exist_ok=True)
        (inner / name).write_text(PLAIN)
    (inner / "level1" / "__init__.py").write_text("")
    (inner / "changelog").mkdir()
    return tmp_path / "checkout"


def write(path: Path, content: str | bytes = PLAIN) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def refusal(name: str) -> str:
    with pytest.raises(ProblemNotFoundError) as error:
        load_problem(name)
    assert "\n" not in str(error.value)
    return str(error.value)


# -- ids and patterns -------------------------------------------------------------------------------------------------


def test_a_core_problem_is_named_by_its_level_and_file() -> None:
    problem = load_problem("core/level1/relu")
    assert (problem.id, problem.name, problem.level) == ("core/level1/relu", "relu", 1)
    assert problem.path is not None
    assert problem.path.name == "relu.py"
    assert problem.dropped == {}


def test_patterns_match_ids_and_each_problem_is_listed_once() -> None:
    level1 = [problem.id for problem in list_problems("core/level1/*")]
    assert "core/level1/matmul" in level1
    assert all(id.startswith("core/level1/") for id in level1)
    assert [problem.id for problem in list_problems("core/level1/*, core/level1/matmul,core/level2/conv_b*")] == [
        *level1,
        "core/level2/conv_bias_relu",
    ]


def test_an_exercise_is_there_by_its_full_id_alone() -> None:
    assert "core/level1/relu" in core.EXERCISES
    assert set(core.EXERCISES) <= set(core.find())
    assert "core/level1/relu" not in {problem.id for problem in list_problems("core/*,*relu*")}
    assert "core/level1/relu" in {problem.id for problem in list_problems("core/level2/*,core/level1/relu")}
    assert load_problem("core/level1/relu").id == "core/level1/relu"


@pytest.mark.parametrize("inner", [".", "KernelBench"])
def test_a_checkout_is_its_root_or_its_inner_folder(checkout: Path, inner: str) -> None:
    problems = list_problems("kernelbench/*", problems_dir=checkout / inner)
    assert [problem.id for problem in problems] == [
        "kernelbench/level1/2",
        "kernelbench/level1/19",
        "kernelbench/level1/90",
        "kernelbench/level2/1",
    ]
    assert [problem.name for problem in problems] == ["Add_one", "ReLU", "cumprod", "Add"]
    assert [problem.level for problem in problems] == [1, 1, 1, 2]
    assert problems[1].source == PLAIN
    assert problems[1].sizes == {}


def test_the_environment_names_a_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBENV_KERNELBENCH", str(checkout))
    assert load_problem("kernelbench/level1/19").name == "ReLU"
    assert {problem.id.split("/")[0] for problem in list_problems()} == {"core", "kernelbench"}


def test_where_the_reference_itself_fails_is_recorded(checkout: Path) -> None:
    assert load_problem("kernelbench/level1/90", problems_dir=checkout).dropped == {"D2": "overflows"}
    assert load_problem("kernelbench/level1/19", problems_dir=checkout).dropped == {}


def test_without_a_checkout_everything_else_is_listed() -> None:
    assert {problem.id.split("/")[0] for problem in list_problems("*")} == {"core"}


def test_a_broken_checkout_does_not_hide_core_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBENV_KERNELBENCH", str(tmp_path / "none"))
    assert load_problem("core/level1/relu").name == "relu"
    assert list_problems("core/level1/*")
    assert "found no such folder" in refusal("kernelbench/level1/19")
    with pytest.raises(ProblemNotFoundError, match="KBENV_KERNELBENCH or --problems-dir"):
        list_problems("*")


def test_a_folder_without_problems_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(ProblemNotFoundError, match="found no level"):
        list_problems("kernelbench/*", problems_dir=tmp_path)


def test_two_files_of_one_number_are_refused(checkout: Path) -> None:
    (checkout / "KernelBench" / "level1" / "19_Other.py").write_text(PLAIN)
    with pytest.raises(ProblemNotFoundError, match="two files are kernelbench/level1/19"):
        list_problems("kernelbench/*", problems_dir=checkout)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("core/level1/rleu", "did you mean core/level1/relu"),
        ("relu", "did you mean core/level1/relu?"),
        ("core/level9/nothing-like-it", "kbenv problems list"),
        ("", "kbenv problems list"),
        ("kernelbench/level1/19", "set KBENV_KERNELBENCH to its folder, or give --problems-dir"),
    ],
)
def test_an_unknown_id_says_what_to_do(name: str, says: str) -> None:
    assert says in refusal(name)


@pytest.mark.parametrize("pattern", ["core/levle1/*", "core/*,nothing/*", "", " , "])
def test_a_pattern_that_matches_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ProblemNotFoundError):
        list_problems(pattern)


def test_nothing_is_imported_that_is_heavy() -> None:
    script = (
        "import sys; from kbenv.problems import list_problems; list_problems('core/*'); "
        "print([name for name in ('torch', 'litellm') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_path_is_its_own_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absolute = write(tmp_path / "mine.py")
    write(tmp_path / "no_suffix")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        absolute,
        "mine.py",
        "./mine.py",
        "no_suffix",
        "./no_suffix",
        "~/mine.py",
        f"../{tmp_path.name}/mine.py",
    ):
        problem = load_problem(name)
        assert (problem.id, problem.level, problem.source) == (name, None, PLAIN)
    assert load_problem("./mine.py").name == "mine"
    assert [problem.id for problem in list_problems("core/level1/relu,./mine.py")] == ["core/level1/relu", "./mine.py"]


def test_an_id_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core" / "level1" / "relu").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert load_problem("core/level1/relu").name == "relu"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xef\xbb\xbf" + PLAIN.encode(), id="byte order mark"),
        pytest.param(PLAIN.replace("\n", "\r\n").encode(), id="CRLF"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(), id="both"),
        pytest.param(PLAIN.replace("\n", "\r").encode(), id="CR"),
    ],
)
def test_line_endings_and_byte_order_mark_are_accepted(tmp_path: Path, content: bytes) -> None:
    assert load_problem(write(tmp_path / "p.py", content)).source == PLAIN


@pytest.mark.parametrize(
    "source",
    [
        PLAIN.replace("class Model(torch.nn.Module)", "if True:\n  class Model(torch.nn.Module)").replace(
            "    def forward(self, x):\n        return", "    def forward(self, x):\n          return"
        ),
        "from somewhere import Model, get_inputs as get_inputs\nget_init_inputs = lambda: []\n",
        "try:\n  from a import Model, get_inputs\nexcept ImportError:\n  pass\nget_init_inputs: object = list\n",
    ],
)
def test_names_count_wherever_the_module_binds_them(tmp_path: Path, source: str) -> None:
    assert load_problem(write(tmp_path / "p.py", source)).source == source


def test_the_source_is_never_executed(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    name = write(tmp_path / "p.py", f"open({str(witness)!r}, 'w')\nraise SystemExit(3)\n" + SOURCE)
    load_problem(name).source_for("cpu")
    assert not witness.exists()


def test_the_parser_s_warnings_are_not_shown(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    load_problem(write(tmp_path / "p.py", SOURCE + 'PATTERN = "\\d"\n')).source_for("cpu")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF\0\0", "found a binary file"),
        (b"x = '\xff'\n", "expected UTF-8 text, found byte 0xff at offset 5"),
        (b"#" * (MAX_SOURCE_BYTES + 1), f"at most {MAX_SOURCE_BYTES} bytes, found {MAX_SOURCE_BYTES + 1}"),
        (PLAIN + "def (:\n", f"not valid Python: line {LAST_LINE + 1}:"),
        ("(" * 3000 + ")" * 3000, "not valid Python"),
        ("-" * 200_000 + "1", "nested too deeply"),
        ("", "found no Model, no get_inputs, no get_init_inputs"),
        (PLAIN.replace("class Model(", "class Net("), "found no Model"),
        (PLAIN.replace("def get_init_inputs", "def init_inputs"), "found no get_init_inputs"),
        ("class Model:\n  def get_inputs(self): ...\n  def get_init_inputs(self): ...\n", "found no get_inputs"),
    ],
)
def test_what_is_no_problem_file_is_refused_in_one_line(tmp_path: Path, content: str | bytes, says: str) -> None:
    message = refusal(write(tmp_path / "p.py", content))
    assert says in message
    assert "p.py" in message


def test_paths_that_hold_no_file_are_refused_in_one_line(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "none.py")).endswith("no such file")
    assert "found a directory" in refusal(str(tmp_path))
    assert "NUL" in refusal("/tmp/a\0b.py")
    assert "cannot be read" in refusal("/" + "x" * 300 + ".py")
    assert refusal("~no-such-user-here/p.py")
    os.mkfifo(tmp_path / "fifo.py")
    assert "no regular file" in refusal(str(tmp_path / "fifo.py"))
    write(tmp_path / "p.py")
    assert "cannot be read" in refusal(str(tmp_path / "p.py" / "q.py"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    name = write(tmp_path / "p.py")
    os.chmod(name, 0)
    assert "Permission denied" in refusal(name)


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_sizes_are_put_in_place_for_a_device(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path / "p.py", SOURCE))
    assert problem.sizes == {"gpu": {"N": 1000}, "cpu": {"N": 10}}
    assert problem.source_for("cpu") == PLAIN.replace("N = 1000  # elements", "N = 10")
    assert problem.source_for("cuda") == problem.source_for("cuda:1") == PLAIN.replace("  # elements", "")


def test_a_source_that_reads_its_table_keeps_it(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path / "p.py", SOURCE + 'LARGEST = SIZES["gpu"]["N"]\n'))
    assert 'SIZES = {"gpu"' in problem.source_for("cpu")
    assert "N = 10\n" in problem.source_for("cpu")


def test_a_file_without_sizes_is_left_as_it_is(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path / "p.py"))
    assert problem.sizes == {}
    assert problem.source_for("cpu") == PLAIN


def test_lines_are_counted_as_the_parser_counts_them(tmp_path: Path) -> None:
    source = "# a form feed\x0c and a line separator\u2028 here\nA: int = (\n    1\n)\n" + SOURCE.replace('"N"', '"A"')
    text = load_problem(write(tmp_path / "p.py", source)).source_for("cpu")
    assert text.split("\n")[:2] == ["# a form feed\x0c and a line separator\u2028 here", "A = 10"]
    assert "N = 1000  # elements" in text


@pytest.mark.parametrize("own", ["SIZES = [1, 2]", "SIZES = {N: 1}", 'SIZES = {"small": {"N": 1}}', "SIZES = {}"])
def test_a_constant_of_that_name_which_is_no_table_by_device_is_the_file_s_own(tmp_path: Path, own: str) -> None:
    problem = load_problem(write(tmp_path / "p.py", PLAIN + own + "\n"))
    assert problem.sizes == {}
    assert own in problem.source_for("cpu")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('{"gpu": {"N": 1}, "tpu": {"N": 1}}', "must map 'gpu' and 'cpu'"),
        ('{"gpu": {"N": 1}, "cpu": {"M": 1}}', "the same names in each"),
        ('{"gpu": {"N": "large"}}', "must map"),
        ('{"gpu": {"N": True}}', "must map"),
        ('{"gpu": [1]}', "must map"),
        ('{"gpu": {"M": 1}, "cpu": {"M": 2}}', "names M, which the file never assigns in a line of its own"),
    ],
)
def test_a_malformed_table_is_refused(tmp_path: Path, table: str, says: str) -> None:
    message = refusal(write(tmp_path / "p.py", PLAIN + f"SIZES = {table}\n"))
    assert f"line {LAST_LINE + 1}: SIZES" in message
    assert says in message


def test_a_constant_that_shares_its_line_is_not_rewritten_by_halves(tmp_path: Path) -> None:
    assert "in a line of its own" in refusal(
        write(tmp_path / "p.py", SOURCE.replace("N = 1000  # elements", "N = 1; M = 2"))
    )


def test_a_core_problem_may_have_hidden_cases_and_arguments_that_are_written_into() -> None:
    several, state = load_problem("core/level4/deviation_norm_any_shape"), load_problem("core/level4/streaming_moments")
    assert [case.role for case in several.cases].count("hidden") >= 3
    assert [case.role for case in several.cases].count("perf") == 1
    for case in several.cases:
        source = several.for_case(case.name).source_for("cuda")
        assert all(f"\n{name} = {size}\n" in source for name, size in case.constants.items())
    assert "COLUMNS = 4096\n" in several.source_for("cuda")
    assert not any(str(case.constants["COLUMNS"]) in several.source_shown("cuda") for case in several.cases[1:-1])
    assert state.contract.in_place == (0, 1)


def test_a_path_with_wildcards_names_the_files_that_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("p10.py", "p2.py", "other.py", "p[1].py"):
        (tmp_path / "mine" / name).write_text(SOURCE)
    listed = [problem.id for problem in list_problems("core/level1/softmax,mine/p?.py,mine/p*0.py,mine/p2.py")]
    assert listed == ["core/level1/softmax", "mine/p2.py", "mine/p10.py"]
    assert [problem.id for problem in list_problems("mine/p[1].py")] == ["mine/p[1].py"]  # a file of that very name
    with pytest.raises(ProblemNotFoundError, match=r"mine/z\*.py: no file matches"):
        list_problems("mine/z*.py")


def test_what_a_wildcard_matches_and_does_not_load_is_left_out_where_somebody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(SOURCE)
    (tmp_path / "wrong.py").write_text("x = 1\n")
    told: list[str] = []
    assert [problem.id for problem in list_problems("*.py", on_refused=told.append)] == ["right.py"]
    assert len(told) == 1
    assert told[0].startswith("wrong.py does not load, and is left out: wrong.py: found no Model")
    with pytest.raises(ProblemNotFoundError, match=r"wrong\.py: found no Model"):
        list_problems("*.py")
    with pytest.raises(ProblemNotFoundError, match=r"wrong\.py: found no Model"):  # it was named
        list_problems("right.py,wrong.py", on_refused=told.append)
    with pytest.raises(ProblemNotFoundError, match=r"nothing that matches 'w\*\.py' loads"):
        list_problems("w*.py", on_refused=told.append)
