# SPDX-License-Identifier: Apache-2.0
"""The end of a verb's output: its verdict, at most four figures, doubts, files, and the commands that come next. It
fits a terminal of 80×24, and each command can be copied from it."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vmtailor.base.terminal import RenderableType, Table, TerminalConsole, Text
from vmtailor.base.text import plain

#: Figures and notes that an end shows at the most; lines of a full screen that a note and a verdict take at the most.
FIGURES, NOTES, NOTE_LINES, VERDICT_LINES = 4, 8, 2, 4
#: Lines of a screen that are left for the shell's prompt.
PROMPT = 1
#: Cells before a command, and before the further lines of a long one.
_INDENT, _FURTHER = "  ", "    "


class VerdictMark(Enum):
    """The mark before a verdict, and its colour."""

    GOOD = ("✓", "bold green")
    DOUBTFUL = ("!", "bold yellow")
    BAD = ("✗", "bold red")


@dataclass(frozen=True)
class EndVerdict:
    """The first line of an end: `✓ verified with load: IMAGE works …`."""

    mark: VerdictMark
    headline: str
    text: str = ""


@dataclass(frozen=True)
class EndFigure:
    """A figure of both machines, as text."""

    title: str
    baseline: str
    tailored: str
    ratio: str


@dataclass(frozen=True)
class NextCommand:
    """A command that the user may want next. `does`: what for, as an imperative."""

    does: str
    words: Sequence[str]

    @property
    def text(self) -> str:
        """Return the command as a shell takes it, on one line."""
        return " ".join(plain(shlex.quote(word)) for word in self.words)


@dataclass(frozen=True, kw_only=True)
class VerbEnd:
    """The end of a verb's output. `files`: name and path. `more`: where further notes are, such as `in the report`.
    `commands`: the most useful first."""

    verdict: EndVerdict | None = None
    figures: Sequence[EndFigure] = ()
    notes: Sequence[Text] = ()
    files: Sequence[tuple[str, str]] = ()
    commands: Sequence[NextCommand] = ()
    more: str = ""


def show_end(end: VerbEnd, console: TerminalConsole | None = None) -> None:
    """Print the end of a verb's output, by default on standard output. A terminal gets as many notes and commands as
    its screen has room for, the first of each always; what is no terminal gets all of them, each on one line."""
    console = console or TerminalConsole()
    first: list[Text] = [_verdict(end.verdict)] if end.verdict is not None else []
    figures: list[RenderableType] = [Text(), _figures(end.figures[:FIGURES])] if end.figures else []
    files = [Text(), *_files(end.files)] if end.files else []
    if console.is_terminal:
        first = [_cut(line, VERDICT_LINES, console) for line in first]
        room = console.height - PROMPT - sum(_rows(part, console) for part in (*first, *figures, *files))
        notes, commands = _shortened(end, console, room)
    else:
        notes, commands = list(end.notes), [_command(one, sys.maxsize) for one in end.commands]
    left = len(end.notes) - len(notes)
    more = [Text(f"and {left} more{end.more and ' '}{end.more}", "dim")] if left else []
    for part in (*first, *figures, *([Text(), *notes, *more] if notes else [])):
        console.print(part, soft_wrap=isinstance(part, Text) and not console.is_terminal)
    # A terminal that wraps a line by itself keeps it one line to copy; a line end of ours would not.
    for line in (*files, *([Text()] if commands else []), *(line for lines in commands for line in lines)):
        console.print(line, soft_wrap=True)


def _shortened(end: VerbEnd, console: TerminalConsole, room: int) -> tuple[list[Text], list[list[Text]]]:
    """Return the notes and the commands, each as its lines, that fit so many rows of a screen."""
    whole = list(end.notes[:NOTES])
    cut = [_cut(note, NOTE_LINES, console) for note in whole]
    least = 2 + _rows(cut[0], console) if cut else 0
    commands = _fitting([_command(one, console.width) for one in end.commands], console, room - least - 1)
    room -= sum(_rows(line, console) for lines in commands for line in lines) + (1 if commands else 0)
    few = len(whole) == len(end.notes) and sum(map(len, whole)) < room * console.width  # measuring takes long
    if few and sum(_rows(note, console) for note in whole) < room:
        return whole, commands
    return [note for (note,) in _fitting([[note] for note in cut], console, room - 2)], commands


def _cut(text: Text, lines: int, console: TerminalConsole) -> Text:
    """Return a text that takes at most so many lines of a screen, with `…` where it was cut."""
    cells, short = lines * (console.width - 1), Text.assemble(text)
    if len(short) > cells:
        short.right_crop(len(short) - cells - 1)
    short.truncate(cells, overflow="ellipsis")
    return short


def _fitting(parts: Sequence[list[Text]], console: TerminalConsole, room: int) -> list[list[Text]]:
    """Return the first parts that fit so many rows, at least one."""
    sums = itertools.accumulate(sum(_rows(line, console) for line in part) for part in parts)
    return [part for number, (part, rows) in enumerate(zip(parts, sums, strict=True)) if rows <= room or number == 0]


def _rows(part: RenderableType, console: TerminalConsole) -> int:
    return len(console.render_lines(part, pad=False))


def _files(files: Sequence[tuple[str, str]]) -> list[Text]:
    width = max(len(name) for name, _ in files)
    return [Text.assemble((f"{name:{width}}  ", "bold"), path) for name, path in files]


def _command(one: NextCommand, width: int) -> list[Text]:
    return [Text(f"{one.does}:", "dim"), *(Text(line, "cyan") for line in command_lines(one.words, width))]


def command_lines(words: Sequence[str], width: int) -> list[str]:
    """Return a command as lines of a shell, at most so wide where its words allow it: a longer one goes on after a
    backslash, and no word is divided."""
    quoted = [plain(shlex.quote(word)) for word in words]
    lines, line = [], _INDENT + quoted[0]
    for number, word in enumerate(quoted[1:], 1):
        last = number == len(quoted) - 1
        if len(line) + 1 + len(word) + (0 if last else 2) <= width:
            line += f" {word}"
        else:
            lines.append(f"{line} \\")
            line = _FURTHER + word
    return [*lines, line]


def _verdict(found: EndVerdict) -> Text:
    sign, style = found.mark.value
    return Text.assemble((f"{sign} {found.headline}", style), f": {found.text}" if found.text else "")


def _figures(rows: Sequence[EndFigure]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("baseline", "tailored", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        style = "green" if row.ratio.startswith("÷") else ""
        table.add_row(Text(row.title), row.baseline, Text(row.tailored, "bold"), Text(row.ratio, style))
    return table
