# SPDX-License-Identifier: Apache-2.0
"""The frame of the probe: every feature runs in a child of its own, with a time limit, and has one line.

A line is `name ok`, `name fail:WHY` or `name hang`. The frame itself asks little of the kernel: fork, pipes, a clock.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable

#: Seconds that a feature may take.
LIMIT_S = 20.0
FEATURES: dict[str, Callable[[], object]] = {}
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p

#: Numbers of calls for which the C library has no function: those below 424 differ between processors.
_OF_PROCESSOR = {
    "x86_64": {
        "io_setup": 206, "add_key": 248, "keyctl": 250, "ioprio_get": 252, "move_pages": 279, "perf_event_open": 298,
        "kcmp": 312, "finit_module": 313, "seccomp": 317, "bpf": 321, "userfaultfd": 323, "membarrier": 324,
        "get_mempolicy": 239,
    },
    "aarch64": {
        "io_setup": 0, "add_key": 217, "keyctl": 219, "ioprio_get": 31, "move_pages": 239, "perf_event_open": 241,
        "kcmp": 272, "finit_module": 273, "seccomp": 277, "bpf": 280, "userfaultfd": 282, "membarrier": 283,
        "get_mempolicy": 236,
    },
}  # fmt: skip
_OF_ALL = {
    "io_uring_setup": 425, "open_tree": 428, "pidfd_open": 434, "clone3": 435, "close_range": 436, "openat2": 437,
    "pidfd_getfd": 438, "faccessat2": 439, "process_madvise": 440, "epoll_pwait2": 441,
    "landlock_create_ruleset": 444, "memfd_secret": 447, "futex_waitv": 449,
}  # fmt: skip


def feature(function: Callable[[], object]) -> Callable[[], object]:
    """A feature: it works when the function returns, and does not when it raises."""
    if function.__name__ in FEATURES:
        raise ValueError(f"two features are called {function.__name__}")
    FEATURES[function.__name__] = function
    return function


def further(function: Callable[[], object]) -> Callable[[], object]:
    """A feature that the standard library has no word for: nothing in an image with Python alone asks for it."""
    FEATURES[f"call:{function.__name__}"] = function
    return function


def done(result: int) -> int:
    """What a function of the C library returned. Raises OSError where that is an error."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(name: str, *arguments: object) -> int:
    """A system call by its number."""
    number = _OF_ALL.get(name) or _OF_PROCESSOR.get(os.uname().machine, {})[name]
    libc.syscall.restype = ctypes.c_long
    values = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return done(libc.syscall(ctypes.c_long(number), *values))


def child(function: Callable[[], object]) -> int:
    """Run in a further child; returns its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = int(function() or 0)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def need(wanted: object, why: str = "wrong answer") -> None:
    """Raise unless it is as wanted."""
    if not wanted:
        raise RuntimeError(why)


def _why(error: BaseException) -> str:
    """An error as one word where the system named it, else its first words."""
    if isinstance(error, OSError) and error.errno in errno.errorcode:
        return errno.errorcode[error.errno]
    words = " ".join(str(error).split())[:80]
    return f"{type(error).__name__}:{words}"


def _in_child(function: Callable[[], object], report: int) -> None:
    status = 0
    try:
        os.setpgid(0, 0)
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        function()
    except BaseException as error:
        os.write(report, _why(error).encode("utf-8", "replace")[:200])
        status = 1
    finally:
        os._exit(status)


def outcome(function: Callable[[], object], limit_s: float) -> str:
    """Run one feature in a child: `ok`, `fail:WHY` or `hang`."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        _in_child(function, writable)
    os.close(writable)
    until, pause = time.monotonic() + limit_s, 0.001
    while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(pause)
        pause = min(0.02, pause * 2)
    for group in (-pid, pid):
        try:
            os.kill(group, signal.SIGKILL)
        except OSError:
            pass
    if not ended[0]:
        os.waitpid(pid, 0)
        result = "hang"
    else:
        status = os.waitstatus_to_exitcode(ended[1])
        try:
            why = os.read(readable, 400).decode("utf-8", "replace")
        except BlockingIOError:
            why = ""
        result = "ok" if status == 0 else f"fail:{why or f'status {status}'}"
    os.close(readable)
    return result


def main(names: list[str]) -> None:
    """Probe all features, or those that are named."""
    os.chdir("/tmp")
    for name, function in FEATURES.items():
        if not names or name in names:
            os.write(1, f"{name} {outcome(function, LIMIT_S)}\n".encode())
    os.write(1, b"probe ended\n")


def argued() -> list[str]:
    return sys.argv[1:]
