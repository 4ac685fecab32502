"""The text that models read: jinja2 templates beside this file, rendered so that a missing value is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2


@cache
def _environment() -> jinja2.Environment:
    # No autoescape: the reader is a language model, not a browser; "<" in C++ must stay "<".
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **values: Any) -> str:
    """The text of `template` (a file name such as "system.j2") with `values` in place.

    Raises:
        jinja2.UndefinedError: the template uses a name that `values` lacks.
        jinja2.TemplateNotFound: no such template.
    """
    return _environment().get_template(template).render(**values)
