"""What there is to gain on kbenv's own problems: `python benchmarks/headroom.py [PATTERN] [--out FILE]`, on a GPU.

For each problem at its GPU sizes: PyTorch's time in eager mode with TF32 on, that of `torch.compile`, and the roofline,
the longer of moving inputs, parameters and outputs once and of doing the reference's products, both at the speed that
this device shows on a copy and on a TF32 product. Headroom is eager time over the roofline, and over `torch.compile`;
a problem of levels 1 and 2 with less than 1.1 over the roofline has nothing to show. Times are medians of CUDA events
in one process, which is enough to choose problems by; it is no judgement.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

from kbenv.problems import Problem, list_problems

CALLS = 20
LEAST = 1.1


def main() -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="core/*")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "headroom.md")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("headroom: needs a CUDA device", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    bytes_per_s, flop_per_s = measure_device()
    lines = [
        "# Headroom of kbenv's own problems",
        "",
        f"{date.today():%Y-%m-%d}; {torch.cuda.get_device_name()}, torch {torch.__version__}. Made by `python "
        f"benchmarks/headroom.py`. The roofline: {bytes_per_s / 1e12:.2f} TB/s (a copy), {flop_per_s / 1e12:.0f} "
        "TFLOP/s (a TF32 product of 8192).",
        "",
        "| problem | eager, ms | torch.compile, ms | roofline, ms | over the roofline | over torch.compile |",
        "|---|---|---|---|---|---|",
    ]
    low = []
    for problem in list_problems(arguments.pattern):
        roofline_ms = 1e3 * max(float(problem.hints["bytes"]) / bytes_per_s, float(problem.hints["flops"]) / flop_per_s)
        try:
            eager_ms, compiled_ms = measure(problem)
        except RuntimeError as e:
            lines.append(f"| {problem.id} | {' '.join(str(e).split())[:80]} | | | | |")
            continue
        finally:
            torch.cuda.empty_cache()
            torch._dynamo.reset()
        if problem.level in (1, 2) and eager_ms / roofline_ms < LEAST:
            low.append(problem.id)
        compiled = ("failed", "") if compiled_ms is None else (f"{compiled_ms:.3g}", f"{eager_ms / compiled_ms:.2f}")
        lines.append(
            f"| {problem.id} | {eager_ms:.3g} | {compiled[0]} | {roofline_ms:.3g} | {eager_ms / roofline_ms:.2f} | "
            f"{compiled[1]} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    lines += ["", f"Of levels 1 and 2 below {LEAST} over the roofline: {', '.join(low) or 'none'}."]
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def measure_device() -> tuple[float, float]:
    """Bytes a second of a copy (read and written), and operations a second of a TF32 product."""
    source = torch.empty(1 << 29, device="cuda")
    target = torch.empty_like(source)
    copied_ms = time_ms(lambda: target.copy_(source))
    a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
    product_ms = time_ms(lambda: a @ b)
    return 2 * source.numel() * 4 / copied_ms * 1e3, 2 * 8192**3 / product_ms * 1e3


def measure(problem: Problem) -> tuple[float, float | None]:
    """Milliseconds in eager mode and by torch.compile; None where that does not compile it."""
    namespace: dict[str, Any] = {"__name__": "problem"}
    exec(problem.source_for("cuda"), namespace)
    torch.manual_seed(0)
    model = namespace["Model"](*namespace["get_init_inputs"]()).to("cuda")
    with torch.no_grad():
        with torch.device("cuda"):
            inputs = namespace["get_inputs"]()
        eager_ms = time_ms(lambda: model(*inputs))
        compiled = torch.compile(model)
        try:
            return eager_ms, time_ms(lambda: compiled(*inputs))
        except torch._dynamo.exc.TorchDynamoException:
            return eager_ms, None


def time_ms(call: Callable[[], Any]) -> float:
    """The median of some calls, each with a cold L2."""
    cold = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        call()
    times = []
    for _ in range(CALLS):
        cold.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
