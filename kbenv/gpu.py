"""What GPUs can do, for prompts and not for judging; each row names the maker's data sheet.

Peaks are the makers' figures without sparsity (sheets print twice that for most types, with a footnote), at boost
clock; tensor-core figures are with accumulation in float32 where the maker tells the two apart. What holds for all
devices of a compute capability (registers, shared memory, threads, blocks) is from NVIDIA's CUDA C++ programming guide,
technical specifications per compute capability, and was held against `cuda/__device/arch_traits.h` of CUDA 13's own
headers. A device that is not in the table is described by what it reports of itself.

Checked in November 2026 against copies of those sheets on resellers' and universities' pages, save for H100 NVL and
H200 NVL, of which no copy was found, and the tensor-core peaks of L4 and A10: those are unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbenv.errors import UsageError
from kbenv.verdict import Hardware


@dataclass(frozen=True)
class Capability:
    """Limits of a compute capability.

    Attributes:
        shared_kib: shared memory of a multiprocessor, in KiB.
        shared_block_kib: the most that one block may have (above 48 KiB it must be asked for).
        threads: resident threads of a multiprocessor, at most.
        blocks: resident blocks of a multiprocessor, at most.
    """

    name: str
    shared_kib: int
    shared_block_kib: int
    threads: int
    blocks: int


REGISTERS = 65536
"""32-bit registers of a multiprocessor, for every capability of the table; a thread may have 255."""

_CAPABILITIES = {
    row.name: row
    for row in (
        Capability("7.0", 96, 96, 2048, 32),
        Capability("7.5", 64, 64, 1024, 16),
        Capability("8.0", 164, 163, 2048, 32),
        Capability("8.6", 100, 99, 1536, 16),
        Capability("8.9", 100, 99, 1536, 24),
        Capability("9.0", 228, 227, 2048, 32),
        Capability("10.0", 228, 227, 2048, 32),
        Capability("12.0", 100, 99, 1536, 24),
    )
}


@dataclass(frozen=True)
class GPU:
    """One model of GPU.

    Attributes:
        names: the parts of a device's reported name that identify it, each of which must occur.
        memory_gb: in 10^9 bytes, as data sheets count.
        bandwidth: of the memory, in 10^9 bytes per second.
        l2_mb: size of the L2 cache, in 2^20 bytes, which data sheets call MB.
        tflops: peaks in 10^12 operations per second by type, the tensor cores' where they have that type; "fp32" is
            without tensor cores.
        source: the data sheet or architecture paper.
    """

    name: str
    names: tuple[str, ...]
    capability: str
    multiprocessors: int
    memory_gb: float
    bandwidth: float
    l2_mb: float
    tflops: tuple[tuple[str, float], ...]
    source: str

    @property
    def limits(self) -> Capability:
        return _CAPABILITIES[self.capability]


def _peaks(fp32: float, **others: float) -> tuple[tuple[str, float], ...]:
    return (("fp32", fp32), *others.items())


_AMPERE = "NVIDIA A100 Tensor Core GPU data sheet"
_GA102 = "NVIDIA Ampere GA102 GPU architecture"
_ADA = "NVIDIA Ada GPU architecture"
_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet and architecture"

GPUS: tuple[GPU, ...] = (
    GPU("B200", ("B200",), "10.0", 148, 180, 7700, 126,
        _peaks(75, tf32=1100, bf16=2250, fp16=2250, fp8=4500, int8=4500, fp4=9000), "NVIDIA HGX B200 data sheet"),
    GPU("H200 NVL", ("H200", "NVL"), "9.0", 132, 141, 4800, 50,
        _peaks(60, tf32=417, bf16=835, fp16=835, fp8=1671, int8=1671), "NVIDIA H200 Tensor Core GPU data sheet"),
    GPU("H200", ("H200",), "9.0", 132, 141, 4800, 50,
        _peaks(67, tf32=494, bf16=989, fp16=989, fp8=1979, int8=1979), "NVIDIA H200 Tensor Core GPU data sheet"),
    GPU("H100 PCIe", ("H100", "PCIe"), "9.0", 114, 80, 2000, 50,
        _peaks(51, tf32=378, bf16=756, fp16=756, fp8=1513, int8=1513), _HOPPER),
    GPU("H100 NVL", ("H100", "NVL"), "9.0", 132, 94, 3900, 50,
        _peaks(60, tf32=417, bf16=835, fp16=835, fp8=1671, int8=1671), _HOPPER),
    GPU("H100", ("H100",), "9.0", 132, 80, 3350, 50,
        _peaks(67, tf32=494, bf16=989, fp16=989, fp8=1979, int8=1979), _HOPPER),
    GPU("A100 40GB", ("A100", "40GB"), "8.0", 108, 40, 1555, 40,
        _peaks(19.5, tf32=156, bf16=312, fp16=312, int8=624), _AMPERE),
    GPU("A100 80GB PCIe", ("A100", "80GB", "PCIe"), "8.0", 108, 80, 1935, 40,
        _peaks(19.5, tf32=156, bf16=312, fp16=312, int8=624), _AMPERE),
    GPU("A100", ("A100",), "8.0", 108, 80, 2039, 40,
        _peaks(19.5, tf32=156, bf16=312, fp16=312, int8=624), _AMPERE),
    GPU("L40S", ("L40S",), "8.9", 142, 48, 864, 96,
        _peaks(91.6, tf32=183, bf16=362, fp16=362, fp8=733, int8=733), "NVIDIA L40S data sheet"),
    GPU("L4", ("L4",), "8.9", 58, 24, 300, 48,
        _peaks(30.3, tf32=60, bf16=121, fp16=121, fp8=242, int8=242), "NVIDIA L4 data sheet"),
    GPU("A10", ("A10",), "8.6", 72, 24, 600, 6,
        _peaks(31.2, tf32=62.5, bf16=125, fp16=125, int8=250), "NVIDIA A10 data sheet"),
    GPU("RTX 5090", ("RTX", "5090"), "12.0", 170, 32, 1792, 96,
        _peaks(104.8, tf32=104.8, bf16=209.5, fp16=209.5, fp8=419, int8=838, fp4=1676),
        "NVIDIA RTX Blackwell GPU architecture"),
    GPU("RTX 4090", ("RTX", "4090"), "8.9", 128, 24, 1008, 72,
        _peaks(82.6, tf32=82.6, bf16=165.2, fp16=165.2, fp8=330.3, int8=660.6), _ADA),
    GPU("RTX 3090", ("RTX", "3090"), "8.6", 82, 24, 936, 6,
        _peaks(35.6, tf32=35.6, bf16=71, fp16=71, int8=284), _GA102),
    GPU("V100", ("V100",), "7.0", 80, 32, 900, 6, _peaks(15.7, fp16=125),
        "NVIDIA V100 Tensor Core GPU data sheet (SXM2)"),
    GPU("T4", ("T4",), "7.5", 40, 16, 320, 4, _peaks(8.1, fp16=65, int8=130), "NVIDIA T4 data sheet"),
)  # fmt: skip
"""The more particular names first: the first row whose `names` all occur is taken."""


def find_gpu(name: str) -> GPU | None:
    """The row for a device's reported name ("NVIDIA H100 80GB HBM3") or for our own name of it; None without one."""
    words = name.upper().replace("-", " ").replace("_", " ").split()
    return next((gpu for gpu in GPUS if all(part.upper() in words for part in gpu.names)), None)


def get_gpu(name: str) -> GPU:
    """As `find_gpu`.

    Raises:
        UsageError: there is no row.
    """
    gpu = find_gpu(name)
    if gpu is None:
        raise UsageError(f"no facts about a GPU {name!r}; known are {', '.join(gpu.name for gpu in GPUS)}")
    return gpu


@dataclass(frozen=True)
class Facts:
    """What a prompt says of a device: its row in the table, or what it reports; None where neither is known."""

    name: str
    gpu: GPU | None
    hardware: Hardware | None


def facts_about(hardware: Hardware | str) -> Facts:
    """The facts about a device that was detected (`Evaluator.machine`), or about one named in the table.

    Raises:
        UsageError: it is named, and not in the table.
    """
    if isinstance(hardware, str):
        gpu = get_gpu(hardware)
        return Facts(gpu.name, gpu, None)
    return Facts(hardware.name, find_gpu(hardware.name) if hardware.device != "cpu" else None, hardware)
