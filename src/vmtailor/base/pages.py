# SPDX-License-Identifier: Apache-2.0
"""Pages that are one file: style, script and data inside, and a policy that forbids every request.

Text from an image, a guest or a log stays text on a page, for three reasons. jinja2 escapes every value, and embedded
data has no `<` in it. The content security policy admits only the style and the script whose digests it names. So no
inline handler, `style` attribute or request has an effect."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from vmtailor import __version__
from vmtailor.base import figures, notation
from vmtailor.base.text import encodable

FILTERS = {
    "grouped": figures.grouped,
    "short": figures.short,
    "millions": figures.millions,
    "file_bytes": figures.file_bytes,
    "memory_bytes": figures.memory_bytes,
    "microseconds": figures.microseconds,
    "seconds": figures.seconds,
}

#: Characters that would end a script element, start a comment in one, or (line separators) upset an older parser.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(
    template: str, *, data: Any, styles: Sequence[str] = (), scripts: Sequence[str] = (), values: Mapping[str, Any]
) -> str:
    """Return one page from `data/templates/TEMPLATE`, which extends `base.html`.

    `styles` and `scripts` are files beside it, put behind `base.css` and `base.js`. `data` (anything msgspec can
    encode) is embedded as JSON in the element `#data`. `values` are what the template sees by name.
    """
    style = "\n".join(_asset(name) for name in ("base.css", *styles))
    script = "\n".join(_asset(name) for name in ("base.js", *scripts))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = {"style": Markup(style), "script": Markup(script), "data": embedded(data), "policy": policy}
    return encodable(_environment().get_template(template).render(page=page, version=__version__, **values))


def embedded(data: Any) -> Markup:
    """Data as JSON that is safe inside a script element, whatever strings it holds."""
    text = notation.encoded_json(data).decode()
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return Markup(text)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vmtailor", "data/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment


@functools.cache
def _asset(name: str) -> str:
    # Exactly these bytes are hashed and put in the page: no white space may be added around them.
    return resources.files("vmtailor").joinpath("data", "templates", name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
