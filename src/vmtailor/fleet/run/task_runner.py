# SPDX-License-Identifier: Apache-2.0
"""Runs a task on a worker: a process of its own, which is ended with all that it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from vmtailor.base import concurrency, guard, process
from vmtailor.base.concurrency import Stop
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, temporary
from vmtailor.base.hidden_values import HiddenValues
from vmtailor.fleet.model.orders import MOST_BYTES, MOST_LOG, Order, RunOutcome, TaskAnswer

#: The program of a task.
PROGRAM = (sys.executable, "-P", "-m", "vmtailor.fleet.run.task")
#: Seconds between two looks at a running task; seconds that what it left behind is waited for.
_LOOK_S, _LEFT_S = 0.2, 15.0
#: The call by which orphans of our children become our children (prctl(2)).
_CHILD_SUBREAPER = 36
#: Shown in the place of what nobody may read.
HIDDEN = "…"


@dataclass(frozen=True)
class Hidden:
    """A text that is passed on, and never shown."""

    text: str = ""

    def __repr__(self) -> str:
        return HIDDEN


@dataclass(frozen=True)
class Needed:
    """The things that the worker of an entry needs, and no record has: texts that no log shows, credentials of
    registries, and the values of variables that the list holds, as JSON."""

    secrets: tuple[Hidden, ...] = ()
    login: Hidden | None = None
    variables: Hidden = Hidden()


def adopt_orphans() -> None:
    """Become the parent of what a task's process leaves behind, so that its end can be waited for."""
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(
    order: Order,
    needed: Needed = Needed(),
    secret: Mapping[str, str] | None = None,
    *,
    is_called_off: Callable[[], bool] = lambda: False,
    stop: Stop | None = None,
    program: Sequence[str] = PROGRAM,
) -> TaskAnswer:
    """Run a task to its end, and return its answer. `secret`: variables of its container that this worker has looked
    up. `is_called_off`: asked again and again; True ends it. `stop`: ends it, too."""
    began = time.monotonic()
    guard.start()  # it stays
    before = _children()
    with temporary.held_folder() as folder, concurrency.stopped_by(stop or Stop()):
        answer_file, log_file = folder / "answer.json", folder / "log"
        given = msgspec.json.encode({
            "order": records.to_bytes(order), "credentials": needed.login.text if needed.login is not None else "",
            "plain": needed.variables.text, "secret": dict(secret or {}),
        })  # fmt: skip
        outcome = RunOutcome.NEVER
        with contextlib.suppress(concurrency.Stopped):
            outcome = _ran(given, [*program, str(answer_file)], log_file, order.limit_s, is_called_off)
        _wait_for_orphans(before)
        answer = _answer(outcome, answer_file)
        hidden = [one.text for one in (*needed.secrets, *([needed.login] if needed.login else ())) if one.text]
        values = HiddenValues(tuple((secret or {}).items()))
        log = _end_of(log_file, hidden, values) if answer.outcome is not RunOutcome.DONE else ""
        says, hint = (values.text(_without(text, hidden)) for text in (answer.says, answer.hint))
        seconds = answer.seconds or time.monotonic() - began
        return replace(answer, says=says, hint=hint, log=log, seconds=seconds)


def _ran(
    given: bytes, argv: list[str], log_file: Path, limit_s: float | None, is_called_off: Callable[[], bool]
) -> RunOutcome:
    """Start the process and wait for it; returns how it ended, DONE where it may have answered."""
    end = None if limit_s is None else time.monotonic() + limit_s
    with log_file.open("wb") as log, os.fdopen(os.memfd_create("order"), "w+b") as order:
        order.write(given)
        order.seek(0)
        with process.spawn(argv, stdin=order, stdout=log, stderr=log) as running:
            while running.poll() is None:
                if is_called_off():
                    return RunOutcome.NEVER
                if end is not None and time.monotonic() >= end:
                    return RunOutcome.LATE
                concurrency.check_stopped()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(_LOOK_S)
            return RunOutcome.DONE if running.returncode == 0 else RunOutcome.DIED


def _answer(outcome: RunOutcome, file: Path) -> TaskAnswer:
    if outcome is RunOutcome.DONE:
        with contextlib.suppress(UserInputError):
            answer = records.load(TaskAnswer, file)
            if file.stat().st_size <= MOST_BYTES:
                return answer
            return TaskAnswer(RunOutcome.FAILED, says=f"its answer is longer than {MOST_BYTES} bytes")
        outcome = RunOutcome.DIED
    said = {RunOutcome.DIED: "its process died", RunOutcome.LATE: "it took too long"}
    return TaskAnswer(outcome, says=said.get(outcome, ""))


def _end_of(log: Path, hidden: Sequence[str], values: HiddenValues) -> str:
    """Return the end of a log, without what must not be shown."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # A secret that begins before the end begins to be read is cut off whole.
        longest = max((len(one.encode()) for one in (*hidden, *(value for _, value in values.pairs))), default=0)
        file.seek(max(0, size - MOST_LOG - longest))
        return values.text(_without(file.read().decode("utf-8", "replace"), hidden))[-MOST_LOG:]
    return ""


def _without(text: str, hidden: Sequence[str]) -> str:
    for one in sorted(hidden, key=len, reverse=True):
        text = text.replace(one, HIDDEN)
    return text


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _wait_for_orphans(before: set[int]) -> None:
    """Wait until all that a task left behind is gone; its guard ends it, and then itself."""
    end = time.monotonic() + _LEFT_S
    while time.monotonic() < end:
        left = _children() - before
        for one in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one, os.WNOHANG)
        if not left:
            return
        time.sleep(0.05)
