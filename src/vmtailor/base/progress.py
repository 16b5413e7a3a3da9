# SPDX-License-Identifier: Apache-2.0
"""Progress of long work, on standard error: a moving bar on a terminal, plain lines elsewhere. Titles and notes are
text: names from outside may stand in them."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from vmtailor.base import output
from vmtailor.base.cache import lock_holder
from vmtailor.base.text import plain

#: Seconds between two lines of one step where there is not a terminal.
_QUIET_S = 30.0
#: Seconds after which a step that says nothing says that it goes on.
SILENT_S = 60.0


def tell(text: str) -> None:
    """Print a line about what comes next, between two pieces of work."""
    output.note(text)


class ProgressStep:
    """One piece of work under way. `update(done, total)` moves the bar; `note` says what is being done just now."""

    def __init__(self, title: str, move: Callable[[float, float | None, str], None] | None) -> None:
        self.title = title
        self.passed = True
        self._move = move
        self._last = self._started = time.monotonic()
        self._far = ""

    def fail(self) -> None:
        """Note that the work was done, and what it was to show is not so: its line has no tick."""
        self.passed = False

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        """So much is done, of so much if that is known."""
        self._far = ", ".join(part for part in (f"{100 * done / total:.0f} %" if total else "", note) if part)
        lock_holder.say(f"{self.title}: {self._far}" if self._far else self.title)
        if self._move is not None:
            self._move(done, total, plain(f"{self.title}: {note}" if note else self.title))
        elif total and time.monotonic() - self._last > _QUIET_S:
            self._last = time.monotonic()
            output.note(f"  {self.title}: {self._far}")

    def go_on(self) -> None:
        """Say that the work goes on, where there is not a terminal, if nothing was said for a minute."""
        now = time.monotonic()
        if now - self._last >= SILENT_S:
            self._last = now
            far = f", {self._far}" if self._far else ""
            output.note(f"  {self.title}: {(now - self._started) / 60:.0f} min so far{far}")


@contextlib.contextmanager
def _never_silent(shown: ProgressStep) -> Iterator[None]:
    """Have a step say once a minute that it goes on, as long as the block lasts."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SILENT_S / 4):
            shown.go_on()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def step(title: str) -> Iterator[ProgressStep]:
    """Show that work is under way until the block is left, then one line with the time it took."""
    started = time.monotonic()
    if not sys.stderr.isatty():
        output.note(f"{title} …")
        shown = ProgressStep(title, None)
        lock_holder.say(title)
        with _never_silent(shown):
            yield shown
        output.note(f"{'✓' if shown.passed else '✗'} {title} ({time.monotonic() - started:.1f} s)")
        return
    from vmtailor.base import terminal  # takes a tenth of a second, and is for terminals only

    with terminal.bar(plain(title)) as move:
        shown = ProgressStep(title, move)
        lock_holder.say(title)
        yield shown
    seconds = time.monotonic() - started
    sign = ("✓ ", "green") if shown.passed else ("✗ ", "red")
    done = terminal.Text.assemble(sign, title, (f" ({seconds:.1f} s)", "dim"))
    terminal.stderr().print(done)
