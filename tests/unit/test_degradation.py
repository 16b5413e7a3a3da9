# SPDX-License-Identifier: Apache-2.0
"""What counts as a call that used to work and now fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.demands.degradation import failed_calls, newly_failing, signature
from vmtailor.model.syscalls import FailedCall, SyscallEvent


def call(name: str, *args: str, error: str = "", result: int | None = 0) -> SyscallEvent:
    return SyscallEvent(1, 1, "t", name, args, -1 if error else result, error, 0.0)


SOCKET = ("AF_INET6", "SOCK_STREAM", "IPPROTO_IP")
OPEN = ("AT_FDCWD</>", '"/proc/12/status"', "O_RDONLY")
OTHER = ("AT_FDCWD</>", '"/proc/99/status"', "O_RDONLY")
TMP = ("AT_FDCWD</>", '"/tmp/aX3"', "O_RDWR|O_CREAT")


@pytest.mark.parametrize(
    ("baseline", "tailored", "counts"),
    [
        # it worked, and fails
        ([call("socket", *SOCKET)], [call("socket", *SOCKET, error="EAFNOSUPPORT")], 1),
        ([call("rseq", "0x1")], [call("rseq", "0x2", error="ENOSYS")], 1),
        ([call("setuid", "33")], [call("setuid", "33", error="EPERM")], 1),
        # it failed alike on the baseline
        ([call("socket", *SOCKET, error="EAFNOSUPPORT")], [call("socket", *SOCKET, error="EAFNOSUPPORT")], 0),
        (
            [call("socket", *SOCKET), call("socket", *SOCKET, error="EMFILE")],
            [call("socket", *SOCKET, error="EMFILE")],
            0,
        ),
        # it was never tried there
        ([], [call("socket", *SOCKET, error="EAFNOSUPPORT")], 0),
        # what happens in a healthy machine
        ([call("read", "3")], [call("read", "3", error="EAGAIN")], 0),
        # search paths: only a path that was there counts
        ([call("openat", *OPEN)], [call("openat", *OTHER, error="ENOENT")], 1),
        ([call("openat", *OPEN)], [call("openat", "AT_FDCWD</>", '"/lib/x.so"', "O_RDONLY", error="ENOENT")], 0),
        # "not built in" counts for another path, too
        (
            [call("openat", *TMP)],
            [call("openat", "AT_FDCWD</>", '"/tmp/bY4"', "O_RDWR|O_CREAT", error="EOPNOTSUPP")],
            1,
        ),
        # another flag is another call
        ([call("mmap", "NULL", "1", "MAP_SHARED")], [call("mmap", "NULL", "1", "MAP_HUGETLB", error="EINVAL")], 0),
        # the result of the call that a signal interrupted is no failure of sigreturn
        ([call("rt_sigreturn", "{}")], [call("rt_sigreturn", "{}", error="EPERM")], 0),
        # a call that did not return on the baseline did not work there
        ([call("futex", "0x1", "FUTEX_WAIT", result=None)], [call("futex", "0x1", "FUTEX_WAIT", error="ENOSYS")], 0),
    ],
)
def test_what_counts(baseline: list[SyscallEvent], tailored: list[SyscallEvent], counts: int) -> None:
    assert len(newly_failing(baseline, tailored)) == counts


def test_it_says_what_failed_and_how_often() -> None:
    failing = [call("openat", *OTHER, error="ENOENT")] * 3
    assert newly_failing([call("openat", *OPEN)], failing) == (
        FailedCall("openat", "/proc/PID/status, O_RDONLY", "ENOENT", 3),
    )
    assert failed_calls(failing) == (FailedCall("openat", "/proc/PID/status, O_RDONLY", "ENOENT", 3),)


def test_signatures_have_no_numbers_and_addresses() -> None:
    assert signature(call("connect", "3<socket:[77]>", '{sa_family=AF_UNIX, sun_path="/x"}', "110")) == "AF_UNIX"
    assert signature(call("ioctl", "3</dev/pts/0>", "TIOCGWINSZ", "0x7f")) == "/dev/pts/0, TIOCGWINSZ"
    assert signature(call("fcntl", "3</a>", "F_SETLK", "{l_type=F_WRLCK}"), paths=False) == "F_SETLK"


calls = st.builds(
    call,
    st.sampled_from(["a", "b", "open"]),
    st.sampled_from(["X", '"/p"', "7"]),
    error=st.sampled_from(["", "ENOSYS", "EIO"]),
)


@given(st.lists(calls))
def test_a_machine_is_never_worse_than_itself(events: list[SyscallEvent]) -> None:
    assert newly_failing(events, events) == ()


@given(st.lists(calls), st.lists(calls))
def test_everything_that_counts_did_fail(baseline: list[SyscallEvent], tailored: list[SyscallEvent]) -> None:
    assert {(f.name, f.arguments, f.error) for f in newly_failing(baseline, tailored)} <= {
        (f.name, f.arguments, f.error) for f in failed_calls(tailored)
    }
