"""Answers in the shapes that models and their services really give, each with the source that is meant."""

from __future__ import annotations

import json
import time

import pytest

from kbenv.agents import Completion
from kbenv.extraction import extract_code, says_done

CODE = '''\
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
torch::Tensor relu(torch::Tensor x) { return x.clamp_min(0); }
"""
extension = load_inline("relu", SOURCE, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
'''
DRAFT = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    draft = True\n"
BLOCK = f"```python\n{CODE}```"
DRAFT_BLOCK = f"```python\n{DRAFT}```"
JSON = json.dumps({"code": CODE})
CALL = json.dumps({"name": "submit_source", "arguments": {"source": CODE}})
QUOTED = "\n".join(f"> {line}".rstrip() for line in BLOCK.split("\n"))
WITH_DOCSTRING = CODE + '\n\ndef use():\n    """Use it like this:\n\n```python\nModelNew()(x)\n```\n"""\n'

SHAPES = {
    "the block alone": BLOCK,
    "prose around it": f"Here is my kernel.\n\n{BLOCK}\n\nIt fuses everything into one pass.",
    "headings and lists": f"## Analysis\n\n1. Bound by memory.\n\n## Solution\n\n{BLOCK}\n\n### Notes\n- fast\n",
    "no language": BLOCK.replace("```python", "```"),
    "py": BLOCK.replace("```python", "```py"),
    "a capital": BLOCK.replace("```python", "```Python"),
    "a file name in the info string": BLOCK.replace("```python", '```python title="model_new.py"'),
    "a language in braces": BLOCK.replace("```python", "```{.python .numberLines}"),
    "marked as C++": BLOCK.replace("```python", "```cpp"),
    "marked as text": BLOCK.replace("```python", "```text"),
    "tildes": BLOCK.replace("```", "~~~"),
    "four backticks": BLOCK.replace("```", "````"),
    "a draft, then the final version": f"First try:\n{DRAFT_BLOCK}\nThis reads twice. Better:\n{BLOCK}\n",
    "the answer, then how to use it": f"{BLOCK}\n\nUsage:\n\n```python\nmodel = ModelNew()\nprint(model(x))\n```\n",
    "the answer, then a shell command": f"{BLOCK}\n\n```bash\npip install ninja\n```\n",
    "the kernel apart, then the whole": f"The kernel:\n```cpp\nint main() {{ return 0; }}\n```\nThe module:\n{BLOCK}",
    "reasoning in think tags": f"<think>\nMaybe:\n{DRAFT_BLOCK}\nNo.\n</think>\n\n{BLOCK}",
    "reasoning that the template opened": f"Maybe:\n{DRAFT_BLOCK}\nNo.\n</think>\n\n{BLOCK}",
    "reasoning with a fence left open": f"<think>\n```python\n{DRAFT}\nhm, no\n</think>\n{BLOCK}",
    "reasoning twice": f"<think>a</think>\n<think>\n{DRAFT_BLOCK}\n</think>\n{BLOCK}",
    "thinking tags": f"<thinking>\n{DRAFT_BLOCK}\n</thinking>\n{BLOCK}",
    "reasoning tags": f"<reasoning>\n{DRAFT_BLOCK}\n</reasoning>\n<answer>\n{BLOCK}\n</answer>",
    "square brackets": f"[THINK]{DRAFT_BLOCK}\n[/THINK]{BLOCK}",
    "lozenges": f"◁think▷\n{DRAFT_BLOCK}\n◁/think▷\n{BLOCK}",
    "begin and end of thought": (
        f"<|begin_of_thought|>\n{DRAFT_BLOCK}\n<|end_of_thought|>\n\n<|begin_of_solution|>\n{BLOCK}\n<|end_of_solution|>"
    ),
    "channels": (
        f"<|channel|>analysis<|message|>\n{DRAFT_BLOCK}\n<|end|><|start|>assistant<|channel|>final<|message|>{BLOCK}"
        "<|return|>"
    ),
    "an end mark of the template": f"{BLOCK}\n<|im_end|>",
    "an end mark behind the fence": f"{BLOCK}<|eot_id|>",
    "bare Python": CODE,
    "bare Python and a stray fence": f"{CODE}```\n",
    "between code tags": f"<code>\n{CODE}</code>\n",
    "prose, then between answer tags": f"This is fast.\n<answer>\n{CODE}\n</answer>\nGood luck!",
    "a file tag with a path": f'<file path="model_new.py">\n{CODE}\n</file>',
    "JSON": JSON,
    "JSON in a block": f"```json\n{json.dumps({'thoughts': 'fused', 'files': [{'content': CODE}]}, indent=2)}\n```",
    "a tool call as text": f"I will submit it.\n<tool_call>\n{CALL}\n</tool_call>",
    "Markdown in a block": f"````markdown\n# Answer\n\n{BLOCK}\n````\n",
    "in a list item": "1. The file:\n\n"
    + "\n".join(f"   {line}".rstrip() for line in BLOCK.split("\n"))
    + "\n2. Done.",
    "in a quotation": f"The final file:\n\n{QUOTED}\n",
    "the fence behind the text": f"Here is the code: {BLOCK}",
    "the closing fence behind the code": f"```python\n{CODE.rstrip()}```\n",
    "never closed": f"```python\n{CODE}",
    "cut off in a second version": f"{BLOCK}\n\nBetter:\n\n```python\nclass ModelNew(nn.Module):\n    def forw",
    "started over without closing": f"```python\nimport torch\nclass Mod\n\nLet me start over.\n\n{BLOCK}",
    "CRLF": f"Here:\n\n{BLOCK}\n".replace("\n", "\r\n"),
    "a byte order mark": f"\ufeff{BLOCK}",
    "done": f"{BLOCK}\n\n<done/>\n",
    "Chinese": f"下面是融合后的实现：\n\n{BLOCK}\n\n它只读一次内存。",
}

