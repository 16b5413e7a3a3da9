# SPDX-License-Identifier: Apache-2.0
"""Untrusted text made fit for a terminal: what could steer it, hide in it or turn it around is shown by number."""

from __future__ import annotations

import re

from vmtailor.base.words.figures import NARROW_SPACE

#: What JSON allows raw, and a terminal may obey: DEL, C1, marks of direction, what has no width, other line ends,
#: halves of a pair, tags.
_STEERS = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def plain(text: str) -> str:
    """Text from outside on one line: control characters (so escape sequences), line ends, invisible and reordering
    characters are shown, not obeyed."""
    return (
        text if text.isprintable() else "".join(c if c.isprintable() or c == NARROW_SPACE else _shown(c) for c in text)
    )


def block(text: str) -> str:
    """Text from outside of several lines: line feeds and tabs stay; all else is as in `plain`."""
    return text if text.isprintable() else _with(text.replace("\r\n", "\n"), f"\n\t{NARROW_SPACE}")


def json_plain(text: str) -> str:
    """A JSON text whose strings cannot steer a terminal either, and that every encoding can carry: the same document,
    with those characters escaped."""
    return _STEERS.sub(_escape, text)


def encodable(text: str) -> str:
    """Text that UTF-8 can carry: a file name's bytes that are no UTF-8, and halves of a pair, are shown by number."""
    return text.encode("utf-8", "backslashreplace").decode()


def plural(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 repair`, `2 repairs`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _with(text: str, kept: str) -> str:
    return "".join(c if c.isprintable() or c in kept else _shown(c) for c in text)


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape(match: re.Match[str]) -> str:
    data = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at] << 8 | data[at + 1]:04x}" for at in range(0, len(data), 2))
