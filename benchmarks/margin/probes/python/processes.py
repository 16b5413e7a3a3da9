# SPDX-License-Identifier: Apache-2.0
"""Processes and threads."""

from __future__ import annotations

import ctypes
import math
import os
import pty
import resource
import select
import signal
import stat
import struct
import subprocess
import tempfile
import termios
import threading
import time
import tty
from pathlib import Path

from features import call, child, done, feature, further, libc, need


@feature
def wait_in_every_way() -> None:
    for wait in (
        lambda pid: os.waitid(os.P_PID, pid, os.WEXITED).si_status,
        lambda pid: os.WEXITSTATUS(os.wait4(pid, 0)[1]),
        lambda pid: os.WEXITSTATUS(os.waitpid(pid, 0)[1]),
    ):
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        need(wait(pid) == 7)


@feature
def pidfd() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(5)
        os._exit(0)
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    need(select.select([handle], [], [], 5)[0])
    need(os.waitid(os.P_PIDFD, handle, os.WEXITED).si_status == signal.SIGTERM)


@feature
def subprocess_runs() -> None:
    found = subprocess.run(["cat"], input=b"x" * 100000, capture_output=True, check=True, timeout=10)
    need(len(found.stdout) == 100000)


@feature
def subprocess_shell() -> None:
    need(subprocess.check_output("echo one | tr a-z A-Z; exit 0", shell=True) == b"ONE\n")


@feature
def subprocess_timeout() -> None:
    try:
        subprocess.run(["sleep", "30"], check=True, timeout=0.1)
    except subprocess.TimeoutExpired:
        return
    raise RuntimeError("no timeout")


@feature
def subprocess_of_another_user() -> None:
    found = subprocess.run(
        ["id", "-u"], user=65534, group=65534, extra_groups=[], start_new_session=True, capture_output=True, check=True
    )
    need(found.stdout == b"65534\n")


@feature
def subprocess_inherits() -> None:
    readable, writable = os.pipe()
    subprocess.run(["sh", "-c", f"echo hello >&{writable}"], pass_fds=[writable], check=True, umask=0o77)
    need(os.read(readable, 10) == b"hello\n")


def _script(first: str) -> str:
    name = f"{tempfile.mkdtemp()}/script"
    Path(name).write_text(f"{first}\necho ran\n")
    Path(name).chmod(0o755)
    return name


@feature
def script_with_interpreter() -> None:
    need(subprocess.check_output([_script("#!/bin/sh")]) == b"ran\n")


@feature
def script_with_env() -> None:
    need(subprocess.check_output([_script("#!/usr/bin/env sh")]) == b"ran\n")


@feature
def spawn_of_posix() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], os.environ, setsigmask=[signal.SIGUSR1], setpgroup=0)
    need(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3)


@feature
def execute_by_handle() -> None:
    def run() -> None:
        os.execve(os.open("/bin/true", os.O_RDONLY), ["true"], {})

    need(child(run) == 0)


@feature
def environment_and_system() -> None:
    need(os.waitstatus_to_exitcode(os.system("exit 5")) == 5)
    with os.popen("echo hi") as pipe:
        need(pipe.read() == "hi\n")


@feature
def groups_and_sessions() -> None:
    def inside() -> int:
        os.setsid()
        return 0 if os.getsid(0) == os.getpid() == os.getpgid(0) else 4

    need(child(inside) == 0)


@feature
def identities() -> None:
    def inside() -> int:
        os.setgroups([5, 6])
        os.setresgid(7, 7, 7)
        os.setresuid(8, 8, 8)
        return 0 if os.getresuid() == (8, 8, 8) and os.getgroups() == [5, 6] else 4

    need(child(inside) == 0)


@feature
def identity_of_files() -> None:
    def inside() -> int:
        os.seteuid(65534)
        try:
            Path("/root").iterdir().__next__()
        except (PermissionError, StopIteration) as error:
            return 0 if isinstance(error, PermissionError) else 4
        return 5

    need(child(inside) == 0)


@further
def capabilities_read() -> None:
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    done(libc.capget(header, ctypes.create_string_buffer(24)))


@feature
def scheduling() -> None:
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.sched_rr_get_interval(0)
    os.sched_yield()
    need(os.nice(3) >= 3 and os.getpriority(os.PRIO_PROCESS, 0) >= 3)


@further
def scheduling_of_input_and_output() -> None:
    call("ioprio_get", 1, 0)


@feature
def cpus_and_load() -> None:
    need(os.cpu_count() and len(os.getloadavg()) == 3)


@feature
def limits() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
    resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 0))
    need(resource.getrlimit(resource.RLIMIT_CORE) == (0, 0))


@feature
def limit_of_processor_time() -> None:
    def inside() -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
        while time.process_time() < 1.8:
            math.factorial(500)
        return 4

    need(child(inside) == -signal.SIGXCPU)


@feature
def limit_of_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
    try:
        bytearray(500 << 20)
    except MemoryError:
        return
    raise RuntimeError("not limited")