NONE = {
    "an apology": "I'm sorry, but I can't help with that.",
    "nothing": "",
    "blank": " \n\n\t",
    "only done": "<done/>",
    "reasoning that was cut off": f"<think>\nMaybe this:\n{DRAFT_BLOCK}\nOr rather",
    "a patch": "```diff\n--- a/model.py\n+++ b/model.py\n@@ -1 +1 @@\n-class ModelNew(nn.Module):\n+x\n```",
    "CUDA alone": "```cuda\n__global__ void relu(float *x) {}\n```",
    "a plan": "1. Read x.\n2. Define class ModelNew with a fused kernel.\n3. Profile.",
    "a broken tool call": '<tool_call>{"name": "submit_source", "arguments": {"source": "class ModelNew(</tool_call>',
    "a question": "Should ModelNew keep the weights' names?",
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_source_that_is_meant_is_found(name: str) -> None:
    assert extract_code(SHAPES[name]) == CODE


@pytest.mark.parametrize("name", NONE)
def test_no_source_is_found_where_none_is(name: str) -> None:
    assert extract_code(NONE[name]) is None


def test_there_are_at_least_thirty_shapes() -> None:
    assert len(SHAPES) >= 30


def test_an_example_in_a_docstring_does_not_end_the_block() -> None:
    assert extract_code(f"```python\n{WITH_DOCSTRING}```\nDone.") == WITH_DOCSTRING


def test_a_name_that_is_assigned_counts_as_defined() -> None:
    code = "import torch\n\nFused = torch.nn.ReLU\nModelNew = Fused\n"
    assert extract_code(f"```python\n{code}```\n```python\nprint(ModelNew())\n```") == code


@pytest.mark.parametrize(
    "text",
    [
        "<code>\n" * 100_000 + CODE,
        "<tool_call>{" * 80_000 + "ModelNew",
        ": " * 500_000 + "```js",
        "x" * 1_000_000 + "```python",
        '```python\n"""\n```\n' * 50_000,
        "<|channel|>analysis" * 50_000 + "<|channel|>final<|message|>" + BLOCK,
        "[THINK]" * 100_000 + "[/THINK]" + BLOCK,
        "> ```python\n" * 100_000,
        '{"a": ' * 100_000 + "ModelNew",
        "sorry " * 200_000,
    ],
)
def test_no_answer_takes_long(text: str) -> None:
    started = time.process_time()
    extract_code(text)
    says_done(text)
    _ = Completion(text).outcome
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("text", "finish_reason", "outcome"),
    [
        (BLOCK, "stop", "answered"),
        (BLOCK, None, "answered"),
        ("<done/>", "stop", "answered"),
        (f"Sorry for the wait. {BLOCK}", "stop", "answered"),
        ("I'm sorry, but I can't help with that.", "stop", "refused"),
        ("I cannot assist with writing GPU kernels.", "stop", "refused"),
        ("As an AI, I must decline.", "stop", "refused"),
        ("No.", "refusal", "refused"),
        ("", "stop", "empty"),
        (" \n", "stop", "empty"),
        ("```python\nclass ModelNew", "length", "cut-off"),
        ("", "length", "cut-off"),
        ("", "content_filter", "filtered"),
    ],
)
def test_every_answer_has_its_outcome(text: str, finish_reason: str | None, outcome: str) -> None:
    assert Completion(text=text, finish_reason=finish_reason).outcome == outcome
