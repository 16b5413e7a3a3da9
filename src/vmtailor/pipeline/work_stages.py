# SPDX-License-Identifier: Apache-2.0
"""The stages of `fit`, each from the files that the one before has left in a work folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmtailor.analysis.ksource import foreign_config
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.progress import step
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.kernel import kept_source, kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.bundle import REQUESTS, TRACE
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.systems.system import System
from vmtailor.model.trace import FileUse
from vmtailor.pipeline import bundle_files, fit_sides, followed_calls, saved_trace, subject_kind, system_bundle
from vmtailor.pipeline.followed_calls import FollowedCalls
from vmtailor.pipeline.image_subject import ImageSubject, assembled, machine_with
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import Built, Findings, Subject
from vmtailor.pipeline.systems import inputs
from vmtailor.pipeline.systems.system_subject import calls_of
from vmtailor.pipeline.work_files import PLACES, BothSides, Work, WorkFolder
from vmtailor.stages import build as build_stage
from vmtailor.stages import container_trace
from vmtailor.stages import image_fetch as image_stage
from vmtailor.stages import kernel_plan as planning
from vmtailor.stages.exercise_file import in_guest
from vmtailor.stages.root_volume import build_root


@contextmanager
def trace(asked: FitOptions, folder: Path) -> Iterator[Subject[Any]]:
    """Trace, or find the trace, and begin a work folder with it. Returns the subject, open within the block."""
    work = WorkFolder(folder, asked.store)
    work.require_writable()
    with subject_kind.prepare(asked) as subject:
        if subject.copied is not None:
            bundle_files.require_room(folder, subject.copied)
        work.save_trace(subject, subject.work_files())
        yield subject


def calls(work: WorkFolder) -> tuple[Iterable[SyscallEvent], Sequence[FileUse]]:
    """Return the system calls and the files of the trace in the folder."""
    if work.is_system:
        return calls_of(work.file(f"{TRACE}/{REQUESTS}")), work.system_trace.files
    return container_trace.log_of(work.requests(), work.trace).events, work.trace.files


def followed(work: WorkFolder, asked: FitOptions) -> FollowedCalls:
    """Follow the calls of the baseline that was traced in the folder. Raises UserInputError for a system."""
    if work.is_system:
        raise followed_calls.of_no_container()
    record, folder, _ = saved_trace.of_container(work)
    return followed_calls.of_image(inputs_of(work, asked), record, folder)


def plan(folder: Path, asked: FitOptions) -> Plan:
    """Plan from the trace in the folder; nothing is booted. Of the options it uses only the kept and dropped symbols,
    and the terminal."""
    work = WorkFolder(folder, asked.store)
    with findings(work, asked) as found:
        made = found.planned()
    work.save_plan(made)
    return made


@dataclass(frozen=True)
class Resolved:
    """A plan that may have been edited. `differing`: symbols whose value in its fragment differs from that in its
    changes. `lost`: symbols that do not get their value, each with the dependency that loses it."""

    plan: Plan
    differing: tuple[str, ...]
    lost: Mapping[str, str]


def build(folder: Path, asked: FitOptions) -> tuple[KernelFiles, tuple[str, ...]]:
    """Build the plan in the folder. Return the kernel, and the symbols with two values in the plan. Raises
    UserInputError for symbols that the source does not have, and for text that its make would execute; BuildError for
    symbols that do not resolve as planned."""
    work = WorkFolder(folder, asked.store)
    begun = work.work()
    made, sha256 = work.plan(begun)
    source = traced_source(begun, asked)
    with step("facts of the kernel source"):
        tree = planning.read_tree(
            source.path, source.version, source.digest, asked.store, architecture=begun.architecture
        )
        resolved = resolve(tree.kconfig, made, f"{work.path}/plan.json")
    sources = tree.facts.compiled({c.id: c.value for c in resolved.plan.symbols if c.is_kept})
    files = build_stage.build_kernel(
        resolved.plan, source.path, source.digest, asked.store, explain=resolved.lost, sources=sources
    )
    return work.save_kernel(sha256, files), resolved.differing


def resolve(kconfig: Kconfig, made: Plan, where: str) -> Resolved:
    """Return a plan as this source understands it, its figures counted again."""
    try:
        taken = foreign_config.harmless(kconfig, dict(made.fragment), where)
    except UserInputError as error:
        raise UserInputError(error.message, hint="vmtailor plan writes it again, with --keep and --drop") from error
    fragment = tuple((name, value) for name, value in made.fragment if name in taken)
    resolution = kconfig.resolve(fragment)
    said = {change.id: change.value for change in made.symbols if change.value != "n"}
    differing = {name for name in resolution.enabled | set(said) if resolution.values.get(name) != said.get(name)}
    counted = replace(made, fragment=fragment, total_y=resolution.total_y, prompted_y=resolution.prompted_y)
    return Resolved(counted, tuple(sorted(differing)), {one.name: one.expression for one in resolution.lost})


def built_machine(
    begun: Work, image: Image, made: Plan, kernel: KernelFiles, accelerator: Accelerator, store: Store
) -> Machine:
    """Return the machine of a plan and its kernel, on the wall clock."""
    root = build_root(image, begun.root_format, guest_programs.of(begun.architecture), store)
    found = machine_with(_options(begun, FitOptions("", Path(), store=store)), root, made, kernel)
    cpu_model = "host" if accelerator is Accelerator.KVM else found.cpu_model
    return replace(found, accelerator=accelerator, clock=Clock.WALL, cpu_model=cpu_model)


def measured(folder: Path, asked: FitOptions) -> BothSides:
    """Measure both machines, on both clocks; earlier results for the same bytes are reused."""
    work = WorkFolder(folder, asked.store)
    made, sha256 = work.plan(work.work())
    kernel = work.kernel(sha256)
    with findings(work, asked) as found:
        resolved = resolve(found.tree.kconfig, made, f"{work.path}/plan.json").plan
        machine = found.machine_of(resolved, kernel)
        sides = fit_sides.both_sides(found, Built(resolved, kernel, machine))
    both = BothSides(sides.baseline, sides.tailored)
    work.save_measured(both)
    return both


@contextmanager
def findings(work: WorkFolder, asked: FitOptions) -> Iterator[Findings[Any]]:
    """Return what is known of the fit, from the trace in the folder, for as long as the block lasts."""
    begun = work.work()
    if begun.image is not None:
        record, folder, _ = saved_trace.of_container(work)
        yield inputs_of(work, asked).known(record, folder)
        return
    temporary.require_usable()
    options, exercise = _options(begun, asked), in_guest(work.system_exercise)
    with system_bundle.read(options, work, exercise, lambda: traced_source(begun, asked)) as found:
        yield found


def system_machine(work: WorkFolder, system: System, disk: Disk) -> tuple[Machine, bytes]:
    """Return the machine of a system with the kernel that was built in the folder, and that kernel's symbols."""
    begun = work.work()
    made, sha256 = work.plan(begun)
    kernel = work.kernel(sha256)
    options = _options(begun, FitOptions("", Path(), store=work.store))
    return inputs.fitted(options, system, disk, made, kernel), Path(kernel.system_map).read_bytes()


