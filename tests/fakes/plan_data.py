# SPDX-License-Identifier: Apache-2.0
"""A made-up plan, with symbols of every cause and what ran and was left out; none of its figures was measured."""

from __future__ import annotations

import dataclasses

from vmtailor.model.change import Cause, Change, ChangeKind, Figure, Reason, Setting, exact, symbol
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength
from vmtailor.model.plan import Plan, RootFormat

DEMANDED = {
    "EPOLL": ("epoll_create1", 412),
    "INET": ("socket(AF_INET, SOCK_STREAM)", 388),
    "NET": ("socket", 388),
    "UNIX": ("socket(AF_UNIX, SOCK_STREAM)", 97),
    "FUTEX": ("futex(FUTEX_WAKE)", 131),
    "EVENTFD": ("eventfd2", 240),
    "MULTIUSER": ("setuid", 356),
    "FILE_LOCKING": ("fcntl(F_SETLK)", 301),
    "SHMEM": ("mmap(MAP_SHARED|MAP_ANONYMOUS)", 204),
    "PROC_SYSCTL": ("openat(/proc/sys/kernel/ngroups_max)", 120),
    "SIGNALFD": ("signalfd4", 245),
    "BINFMT_SCRIPT": ("execve(#!)", 77),
    "POSIX_TIMERS": ("timer_create", 81),
    "ADVISE_SYSCALLS": ("madvise(MADV_DONTNEED)", 309),
    "AIO": ("io_setup", 360),
}
PLATFORM = {
    "64BIT": "x86-64",
    "EXPERT": "expert",
    "PVH": "direct-boot",
    "TTY": "console",
    "PRINTK": "console",
    "SERIAL_8250": "console",
    "SERIAL_8250_CONSOLE": "console",
    "BUG": "oops",
    "VIRTIO_MENU": "virtio-mmio",
    "VIRTIO_MMIO": "virtio-mmio",
    "VIRTIO_MMIO_CMDLINE_DEVICES": "virtio-mmio",
    "VIRTIO_BLK": "root-disk",
    "EROFS_FS": "root-file-system",
    "OVERLAY_FS": "writable-root",
    "TMPFS": "writable-root",
    "PROC_FS": "proc",
    "SYSFS": "sys",
    "BINFMT_ELF": "programs",
    "VIRTIO_NET": "network",
    "HYPERVISOR_GUEST": "direct-boot",
}
POLICY = {
    "PARAVIRT": "paravirt",
    "KVM_GUEST": "paravirt",
    "STACKPROTECTOR": "stack-protector",
    "STACKPROTECTOR_STRONG": "stack-protector",
    "STRICT_KERNEL_RWX": "kernel-rwx",
    "HARDENED_USERCOPY": "hardened-usercopy",
    "CPU_MITIGATIONS": "mitigations",
    "MITIGATION_RETPOLINE": "mitigations",
    "MITIGATION_RETHUNK": "mitigations",
    "MITIGATION_SRSO": "mitigations",
    "HIGH_RES_TIMERS": "timers",
    "NO_HZ_IDLE": "timers",
    "JUMP_LABEL": "jump-labels",
    "CC_OPTIMIZE_FOR_PERFORMANCE": "optimise-for-speed",
}
DEPENDENCY = {
    "BLOCK": "VIRTIO_BLK",
    "BLK_DEV": "VIRTIO_BLK",
    "MISC_FILESYSTEMS": "EROFS_FS",
    "NETDEVICES": "VIRTIO_NET",
    "NET_CORE": "VIRTIO_NET",
    "EROFS_FS_XATTR": "EROFS_FS",
    "SERIAL_CORE": "SERIAL_8250",
    "SYSVIPC": "SHMEM",
}
HIDDEN = (
    "ARCH_HAS_ACPI_TABLE_UPGRADE",
    "ARCH_HAS_DEBUG_WX",
    "CRC32",
    "GENERIC_IRQ_PROBE",
    "HAVE_ARCH_JUMP_LABEL",
    "VIRTIO",
    "VIRTIO_ANCHOR",
    "X86_TSC",
    "X86_CMOV",
    "GENERIC_CLOCKEVENTS",
    "NO_HZ_COMMON",
    "TICK_ONESHOT",
    "DST_CACHE",
    "GRO_CELLS",
    "FS_IOMAP",
    "XARRAY_MULTI",
    "RATIONAL",
    "SERIAL_CORE_CONSOLE",
    "CLOCKSOURCE_WATCHDOG",
    "ANON_INODES_ALWAYS",
    "BITREVERSE",
    "LZ4_DECOMPRESS",
    "IRQ_DOMAIN",
    "SPARSE_IRQ",
    "SRCU",
    "RCU_TREE",
)
LEFT_OUT = (
    "CRYPTO_MANAGER_EXTRA_TESTS",
    "SECURITY_APPARMOR",
    "AUDIT",
    "CGROUPS",
    "MEMCG",
    "BPF_SYSCALL",
    "FTRACE",
    "KPROBES",
    "ACPI",
    "PCI",
    "USB_SUPPORT",
    "HID",
    "IPV6",
    "NETFILTER",
    "NF_TABLES",
    "SOUND",
    "DRM",
    "INPUT",
    "RTC_CLASS",
    "TCG_TPM",
    "SECURITY_SELINUX",
    "SECURITY_YAMA",
    "SECURITY_TOMOYO",
    "IMA",
    "NUMA",
    "SMP",
    "MODULES",
    "KEXEC",
    "HIBERNATION",
    "SUSPEND",
    "CPU_FREQ",
    "CPU_IDLE",
    "HOTPLUG_PCI",
    "NVME_CORE",
    "ATA",
    "SCSI",
    "MD",
    "DM_CRYPT",
    "EXT4_FS",
    "XFS_FS",
    "BTRFS_FS",
    "NFS_FS",
    "FUSE_FS",
    "AUTOFS_FS",
    "QUOTA",
    "FANOTIFY",
    "INOTIFY_USER",
    "IO_URING",
    "USERFAULTFD",
    "KSM",
    "TRANSPARENT_HUGEPAGE",
    "ZSWAP",
    "SWAP",
    "PERF_EVENTS",
    "PROFILING",
)


