"""Problems of a KernelBench checkout: its file `level1/19_ReLU.py` is the problem "kernelbench/level1/19".

Level 4 asks a hub for its models' configurations when it is loaded. Here those come from `hub.json` (the published
sizes), weights are random and the model is in evaluation mode, as pretrained ones come, so that it runs without a
network. By its path a file is taken as it is, and asks the hub, which no sandbox reaches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file
from kbenv.problems.loaders.checkout import commit_of
from kbenv.problems.problem import Contract, Origin, Problem, View

PREFIX = "kernelbench/"
FORMAT = "KernelBench: KernelBench/level<L>/<number>_<name>.py"
URL = "https://github.com/ScalingIntelligence/KernelBench"
ENVIRONMENT_VARIABLE = "KBENV_KERNELBENCH"

_LEVEL = re.compile(r"level(\d+)")
_FILE = re.compile(r"(\d+)_(.+)\.py")

# Where upstream's own reference leaves the finite numbers under a hidden distribution: the two of 1000 that
# KernelBench-Verified (arXiv 2607.16241) reports for levels 1-3.
_DROPPED: dict[str, dict[str, str]] = {
    "kernelbench/level1/90": {"D2": "overflows"},
    "kernelbench/level1/98": {"D4": "log of a negative number gives NaN"},
}

# Where `get_inputs` gives an answer away, KernelBench-Verified shows a model everything but that function.
_BLIND = {(1, 90), (1, 100), (3, 35), (3, 47)}

# Dropout is all that is random in it: in training mode nothing could be held against its reference.
_EVALUATED = {(2, 66)}

# The width of level 1, problem 19, which later versions made larger.
_WIDTHS = {16384: "v0", 393216: "v0.1"}
_HUB = Path(__file__).with_name("hub.json")
_NEEDS_HUB = 4


def recognises(folder: Path) -> bool:
    """Whether `folder` is a checkout of this set."""
    return bool(_find_files(folder / "KernelBench") or _find_files(folder))


def find(checkout: Path) -> Mapping[str, Path]:
    """Each problem's file by its id, in `checkout`: the repository's root or its inner folder `KernelBench`.

    Raises:
        ProblemNotFoundError: `checkout` is no folder, or holds no `level*/<number>_<name>.py`.
    """
    checkout = checkout.expanduser()
    try:
        found = _find_files(checkout / "KernelBench") or _find_files(checkout)
    except OSError as e:
        raise ProblemNotFoundError(f"{checkout}: cannot be read as a KernelBench checkout: {e.strerror}") from e
    if not found:
        what = "no level*/<number>_<name>.py in it" if checkout.is_dir() else "no such folder"
        raise ProblemNotFoundError(
            f"expected a KernelBench checkout at {checkout}, found {what}; "
            f"point {ENVIRONMENT_VARIABLE} or --problems-dir at one"
        )
    return found


def load(id: str, path: Path) -> Problem:
    """The problem `id`, from its file.

    Raises:
        ProblemNotFoundError: as `file.read`.
    """
    number, name = path.stem.split("_", 1)
    level = int(path.parent.name.removeprefix("level"))
    return from_text(file.read_text(path), id, path, level, int(number), name.strip("_"), version_of(path.parents[1]))


def from_text(text: str, id: str, path: Path, level: int, number: int, name: str, version: str | None) -> Problem:
    """The problem whose source is `text`, from a checkout or from the published data set."""
    return file.from_source(
        without_hub(text, path) if level >= _NEEDS_HUB else text, path=path, id=id, name=name, level=level,
        dropped=_DROPPED.get(id, {}), origin=Origin("kernelbench", URL, "MIT", version=version),
        view=view_of(level, number), contract=contract_of(level, number),
    )  # fmt: skip


def view_of(level: int, number: int) -> View:
    """What a prompt shows of a problem."""
    return "blind" if (level, number) in _BLIND else "full"


def contract_of(level: int, number: int) -> Contract:
    """What a problem asks beyond the format."""
    return Contract(
        mode="eval" if (level, number) in _EVALUATED else "train",
        requires=("transformers",) if level >= _NEEDS_HUB else (),
    )


def version_of(levels: Path) -> str | None:
    """The sizes' version ("v0", "v0.1"), with the commit where it is a git checkout; None where neither can be told."""
    version = None
    for path in filter(Path.is_file, (levels / "level1").glob("19_*.py")):
        version = sizes_of(path.read_text(encoding="utf-8", errors="replace"))
    commit = commit_of(levels / "level1", "KernelBench/level1", "level1")
    return " ".join(filter(None, (version, commit))) or None


def sizes_of(text: str) -> str | None:
    """Of which version the sizes are in the text of level 1, problem 19; None where it is neither."""
    match = re.search(r"^dim = (\d+)", text, re.MULTILINE)
    return _WIDTHS.get(int(match[1])) if match else None


def without_hub(text: str, path: Path) -> str:
    """A level-4 source with its model's configuration written out, and random weights.

    Raises:
        ProblemNotFoundError: it asks for a model that `hub.json` does not know.
    """
    match = re.search(r'^model_name = "([^"]+)"', text, re.MULTILINE)
    if match is None or "AutoConfig.from_pretrained(model_name)" not in text:
        return text
    known = json.loads(_HUB.read_text(encoding="utf-8"))
    if match[1] not in known:
        raise ProblemNotFoundError(f"{path}: asks a hub for {match[1]}; known are {', '.join(sorted(known))}")
    text = text.replace("AutoConfig.from_pretrained(model_name)", f"AutoConfig.for_model(**{known[match[1]]!r})")
    return re.sub(
        r"(AutoModel\w*)\.from_pretrained\(self\.model_name, config=self\.config\)",
        r"\1.from_config(self.config).eval()",
        text,
    )  # fmt: skip; as from_pretrained leaves it


def _find_files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    found: dict[str, Path] = {}
    for level in sorted(folder.iterdir()):
        if not (_LEVEL.fullmatch(level.name) and level.is_dir()):
            continue
        for path in sorted(level.iterdir()):
            if match := _FILE.fullmatch(path.name):
                id = f"{PREFIX}{level.name}/{int(match[1])}"
                if id in found:
                    raise ProblemNotFoundError(f"two files are {id}: {found[id].name} and {path.name}; remove one")
                found[id] = path
    return found
