# SPDX-License-Identifier: Apache-2.0
"""Long evidence cut to what fits a screen: of each part its last lines, of long lines the beginning."""

from __future__ import annotations

#: Lines of a screen that evidence may take, and how wide a screen is taken for.
LINES, WIDTH = 16, 110
#: Lines of the screen that the first line may take.
FIRST_ROWS = 3
#: How the title of a part begins: `--- console:`.
_TITLE = "--- "


def rows(line: str, width: int = WIDTH) -> int:
    """How many lines of a screen a line takes."""
    return max(1, -(-len(line) // width))


def fits(lines: list[str]) -> bool:
    """Whether all of it can be shown."""
    return sum(rows(line) for line in lines) <= LINES


def excerpt(lines: list[str]) -> list[str]:
    """What takes at most LINES lines of a screen: each line cut to WIDTH, the first, which says what failed, to
    FIRST_ROWS times that. What stands before the first title is what failed, and loses its end; of the other parts the
    end tells more. A part that is shorter leaves its room to the others."""
    if fits(lines):
        return lines
    first_width = FIRST_ROWS * WIDTH
    most = LINES - rows(lines[0][:first_width]) + 1
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
