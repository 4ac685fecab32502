"""NVIDIA's tools around a submission: what it was compiled to, and one more run of it under one of them.

All of it happens as the submission's user, in its runner and in processes below that: self-reported, whatever it says.
The tools come with the CUDA toolkit; where one is missing, or the driver refuses it, the answer says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..wire import Message
from .machine_code import DumpError, dump_caches

NCU_METRICS: Mapping[str, str] = {
    "duration": "gpu__time_duration.sum",
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "tensor": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "occupancy_possible": "sm__maximum_warps_per_active_cycle_pct",
    "waves": "launch__waves_per_multiprocessor",
    "registers": "launch__registers_per_thread",
    "limit_registers": "launch__occupancy_limit_registers",
    "limit_shared": "launch__occupancy_limit_shared_mem",
    "limit_warps": "launch__occupancy_limit_warps",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "local_loads": "smsp__inst_executed_op_local_ld.sum",
    "stall_memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "stall_barrier": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "stall_shared": "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "stall_pipe": "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
}
"""What is asked of Nsight Compute, by the names used here."""
MOST_LAUNCHES = 20
NCU = "ncu"
NCU_OPTIONS = (
    "--csv", "--page", "raw", "--clock-control", "none", "--profile-from-start", "off",
    "--launch-count", str(MOST_LAUNCHES), "--metrics", ",".join(NCU_METRICS.values()),
)  # fmt: skip
"""The clocks are left as they are, since locking them needs privileges."""
SANITIZER = "compute-sanitizer"
SANITIZER_OPTIONS = ("--tool", "memcheck", "--print-limit", "1", "--show-backtrace", "no")
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Each tensor is an allocation of its own then, and what lies beside it is no memory of this process's."""
_PLACES = {
    NCU: ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/latest"),
    SANITIZER: ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"),
}
_SPECIFICATION, _SAID = "alone.json", "alone-said"
_TEXT_BYTES = 256 << 10


class Tools:
    """The part of a runner that answers these questions of the judge's."""

    def do_read_code(self, message: Message, _: list[int]) -> Message:
        """See `machine_code.dump_caches`."""
        try:
            return {"kernels": dump_caches(with_built=message["with_built"]), "reason": None}
        except (DumpError, OSError) as e:
            return {"kernels": [], "reason": str(e)}

    def do_stand_in(self, message: Message, _: list[int]) -> Message:
        """See `stand_in`: where a submission is loaded without the device."""
        from .stand_in import stand_in  # which imports torch; `kbenv doctor` reads this module without it

        stand_in(message["device"])
        return {}

    def do_run_under(self, message: Message, _: list[int]) -> Message:
        """Runs the submission once in a new process (`runner/alone`) under a tool.

        Args:
            message: `tool` (its name), `options`, `environment` (what is added to it), `limit_s`, and
                `specification` for `alone.run`.

        Returns:
            `text` (what tool and submission said, bounded), and `reason` (why there is none) or None.
        """
        tool = find_program(message["tool"])
        if tool is None:
            return {"text": "", "reason": f"{message['tool']} was not found; it comes with the CUDA toolkit"}
        with open(_SPECIFICATION, "w", encoding="utf-8") as file:
            json.dump(message["specification"], file)
        boot = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "boot.py")
        python = [sys.executable, "-I", boot, "runner", json.dumps({"alone": _SPECIFICATION})]
        reason = _run([tool, *message["options"], *python], message["environment"], message["limit_s"])
        return {"text": _said(), "reason": reason}


def find_program(name: str) -> str | None:
    """Where a tool of the toolkit's is; None where it is not."""
    places = [shutil.which(name), *(os.path.join(folder, name) for folder in _PLACES.get(name, ()))]
    return next((place for place in places if place is not None and os.access(place, os.X_OK)), None)


def _run(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str | None:
    """Why it did not end; None when it did. What it leaves running ends with this runner."""
    with open(_SAID, "wb") as said:
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=timeout_s,
                env={**os.environ, **environment}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{os.path.basename(command[0])} took longer than {timeout_s:.4g} s"
        except OSError as e:
            return f"{command[0]} could not be run: {e}"
    return None


def _said() -> str:
    with open(_SAID, "rb") as file:
        return file.read(_TEXT_BYTES).decode(errors="replace")


def read_answer(answer: Any) -> tuple[str, str | None] | None:
    """Text and reason of `do_run_under`, as a runner sent them; None where they are of another form."""
    if not isinstance(answer, dict):
        return None
    text, reason = answer.get("text"), answer.get("reason")
    if not isinstance(text, str) or not (reason is None or isinstance(reason, str)):
        return None
    return text, reason
