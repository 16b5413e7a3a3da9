# SPDX-License-Identifier: Apache-2.0
"""Styled text, tables, bars and errors on a terminal. Nothing else imports rich, so that no text from outside meets its
markup, its emoji or the terminal itself unseen.

A string is always text, on one line: neither `[bold]` nor `:x:` nor an escape sequence in it means anything. A line
feed in it is shown. Our own styles are styles of `Text`, our own line ends `BREAK`. Text that bypasses these rules is
checked when it is drawn: line feeds pass there, and other control characters are shown."""

from __future__ import annotations

import contextlib
import io
import pydoc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich import box
from rich.console import Console as _Console
from rich.console import ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text as _Text

from vmtailor.base import text as excerpts
from vmtailor.base.errors import VmtailorError
from vmtailor.base.text import block, plain

__all__ = [
    "BREAK",
    "Column",
    "Group",
    "RenderableType",
    "Table",
    "TerminalConsole",
    "Text",
    "bar",
    "box",
    "folding",
    "for_table",
    "panel",
    "show_error",
    "show_page",
    "stderr",
]  # fmt: skip

#: Columns of a page that is set for reading, at most.
MOST_COLUMNS = 100
#: A line end of our own, in a Text.
BREAK = _Text("\n")


class Text(_Text):
    """Text from anywhere, on one line."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(plain(text), style, **options)

    def append(self, text: _Text | str, style: str | Style | None = None) -> Text:
        """Add text; a Text keeps its styles and its line ends."""
        super().append(plain(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: _Text | str | tuple[str, str | Style], style: str | Style = "", **options: Any) -> Text:
        """Return one text from parts, each with a style of its own or without."""
        text = cls(style=style, **options)
        for part in parts:
            text.append(*(part if isinstance(part, tuple) else (part,)))
        return text


class TerminalConsole(_Console):
    """A terminal, or what stands for one. By default standard output; `stderr=True` the other."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "markup": False, "emoji": False, "highlight": False})

    def render_str(self, text: str, *, style: str | Style = "", **options: Any) -> _Text:
        """Return a string as text, and as nothing else."""
        kept = {name: options[name] for name in ("justify", "overflow") if options.get(name) is not None}
        return Text(text, style, **kept)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to draw, checked a last time."""
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else block(segment.text)
            yield segment if shown is segment.text else Segment(shown, segment.style)


def stderr() -> TerminalConsole:
    """Return the terminal for errors and progress; the one with the bars, where there are some."""
    with _bars.lock:
        return _bars.console or TerminalConsole(stderr=True)


def for_table() -> TerminalConsole:
    """Standard output for wide tables: the terminal's width, and room enough where there is not a terminal."""
    return TerminalConsole(width=None if sys.stdout.isatty() else 200)


def folding(*names: str) -> tuple[Column, ...]:
    """Return columns of these names, whose long cells go on in the next line."""
    return tuple(Column(name, overflow="fold") for name in names)


def panel(content: RenderableType, title: str) -> Panel:
    """Return a frame with a title."""
    return Panel(content, title=Text(title), title_align="left", border_style="dim")


#: Columns of a terminal from which a line of progress has room for a bar and an estimate; cells of the bar.
WIDE, BAR_CELLS = 100, 12


def _columns(width: int) -> list[ProgressColumn]:
    """Return the parts of a line of progress on a terminal so wide. Its title is cut where there is no room; the time
    that has gone by is always whole."""

    def whole() -> Column:
        return Column(no_wrap=True)

    title = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
    bar_cells = [BarColumn(bar_width=BAR_CELLS)] if width >= WIDE else []
    estimate = [TimeRemainingColumn(table_column=whole())] if width >= WIDE else []
    done = TaskProgressColumn(table_column=whole())
    return [
        SpinnerColumn(table_column=whole()),
        title,
        *bar_cells,
        done,
        TimeElapsedColumn(table_column=whole()),
        *estimate,
    ]


class _Bars:
    """The bars that are shown now, one below the other: work may be under way in two threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.console: TerminalConsole | None = None
        self._shown: Progress | None = None
        self._count = 0

    def begin(self, title: str) -> tuple[Progress, TaskID]:
        """Show one more."""
        with self.lock:
            if self._shown is None:
                self.console = TerminalConsole(stderr=True)
                columns = _columns(self.console.width)
                self._shown = Progress(*columns, console=self.console, transient=True, expand=True)
                self._shown.start()
            self._count += 1
            return self._shown, self._shown.add_task(title, total=None)

    def end(self, progress: Progress, task: TaskID) -> None:
        """Show it no longer."""
        with self.lock:
            progress.remove_task(task)
            self._count -= 1
            if self._count == 0:
                progress.stop()
                self._shown = self.console = None


_bars = _Bars()


@contextlib.contextmanager
def bar(title: str) -> Iterator[Callable[[float, float | None, str], None]]:
    """Show a moving bar on standard error until the block is left. Yields the function that moves it: done, total, the
    title now."""
    progress, task = _bars.begin(title)

    def move(done: float, total: float | None, text: str) -> None:
        progress.update(task, completed=done, total=total, description=text)

    try:
        yield move
    finally:
        _bars.end(progress, task)


def show_page(markdown: str) -> None:
    """Show a page of our own documentation, set for reading, through the terminal's pager."""
    from rich.markdown import Markdown  # seldom needed, and slow to load

    width = min(TerminalConsole().width, MOST_COLUMNS)
    set_text = io.StringIO()
    TerminalConsole(file=set_text, width=width, color_system=None).print(Markdown(markdown, hyperlinks=False))
    pydoc.pager(set_text.getvalue())


def details_fit(error: VmtailorError) -> bool:
    """Return whether the evidence of an error is shown whole."""
    return excerpts.fits_screen(block(error.details).splitlines())


def show_error(error: VmtailorError, word: str = "error", whole: object = None) -> None:
    """Print an error for a person: what happened, the evidence, the next step. Each begins a line once, and evidence is
    set off, so that nothing in them looks like words of ours. It fits a screen: of longer evidence the telling lines
    are shown, and `whole`, the file that has all of it, is named."""
    console = stderr()
    console.print(Text.assemble((f"{word}: ", "bold red"), error.message), soft_wrap=True)
    lines = [line.expandtabs() for line in block(error.details).splitlines()]
    for line in excerpts.excerpt(lines):
        console.print(Text.assemble("  ", ("│ ", "dim"), line), soft_wrap=True)
    if whole is not None:
        console.print(Text.assemble(("all of it: ", "bold"), str(whole)), soft_wrap=True)
    if error.hint:
        console.print(Text.assemble(("hint: ", "bold"), error.hint), soft_wrap=True)
