"""Code is found in answers as models write them, and nothing that is not code is taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbenv.extraction import extract_code, says_done

MODEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
OTHER = "import torch\n\ndef helper():\n    return 1\n"


def fenced(code: str, language: str = "python", fence: str = "```") -> str:
    return f"{fence}{language}\n{code}{fence}\n"


@pytest.mark.parametrize(
    "language", ["python", "Python", "py", "python3", "", "{.python}", "python title=a.py", "cuda"]
)
@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
def test_a_block_that_defines_model_new_is_found_whatever_its_fence(language: str, fence: str) -> None:
    assert extract_code(f"Here:\n\n{fenced(MODEL, language, fence)}\nDone.") == MODEL


def test_the_last_block_that_defines_model_new_wins() -> None:
    final = MODEL.replace("pass", "final = 1")
    assert extract_code(fenced(MODEL) + "better:\n" + fenced(final) + "use it:\n" + fenced(OTHER)) == final


def test_model_new_wins_over_a_later_python_block() -> None:
    assert extract_code(fenced(MODEL) + fenced(OTHER)) == MODEL


def test_without_model_new_the_last_python_block_is_taken() -> None:
    assert extract_code(fenced("a = 1\n") + fenced(OTHER) + fenced("output\n", "")) == OTHER


def test_an_unmarked_block_is_taken_when_there_is_no_other() -> None:
    assert extract_code("x\n" + fenced("a = 1\n", "")) == "a = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot do this.",
        "The class ModelNew is hard to write.",
        fenced("int main() { return 0; }\n", "cpp"),
        fenced("$ make\n", "bash"),
        fenced("", "python"),
        fenced("   \n\n", "python"),
        "```",
        "```python\nimport torch\n",
        "<think>\n" + fenced(MODEL) + "</think>\nSorry.",
        "<think>\n" + fenced(MODEL),
        "  \n<think>" + fenced(MODEL),
        "drafting\n" + fenced(MODEL) + "</think>\nSorry.",
    ],
)
def test_what_holds_no_code_gives_none(text: str) -> None:
    assert extract_code(text) is None


def test_reasoning_is_ignored() -> None:
    draft = MODEL.replace("pass", "draft = 1")
    assert extract_code(f"<think>\n{fenced(draft)}\n</think>\n\n{fenced(MODEL)}") == MODEL
    assert extract_code(f"{fenced(MODEL)}\n<think>\n{fenced(draft)}\n</think>\n") == MODEL


def test_reasoning_whose_fence_is_never_closed_does_not_swallow_the_answer() -> None:
    assert extract_code(f"<think>\n```python\nclass ModelNew(\n</think>\n{fenced(MODEL)}") == MODEL


def test_reasoning_opened_by_the_chat_template_is_ignored() -> None:
    draft = MODEL.replace("pass", "draft = 1")
    assert extract_code(f"so let me see\n{fenced(draft)}good.</think>\n{fenced(MODEL)}") == MODEL
    assert extract_code(f"so let me see\n```python\n{draft}\n</think>\n{fenced(MODEL)}") == MODEL


def test_the_word_think_in_code_or_prose_is_no_reasoning() -> None:
    code = MODEL + "# <think> about this </think>\n"
    assert extract_code(fenced(code)) == code
    assert extract_code(f"No <think> needed.\n{fenced(MODEL)}") == MODEL


def test_an_answer_cut_off_inside_its_last_block_is_taken() -> None:
    assert extract_code("Here:\n```python\n" + MODEL + "    def forward(self") == MODEL + "    def forward(self\n"


def test_a_block_that_was_not_closed_ends_where_the_next_python_block_begins() -> None:
    assert extract_code("```python\nx = 1\n\nthen\n\n" + fenced(MODEL)) == MODEL


def test_bare_python_is_taken() -> None:
    assert extract_code(MODEL) == MODEL


def test_bare_python_followed_by_a_stray_fence_is_taken() -> None:
    assert extract_code(MODEL + "```\nThis kernel is fast.") == MODEL


def test_bare_python_does_not_keep_the_done_mark() -> None:
    assert extract_code(MODEL + "<done/>\n") == MODEL


def test_a_longer_fence_may_hold_shorter_ones() -> None:
    code = MODEL + '"""\n```python\nexample()\n```\n"""\n'
    assert extract_code(fenced(code, fence="````")) == code


def test_a_block_that_quotes_markdown_is_looked_into() -> None:
    assert extract_code(fenced("text\n" + fenced(MODEL) + "more\n", "markdown", "````")) == MODEL


def test_a_tilde_block_may_hold_backticks() -> None:
    code = MODEL + "# ```\n"
    assert extract_code(fenced(code + "```\n", fence="~~~")) == code + "```\n"


def test_line_ends_and_byte_order_mark_are_normalised() -> None:
    assert extract_code("\ufeff" + fenced(MODEL).replace("\n", "\r\n")) == MODEL
    assert extract_code(fenced(MODEL).replace("\n", "\r")) == MODEL
    assert extract_code("\ufeff" + MODEL) == MODEL


def test_an_indented_block_is_dedented_by_its_fence() -> None:
    text = "1. Like this:\n\n" + "".join(f"   {line}\n" for line in fenced(MODEL).splitlines())
    assert extract_code(text) == MODEL


def test_code_less_indented_than_its_fence_is_kept() -> None:
    assert extract_code("    ```python\n" + MODEL + "    ```\n") == MODEL


def test_unicode_in_code_is_kept_and_lone_surrogates_are_replaced() -> None:
    assert extract_code(fenced(MODEL + "# é漢🙂\u2028\x0c\n")) == MODEL + "# é漢🙂\u2028\x0c\n"
    assert extract_code(fenced(MODEL + "# \ud800\n")) == MODEL + "# \ufffd\n"


def test_a_comment_or_a_longer_name_is_no_definition() -> None:
    final = fenced("# class ModelNew(nn.Module):\nclass ModelNewest(object): pass\n")
    assert extract_code(fenced(MODEL) + final) == MODEL


@pytest.mark.parametrize(
    "text", ["<done/>", "I am done. <done/>", f"{fenced(MODEL)}\n<done/>", f"<done/>\n{fenced(MODEL)}"]
)
def test_done_is_heard_outside_of_the_code(text: str) -> None:
    assert says_done(text)


@pytest.mark.parametrize(
    "text",
    ["", "done", fenced(MODEL), fenced(MODEL + "# <done/>\n"), f"<think>or <done/>?</think>\n{fenced(MODEL)}"],
)
def test_done_in_code_or_reasoning_is_not_heard(text: str) -> None:
    assert not says_done(text)


pieces = st.sampled_from(
    [
        "```", "````", "~~~", "```python", "```markdown", "<think>", "</think>", "<done/>", "class ModelNew:", "\n",
        "\r", " ", "\t", "\ufeff", "x = 1", "\ud800", "`",
    ]
)  # fmt: skip


@given(st.text(st.characters(exclude_categories=())) | st.lists(pieces, max_size=40).map("".join))
def test_no_text_raises_and_what_is_found_is_source(text: str) -> None:
    code = extract_code(text)
    says_done(text)
    if code is not None:
        assert code.strip()
        assert code.endswith("\n")
        code.encode()


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="`~<\r")))
def test_a_plain_block_comes_back_as_written(comment: str) -> None:
    code = MODEL + f'"""{comment}"""\n'
    assert extract_code(f"Answer:\n{fenced(code)}") == code


def test_long_text_takes_linear_time() -> None:
    assert extract_code("<think>\n```python\n</think>\n" * 30_000 + fenced(MODEL)) == MODEL
    assert extract_code("```python\nx = 1\n" * 30_000 + fenced(MODEL)) == MODEL
