"""What PyTorch's `load` and `load_inline` ask of the judge, and when they build in the submission's own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbenv.sandbox.runner.extension import _parse

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = r"""
import json, os, socket, subprocess, sys, threading
sys.path.insert(0, sys.argv[1])
os.environ["MAX_JOBS"] = "1"
import torch
from kbenv.sandbox.judge import build as judge
from kbenv.sandbox.runner.extension import Extensions
from kbenv.sandbox.runner.error import describe_error
from kbenv.sandbox.wire import Channel, ClosedError, pair

folder = os.getcwd()
open("tiny.c", "w").write("int nothing;\n")
subprocess.run(["cc", "-shared", "-fPIC", "-o", "tiny.so", "tiny.c"], check=True)
ours, theirs = map(Channel, pair())
asked, answers = [], []

def serve():
    while True:
        try:
            message = ours.receive()
        except ClosedError:
            return
        asked.append(message["build"])
        kind = answers.pop(0) if answers else "library"
        descriptors = [os.open("tiny.so", os.O_RDONLY)] if kind == "library" else []
        ours.send({"built": kind, "text": "main.cpp:1:1: error: a word of the compiler"}, descriptors)

threading.Thread(target=serve, daemon=True).start()
extensions = Extensions(theirs)
extensions.install()
assert "torch.utils.cpp_extension" not in sys.modules
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load, load_inline

ran = []
cpp_extension._run_ninja_build = lambda folder, *_, **__: ran.append(folder)
plain = {"is_python_module": False, "build_directory": None}
found = {}

def case(title, function, *arguments, answer=None, **keywords):
    answers[:] = [answer] if answer else []
    before, here = len(asked), len(ran)
    error = None
    try:
        function(*arguments, **plain | keywords)
    except Exception as e:
        error = {"type": type(e).__name__, "text": str(e), "kind": describe_error(e)["kind"]}
    request = asked[before] if len(asked) > before else None
    accepted = None
    if request is not None:
        try:
            judge._read(request)
            accepted = True
        except judge._Declined as e:
            accepted = str(e)
    found[title] = {"request": request, "accepted": accepted, "here": len(ran) > here, "error": error}

SOURCE = "int f(int x) { return x; }"
case("inline", load_inline, "one", SOURCE, functions=["f"], extra_cflags=["-O3 -Wall", "-march=native"])
case("again", load_inline, "one", SOURCE, functions=["f"], extra_cflags=["-O3 -Wall", "-march=native"])
case("bare", load_inline, "bare", SOURCE, no_implicit_headers=True, extra_ldflags=["-lm", "-fopenmp"])
case("pch", load_inline, "pch", SOURCE, functions=["f"], use_pch=True)
case("plugin", load_inline, "plugin", SOURCE, extra_cflags=["-fplugin=/tmp/plugin.so"], answer="declined")
case("refused", load_inline, "refused", SOURCE, answer="refused")
open("part.cpp", "w").write(SOURCE)
case("load", load, "loaded", ["part.cpp"])
open("mine.h", "w").write("")
open("with.cpp", "w").write('#include "mine.h"\n')
case("header", load, "header", ["with.cpp"])
case("embedded", load_inline, "embedded", f'__asm__(".incbin \\"x\\""); const char *p = "{folder}/mine.h";')
case("latin", load, "latin", [open("latin.cpp", "wb").write(b"// \xe9\n") and "latin.cpp"])
case("long", load_inline, "long", "//" + "x" * 400_000)
os.environ["CPATH"] = folder
case("environment", load_inline, "environment", SOURCE)
del os.environ["CPATH"]
thread = threading.Thread(target=case, args=("thread", load_inline, "thread", SOURCE))
thread.start(); thread.join()

