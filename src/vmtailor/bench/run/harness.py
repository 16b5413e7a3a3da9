# SPDX-License-Identifier: Apache-2.0
"""The run within the scope: runtimes are made ready and identified, then every trial runs in its turn. Each trial is on
disk before the next begins (those of milliseconds in small batches), so an interrupted run can continue.

    python3 -m vmtailor.bench.run.harness JOB.json    (started in the scope by bench/run/launch.py)
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.base import output, terminal
from vmtailor.base.cache.store import digest
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.files import records
from vmtailor.base.process import spawn
from vmtailor.base.progress import step
from vmtailor.bench.analysis import instance_report
from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.analysis.cells import NATIVE
from vmtailor.bench.analysis.schedule import PlannedTrial, Schedule, is_way, lasting, plan, plan_lines
from vmtailor.bench.model.job import BENCH_IMAGE, VM, BenchJob
from vmtailor.bench.model.results import (
    IMAGE,
    VIRTUAL,
    BenchFailure,
    BenchFigure,
    BenchHost,
    BenchTrial,
    HostRun,
    SuiteName,
    is_counted,
)
from vmtailor.bench.run import results_file, rounds_boot
from vmtailor.bench.run.bench_rows import BenchRow, GuestRow, HostRow, MachineRow, MonitoredRow
from vmtailor.bench.run.guest_engine import GuestEngine
from vmtailor.bench.run.image_machine import ImageMachine
from vmtailor.bench.run.machine_counts import cannot_tell, machine_tests
from vmtailor.bench.run.monitor_engine import MonitorEngine, described
from vmtailor.bench.run.shared_boots import SharedBoots
from vmtailor.bench.runtimes import description, networks
from vmtailor.bench.runtimes.host_state import Clocks, ProcessorTimes, seen_here, this_host
from vmtailor.bench.runtimes.instance_cgroups import Cgroups
from vmtailor.bench.suites.bench_run import TIMED_OUT, BenchRun
from vmtailor.bench.suites.registry import SUITES
from vmtailor.drivers.rootfs import unpack

#: The file for a cell that is measured again.
AGAIN = "again.json"
#: Suites during whose trials the processors' clocks are read.
CLOCKED = (SuiteName.EFFICIENCY, SuiteName.UNIXBENCH)
_UNPACK_S = 600.0


def measure(job: BenchJob) -> HostRun:
    """Do the job, and return its results. Raises HostError when nothing can be run."""
    cgroups = Cgroups()
    cgroups.enter_harness()
    networks.loopback_up()
    folder = Path(job.folder)
    _unpack(Path(job.archive), folder / "tree")
    host = this_host(cgroups.version, kvm=job.kvm, name=job.host_name)
    before = results_file.earlier(Path(job.out), job, host.id)
    results_file.require_alike(before, (), _descriptions(job))
    run = BenchRun(
        job=job, folder=folder, cgroups=cgroups, here=seen_here(instance_report.NAMESPACES),
        asked_before=results_file.asked_before(Path(job.out), before),
    )  # fmt: skip
    shared = SharedBoots.of(job)
    with contextlib.ExitStack() as held:
        rows = []
        for row in _rows(run, held, shared):
            with step(row.beginning):
                identity = row.identity()
            # A row may take minutes to say what it is: what cannot be pooled is refused before the next one is asked.
            results_file.require_alike(before, [identity])
            run.identities[row.name] = identity
            if identity.missing or identity.problem:
                output.note(f"! {row.name}: {identity.missing or identity.problem}")
                run.runtimes.pop(row.name, None)
            else:
                rows.append(row)
        return _trials(run, rows, shared, host, before)


def _rows(run: BenchRun, held: contextlib.ExitStack, shared: SharedBoots) -> Iterator[BenchRow]:
    job, scratch = run.job, run.folder / "machines"
    yield from (HostRow(run, name, held) for name in job.runtimes)
    yield from (MachineRow(run, ImageMachine(one, scratch)) for one in job.machines)
    for inside in job.insides:
        for name in job.inside_runtimes:
            yield GuestRow(run, GuestEngine(inside, description.load(name), scratch, in_each=job.starts), shared)
        for one in inside.monitors:
            engine = MonitorEngine(inside, described(one, ()), scratch, monitor=one)
            yield MonitoredRow(run, engine, shared)


def _unpack(archive: Path, tree: Path) -> None:
    tree.mkdir(parents=True)
    words = [sys.executable, "-I", str(unpack.__file__), str(tree), "/bin/true"]
    with archive.open("rb") as source, spawn(words, stdin=source) as process:
        try:
            code = process.wait(_UNPACK_S)
        except subprocess.TimeoutExpired:
            raise HostError(f"the image was not unpacked within {_UNPACK_S:.0f} s", hint="is the disk busy?") from None
        if code != 0:
            raise HostError("the image could not be unpacked", hint="is there room in /var/tmp?")


def _facts(job: BenchJob, run: BenchRun, name: SuiteName) -> tuple[Sequence[tuple[str, str]], list[str]]:
    """Return what a suite says of its programs, and why where it cannot. It asks the image's programs on this host. An
    image of a machine in which all is run may be for another processor, and is asked there."""
    if not (job.runtimes or job.machines):
        return (), []
    try:
        return SUITES[name].facts(run), []
    except VmtailorError as error:
        output.note(f"! {name}: {error.message}")
        return (), [f"{name}: {error.message}"]


def _descriptions(job: BenchJob) -> list[tuple[str, str]]:
    """Return which files describe runtimes of the user's own, as they are now, and what monitors start."""
    files = [name for name in (*job.runtimes, *job.inside_runtimes) if name not in description.known()]
    found = [(f"description of {description.load(name).name}", digest(Path(name))[:12]) for name in files]
    monitors = dict.fromkeys(one for inside in job.insides for one in inside.monitors)
    return [*found, *((f"machine of {one.name}", one.machine) for one in monitors)]


