# SPDX-License-Identifier: Apache-2.0
"""The tracer's log: calls, interrupted calls, tasks, phases, and whatever else a guest may send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.demands.call_paths import paths
from vmtailor.analysis.demands.strace_log import descriptor_path, parse, split_arguments, summarise, unquote
from vmtailor.model.syscalls import SyscallEvent

LOG = b"""\
100 1000.000001 execve("/usr/sbin/server", ["/usr/sbin/server", "-D"], 0x7ffe /* 38 vars */) = 0 <0.001792>
100 1000.000100 openat(AT_FDCWD</srv>, "conf", O_RDONLY|O_CLOEXEC) = 3</srv/conf> <0.000006>
100 1000.000200 read(3</srv/conf>, "a, \\"b\\" (c\\n", 4096) = 9 <0.000010>
100 1000.000300 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f10cb45e000 <0.000010>
100 1000.000400 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 101 <0.0001>
101 1000.000450 epoll_wait(4<anon_inode:[eventpoll]>,  <unfinished ...>
100 1000.000500 accept4(5<socket:[76239]>, NULL, NULL, SOCK_CLOEXEC) = -1 EAGAIN (Try again) <0.00001>
100 1000.000600 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=101} ---
101 1001.500000 <... epoll_wait resumed>[{events=EPOLLIN, data={u32=5, u64=5}}], 64, 1000) = 1 <1.499550>
101 1001.600000 prctl(PR_SET_NAME, "worker") = 0 <0.000002>
101 1001.700000 getpid() = 101 <0.000002>
100 1002.000000 poll([{fd=3</srv/conf>, events=POLLIN}], 1, 5) = 1 ([{fd=3, revents=POLLIN}]) <0.000005>
100 1002.100000 fcntl(3</srv/conf>, F_GETFL) = 0x8000 (flags O_RDONLY|O_LARGEFILE) <0.000005>
100 1002.200000 nanosleep({tv_sec=1, tv_nsec=0}, NULL) = ? ERESTART_RESTARTBLOCK (Interrupted by signal) <0.5>
101 1002.300000 futex(0x7f, FUTEX_WAIT_PRIVATE, 2, NULL <unfinished ...>
101 1002.400000 +++ killed by SIGTERM +++
100 1003.000000 exit_group(3) = ?
100 1003.000001 +++ exited with 3 +++
"""


def test_a_whole_log() -> None:
    log = parse(LOG)
    assert log.skipped == 0
    by_name = {e.name: e for e in log.events}
    assert [e.name for e in log.events][:3] == ["execve", "openat", "read"]
    assert by_name["read"].args == ("3</srv/conf>", '"a, \\"b\\" (c\\n"', "4096") and by_name["read"].result == 9
    assert by_name["mmap"].result == 0x7F10CB45E000
    assert by_name["accept4"].error == "EAGAIN" and by_name["accept4"].result == -1
    assert by_name["poll"].args == ("[{fd=3</srv/conf>, events=POLLIN}]", "1", "5")
    assert by_name["fcntl"].result == 0x8000
    assert by_name["nanosleep"].result is None and by_name["nanosleep"].error == "ERESTART_RESTARTBLOCK"
    assert by_name["exit_group"].result is None and by_name["exit_group"].args == ("3",)


def test_an_interrupted_call_stands_where_it_began() -> None:
    log = parse(LOG)
    call = next(e for e in log.events if e.name == "epoll_wait")
    assert call.line == 6 and call.result == 1 and call.seconds == pytest.approx(1.49955)
    assert call.args == ("4<anon_inode:[eventpoll]>", "[{events=EPOLLIN, data={u32=5, u64=5}}]", "64", "1000")
    assert [e.line for e in log.events] == sorted(e.line for e in log.events)


def test_a_call_that_never_returned_is_kept() -> None:
    call = next(e for e in parse(LOG).events if e.name == "futex")
    assert call.result is None and call.error == "" and call.args == ("0x7f", "FUTEX_WAIT_PRIVATE", "2", "NULL")


def test_tasks_have_the_name_of_what_they_run() -> None:
    tasks = {(e.name, e.task) for e in parse(LOG).events}
    assert ("openat", "server") in tasks
    assert ("epoll_wait", "server") in tasks, "a child that began before its clone returned"
    assert ("getpid", "worker") in tasks


def test_phases_by_the_clock() -> None:
    log = parse(LOG, [("start-up", 1000.0), ("load", 1001.55), ("stop", 1002.15)])
    phases = {e.name: e.phase for e in log.events}
    assert phases["read"] == "start-up" and phases["epoll_wait"] == "start-up", "where it began"
    assert phases["getpid"] == "load" and phases["exit_group"] == "stop"


def test_what_follows_a_zero_byte_is_ignored() -> None:
    assert parse(LOG + b"\0" * 100 + LOG) == parse(LOG)


def test_a_torn_or_foreign_line_is_skipped() -> None:
    log = parse(b'100 1.000000 read(3, "abc\nhello\n100 1.1 close(3) = 0 <0.1>\n100 1.2 write(1, ')
    assert [e.name for e in log.events] == ["close"] and log.skipped == 3


def test_summaries() -> None:
    text = b"".join(b"7 1.%d read(3, 0x%x, 10) = %d <0.00000%d>\n" % (n, n, n, n) for n in (1, 2, 3))
    rows = summarise(parse(text + b"7 2.0 read(3, 0x9, 10) = -1 EIO (Error) <0.000002>\n").events)
    assert len(rows) == 1 and rows[0].count == 4 and rows[0].errors == (("EIO", 1),)
    assert rows[0].min_s == pytest.approx(1e-6) and rows[0].max_s == pytest.approx(3e-6)
    assert rows[0].mean_s == pytest.approx(2e-6)
    assert rows[0].constant_args == ((0, "3"), (2, "10"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1, 2)", ["1", "2"]),
        (")", []),
        ('"a,b)", {x=[1, 2]}, 3</a,b>)', ['"a,b)"', "{x=[1, 2]}", "3</a,b>"]),
        ("1<<3, 4)", ["1<<3", "4"]),
        ("0x7f /* 38 vars, (x) */, 1)", ["0x7f /* 38 vars, (x) */", "1"]),
        ("AT_FDCWD</a>, NULL)", ["AT_FDCWD</a>", "NULL"]),
    ],
)
def test_arguments(text: str, parts: list[str]) -> None:
    found, end = split_arguments(text)
    assert found == parts and end == len(text)


@given(st.lists(st.one_of(
    st.integers().map(str),
    st.text(alphabet="abc,(){}[]<> ", max_size=8).map(lambda t: f'"{t}"'),
    st.text(alphabet="ab,/", max_size=8).map(lambda t: f"3<{t}>"),
    st.text(alphabet="AB_|", min_size=1, max_size=8),
    st.lists(st.integers(), max_size=3).map(str),
), max_size=6))  # fmt: skip
def test_arguments_come_back(parts: list[str]) -> None:
    assert split_arguments(", ".join(parts) + ") = 0") == (parts, len(", ".join(parts)) + 1)


@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(data: bytes) -> None:
    parse(data)


@given(st.lists(st.sampled_from(LOG.decode().splitlines()), max_size=20), st.integers(0, 60))
def test_lines_lost_mixed_or_cut_do_no_harm(lines: list[str], cut: int) -> None:
    data = "\n".join(lines)[: -cut or None]
    log = parse(data.encode())
    assert all(e.task for e in log.events)
    summarise(log.events)


@given(st.text())
def test_unquoting_never_fails(text: str) -> None:
    unquote('"' + text)
    descriptor_path(text)


def test_unquoting() -> None:
    assert unquote('"a\\n\\"\\101\\x41\\\\"') == 'a\n"AA\\'
    assert unquote("NULL") == "NULL"
    # Bytes are UTF-8, as file names are; others stand as surrogates.
    assert unquote('"b\\303\\251"') == "bé" and unquote('"\\377"') == "\udcff"
    assert descriptor_path("3</srv/caf\\303\\251>") == "/srv/café" and descriptor_path("3</a b>") == "/a b"


@pytest.mark.parametrize(
    ("name", "args", "found"),
    [
        ("openat", ("AT_FDCWD</srv>", '"x/../y"', "O_RDONLY"), ("/srv/y",)),
        ("openat", ("AT_FDCWD", '"x"', "O_RDONLY"), ("x",)),
        ("newfstatat", ("3</etc/passwd>", '""', "0x1", "AT_EMPTY_PATH"), ("/etc/passwd",)),
        ("open", ('"/etc/passwd"', "O_RDONLY"), ("/etc/passwd",)),
        ("mount", ('"proc"', '"/proc"', '"proc"', "0", "NULL"), ("proc", "/proc")),
        ("open", ("0x7f",), ()),
        ("open", (), ()),
        ("read", ("3</etc/passwd>",), ()),
    ],
)
def test_paths_of_calls(name: str, args: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert paths(SyscallEvent(1, 1, "t", name, args, 0, "", 0.0)) == found
