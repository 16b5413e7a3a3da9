# SPDX-License-Identifier: Apache-2.0
"""Progress of long work, on standard error: a moving bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

console = Console(stderr=True, highlight=False)


class Step:
    """One piece of work under way. `update(done, total)` moves the bar; `note` says what is being done just now."""

    def __init__(self, title: str, progress: Progress | None, task: int | None) -> None:
        self.title = title
        self._progress = progress
        self._task = task
        self._last = time.monotonic()

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        if self._progress is not None and self._task is not None:
            description = f"{self.title} {note}".strip()
            self._progress.update(self._task, completed=done, total=total, description=description)  # type: ignore[arg-type]
        elif total and time.monotonic() - self._last > 30:
            self._last = time.monotonic()
            print(f"  {self.title}: {100 * done / total:.0f} % {note}".rstrip(), file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(title: str) -> Iterator[Step]:
    """Show that work is under way until the block is left, then one line with the time it took."""
    started = time.monotonic()
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        with Progress(*columns, TimeElapsedColumn(), Remaining(), console=console, transient=True) as progress:
            task = progress.add_task(title, total=None)
            yield Step(title, progress, task)
    else:
        print(f"{title} …", file=sys.stderr, flush=True)
        yield Step(title, None, None)
    seconds = time.monotonic() - started
    console.print(f"[green]✓[/] {title} [dim]({seconds:.1f} s)[/]")