def inputs_of(work: WorkFolder, asked: FitOptions) -> ImageSubject:
    """Return the trace's inputs from the cache; the root is made again if it is gone."""
    temporary.require_usable()
    begun = work.work()
    source = traced_source(begun, asked)
    kernel = replace(_kernel_of(begun, asked.store), source_dir=str(source.path))
    return assembled(_options(begun, asked), image_of(begun, asked.store), work.exercise, kernel, source)


def _options(begun: Work, asked: FitOptions) -> FitOptions:
    return replace(
        asked, reference=begun.image.reference if begun.image is not None else asked.reference, memory_asked=True,
        architecture=begun.architecture, machine=begun.machine,
        memory_bytes=begun.memory_bytes, cpus=begun.cpus, cpu_model=begun.cpu_model, root=begun.root_format,
    )  # fmt: skip


def image_of(begun: Work, store: Store) -> Image:
    """Return the image in the cache. Raises UserInputError when it is gone, or another one."""
    assert begun.image is not None
    found = image_stage.kept(begun.image.archive, begun.image.archive_sha256, store)
    if found is None:
        raise _gone(f"the image {begun.image.reference}")
    return replace(begun.image, archive=found.archive)


def traced_source(begun: Work, asked: FitOptions) -> SourceTree:
    """Return the source that was planned with, of the baseline's version: from the cache by its digest, or a folder
    that the user names again."""
    wanted = begun.kernel.source_digest
    tree = kept_source.by_digest(wanted, asked.store)
    if tree is None and asked.source is None:
        raise _gone("the kernel's source", hint="give it again with --source, or trace again")
    if tree is None:
        tree = kernel_source.provide(asked.store, asked.source or "")
        if tree.digest != wanted:
            raise UserInputError(
                f"{asked.source} is not the source that was traced with", hint="give that, or trace again"
            )
    kernel_source.require_version(tree, begun.kernel.version, "the baseline")
    return tree


def _kernel_of(begun: Work, store: Store) -> KernelBaseline:
    """Return the baseline's kernel in the cache, its paths those of this cache."""

    def there(name: str) -> str:
        path = store.root / name
        if not path.exists():
            raise _gone(f"the baseline's kernel {begun.kernel.release}")
        store.used(path)
        return str(path)

    places: dict[str, Any] = {name: there(getattr(begun.kernel, name)) for name in PLACES}
    return replace(begun.kernel, **places)


def _gone(what: str, hint: str = "trace again: vmtailor trace IMAGE -o FOLDER") -> UserInputError:
    return UserInputError(f"{what} is no longer in the cache", hint=hint)
