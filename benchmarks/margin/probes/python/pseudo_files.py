# SPDX-License-Identifier: Apache-2.0
"""Files that the kernel makes up: /proc, /sys, /dev. Each is a feature of its own."""

from __future__ import annotations

import os
from pathlib import Path

from features import FEATURES, feature, libc, need

READ = (
    "/proc/self/status", "/proc/self/maps", "/proc/self/cmdline", "/proc/self/stat", "/proc/self/statm",
    "/proc/self/limits", "/proc/self/mountinfo", "/proc/self/mounts", "/proc/self/smaps", "/proc/self/smaps_rollup",
    "/proc/self/environ", "/proc/self/io", "/proc/self/cgroup", "/proc/self/oom_score", "/proc/self/comm",
    "/proc/self/loginuid", "/proc/self/wchan", "/proc/self/schedstat", "/proc/self/uid_map", "/proc/self/fdinfo/0",
    "/proc/self/auxv", "/proc/self/net/dev",
    "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/version",
    "/proc/filesystems", "/proc/cmdline", "/proc/vmstat", "/proc/diskstats", "/proc/interrupts", "/proc/partitions",
    "/proc/devices", "/proc/zoneinfo", "/proc/pressure/memory", "/proc/cgroups", "/proc/crypto",
    "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/unix", "/proc/net/route", "/proc/net/if_inet6",
    "/proc/net/snmp", "/proc/net/netstat", "/proc/net/sockstat", "/proc/sysvipc/shm",
    "/proc/sys/kernel/random/uuid", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/ngroups_max", "/proc/sys/kernel/cap_last_cap", "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/shmmax", "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/max_map_count", "/proc/sys/vm/swappiness", "/proc/sys/fs/file-max", "/proc/sys/fs/nr_open",
    "/proc/sys/fs/pipe-max-size", "/proc/sys/fs/inotify/max_user_watches", "/proc/sys/fs/mqueue/msg_max",
    "/proc/sys/fs/aio-max-nr", "/proc/sys/net/core/somaxconn", "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/ipv4/ip_local_port_range", "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_congestion_control", "/proc/sys/net/ipv6/conf/all/disable_ipv6",
    "/proc/sys/net/unix/max_dgram_qlen",
    "/sys/class/net/lo/address", "/sys/class/net/lo/mtu", "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/possible", "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/devices/system/node/online", "/sys/block", "/sys/fs/cgroup", "/sys/kernel/mm/hugepages",
    "/sys/module", "/sys/class/tty", "/sys/bus/cpu/devices",
    "/dev/zero", "/dev/random", "/dev/urandom", "/dev/null", "/dev/shm", "/dev/pts", "/dev/mqueue", "/dev/fd",
)  # fmt: skip


def _read(path: str) -> None:
    if Path(path).is_dir():
        os.listdir(path)
        return
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    got = os.read(handle, 64)
    need(got or path in ("/dev/null", "/proc/self/wchan", "/proc/self/environ"), "empty")


for _path in READ:
    FEATURES[f"read{_path}"] = lambda path=_path: _read(path)


@feature
def proc_links() -> None:
    need(Path("/proc/self/exe").exists() and Path("/proc/self/cwd").readlink() == Path.cwd())
    need(os.listdir("/proc/self/fd") and os.listdir("/proc/self/task") and os.listdir("/proc/self/ns"))


@feature
def proc_of_others() -> None:
    need(str(os.getpid()) in os.listdir("/proc") and Path("/proc/1/stat").read_text())


@feature
def proc_written() -> None:
    Path("/proc/self/oom_score_adj").write_text("100")
    Path("/proc/self/comm").write_text("renamed")
    need(Path("/proc/self/comm").read_text() == "renamed\n")


@feature
def memory_file_of_the_process() -> None:
    import ctypes

    text = ctypes.create_string_buffer(b"here")
    with Path("/proc/self/mem").open("rb", 0) as file:
        file.seek(ctypes.addressof(text))
        need(file.read(4) == b"here")


@feature
def full_device() -> None:
    try:
        Path("/dev/full").write_bytes(b"x")
    except OSError as error:
        need(error.errno == 28)
        return
    raise RuntimeError("not full")


@feature
def standard_streams() -> None:
    need(Path("/dev/stdin").exists() and Path("/dev/stdout").exists())


@feature
def shared_memory_folder() -> None:
    Path("/dev/shm/probe").write_bytes(bytes(100000))
    need(libc.getpid() == os.getpid())
