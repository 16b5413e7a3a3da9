# SPDX-License-Identifier: Apache-2.0
"""Add to an initial RAM disk: the collector, or the programs that watch the system that it starts
(native/small-init/watch.h). Those are the tracer with its libraries, its options, and the name of the disk that takes
the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.process import require_tool
from vmtailor.drivers.rootfs.initramfs import ArchiveEntry, cpio, directory, file
from vmtailor.drivers.rootfs.tracer_volume import libraries

#: Options of the tracer. It is no parent of PID 1, and of a session of its own (-DDD); every descendant (-f); seconds
#: since 1970, so that lines can be put beside what else was noted (-ttt); how long calls took (-T); paths of
#: descriptors and the protocols of sockets (-yy); names of tasks (-Y), since whose child something is is told too late;
#: as much of each buffer as the batches of netlink that engines send (-s).
OPTIONS = ("-DDD", "-f", "-q", "-ttt", "-T", "-yy", "-Y", "-s", "1024")
_WATCH = "watch"
#: Name of the collector in the initial RAM disk: readers of bootcharts know an observer by it.
COLLECTOR = "bootchart-vt"


def entries(disk: str, options: Sequence[str] = OPTIONS) -> tuple[ArchiveEntry, ...]:
    """Return the folder `/watch`. `disk`: the guest's name of the log's disk, such as /dev/vdb. Without options nothing
    is traced: only devices, modules and programs that the kernel starts are noted.

    Raises HostError when this host has no tracer."""
    found = [directory(_WATCH, 0o700), file(f"{_WATCH}/disk", disk.encode())]
    if options:
        program = Path(require_tool("strace"))
        loader, needed = libraries(program)
        if not loader:
            raise HostError(f"{program} is linked statically", hint="install the distribution's strace")
        found += [
            file(f"{_WATCH}/options", "\n".join(options).encode()),
            file(f"{_WATCH}/strace", program.read_bytes(), 0o755),
            file(f"{_WATCH}/ld.so", Path(loader).read_bytes(), 0o755),
            directory(f"{_WATCH}/lib"),
            *(file(f"{_WATCH}/lib/{name}", path.read_bytes(), 0o755) for name, path in sorted(needed.items())),
        ]
    return tuple(found)


def add(initrd: Path, disk: str, options: Sequence[str] = OPTIONS) -> None:
    """Put it behind an initial RAM disk whose /init is the small one: the kernel unpacks archives that follow each
    other."""
    with initrd.open("ab") as out:
        out.write(b"\0" * (-initrd.stat().st_size % 4))
        out.write(cpio(entries(disk, options)))


def with_collector(initrd: Path, collector: Path, out: Path) -> Path:
    """Write a copy of an initial RAM disk with the collector behind it: the kernel unpacks archives that follow each
    other.

    The machine needs `rdinit=/bootchart-vt`; the collector then starts the /init that was there."""
    extra = cpio([file(COLLECTOR, collector.read_bytes(), 0o755)])
    out.write_bytes(_padded(initrd.read_bytes()) + extra)
    return out


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
