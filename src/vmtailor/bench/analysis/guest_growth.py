# SPDX-License-Identifier: Apache-2.0
"""A guest's memory while idle instances come one after the other: makes figures of what the guest noted. Pure; the text
is the guest's, and untrusted."""

from __future__ import annotations

from dataclasses import dataclass, field

from vmtailor.base.text import is_number
from vmtailor.bench.analysis.benchmarks import ANSWERS, AVAILABLE, BEFORE, CHARGED, OF_KERNEL, STARTS, Values
from vmtailor.bench.model.growth_notes import ANSWERED, CURRENT, LOOK, STARTED, STOPPED

#: Memory of the kernel that instances need, as /proc/meminfo calls it.
_OF_KERNEL = ("Slab", "KernelStack", "PageTables", "SecPageTables", "Percpu")
#: Lines that are read at most: sixty of /proc/meminfo and a cgroup's for each instance, at each look.
_MOST_LINES = 100_000


@dataclass
class Look:
    """Memory at one number of instances, in bytes. `meminfo`: by name; `charged`: of each cgroup with an instance."""

    meminfo: dict[str, int] = field(default_factory=dict)
    charged: list[int] = field(default_factory=list)

    @property
    def kernel(self) -> int:
        """Return what the kernel keeps for what runs."""
        return sum(self.meminfo.get(name, 0) for name in _OF_KERNEL)


@dataclass
class Growth:
    """The notes of a guest. `looks`: number of instances → the memory; `started`: instances that came, None where the
    guest did not say; `stopped`: the next one did not; `answered`: those of them that said something at the end."""

    looks: dict[int, Look] = field(default_factory=dict)
    started: int | None = None
    stopped: bool = False
    answered: int | None = None

    def idle(self, count: int, memory_bytes: int) -> Values | None:
        """Return the figures of so many idle instances; None where they were not seen. `memory_bytes`: the
        machine's."""
        before, after = self.looks.get(0), self.looks.get(count)
        if before is None or after is None or count < 1:
            return None
        free = [look.meminfo.get("MemAvailable") for look in (before, after)]
        if free[0] is None or free[1] is None:
            return None
        found = {
            AVAILABLE: (free[0] - free[1]) / count,
            OF_KERNEL: (after.kernel - before.kernel) / count,
            BEFORE: float(memory_bytes - free[0]),
        }
        if len(after.charged) == count:
            found[CHARGED] = sum(after.charged) / count
        return found

    def density(self) -> Values | None:
        """Return the figures of the most that started; None where the guest did not come to its end."""
        if self.started is None or self.answered is None:
            return None
        return {STARTS: float(self.started), ANSWERS: float(self.answered)}


def read(text: str) -> Growth:
    """Read a guest's notes. Lines of another form are skipped."""
    found, look = Growth(), Look()
    for line in text.splitlines()[:_MOST_LINES]:
        words = line.split()
        if len(words) < 2 or not is_number(words[1]) or len(words[1]) > 15:
            continue
        name, value = words[0], int(words[1])
        if name == LOOK:
            look = found.looks.setdefault(value, Look())
        elif name == CURRENT:
            look.charged.append(value)
        elif name == STARTED:
            found.started = value
        elif name == STOPPED:
            found.stopped = True
        elif name == ANSWERED:
            found.answered = value
        elif name.endswith(":") and words[2:] == ["kB"]:
            look.meminfo[name.removesuffix(":")] = value << 10
    return found
