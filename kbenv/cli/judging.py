"""The options that every command which judges has, and the evaluator that they ask for."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kbenv.errors import ProblemExcludedError, ProblemUnjudgedError, UsageError
from kbenv.protocol import DEFAULT_EFFORT, DEFAULT_PROTOCOL, DIAGNOSTICS, EFFORTS, PRECISIONS, PROFILE, PROTOCOLS
from kbenv.reward import NEED_COMPILED

if TYPE_CHECKING:
    from kbenv.evaluator import Evaluator
    from kbenv.pool import EvaluatorPool
    from kbenv.problems.problem import Problem
    from kbenv.protocol import Diagnostic, Protocol


def add_judging_options(parser: argparse.ArgumentParser) -> None:
    """Adds protocol, device and sandbox."""
    parser.add_argument("--protocol", choices=PROTOCOLS, default=DEFAULT_PROTOCOL, help=f"default: {DEFAULT_PROTOCOL}")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: fp32")
    parser.add_argument(
        "--backend", default="auto", help="the kernel language that counts; auto (default) looks at the source"
    )
    parser.add_argument(
        "--require-custom-kernel",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="credit only a source with a kernel of its own (default: as the protocol says)",
    )
    parser.add_argument(
        "--diagnose", default="", metavar="WHICH",
        help="also look at kernels (which ran, the device's rates; always on a CPU and under hardened), code (machine "
        "code, by cuobjdump), counters (of one call, by Nsight Compute), access (where the first bad access is, by "
        "compute-sanitizer): a list such as code,access. The last two take seconds and need NVIDIA's tools; no status "
        "follows from any of it",
    )  # fmt: skip
    add_effort_option(parser)
    add_place_options(parser)


def add_effort_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--effort", choices=EFFORTS, default=DEFAULT_EFFORT,
        help="of the clock: quick takes fewer turns, and its intervals are wider; every check stays (default: full)",
    )  # fmt: skip


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Adds device and sandbox."""
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda:N or cuda:GPU-... (a UUID)")
    group = parser.add_argument_group("sandbox")
    group.add_argument(
        "--sandbox",
        choices=("auto", "process", "docker"),
        default="auto",
        help="auto (default): docker where an engine has the image, else process",
    )
    group.add_argument(
        "--allow-same-uid", action="store_true",
        help="process: judge even where nothing but limits and a filter keeps a submission from your files",
    )  # fmt: skip
    group.add_argument("--image", metavar="NAME", help="docker: the image (default: what `kbenv sandbox build` makes)")
    group.add_argument("--runtime", metavar="NAME", help="docker: an OCI runtime of the engine, such as runsc (gVisor)")
    group.add_argument(
        "--gpu-access",
        choices=("auto", "nvidia", "cdi", "devices"),
        default="auto",
        help="docker: how a container gets its GPU (default: the first way that the engine offers)",
    )
    group.add_argument(
        "--cpus", type=_processors, metavar="N", help="docker: processors for a container (default: all)"
    )
    group.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="DIR",
        help="docker: a folder to show read-only in containers, such as a model cache; may be repeated",
    )


