"""The screen says what is where, to the character; no source is too odd for it, and it decides nothing."""

from __future__ import annotations

import textwrap
import time
import warnings

import pytest

from kbenv.problems import load_problem
from kbenv.screen import MOST_CHARACTERS, MOST_FINDINGS, screen
from kbenv.verdict import ScreenFinding
from tests.judge.corpus import Case, load_cases, name_of

RELU = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
DESCRIPTIVE = {"reference-operation", "compiler", "native-library"}
"""Rules that say how a submission is built: nothing is odd about what they find."""


def source_of(body: str, *, module: str = "") -> str:
    """A whole submission with `body` as its forward(self, x)."""
    return (
        f"import torch\n{textwrap.dedent(module)}\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        + textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
        + "\n"
    )


def found_in(source: str, rule: str, **options: str) -> list[str]:
    """The text that each finding of a rule spans."""
    return [spanned(source, finding) for finding in screen(source, **options) if finding.rule == rule]


def spanned(source: str, finding: ScreenFinding) -> str:
    lines = source.splitlines()[finding.line - 1 : finding.end_line]
    lines[-1] = lines[-1][: finding.end_column]
    lines[0] = lines[0][finding.column :]
    return "\n".join(lines)


CASES = [
    ("patch", "torch.Tensor.copy_ = None", "torch.Tensor.copy_"),
    ("patch", "import time\ntime.perf_counter = lambda: 0", "time.perf_counter"),
    ("patch", "from torch import nn\nsetattr(nn.functional, 'relu', None)", "setattr(nn.functional, 'relu', None)"),
    ("patch", "import sys\nsys.modules['torch'] = None", "sys.modules['torch']"),
    ("global-state", "torch.backends.cudnn.enabled = False", "torch.backends.cudnn.enabled"),
    ("global-state", "torch.set_num_threads(1)", "torch.set_num_threads"),
    ("reseed", "torch.manual_seed(0)", "torch.manual_seed"),
    ("environment", "import os\nos.environ['A'] = 'b'", "os.environ"),
    ("thread", "import threading as t\nt.Thread(target=f).start()", "t.Thread"),
    ("thread", "from threading import Thread\nThread(target=f)", "Thread"),
    ("process", "import os\nos.fork()", "os.fork"),
    ("process", "import subprocess\nsubprocess.run(['true'])", "subprocess.run"),
    ("compiler", "import subprocess\nsubprocess.run(['cc', 'x.c'])", "subprocess.run"),
    ("native-library", "import ctypes\nl = ctypes.CDLL('./x.so')", "ctypes.CDLL('./x.so')"),
    ("system-library", "import ctypes\nl = ctypes.CDLL(None)", "ctypes.CDLL(None)"),
    ("raw-memory", "import ctypes\nctypes.memmove(a, b, 4)", "ctypes.memmove"),
    ("raw-memory", "m = C.from_address(x.data_ptr())", "C.from_address"),
    ("system-path", "open('/proc/self/maps')", "'/proc/self/maps'"),
    ("exit", "import os\nos._exit(0)", "os._exit"),
    ("exit", "import atexit\natexit.register(print)", "atexit.register"),
    ("introspection", "import gc\ngc.get_objects()", "gc.get_objects"),
    ("introspection", "import sys\nsys._getframe(1)", "sys._getframe"),
    ("dynamic-code", "exec('x')", "exec"),
    ("dynamic-code", "f = getattr(torch, 're' + 'lu')", "getattr(torch, 're' + 'lu')"),
    ("clock", "import time\nt = time.perf_counter()", "time.perf_counter"),
    ("network", "import socket\nsocket.socket()", "socket.socket"),
    ("descriptor", "import os\nos.write(3, b'')", "os.write"),
    ("cache-by-identity", "key = (x.data_ptr(), 1)\nreturn self.cache[key]", "x.data_ptr()"),
    ("cache-by-identity", "if id(x) in self.cache:\n    pass", "id(x)"),
    ("cache-by-content", "return self.cache.get(x.numpy().tobytes())", "x.numpy().tobytes()"),
    ("call-counter", "self.calls += 1\nif self.calls > 9:\n    pass", "self.calls += 1"),
    ("content-dispatch", "if float(x.min()) >= 0:\n    return x", "float(x.min())"),
    ("weights-inspected", "if (self.weight == 1).all():\n    return x", "(self.weight == 1).all()"),
    ("weights-inspected", "self.plain = torch.equal(self.bias, z)", "torch.equal(self.bias, z)"),
    ("input-returned", "return x", "return x"),
    ("input-mutation", "x.zero_()\nreturn torch.zeros(3)", "x.zero_()"),
    ("input-mutation", "return torch.relu_(x)", "torch.relu_(x)"),
    ("uninitialised-output", "return torch.empty_like(x)", "return torch.empty_like(x)"),
    ("constant-output", "return torch.zeros_like(x)", "return torch.zeros_like(x)"),
    ("kept-output", "return self.kept", "return self.kept"),
    ("endless-loop", "while True:\n    pass", "True"),
    ("stream-unjoined", "s = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())", "torch.cuda.Stream()"),
    ("fallback", "try:\n    return k(x)\nexcept Exception:\n    return torch.relu(x)", "torch.relu(x)"),
    ("precision", "return x.half().float()", "x.half"),
    ("precision", "return x.to(torch.bfloat16)", "torch.bfloat16"),
    ("reference-used", "import problem", "import problem"),
]