def plan() -> Plan:
    symbols = _symbols()
    y = [c for c in symbols if c.value == "y"]
    return Plan(
        kernel_version="6.12.117",
        machine="microvm",
        cpus=1,
        root_format=RootFormat.EROFS,
        fragment=tuple((c.id, c.value) for c in symbols if c.setting.chosen),
        changes=(*symbols, *_words(), *_left_out(symbols)),
        total_y=len(y),
        prompted_y=sum(c.setting.chosen for c in y),
    )


def _words() -> tuple[Change, ...]:
    table = (
        ("quiet", "", Reason(Cause.POLICY, "policy:quiet", "each character on the serial line is an exit to the host")),
        ("root", "/dev/vda", Reason(Cause.PLATFORM, "platform:root-disk", "the first disk holds the root")),
        ("random.trust_cpu", "1", Reason(Cause.POLICY, "policy:random", "getrandom does not wait for entropy")),
    )
    steps = [(Setting(ChangeKind.COMMAND_LINE, name, value), reason) for name, value, reason in table]
    return tuple(Change(str(step), "", (step,), (reason,)) for step, reason in steps)


def _symbols() -> tuple[Change, ...]:
    found = []
    for name, (key, line) in DEMANDED.items():
        reasons = [Reason(Cause.DEMANDED, f"trace:requests:{line}", f"the container called {key}")]
        if name == "SHMEM":
            reasons.append(
                Reason(Cause.PLATFORM, "platform:writable-root", "the writable layer of the root is a tmpfs")
            )
        found.append(symbol(name, "y", *reasons))
    for name, entry in PLATFORM.items():
        found.append(symbol(name, "y", Reason(Cause.PLATFORM, f"platform:{entry}", f"the machine needs {entry}")))
    for name, entry in POLICY.items():
        found.append(symbol(name, "y", Reason(Cause.POLICY, f"policy:{entry}", f"policy asks for {entry}")))
    for name, parent in DEPENDENCY.items():
        found.append(symbol(name, "y", Reason(Cause.DEPENDENCY, f"symbol:{parent}", f"{parent} depends on it")))
    for name in HIDDEN:
        found.append(symbol(name, "y", Reason(Cause.DEPENDENCY, "symbol:64BIT", "64BIT selects it"), chosen=False))
    found.append(
        symbol("INOTIFY_USER", "y", Reason(Cause.REPAIR, "trial:1", "inotify_init1 answered ENOSYS without it"))
    )
    found.append(symbol("NR_CPUS", "1", Reason(Cause.PLATFORM, "platform:cpus", "one virtual CPU")))
    found.append(symbol("MODULES", "n", Reason(Cause.POLICY, "policy:no-modules", "nothing is loaded later")))
    return tuple(found)


def _left_out(symbols: tuple[Change, ...]) -> tuple[Change, ...]:
    rows = []
    there = {one.id for one in symbols}
    for i, name in enumerate(n for n in LEFT_OUT if n != "INOTIFY_USER"):
        cost = 0 if i % 4 == 3 else int(612_000_000 / (1 + i) ** 1.7)
        evidence = (Evidence(EvidenceKind.CODE, f"{name.lower()}_init", Strength.RAN, f"coverage:{40 + i}", 1 + i % 5),)
        expected = (exact(Figure.INIT_INSTRUCTIONS_NET, -cost), exact(Figure.TRACE_INSTRUCTIONS, -cost))
        change = symbol(name, "n", before="y")
        if name not in there:
            rows.append(dataclasses.replace(change, evidence=evidence, expected=expected) if cost else change)
    return tuple(rows)
