# SPDX-License-Identifier: Apache-2.0
"""The scope's cgroups on the host, which is left as it was found.

Under version 1, or where nothing manages version 2, they are made below the roots. Controllers that the root of version
2 did not pass on before are noted in the scope's folder. Whoever removes the last scope withdraws them. Where a service
manager owns version 2, the scope is a delegated unit of its own: any other cgroup would lose its controllers whenever
they change, and the manager would not know its owner."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.bench.runtimes.instance_cgroups import CONTROLLERS, remove_tree

#: Folder that shows that systemd runs (sd_booted(3)), and the slice in which a scope is a unit.
MANAGED = Path("/run/systemd/system")
SLICE = "system.slice"
#: The file in the scope's folder that names the controllers passed on for it.
PASSED_ON = "controllers"
#: Prefix of all our folders and cgroups.
PREFIX = "vtb-"
#: Share of the host's memory, and processes, for all instances together, so that the host survives.
MEMORY_SHARE = 0.8
MOST_PROCESSES = 16384


def hierarchies(mounts: Path = Path("/proc/self/mounts")) -> list[Path]:
    """Return where cgroups are mounted on this host, each hierarchy once, even if it is mounted in several places.
    Raises HostError where none are."""
    rows = [line.split() for line in mounts.read_text().splitlines()]
    found: dict[int | Path, Path] = {}
    for path in (Path(row[1]) for row in rows if row[2] in ("cgroup", "cgroup2")):
        try:
            found.setdefault(path.stat().st_dev, path)
        except OSError:
            found.setdefault(path, path)
    if not found:
        raise HostError("no cgroups are mounted", hint="mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    return list(found.values())


class HostCgroups:
    """The hierarchies of this host, by their roots. `managed`: a service manager owns version 2, which is the only
    hierarchy."""

    def __init__(self, roots: list[Path] | None = None, managed: Path = MANAGED) -> None:
        self._roots = hierarchies() if roots is None else roots
        self._unified = len(self._roots) == 1 and (self._roots[0] / "cgroup.controllers").is_file()
        self.managed = self._unified and managed.is_dir()

    def within(self, name: str) -> str:
        """Return the path of a scope's cgroup below every root."""
        return f"{SLICE}/{name}.scope" if self.managed else name

    def begun(self, name: str) -> list[str]:
        """Return the words before a command that start it in the scope's cgroup; none where it enters the cgroup
        itself."""
        if not self.managed:
            return []
        caps = [
            f"--property={key}={value}" for key, value in (("MemoryMax", _most_bytes()), ("TasksMax", MOST_PROCESSES))
        ]
        return [
            "systemd-run", "--scope", "--quiet", "--collect", f"--unit={name}.scope", f"--slice={SLICE}",
            "--property=Delegate=yes", *caps, "--",
        ]  # fmt: skip

    def make(self, name: str, folder: Path) -> None:
        """Make the scope's cgroup in every hierarchy, with the caps that keep the host alive. A service manager makes
        it when the scope starts. `folder`: of the scope."""
        if self.managed:
            return
        if self._unified:
            self._pass_on(folder)
        for root in self._roots:
            own = root / name
            own.mkdir()
            if (own / "cpuset.cpus").is_file() and not (root / "cgroup.controllers").is_file():
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (own / file).write_text((root / file).read_text())
            for file, text in (
                ("memory.max", str(_most_bytes())),
                ("memory.limit_in_bytes", str(_most_bytes())),
                ("pids.max", str(MOST_PROCESSES)),
            ):
                if (own / file).is_file():
                    (own / file).write_text(text)

    def _pass_on(self, folder: Path) -> None:
        root = self._roots[0]
        there = (root / "cgroup.controllers").read_text().split()
        passed = (root / "cgroup.subtree_control").read_text().split()
        lacking = [name for name in CONTROLLERS if name in there and name not in passed]
        (folder / PASSED_ON).write_text(" ".join(lacking))  # before the deed: who removes the scope knows of it
        for name in lacking:
            with contextlib.suppress(OSError):
                (root / "cgroup.subtree_control").write_text(f"+{name}")

    def remove(self, name: str, folder: Path) -> bool:
        """End the processes in the scope's cgroups, remove these, and withdraw the controllers passed on for it. Where
        another scope still needs these, it inherits the duty. `folder`: of the scope, which is still there. Returns
        whether all are gone: a process that waits for a disk ends only when it has its data."""
        left = [path for path in self.paths(name) if not remove_tree(path)]
        if left:
            return False
        note = folder / PASSED_ON
        if not self._unified or not note.is_file():
            return True
        root, names = self._roots[0], note.read_text().split()
        heirs = [entry.name for entry in os.scandir(root) if entry.name.startswith(PREFIX) and entry.is_dir()]
        if heirs:
            heir = folder.parent / heirs[0] / PASSED_ON
            with contextlib.suppress(OSError):
                heir.write_text(" ".join(dict.fromkeys([*_words(heir), *names])))
            return True
        for controller in names:
            if controller in CONTROLLERS:
                with contextlib.suppress(OSError):
                    (root / "cgroup.subtree_control").write_text(f"-{controller}")
        return True

    def paths(self, name: str) -> list[Path]:
        """Return all paths where a scope's cgroups may be."""
        below = [root / SLICE / f"{name}.scope" for root in self._roots] if self._unified else []
        return [*(root / name for root in self._roots), *below]


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []


def _most_bytes() -> int:
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_SHARE)
