"""Builds outside the submission's process: what is made, what is kept, what is refused, and that nothing leaks."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import sysconfig
from pathlib import Path

import pytest
import torch

from tests.builds import BuildServer, request

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a builder has a user of its own")

BINDING = """#include <torch/extension.h>
torch::Tensor relu(torch::Tensor x) { return torch::clamp_min(x, 0); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", torch::wrap_pybind_function(relu), "relu"); }
"""
ADD = 'extern "C" int add(int a, int b) { return a + b; }\n'
FAKE_NVCC = """#!/bin/sh
case "$1" in --version) echo "fake nvcc 1"; exit 0;; esac
slim=no
for word in "$@"; do
    case "$word" in -Islim*) slim=yes; folder="${word#-I}";; *.cu) source="$word";; esac
    [ "$before" = "-o" ] && target="$word"
    before="$word"
done
if [ $slim = yes ]; then
    [ -f "$folder/torch/extension.h" ] || { echo "error: no stand-in"; exit 1; }
    grep -q ALL_HEADERS "$source" && { echo "$source(1): error: slim headers are not enough"; exit 1; }
fi
grep -q NEVER "$source" && { echo "$source(1): error: refused with all headers"; exit 1; }
grep -v '#include' "$source" > plain.cpp
exec c++ -fPIC -c plain.cpp -o "$target"
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    (folder / "nvcc").write_text(FAKE_NVCC)
    (folder / "nvcc").chmod(0o755)
    for parent in (folder, folder.parent):
        parent.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory, tools):
    with BuildServer(tmp_path_factory.mktemp("builds"), tools=tools) as running:
        yield running


def load(library: bytes, folder: Path) -> ctypes.CDLL:
    path = folder / "library.so"
    path.write_bytes(library)
    return ctypes.CDLL(str(path))


def test_a_library_is_built_once_and_then_comes_from_the_cache(server, tmp_path):
    first, again = server.ask(request(ADD)), server.ask(request(ADD))
    assert load(first["library"], tmp_path).add(2, 3) == 5
    assert again["library"] == first["library"]
    assert (first["facts"]["compiled"], first["facts"]["from_cache"]) == (1, 0)
    assert (again["facts"]["compiled"], again["facts"]["from_cache"]) == (0, 1)
    assert first["left"] == again["left"] == []


def test_only_the_source_that_changed_is_compiled_again(server):
    other = 'extern "C" int subtract(int a, int b) { return a - b; }\n'
    assert server.ask(request(ADD, other))["facts"]["compiled"] == 1  # ADD is known as the first part already
    changed = server.ask(request(ADD, other + "// changed\n"))
    assert changed["built"] == "library"
    assert changed["facts"]["compiled"] == 1


@pytest.mark.parametrize(
    "change",
    [{"cflags": ["-fPIC", "-std=c++17", "-O3"]}, {"cflags": ["-fPIC", "-std=c++20"]}, {"name": "other"}],
    ids=["flags", "standard", "name"],
)
def test_whatever_goes_in_is_in_the_key(server, change):
    server.ask(request(ADD))
    assert server.ask(request(ADD, **change))["facts"]["from_cache"] == 0


def test_a_source_that_includes_another_one_is_compiled_again_when_that_changes(server, tmp_path):
    including = '#include "part1.cpp"\nextern "C" int value() { return VALUE; }\n'
    both = [server.ask(request(including, f"enum {{ VALUE = {n} }};\n"))["library"] for n in (1, 2)]
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert [load(library, folder).value() for library, folder in zip(both, folders, strict=True)] == [1, 2]


def test_two_extensions_of_one_name_do_not_meet(server, tmp_path):
    both = [server.ask(request(f'extern "C" int answer() {{ return {n}; }}\n'))["library"] for n in (1, 2)]
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    assert [load(library, folder).answer() for library, folder in zip(both, folders, strict=True)] == [1, 2]


def test_a_refusal_is_told_in_the_compilers_words_and_kept(server):
    broken = request("int broken( { return undeclared_name; }\n")
    first, again = server.ask(broken), server.ask(broken)
    assert first["built"] == again["built"] == "refused"
    assert "part0.cpp:1" in first["text"]
    assert again["text"] == first["text"]
    assert again["facts"]["from_cache"] == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["-fplugin=/tmp/plugin.so"], ["-wrapper", "/tmp/wrapper.sh"], ["@/etc/passwd"], ["-B/tmp"], ["-I/tmp"],
        ["-include", "/etc/passwd"], ["-Wp,-MD,/tmp/x"], ["-Wl,-z"], ["-specs=/tmp/specs"], ["-o", "elsewhere"],
        ["-save-temps"], ["-fdump-tree-all"], ["-I"], ["-isystem", "relative"], ["-DX=$(id)"], ["-x", "c"],
    ],
    ids=lambda flags: flags[0],
)  # fmt: skip
def test_a_flag_that_is_not_known_is_left_to_the_submission(server, flags):
    reply = server.ask(request(ADD, cflags=["-fPIC", *flags]))
    assert reply["built"] == "declined"
    assert "flag" in reply["facts"]["declined"][0]


