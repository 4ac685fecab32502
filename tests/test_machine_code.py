"""Machine code is read as cuobjdump documents and prints it; occupancy is that of NVIDIA's calculator."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from kbenv.errors import UsageError
from kbenv.machine_code import (
    MULTIPROCESSORS,
    demangled,
    dump,
    find_tool,
    instruction_kinds,
    occupancies,
    occupancy,
    parse_resource_usage,
    parse_sass,
    read_kernels,
    relevant,
)
from kbenv.sandbox.runner.machine_code import checked, read_rows
from tests.dumps import SASS, USAGE

ROWS = read_rows(USAGE, SASS)


def test_usage_is_read_by_capability_and_function() -> None:
    usages = parse_resource_usage(USAGE)
    assert usages[90, "_Z6matmulPKfS0_Pfi"] == {"REG": 168, "STACK": 64, "SHARED": 33792, "LOCAL": 0}
    assert usages[80, "_Z6matmulPKfS0_Pfi"]["REG"] == 120
    assert len(usages) == 3


def test_instructions_are_counted_by_kind_through_predicates_and_modifiers() -> None:
    mix = parse_sass(SASS)[90, "_Z6matmulPKfS0_Pfi"]
    expected = {
        "all": 14, "tensor_core": 2, "async_copy": 2, "global_load": 2, "global_load_128": 1, "global_store": 1,
        "shared_load": 1, "local": 2, "barrier": 1,
    }  # fmt: skip
    assert mix == dict.fromkeys(("all", *instruction_kinds()), 0) | expected


def test_kinds_do_not_run_into_each_other() -> None:
    (relu,) = (mix for (_, name), mix in parse_sass(SASS).items() if "relu" in name)
    expected = {
        "all": 9, "global_load": 1, "global_load_128": 1, "global_store": 1, "global_store_128": 1, "fp32": 1,
        "fp64": 1, "special_function": 1, "shuffle": 1, "atomic": 1,
    }  # fmt: skip
    assert relu == dict.fromkeys(("all", *instruction_kinds()), 0) | expected


def test_a_kernel_joins_its_usage_and_its_instructions() -> None:
    kernels = {(kernel.capability, kernel.short_name): kernel for kernel in read_kernels(USAGE, SASS)}
    matmul, relu = kernels[90, "matmul"], kernels[90, "relu"]
    assert (matmul.registers, matmul.stack_bytes, matmul.shared_bytes, matmul.spills) == (168, 64, 32768, True)
    assert (relu.spills, relu.instructions["global_load_128"]) == (False, 1)
    assert kernels[80, "matmul"].instructions == {}
    assert [at.threads for at in matmul.occupancy] == [128, 256]  # 512 threads of 168 registers do not fit
    assert relevant(tuple(kernels.values()), frozenset({"relu"})) == (relu,)


def test_a_bare_cubin_says_its_capability_only_beside_its_instructions() -> None:
    usage = (
        "\nResource usage:\n Common:\n  GLOBAL:0\n Function matmul:\n"
        "  REG:128 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:584 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    )
    sass = (
        "\n\tcode for sm_90a\n\t.target\tsm_90a\n\n\t\tFunction : matmul\n"
        "        /*0010*/                   HGMMA.64x128x8.F32.TF32 R24, gdesc[UR4], RZ, !UPT, gsb0 ;  /* 0x01 */\n"
    )
    (kernel,) = read_kernels(usage, sass)
    assert (kernel.capability, kernel.short_name, kernel.shared_bytes) == (90, "matmul", 0)
    assert kernel.instructions["tensor_core"] == 1
    assert [at.warps for at in kernel.occupancy] == [16, 16, 16]


def test_text_of_another_kind_holds_no_kernels() -> None:
    for text in ("", "cuobjdump fatal   : File 'x' is not a device binary", USAGE[:100], SASS[:200]):
        assert read_kernels(text, text) == ()


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "warps", "limit"),
    [
        (90, 256, 32, 0, 8, 64, "warps"),
        (90, 256, 64, 0, 4, 32, "registers"),
        (90, 128, 168, 32768, 3, 12, "registers"),
        (90, 256, 40, 100 * 1024, 2, 16, "shared memory"),
        (90, 1024, 64, 0, 1, 32, "registers"),
        (90, 1024, 65, 0, 0, 0, "registers"),
        (90, 32, 16, 0, 32, 32, "blocks"),
        (90, 128, 32, 228 * 1024, 0, 0, "shared memory"),
        (80, 256, 32, 48 * 1024, 3, 24, "shared memory"),
        (86, 256, 32, 0, 6, 48, "warps"),
        (75, 1024, 32, 0, 1, 32, "warps"),
        (70, 256, 37, 0, 6, 48, "registers"),
    ],
)
def test_occupancy_is_that_of_the_calculator(capability, threads, registers, shared, blocks, warps, limit) -> None:
    found = occupancy(capability, threads, registers, shared)
    assert (found.blocks, found.warps, found.limit) == (blocks, warps, limit)
    assert found.share == warps / MULTIPROCESSORS[capability].warps


HEADER = Path("/usr/local/cuda/include/cuda_occupancy.h")
CALCULATOR = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main(int, char **) {
    int capability, threads, registers, shared, warps, in_all, in_block;
    while (scanf("%d %d %d %d %d %d %d", &capability, &threads, &registers, &shared, &warps, &in_all, &in_block) == 7) {
        cudaOccDeviceProp device;
        device.computeMajor = capability / 10; device.computeMinor = capability % 10;
        device.maxThreadsPerBlock = 1024; device.maxThreadsPerMultiprocessor = 32 * warps;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536; device.warpSize = 32; device.numSms = 1;
        device.sharedMemPerBlock = 49152; device.sharedMemPerMultiprocessor = in_all;
        device.sharedMemPerBlockOptin = in_block; device.reservedSharedMemPerBlock = capability >= 80 ? 1024 : 0;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF; kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = in_block; kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared);
        printf("%d\n", result.activeBlocksPerMultiprocessor);
    }
}
"""


