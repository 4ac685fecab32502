"""YAML files of other sets. PyYAML is an optional package: only two formats need it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbenv.errors import ProblemNotFoundError
from kbenv.problems.loaders import file


def read_yaml(path: Path) -> Mapping[str, Any]:
    """The mapping in the YAML file at `path`.

    Raises:
        ProblemNotFoundError: PyYAML is not installed, or there is no such file, or none with a mapping in it.
    """
    try:
        import yaml
    except ImportError as e:
        raise ProblemNotFoundError(f"{path}: reading it needs PyYAML: pip install 'kbenv[sets]'") from e
    try:
        data = yaml.safe_load(file.read_text(path))
    except yaml.YAMLError as e:
        raise ProblemNotFoundError(f"{path}: not valid YAML: {' '.join(str(e).split())}") from e
    if not isinstance(data, dict):
        raise ProblemNotFoundError(f"{path}: expected names with values, found {type(data).__name__}")
    return data
