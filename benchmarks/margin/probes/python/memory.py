# SPDX-License-Identifier: Apache-2.0
"""Memory, notification and further calls, most of them by ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import struct
import tempfile
from pathlib import Path

from features import call, done, feature, further, libc, need

PAGE = mmap.PAGESIZE


def _address(memory: mmap.mmap) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


@feature
def map_anonymous() -> None:
    memory = mmap.mmap(-1, 1 << 20)
    memory[:5] = b"hello"
    if os.fork() == 0:
        memory[5:10] = b"child"
        os._exit(0)
    os.wait()
    need(memory[:10] == b"hellochild")


@feature
def map_file() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(PAGE)
        memory = mmap.mmap(file.fileno(), PAGE)
        memory[:5] = b"hello"
        memory.flush()
        file.seek(0)
        need(file.read(5) == b"hello")


@feature
def map_private() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(PAGE))
        file.flush()
        memory = mmap.mmap(file.fileno(), PAGE, mmap.MAP_PRIVATE)
        memory[:5] = b"hello"
        file.seek(0)
        need(file.read(5) == bytes(5))


@feature
def map_resize() -> None:
    memory = mmap.mmap(-1, PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.resize(PAGE * 16)
    need(len(memory) == PAGE * 16)


@feature
def memory_advice() -> None:
    memory = mmap.mmap(-1, PAGE * 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:5] = b"hello"
    for advice in (mmap.MADV_WILLNEED, mmap.MADV_DONTNEED, mmap.MADV_FREE, mmap.MADV_DONTFORK, mmap.MADV_DONTDUMP):
        memory.madvise(advice)


@feature
def memory_advice_large_pages() -> None:
    mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).madvise(mmap.MADV_HUGEPAGE)


@feature
def memory_advice_merging() -> None:
    mmap.mmap(-1, PAGE * 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).madvise(mmap.MADV_MERGEABLE)


@further
def memory_protection() -> None:
    memory = mmap.mmap(-1, PAGE)
    done(libc.mprotect(_address(memory), ctypes.c_size_t(PAGE), 1))


@further
def memory_locked() -> None:
    memory = mmap.mmap(-1, PAGE)
    done(libc.mlock(_address(memory), ctypes.c_size_t(PAGE)))
    done(libc.munlockall())


@further
def memory_in_core() -> None:
    memory = mmap.mmap(-1, PAGE)
    memory[0] = 1
    seen = ctypes.create_string_buffer(1)
    done(libc.mincore(_address(memory), ctypes.c_size_t(PAGE), seen))
    need(seen.raw[0] & 1)


@further
def memory_barrier() -> None:
    need(call("membarrier", 0, 0, 0) > 0)
    call("membarrier", 16, 0, 0)  # registered
    call("membarrier", 8, 0, 0)


@further
def memory_faults_by_hand() -> None:
    os.close(call("userfaultfd", 1 | os.O_CLOEXEC))


@further
def memory_keys() -> None:
    done(libc.pkey_alloc(0, 0))


@further
def memory_of_nodes() -> None:
    mode = ctypes.c_int()
    call("get_mempolicy", ctypes.byref(mode), 0, 0, 0, 0)


@further
def memory_advice_for_others() -> None:
    memory = mmap.mmap(-1, PAGE)
    vector = ctypes.create_string_buffer(struct.pack("PN", _address(memory).value or 0, PAGE))
    call("process_madvise", os.pidfd_open(os.getpid()), ctypes.byref(vector), 1, 20, 0)  # cold


@further
def secret_memory() -> None:
    os.close(call("memfd_secret", 0))


@feature
def large_pages_file() -> None:
    os.close(done(libc.memfd_create(b"large", 4)))


@further
def notify_of_files() -> None:
    handle = done(libc.inotify_init1(0))
    folder = tempfile.mkdtemp()
    done(libc.inotify_add_watch(handle, folder.encode(), 0x100))
    (Path(folder) / "new").touch()
    need(select.select([handle], [], [], 2)[0] and b"new" in os.read(handle, 4096))


@further
def notify_of_file_systems() -> None:
    os.close(done(libc.fanotify_init(0x200, 0)))  # with file handles: for users, too


@further
def shared_memory_sysv() -> None:
    number = done(libc.shmget(0, ctypes.c_size_t(PAGE), 0o1600))
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(number, None, 0)
    need(address not in (None, ctypes.c_void_p(-1).value))
    done(libc.shmctl(number, 0, None))


@further
def semaphores_sysv() -> None:
    number = done(libc.semget(0, 1, 0o1600))
    done(libc.semop(number, struct.pack("Hhh", 0, 1, 0), ctypes.c_size_t(1)))
    done(libc.semctl(number, 0, 0))


@further
def messages_sysv() -> None:
    number = done(libc.msgget(0, 0o1600))
    done(libc.msgsnd(number, struct.pack("l4s", 1, b"text"), ctypes.c_size_t(4), 0))
    done(libc.msgctl(number, 0, None))


@further
def messages_posix() -> None:
    name = f"/probe-{os.getpid()}".encode()
    queue = done(libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None))
    done(libc.mq_send(queue, b"hello", ctypes.c_size_t(5), 1))
    done(libc.mq_unlink(name))


@feature
def semaphores_posix() -> None:
    name = f"/probe-{os.getpid()}".encode()
    libc.sem_open.restype = ctypes.c_void_p
    semaphore = libc.sem_open(name, os.O_CREAT, 0o600, 1)
    need(semaphore)
    done(libc.sem_wait(ctypes.c_void_p(semaphore)))
    done(libc.sem_unlink(name))


@feature
def shared_memory_posix() -> None:
    name = f"/probe-{os.getpid()}".encode()
    os.close(done(libc.shm_open(name, os.O_CREAT | os.O_RDWR, 0o600)))
    done(libc.shm_unlink(name))


@further
def asynchronous_io() -> None:
    context = ctypes.c_ulong()
    call("io_setup", 8, ctypes.byref(context))


@further
def io_uring() -> None:
    os.close(call("io_uring_setup", 8, ctypes.create_string_buffer(120)))


@further
def keyrings() -> None:
    call("keyctl", 0, -2, 1)


@further
def performance_counters() -> None:
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 1) + bytes(96))  # task clock
    ctypes.memmove(ctypes.addressof(attributes) + 40, struct.pack("Q", 1 << 5), 8)  # without the kernel
    os.close(call("perf_event_open", ctypes.byref(attributes), 0, -1, -1, 0))


@further
def landlock() -> None:
    need(call("landlock_create_ruleset", 0, 0, 1) > 0)


@further
def futexes_waited_for() -> None:
    word = ctypes.c_uint32(1)
    waiter = ctypes.create_string_buffer(struct.pack("QQII", 0, ctypes.addressof(word), 2, 0))
    try:
        call("futex_waitv", ctypes.byref(waiter), 1, 0, 0, 0)
    except BlockingIOError:
        return
    raise RuntimeError("waited")


@further
def processor_asked() -> None:
    need(libc.sched_getcpu() >= 0)


@further
def system_information() -> None:
    done(libc.sysinfo(ctypes.create_string_buffer(128)))


@further
def access_with_flags() -> None:
    call("faccessat2", -100, b"/tmp", 4, 0x200)


@further
def file_of_another_process() -> None:
    os.close(call("pidfd_getfd", os.pidfd_open(os.getpid()), 0, 0))
