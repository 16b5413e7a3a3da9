# SPDX-License-Identifier: Apache-2.0
"""The options of `fit` with its single stages, and of `boot`, parsed once at the door: their part of the table of
options (`model/option.py`)."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.distribution.selection import of_host
from vmtailor.drivers.guest.ready import FORMS
from vmtailor.model import architecture, option_rows, option_values
from vmtailor.model.architecture import named
from vmtailor.model.boots.series import JudgedBy, Under
from vmtailor.model.boots.workload import Clients
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.model.margin import Margin
from vmtailor.model.option import FETCHED, FITS, IMAGES, SYSTEMS, Option, OptionSubject, Suggests, internal, option
from vmtailor.model.plan import ImageRoot, RootFormat
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import run_environment

MEBIBYTE = 1 << 20
#: Memory of a machine that is fitted to an image, where nobody says another.
IMAGE_MEMORY = 256 * MEBIBYTE
_TRY_HINT = "vmtailor boot BUNDLE --try CHANGE tries changes on the bundle of a container"


class Effort(StrEnum):
    """The effort of a fit. `normal`: repair until it passes. `thorough`: afterwards, try to remove kept symbols, in
    groups."""

    NORMAL = "normal"
    THOROUGH = "thorough"


#: Verbs that have an option of `FitOptions`.
_FIT = frozenset({"fit"})
_PLANNED = frozenset({"fit", "plan", "build"})
_STAGES = frozenset({"fit", "plan", "build", "trace"})
_REFIT = frozenset({"refit"})
_MEASURE = frozenset({"measure"})
#: For programs that call `fit`, and for no verb.
_PROGRAMS = frozenset({""})
#: Work folders with whose records an option goes.
_REPLANNED = frozenset({OptionSubject.PLANNED_FOLDER})
#: Bundles that are measured or fitted again.
_OF_CONTAINERS = frozenset({OptionSubject.CONTAINER})
_REFITTED = _OF_CONTAINERS | {OptionSubject.SYSTEM}
_KEPT = FITS | _REPLANNED | _REFITTED
_RESUMED = frozenset({OptionSubject.PLANNED_FOLDER, OptionSubject.BUILT_FOLDER})

ARCH = Option(
    name="--arch", suggests=architecture.names(), help=f"Use this processor ({', '.join(architecture.names())})."
)
MACHINE = Option(
    name="--machine", suggests=architecture.every_board(),
    help=f"Use this type of machine ({', '.join(architecture.every_board())}).",
)  # fmt: skip


@dataclass(frozen=True)
class FitOptions:
    """The options of `fit`. Sizes are in bytes.

    `memory_asked`: the user gave the memory; otherwise a system gets what systems usually have. `asked`: the fields
    that a command line gave. `architecture`: empty until the image tells it; empty `machine` and `cpu_model` are then
    the architecture's first (pipeline/image_subject.py, `settled`). `margins`: None until the exercise gives them
    (pipeline/image_subject.py, `with_margins`). `root`: None for the architecture's. `files`: paths on a system's disk,
    each with the content to try; None removes the file."""

    reference: str = option(
        Option(
            name="IMAGE", suggests=Suggests.IMAGES,
            help="Fit docker://NAME, docker-daemon:NAME, containers-storage:NAME, docker-archive:FILE or -, "
            "oci-archive:FILE, oci:DIR[:TAG], rootfs:DIR, disk:FILE, or a path.",
            verbs=_STAGES, unkeyed="the key has the digest of what was found there, and its record",
        ),
        "",
    )  # fmt: skip
    out: Path = option(
        option_rows.OUT, Path("bundle"), help="Write the bundle to this folder.", verbs=_FIT,
        unkeyed="a bundle is placed there when it is finished",
    )  # fmt: skip
    exercise_file: Path | None = option(
        option_rows.EXERCISE, None, subjects=FITS | {OptionSubject.FITTED}, verbs=_STAGES
    )
    architecture: str = option(
        ARCH, "", subjects=FITS, verbs=_STAGES, help=f"{ARCH.help} Default: what the image is for."
    )
    machine: str = option(MACHINE, "", subjects=FITS, verbs=_STAGES)
    memory_bytes: int = option(
        option_rows.MEMORY, IMAGE_MEMORY, subjects=FITS, verbs=_STAGES,
        help="Give the machine this memory. Default: 256M; 2G for a system with an init of its own.",
    )  # fmt: skip
    memory_asked: bool = internal("the key has the memory itself", True)
    asked: frozenset[str] = internal("the key has the values of these fields", frozenset())
    cpus: int = option(
        option_rows.CPUS, 1, subjects=FITS, verbs=_STAGES, help="Give the machine this many CPUs; 2 and more keep SMP."
    )
    cpu_model: str = option(option_rows.CPU_MODEL, "", subjects=FITS, verbs=_STAGES)
    kernel: str | None = option(
        option_rows.KERNEL, None, subjects=IMAGES | _OF_CONTAINERS, verbs=_STAGES | _REFIT,
        unkeyed="the key has the content of the kernel that it names",
    )  # fmt: skip
    source: str | None = option(option_rows.SOURCE, None, subjects=FITS | _RESUMED, verbs=_STAGES | _MEASURE)
    baseline_config: str | None = option(
        Option(
            name="--baseline-config",
            help="Compile the baseline from --source with this configuration: a file, or 'defconfig'. For hosts whose "
            "kernels have no debug symbols.",
            subjects=IMAGES, verbs=_STAGES, unkeyed="the key has the kernel compiled with it",
        ),
        None,
    )  # fmt: skip
    root: RootFormat | None = option(
        Option(
            name="--root", type=ImageRoot, subjects=IMAGES, verbs=_STAGES,
            help="Make the root file system of this kind. Default: what the processor has (erofs, mostly).",
        ),
        None,
    )  # fmt: skip
    keep: tuple[str, ...] = option(option_rows.KEEP, (), subjects=_KEPT, verbs=_PLANNED | _REFIT)
    targets: tuple[str, ...] = option(option_rows.FOR, (), subjects=_KEPT, verbs=_PLANNED | _REFIT)
    drop: tuple[str, ...] = option(option_rows.DROP, (), subjects=_KEPT, verbs=_PLANNED | _REFIT)
    margins: tuple[Margin, ...] | None = option(
        option_rows.MARGIN, None, subjects=IMAGES | _REPLANNED | _OF_CONTAINERS, verbs=_PLANNED | _REFIT
    )
    price_margins: bool = option(
        Option(
            name="--price-margins", type=bool, subjects=IMAGES, verbs=_FIT,
            help="Compile and measure the kernels of the other margins, too, for the table of what each costs: up to "
            "three compiles.",
        ),
        False,
    )  # fmt: skip
    terminal: bool = option(
        Option(
            name="--terminal", type=bool, subjects=IMAGES | _REPLANNED, verbs=_PLANNED, help="Keep what `run -t` needs."
        ),
        True,
    )
    boots: int = option(option_rows.REPEAT, 3, subjects=FITS | _REFITTED, verbs=_FIT | _REFIT | _MEASURE)
    budget: int = option(option_rows.BUDGET, 12, subjects=FITS | _REFITTED, verbs=_FIT | _REFIT)
    effort: Effort = option(
        Option(
            name="--effort", type=Effort, subjects=FITS, verbs=_FIT,
            help="With thorough, also try to leave out what was demanded; compiles one kernel for each trial.",
        ),
        Effort.NORMAL,
    )  # fmt: skip
    partition: int | None = option(
        option_rows.PARTITION, None, subjects=frozenset({OptionSubject.DISK}), verbs=_PLANNED,
        unkeyed="the key has the system that was found there",
        hint="vmtailor fit disk:FILE --partition NUMBER -x EXERCISE",
    )  # fmt: skip
    units: UnitsMode = option(
        Option(
            name="--units", type=UnitsMode, subjects=SYSTEMS, verbs=_FIT,
            help="Keep a system's units that its exercise does not want, ask about them, or trim those that it does "
            "without.",
        ),
        UnitsMode.KEEP,
    )  # fmt: skip
    mask: tuple[str, ...] = option(
        Option(
            name="--mask", many=True, commas=True, metavar="UNIT", read=option_values.unit_names, subjects=SYSTEMS,
            verbs=_FIT,
            help="Mask these units of a system (names or patterns) if the exercise passes without them. Repeat it, or "
            "use commas.",
        ),
        (),
    )  # fmt: skip
    tries: tuple[str, ...] = option(
        option_rows.TRY, (), subjects=FITS, verbs=_FIT,
        help="Try remedies by id (an image's: `load`, too), sysctl:NAME=VALUE or unit:-UNIT on the fitted machine; "
        "keep what is better. a+b is one. Repeat it.",
    )  # fmt: skip
    under: Under | None = option(option_rows.UNDER, None, subjects=FITS, verbs=_FIT)
    judged_by: JudgedBy | None = option(option_rows.JUDGE, None, subjects=FITS, verbs=_FIT)
    files: tuple[tuple[str, str | None], ...] = option(
        Option(
            name="--try-file", many=True, metavar="PATH=FILE", read=option_values.tried_files, subjects=SYSTEMS,
            verbs=_FIT, hint=_TRY_HINT,
            help="Try PATH of a system's disk with the content of FILE, or without the file after PATH=, on a copy of "
            "the disk. Repeat it.",
        ),
        (),
    )  # fmt: skip
    entrypoint: tuple[str, ...] | None = option(
        Option(
            name="--entrypoint", read=option_values.command_words, subjects=IMAGES, verbs=_STAGES,
            help="Start this program instead of the image's entry point (a root directory has none).",
        ),
        None,
    )  # fmt: skip
    cmd: tuple[str, ...] | None = option(
        Option(
            name="--cmd", read=option_values.command_words, subjects=IMAGES, verbs=_PROGRAMS,
            help="Give the entry point these words.",
        ),
        None,
    )  # fmt: skip
    env: tuple[tuple[str, str], ...] = option(
        run_environment.ENV, (), subjects=IMAGES, verbs=_STAGES,
        help="Give the container this variable while it is fitted; NAME alone passes yours on. Repeat it for more.",
    )  # fmt: skip
    secret_env: tuple[str, ...] = option(
        run_environment.SECRET_ENV, (), subjects=IMAGES, verbs=_STAGES,
        help="Give the container your variable of this name while it is fitted, and keep its value out of all "
        "records, logs and pages. Repeat it for more.",
    )  # fmt: skip
    authfile: Path | None = option(
        Option(
            name="--authfile", type=Path, subjects=FETCHED, verbs=_STAGES,
            help="Read credentials of registries from this file, as skopeo does.",
            unkeyed="it opens a registry, whose image the key has",
        ),
        None,
    )  # fmt: skip
    privileged: bool = option(
        Option(
            name="--privileged", type=bool, subjects=IMAGES, verbs=_STAGES,
            help="Let root in the container do everything: here, and when it is run.",
        ),
        False,
    )  # fmt: skip
    max_image_bytes: int | None = option(
        Option(
            name="--max-image-size", read=option_values.parse_image_size, subjects=FETCHED, verbs=_STAGES,
            help="Accept an image of this size, such as 32G. Default: 16G, or 2G if the cache has less than "
            "32G free.",
            unkeyed="it refuses an image, or changes nothing",
        ),
        None,
    )  # fmt: skip
    command: str = internal("it is written into the record when a bundle is placed", "")
    store: Store = internal("it is where results are kept", factory=Store)
    distribution: Distribution = internal("the key has the content of its packages", factory=of_host)

    @classmethod
    def as_asked(cls, **values: Any) -> FitOptions:
        """Return the options of a command line. Raises UserInputError for an unknown machine."""
        _require_machine(values.get("architecture"), values.get("machine"))
        # It goes into a record, which is UTF-8; a file's name need not be.
        command = shlex.join(["vmtailor", *sys.argv[1:]]).encode("utf-8", "replace").decode()
        return cls(**values, command=command, memory_asked="memory_bytes" in values, asked=frozenset(values))

    @property
    def root_format(self) -> RootFormat:
        """Return the root's file system: `root`, or the default of the architecture, which must be known by now."""
        return RootFormat(self.root or named(self.architecture).kernel.root)


