"""The options that every command which judges has, and the evaluator that they ask for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbenv.protocol import DEFAULT_PROTOCOL, PRECISIONS, PROTOCOLS
from kbenv.reward import NEED_COMPILED

if TYPE_CHECKING:
    from kbenv.evaluator import Evaluator


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
    add_place_options(parser)


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Adds device and sandbox."""
    parser.add_argument("--device", default="auto", help="auto (default), cpu or cuda:N")
    group = parser.add_argument_group("sandbox")
    group.add_argument(
        "--sandbox",
        choices=("auto", "process", "docker"),
        default="auto",
        help="auto (default): docker where an engine has the image, else process",
    )
    group.add_argument("--image", metavar="NAME", help="docker: the image (default: what `kbenv sandbox build` makes)")
    group.add_argument("--runtime", metavar="NAME", help="docker: an OCI runtime of the engine, such as runsc (gVisor)")
    group.add_argument(
        "--gpu-access",
        choices=("auto", "nvidia", "cdi", "devices"),
        default="auto",
        help="docker: how a container gets its GPU (default: the first way that the engine offers)",
    )
    group.add_argument("--cpus", type=float, metavar="N", help="docker: processors for a container (default: all)")
    group.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="DIR",
        help="docker: a folder to show read-only in containers, such as a model cache; may be repeated",
    )


def open_evaluator(arguments: argparse.Namespace, on_phase: Callable[[str], None], *, cache: bool = False) -> Evaluator:
    """The evaluator that the options ask for; one line on standard error when "auto" did without Docker.

    Raises:
        UsageError: what they ask for is not to be had.
    """
    from kbenv.evaluator import Evaluator
    from kbenv.sandbox.docker import DockerSettings
    from kbenv.sandbox.engine import IMAGE

    evaluator = Evaluator(
        protocol=arguments.protocol,
        precision=arguments.precision,
        device=arguments.device,
        sandbox=arguments.sandbox,
        docker=DockerSettings(
            image=arguments.image or IMAGE,
            runtime=arguments.runtime,
            gpu_access=arguments.gpu_access,
            cpus=arguments.cpus,
            mounts=tuple(arguments.mount),
        ),
        backend=arguments.backend,
        require_custom_kernel=arguments.require_custom_kernel,
        compiled_baseline=getattr(arguments, "reward", None) in NEED_COMPILED,
        cache=cache,
        on_phase=on_phase,
    )
    if evaluator.sandbox_note:
        print(f"kbenv: {evaluator.sandbox_note}", file=sys.stderr)
    return evaluator
