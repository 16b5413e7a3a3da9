# SPDX-License-Identifier: Apache-2.0
"""Tables of an exercise's TOML file, read key by key; a mistake is an error that names its place."""

from __future__ import annotations

import re
from typing import Any

from vmtailor.base import manual, near_names
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.documents import shown
from vmtailor.drivers.image.image_config import WORD_BYTES

_METHOD = re.compile(r"[A-Z]{1,16}")
EXAMPLE = f"{manual.command('exercise')} shows all keys"


class ExerciseTable:
    """One table of the file. Every key that is read is struck off; what is left at the end is a mistake."""

    def __init__(self, origin: str, where: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise UserInputError(f"{origin}: {where} must be a table", hint=EXAMPLE)
        self.origin = origin
        self.where = where
        self._left: dict[str, Any] = dict(values)
        self._given = frozenset(values)
        self._known: set[str] = set()

    def wrong(self, key: str, what: str) -> UserInputError:
        """Return the error for a key. One that was not given may stand there misspelt: then the error is that one's."""
        if key in self._known and key not in self._given and (meant := near_names.nearest(key, self._left, 1)):
            return self._unknown(meant[0], key)
        return self._error(key, what)

    def _unknown(self, key: str, meant: str) -> UserInputError:
        error = self._error(key, "is not known here")
        error.hint = f"did you mean {meant}? {error.hint}" if meant else error.hint
        return error

    def _take(self, key: str, default: Any = None) -> Any:
        self._known.add(key)
        return self._left.pop(key, default)

    def _error(self, key: str, what: str) -> UserInputError:
        key = key if len(key) <= 60 and key.isprintable() else shown(key, 60)
        place = f"{self.where}.{key}" if self.where else key
        return UserInputError(f"{self.origin}: {place} {what}", hint=EXAMPLE)

    def text(self, key: str, default: str | None = None) -> str | None:
        value = self._take(key, default)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"must be a text, not {shown(value)}")
        if value is not None and "\0" in value:
            raise self.wrong(key, "holds a NUL")
        return value

    def request(self) -> tuple[str, str]:
        """Return method and path of a request of HTTP."""
        method, path = self.text("method", "GET") or "", self.text("path", "/") or ""
        if not _METHOD.fullmatch(method):
            raise self.wrong("method", f"is {shown(method, 40)}")
        if not path.startswith("/") or not path.isascii() or any(c <= " " or c == "\x7f" for c in path):
            raise self.wrong("path", "must begin with / and hold neither blanks nor control characters (write %20)")
        return method, path

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int | None:
        value = self._take(key, default)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(key, f"must be a number from {low} to {high}, not {shown(value)}")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self._take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 86400:
            raise self.wrong(key, f"must be a number of seconds from above 0 to 86400, not {shown(value)}")
        return float(value)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float | None:
        """Return a number, whole or not; None where it is left out and has no default."""
        value = self._take(key, default)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(key, f"must be a number from {low:g} to {high:g}, not {shown(value)}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, not {shown(value)}")
        return value

    def span(self, key: str, default: tuple[float, float]) -> tuple[float, float]:
        """Return the shortest and the longest of some seconds: two numbers, the second one no smaller."""
        value = self._take(key, list(default))
        numbers = isinstance(value, list) and all(type(one) in (int, float) and 0 <= one <= 86400 for one in value)
        if not numbers or len(value) != 2 or value[0] > value[1]:
            raise self.wrong(key, "must be two numbers of seconds, the shortest and the longest, such as [0.5, 5]")
        return float(value[0]), float(value[1])

    def argv(self, key: str = "argv") -> tuple[str, ...]:
        value = self._take(key)
        if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
            raise self.wrong(key, 'must be a list of words, such as ["redis-cli", "ping"]')
        if not value[0] or any("\0" in word for word in value):
            raise self.wrong(key, "has an empty program or a NUL")
        if max(len(word.encode()) for word in value) > WORD_BYTES:
            raise self.wrong(key, f"has a word of more than {WORD_BYTES} bytes, which no program can be given")
        return tuple(value)

    def numbers(self, key: str, low: int, high: int, most: int) -> tuple[int, ...]:
        values = self._take(key, [])
        fits = isinstance(values, list) and all(type(value) is int and low <= value <= high for value in values)
        if not fits or len(values) > most:
            raise self.wrong(key, f"must be a list of at most {most} numbers from {low} to {high}")
        return tuple(values)

    def has(self, key: str) -> bool:
        self._known.add(key)
        return key in self._left

    def table(self, key: str) -> ExerciseTable | None:
        if not self.has(key):
            return None
        return ExerciseTable(self.origin, f"{self.where}.{key}" if self.where else key, self._left.pop(key))

    def tables(self, key: str) -> list[ExerciseTable]:
        values = self._take(key, [])
        if not isinstance(values, list):
            raise self.wrong(key, f"must be written as [[{key}]]")
        return [ExerciseTable(self.origin, f"{key}[{index}]", value) for index, value in enumerate(values, 1)]

    def end(self) -> None:
        if self._left:
            strange = sorted(self._left)[0]
            raise self._unknown(strange, next(iter(near_names.nearest(strange, self._known, 1)), ""))