def _require_machine(arch: str | None, machine: str | None) -> None:
    """Raise UserInputError for an architecture, or a machine of it, that nothing is known of."""
    if arch and machine:
        named(arch).board_named(machine)
    elif arch:
        named(arch)
    elif machine and machine not in architecture.every_board():
        raise UserInputError(
            f"no machine '{machine[:64]}' is known", hint=f"known: {', '.join(architecture.every_board())}"
        )


#: Ways of `vmtailor boot` that have a use for an option, each beside a machine as it is.
_MACHINE = frozenset({OptionSubject.MACHINE})
_EXERCISED = _MACHINE | {OptionSubject.EXERCISED}
_FITTED = _MACHINE | {OptionSubject.FITTED}
_WATCHED = _MACHINE | {OptionSubject.WATCHED}
#: Memory of a guest that has none of its own.
BOOT_MEMORY = 2 << 30


@dataclass(frozen=True)
class BootOptions:
    """The options of `vmtailor boot`; None, empty or the default when the user did not give them."""

    subject: Path | None = option(
        Option(
            name="SUBJECT", type=Path,
            help="Boot this bundle, or disk image (raw or qcow2; with or without disk: before it), which is never "
            "written.",
        ),
        None,
    )  # fmt: skip
    exercise: Path | None = option(
        option_rows.EXERCISE, None, subjects=frozenset({OptionSubject.EXERCISED, OptionSubject.FITTED}),
        help="Drive the system on a disk by this exercise (TOML), and shut it down; a bundle, in place of its own.",
    )  # fmt: skip
    kernel: Path | None = option(
        Option(
            name="--kernel", type=Path, subjects=_EXERCISED, help="Boot this kernel directly (packed, or a vmlinux)."
        ),
        None,
    )
    initrd: Path | None = option(
        Option(name="--initrd", type=Path, subjects=_EXERCISED, help="Give the kernel this initial RAM disk."), None
    )
    append: tuple[str, ...] = option(
        Option(
            name="--append", read=option_values.kernel_words, subjects=_EXERCISED | _FITTED,
            help="Give the kernel these words on its command line.",
        ),
        (),
    )  # fmt: skip
    disks: tuple[Path, ...] = option(
        Option(name="--disk", type=Path, many=True, subjects=_MACHINE, help="Add one more disk. Repeat it for more."),
        (),
    )
    ready: str = option(
        Option(name="--ready", subjects=_WATCHED, help=f"Count the guest as ready at {FORMS}."), "login"
    )
    also: tuple[str, ...] = option(
        Option(
            name="--also", many=True, subjects=_WATCHED,
            help="Also wait for this signal before a boot counts as good. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    marks: tuple[str, ...] = option(
        Option(
            name="--mark", many=True, metavar="NAME=REGEX", subjects=_WATCHED,
            help="Show a milestone of your own: NAME=REGEX, a line of the console. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    times: int = option(
        option_rows.REPEAT, 5, former=("--times",), most=10_000, subjects=_EXERCISED | _FITTED,
        help="Boot this many times.",
    )  # fmt: skip
    timeout_s: float = option(
        Option(
            name="--timeout", type=float, least=0.1, most=86400, subjects=_EXERCISED | _FITTED | _WATCHED,
            help="Give up on a boot that is not ready after this many seconds.",
        ),
        300.0,
    )  # fmt: skip
    clock: Clock = option(option_rows.CLOCK, Clock.WALL, subjects=_EXERCISED | _FITTED)
    machine: str | None = option(MACHINE, None, subjects=_EXERCISED)
    memory_bytes: int | None = option(
        option_rows.MEMORY, None, read=option_values.boot_memory, subjects=_EXERCISED | _FITTED | _WATCHED,
        help="Give the guest this memory, such as 512M. Default: 2G, or what a bundle was fitted with.",
    )  # fmt: skip
    cpus: int | None = option(option_rows.CPUS, None, most=255, subjects=_EXERCISED | _WATCHED)
    arch: str | None = option(
        ARCH, None, subjects=_MACHINE, help=f"{ARCH.help[:-1]}, of a kernel or disk. Default: this host's."
    )
    cpu_model: str | None = option(option_rows.CPU_MODEL, None, subjects=_EXERCISED | _FITTED)
    accelerator: Accelerator = option(
        option_rows.ACCELERATOR, Accelerator.TCG, subjects=_EXERCISED | _FITTED,
        help="Run the machine by tcg, which works everywhere, or by kvm if `vmtailor doctor` says that it works.",
    )  # fmt: skip
    sample: bool = option(
        Option(
            name="--sample", type=bool, subjects=_MACHINE,
            help="Sample processes from inside the guest (needs --initrd).",
        ),
        False,
    )  # fmt: skip
    debug_initcalls: bool = option(
        Option(
            name="--debug-initcalls", type=bool, subjects=_FITTED,
            help="Make the kernel log every initcall (which itself costs time).",
        ),
        False,
    )  # fmt: skip
    changes: tuple[str, ...] = option(
        option_rows.TRY, (), subjects=_FITTED,
        help="Try remedies by id, `all`, `load`, own words (audit=0, sysctl:NAME=VALUE, unit:-UNIT), on bundles "
        "SYMBOL=VALUE, cc:FLAG. a+b is one. Repeat it.",
    )  # fmt: skip
    attribute: bool = option(
        Option(
            name="--attribute", type=bool, subjects=_FITTED,
            help="Count one boot up to init: what each initcall, function and configuration symbol costs.",
        ),
        False,
    )  # fmt: skip
    under: Under | None = option(option_rows.UNDER, None, subjects=frozenset({OptionSubject.FITTED}))
    judged_by: JudgedBy | None = option(option_rows.JUDGE, None, subjects=_FITTED)
    on: str | None = option(option_rows.ON, None)
    lab: bool = option(option_rows.IN_LAB, False)
    program: tuple[tuple[str, Path], ...] = option(option_rows.PROGRAM, ())
    clients: Clients = option(option_rows.CLIENTS, Clients.INSIDE)
    requests: Path | None = option(
        Option(
            name="--requests", type=Path, subjects=frozenset({OptionSubject.WATCHED}),
            help="Record every system call of the disk's init and its descendants in this folder, and why each module "
            "was loaded.",
        ),
        None,
    )  # fmt: skip
    qemu: tuple[str, ...] = option(
        Option(name="--qemu", many=True, subjects=_MACHINE, help="Give QEMU one more argument. Repeat it for more."), ()
    )
    out: Path = option(option_rows.OUT, Path("build/boots"), help="Write consoles and records to this folder.")
    json: bool = option(option_rows.JSON, False)
