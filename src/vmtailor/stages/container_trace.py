# SPDX-License-Identifier: Apache-2.0
"""Stage trace: run the exercise twice on the baseline at the same time, once with every block counted, once with every
call seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.demands import container_calls, degradation, file_uses
from vmtailor.analysis.demands.strace_log import CallLog
from vmtailor.analysis.guests import boots, machine_variants
from vmtailor.base import concurrency
from vmtailor.base.errors import GuestError
from vmtailor.base.files import records
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot
from vmtailor.drivers.rootfs import initramfs
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CountingConfig, CountingMode
from vmtailor.model.boots.ending import Ending, Gathered
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.bundle import REQUESTS
from vmtailor.model.exercise import Exercise
from vmtailor.model.image import Image
from vmtailor.model.machine import Machine
from vmtailor.model.trace import LoadedModule, ModuleRequest, Trace

RECORD = "trace.json"
COVERAGE = "coverage.counts"
#: Processor seconds a boot under emulation may take beside what the exercise itself allows.
BOOT_S = 300.0
#: Init stretches limits of time at the most so many times (native/init/container/slowdown.c).
MOST_STRETCH = 8
#: Rounds of adding requested modules and booting again: one may request the next (af_alg, algif_hash).
MODULE_ROUNDS = 6


@dataclass(frozen=True)
class TraceInputs:
    """A container to trace. `machine`: the baseline with its root; it loads further modules by name. `modules`: their
    folder (lib/modules/VERSION). `table`: the kernel's symbols. `tools`: the tracer's volume."""

    image: Image
    exercise: Exercise
    machine: Callable[[tuple[str, ...]], Machine]
    modules: Path
    kernel_release: str
    table: SymbolTable
    natives: Natives
    tools: Path


def trace(
    inputs: TraceInputs, folder: Path, scratch: Path, on_counted: Callable[[Boot], None] = lambda boot: None
) -> Trace:
    """Run both boots and write the record with its two files into `folder`. `on_counted` gets the counted boot while
    calls are still being traced: whether modules are missing is not known then.

    Raises GuestError, with the console, when the workload fails on the baseline: then nothing may go on."""
    limit_s = BOOT_S + MOST_STRETCH * inputs.exercise.ready.timeout_s
    work = Exercised(Run(exercise=inputs.exercise, key=FIXED_KEY), limit_s)
    alone = inputs.machine(())

    def counted_alone() -> tuple[Boot, Gathered]:
        found = _coverage(inputs, alone, work, scratch)
        if not found[0].failures:
            on_counted(found[0])
        return found

    with concurrency.beside(counted_alone) as counting_it:
        requests_boot, requests, machine, loaded = _requests(inputs, work, scratch)
        require_works(requests_boot, requests, inputs, "with its system calls traced")
        found = counting_it.wait() if machine == alone else None
    coverage_boot, coverage = found or _coverage(inputs, machine, work, scratch)
    require_works(coverage_boot, coverage, inputs, "")
    (folder / COVERAGE).write_bytes(coverage.counts)
    (folder / REQUESTS).write_bytes(requests.requests)
    begins = container_calls.phases(requests.report)
    log = container_calls.read(requests.requests, begins)
    record = Trace(
        image_digest=inputs.image.digest,
        exercise_origin=inputs.exercise.origin,
        kernel_release=inputs.kernel_release,
        cpu_model=machine.cpu_model,
        machine=machine,
        coverage_boot=coverage_boot,
        requests_boot=requests_boot,
        requests_report=requests.report,
        phases=begins,
        coverage_file=COVERAGE,
        requests_file=REQUESTS,
        modules_requested=loaded,
        modules=modules_of(coverage.report.file("modules"), coverage.report.file("module-sections")),
        failed_calls=degradation.failed_calls(log.events),
        files=file_uses.of_events(log.events),
        kernel_warnings=tuple(boots.complaints(requests, machine.architecture)),
        requests_cpu_s=requests.cpu_s,
    )
    records.save(record, folder / RECORD)
    return record


def _coverage(inputs: TraceInputs, machine: Machine, work: Exercised, scratch: Path) -> tuple[Boot, Gathered]:
    """Return the boot in which every block is counted."""
    marks = boots.marks(inputs.table, inputs.natives)
    config = CountingConfig(mode=CountingMode.COUNTS, marks=marks, architecture=inputs.table.architecture)
    one_cpu = machine_variants.counted(machine)
    with step("trace: every block of the kernel") as shown:
        counted = Counting(inputs.natives, config, inputs.table)
        found = boot(one_cpu, work.unhurried(one_cpu.clock), scratch, counting=counted)
        if found[0].failures:
            shown.fail()
    return found


def _requests(
    inputs: TraceInputs, work: Exercised, scratch: Path
) -> tuple[Boot, Gathered, Machine, tuple[ModuleRequest, ...]]:
    """Return the boot in which every call is seen, repeated until no module is missing that the container made the
    kernel ask for: elsewhere the host has them all. Returns what was asked for, too.

    A boot that failed is the last one, with one exception: a container that came to an end by itself, and had asked for
    modules that were not there, may have failed for that; it is tried with them, and again while it asks for others
    (with the first it may come as far as the next)."""
    asked: list[ModuleRequest] = []
    loaded: tuple[str, ...] = ()
    for _ in range(MODULE_ROUNDS):
        machine = inputs.machine(loaded)
        also = f" (with {', '.join(loaded)})" if loaded else ""
        with step(f"trace: every system call{also}") as shown:
            seen_boot, seen = boot(machine, replace(work, tools=inputs.tools).unhurried(machine.clock), scratch)
            if seen_boot.failures:
                shown.fail()
        events = container_calls.read(seen.requests, container_calls.phases(seen.report)).events
        wanted = container_calls.own_requests(initramfs.requested(boots.kernel_words(seen.report)), events)
        found = initramfs.providers(inputs.modules, wanted)
        more = tuple(dict.fromkeys(one.module for one in found if one.module not in loaded))
        if not more or (seen_boot.failures and not _may_lack_a_module(seen, inputs.exercise)):
            break
        asked += [one for one in found if one.module in more]
        loaded += more
    return seen_boot, seen, machine, tuple(asked)


def _may_lack_a_module(seen: Gathered, exercise: Exercise) -> bool:
    """Return whether a failed boot may succeed with the modules that were asked for. A boot that hung, panicked or was
    given up by init would not, nor one that timed out waiting for a container."""
    if seen.end.ending is not Ending.EXITED or seen.report.fatal is not None:
        return False
    ready = seen.report.ready
    return ready is None or ready.ok or ready.virtual_ns < exercise.ready.timeout_s * 1e9


def read_log(folder: Path, record: Trace) -> CallLog:
    """Return the calls of the container in a saved trace."""
    return log_of((folder / record.requests_file).read_bytes(), record)


def log_of(requests: bytes, record: Trace) -> CallLog:
    """Return the calls of the container in the tracer's log."""
    return container_calls.read(requests, record.phases)


def require_works(found: Boot, gathered: Gathered, inputs: TraceInputs, how: str) -> None:
    """Raise GuestError unless the container passed the whole exercise on the baseline."""
    if found.failures:
        raise GuestError(
            f"the container does not work on the baseline {inputs.kernel_release} {how}".rstrip(),
            hint="fix the image or the exercise first: a machine can only be fitted to a container that works",
            details=boots.evidence(gathered, found.failures),
        )


_MODULE = re.compile(r"^(\S+) (\d+) .* (0x[0-9a-f]+)(?: |$)", re.MULTILINE)
_SECTION = re.compile(r"^(\S+) (\S+) (0x[0-9a-f]+)$", re.MULTILINE)


def modules_of(modules: str, sections: str) -> tuple[LoadedModule, ...]:
    """Return records from /proc/modules and lines "module section address"."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, section, address in _SECTION.findall(sections):
        found.setdefault(name, []).append((section, int(address, 16)))
    return tuple(
        LoadedModule(name, int(base, 16), int(size), tuple(found.get(name, ())))
        for name, size, base in _MODULE.findall(modules)
    )
