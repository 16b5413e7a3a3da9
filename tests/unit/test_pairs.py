# SPDX-License-Identifier: Apache-2.0
"""Two pieces of work at a time: results, errors, and that nothing of a stopped one goes on."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import pytest

from vmtailor.base import concurrency, output
from vmtailor.base.cache import lock_holder, store
from vmtailor.base.cache.lock_holder import LockHolder
from vmtailor.base.cache.store import locked
from vmtailor.base.concurrency import Stopped
from vmtailor.base.errors import GuestError
from vmtailor.base.process import run, spawn

#: Longer than any test may take.
LONG_S = 300.0


class Sleeper:
    """Starts programs one after the other until it is stopped; says when the first is there, and how it ended."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.count = 0
        self.ended: BaseException | None = None

    def __call__(self) -> int:
        try:
            while True:
                self.count += 1
                with spawn(["sleep", str(LONG_S)]) as process:
                    self.started.set()
                    process.wait()
        except BaseException as error:
            self.ended = error
            raise


def test_both_results() -> None:
    assert concurrency.both(lambda: run(["echo", "1"], timeout_s=9).text, lambda: "2") == ("1\n", "2")


def test_both_run_at_the_same_time() -> None:
    first, second = threading.Event(), threading.Event()

    def one() -> bool:
        first.set()
        return second.wait(30)

    def other() -> bool:
        second.set()
        return first.wait(30)

    assert concurrency.both(one, other) == (True, True)


def test_what_the_first_raises_is_raised() -> None:
    def fails() -> None:
        raise GuestError("it does not boot")

    with pytest.raises(GuestError, match="does not boot"):
        concurrency.both(fails, lambda: 1)


@pytest.mark.parametrize("error", [GuestError("no"), KeyboardInterrupt()], ids=["error", "interrupted"])
def test_when_the_second_fails_the_programs_of_the_first_are_ended_and_it_starts_no_more(error: BaseException) -> None:
    work = Sleeper()

    def fails() -> None:
        work.started.wait(30)
        raise error

    began = time.monotonic()
    with pytest.raises(type(error)):
        concurrency.both(work, fails)
    assert isinstance(work.ended, Stopped) and work.count == 1
    assert time.monotonic() - began < LONG_S


def test_what_nobody_waits_for_is_stopped() -> None:
    work = Sleeper()
    with concurrency.beside(work):
        assert work.started.wait(30)
    assert isinstance(work.ended, Stopped)


def test_what_a_stopped_piece_had_begun_beside_itself_is_stopped_too() -> None:
    inner = [Sleeper(), Sleeper()]
    with concurrency.beside(lambda: concurrency.both(*inner)):
        for one in inner:
            assert one.started.wait(30)
    assert all(isinstance(one.ended, Stopped) for one in inner)


def test_who_waits_for_a_lock_can_be_stopped(tmp_path: Path) -> None:
    waiting = threading.Event()
    entered = threading.Event()

    def work() -> None:
        waiting.set()
        with locked(tmp_path / "lock", "it"):
            entered.set()

    with locked(tmp_path / "lock"), concurrency.beside(work):
        assert waiting.wait(30)
    assert not entered.is_set()


def test_who_waits_for_anothers_lock_says_so_and_gets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held, said, note = threading.Event(), threading.Event(), output.note

    def noted(text: str) -> None:
        note(text)
        said.set()

    def hold() -> bool:
        with locked(tmp_path / "lock"):
            held.set()
            return said.wait(30)  # the other one gets it only when it has said that it waits

    monkeypatch.setattr(output, "note", noted)
    monkeypatch.setattr(store, "FIRST_SAY_S", 0.0)
    another = LockHolder(os.getpid() + 1, int(time.time()), "")  # a thread of ours would not be worth a line
    monkeypatch.setattr(lock_holder, "read", lambda _: another)
    with concurrency.beside(hold) as holder:
        assert held.wait(30)
        with locked(tmp_path / "lock", "the same kernel"):
            pass
        assert holder.wait()
    told = capsys.readouterr().err
    expected = (
        rf"waiting for the same kernel, which another vmtailor has under way \(process {another.pid}, for \d+ s\)\n"
    )
    assert re.fullmatch(expected, told), said


def test_nothing_is_stopped_in_the_thread_that_everything_begins_in() -> None:
    assert concurrency.current_stop() is None
    concurrency.check_stopped()