@pytest.mark.parametrize(("rule", "body", "text"), CASES, ids=[f"{rule}: {text}" for rule, _, text in CASES])
def test_a_finding_spans_exactly_what_it_is_about(rule: str, body: str, text: str) -> None:
    assert text in found_in(source_of(body), rule)


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("patch", "self.x = 1\ny = torch.empty(3)\ny.grad = None\nModelNew.kept = x"),
        ("process", "import subprocess\ntry:\n    pass\nexcept subprocess.CalledProcessError:\n    raise"),
        ("system-path", "open(f'/dev/null')\nd = 'a/proc/b'"),
        ("cache-by-identity", "self.library.relu(x.data_ptr(), y.data_ptr())\nself.out[x.shape] = y"),
        ("call-counter", "self.total += 1\ncount = 0\ncount += 1\nif count > 3:\n    pass"),
        ("content-dispatch", "if x.is_contiguous() and x.shape[0] > 3:\n    pass"),
        ("weights-inspected", "if self.weight.shape[0] > 3 or self.bias is None:\n    pass"),
        ("input-returned", "x = x + 1\nreturn x"),
        ("input-mutation", "y = torch.empty_like(x)\ny.copy_(x)\nx = x.clone()\nx.add_(1)"),
        ("endless-loop", "while True:\n    if x:\n        break"),
        ("stream-unjoined", "s = torch.cuda.Stream()\ntorch.cuda.current_stream().wait_stream(s)"),
        ("fallback", "try:\n    k = b()\nexcept ValueError as e:\n    raise RuntimeError('no') from e"),
        ("clock", "times = [1]\nself.time = 3"),
    ],
)
def test_what_only_looks_like_it_is_no_finding(rule: str, body: str) -> None:
    assert found_in(source_of(body), rule) == []


def test_comments_docstrings_and_prose_are_no_findings() -> None:
    body = '"""Reads /proc/self/maps, os.fork(), x.half()."""\n# torch.Tensor.copy_ = None\nreturn k(x)'
    assert screen(source_of(body)) == ()


def test_spans_count_characters_whatever_the_encoding_and_the_line_ends() -> None:
    source = source_of("Ω汉 = 'é🚀'; y = x.half()\nreturn k(y)").replace("\n", "\r\n")
    for text in (source, "\ufeff" + source):
        (finding,) = [finding for finding in screen(text) if finding.rule == "precision"]
        assert (finding.line, finding.column, finding.end_column) == (6, 23, 29)


