# SPDX-License-Identifier: Apache-2.0
"""This host as results name it, and its other work while benchmarks run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.bench.model.results import BenchHost, HostNoise

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def stable_name(etc: Path = Path("/etc"), devices: Path = Path("/sys/class/net")) -> str:
    """Return a stable name that tells this host from others without revealing whose it is: a digest of its machine ID,
    or of its network devices' addresses."""
    texts = []
    with contextlib.suppress(OSError):
        texts = [(etc / "machine-id").read_text().strip()]
    if not any(texts) and devices.is_dir():
        files = sorted(path / "address" for path in devices.iterdir() if (path / "device").exists())
        texts = [file.read_text().strip() for file in files if file.is_file()]
    whole = hashlib.sha256("\n".join(["vmtailor bench host", *texts]).encode())
    return f"host-{whole.hexdigest()[:8]}" if any(texts) else "host"


def this_host(cgroup: str, *, kvm: bool, name: str) -> BenchHost:
    """Return the record of this host. `cgroup`: the version; `kvm`: it works; `name`: this host's name in results."""
    text = (_PROC / "cpuinfo").read_text("utf-8", "replace")
    model = re.search(r"^(?:model name|cpu model|Processor)\s*:\s*(.+)$", text, re.MULTILINE)
    return BenchHost(
        name=name,
        kernel=platform.release(),
        processor=model[1].strip() if model else platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        architecture=platform.machine(),
        cgroup=cgroup,
        kvm=kvm,
        virtualised=bool(re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE)),
        clock_mhz=clock_mhz(),
    )


def seen_here(namespaces: Sequence[str]) -> dict[str, str]:
    """Return this process's kernel and namespaces, as a program of the image reports its own."""
    kernel = os.uname()
    found = {"kernel": kernel.release, "version": kernel.version}
    for name in namespaces:
        with contextlib.suppress(OSError):  # older kernels do not have all
            found[f"ns_{name}"] = str((_PROC / "self/ns" / name).readlink())
    return found


def clock_mhz() -> float | None:
    """Return the median clock of the processors just now; None where the kernel does not report it."""
    found = clocks_mhz()
    return statistics.median(found) if found else None


def clocks_mhz(sys: Path = Path("/sys/devices/system/cpu"), proc: Path = _PROC) -> list[float]:
    """Return the clock of each processor just now, as far as the kernel reports it."""
    found = []
    for file in sys.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        with contextlib.suppress(OSError, ValueError):  # one that goes offline meanwhile
            found.append(int(file.read_text()) / 1000)
    if found:
        return found
    text = (proc / "cpuinfo").read_text("utf-8", "replace")
    return [float(one) for one in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)]


class Clocks:
    """The clocks of all processors, read repeatedly while a block runs."""

    def __init__(self, every_s: float = 0.5, read: Callable[[], list[float]] = clocks_mhz) -> None:
        self._every_s, self._read = every_s, read
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        #: Number of readings, and the readings in MHz.
        self.looks = 0
        self.seen: list[float] = []

    def _look(self) -> None:
        while True:
            self.seen += self._read()
            self.looks += 1
            if self._ended.wait(self._every_s):
                return

    def __enter__(self) -> Clocks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def told(self, noise: HostNoise) -> HostNoise:
        """Return the record with the clocks that were read; unchanged where there are none."""
        if not self.seen:
            return noise
        middle, low, high = statistics.median(self.seen), min(self.seen), max(self.seen)
        return replace(noise, clock_mhz=middle, clock_low_mhz=low, clock_high_mhz=high, clock_looks=self.looks)


def available_bytes() -> int:
    """Return the host's MemAvailable."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", (_PROC / "meminfo").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@dataclass(frozen=True)
class ProcessorTimes:
    """Seconds since the host started: of all processors, of idle ones, and those that the hypervisor gave to others."""

    all_s: float
    idle_s: float
    steal_s: float

    @classmethod
    def now(cls) -> ProcessorTimes:
        words = [int(word) * _TICK_S for word in (_PROC / "stat").read_text().splitlines()[0].split()[1:9]]
        return cls(sum(words), words[3] + words[4], words[7])

    def noise_since(self, before: ProcessorTimes, own_s: float) -> HostNoise:
        """Return the host's other work since then. `own_s`: processor time that the benchmark used itself."""
        whole = self.all_s - before.all_s
        steal = self.steal_s - before.steal_s
        others = max(0.0, whole - (self.idle_s - before.idle_s) - steal - own_s)
        shares = (steal / whole, others / whole) if whole > 0 else (0.0, 0.0)
        return HostNoise(*shares, clock_mhz=clock_mhz())