@pytest.mark.skipif(not HEADER.is_file() or shutil.which("g++") is None, reason="needs cuda_occupancy.h and g++")
def test_blocks_are_those_of_nvidias_own_calculator(tmp_path: Path) -> None:
    (tmp_path / "calculator.cpp").write_text(CALCULATOR)
    program = tmp_path / "calculator"
    command = ["g++", f"-I{HEADER.parent}", str(tmp_path / "calculator.cpp"), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    cases = [
        (capability, threads, registers, shared)
        for capability in MULTIPROCESSORS
        for threads in (32, 96, 128, 200, 256, 512, 700, 1024)
        for registers in (16, 32, 37, 40, 64, 65, 96, 128, 168, 255)
        for shared in (0, 1, 1000, 16384, 33000, 49152, 99 * 1024, 227 * 1024)
    ]
    asked = ""
    for case in cases:
        device = MULTIPROCESSORS[case[0]]
        numbers = (*case, device.warps, device.shared_bytes, device.shared_bytes_per_block)
        asked += " ".join(map(str, numbers)) + "\n"
    told = subprocess.run([str(program)], input=asked, check=True, capture_output=True, text=True).stdout.split()
    assert [occupancy(*case).blocks for case in cases] == [int(blocks) for blocks in told]


@pytest.mark.parametrize("capability", MULTIPROCESSORS)
def test_more_of_anything_never_raises_the_number_of_blocks(capability: int) -> None:
    draw = random.Random(capability)
    for _ in range(500):
        threads, registers, shared = draw.randint(1, 1024), draw.randint(1, 255), draw.randint(0, 300_000)
        found = occupancy(capability, threads, registers, shared)
        assert 0 <= found.share <= 1
        assert occupancy(capability, threads, min(registers + 8, 255), shared + 1024).blocks <= found.blocks


def test_what_does_not_exist_has_no_occupancy() -> None:
    with pytest.raises(UsageError, match="90"):
        occupancy(50, 128, 32, 0)
    with pytest.raises(UsageError, match="1024"):
        occupancy(90, 2048, 32, 0)
    assert list(occupancies(35, 32, 0)) == []


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z4reluPK6float4PS_m", "relu"),
        ("_Z1f6float4", "f"),
        ("_ZN2at6native3addIfEEvPT_", "add"),
        ("_ZN29_GLOBAL__N__0a1b_4_cuda_cu_9d4reluILi4EEEvPK6float4PS1_m", "relu"),
        ("softmax_kernel", "softmax_kernel"),
        ("_Z", "_Z"),
    ],
)
def test_names_are_demangled(mangled: str, name: str) -> None:
    assert demangled(mangled) == name


