# SPDX-License-Identifier: Apache-2.0
"""What a container was refused: what init tells of it, and which of it the baseline would have given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kernel_tree import read_facts

from vmtailor.analysis.demands import demand_rules, refusals
from vmtailor.analysis.demands.degradation import NORMAL
from vmtailor.analysis.demands.demand import Demands
from vmtailor.analysis.demands.refusals import MOST_KINDS, MOST_LINE_BYTES, Told
from vmtailor.analysis.demands.strace_log import parse_line
from vmtailor.base.files import records
from vmtailor.model.syscalls import ObservedCall, ObservedRun

FACTS = read_facts()
RULES = demand_rules.load()
NAMES = {s for text in FACTS.files.values() for s in text.replace("(", " ").replace(")", " ").split()}
BASELINE = dict.fromkeys([*NAMES, "MULTIUSER", "PROC_EXTRA", "MEMBARRIER", "FILE_LOCKING", "UNIX98_PTYS"], "y")


def told(*lines: bytes) -> Told:
    found = Told()
    found.hear(b"".join(line + b"\n" for line in lines))
    return found


def line(call: str, error: str = "ENOSYS", task: bytes = b"<sh>") -> bytes:
    return b"57%b 1795394883.510153 %b = -1 %b (why)" % (task, call.encode(), error.encode())


def symbols_of(call: str, error: str, *, here: dict[str, str] | None = None, failed: bool = False) -> set[str] | None:
    """What a refused call needs; None where nobody is told of it."""
    calls = told(b"1 1 " + line(call, error)).calls()
    assert len(calls) == 1
    demands = Demands(FACTS, RULES, BASELINE, lambda path: b"#!/bin/sh" if path == "/script" else b"\x7fELF\x02")
    alike = {(calls[0].name, calls[0].arguments, error)} if failed else set()
    found = refusals.judged(calls, demands, BASELINE, here or {}, alike)
    return set(found[0].symbols) if found else None


BIND80 = 'bind(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("0.0.0.0")}, 16)'


@pytest.mark.parametrize(
    ("call", "error", "here", "words"),
    [
        ("copy_file_range(3</a>, NULL, 4</b>, NULL, 4096, 0)", "EXDEV", {}, "copied by read and write"),
        ('rename("/a", "/b")', "EXDEV", {}, None),  # as in an engine
        (BIND80, "EACCES", {}, "keep PROC_SYSCTL"),
        (BIND80, "EACCES", {"PROC_SYSCTL": "y"}, None),
        (BIND80.replace("80", "8080"), "EACCES", {}, None),
        (BIND80, "EADDRINUSE", {}, None),
    ],
)
def test_what_fails_here_and_not_in_an_engine_says_why(
    call: str, error: str, here: dict[str, str], words: str | None
) -> None:
    calls = told(b"1 1 " + line(call, error)).calls()
    demands = Demands(FACTS, RULES, BASELINE, lambda path: b"")
    found = refusals.judged(calls, demands, BASELINE, here)
    assert (found[0].also if found else None) == words or (words is not None and words in found[0].also)


def test_a_refused_ping_names_the_setting() -> None:
    calls = told(b"1 1 " + line("socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)", "EACCES")).calls()
    baseline = {**BASELINE, "PROC_SYSCTL": "y", "NET": "y", "INET": "y"}
    demands = Demands(FACTS, RULES, baseline, lambda path: b"")
    (found,) = refusals.judged(calls, demands, baseline, {"NET": "y", "INET": "y", "PROC_FS": "y"})
    assert found.symbols == ("PROC_SYSCTL",)


@pytest.mark.parametrize(
    ("call", "error", "symbols"),
    [
        ("membarrier(0)", "ENOSYS", {"MEMBARRIER"}),
        ("membarrier(0)", "EINVAL", set()),  # the call is there, so that its symbol is not why
        ("membarrier(0)", "EPERM", None),
        ("no_such_call()", "ENOSYS", set()),
        ("socket(AF_INET6, SOCK_STREAM, IPPROTO_IP)", "EAFNOSUPPORT", {"NET", "IPV6"}),
        ("socket(AF_INET6, SOCK_STREAM, IPPROTO_IP)", "ENOSYS", {"NET", "IPV6"}),
        ("socket(AF_INET6, SOCK_STREAM, IPPROTO_IP)", "EMFILE", None),
        ("socket(AF_DECnet, SOCK_STREAM, 0)", "ENOSYS", set()),  # no kernel has it
        # without FILE_LOCKING a lock is refused as if another held it
        ("fcntl(3</db>, F_SETLK, {l_type=F_WRLCK})", "EACCES", {"FILE_LOCKING"}),
        ("fcntl(3</db>, F_SETLK, {l_type=F_WRLCK})", "EBADF", None),
        ('openat(AT_FDCWD</>, "/proc/stat", O_RDONLY)', "ENOENT", {"PROC_FS"}),
        ('openat(AT_FDCWD</proc/self>, "smaps", O_RDONLY)', "ENOENT", {"PROC_FS", "PROC_EXTRA"}),
        ('openat(AT_FDCWD</>, "/proc/stat", O_RDWR)', "EACCES", None),
        ('openat(AT_FDCWD</>, "/etc/passwd", O_RDONLY)', "ENOENT", None),
        # nodes are made by init, and these by nobody
        ('openat(AT_FDCWD</>, "/dev/things/one", O_RDONLY)', "ENOENT", set()),
        ('openat(AT_FDCWD</>, "/dev/things/one", O_RDONLY)', "ENXIO", {"DISK"}),
        ('openat(AT_FDCWD</>, "/dev/ptmx", O_RDWR)', "ENOENT", {"UNIX98_PTYS"}),
        ('execve("/script", ["/script"], 0x7ffd /* 3 vars */)', "ENOEXEC", set()),  # not set on this baseline
        ("ioctl(1<pipe:[16]>, TCGETS, 0x7ffd)", "ENOTTY", None),
        ("ioctl(3</dev/null>, BLKGETSIZE64, 0x7ffd)", "ENOTTY", set()),
    ],
)
def test_what_a_refused_call_needs(call: str, error: str, symbols: set[str] | None) -> None:
    assert symbols_of(call, error) == symbols


def test_what_this_kernel_has_is_not_why() -> None:
    call = "socket(AF_INET6, SOCK_STREAM, IPPROTO_IP)"
    assert symbols_of(call, "EAFNOSUPPORT", here={"NET": "y"}) == {"IPV6"}
    assert symbols_of(call, "EAFNOSUPPORT", here={"NET": "y", "IPV6": "m"}) == set()


def test_what_failed_alike_on_the_baseline_is_not_claimed() -> None:
    assert symbols_of("membarrier(0)", "ENOSYS", failed=True) == set()


def test_what_was_seen_becomes_evidence_where_the_baseline_has_it() -> None:
    calls = told(
        b"1 1 " + line("membarrier(0)"), b"2 1 " + line("no_such_call()"), b"3 1 " + line("read(3)", "EISDIR")
    ).calls()
    demands = Demands(FACTS, RULES, BASELINE)
    refusals.of_observed(calls, demands, BASELINE)
    (found,) = demands.result()
    number = [call.name for call in calls].index("membarrier") + 1
    assert (found.symbols, found.reference) == (("MEMBARRIER",), f"observed:{number}")
    assert found.text.startswith("seen in a run: ") and "ENOSYS" in found.text
    without = Demands(FACTS, RULES, {})
    refusals.of_observed(calls, without, {})
    assert without.result() == ()


def test_asking_what_one_call_needs_leaves_no_evidence() -> None:
    demands = Demands(FACTS, RULES, BASELINE)
    (call,) = told(b"1 1 " + line('connect(3, {sa_family=AF_INET, sin_addr=inet_addr("8.8.8.8")}, 16)')).calls()
    assert demands.alone(refusals.event_of(call), "observed:1") is not None
    assert demands.result() == () and demands.network is None


# ---- what init tells


def test_counts_are_the_last_ones_and_kinds_are_put_together() -> None:
    found = told(
        b"1 1 " + line('access("/proc/7/x", R_OK)', "ENOENT"), b"1 2",
        b"2 5 " + line('access("/proc/8/x", R_OK)', "ENOENT"),
        b"1 64", b"0 3", b"end",
    )  # fmt: skip
    (call,) = found.calls()
    assert (call.count, call.task, call.path, call.arguments) == (69, "sh", "/proc/7/x", "/proc/PID/x, R_OK")
    assert (found.untold, found.whole) == (3, True)


def test_a_run_that_was_cut_off_is_not_whole() -> None:
    found = told(b"1 1 " + line("flock(3</x>, LOCK_EX)"))
    found.hear(b"1 12")  # torn off
    assert not found.whole and [call.count for call in found.calls()] == [1]


def test_a_kernel_without_proc_tells_processes_only() -> None:
    (call,) = told(b"1 1 " + line("flock(3, LOCK_EX)", task=b"")).calls()
    assert call.task == "process 57"


@pytest.mark.attack
@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"1", b"1 ", b"x 1 y", b"1 1 not a call", b"1 1 57 1.0 flock(", b"-1 1 " + line("flock(3)"),
        b"1 99999999999 " + line("flock(3)"), b"1 1 57 1.0 flock(3) = 0", b"1 1 57<a> 1.0 +++ exited with 0 +++",
        b"1 1 " + b"x" * MOST_LINE_BYTES + line("flock(3)"), b"\xff\xfe\0", b"1 1 57 1.0 flock(3 <unfinished ...>",
    ],
)  # fmt: skip
def test_a_forged_line_is_passed_over(wrong: bytes) -> None:
    assert told(wrong).calls() == ()


@pytest.mark.attack
def test_a_flood_has_a_bound() -> None:
    found = Told()
    for number in range(1, MOST_KINDS + 500):
        found.hear(b"%d 1 %b\n" % (number, line(f'access("/proc/x{number}", R_OK)', "ENOENT")))
    found.hear(b"y" * (50 << 20))  # one line without an end
    found.hear(b"\n")
    assert len(found.calls()) == MOST_KINDS


@pytest.mark.attack
@given(
    st.lists(st.binary(max_size=80) | st.sampled_from([b"1 1 ", b"\n", line("flock(3)"), b"2 7", b"end"]), max_size=12)
)
def test_any_bytes_can_be_told(parts: list[bytes]) -> None:
    found = Told()
    for part in parts:
        found.hear(part)
    demands = Demands(FACTS, RULES, BASELINE)
    judged = refusals.judged(found.calls(), demands, BASELINE, {})
    record = ObservedRun("r", "d", "v", "s", tuple(one.call for one in judged))
    assert records.from_bytes(ObservedRun, records.to_bytes(record)) == record


@given(st.text(max_size=60))
def test_a_line_is_a_call_or_nothing(text: str) -> None:
    for one in (text, f"57<{text}> 1.5 {text}", f'57 1.5 open("{text}") = -1 ENOENT (no)'):
        event = parse_line(one)
        assert event is None or (event.name and event.result is not None)


def test_names_of_programs_are_read_with_their_escapes() -> None:
    event = parse_line("57<evil\\76\\n> 1.5 flock(3</x>, LOCK_EX) = -1 ENOSYS (Function not implemented)")
    assert event is not None and (event.task, event.error) == ("evil>\n", "ENOSYS")


def test_what_happens_in_any_machine_is_not_told() -> None:
    """Init leaves these out, so that no symbol may be known by them alone."""
    assert not NORMAL & {"ENOSYS", "EAFNOSUPPORT", "ENOENT", "ENODEV", "EACCES", "EINVAL", "EOPNOTSUPP"}


def test_a_call_keeps_what_it_was_refused_for() -> None:
    call = ObservedCall("flock", ("3</x>", "LOCK_EX"), "/x, LOCK_EX", "ENOSYS", 4, "sh", "")
    event = refusals.event_of(call, 9)
    assert (event.name, event.args, event.error, event.line) == ("flock", call.args, "ENOSYS", 9)