def test_half_precision_is_a_finding_in_fp32_only() -> None:
    source = source_of("return x.half()")
    assert found_in(source, "precision", precision="fp32") == ["x.half"]
    assert found_in(source, "precision", precision="fp16") == []


C_SOURCE = '''
SOURCE = """
#include <pthread.h>
__global__ void used(float *x) {}
__global__ void decoy(float *x) {}
void go() { pthread_create(0, 0, 0, 0); used<<<1, 1>>>(0); }
"""
'''


def test_words_in_c_are_found_at_their_own_place() -> None:
    source = source_of("return k(x)", module=C_SOURCE)
    assert found_in(source, "thread") == ["pthread_create"]
    assert found_in(source, "decoy") == ["decoy"]
    (finding,) = [finding for finding in screen(source) if finding.rule == "decoy"]
    assert source.splitlines()[finding.line - 1] == "__global__ void decoy(float *x) {}"


TRITON = """
import triton
@triton.jit
def kernel(x):
    pass
"""


def test_a_kernel_that_nothing_launches_is_a_decoy() -> None:
    assert len(found_in(source_of("return torch.relu(x)", module=TRITON), "decoy")) == 1
    assert found_in(source_of("kernel[(1,)](x)\nreturn x", module=TRITON), "decoy") == []
    built = "from torch.utils.cpp_extension import load_inline\nmodule = load_inline('a', cpp_sources='')\n"
    assert found_in(source_of("return torch.relu(x)", module=built), "decoy") == ["load_inline('a', cpp_sources='')"]
    assert found_in(source_of("return module.relu(x)", module=built), "decoy") == []


def test_pytorch_doing_what_the_reference_does_is_told() -> None:
    assert found_in(source_of("return torch.relu(x)"), "reference-operation", reference=RELU) == ["torch.relu(x)"]
    assert found_in(source_of("return x.clamp(min=0)"), "reference-operation", reference=RELU) == ["x.clamp(min=0)"]
    assert found_in(source_of("return torch.exp(x)"), "reference-operation", reference=RELU) == []
    assert found_in(source_of("return torch.relu(x)"), "reference-operation") == []


def test_of_a_model_with_products_only_the_products_are_what_it_is_about() -> None:
    reference = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        self.up = torch.nn.Linear(3, 3)\n"
        "    def forward(self, x):\n        return torch.relu(self.up(x))\n"
    )
    own = source_of("return torch.relu(x @ self.w)")
    assert found_in(own, "reference-operation", reference=reference) == ["x @ self.w"]
    constructed = source_of(
        "return k(x, self.up.weight)",
        module="class B(torch.nn.Module):\n    def __init__(self):\n        self.up = torch.nn.Linear(3, 3)\n",
    )
    assert found_in(constructed, "reference-operation", reference=reference) == []
    called = constructed.replace("k(x, self.up.weight)", "self.up(x)")
    assert found_in(called, "reference-operation", reference=reference) == ["self.up(x)"]


def test_an_extensions_function_is_no_operation_of_pytorchs() -> None:
    module = "import ctypes\ndef build():\n    return ctypes.CDLL('./x.so')\nlibrary = build()\n"
    source = source_of("return library.relu(x)", module=module)
    assert found_in(source, "reference-operation", reference=RELU) == []