def test_a_file_that_holds_no_machine_code_is_refused(tmp_path: Path) -> None:
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\necho 'not a device binary' >&2\nexit 255\n")
    tool.chmod(0o755)
    with pytest.raises(UsageError, match="not a device binary"):
        dump(tmp_path / "x.so", str(tool))


def test_a_dump_asks_for_usage_and_for_instructions(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text(USAGE)
    (tmp_path / "sass").write_text(SASS)
    tool = tmp_path / "cuobjdump"
    tool.write_text(f"#!/bin/sh\ncase $1 in -sass) cat {tmp_path}/sass;; -res-usage) cat {tmp_path}/usage;; esac\n")
    tool.chmod(0o755)
    assert [kernel.short_name for kernel in dump(tmp_path / "x.so", str(tool))] == ["matmul", "relu", "matmul"]


def test_paths_are_not_told(tmp_path: Path) -> None:
    tool = tmp_path / "cuobjdump"
    tool.write_text(f"#!/bin/sh\necho \"File '{tmp_path}/x.so' does not contain device code\" >&2\nexit 255\n")
    tool.chmod(0o755)
    with pytest.raises(UsageError) as refused:
        dump(tmp_path / "x.so", str(tool))
    assert str(refused.value) == "cuobjdump did not read x.so: File 'x.so' does not contain device code"


def test_rows_of_another_form_are_not_taken() -> None:
    (row, *_) = ROWS
    sent = {key: value for key, value in row.items() if key != "self_reported"}
    assert checked([sent]) == [sent]
    assert checked([{**sent, "more": "words"}]) == [sent]
    wrong = ({"registers": -1}, {"registers": "8"}, {"registers": True}, {"name": 3}, {"instructions": {"words": 1}},
             {"instructions": {"all": 1.5}}, {"capability": None})  # fmt: skip
    for change in wrong:
        assert checked([{**sent, **change}]) is None
    for whole in (None, {}, "rows", [[]], [sent] * 65):
        assert checked(whole) is None
    assert "\n" not in checked([{**sent, "name": "a\nb"}])[0]["name"]  # type: ignore[index]


@pytest.mark.skipif(find_tool() is None or shutil.which("nvcc") is None, reason="needs nvcc and cuobjdump")
def test_what_nvcc_compiled_is_read(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(
        "__global__ void scale(const float4 *x, float4 *y) {\n  __shared__ float4 kept[64];\n"
        "  kept[threadIdx.x] = x[threadIdx.x];\n  __syncthreads();\n  y[threadIdx.x] = kept[63 - threadIdx.x];\n}\n"
    )
    library = tmp_path / "kernel.so"
    flags = ["-arch=sm_90", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run(["nvcc", *flags, str(source), "-o", str(library)], check=True, capture_output=True)
    (kernel,) = dump(library)
    assert (kernel.short_name, kernel.capability, kernel.shared_bytes) == ("scale", 90, 1024)
    assert (kernel.instructions["global_load_128"], kernel.instructions["barrier"]) == (1, 1)
    assert 0 < kernel.registers < 40
    assert not kernel.spills
    assert {at.threads: at.share for at in kernel.occupancy}[256] == 1.0


@pytest.mark.gpu
def test_a_kernel_that_triton_compiled_is_read(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    if find_tool() is None:
        pytest.skip("needs cuobjdump")
    import torch

    path = tmp_path / "kernel.py"  # Triton reads a kernel's source from its file
    path.write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef double(x, y, n: tl.constexpr):\n"
        "    i = tl.arange(0, n)\n    tl.store(y + i, 2 * tl.load(x + i))\n"
    )
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.ones(1024, device="cuda")
    compiled = module.double[(1,)](x, torch.empty_like(x), 1024)
    (tmp_path / "kernel.cubin").write_bytes(compiled.asm["cubin"])
    (kernel,) = dump(tmp_path / "kernel.cubin")
    assert kernel.short_name == "double"
    assert kernel.registers > 0
    assert kernel.instructions["global_load"] >= 1
    assert kernel.occupancy
