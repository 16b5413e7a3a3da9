# SPDX-License-Identifier: Apache-2.0
"""The log of a watched system, read as a stream. The excerpt is of the Docker host of examples/debian-vm."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.systems import log
from vmtailor.analysis.systems.log import Mark, Reading
from vmtailor.analysis.systems.seen import Seen
from vmtailor.model.syscalls import SyscallEvent

EXCERPT = Path(__file__).parents[2] / "data/systems/docker-host.strace"
BEGIN = b'1<init> 1.0 execve("/sbin/init", ["/sbin/init"], 0x1 /* 2 vars */) = 0 <0.1>\n'
OTHER = b"8<b> 3.0 getpid() = 8 <0.1>\n"


def read(data: bytes, size: int = 1 << 16) -> tuple[Reading, list[SyscallEvent | Mark]]:
    reading = Reading()
    return reading, list(reading.read(data[at : at + size] for at in range(0, len(data), size)))


def calls(found: Iterable[SyscallEvent | Mark]) -> list[SyscallEvent]:
    return [one for one in found if isinstance(one, SyscallEvent)]


def test_a_recorded_log_is_understood_line_by_line() -> None:
    reading, found = read(EXCERPT.read_bytes())
    assert reading.skipped == 0 and reading.whole
    assert reading.lines == len(EXCERPT.read_text().splitlines())
    assert {one.kind for one in found if isinstance(one, Mark)} == {
        "time",
        "events",
        "kernel",
        "device",
        "module",
        "section",
    }
    assert 300 < reading.last_s - reading.first_s < 900


def test_it_begins_where_the_roots_own_init_does() -> None:
    _, found = read(EXCERPT.read_bytes())
    first = calls(found)[0]
    assert (first.pid, first.name, first.args[0]) == (1, "execve", '"/sbin/init"')
    assert all(event.args[:1] != ('"/init"',) for event in calls(found))


def test_calls_in_two_halves_are_put_together_with_the_task_that_made_them() -> None:
    _, found = read(EXCERPT.read_bytes())
    (key,) = [event for event in calls(found) if event.name == "add_key"]
    assert key.task == "(mount)" and key.args[:2] == ('"user"', '"invocation_id"') and key.result == 1025494983


def test_sockets_with_paths_in_their_names_are_whole_arguments() -> None:
    files = b'55<UNIX-STREAM:[3501->3480,"/run/x"]>, 4</dev/null<char 1:3>>'
    _, found = read(BEGIN + b"7<a> 2.0 kcmp(1<systemd>, 1<systemd>, KCMP_FILE, " + files + b") = 1 <0.1>\n")
    assert calls(found)[-1].args[3:] == ('55<UNIX-STREAM:[3501->3480,"/run/x"]>', "4</dev/null<char 1:3>>")


def test_one_process_that_hangs_loses_nothing_of_the_others() -> None:
    data = (
        BEGIN
        + b"7<a> 2.0 read(3</x>,  <unfinished ...>\n"
        + b"".join(b"8<b> 3.0 getpid() = 8 <0.1>\n" for _ in range(50))
    )
    reading, found = read(data)
    assert reading.calls == 51
    assert [(e.name, e.result) for e in calls(found)][-1] == ("read", None)
    assert reading.never_returned == 1


def test_what_follows_the_first_nul_is_the_rest_of_a_disk() -> None:
    reading, found = read(
        BEGIN + b"8<b> 3.0 getpid() = 8 <0.1>\n8<b> 3.0 getp" + bytes(100) + b"9<c> 4.0 getpid() = 9 <0.1>\n"
    )
    assert [event.pid for event in calls(found)] == [1, 8]
    assert reading.skipped == 0


@pytest.mark.attack
def test_a_line_without_end_and_processes_without_number_are_kept_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "MOST_PENDING", 10)
    data = (
        BEGIN
        + b"x" * (log.MOST_LINE * 3)
        + b"\n"
        + b"".join(b"%d<a> 2.0 read(3,  <unfinished ...>\n" % n for n in range(2, 200))
    )
    reading, found = read(data)
    assert reading.skipped == 1 + 188
    assert reading.never_returned == 10 and len(calls(found)) == 11


@pytest.mark.attack
def test_a_log_of_too_many_lines_says_that_it_was_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MOST_LINES", 5)
    reading, found = read(BEGIN + OTHER * 20)
    assert not reading.whole and len(calls(found)) == 5


@pytest.mark.attack
def test_a_process_of_the_guest_cannot_write_a_mark() -> None:
    """What it is called, or writes, stands behind the tracer's number."""
    _, found = read(BEGIN + b'8<+++ vmtailor> 3.0 write(1, "\\n+++ vmtailor module x 1 2 +++", 30) = 30 <0.1>\n')
    assert not [one for one in found if isinstance(one, Mark)]


@given(st.binary(max_size=2000), st.integers(1, 50))
def test_any_bytes_are_read(data: bytes, size: int) -> None:
    reading, _ = read(BEGIN + data, size)
    assert reading.lines >= 1


def test_failed_calls_and_files_are_counted_in_one_pass() -> None:
    seen = Seen()
    seen.take([EXCERPT.read_bytes()])
    assert any(one.error == "ENOENT" and "memory.max" in one.arguments for one in seen.failed_calls)
    assert {use.path for use in seen.files} >= {"/sbin/init", "/sys/fs/cgroup/memory.max"}
    assert not seen.cut


def test_what_the_attendant_does_is_not_the_systems_and_what_it_starts_by_name_is() -> None:
    log = (
        b'1<small-init> 0.5 execve("/attendant", ["/attendant"], 0x1) = 0 <0.1>\n'
        b'1<attendant> 0.6 mount("/dev/vda", "/root", "ext4", MS_RDONLY, NULL) = 0 <0.1>\n'
        b"1<attendant> 0.7 fork() = 5 <0.1>\n"
        b'1<attendant> 1.0 execve("/sbin/init", ["/sbin/init"], 0x1 /* 2 vars */) = 0 <0.1>\n'
        b"5<attendant> 1.1 epoll_create1(0) = 3 <0.1>\n"
        b'6<attendant> 1.2 execveat(4, "", ["client"], 0x1, AT_EMPTY_PATH) = 0 <0.1>\n'
        b"6<4> 1.3 socket(AF_INET, SOCK_STREAM, 0) = 3 <0.1>\n"
        b'7<attendant> 1.4 execve("/bin/systemctl", ["systemctl"], 0x1) = 0 <0.1>\n'
        b"7<systemctl> 1.5 socket(AF_UNIX, SOCK_STREAM, 0) = 3 <0.1>\n"
    )
    _, found = read(log)
    assert [(one.pid, one.name) for one in calls(found)] == [(1, "execve"), (7, "execve"), (7, "socket")]