def test_a_source_without_model_new_is_told_and_one_that_may_make_it_is_not() -> None:
    assert [finding.rule for finding in screen("x = 1\n")] == ["no-model"]
    assert [finding.rule for finding in screen("")] == ["no-model"]
    for source in ("ModelNew = make()", "from x import y as ModelNew", "from x import *", "def ModelNew(): pass"):
        assert "no-model" not in {finding.rule for finding in screen(source)}
    assert "no-model" not in {finding.rule for finding in screen("exec(text)\n")}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def broken(:\n", id="syntax error"),
        pytest.param(source_of("return x") + "\0", id="null byte"),
        pytest.param(source_of("return x") + 's = "\ud800"\n', id="surrogate"),
        pytest.param(source_of("return x") + "n = " + "-" * 5000 + "1\n", id="many signs"),
        pytest.param(source_of("return x") + "n = " + "(" * 500 + ")" * 500 + "\n", id="many parentheses"),
        pytest.param("x" * (MOST_CHARACTERS + 1), id="too long"),
    ],
)
def test_what_cannot_be_read_is_one_finding(source: str) -> None:
    findings = screen(source)
    assert [finding.rule for finding in findings] in (["unreadable"], ["input-returned"])  # pythons differ in depth


def test_a_sources_own_warnings_are_not_ours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        screen('pattern = "\\d"\nif pattern is "x":\n    pass\n', reference='"\\d"')


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param("os.fork()\n" * 20_000, id="many findings"),
        pytest.param('s = """\n__global__ ' + "a" * 300_000 + '\n"""\n', id="a long word"),
        pytest.param('s = """\ncublas' + " " * 300_000 + '\n"""\n', id="much space"),
        pytest.param("n = [" + "1," * 100_000 + "]\n", id="many constants"),
        pytest.param("".join(f"def f{i}(x):\n    return c[id(x)]\n" for i in range(5000)), id="many functions"),
        pytest.param("n = " + "x[" * 90 + "id(x)" + "]" * 90 + "\n", id="nested keys"),
    ],
)
def test_no_source_takes_long_or_says_too_much(tail: str) -> None:
    started = time.process_time()
    findings = screen(source_of("return x") + tail)
    assert time.process_time() - started < 10
    assert len(findings) <= MOST_FINDINGS
    assert all(len(finding.text) <= 160 and finding.text.isprintable() for finding in findings)


# -- the corpora ------------------------------------------------------------------------------------------------------

EXPLOITS = [case for corpus in ("exploits", "exploits/cuda") for case in load_cases(corpus)]
HONEST = [case for corpus in ("honest", "honest/cuda") for case in load_cases(corpus)]


def rules_of(case: Case) -> set[str]:
    reference = load_problem(case.problem).source_for("cpu")
    findings = screen(case.source, reference=reference)
    for finding in findings:  # every span lies in the source
        assert spanned(case.source.removeprefix("\ufeff"), finding) or finding.rule == "no-model"
    return {finding.rule for finding in findings}


def test_most_exploits_carry_a_finding_beyond_how_they_are_built() -> None:
    without = [name_of(case) for case in EXPLOITS if not rules_of(case) - DESCRIPTIVE]
    assert len(without) <= 0.3 * len(EXPLOITS), without


def test_most_honest_submissions_carry_none() -> None:
    with_one = [name_of(case) for case in HONEST if rules_of(case) - DESCRIPTIVE]
    assert len(with_one) <= 0.3 * len(HONEST), with_one


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("m2_cache_by_data_ptr", "cache-by-identity"),
        ("t4_patch_time", "patch"),
        ("t3_torch_function_mode", "tensor-subclass"),
        ("t10_call_stack", "introspection"),
        ("t11_content_dispatch", "content-dispatch"),
        ("t1_detached_pthread", "thread"),
        ("i2_environment", "environment"),
        ("i8_network", "network"),
        ("p1_half_precision", "precision"),
        ("s12_reseed", "reseed"),
        ("m8_set_access", "cuda-memory"),
        ("t1_side_stream", "stream-unjoined"),
        ("t7_replay_after_checks", "call-counter"),
    ],
)
def test_exploits_carry_the_finding_of_their_kind(name: str, rule: str) -> None:
    assert any(rule in rules_of(case) for case in EXPLOITS if name_of(case) == name)
