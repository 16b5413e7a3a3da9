# SPDX-License-Identifier: Apache-2.0
"""A command that is timed: its moments come one after the other, and what it says is kept, up to a size."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from vmtailor.bench.runtimes.stopwatch import MOST_BYTES, CallBacks, said_until_now, timed

#: Most of what `sleep .3` may be too short for clocks that tick apart.
LEAST_S = 0.25


def test_the_moments_of_a_command_are_told_apart(tmp_path: Path) -> None:
    shell = f": >'{tmp_path}/here'; sleep .3; echo one; sleep .3; echo two >&2; exit 7"
    with contextlib.closing(CallBacks(tmp_path)) as callbacks:
        found = timed(["sh", "-c", shell], deadline_s=60.0, callbacks=callbacks)
    (report,) = found.reports
    assert found.first_output_s is not None and report > 0.0
    assert found.first_output_s - report > LEAST_S and found.exit_s - found.first_output_s > LEAST_S
    assert found.exit_s < 60.0
    assert (found.returncode, found.stdout, found.stderr, found.said) == (7, b"one\n", b"two\n", "two")


def test_what_is_said_on_the_other_stream_is_no_first_output() -> None:
    found = timed(["sh", "-c", "echo two >&2"], deadline_s=60.0)
    assert found.first_output_s is None and found.reports == () and found.returncode == 0


def test_a_command_has_its_own_surroundings(tmp_path: Path) -> None:
    found = timed(["/bin/sh", "-c", 'echo "$A"; pwd -P'], deadline_s=60.0, env={"A": "b c"}, cwd=tmp_path)
    assert found.stdout.decode() == f"b c\n{tmp_path.resolve()}\n"


def test_what_does_not_end_in_time_is_ended() -> None:
    began = time.monotonic()
    found = timed(["sh", "-c", "exec sleep 60"], deadline_s=0.5)
    assert 0.5 <= time.monotonic() - began < 50.0
    assert found.returncode is None and found.exit_s == 0.5 and found.first_output_s is None


@pytest.mark.lengthy
def test_a_command_has_ended_though_what_it_started_holds_its_output() -> None:
    found = timed(["sh", "-c", "echo begun; sleep 60 & exit 4"], deadline_s=3.0)
    assert found.returncode == 4 and found.exit_s < 3.0 and found.stdout == b"begun\n"


def test_what_comes_after_a_commands_end_is_its_output_too() -> None:
    found = timed(["sh", "-c", "(sleep .3; echo late) & exit 0"], deadline_s=60.0)
    assert found.stdout == b"late\n" and found.first_output_s is not None and found.first_output_s > found.exit_s


def test_what_is_said_beyond_a_size_is_read_and_cut() -> None:
    most = MOST_BYTES
    shell = f"head -c {most - 1} /dev/zero; echo abc; head -c {most} /dev/zero >&2; echo x >&2; exit 3"
    found = timed(["sh", "-c", shell], deadline_s=60.0)
    assert found.returncode == 3 and found.stdout == bytes(most - 1) + b"a" and found.stderr == bytes(most)
    with TemporaryFile() as file:
        file.write(bytes(most) + b"more")
        file.flush()
        assert said_until_now(file) == bytes(most)