@pytest.mark.parametrize(
    "change",
    [
        None, 7, [], {}, {"sources": []}, {"name": "../kernels"}, {"name": 5}, {"cxx": "/tmp/evil"}, {"cflags": "x"},
        {"cflags": [1]}, {"sources": [{"name": "../a.cpp", "object": "a.o", "cuda": False, "text": ""}]},
        {"sources": [{"name": "-a.cpp", "object": "a.o", "cuda": False, "text": ""}]},
        {"sources": [{"name": "a.cpp", "object": "/a.o", "cuda": False, "text": ""}]},
        {"sources": [{"name": "a.cpp", "object": "a.o", "cuda": False, "text": None}]},
        {"sources": [{"name": "a.cu", "object": "a.o", "cuda": True, "text": ""}]},
        {"nvcc": "/tmp/nvcc", "sources": [{"name": "a.cu", "object": "a.o", "cuda": True, "text": ""}]},
        {"ldflags": ["-shared", "-T", "/tmp/script"]}, {"ldflags": ["-shared", "-L/tmp"]},
        {"ldflags": ["-shared", "/etc/passwd"]}, {"ldflags": ["-shared", "-fuse-ld=/tmp/ld"]},
    ],
)  # fmt: skip
def test_a_request_of_another_form_is_declined(server, change):
    asked = request(ADD, **change) if isinstance(change, dict) and change else change
    assert server.ask(asked)["built"] == "declined"


def test_a_header_of_the_submissions_own_is_left_to_the_submission(server):
    assert server.ask(request('#include "mine.h"\n'))["built"] == "declined"


def test_a_source_that_asks_for_the_time_is_not_kept(server):
    assert server.ask(request('const char *when = __TIME__;\n'))["built"] == "declined"  # fmt: skip


def test_once_hidden_inputs_may_be_known_nothing_new_is_kept_nor_found(server):
    source = request(ADD + "// what is kept could tell the next job something\n")
    assert server.ask(source, closed=True)["built"] == "declined"
    assert server.ask(source)["facts"]["from_cache"] == 0
    assert server.ask(source, closed=True)["built"] == "declined"  # another job's


# -- what a builder may do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ['#include "{path}"\n', '__asm__(".section .rodata\\n.incbin \\"{path}\\"\\n");\n'])
def test_a_builder_reads_no_secret(server, way, tmp_path):
    secret = server.artifacts / "secret"
    secret.write_text("KBENV_SECRET_WORD\n")
    secret.chmod(0o600)
    try:
        for path in (secret, "/etc/shadow", "/proc/1/environ"):
            reply = server.ask(request(way.replace("{path}", str(path)) + f"// {path}\n"))
            assert reply["built"] in ("refused", "declined"), path
            assert "SECRET_WORD" not in str(reply)
            assert "root:" not in str(reply)
    finally:
        secret.unlink()


def test_an_endless_compilation_ends_in_time(server):
    endless = "template <int n> struct A { static constexpr long v = A<n - 1>::v + A<n - 2>::v + A<n - 3>::v; };\n"
    loop = "constexpr long spin() { long s = 0; for (long i = 0; i < 1L << 60; i++) s += i; return s; }\n"
    source = endless + loop + "constexpr long x = spin();\n"
    flags = ["-fPIC", "-std=c++17", "-fconstexpr-loop-limit=2147483647", "-fconstexpr-ops-limit=9223372036854775807"]
    reply = server.ask(request(source, cflags=flags), timeout_s=3.0)
    assert reply["error"] == "timeout"
    assert_healthy(server)


def test_a_compilation_that_needs_too_much_memory_is_out_of_memory(server):
    bomb = "template <int d, int w> struct T { T<d - 1, 2 * w> a; T<d - 1, 2 * w + 1> b; };\n"
    bomb += "template <int w> struct T<0, w> { int x; };\nT<22, 1> all;\n"
    reply = server.ask(request(bomb), host_memory_bytes=300 << 20)
    assert reply.get("error") == "memory", reply
    assert server.ask(request(bomb), host_memory_bytes=300 << 20).get("error") == "memory"  # and is not kept
    assert_healthy(server)


def test_an_output_without_measure_is_refused_and_not_kept(server):
    source = '__asm__(".data\\n.fill 400000000, 1, 7\\n");\n'
    for _ in range(2):
        reply = server.ask(request(source), file_bytes=64 << 20, scratch_bytes=128 << 20)
        assert reply["built"] in ("refused", "declined")
        assert reply["facts"]["from_cache"] == 0
    assert_healthy(server)


