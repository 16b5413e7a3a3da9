# SPDX-License-Identifier: Apache-2.0
"""The calls of a machine's kernel, followed through its exercise: of an image's baseline, or of a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtailor.analysis.calls import call_targets, followed_code
from vmtailor.analysis.calls.call_shares import FollowedBoot
from vmtailor.analysis.calls.call_targets import CallTargets
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base import natives
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.base.notation import module_name
from vmtailor.booting import bundle_booter, fitted_machine
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.kernel import module_functions
from vmtailor.drivers.monitors import calls_file
from vmtailor.model.architecture import named
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import LoadedModule, Trace
from vmtailor.pipeline import bundle_boots, keys, saved_trace
from vmtailor.pipeline.image_subject import ImageSubject
from vmtailor.stages import call_trace, container_trace

_CALLS, _REQUESTS = "calls.bin", "requests"
#: Processor seconds that a boot with its exercise may take: following is some three times as slow as counting.
_MOST_S = 1800.0


@dataclass(frozen=True, eq=False)
class FollowedCalls:
    """A followed boot, the tracer's calls of another boot, and the name of what was booted. `targets`: what its
    kernel's code calls, where its file can be read."""

    boot: FollowedBoot
    events: Sequence[SyscallEvent]
    title: str
    targets: CallTargets | None = None


def of_image(subject: Any, record: Trace | None = None, folder: Path | None = None) -> FollowedCalls:
    """Follow the calls of an image's baseline. `record`: of a trace that was saved, its files in `folder`. Raises
    UserInputError for a system."""
    if not isinstance(subject, ImageSubject):
        raise of_no_container()
    followed_code.require(subject.architecture)
    if record is None or folder is None:
        record, folder = subject.traced()
    subject = subject.as_traced(record)
    table = _with_modules(subject.table, record.modules, Path(subject.kernel.modules_dir))
    work = Exercised(Run(exercise=subject.exercise, key=FIXED_KEY), _MOST_S)
    found = _followed(record.machine, work, table, subject.natives, subject.natives.marks(), subject.store)
    events = container_trace.read_log(folder, record).events
    return FollowedCalls(found, events, f"{subject.reference}, Linux {subject.kernel.release}")


def of_no_container() -> UserInputError:
    """Return the error for a system with an init of its own."""
    return UserInputError(
        "calls are followed in the machines of containers", hint="vmtailor boot DISK tells the cost of a system's boot"
    )


def of_bundle(path: Path, store: Store, exercise: Path | None = None) -> FollowedCalls:
    """Follow the calls of a bundle's own kernel, with the bundle's exercise, or with the one in the file `exercise`, of
    which no tracer told times. Raises UserInputError for loads that the bundle's init is too old for."""
    loaded = bundle_folder.load_container(path, store)
    ours = natives.locate()
    table = SymbolTable.parse(loaded.symbols.decode("ascii", "replace"), loaded.bundle.architecture)
    followed_code.require(named(loaded.bundle.architecture))
    machine = fitted_machine.machine_of(loaded, Chosen(clock=Clock.INSTRUCTIONS))
    marks = loaded.init_marks
    asked = bundle_boots.exercise_of(loaded, exercise)
    work = bundle_booter.workload_of(asked, _MOST_S)
    found = _followed(machine, work, table, ours, ours.marks() if marks is None else marks, store)
    title = f"{path}, Linux {loaded.bundle.kernel_version}"
    targets = call_targets.of_kernel(loaded.data(loaded.bundle.kernel), table, named(loaded.bundle.architecture))
    if exercise is not None:
        return FollowedCalls(found, (), title, targets)
    record, folder, _ = saved_trace.of_container(loaded)
    events = container_trace.read_log(folder, record).events
    return FollowedCalls(found, events, title, targets)


def _followed(
    machine: Machine, work: Exercised, table: SymbolTable, ours: Natives, marks: Mapping[str, int], store: Store
) -> FollowedBoot:
    code = followed_code.require(named(table.architecture))
    followed = followed_code.of_table(table, code)
    assert work.run.exercise is not None
    plugins = [keys.content(ours.call_plugin(api)) for api in natives.PLUGIN_APIS]
    parts = (*plugins, digest(str(followed), str(sorted(marks.items()))))
    key = keys.of_run(call_trace, machine, work.run.exercise, ours, *parts)

    def fill(folder: Path) -> None:
        data, requests = call_trace.follow(machine, work, table, marks, ours, folder)
        (folder / _CALLS).write_bytes(data)
        (folder / _REQUESTS).write_text(f"{requests}\n")

    folder = store.get("calls", key, fill)
    graph = calls_file.parse((folder / _CALLS).read_bytes(), "the plugin's calls")
    return FollowedBoot(graph, table.names, code, int((folder / _REQUESTS).read_text()))


def _with_modules(table: SymbolTable, modules: Sequence[LoadedModule], folder: Path) -> SymbolTable:
    """Return the baseline's table with the functions of its modules, where the counted boot had them: on the
    instruction clock every boot has them there."""
    files = {module_name(path.stem): path for path in folder.rglob("*.ko")}
    functions = [
        (address, f"{name} [{one.name}]")
        for one in modules
        if one.name in files
        for address, name in module_functions.functions(files[one.name], dict(one.sections))
    ]
    return followed_code.with_modules(table, functions, [one.base + one.bytes for one in modules])
