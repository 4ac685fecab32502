"""What all runners of one job have in common: device, threads, limits, and an environment without anything of ours."""

from __future__ import annotations

import os

from ..wire import Message

_PAGE = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED = 1 << 62  # the reference writes its weights, of any size, to a memfd
_UNTRUSTED = ("submission", "builder")


class Setting:
    """Of one job."""

    @classmethod
    def of(cls, spec: Message) -> Setting:
        """Of a job."""
        return cls(spec["device"], spec["threads"] or len(os.sched_getaffinity(0)), spec["protocol"]["limits"])

    def __init__(self, device: str, threads: int, limits: Message) -> None:
        self.device = device
        self.threads = threads
        self.start_s = 120.0
        self.output_bytes: int = limits["output_bytes"]
        self.host_memory_bytes: int = limits["host_memory_bytes"]
        self.scratch_bytes: int = limits["scratch_bytes"]
        self.processes: int = limits["processes"] + threads  # of which PyTorch starts so many at once
        self._limits = limits

    def __eq__(self, other: object) -> bool:
        mine = (self.device, self.threads, self._limits)
        return isinstance(other, Setting) and mine == (other.device, other.threads, other._limits)

    __hash__ = None  # type: ignore[assignment]  # its limits are a dictionary

    def request(self, role: str, uid: int | None, scratch: str, waiting_uid: int | None) -> Message:
        limits = self._limits
        address_space = None
        if self.device == "cpu":
            with open("/proc/self/statm") as file:
                address_space = limits["host_memory_bytes"] + int(file.read().split()[0]) * _PAGE
        return {
            "role": role,
            "device": self.device,
            "threads": self.threads,
            "environment": _environment(scratch, self.threads),
            "rules": {
                "uid": uid, "waiting_uid": waiting_uid, "scratch": scratch,
                "processes": self.processes, "open_files": limits["open_files"],
                "file_bytes": limits["file_bytes"] if role in _UNTRUSTED else _UNLIMITED,
                "address_space": address_space, "oom_score": 1000 if role in _UNTRUSTED else 500,
            },
        }  # fmt: skip


def _environment(scratch: str, threads: int) -> dict[str, str]:
    """Everything that a compiler or a cache writes goes to the job's own scratch."""
    folders = {
        "HOME": "", "TMPDIR": "", "XDG_CACHE_HOME": "cache", "TORCH_EXTENSIONS_DIR": "extensions",
        "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor", "CUDA_CACHE_PATH": "cuda-cache",
        "CUPY_CACHE_DIR": "cupy", "NUMBA_CACHE_DIR": "numba", "MPLCONFIGDIR": "matplotlib",
        "CUDA_MPS_PIPE_DIRECTORY": "no-mps", "CUDA_MPS_LOG_DIRECTORY": "no-mps", "TRITON_HOME": "",
    }  # fmt: skip
    return {name: os.path.join(scratch, folder).rstrip("/") for name, folder in folders.items()} | {
        "USER": "kbenv",  # whoever asks for a name: the uid has none
        "MAX_JOBS": str(os.cpu_count() or 1),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
    }
