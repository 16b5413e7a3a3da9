# SPDX-License-Identifier: Apache-2.0
"""Text of scripts and units from the wing's templates. Values are checked before (manifest_wishes.py), and words of a
shell are quoted."""

from __future__ import annotations

import functools
import shlex
from typing import Any

import jinja2


def filled(template: str, **values: Any) -> str:
    """Return a template of `fleet/data` with its values."""
    text: str = _environment().get_template(f"{template}.jinja").render(**values)
    return text


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vmtailor.fleet", "data"),
        autoescape=False,  # no page: a script of a shell, a unit
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["word"] = shlex.quote
    return environment