def test_what_a_compiler_says_without_end_is_bounded(server):
    reply = server.ask(request("".join(f"undeclared_type_{n} v{n};\n" for n in range(3000))))
    assert reply["built"] == "refused"
    assert len(reply["text"]) < 40_000


def assert_healthy(server: BuildServer) -> None:
    reply = server.ask(request(ADD + f"// {os.urandom(8).hex()}\n"))
    assert reply["built"] == "library"
    assert reply["left"] == []


@pytest.mark.corpus  # a minute of compiling
@pytest.mark.corpus_1
@pytest.mark.slow
def test_from_the_third_binding_on_headers_come_precompiled(tmp_path):
    include = Path(torch.__file__).parent / "include"
    folders = [include, include / "torch" / "csrc" / "api" / "include", sysconfig.get_path("include")]
    flags = ["-DTORCH_EXTENSION_NAME=kernels", "-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC", "-std=c++20"]
    flags += [word for folder in folders for word in ("-isystem", str(folder))]
    tmp_path.chmod(0o755)
    found, spent = [], [0.0]
    with BuildServer(tmp_path, max_bytes=4 << 30) as server:
        for number in range(4):
            text = f"#include <torch/extension.h>\n{BINDING}// {number}\n"
            reply = server.ask(request(text, cflags=flags), timeout_s=400.0)
            spent.append(reply["spent_s"])
            assert reply["built"] == "library", reply
            found.append(reply["facts"]["headers_precompiled"])
    assert found == [0, 0, 1, 0]
    seconds = [after - before for before, after in itertools.pairwise(spent)]
    assert 0 < seconds[3] < 0.75 * min(seconds[:2])


# -- CUDA, by a compiler that only plays one --------------------------------------------------------------------------


def cuda_request(tools: Path, text: str) -> dict:
    source = {"name": "cuda.cu", "object": "cuda.cuda.o", "cuda": True, "text": text}
    flags = ["-gencode=arch=compute_90,code=sm_90", "--compiler-options", "-fPIC", "-std=c++17"]
    return request(ADD, source, nvcc=str(tools / "nvcc"), cuda_cflags=flags)


def test_a_cuda_source_is_compiled_with_stand_ins_for_the_large_headers(server, tools, tmp_path):
    text = '#include <torch/extension.h>\nextern "C" int twice(int x) { return 2 * x; }\n'
    reply = server.ask(cuda_request(tools, text))
    assert load(reply["library"], tmp_path).twice(4) == 8
    assert (reply["facts"]["slim"], reply["facts"]["slim_failed"]) == (1, 0)


def test_where_stand_ins_are_not_enough_all_headers_are_taken(server, tools, tmp_path):
    text = '#include <torch/extension.h>\n// ALL_HEADERS\nextern "C" int thrice(int x) { return 3 * x; }\n'
    reply = server.ask(cuda_request(tools, text))
    assert load(reply["library"], tmp_path).thrice(4) == 12
    assert (reply["facts"]["slim"], reply["facts"]["slim_failed"]) == (0, 1)


def test_the_error_that_is_told_is_the_one_with_all_headers(server, tools):
    reply = server.ask(cuda_request(tools, "#include <torch/extension.h>\n// ALL_HEADERS\n// NEVER\n"))
    assert reply["built"] == "refused"
    assert "refused with all headers" in reply["text"]
    assert "slim headers" not in reply["text"]


def test_a_binding_is_not_compiled_again_for_changed_device_code(server, tools):
    server.ask(cuda_request(tools, 'extern "C" int f() { return 1; }\n'))
    changed = server.ask(cuda_request(tools, 'extern "C" int f() { return 2; }\n'))
    assert changed["facts"]["compiled"] == 1


def test_another_version_of_a_compiler_is_another_key(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvcc").write_text(FAKE_NVCC)
    (tools / "nvcc").chmod(0o755)
    tmp_path.chmod(0o755)
    asked = cuda_request(tools, 'extern "C" int f() { return 1; }\n')
    found = []
    for version in ("fake nvcc 1", "fake nvcc 2"):
        (tools / "nvcc").write_text(FAKE_NVCC.replace("fake nvcc 1", version))
        with BuildServer(tmp_path, tools=tools) as server:
            found.append(server.ask(asked)["facts"]["compiled"])
        shutil.rmtree(tmp_path / "root")
    assert found == [2, 1]


def test_words_of_a_source_are_not_taken_for_those_of_a_compiler(server):
    reply = server.ask(request("#error cc1plus: out of memory, Killed, virtual memory exhausted, fulfilled\n"))
    assert reply["built"] == "refused"


def test_what_compiled_is_kept_though_another_source_did_not(server):
    good = 'extern "C" int good() { return 1; }\n'
    server.ask(request("broken broken;\n", good))
    assert server.ask(request('extern "C" int fixed() { return 1; }\n', good))["facts"]["compiled"] == 1
