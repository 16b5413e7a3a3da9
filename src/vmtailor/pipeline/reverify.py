# SPDX-License-Identifier: Apache-2.0
"""`verify`: a bundle, or a work folder, verified from what is in it, on this host.

A bundle may be somebody else's. Its exercise may name programs to be run on the host (`host-command`): they are run
when the user gave them in a file of their own, or says that this bundle's are trusted; otherwise the verdict says what
it is without."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.words.text import plain
from vmtailor.drivers.host import bundle_folder, bundle_values
from vmtailor.drivers.host.bundle_folder import RECORD_BYTES, BundleFolder
from vmtailor.drivers.qemu.accelerator import best_accelerator
from vmtailor.model.bundle import TRACE
from vmtailor.model.exercise import Exercise, StepKind
from vmtailor.model.image import Image
from vmtailor.model.machine import Accelerator, Clock, Machine
from vmtailor.model.option import Option, OptionSubject, option, refuse
from vmtailor.model.option_rows import ACCELERATOR, BUNDLE_EXERCISE, CLOCK, TRUST_HOST_COMMANDS
from vmtailor.model.plan import RootFormat
from vmtailor.model.trace import Trace
from vmtailor.model.trial import Verification
from vmtailor.pipeline.bundles import machine_of
from vmtailor.pipeline.inputs import scratch_of, tools_volume
from vmtailor.stages import exercise_file, trace, verify
from vmtailor.stages.verify import Target


@dataclass(frozen=True)
class VerifyRequest:
    """What is verified, and how. `exercise`: a file of the user's, whose host commands are run; `disk`: of a system,
    started instead of the bundle's own."""

    bundle: Path = option(
        Option(name="BUNDLE", type=Path, help="Verify this bundle that `fit` wrote, or this work folder.")
    )
    clock: Clock = option(
        CLOCK, Clock.INSTRUCTIONS, help="Verify by wall time, as it is used, or by instructions, as it was fitted."
    )
    accelerator: Accelerator | None = option(
        ACCELERATOR, None, help="Run it, on the wall clock, by kvm or tcg. Default: kvm where it works."
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


@dataclass(frozen=True, eq=False)
class SavedFit:
    """What is verified: the folder's image, its network, its trace. `machine`: as it is for an accelerator, on the
    wall clock; `requests`: the tracer's log. Both are read when they are asked for."""

    image: Image
    network: bool
    architecture: str
    root_format: RootFormat
    trace: Trace
    exercise: Exercise
    machine: Callable[[Accelerator], Machine]
    requests: Callable[[], bytes]


@dataclass(frozen=True)
class Prepared:
    """A folder that was read and may be booted. `runs`: the programs that will be started on this host, as a shell
    would be told; `skipped`: those that the bundle asks for and that are left out."""

    request: VerifyRequest
    subject: SavedFit
    exercise: Exercise
    store: Store
    runs: tuple[str, ...]
    skipped: tuple[str, ...]


def prepare(request: VerifyRequest, store: Store | None = None) -> Prepared:
    """Read a bundle, and decide which programs of its exercise are run on the host. Starts nothing.

    Raises UserInputError for a bundle that is damaged, and as `allowed` does."""
    store = store or Store()
    require_clock(request)
    refuse(request, OptionSubject.CONTAINER, request.bundle)
    files = bundle_folder.load(request.bundle, store)
    if not files.lists(f"{TRACE}/{trace.RECORD}"):
        raise UserInputError(f"the bundle {request.bundle} holds no trace to compare with", hint="fit the image again")
    return allowed(request, of_bundle(files), store)


def require_clock(request: VerifyRequest) -> None:
    """Raise UserInputError for an accelerator that does not keep the clock."""
    if request.clock is Clock.INSTRUCTIONS and request.accelerator is Accelerator.KVM:
        raise UserInputError("the instruction clock runs under TCG only", hint="use --clock wall with KVM")


def of_bundle(files: BundleFolder) -> SavedFit:
    """What of a bundle is verified. Raises UserInputError for a record that is damaged."""
    name, bundle = f"{TRACE}/{trace.RECORD}", files.bundle
    record = records.from_bytes(Trace, files.data(name, RECORD_BYTES), str(files.path / name))
    bundle_values.require_cpu_model(record.cpu_model, files.path / name)
    bundle_values.require_cpu_s(record.requests_cpu_s, files.path / name)
    return SavedFit(
        image=Image(bundle.image_reference, bundle.image_digest, bundle.image, "", "", 0, 0),
        network=bundle.network,
        architecture=bundle.architecture,
        root_format=bundle.root_format,
        trace=record,
        exercise=files.exercise(),
        machine=lambda accelerator: machine_of(files.path, bundle, accelerator=accelerator, store=files.store),
        requests=lambda: files.data(f"{TRACE}/{record.requests_file}"),
    )


def allowed(request: VerifyRequest, subject: SavedFit, store: Store) -> Prepared:
    """Decide which programs of an exercise are run on the host.

    Raises UserInputError for an exercise file that asks the container other things than the folder's: what the machine
    is compared with is the trace of those."""
    own = subject.exercise
    exercise, skipped = own, tuple[str, ...]()
    if request.exercise is not None:
        exercise = exercise_file.load(request.exercise, subject.image)
        if replace(in_guest(exercise), origin="") != replace(in_guest(own), origin=""):
            raise UserInputError(
                f"{request.exercise} asks the container other things than the exercise that {request.bundle} was "
                "fitted with, so there is nothing to compare its answers with",
                hint="give the file that the bundle was fitted with, or fit the image again with this one",
            )
    elif not request.trust_host_commands:
        exercise, skipped = in_guest(own), host_commands(own)
    runs = host_commands(exercise)
    if not (subject.network and any(port.protocol == "tcp" for port in subject.image.config.exposed_ports)):
        runs, skipped = (), skipped or runs  # nothing leads into such a machine, so nothing is asked from outside
    return Prepared(request, subject, exercise, store, runs, skipped)


def verify_prepared(prepared: Prepared) -> Verification:
    """The exercise on the folder's machine, compared with the trace in it. On the wall clock under KVM where it works;
    the instruction clock is always TCG."""
    request, subject, store = prepared.request, prepared.subject, prepared.store
    record, counting = subject.trace, request.clock is Clock.INSTRUCTIONS
    accelerator = Accelerator.TCG if counting else request.accelerator or best_accelerator(subject.architecture, store)
    machine = subject.machine(accelerator)
    machine = replace(machine, clock=request.clock, cpu_model=record.cpu_model if counting else machine.cpu_model)
    target = Target(
        machine=machine,
        image=subject.image.config,
        exercise=prepared.exercise,
        tools=tools_volume(store, subject.root_format, subject.architecture),
        network=subject.network,
    )
    found = verify.verify(target, record, trace.log_of(subject.requests(), record).events, scratch_of(store))
    return replace(found, skipped=prepared.skipped)


def in_guest(exercise: Exercise) -> Exercise:
    """What of an exercise happens in the guest, and through its published ports: all but programs of the host."""
    return replace(exercise, load=tuple(step for step in exercise.load if step.kind is not StepKind.HOST_COMMAND))


def host_commands(exercise: Exercise) -> tuple[str, ...]:
    """The programs of the host that an exercise asks for, each as a shell would be told, fit for a terminal."""
    return tuple(plain(shlex.join(step.argv)) for step in exercise.load if step.kind is StepKind.HOST_COMMAND)
