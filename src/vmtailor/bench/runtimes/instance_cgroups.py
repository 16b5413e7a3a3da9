# SPDX-License-Identifier: Apache-2.0
"""Cgroups of instances, of either version: made with limits, emptied, removed; and the processor time of the whole
scope."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.bench.model.instance import Limits, WriteLimit

MOUNTS = Path("/sys/fs/cgroup")
#: Length in µs of the period that a quota refers to.
PERIOD_US = 100_000
#: The harness's own cgroup: version 2 allows no processes in a cgroup with others below it.
HARNESS = "harness"
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


class Cgroups:
    """The hierarchies as the scope sees them. `mounts`: where they are mounted."""

    def __init__(self, mounts: Path = MOUNTS) -> None:
        self._mounts = mounts
        self.unified = (mounts / "cgroup.controllers").is_file()

    @property
    def version(self) -> str:
        return "v2" if self.unified else "v1"

    def hierarchies(self) -> list[Path]:
        """Return the root of each."""
        if self.unified:
            return [self._mounts]
        return sorted(path for path in self._mounts.iterdir() if path.is_dir() and (path / "cgroup.procs").is_file())

    def enter_harness(self) -> None:
        """Move this process, which must be alone there, out of the root, so that other cgroups can get controllers."""
        if not self.unified:
            return
        own = self._mounts / HARNESS
        own.mkdir(exist_ok=True)
        for process in (self._mounts / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (own / "cgroup.procs").write_text(process)
        self._enable(self._mounts)

    def _enable(self, folder: Path) -> None:
        there = (folder / "cgroup.controllers").read_text().split()
        for name in CONTROLLERS:
            if name in there:
                with contextlib.suppress(OSError):
                    (folder / "cgroup.subtree_control").write_text(f"+{name}")

    def make(self, name: str, limits: Limits) -> list[Path]:
        """Make a cgroup in every hierarchy; return the files by which a process enters. Raises HostError."""
        files = []
        for root in self.hierarchies():
            folder = root / name
            folder.mkdir(exist_ok=True)
            if (folder / "cpuset.cpus").is_file() and not self.unified:  # empty at first, and then nothing can enter
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (folder / file).write_text((root / file).read_text())
            files.append(folder / "cgroup.procs")
        for file, text in limit_files(limits, unified=self.unified):
            where = [root / name / file for root in self.hierarchies() if (root / name / file).is_file()]
            if not where:
                raise HostError(
                    f"this host's cgroups have no {file}", hint="enable its controller, or run without limits"
                )
            for path in where:
                path.write_text(text)
        for file, text in no_swap_files(limits, unified=self.unified):
            for path in (root / name / file for root in self.hierarchies()):
                if path.is_file():
                    path.write_text(text)
        return files

    def remove(self, name: str) -> None:
        """End the processes in a cgroup and below it, and remove it."""
        for root in self.hierarchies():
            remove_tree(root / name)

    def limits(self, name: str) -> dict[str, str]:
        """Return the texts of a cgroup's limits, by the names that instances' reports use."""
        files = {
            "memory_limit": ("memory.max", "memory.limit_in_bytes"),
            "cpu_quota": ("cpu.max", "cpu.cfs_quota_us"),
            "cpu_period": ("", "cpu.cfs_period_us"),
            "pids_limit": ("pids.max", "pids.max"),
        }
        found = {}
        for limit, (unified, older) in files.items():
            for root in self.hierarchies():
                file = root / name / (unified if self.unified else older)
                if file.is_file():
                    found[limit] = file.read_text()
        return found

    def cpu_s(self) -> float:
        """Return the processor time that everything in the scope has used, in seconds."""
        if self.unified:
            words = (self._mounts / "cpu.stat").read_text().split()
            return int(words[words.index("usage_usec") + 1]) / 1e6
        found = next((root for root in self.hierarchies() if (root / "cpuacct.usage").is_file()), None)
        return 0.0 if found is None else int((found / "cpuacct.usage").read_text()) / 1e9


def limit_files(limits: Limits, *, unified: bool) -> list[tuple[str, str]]:
    """Return the files of a cgroup that set these limits, each with its text."""
    found = []
    if limits.memory_bytes is not None:
        found.append(("memory.max" if unified else "memory.limit_in_bytes", str(limits.memory_bytes)))
    if limits.cpus is not None:
        quota = round(limits.cpus * PERIOD_US)
        found += (
            [("cpu.max", f"{quota} {PERIOD_US}")]
            if unified
            else [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
        )
    if limits.pids is not None:
        found.append(("pids.max", str(limits.pids)))
    if limits.cpuset is not None:
        found.append(("cpuset.cpus", limits.cpuset))
    if limits.write is not None:
        device, rate = f"{limits.write.major}:{limits.write.minor}", limits.write.bytes_s
        found.append(
            ("io.max", f"{device} wbps={rate}") if unified else ("blkio.throttle.write_bps_device", f"{device} {rate}")
        )
    return found


def no_swap_files(limits: Limits, *, unified: bool) -> list[tuple[str, str]]:
    """Return the files to write next, so that swapping does not get around a limit to memory, as engines set it.
    Kernels that do not count swap do not have them."""
    if limits.memory_bytes is None:
        return []
    return [("memory.swap.max", "0") if unified else ("memory.memsw.limit_in_bytes", str(limits.memory_bytes))]


def remove_tree(folder: Path, patience_s: float = 10.0) -> bool:
    """End all processes of a cgroup and of those below it, and remove them. Returns whether it is gone."""
    deadline = time.monotonic() + patience_s
    while folder.is_dir():
        for path, _, files in os.walk(folder, topdown=False):
            if "cgroup.procs" in files:
                _end(Path(path))
            with contextlib.suppress(OSError):
                Path(path).rmdir()
        if not folder.is_dir():
            break
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _end(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "cgroup.kill").write_text("1")
        return
    with contextlib.suppress(OSError):
        for process in (folder / "cgroup.procs").read_text().split():
            if int(process) != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)


def write_limit(folder: Path, bytes_s: int, sys: Path = Path("/sys")) -> WriteLimit | None:
    """Return a limit on the whole disk that holds a folder; None where its file system is on no single disk (memory,
    network, several disks)."""
    device = folder.stat().st_dev
    place = sys / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    if not place.exists():
        return None
    whole = place.resolve()
    if (whole / "partition").is_file():
        whole = whole.parent
    major, minor = (whole / "dev").read_text().strip().split(":")
    return WriteLimit(int(major), int(minor), f"/dev/{whole.name}", bytes_s)
