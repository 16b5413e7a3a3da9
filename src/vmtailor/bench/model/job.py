# SPDX-License-Identifier: Apache-2.0
"""The job of a run, decided outside the scope and done within it; and its machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vmtailor.bench.model.results import SuiteName
from vmtailor.model.machine import Machine

#: The default image.
BENCH_IMAGE = "oci:build/images/bench"


# vmtailor/bench-job/11: boots of a cell; units in one boot; starts of a boot.
# vmtailor/bench-job/10: several machines around engines.
# vmtailor/bench-job/9: monitors within a machine.
# vmtailor/bench-job/8: instances at once in a machine.
# vmtailor/bench-job/7: one variant alone; the host's name.
# vmtailor/bench-job/6: until when.
# vmtailor/bench-job/5: engines within a machine.
# vmtailor/bench-job/4: within how long; subsystems of machines' kernels.
# vmtailor/bench-job/3: the image's reference.
# vmtailor/bench-job/2: the trees of published sets, machines.
@dataclass(frozen=True)
class BenchJob:
    """The work of a run. The command line fills in the user's request; bench/run/launch.py completes it.

    `runtimes`: names of known ones, or paths of descriptions. `counts`: instances at once. `out`: the results' file.
    `reference`: the image as the user named it. `only`: tests to run; `variant`: of them those that are run in this
    way; empty: all. `unixbench_source`, `iozone_source`, `netperf_source`: trees of the published programs to build and
    run; empty: our own. `within_s`: seconds that the run may take; None: no limit. `at_once`: run so many (`counts`)
    instances at once within a machine, 0 being the machine itself. `host_name`: this host's name in results.
    `boots`: repetitions of what is counted; `one_boot`: count all units of one in a single boot of the machine around;
    `starts`: of an engine there that are counted in each boot of them.

    Completed later: `archive`: the image's flat archive; `image_archive`: the same for engines to load. `folder`: holds
    all that the engines keep, and is removed afterwards. `machines`: those among the runtimes. `kvm`: KVM works here,
    so machines can be timed, too. `until_s`: the end by `within_s`, on the monotonic clock, which the scope shares.
    `insides`: the machines in each of which `inside_runtimes`, named as `runtimes` are, run."""

    SCHEMA: ClassVar[str] = "vmtailor/bench-job/11"

    suites: tuple[SuiteName, ...]
    runtimes: tuple[str, ...]
    counts: tuple[int, ...]
    repeat: int
    quick: bool
    seed: int
    image_digest: str = ""
    archive: str = ""
    image_archive: str = ""
    program_sha256: str = ""
    folder: str = ""
    out: str = ""
    only: tuple[str, ...] = ()
    unixbench_source: str = ""
    iozone_source: str = ""
    netperf_source: str = ""
    machines: tuple[BenchMachine, ...] = ()
    kvm: bool = False
    reference: str = ""
    within_s: float | None = None
    until_s: float | None = None
    insides: tuple[BenchInside, ...] = ()
    inside_runtimes: tuple[str, ...] = ()
    variant: str = ""
    host_name: str = ""
    at_once: bool = False
    boots: int = 2
    one_boot: bool = False
    starts: int = 1


#: Prefix of every machine's name; then the name of the image on the distribution's packaged kernel.
VM = "vm:"
STOCK = "vm:stock"


@dataclass(frozen=True)
class BenchMachine:
    """A machine that is ready to boot. `machine`: with the image as its root; `kernel`: its release; `system_map`:
    symbols of the stock machine's kernel; `folder`: the bundle of any other machine. `subsystems`: file that maps the
    kernel's functions to subsystems; empty where that is not known. `digest`: of the bundle or the disk, long enough to
    identify it."""

    name: str
    machine: Machine
    kernel: str
    system_map: str = ""
    folder: str = ""
    subsystems: str = ""
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchMonitor:
    """A monitor that starts the image in a machine of its own, within a machine. `name`: of its row, after that of the
    machine around it; `asked`: as the user named it; `title`: for people. `argv`: its command there, `files`: path and
    content of what it reads besides; `version`: prints its version. `machine`: what it starts, in words; `entry`: where
    init executes the program there; 0: not known. `lent`: its kernel was fitted to another image."""

    name: str
    asked: str
    title: str
    argv: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    version: tuple[str, ...]
    machine: str
    entry: int = 0
    lent: bool = False


@dataclass(frozen=True)
class BenchInside:
    """A machine in which engines run: a system of the user's on its first disk, the image's files on the second, ours
    on the third. `root`, `root_type`, `init`: the device of its system, its file system, and the program started there;
    `writable`: it is mounted so. `disk`: the file, as the user named it. `monitors`: those among the engines."""

    machine: BenchMachine
    disk: str
    root: str
    root_type: str
    init: str
    writable: bool
    monitors: tuple[BenchMonitor, ...] = ()
