# SPDX-License-Identifier: Apache-2.0
"""Files: locks, ways of reading and writing, what belongs to a file; the modules that live from them."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import sqlite3
import stat
import struct
import tempfile
import time
from pathlib import Path

from features import call, child, done, feature, further, libc, need

TEXT = b"0123456789" * 1000


def _file() -> str:
    handle, name = tempfile.mkstemp()
    os.write(handle, TEXT)
    os.close(handle)
    return name


def _refused(function: object, *arguments: object) -> bool:
    """Whether it is refused because somebody else holds a lock."""
    try:
        function(*arguments)
    except BlockingIOError:
        return True
    return False


@feature
def flock() -> None:
    with Path(_file()).open("rb") as one:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with Path(one.name).open("rb") as two:
            need(_refused(fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB), "locked twice")
        fcntl.flock(one, fcntl.LOCK_UN)


@feature
def flock_waits() -> None:
    name = _file()
    with Path(name).open("rb") as one:
        fcntl.flock(one, fcntl.LOCK_EX)
        pid = os.fork()
        if pid == 0:
            with Path(name).open("rb") as two:
                fcntl.flock(two, fcntl.LOCK_EX)
            os._exit(0)
        time.sleep(0.05)
        need(os.waitpid(pid, os.WNOHANG)[0] == 0, "did not wait")
        fcntl.flock(one, fcntl.LOCK_UN)
        need(os.waitpid(pid, 0)[1] == 0)


@feature
def lockf() -> None:
    with Path(_file()).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        fcntl.lockf(file, fcntl.LOCK_UN)


@feature
def lockf_between_processes() -> None:
    name = _file()
    with Path(name).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)

        def other() -> int:
            with Path(name).open("r+b") as mine:
                return 0 if _refused(fcntl.lockf, mine, fcntl.LOCK_EX | fcntl.LOCK_NB) else 3

        need(child(other) == 0, "locked twice")


@feature
def lock_asked_for() -> None:
    with Path(_file()).open("r+b") as file:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        need(struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK)


@feature
def locks_of_open_files() -> None:
    with Path(_file()).open("r+b") as file:
        fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK


@feature
def lease() -> None:
    with Path(_file()).open("rb") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        need(fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_RDLCK)


@feature
def dnotify() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGIO, lambda number, frame: heard.append(number))
    with tempfile.TemporaryDirectory() as folder:
        handle = os.open(folder, os.O_RDONLY)
        fcntl.fcntl(handle, fcntl.F_NOTIFY, fcntl.DN_CREATE)
        (Path(folder) / "new").touch()
        time.sleep(0.02)
        need(heard)


@feature
def signal_on_input() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGIO, lambda number, frame: heard.append(number))
    readable, writable = os.pipe()
    fcntl.fcntl(readable, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(readable, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writable, b"x")
    time.sleep(0.02)
    need(heard)


@feature
def pipe_size() -> None:
    readable, _ = os.pipe2(os.O_CLOEXEC)
    need(fcntl.fcntl(readable, fcntl.F_SETPIPE_SZ, 1 << 17) == 1 << 17)


@feature
def duplicate_close_on_exec() -> None:
    need(not os.get_inheritable(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 50)))


@feature
def memfd_and_seals() -> None:
    handle = os.memfd_create("probe", os.MFD_ALLOW_SEALING)
    os.write(handle, b"x")
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    try:
        os.write(handle, b"y")
    except PermissionError:
        return
    raise RuntimeError("written although it is sealed")


@feature
def copy_file_range() -> None:
    with Path(_file()).open("rb") as one, tempfile.TemporaryFile() as two:
        need(os.copy_file_range(one.fileno(), two.fileno(), 5000) > 0)


@feature
def splice() -> None:
    readable, writable = os.pipe()
    with Path(_file()).open("rb") as file:
        need(os.splice(file.fileno(), writable, 1000) == 1000)
    need(os.read(readable, 10) == b"0123456789")


@further
def tee_and_vmsplice() -> None:
    one, two = os.pipe(), os.pipe()
    os.write(one[1], b"hello")
    need(done(libc.tee(one[0], two[1], ctypes.c_size_t(5), 0)) == 5)


@feature
def sendfile_to_a_file() -> None:
    with Path(_file()).open("rb") as one, tempfile.TemporaryFile() as two:
        need(os.sendfile(two.fileno(), one.fileno(), 0, 1000) == 1000)


@feature
def read_and_write_at() -> None:
    handle = os.open(_file(), os.O_RDWR)
    need(os.pread(handle, 5, 10) == b"01234")
    need(os.preadv(handle, [bytearray(5)], 0, 0) == 5)
    need(os.pwritev(handle, [b"abc"], 3, os.RWF_DSYNC) == 3)


@feature
def advise_file() -> None:
    handle = os.open(_file(), os.O_RDWR)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    done(libc.readahead(handle, ctypes.c_long(0), ctypes.c_size_t(4096)))


@feature
def allocate_file() -> None:
    handle = os.open(_file(), os.O_RDWR)
    os.posix_fallocate(handle, 0, 100000)
    done(libc.fallocate(handle, 3, ctypes.c_long(0), ctypes.c_long(4096)))  # a hole
    need(os.lseek(handle, 0, os.SEEK_DATA) >= 0)


@feature
def sync_in_every_way() -> None:
    handle = os.open(_file(), os.O_RDWR)
    os.fsync(handle)
    os.fdatasync(handle)
    os.sync()
    done(libc.sync_file_range(handle, ctypes.c_long(0), ctypes.c_long(0), 7))
    done(libc.syncfs(handle))


@feature
def direct_input() -> None:
    handle = os.open(_file(), os.O_RDONLY | os.O_DIRECT)
    need(os.readv(handle, [mmap.mmap(-1, 4096)]) == 4096)


@feature
def nameless_file() -> None:
    handle = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
    os.write(handle, b"x")


@further
def nameless_file_linked() -> None:
    handle = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
    done(libc.linkat(-100, f"/proc/self/fd/{handle}".encode(), -100, f"/tmp/linked-{os.getpid()}".encode(), 0x400))


@further
def rename_exclusively() -> None:
    one, two = _file(), _file()
    done(libc.renameat2(-100, one.encode(), -100, two.encode(), 2))  # exchanged


@feature
def links_and_owners() -> None:
    name = _file()
    os.link(name, f"{name}.hard")
    Path(f"{name}.soft").symlink_to(name)
    need(Path(f"{name}.soft").readlink() == Path(name))
    os.chown(name, 12, 34)
    Path(name).chmod(0o4711)
    os.utime(name, ns=(1, 2))
    found = Path(name).stat()
    need(found.st_uid == 12 and found.st_nlink == 2 and found.st_mtime_ns == 2)


@feature
def extended_attributes() -> None:
    name = _file()
    os.setxattr(name, "user.probe", b"value")
    need(os.getxattr(name, "user.probe") == b"value" and os.listxattr(name))


@feature
def access_control_lists() -> None:
    entries = b"".join(struct.pack("HHI", *one) for one in ((1, 6, 2**32 - 1), (2, 4, 7), (4, 4, 2**32 - 1),
                                                            (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)))  # fmt: skip
    os.setxattr(_file(), "system.posix_acl_access", struct.pack("I", 2) + entries)


@feature
def device_nodes() -> None:
    name = f"/tmp/null-{os.getpid()}"
    os.mknod(name, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    need(stat.S_ISCHR(Path(name).stat().st_mode))


@feature
def named_pipe() -> None:
    name = f"/tmp/pipe-{os.getpid()}"
    os.mkfifo(name)
    handle = os.open(name, os.O_RDWR | os.O_NONBLOCK)
    os.write(handle, b"x")
    need(os.read(handle, 1) == b"x")


@feature
def file_systems_asked() -> None:
    need(os.statvfs("/").f_bsize and shutil.disk_usage("/tmp").total)


@further
def file_handles() -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 64, 0) + bytes(64))
    mount = ctypes.c_int()
    done(libc.name_to_handle_at(-100, b"/tmp", handle, ctypes.byref(mount), 0))


@feature
def folders_by_handle() -> None:
    with tempfile.TemporaryDirectory() as folder:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.mkdir("inner", dir_fd=at)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        need(sorted(os.listdir(at)) == ["file", "inner"])
        need(os.access("file", os.R_OK, dir_fd=at))
        os.rename("file", "other", src_dir_fd=at, dst_dir_fd=at)
        os.fchdir(at)
        need(Path("other").exists() and os.getcwd() == folder)
        need(len([*os.fwalk(".")]) == 2)


@further
def openat2_beneath() -> None:
    at = os.open("/tmp", os.O_PATH)
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_RDONLY | os.O_DIRECTORY, 0, 8))
    os.close(call("openat2", at, b".", ctypes.byref(how), 24))


@feature
def change_root() -> None:
    def inside() -> int:
        os.chroot("/tmp")
        os.chdir("/")
        return 0 if not Path("/usr/lib").exists() else 4

    need(child(inside) == 0)


@further
def close_range() -> None:
    handle = os.dup(0)
    call("close_range", handle, handle, 0)


@feature
def temporary_files() -> None:
    with tempfile.NamedTemporaryFile() as one, tempfile.SpooledTemporaryFile(max_size=1) as two:
        one.write(TEXT)
        two.write(TEXT)
        one.flush()
        need(Path(one.name).stat().st_size == len(TEXT))


@feature
def shutil_trees() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "one"
        (source / "inner").mkdir(parents=True)
        (source / "inner" / "file").write_bytes(TEXT)
        shutil.copytree(source, Path(folder) / "two")
        shutil.move(Path(folder) / "two", Path(folder) / "three")
        archive = shutil.make_archive(f"{folder}/packed", "gztar", source)
        shutil.unpack_archive(archive, f"{folder}/four")
        shutil.rmtree(source)
        need((Path(folder) / "four/inner/file").read_bytes() == TEXT)


@feature
def shutil_copy_with_attributes() -> None:
    name = _file()
    shutil.copy2(name, f"{name}.copy")
    shutil.chown(f"{name}.copy", 0, 0)
    need(Path(f"{name}.copy").stat().st_mtime_ns == Path(name).stat().st_mtime_ns)


@feature
def sqlite_in_memory() -> None:
    database = sqlite3.connect(":memory:")
    need(database.execute("select 6 * 7").fetchone() == (42,))


def _database(mode: str) -> str:
    name = f"{tempfile.mkdtemp()}/database"
    with sqlite3.connect(name) as database:
        need(database.execute(f"pragma journal_mode = {mode}").fetchone()[0] == mode)
        database.execute("create table t (v integer)")
        database.executemany("insert into t values (?)", [(i,) for i in range(200)])
    return name


@feature
def sqlite_file() -> None:
    name = _database("delete")
    need(sqlite3.connect(name).execute("select count(*) from t").fetchone() == (200,))


@feature
def sqlite_wal() -> None:
    name = _database("wal")
    with sqlite3.connect(name) as one, sqlite3.connect(name) as two:
        one.execute("insert into t values (1)")
        need(two.execute("select count(*) from t").fetchone() == (200,))


@feature
def sqlite_locks() -> None:
    name = _database("delete")
    with sqlite3.connect(name, isolation_level=None) as one:
        one.execute("begin exclusive")

        def other() -> int:
            try:
                sqlite3.connect(name, timeout=0.05).execute("insert into t values (1)")
            except sqlite3.OperationalError as error:
                return 0 if "locked" in str(error) else 4
            return 5

        need(child(other) == 0, "not locked")
        one.execute("commit")


@feature
def sqlite_mapped_and_copied() -> None:
    with sqlite3.connect(_database("delete")) as one, sqlite3.connect(":memory:") as two:
        one.execute("pragma mmap_size = 1000000")
        one.backup(two)
        need(two.execute("select count(*) from t").fetchone() == (200,))


@feature
def shelf() -> None:
    import dbm.dumb

    with dbm.dumb.open(f"{tempfile.mkdtemp()}/shelf", "c") as shelf_:
        shelf_["a"] = b"b"


@feature
def mailbox_with_locks() -> None:
    import mailbox

    box = mailbox.mbox(f"{tempfile.mkdtemp()}/box")
    box.lock()
    box.add("From: me\n\nhello\n")
    box.flush()
    box.unlock()
    need(len(box) == 1)


@feature
def tar_with_special_files() -> None:
    import tarfile

    folder = tempfile.mkdtemp()
    os.mkfifo(f"{folder}/pipe")
    Path(f"{folder}/link").symlink_to("pipe")
    with tarfile.open(f"{folder}.tar", "w") as archive:
        archive.add(folder, "all")
    with tarfile.open(f"{folder}.tar") as archive:
        archive.extractall(f"{folder}-out")
    need(stat.S_ISFIFO(Path(f"{folder}-out/all/pipe").stat().st_mode))