@feature
def core_dump() -> None:
    folder = tempfile.mkdtemp()

    def inside() -> None:
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, resource.RLIM_INFINITY))
        os.abort()

    pid = os.fork()
    if pid == 0:
        inside()
    need(os.WCOREDUMP(os.waitpid(pid, 0)[1]), "not dumped")


@feature
def process_names() -> None:
    done(libc.prctl(15, b"probe", 0, 0, 0))
    name = ctypes.create_string_buffer(16)
    done(libc.prctl(16, name, 0, 0, 0))
    need(name.value == b"probe")


@further
def process_settings() -> None:
    for number, value in ((1, signal.SIGTERM), (36, 1), (4, 1), (38, 1)):  # at parent's death, reaper, dumpable, no new
        done(libc.prctl(number, ctypes.c_ulong(int(value)), 0, 0, 0))


@further
def calls_filtered() -> None:
    done(libc.prctl(38, ctypes.c_ulong(1), 0, 0, 0))
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))  # allow everything
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))
    call("seccomp", 1, 0, ctypes.byref(program))


@further
def tracing() -> None:
    def inside() -> int:
        done(libc.ptrace(0, 0, None, None))
        os.kill(os.getpid(), signal.SIGSTOP)
        return 0

    pid = os.fork()
    if pid == 0:
        os._exit(inside())
    need(os.WIFSTOPPED(os.waitpid(pid, 0)[1]))


@further
def memory_of_another_process() -> None:
    text = ctypes.create_string_buffer(b"visible")
    pid = os.fork()
    if pid == 0:
        time.sleep(5)
        os._exit(0)
    into = ctypes.create_string_buffer(7)
    mine = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(into), 7))
    theirs = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(text), 7))
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    try:
        need(done(libc.process_vm_readv(pid, mine, 1, theirs, 1, 0)) == 7 and into.raw == b"visible")
    finally:
        os.kill(pid, signal.SIGKILL)


@further
def personality_read() -> None:
    done(libc.personality(ctypes.c_ulong(0xFFFFFFFF)))


@further
def compare_processes() -> None:
    call("kcmp", os.getpid(), os.getpid(), 1, 0, 0)


@further
def user_namespace() -> None:
    def inside() -> int:
        done(libc.unshare(0x10000000))
        return 0

    need(child(inside) == 0)


@feature
def pseudo_terminal() -> None:
    master, slave = os.openpty()
    need(os.ttyname(slave) and os.isatty(slave))
    tty.setraw(slave)
    os.write(master, b"x")
    need(os.read(slave, 1) == b"x")
    termios.tcgetattr(slave)
    need(os.get_terminal_size(slave))


@feature
def pseudo_terminal_session() -> None:
    pid, master = pty.fork()
    if pid == 0:
        os.execlp("tty", "tty")
    need(b"/dev/pts/" in os.read(master, 100))


@feature
def threads() -> None:
    found: list[int] = []
    many = [threading.Thread(target=lambda: found.append(threading.get_native_id())) for _ in range(20)]
    for one in many:
        one.start()
    for one in many:
        one.join()
    need(len(found) == 20)


@feature
def thread_timeouts() -> None:
    need(not threading.Event().wait(0.02))
    lock = threading.Lock()
    lock.acquire()
    need(not lock.acquire(timeout=0.02))
    condition = threading.Condition()
    with condition:
        need(not condition.wait(0.02))


@feature
def thread_timer_and_barrier() -> None:
    event = threading.Event()
    threading.Timer(0.02, event.set).start()
    need(event.wait(5))
    barrier = threading.Barrier(2, timeout=5)
    threading.Thread(target=barrier.wait).start()
    barrier.wait()


def _mutex(kind: str, value: int) -> None:
    attribute, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(128)
    need(libc.pthread_mutexattr_init(attribute) == 0)
    need(getattr(libc, f"pthread_mutexattr_{kind}")(attribute, value) == 0)
    need(libc.pthread_mutex_init(mutex, attribute) == 0, "init")
    need(libc.pthread_mutex_lock(mutex) == 0, "lock")
    need(libc.pthread_mutex_unlock(mutex) == 0, "unlock")


@further
def mutex_with_inheritance() -> None:
    _mutex("setprotocol", 1)


@further
def mutex_robust() -> None:
    _mutex("setrobust", 1)


@feature
def randomness() -> None:
    need(len(os.getrandom(16)) == 16 and len(os.urandom(16)) == 16)


@feature
def names_of_the_system() -> None:
    import grp
    import pwd

    need(os.uname().sysname == "Linux" and os.sysconf("SC_PAGE_SIZE") and os.sysconf("SC_NPROCESSORS_ONLN"))
    need(pwd.getpwuid(0).pw_name == grp.getgrgid(0).gr_name == "root")


@feature
def set_user_id_program() -> None:
    folder = tempfile.mkdtemp()
    Path(folder).chmod(0o755)
    program = f"{folder}/id"
    Path(program).write_bytes(Path("/usr/bin/id").read_bytes())
    Path(program).chmod(0o755 | stat.S_ISUID)
    found = subprocess.run([program, "-u"], user=65534, capture_output=True, check=True)
    need(found.stdout == b"0\n", "not set")
