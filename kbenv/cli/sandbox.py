"""`kbenv sandbox`: the image of the Docker sandbox, and what is left of its containers."""

from __future__ import annotations

import argparse
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kbenv.sandbox.engine import IMAGE, connect

if TYPE_CHECKING:
    from rich.console import Console


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `kbenv sandbox build` and `kbenv sandbox clean`."""
    parser = subparsers.add_parser(
        "sandbox",
        help="build the Docker sandbox's image, or clean up after it",
        description="The image of the Docker sandbox, and what is left of its containers, on the engine that "
        "DOCKER_HOST names (default: the local one).",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    build = commands.add_parser(
        "build",
        help="build the image that sandboxes run",
        description="Build the image that sandboxes run. It holds Python, torch and compilers: what the base has of "
        "these is taken as it is, what it lacks is installed, by the environment's settings of pip and of proxies.",
    )
    build.add_argument(
        "--base", metavar="IMAGE",
        help="what to build on: a Debian or Ubuntu image, with nvcc for CUDA (default: PyTorch's CUDA image where the "
        "engine offers a GPU, else a bare Python); pulled if the engine lacks it",
    )  # fmt: skip
    build.add_argument("--tag", default=IMAGE, metavar="NAME", help="the image's name (default: %(default)s)")
    build.set_defaults(func=_build)

    clean = commands.add_parser(
        "clean",
        help="remove containers whose process is gone",
        description="Remove containers that a killed process left behind.",
    )
    clean.add_argument(
        "--all", action="store_true", help="also those in use, by any process on any machine: their jobs are lost"
    )
    clean.add_argument("--image", action="store_true", help=f"also the image {IMAGE}, and what unfinished builds left")
    clean.set_defaults(func=_clean)


def _build(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from kbenv.sandbox.image import build

    client = connect()
    started = time.monotonic()
    with _Progress(Console(stderr=True, highlight=False)) as progress:
        image = build(client, arguments.base, arguments.tag, progress.show)
    seconds = time.monotonic() - started
    size = f"{image.size_bytes / 1e9:.2f} GB"
    print(f"{image.name}: {size}, {seconds:.0f} s, Python {image.python}, torch {image.torch}")
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    from kbenv.sandbox.image import clean

    removed = clean(connect(), all_owners=arguments.all, image=IMAGE if arguments.image else None)
    for name in removed:
        print(f"removed {name}")
    if not removed:
        print("nothing to remove")
    return 0


class _Progress:
    """The build's steps on standard error: at a terminal one line that changes, elsewhere a line each."""

    def __init__(self, console: Console) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._is_terminal = console.is_terminal
        self._heading = "starting"
        described = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._line = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=described),
            TimeElapsedColumn(),
            console=console,
            disable=not self._is_terminal,
            transient=True,
            expand=True,
        )
        self._task = self._line.add_task(self._heading)

    def __enter__(self) -> Self:
        self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._line.stop()

    def show(self, line: str) -> None:
        """One line of the build's output."""
        from kbenv.sandbox.image import HEADING

        is_heading = line.startswith(HEADING)
        if is_heading:
            self._heading = line.removeprefix(HEADING)
        if self._is_terminal:
            self._line.update(
                self._task, description=self._heading if is_heading else f"{self._heading}: {line.strip()}"
            )
        elif is_heading:
            print(self._heading, file=sys.stderr, flush=True)
