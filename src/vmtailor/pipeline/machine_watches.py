# SPDX-License-Identifier: Apache-2.0
"""`watch`: a machine's figures over time, those of its containers, and those that its host has of it. The machine is a
bundle's or a disk's, booted as `boot` boots it; samples are taken beside its exercise. Or it runs already: a named one,
or this host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.watches import open_metrics
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import records, regular_files
from vmtailor.base.text import plain
from vmtailor.booting import series_run
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.drivers.guest import guest_programs, guest_volume
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.machine_folders import MachineFolders
from vmtailor.drivers.monitors import monitors
from vmtailor.model import option_rows, option_values
from vmtailor.model.architecture import Architecture
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.exercise import Expect, Step, StepKind
from vmtailor.model.machine import Accelerator, Clock, Machine
from vmtailor.model.machine_watch import EVERY_MS, LEAST_MS, MOST_MS, RECORD, MachineWatch
from vmtailor.model.option import Option, OptionSubject, Suggests, option, refuse
from vmtailor.model.systems.system import System
from vmtailor.pipeline import bundle_boots, host_watch, reverify, running_watch
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.pipeline.systems import exercise_boots, subjects
from vmtailor.stages import exercise_file
from vmtailor.stages.report.watch_page import watch_page

#: Name of the page in the folder.
PAGE = "watch.html"
#: Seconds for which a system without an exercise is watched; that a boot has beyond what it is watched for.
FOR_S, BOOT_S = 60.0, 300.0
_DISK = frozenset({OptionSubject.DISK})
_BOOTED = _DISK | {OptionSubject.CONTAINER, OptionSubject.SYSTEM}
_TIMED = _DISK | {OptionSubject.MACHINE}
#: Gives the machine of a system for a processor, without the system's disk.
Choose = Callable[[Architecture], Machine]


def parse_every(text: str) -> int:
    """Return the milliseconds of `1s`, `200ms`. Raises UserInputError."""
    every_ms = round(1000 * option_values.parse_duration(text))
    if not LEAST_MS <= every_ms <= MOST_MS:
        raise UserInputError(f"a sample every {text[:40]} cannot be taken", hint=f"from {LEAST_MS}ms to 1h")
    return every_ms


@dataclass(frozen=True)
class WatchOptions:
    """The options of `vmtailor watch`. `for_s`: None where the exercise says how long."""

    subject: str = option(
        Option(
            name="SUBJECT", suggests=Suggests.FOLDERS,
            help="Watch this bundle, the system on this disk (disk:FILE), which is never written, the named machine "
            "that runs, or this host (host:) with its containers.",
        )
    )  # fmt: skip
    exercise: Path | None = option(
        option_rows.EXERCISE, None, subjects=_BOOTED,
        help="Drive the machine by this exercise (TOML), whose steps become marks. Default: a bundle's own; a disk's "
        "system is left alone.",
    )  # fmt: skip
    every_ms: int = option(
        Option(name="--every", metavar="TIME", read=parse_every, help="Take a sample this often: 1s, 200ms."), EVERY_MS
    )
    for_s: float | None = option(
        Option(
            name="--for", subjects=_TIMED, metavar="TIME", read=option_values.parse_duration,
            help="Watch a machine that runs, this host, or a disk's system without an exercise, for this long. "
            "Default: 1m.",
        ),
        None,
    )  # fmt: skip
    kernel: Path | None = option(
        Option(
            name="--kernel",
            type=Path,
            subjects=_DISK,
            help="Boot the system on a disk with this kernel instead of its own.",
        ),
        None,
    )
    initrd: Path | None = option(
        Option(name="--initrd", type=Path, subjects=_DISK, help="Give that kernel this initial RAM disk."), None
    )
    append: tuple[str, ...] = option(
        Option(
            name="--append",
            read=option_values.kernel_words,
            subjects=_BOOTED,
            help="Give the kernel these words on its command line.",
        ),
        (),
    )
    memory_bytes: int | None = option(
        option_rows.MEMORY, None, subjects=_BOOTED, read=option_values.boot_memory,
        help="Give the machine this memory, such as 512M. Default: 2G, or what a bundle was fitted with.",
    )  # fmt: skip
    cpus: int | None = option(
        option_rows.CPUS, None, subjects=_DISK, help="Give the machine of a disk this many CPUs. Default: 1."
    )
    accelerator: Accelerator = option(
        option_rows.ACCELERATOR, Accelerator.TCG, subjects=_BOOTED,
        help="Run the machine by tcg, which works everywhere, or by kvm if `vmtailor doctor` says that it works.",
    )  # fmt: skip
    clock: Clock = option(option_rows.CLOCK, Clock.WALL, subjects=_BOOTED)
    timeout_s: float | None = option(
        Option(
            name="--timeout", type=float, least=0.1, most=86400, subjects=_BOOTED,
            help="Give up after this many seconds. Default: 300 and twice what --for says.",
        ),
        None,
    )  # fmt: skip
    out: Path = option(option_rows.OUT, Path("build/watch"), help="Write the page and the records to this folder.")
    open_metrics: Path | None = option(
        Option(name="--openmetrics", type=Path, metavar="FILE", help="Also write all samples as OpenMetrics text."),
        None,
    )
    json: bool = option(option_rows.JSON, False)

    @property
    def limit_s(self) -> float:
        """Return the host seconds that a boot may take."""
        return self.timeout_s or BOOT_S + 2 * (self.for_s or 0.0)


@dataclass(frozen=True)
class Watched:
    """A machine that was watched. `boot`: its boot, None of one that ran already; `notes`: what the system said that
    is no failure."""

    watch: MachineWatch
    boot: Boot | None
    page: Path
    notes: tuple[str, ...] = ()


def watch(asked: WatchOptions, choose: Choose, on_boot: series_run.OnBoot | None = None) -> Watched:
    """Watch a machine, and write record, page and text. A bundle's or a disk's is booted, and watched until its
    exercise is over; one that runs already is watched for as long as was asked. `choose`: gives the machine for the
    system on a disk.

    Raises UserInputError for a subject that cannot be watched and for options it has no use for, AnswerNo for a machine
    that does not run, GuestError where no sample came."""
    path, disk = Path(asked.subject), subjects.disk_path(asked.subject)
    regular_files.make_folder(asked.out)
    if bundle_folder.is_bundle(path):
        return _finished(asked, *_booted(asked, *_bundle(asked, path, on_boot)))
    if disk is not None:
        return _finished(asked, *_booted(asked, *_disk(asked, choose, on_boot)))
    if asked.subject == host_watch.HOST:
        refuse(asked, OptionSubject.MACHINE, "this host, which runs already")
        return _finished(asked, host_watch.watch(asked.every_ms, FOR_S if asked.for_s is None else asked.for_s))
    refuse(asked, OptionSubject.MACHINE, f"the machine {asked.subject}, which runs already")
    folder = MachineFolders().find(asked.subject)
    return _finished(asked, running_watch.watch(folder, asked.every_ms, FOR_S if asked.for_s is None else asked.for_s))


def _booted(
    asked: WatchOptions, series: BootSeries, notes: tuple[str, ...]
) -> tuple[MachineWatch, Boot, tuple[str, ...]]:
    """Return what was recorded of a boot. Raises GuestError where no sample came."""
    last = series.boots[-1]
    found = records.load(MachineWatch, asked.out / last.folder / RECORD)
    if not found.times_ns:
        raise GuestError(
            "the machine ended before a sample came",
            hint=f"its console: {asked.out / last.folder / 'console.log'}",
            details="\n".join(last.boot.failures),
        )
    return found, last.boot, notes


def _finished(
    asked: WatchOptions, found: MachineWatch, boot: Boot | None = None, notes: tuple[str, ...] = ()
) -> Watched:
    """Write record, page and text."""
    found = replace(found, subject=plain(asked.subject))
    records.save(found, asked.out / RECORD)
    page = asked.out / PAGE
    regular_files.write_atomic(page, watch_page(found.subject, ((found.subject, found),)).encode())
    if asked.open_metrics is not None:
        regular_files.write_atomic(asked.open_metrics, open_metrics.text(found).encode())
    return Watched(found, boot, page, notes)


def _bundle(asked: WatchOptions, path: Path, on_boot: series_run.OnBoot | None) -> tuple[BootSeries, tuple[str, ...]]:
    loaded = bundle_folder.load(path)
    refuse(asked, OptionSubject.SYSTEM if loaded.is_system else OptionSubject.CONTAINER, path)
    natives = guest_programs.of(loaded.bundle.architecture)
    if loaded.is_system:
        return _system_bundle(asked, path, on_boot)
    own = Chosen(accelerator=asked.accelerator, clock=asked.clock, append=asked.append, memory_bytes=asked.memory_bytes)
    subject = bundle_boots.prepare(path, own, asked.limit_s, natives, Store(), exercise=asked.exercise)
    if not guest_volume.takes_samples(subject.loaded.init):
        raise UserInputError(
            f"the init of {path} is of a version that takes no samples", hint="fit the image again: vmtailor fit"
        )
    run = replace(subject.workload.run, sample_ms=asked.every_ms)
    subject = replace(subject, workload=replace(subject.workload, run=run))
    monitors.of(subject.machine).require(subject.machine)
    return bundle_boots.boots(subject, 1, asked.out, on_boot or _silent), ()


def _system_bundle(
    asked: WatchOptions, path: Path, on_boot: series_run.OnBoot | None
) -> tuple[BootSeries, tuple[str, ...]]:
    saved = reverify.saved_system(VerifyRequest(path), bundle_folder.load(path))
    exercise = saved.exercise if asked.exercise is None else exercise_file.load_system(asked.exercise)
    machine = replace(
        saved.machine,
        words=(*saved.machine.words, *asked.append),
        memory_bytes=asked.memory_bytes or saved.machine.memory_bytes,
        accelerator=asked.accelerator,
        clock=asked.clock,
        cpu_model="host" if asked.accelerator is Accelerator.KVM else saved.machine.cpu_model,
    )
    made = exercise_boots.driven(
        str(path), machine, exercise_boots.root_of(saved.system, machine.words), exercise,
        guest_programs.of(machine.architecture), asked.out, times=1, timeout_s=asked.limit_s, on_boot=on_boot,
        sample_ms=asked.every_ms,
    )  # fmt: skip
    return made.series, made.notes


def _disk(asked: WatchOptions, choose: Choose, on_boot: series_run.OnBoot | None) -> tuple[BootSeries, tuple[str, ...]]:
    if asked.exercise is not None and asked.for_s is not None:
        raise UserInputError(
            "--for does not go with --exercise, which says how long", hint="add a step that sleeps to the exercise"
        )
    exercise: SystemExercise | Callable[[System], SystemExercise]
    for_s = FOR_S if asked.for_s is None else asked.for_s
    exercise = exercise_file.load_system(asked.exercise) if asked.exercise is not None else left_alone(for_s)
    made = exercise_boots.exercised(
        asked.subject, exercise, choose, asked.out, times=1, timeout_s=asked.limit_s, store=Store(), on_boot=on_boot,
        sample_ms=asked.every_ms,
    )  # fmt: skip
    return made.series, made.notes


def left_alone(seconds: float) -> SystemExercise:
    """Return the exercise that leaves a system alone for so long, as soon as a command runs in it."""
    ready = SystemReady(
        SystemReadyKind.COMMAND, Step(StepKind.COMMAND, argv=("sleep", "0"), expect=Expect(exit_code=0))
    )
    rest = Step(StepKind.COMMAND, argv=("sleep", f"{seconds:g}"), expect=Expect(exit_code=0))
    return SystemExercise(origin="left alone", ready=ready, load=(rest,), step_timeout_s=seconds + BOOT_S)


def _silent(name: str, number: int, seconds: float) -> None:
    """Show nothing of a boot's progress."""
