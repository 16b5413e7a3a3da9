# SPDX-License-Identifier: Apache-2.0
"""Signals, timers and clocks."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import struct
import tempfile
import threading
import time

from features import child, done, feature, further, libc, need

CLOCKS = ("REALTIME", "MONOTONIC", "MONOTONIC_RAW", "BOOTTIME", "PROCESS_CPUTIME_ID", "THREAD_CPUTIME_ID", "TAI")


def _heard(number: int) -> list[int]:
    heard: list[int] = []
    signal.signal(number, lambda got, frame: heard.append(got))
    return heard


@feature
def alarm_and_pause() -> None:
    heard = _heard(signal.SIGALRM)
    signal.alarm(1)
    signal.pause()
    need(heard)


@feature
def timer_real() -> None:
    heard = _heard(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    signal.pause()
    need(heard)


@feature
def timer_virtual() -> None:
    heard = _heard(signal.SIGVTALRM)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)
    until = time.process_time() + 0.5
    while not heard and time.process_time() < until:
        math.factorial(500)
    need(heard)


@feature
def timer_profiling() -> None:
    heard = _heard(signal.SIGPROF)
    signal.setitimer(signal.ITIMER_PROF, 0.01)
    until = time.process_time() + 0.5
    while not heard and time.process_time() < until:
        math.factorial(500)
    need(heard)


@feature
def signal_waited_for() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR1)
    need(signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR2)
    need(signal.sigwaitinfo([signal.SIGUSR2]).si_pid == os.getpid())
    need(signal.sigtimedwait([signal.SIGUSR1], 0.02) is None)


@feature
def signal_wakeup() -> None:
    readable, writable = os.pipe2(os.O_NONBLOCK)
    _heard(signal.SIGUSR1)
    signal.set_wakeup_fd(writable)
    signal.raise_signal(signal.SIGUSR1)
    need(os.read(readable, 1) == bytes([signal.SIGUSR1]))


@feature
def signal_to_a_thread() -> None:
    heard = _heard(signal.SIGUSR1)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    need(heard)


@feature
def signal_of_a_child() -> None:
    heard = _heard(signal.SIGCHLD)
    need(child(lambda: 0) == 0 and heard)


@further
def signal_queued() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    done(libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), ctypes.c_void_p(7)))
    need(signal.sigwaitinfo([signal.SIGRTMIN]).si_code == -1)


@further
def signalfd() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    mask = ctypes.create_string_buffer(struct.pack("Q", 1 << (signal.SIGUSR1 - 1)) + bytes(120))
    handle = done(libc.signalfd(-1, mask, 0))
    os.kill(os.getpid(), signal.SIGUSR1)
    need(struct.unpack("I", os.read(handle, 128)[:4])[0] == signal.SIGUSR1)


@feature
def fault_handler_stack() -> None:
    import faulthandler

    with tempfile.TemporaryFile() as file:
        faulthandler.enable(file)
        faulthandler.dump_traceback_later(0.02, file=file)
        time.sleep(0.1)
        file.seek(0)
        need(b"Timeout" in file.read())


@further
def timer_of_posix() -> None:
    heard = _heard(signal.SIGALRM)
    timer = ctypes.c_void_p()
    done(libc.timer_create(time.CLOCK_MONOTONIC, None, ctypes.byref(timer)))
    done(libc.timer_settime(timer, 0, struct.pack("qqqq", 0, 0, 0, 20000000), None))
    signal.pause()
    need(heard)


@further
def timerfd() -> None:
    handle = done(libc.timerfd_create(time.CLOCK_MONOTONIC, 0))
    done(libc.timerfd_settime(handle, 0, struct.pack("qqqq", 0, 0, 0, 20000000), None))
    need(struct.unpack("Q", os.read(handle, 8)) == (1,))


@feature
def eventfd() -> None:
    handle = os.eventfd(3, os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
    need(os.eventfd_read(handle) == 1)
    os.eventfd_write(handle, 5)


@feature
def clocks() -> None:
    for name in CLOCKS:
        number = getattr(time, f"CLOCK_{name}")
        need(time.clock_gettime_ns(number) > 0 and time.clock_getres(number) > 0, name)


@feature
def clock_sleeps() -> None:
    until = time.monotonic_ns() + 20000000
    moment = struct.pack("qq", until // 10**9, until % 10**9)
    need(libc.clock_nanosleep(time.CLOCK_MONOTONIC, 1, moment, None) == 0)
    need(time.monotonic_ns() >= until)


@feature
def clock_is_fine() -> None:
    started = time.monotonic_ns()
    for _ in range(10):
        time.sleep(0.0002)
    need(time.monotonic_ns() - started < 40_000_000, "coarse")  # of a kernel without fine timers: ten ticks


@feature
def clock_of_another_process() -> None:
    clock = ctypes.c_int()
    need(libc.clock_getcpuclockid(os.getppid(), ctypes.byref(clock)) == 0)
    time.clock_gettime(clock.value)


@further
def clock_adjustment_read() -> None:
    done(libc.adjtimex(ctypes.create_string_buffer(512)))


@feature
def times_of_processes() -> None:
    child(lambda: 0)
    need(os.times().elapsed > 0 and resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0)