def _trials(
    run: BenchRun, rows: Sequence[BenchRow], shared: SharedBoots, host: BenchHost, before: HostRun | None
) -> HostRun:
    """Do all trials. `before`: the earlier run that this one continues."""
    job = run.job
    identities = tuple(run.identities.values())
    left_out = [f"{one.runtime}: {one.missing or one.problem}" for one in identities if one.missing or one.problem]
    facts = [(results_file.REPEAT, str(job.repeat)), (IMAGE, job.reference), *_descriptions(job)]
    left_out += cannot_tell(job)
    for name in job.suites:
        left_out += SUITES[name].left_out(job) if job.runtimes else ()
        about, missing = _facts(job, run, name)
        facts += about
        left_out += missing
    facts += dict.fromkeys(fact for row in rows for fact in row.facts.items())
    known = HostRun(
        host=host, image_digest=job.image_digest, quick=job.quick, seed=job.seed, options=tuple(facts),
        identities=identities, left_out=tuple(left_out),
    )  # fmt: skip
    known = results_file.going_on(before, known)
    planned = planned_trials(job, rows)
    schedule = Schedule(planned, known.trials, job.within_s, job.until_s, is_there=shared.has)
    shared.at_once.left = shared.units.left = lambda: schedule.left
    shortened = schedule.fit(cells=False)
    kept = [*(one for one in planned if one.key in schedule.done), *schedule.left]
    for line in (*plan_lines(kept, len(schedule.done), schedule.seconds), *(f"! {row}" for row in shortened)):
        output.note(line)
    return _each(run, schedule, {row.name: row for row in rows}, shared, known)


def _each(
    run: BenchRun, schedule: Schedule, rows: Mapping[str, BenchRow], shared: SharedBoots, known: HostRun
) -> HostRun:
    """Try every trial in its turn, and keep each."""
    keeping = results_file.Keeping(Path(run.job.out))
    keeping.keep(_without(known, schedule))
    there = f", {len(known.trials)} were there" if known.trials else ""
    began = time.monotonic()
    try:
        with step(f"{len(schedule.left)} trials{there}") as progress:
            while True:
                for row in schedule.fit():
                    output.note(f"! {row}")
                one = schedule.next()
                if one is None:
                    break
                past, to_wait = time.monotonic() - began, schedule.seconds
                what = f"{one.test.suite} {one.test.test} ×{one.test.count} {one.runtime}"
                progress.update(past, past + to_wait, f"{what}, about {lasting(to_wait)} left")
                tried = _tried(run, one, rows[one.runtime], shared.at_once)
                schedule.expected.done(tried)
                known = replace(known, trials=(*known.trials, tried))
                keeping.keep(_without(known, schedule))
    finally:
        known = _without(known, schedule)
        keeping.keep(known, last=True)
    return known


def _without(known: HostRun, schedule: Schedule) -> HostRun:
    """Return the run with what is left out for the sake of time, as things stand."""
    return replace(known, left_out=tuple(dict.fromkeys((*known.left_out, *schedule.left_out()))))