os.makedirs("cuda/bin"); os.makedirs("cuda/lib64"); os.makedirs("cuda/include")
os.symlink("/bin/true", "cuda/bin/nvcc")
open("cuda/bin/nvcc2", "w").close()
cpp_extension.CUDA_HOME = folder + "/cuda"
os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
KERNEL = "__global__ void k() {}"
case("cuda", load_inline, "cuda_one", SOURCE, KERNEL, functions=["f"], extra_cuda_cflags=["-O3", "--use_fast_math"])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("extensions")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "TORCH_NO_COMPILER_WRAPPER": "1",
                   "TORCH_EXTENSIONS_DIR": str(folder / "built"), "OMP_NUM_THREADS": "1"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_sources_are_those_that_pytorch_writes(found):
    (source,) = found["inline"]["request"]["sources"]
    assert source["name"] == "main.cpp"
    assert source["text"].startswith("#include <torch/extension.h>\nint f(int x)")
    assert 'm.def("f", torch::wrap_pybind_function(f), "f");' in source["text"]
    assert found["bare"]["request"]["sources"][0]["text"] == "int f(int x) { return x; }"


def test_the_flags_are_those_that_pytorch_gives(found):
    request = found["inline"]["request"]
    assert {"-DTORCH_EXTENSION_NAME=one", "-fPIC", "-O3", "-Wall", "-march=native"} <= set(request["cflags"])
    assert {"-shared", "-ltorch", "-lc10"} <= set(request["ldflags"])
    assert request["ldflags"].count("-ltorch") == 1
    assert {"-lm", "-fopenmp"} <= set(found["bare"]["request"]["ldflags"])


@pytest.mark.parametrize("title", ["inline", "bare", "pch", "load", "refused"])
def test_what_pytorch_asks_for_is_taken_by_the_judge(found, title):
    assert found[title]["accepted"] is True
    assert not found[title]["here"]


def test_an_extension_that_is_loaded_already_is_not_asked_for_again(found):
    assert found["again"]["request"] is None
    assert found["again"]["error"] is None


def test_a_declined_request_is_built_as_pytorch_does(found):
    assert found["plugin"]["accepted"] == "a flag that is not known: -fplugin=/tmp/plugin.so"
    assert found["plugin"]["here"]


def test_a_refusal_reads_as_pytorchs_own(found):
    error = found["refused"]["error"]
    assert error["type"] == "RuntimeError"
    assert error["text"].startswith("Error building extension 'refused': main.cpp:1:1: error:")
    assert error["kind"] == "compile"


@pytest.mark.parametrize("title", ["header", "embedded", "latin", "long", "environment", "thread"])
def test_what_is_unusual_is_built_here_unasked(found, title):
    assert found[title]["request"] is None
    assert found[title]["here"]


def test_cuda_sources_come_with_nvccs_flags(found):
    request = found["cuda"]["request"]
    assert request["nvcc"].endswith("cuda/bin/nvcc")
    assert {"-gencode=arch=compute_90,code=sm_90", "-O3", "--use_fast_math"} <= set(request["cuda_cflags"])
    assert [source["cuda"] for source in request["sources"]] == [False, True]
    assert found["cuda"]["accepted"] is True


NINJA = """ninja_required_version = 1.3
cxx = c++
cflags = -DTORCH_EXTENSION_NAME=x -fPIC
post_cflags =
ldflags = -shared

rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags

rule link
  command = $cxx $in $ldflags -o $out

build main.o: compile /a$ b/main.cpp

build x.so: link main.o

default x.so
"""


def test_a_build_file_is_read():
    rules = _parse(NINJA)
    assert rules is not None
    assert rules["build"] == [("main.o", "compile", "/a b/main.cpp")]
    assert rules["ldflags"] == "-shared"


@pytest.mark.parametrize(
    ("known", "other"),
    [("$cflags -c", "$cflags -v -c"), ("post_cflags =", "post_cflags = -O3"), ("-shared", "-shared $more"),
     (": compile", ": translate"), ("ldflags", "flags")],
)  # fmt: skip
def test_a_build_file_of_another_form_is_not_understood(known, other):
    assert known in NINJA
    assert _parse(NINJA.replace(known, other)) is None
