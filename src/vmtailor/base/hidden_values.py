# SPDX-License-Identifier: Apache-2.0
"""Values that nobody may read, hidden in the texts that are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Shorter values than this are in every text, and stay.
LEAST = 4
#: Lines of a value that are hidden each for itself, too, are at least so long.
_LEAST_LINE = 8
#: Shorter values are hidden in the tracer's log as words of their own.
_LEAST_PART = 8
#: A text in the tracer's log, with the mark that it was cut short, or an escape outside of one; a path behind a
#: descriptor. None is longer.
_QUOTED = re.compile(rb'\\.|"(?:[^"\\\n]|\\.){0,8192}+"(?:\.\.\.)?')
_PATH = re.compile(rb"<(?=[/a-z])[^<>\n]{1,4352}>")
_ESCAPES = {ord("\n"): b"\\n", ord("\t"): b"\\t", ord("\r"): b"\\r", 11: b"\\v", 12: b"\\f", 34: b'\\"', 92: b"\\\\"}


@dataclass(frozen=True)
class HiddenValues:
    """Values by the names that stand in their place. Neither is shown where this is printed."""

    pairs: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"HiddenValues({len(self.pairs)})"

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def text(self, text: str) -> str:
        """Return a text with `‹secret NAME›` in the place of each value, and of each long line of one."""
        for value, name in self._parts():
            text = text.replace(value, _mark(name))
        return text

    def data(self, data: bytes) -> bytes:
        """Return bytes, likewise."""
        for value, name in self._parts():
            data = data.replace(_bytes(value), _mark(name).encode())
        return data

    def calls(self, log: bytes) -> bytes:
        """Return a log of the tracer, likewise: within its texts and paths alone, so that the log can still be read,
        and a value of fewer than eight characters as a word of its own: `info` is part of names that count. The
        beginning of a value at the end of a text that was cut short is hidden, too."""
        forms = [(form, _mark(name).encode()) for value, name in self._parts() for form in _escaped(_bytes(value))]
        if not any(form[:LEAST] in log for form, _ in forms):
            return log

        def within(found: re.Match[bytes]) -> bytes:
            text = found[0]
            for form, mark in forms:
                text = _as_words(text, form, mark) if len(form) < _LEAST_PART else text.replace(form, mark)
            if text.endswith(b'"...'):
                inner = text[1:-4]
                for form, mark in forms:
                    most = min(len(form) - 1, len(inner))
                    cut = next((n for n in range(most, LEAST - 1, -1) if inner.endswith(form[:n])), 0)
                    if cut:
                        return b'"' + inner[:-cut] + mark + b'"...'
            return text

        return _PATH.sub(within, _QUOTED.sub(within, log))

    def _parts(self) -> list[tuple[str, str]]:
        """Return what is hidden, the longest first, each with its name."""
        found = [(value, name) for name, value in self.pairs if len(value) >= LEAST]
        found += [
            (line, name)
            for name, value in self.pairs
            for line in map(str.strip, value.splitlines())
            if len(line) >= _LEAST_LINE and line != value
        ]
        return sorted(dict(found).items(), key=lambda one: -len(one[0]))


def of(pairs: Iterable[tuple[str, str]]) -> HiddenValues:
    """Return the values of pairs of a name and a value."""
    return HiddenValues(tuple(pairs))


def _mark(name: str) -> str:
    return f"‹secret {name}›"


def _as_words(text: bytes, word: bytes, mark: bytes) -> bytes:
    """Return a text with a mark in the place of a word, where that is not within another one."""
    first, *others = text.split(word)
    made = first
    for before, after in zip([first, *others], others, strict=False):
        apart = not before[-1:].isalnum() and not after[:1].isalnum()
        made += (mark if apart else word) + after
    return made


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _escaped(value: bytes) -> list[bytes]:
    """Return the forms of bytes in the tracer's log, which shortens a number where no digit follows."""
    forms = []
    for digits in (b"01234567", b"0123456789"):
        form = b""
        for number, byte in enumerate(value):
            if byte in _ESCAPES:
                form += _ESCAPES[byte]
            elif 32 <= byte < 127:
                form += bytes((byte,))
            else:
                follows = value[number + 1 : number + 2]
                form += b"\\%03o" % byte if follows and follows in digits else b"\\%o" % byte
        forms.append(form)
    return list(dict.fromkeys(forms))
