# SPDX-License-Identifier: Apache-2.0
"""`verify`: verify a bundle or a work folder on this host, from its own files.

A bundle may be somebody else's, and so may a disk. Its exercise may name programs to run on the host (`host-command`).
They run only if the user gave them in an own file, or trusts this bundle's; otherwise the verdict says that they did
not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.guests import kernel_complaints, machine_variants
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import temporary
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import MOST_TABLE_BYTES, BundleFolder, SavedFolder
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.rootfs import boot_disk as disks
from vmtailor.model.architecture import named
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import SYSTEM_RUN, TRACED
from vmtailor.model.exercise import Exercise, Proof
from vmtailor.model.image import Image
from vmtailor.model.machine import USUAL_MONITOR, Accelerator, Clock, Machine
from vmtailor.model.option import Option, OptionSubject, option, refuse
from vmtailor.model.option_rows import (
    ACCELERATOR,
    BUNDLE_EXERCISE,
    CLOCK,
    IN_LAB,
    ON,
    PROGRAM,
    TRUST_HOST_COMMANDS,
)
from vmtailor.model.plan import RootFormat
from vmtailor.model.systems.system import System
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import monitor_choice, monitor_record, run_environment, work_stages
from vmtailor.pipeline.image_subject import tools_volume
from vmtailor.pipeline.monitor_choice import MonitorChoice
from vmtailor.pipeline.subject import scratch_of
from vmtailor.pipeline.systems import exercise_boots, subjects
from vmtailor.pipeline.work_files import WorkFolder, is_work_folder
from vmtailor.stages import container_trace, exercise_file, system_verify, verify
from vmtailor.stages.exercise_file import E, host_commands, in_guest
from vmtailor.stages.system_verify import SystemTarget
from vmtailor.stages.verify import Target

_OF_CONTAINERS = frozenset({OptionSubject.CONTAINER, OptionSubject.FITTED})


@dataclass(frozen=True)
class VerifyRequest:
    """The options of `vmtailor verify`. `exercise`: the user's own file, whose host commands are run. `disk`: for a
    system, started instead of the bundle's own."""

    bundle: Path = option(
        Option(name="BUNDLE", type=Path, help="Verify this bundle that `fit` wrote, or this work folder.")
    )
    clock: Clock = option(
        CLOCK, Clock.INSTRUCTIONS, help="Verify by wall time, as it is used, or by instructions, as it was fitted."
    )
    accelerator: Accelerator | None = option(
        ACCELERATOR, None, help="Use kvm or tcg on the wall clock. Default: kvm where it works."
    )
    exercise: Path | None = option(BUNDLE_EXERCISE, None)
    trust_host_commands: bool = option(TRUST_HOST_COMMANDS, False)
    disk: Path | None = option(
        Option(
            name="--disk", type=Path, subjects=frozenset({OptionSubject.SYSTEM}), hint="fit the other image",
            help="Use another disk of a system than the bundle's, such as one with newer packages. It is not written.",
        ),
        None,
    )  # fmt: skip
    on: str | None = option(ON, None)
    lab: bool = option(IN_LAB, False)
    program: tuple[tuple[str, Path], ...] = option(PROGRAM, ())
    env: tuple[tuple[str, str], ...] = option(
        run_environment.ENV, (), subjects=_OF_CONTAINERS,
        help="Give the container this variable, as `fit --env` does. Repeat it for more.",
    )  # fmt: skip
    secret_env: tuple[str, ...] = option(
        run_environment.SECRET_ENV, (), subjects=_OF_CONTAINERS,
        help="Give the container your variable of this name, as `fit --secret-env` does. Repeat it for more.",
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class SavedContainer:
    """The container of a bundle or a work folder. `machine`: gives the machine for an accelerator, on the wall clock,
    without a network device, as it was traced. `runs`: programs that will be started on this host, as shell text.
    `skipped`: programs that the bundle asks for and that are left out."""

    files: SavedFolder
    image: Image
    network: bool
    architecture: str
    root_format: RootFormat
    exercise: Exercise
    machine: Callable[[Accelerator], Machine]
    runs: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    monitor: str = USUAL_MONITOR

    @property
    def proof(self) -> Proof:
        return self.exercise.proof

    def clock(self, asked: Clock) -> Clock:
        return asked

    def started(self, accelerator: Accelerator) -> Machine:
        """Return the machine for its monitor."""
        return replace(self.machine(accelerator), monitor=self.monitor)

    def verified(self, accelerator: Accelerator, clock: Clock, store: Store) -> Verification:
        record, machine = self.files.trace, self.started(accelerator)
        model = record.cpu_model if clock is Clock.INSTRUCTIONS else machine.cpu_model
        target = Target(
            machine=replace(machine, clock=clock, cpu_model=model),
            image=self.image.config,
            exercise=self.exercise,
            tools=tools_volume(store, self.root_format, named(self.architecture)),
            network=self.network,
        )
        events = container_trace.log_of(self.files.requests(), record).events
        return verify.verify(target, record, events, scratch_of(store))


@dataclass(frozen=True, eq=False)
class SavedSystem:
    """The system of a bundle or a work folder. `before`: the run on the system's own kernel; `machine`: with the disk
    that is started, as it was fitted; `symbols`: the table of its kernel."""

    files: SavedFolder
    exercise: SystemExercise
    before: SystemRun
    system: System
    machine: Machine
    symbols: str
    runs: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        return self.machine.architecture

    @property
    def root(self) -> SystemRoot:
        """Return the place of the system in its machine."""
        return exercise_boots.root_of(self.system, self.machine.words)

    @property
    def proof(self) -> Proof:
        return self.exercise.inside().proof

    def clock(self, asked: Clock) -> Clock:
        """Return the wall clock when a program on the host drives the system: on the instruction clock no guest
        waits."""
        return Clock.WALL if self.runs else asked

    def verified(self, accelerator: Accelerator, clock: Clock, store: Store) -> Verification:
        """Run and judge the exercise on the machine as it was fitted. Nothing is written to the disk."""
        machine = replace(
            self.machine,
            accelerator=accelerator,
            clock=clock,
            cpu_model="host" if accelerator is Accelerator.KVM else self.machine.cpu_model,
            ports=machine_variants.on_loopback(self.exercise.ports),
        )
        parts = guest_programs.of(self.architecture)
        target = SystemTarget(
            machine=machine,
            root=self.root,
            exercise=self.exercise,
            natives=parts,
            built_in=kernel_complaints.built_in_modules(self.symbols),
        )
        with temporary.held_folder(scratch_of(store)) as scratch:
            found = system_verify.verify(target, self.before, scratch)
            return found if found.passed else system_verify.verify_again(target, self.before, found, scratch)


@dataclass(frozen=True)
class PreparedVerify:
    """A folder that was read and is ready to be verified."""

    request: VerifyRequest
    subject: SavedContainer | SavedSystem
    store: Store
    choice: MonitorChoice | None = None

    @property
    def clock(self) -> Clock:
        return self.subject.clock(self.request.clock if self.choice is None else self.choice.clock)


def prepare(request: VerifyRequest, store: Store | None = None) -> PreparedVerify:
    """Read the folder, and decide which programs of its exercise run on the host. Starts nothing.

    Raises UserInputError for a damaged folder, a disk without such a system, and an accelerator that does not keep the
    clock. An exercise file must ask the folder's own questions."""
    store = store or Store()
    run_environment.begin(request.env, request.secret_env)
    if request.accelerator is not None:
        monitor_choice.refuse_beside(request.on, request.lab, "--accelerator")
    if request.clock is Clock.INSTRUCTIONS and request.accelerator is Accelerator.KVM:
        raise UserInputError("the instruction clock runs under TCG only", hint="use --clock wall with KVM")
    files: SavedFolder
    working = is_work_folder(request.bundle)
    files = WorkFolder(request.bundle, store) if working else bundle_folder.load(request.bundle, store)
    if files.is_system:
        refuse(request, OptionSubject.SYSTEM, request.bundle)
        return PreparedVerify(request, saved_system(request, files), store)
    refuse(request, OptionSubject.CONTAINER, request.bundle)
    subject = saved_container(request, files)
    choice = monitor_choice.asked(request.on, request.lab, request.program, subject.architecture, request.clock)
    if choice is None:
        return PreparedVerify(request, subject, store)
    subject = replace(subject, monitor=choice.monitor)
    machine = replace(subject.started(choice.accelerator), clock=choice.clock, network=subject.network)
    monitors.of(machine).require(machine)
    return PreparedVerify(request, subject, store, choice)


def verify_prepared(prepared: PreparedVerify) -> Verification:
    """Run the exercise on the folder's machine, and compare the results with the folder's. On the wall clock it uses
    KVM if that works; the instruction clock always uses TCG."""
    request, subject, store = prepared.request, prepared.subject, prepared.store
    accelerator = Accelerator.TCG if prepared.clock is Clock.INSTRUCTIONS else request.accelerator
    if prepared.choice is not None:
        accelerator = prepared.choice.accelerator
    accelerator = accelerator or monitors.usual().best_accelerator(subject.architecture, store)
    # QEMU's, emulated, is the fit's own; of another disk a verdict says nothing.
    elsewhere = prepared.choice is not None or accelerator is Accelerator.KVM
    kept = isinstance(subject.files, BundleFolder) and request.disk is None and elsewhere
    start = (
        monitor_record.start_of(prepared.choice, subject.architecture, accelerator, prepared.clock) if kept else None
    )
    with monitors.lab_programs({} if prepared.choice is None else prepared.choice.programs):
        found = replace(subject.verified(accelerator, prepared.clock, store), skipped=subject.skipped)
    if isinstance(subject.files, WorkFolder) and prepared.choice is None:  # the next stage is for its own machine
        subject.files.save_verification(found)
    if isinstance(subject.files, BundleFolder) and start is not None:
        monitor_record.keep(subject.files, start, subject.proof, found)
    return found


def saved_container(request: VerifyRequest, files: SavedFolder) -> SavedContainer:
    """Return the container of a bundle or a work folder as it may be verified. Raises UserInputError as `prepare`
    does."""
    if isinstance(files, BundleFolder):
        return _allowed(request, _of_bundle(files))
    assert isinstance(files, WorkFolder)
    return _allowed(request, _of_work_folder(files))


def _of_bundle(files: BundleFolder) -> SavedContainer:
    """Return the container of a bundle. Raises UserInputError for a record that is damaged, or missing."""
    bundle = files.bundle
    if not files.lists(TRACED):
        raise UserInputError(f"the bundle {files.path} holds no trace to compare with", hint="fit the image again")
    _ = files.trace

    def machine(accelerator: Accelerator) -> Machine:
        return replace(machine_of(files, Chosen(accelerator=accelerator)), network=False)

    return SavedContainer(
        files=files,
        image=files.image,
        network=bundle.network,
        architecture=bundle.architecture,
        root_format=bundle.root_format,
        exercise=files.exercise,
        machine=machine,
    )


def _of_work_folder(work: WorkFolder) -> SavedContainer:
    """Return the container of a work folder, with the kernel that was built there."""
    begun, _ = work.work(), work.trace
    made, sha256 = work.plan(begun)
    kernel = work.kernel(sha256)
    image = work_stages.image_of(begun, work.store)
    return SavedContainer(
        files=work,
        image=image,
        network=made.network,
        architecture=begun.architecture,
        root_format=begun.root_format,
        exercise=work.exercise,
        machine=lambda accelerator: work_stages.built_machine(begun, image, made, kernel, accelerator, work.store),
    )


def _allowed(request: VerifyRequest, subject: SavedContainer) -> SavedContainer:
    exercise, skipped = chosen(
        request, subject.exercise, lambda file: exercise_file.load(file, subject.image), "container", "image"
    )
    runs = host_commands(exercise)
    if not (subject.network and any(port.protocol == "tcp" for port in subject.image.config.exposed_ports)):
        runs, skipped = (), skipped or runs  # nothing leads into such a machine, so nothing is asked from outside
    return replace(subject, exercise=exercise, runs=runs, skipped=skipped)


def chosen(
    request: VerifyRequest, own: E, load: Callable[[Path], E], driven: str, fitted: str
) -> tuple[E, tuple[str, ...]]:
    """Return the exercise to verify by, and the programs of the host that it leaves out. `driven`, `fitted`: nouns for
    messages.

    Raises UserInputError for an exercise file with other questions than the folder's: the machine is compared by their
    answers."""
    if request.exercise is None:
        return (own, ()) if request.trust_host_commands else (in_guest(own), host_commands(own))
    given = load(request.exercise)
    if replace(in_guest(given), origin="") != replace(in_guest(own), origin=""):
        raise UserInputError(
            f"{request.exercise} asks the {driven} other things than the exercise that {request.bundle} was "
            "fitted with, so there is nothing to compare its answers with",
            hint=f"give the file that the bundle was fitted with, or fit the {fitted} again with this one",
        )
    return given, ()


def saved_system(request: VerifyRequest, files: SavedFolder) -> SavedSystem:
    """Return the system of a bundle or a work folder as it may be verified. Raises UserInputError as `prepare`
    does."""
    if not files.lists(SYSTEM_RUN):
        raise UserInputError(
            f"the bundle {request.bundle} does not say what its system did on its own kernel",
            hint="fit the system again: what was finished is found",
        )
    exercise, skipped = chosen(request, files.system_exercise, exercise_file.load_system, "system", "system")
    subject, disk, before = files.system, files.root, files.system_run
    if request.disk is not None:
        disk = disks.disk_of(request.disk)
        with subjects.opened(f"{subjects.DISK}{request.disk}", files.store) as found:
            subject = found.subject
    if isinstance(files, WorkFolder):
        machine, symbols = work_stages.system_machine(files, subject, disk)
    else:
        assert isinstance(files, BundleFolder)
        machine = replace(machine_of(files, Chosen(clock=Clock.INSTRUCTIONS)), disks=(disk,))
        symbols = files.data(files.bundle.system_map, MOST_TABLE_BYTES)
    if subject.architecture != machine.architecture:
        wanted = named(machine.architecture).title
        raise UserInputError(f"{subject.reference} is not a system for {wanted}", hint="give a disk of the same system")
    return SavedSystem(
        files=files,
        exercise=exercise,
        before=before,
        system=subject,
        machine=machine,
        symbols=symbols.decode(errors="replace"),
        runs=host_commands(exercise),
        skipped=skipped,
    )
