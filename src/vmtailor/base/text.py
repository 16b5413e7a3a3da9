# SPDX-License-Identifier: Apache-2.0
"""Text for a terminal: untrusted text made harmless, by showing what would steer one or by taking it out, and long
evidence cut to what fits a screen."""

from __future__ import annotations

import re
import shlex

from vmtailor.base.figures import NARROW_SPACE

#: Characters of a line that is read as a shell reads it.
MOST_SHELL_LINE = 8192
#: Characters that JSON allows raw and a terminal may obey: DEL, C1, marks of direction, zero width, other line ends,
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
    """Return a JSON text whose strings cannot steer a terminal, and that every encoding can carry. The document is
    equal; those characters are escaped."""
    return _STEERS.sub(_escape, text)


def encodable(text: str) -> str:
    """Text that UTF-8 can carry: a file name's bytes that are no UTF-8, and halves of a pair, are shown by number."""
    return text.encode("utf-8", "backslashreplace").decode()


def is_number(text: str | bytes) -> bool:
    """Return whether text is of ASCII digits alone. `str.isdigit` takes ² and ٣ for digits, and `int` refuses some of
    them."""
    return text.isascii() and text.isdigit()


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 repair`, `2 repairs`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _with(text: str, kept: str) -> str:
    return "".join(c if c.isprintable() or c in kept else _shown(c) for c in text)


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape(match: re.Match[str]) -> str:
    data = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at] << 8 | data[at + 1]:04x}" for at in range(0, len(data), 2))


_SEQUENCES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # operating system commands and other strings
    r"|\x1b[ -/]*[0-~]?"  # the short ones
)
_ESCAPES = re.compile(_SEQUENCES)
_ESCAPES_OF_BYTES = re.compile(_SEQUENCES.encode())
#: All controls but tab and line feed.
_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])
_NO_CONTROLS = dict.fromkeys(_CONTROLS)


def without_sequences(text: str) -> str:
    """Return text without escape sequences; other controls stay."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def without_escapes(text: str) -> str:
    """Return text without escape sequences, and without controls but tab and line feed."""
    return without_sequences(text).translate(_NO_CONTROLS)


def remove_sequences(data: bytes) -> tuple[bytes, int]:
    """Return bytes without escape sequences, and how many there were."""
    return _ESCAPES_OF_BYTES.subn(b"", data) if b"\x1b" in data else (data, 0)


def without_controls(data: bytes) -> bytes:
    """Return bytes without controls but tab and line feed."""
    return data.translate(None, _CONTROLS)


#: Lines of a screen that evidence may take, and how wide a screen is taken for.
LINES, WIDTH = 16, 110
#: Lines of the screen that the first line may take.
FIRST_ROWS = 3
#: Prefix of a part's title: `--- console:`.
_TITLE = "--- "


def screen_rows(line: str, width: int = WIDTH) -> int:
    """Return how many lines of a screen a line takes."""
    return max(1, -(-len(line) // width))


def fits_screen(lines: list[str]) -> bool:
    """Return whether the whole text can be shown."""
    return sum(screen_rows(line) for line in lines) <= LINES


def excerpt(lines: list[str]) -> list[str]:
    """Return an excerpt that takes at most LINES lines of a screen. Each line is cut to WIDTH, the first, which says
    what failed, to FIRST_ROWS times that. The part before the first title loses its end; the other parts lose their
    beginnings. A shorter part leaves its room to the others."""
    if fits_screen(lines):
        return lines
    first_width = FIRST_ROWS * WIDTH
    most = LINES - screen_rows(lines[0][:first_width]) + 1
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(_TITLE):
            parts.append([])
        parts[-1].append(line)
    parts = [part for part in parts if part]
    titled = [part[0].startswith(_TITLE) for part in parts]
    parts, titled = parts[:most], titled[:most]
    room = [1] * len(parts)
    while sum(room) < most and any(r < len(part) for r, part in zip(room, parts, strict=True)):
        # The part that shows least gets the next line; of equals the later one, which is nearer to the failure's cause.
        at = min((i for i in range(len(parts)) if room[i] < len(parts[i])), key=lambda i: (room[i], -i))
        room[at] += 1
    shown: list[str] = []
    for part, number, has_title in zip(parts, room, titled, strict=True):
        if number == len(part):
            shown += part
        elif has_title:
            shown += [part[0], *part[len(part) - number + 1 :]]
        elif len(parts) == 1:
            shown += part[-number:]
        else:
            shown += part[:number]
    return [_cut(line, WIDTH if number else first_width) for number, line in enumerate(shown)]


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 2]} …"


def shell_words(line: str, comments: bool = False) -> list[str]:
    """Split a line into words as a shell does; at its spaces where quotes do not close, or the line is longer than a
    program's line is. (shlex takes time that grows with the square of a word's length.)"""
    try:
        return shlex.split(line, comments=comments) if len(line) <= MOST_SHELL_LINE else line.split()
    except ValueError:
        return line.split()