def planned_trials(job: BenchJob, rows: Sequence[BenchRow]) -> list[PlannedTrial]:
    """Return all trials of a job in their order, for the rows that can be measured."""
    timed = [(test, job.repeat) for name in job.suites for test in SUITES[name].tests(job)]
    planned = [
        trial
        for test, repeat in (*timed, *((test, job.boots) for test in machine_tests(job)))
        if _wanted(test, job)
        for trial in plan([test], [row.name for row in rows if row.takes(test)], repeat, job.seed)
    ]
    if job.at_once:
        engines = [row.name for row in rows if row.within]
        planned += [one for one in rounds_boot.planned(job, engines) if _wanted(one.test, job)]
    return planned


def _wanted(test: BenchTest, job: BenchJob) -> bool:
    return (not job.only or test.test in job.only) and is_way(test.variant, job.variant)


def _tried(run: BenchRun, planned: PlannedTrial, row: BenchRow, at_once: rounds_boot.AtOnce) -> BenchTrial:
    test = planned.test
    at, before, own = time.time(), ProcessorTimes.now(), run.cgroups.cpu_s()
    began = time.monotonic()
    run.notes.clear()
    run.witnesses.clear()
    figures: tuple[BenchFigure, ...] = ()
    failure = None
    clocks = Clocks()
    # Reading clocks costs a little, so only trials that time processors do it.
    looking = clocks if test.suite in CLOCKED and not is_counted(test.variant) else contextlib.nullcontext()
    try:
        with looking:
            figures = row.figures(planned)
    except VmtailorError as error:
        failure = BenchFailure(error.message, error.details[-2000:])
    except subprocess.TimeoutExpired as error:
        failure = BenchFailure(TIMED_OUT, str(error)[:2000])
    except OSError as error:
        failure = BenchFailure(f"the host refused: {error}")
    took = at_once.seconds(planned) if test.variant == VIRTUAL else time.monotonic() - began
    noise = ProcessorTimes.now().noise_since(before, run.cgroups.cpu_s() - own)
    return BenchTrial(
        suite=test.suite,
        test=test.test,
        runtime=planned.runtime,
        count=test.count,
        variant=test.variant,
        block=planned.block,
        started_unix_s=at,
        seconds=took,
        figures=figures,
        failure=failure,
        noise=clocks.told(noise),
        command=shlex.join(again(run.job, planned)),
        notes=tuple(run.notes),
        witnesses=tuple(run.witnesses),
    )


def again(job: BenchJob, planned: PlannedTrial) -> list[str]:
    """Return the command that measures a cell again, into a file of its own: a run into the existing results would
    continue them, and they have this cell."""
    test = planned.test
    options = {
        **_named(job, planned.runtime),
        "--only": test.test,
        "--n": str(test.count),
        "--variant": test.variant,
        "--repeat": str(job.repeat),
        "--seed": str(job.seed),
    }
    others = {
        "--unixbench-source": job.unixbench_source,
        "--iozone-source": job.iozone_source,
        "--netperf-source": job.netperf_source,
        "--image": job.reference if job.reference != BENCH_IMAGE else "",
        "--host-name": job.host_name,
        "-o": AGAIN,
    }
    return ["vmtailor", "bench", test.suite, *_words(options), *(["--quick"] if job.quick else []), *_words(others)]


def _words(options: Mapping[str, str]) -> list[str]:
    return [word for name, value in options.items() if value for word in (name, value)]


def _named(job: BenchJob, runtime: str) -> dict[str, str]:
    """Return the options that name a row."""
    for inside in job.insides:
        if not runtime.startswith(within := f"{inside.machine.name}/"):
            continue
        name, there = runtime.removeprefix(within), {"--inside": f"{VM}{inside.disk}"}
        monitor = next((one for one in inside.monitors if one.name == name), None)
        if monitor is not None:
            return {"--on": monitor.asked, **there}
        engine = next(one for one in job.inside_runtimes if description.load(one).name == name)
        return {"--on": engine, **there}
    machine = next((one for one in job.machines if one.name == runtime), None)
    if machine is not None:
        return {"--on": f"{VM}{machine.folder}" if machine.folder else machine.name}
    described = next(name for name in job.runtimes if description.load(name).name == runtime)
    return {"--on": NATIVE if runtime == NATIVE else f"{NATIVE},{described}"}


def main(words: list[str]) -> int:
    """Do the job in a file. Returns the exit code of the error, or 0."""
    try:
        measure(records.load(BenchJob, Path(words[0])))
    except (VmtailorError, OSError) as error:
        hint = "check that the disk has space and that the results' folder exists"
        shown = error if isinstance(error, VmtailorError) else HostError(f"the host refused: {error}", hint=hint)
        terminal.show_error(shown)
        return int(shown.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