def _processors(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0; found {text}")
    return number


_processors.__name__ = "number"  # argparse names it where the text is none


def add_devices_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--devices`, for commands that judge on several."""
    parser.add_argument(
        "--devices", metavar="NAMES",
        help="judge on several devices at once: cuda:0,cuda:1 (the machine's numbers, whatever CUDA_VISIBLE_DEVICES "
        "says), UUIDs (GPU-...), all, or cpu",
    )  # fmt: skip
    parser.add_argument(
        "--build-workers", type=int, metavar="N",
        help="so many compile what the answers that wait will need, without the device (default: up to 6 a GPU, "
        "and half of the cores, in the process sandbox as root where several answers can wait; else 0)",
    )  # fmt: skip


def find_problems(arguments: argparse.Namespace, pattern: str) -> list[Problem]:
    """The problems that match; what a wildcard matches and does not load is said on standard error, and left out.

    Raises:
        ProblemNotFoundError: as `list_problems`.
    """
    from kbenv.problems import list_problems

    def say(words: str) -> None:
        print(f"kbenv: {words}", file=sys.stderr)

    return list_problems(pattern, problems_dir=arguments.problems_dir, on_refused=say)


def leave_out_unjudged(problems: Sequence[Problem], check: Callable[[Problem], object]) -> list[Problem]:
    """Those that are judged under these rules, and those that the protocol excludes; the others are named, and why.

    Raises:
        ProblemUnjudgedError: it is none of them.
    """
    kept: list[Problem] = []
    left: list[ProblemUnjudgedError] = []
    for problem in problems:
        try:
            check(problem)
        except ProblemExcludedError:
            kept.append(problem)  # a table says so
        except ProblemUnjudgedError as error:
            left.append(error)
        else:
            kept.append(problem)
    if left and not kept:
        raise left[0]
    for reason in left:
        print(f"kbenv: left out: {reason}", file=sys.stderr)
    return kept


def open_evaluator(
    arguments: argparse.Namespace, on_phase: Callable[[str], None], *, protocol: Protocol | None = None
) -> Evaluator:
    """The evaluator that the options ask for; one line on standard error when "auto" did without Docker.

    `protocol` stands for the one that they name.

    Raises:
        UsageError: what they ask for is not to be had.
    """
    from kbenv.evaluator import Evaluator

    options = _options(arguments)
    evaluator = Evaluator(
        device=arguments.device, on_phase=on_phase, **options | {"protocol": protocol or options["protocol"]}
    )
    if protocol is None:
        _say_note(evaluator.sandbox_note)
    return evaluator


def open_pool(
    arguments: argparse.Namespace,
    on_phase: Callable[[str], None],
    on_build: Callable[[str, str], None] | None = None,
    *,
    one_at_a_time: bool = False,
) -> EvaluatorPool:
    """The pool that the options ask for: one evaluator, or with `--devices` one on each.

    Args:
        one_at_a_time: no answer waits while another is judged, so that there is nothing to build ahead.

    Raises:
        UsageError: as `open_evaluator`; both `--device` and `--devices` are given; or there can be no build workers.
    """
    from kbenv import pool

    workers = 0 if arguments.build_workers is None and one_at_a_time else arguments.build_workers
    if arguments.devices is None:
        evaluator = open_evaluator(arguments, on_phase)
        return pool.EvaluatorPool([evaluator], build_workers=workers, on_build=on_build)
    if arguments.device != "auto":
        raise UsageError("give --device for one judge, or --devices for several, not both")
    devices = [name.strip() for name in arguments.devices.split(",") if name.strip()]
    opened = pool.open_pool(
        devices,
        on_phase=lambda _, phase: on_phase(phase),
        on_build=on_build,
        build_workers=workers,
        **_options(arguments),
    )
    _say_note(opened.sandbox_note)
    return opened


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    from kbenv.sandbox.docker import DockerSettings
    from kbenv.sandbox.engine import IMAGE

    return {
        "protocol": arguments.protocol,
        "precision": arguments.precision,
        "effort": arguments.effort,
        "sandbox": arguments.sandbox,
        "docker": DockerSettings(
            image=arguments.image or IMAGE,
            runtime=arguments.runtime,
            gpu_access=arguments.gpu_access,
            cpus=arguments.cpus,
            mounts=tuple(arguments.mount),
        ),
        "backend": arguments.backend,
        "require_custom_kernel": arguments.require_custom_kernel,
        "compiled_baseline": getattr(arguments, "reward", None) in NEED_COMPILED,
        "diagnostics": choose_diagnostics(arguments),
        "allow_same_uid": arguments.allow_same_uid,
    }


def choose_diagnostics(arguments: argparse.Namespace) -> tuple[Diagnostic, ...]:
    """What `--diagnose` names, and what a profile is made of where one is read. Raises UsageError."""
    named = {word.strip() for word in getattr(arguments, "diagnose", "").split(",") if word.strip()}
    if not named <= set(DIAGNOSTICS):
        raise UsageError(f"--diagnose must be of {', '.join(DIAGNOSTICS)}; found {arguments.diagnose!r}")
    reads_profile = "p" in getattr(arguments, "feedback", "").split(",")
    if reads_profile or "skills" in (getattr(arguments, "agent", None) or ()):
        named |= set(PROFILE)
    return tuple(name for name in DIAGNOSTICS if name in named)


def _say_note(note: str | None) -> None:
    if note:
        print(f"kbenv: {note}", file=sys.stderr)
