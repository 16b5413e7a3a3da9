# SPDX-License-Identifier: Apache-2.0
"""The run within the scope: runtimes made ready and asked who they are, then every trial in its turn. Each one is on
disk before the next begins (trials of milliseconds a few at once), so that an interrupted run goes on where it
stopped.

    python3 -m vmtailor.bench.run.harness JOB.json    (started in the scope by bench/run/launch.py)
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmtailor.base import notation, output, terminal
from vmtailor.base.cache.store import digest
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.files import records
from vmtailor.base.natives import locate
from vmtailor.base.process import spawn
from vmtailor.base.progress import step
from vmtailor.bench.analysis import instance_report
from vmtailor.bench.analysis.bench_clock import CLOCK, VIRTUAL, is_counted
from vmtailor.bench.analysis.instance_limits import with_limits
from vmtailor.bench.analysis.schedule import Schedule
from vmtailor.bench.analysis.trial_cost import lasting, plan_lines
from vmtailor.bench.analysis.trial_plan import BenchTest, PlannedTrial, is_way, plan
from vmtailor.bench.model.bench_machine import VM
from vmtailor.bench.model.instance import BENCH
from vmtailor.bench.model.job import BENCH_IMAGE, BenchJob
from vmtailor.bench.model.results import BenchFailure, BenchFigure, BenchTrial, HostRun, RuntimeIdentity, SuiteName
from vmtailor.bench.run import results_file, rounds_boot
from vmtailor.bench.run.guest_engine import Inside
from vmtailor.bench.run.image_machine import Booted
from vmtailor.bench.run.machine_counts import (
    REPEAT,
    cannot_tell,
    inside_trial,
    machine_tests,
    machine_timed,
    machine_trial,
    timed_too,
)
from vmtailor.bench.runtimes import description, networks
from vmtailor.bench.runtimes.host_runtime import DescribedRuntime, missing
from vmtailor.bench.runtimes.host_state import Clocks, ProcessorTimes, seen_here, this_host
from vmtailor.bench.runtimes.instance_cgroups import Cgroups
from vmtailor.bench.runtimes.runtime import BenchImage, Runtime
from vmtailor.bench.runtimes.stopwatch import timed
from vmtailor.bench.suites.bench_run import ASKED, TAG, TIMED_OUT, BenchRun, TrialFailed, succeeded
from vmtailor.bench.suites.registry import SUITES
from vmtailor.drivers.rootfs import unpack

#: Where a cell that is measured again goes.
AGAIN = "again.json"
#: Suites during whose trials the processors' clocks are looked at.
CLOCKED = (SuiteName.EFFICIENCY, SuiteName.UNIXBENCH)
_UNPACK_S, _REPORT_S = 600.0, 120.0


def measure(job: BenchJob) -> HostRun:
    """Do the job; returns what is known then. Raises HostError when nothing at all can be run."""
    cgroups = Cgroups()
    cgroups.enter_harness()
    networks.loopback_up()
    folder = Path(job.folder)
    tree = folder / "tree"
    _unpack(Path(job.archive), tree)
    here = seen_here(instance_report.NAMESPACES)
    with contextlib.ExitStack() as held:
        found, runtimes = [], {}
        for name in job.runtimes:
            one = description.load(name)
            driver = DescribedRuntime(one, folder / one.name, locate().folder / "enter", cgroups, folder / ".instances")
            with step(f"make {one.title} ready"):
                identity = _ready(held, driver, BenchImage(tree, Path(job.image_archive), TAG))
            if identity is None:
                runtimes[one.name] = driver
                identity = _identity(job, folder, cgroups, driver, here)
            found.append(identity)
            if identity.missing or identity.problem:
                output.note(f"! {one.name}: {identity.missing or identity.problem}")
                runtimes.pop(one.name, None)
        booted: dict[str, Booted | Inside] = {one.name: Booted(one, folder / "machines") for one in job.machines}
        booted |= {one.name: one for one in _inside(job, folder)}
        for name, machine in list(booted.items()):
            with step(f"boot {name}"):
                if isinstance(machine, Inside):
                    identity = machine.identity(job.program_sha256)
                else:
                    identity = _machine_identity(job, machine, here)
            found.append(identity)
            if identity.problem:
                output.note(f"! {name}: {identity.problem}")
                del booted[name]
        run = BenchRun(job, folder, cgroups, runtimes, here, {one.runtime: one for one in found})
        return _trials(job, run, tuple(found), booted)


def _inside(job: BenchJob, folder: Path) -> list[Inside]:
    """The engines that run within a machine."""
    if job.inside is None:
        return []
    return [Inside(job.inside, description.load(name), folder / "machines") for name in job.inside_runtimes]


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


def _ready(held: contextlib.ExitStack, driver: DescribedRuntime, image: BenchImage) -> RuntimeIdentity | None:
    """Prepare a runtime; what is wrong with it, as a record, or None."""
    if lacking := missing(driver.description):
        return RuntimeIdentity(driver.name, missing=lacking)
    try:
        held.enter_context(driver).prepare(image)
    except VmtailorError as error:
        return RuntimeIdentity(driver.name, driver.version(), problem=f"{error.message}: {error.details[-500:]}")
    return None


def _identity(job: BenchJob, folder: Path, cgroups: Cgroups, driver: Runtime, here: dict[str, Any]) -> RuntimeIdentity:
    """What an instance says of itself, under limits."""
    run = BenchRun(job, folder, cgroups, {driver.name: driver})
    version = driver.version()
    above: dict[str, str] = {}
    try:
        with run.placed(driver.name, run.spec([BENCH, "report"], driver.able(ASKED))) as spec:
            above = cgroups.limits(spec.name)
            said = succeeded(timed(driver.run_words(spec), deadline_s=_REPORT_S, **driver.surroundings()))
    except VmtailorError as error:
        return RuntimeIdentity(driver.name, version, problem=f"{error.message}: {error.details[-500:]}")
    seen = instance_report.parse(said.stdout)
    if seen is None:
        return RuntimeIdentity(driver.name, version, problem="it did not report what it is")
    one = driver.description
    found = instance_report.identity(
        driver.name, version, seen, here, job.program_sha256, own_kernel=one.own_kernel, chroot=one.chroot
    )
    return with_limits(found, seen, above)


def _machine_identity(job: BenchJob, machine: Booted, here: dict[str, Any]) -> RuntimeIdentity:
    """What an instance says of itself that is a machine."""
    kernel, memory = machine.known.kernel, notation.mebibytes(machine.known.machine.memory_bytes)
    how = "counted under emulation, timed with KVM" if job.kvm else "emulated"
    which = f", {machine.known.digest}" if machine.known.digest else ""
    version = f"Linux {kernel}, {machine.known.machine.board}, {memory}, {how}{which}"
    try:
        said = machine.run([BENCH, "report"]).container
        seen = instance_report.parse(said.stdout.encode()) if said is not None else None
    except VmtailorError as error:
        return RuntimeIdentity(machine.name, version, problem=f"{error.message}: {error.details[-500:]}")
    if seen is None:
        return RuntimeIdentity(machine.name, version, problem="it did not report what it is")
    return instance_report.identity(
        machine.name, version, seen, here, job.program_sha256, own_kernel=True, chroot=False
    )


def _facts(job: BenchJob, run: BenchRun, name: SuiteName) -> tuple[Sequence[tuple[str, str]], list[str]]:
    """What a suite says of its programs, and why where it cannot. It asks the image's programs on this host; an image
    of a machine in which all is run may be for another processor, and is asked there."""
    if not (job.runtimes or job.machines):
        return (), []
    try:
        return SUITES[name].facts(run), []
    except VmtailorError as error:
        output.note(f"! {name}: {error.message}")
        return (), [f"{name}: {error.message}"]


def _descriptions(job: BenchJob) -> list[tuple[str, str]]:
    """Which files describe runtimes of the user's own, as they are now."""
    files = [name for name in (*job.runtimes, *job.inside_runtimes) if name not in description.known()]
    return [(f"description of {description.load(name).name}", digest(Path(name))[:12]) for name in files]


def _trials(
    job: BenchJob, run: BenchRun, identities: tuple[RuntimeIdentity, ...], booted: dict[str, Booted | Inside]
) -> HostRun:
    out = Path(job.out)
    host = this_host(run.cgroups.version, kvm=job.kvm, name=job.host_name)
    before = results_file.earlier(out, job, host.id)
    left_out = [f"{one.runtime}: {one.missing or one.problem}" for one in identities if _unusable(one)]
    facts = [(results_file.REPEAT, str(job.repeat)), *_descriptions(job)]
    left_out += cannot_tell(job)
    for name in job.suites:
        left_out += SUITES[name].left_out(job) if job.runtimes else ()
        about, missing = _facts(job, run, name)
        facts += about
        left_out += missing
    facts += dict.fromkeys(fact for one in booted.values() if isinstance(one, Inside) for fact in one.facts.items())
    known = HostRun(host, job.image_digest, job.quick, job.seed, tuple(facts), identities, (), tuple(left_out))
    known = results_file.going_on(before, known)
    planned = _planned(job, run, booted)
    schedule = Schedule(planned, known.trials, job.within_s, job.until_s)
    shortened = schedule.fit(cells=False)
    kept = [*(one for one in planned if one.key in schedule.done), *schedule.left]
    for line in (*plan_lines(kept, len(schedule.done), schedule.seconds), *(f"! {row}" for row in shortened)):
        output.note(line)
    return _each(run, schedule, booted, known)


def _each(run: BenchRun, schedule: Schedule, booted: dict[str, Booted | Inside], known: HostRun) -> HostRun:
    """Every trial in its turn, each of them kept."""
    keeping = results_file.Keeping(Path(run.job.out))
    keeping.keep(_without(known, schedule))
    together = rounds_boot.AtOnce(run.job, lambda: schedule.left)
    schedule.is_there = together.has
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
                tried = _tried(run, one, booted, together)
                schedule.expected.done(tried)
                known = replace(known, trials=(*known.trials, tried))
                keeping.keep(_without(known, schedule))
    finally:
        known = _without(known, schedule)
        keeping.keep(known, last=True)
    return known


def _without(known: HostRun, schedule: Schedule) -> HostRun:
    """The same, with what is left out for the sake of time, as things stand."""
    return replace(known, left_out=tuple(dict.fromkeys((*known.left_out, *schedule.left_out()))))


def _planned(job: BenchJob, run: BenchRun, booted: dict[str, Booted | Inside]) -> list[PlannedTrial]:
    timed = [name for name, one in booted.items() if job.kvm and isinstance(one, Booted)]
    return planned_trials(job, list(run.runtimes), list(booted), timed)


def planned_trials(
    job: BenchJob, runtimes: Sequence[str], counted: Sequence[str] = (), timed: Sequence[str] = ()
) -> list[PlannedTrial]:
    """All trials of a job in their order. `runtimes`: those that can be measured; `counted`: machines and what runs in
    one; `timed`: those of them that are timed, too."""
    tests = [test for name in job.suites for test in SUITES[name].tests(job) if _wanted(test, job)]
    planned = [
        trial
        for test in tests
        for trial in plan([test], [*runtimes, *(timed if timed_too(test) else ())], job.repeat, job.seed)
    ]
    tests = [test for test in machine_tests(job) if _wanted(test, job)]
    planned += plan(tests, list(counted), REPEAT, job.seed)
    if job.at_once:
        engines = [name for name in counted if _is_within(name, job)]
        planned += [one for one in rounds_boot.planned(job, engines) if _wanted(one.test, job)]
    return planned


def _is_within(runtime: str, job: BenchJob) -> bool:
    """Whether a row is that of an engine within the machine."""
    return job.inside is not None and runtime.startswith(f"{job.inside.machine.name}/")


def _wanted(test: BenchTest, job: BenchJob) -> bool:
    return (not job.only or test.test in job.only) and is_way(test.variant, job.variant)


def _unusable(one: RuntimeIdentity) -> bool:
    return bool(one.missing or one.problem)


def _tried(
    run: BenchRun, planned: PlannedTrial, booted: dict[str, Booted | Inside], together: rounds_boot.AtOnce
) -> BenchTrial:
    test = planned.test
    at, before, own = time.time(), ProcessorTimes.now(), run.cgroups.cpu_s()
    began = time.monotonic()
    run.notes.clear()
    run.witnesses.clear()
    figures: tuple[BenchFigure, ...] = ()
    failure = None
    clocks = Clocks()
    # Looking costs a little: it is done where processors are measured, and where it says something.
    looking = clocks if test.suite in CLOCKED and not is_counted(test.variant) else contextlib.nullcontext()
    try:
        with looking:
            figures = _figures(run, planned, booted, together)
    except TrialFailed as error:
        failure = error.record
    except VmtailorError as error:
        failure = BenchFailure(error.message, error.details[-2000:])
    except subprocess.TimeoutExpired as error:
        failure = BenchFailure(TIMED_OUT, str(error)[:2000])
    except OSError as error:
        failure = BenchFailure(f"the host refused: {error}")
    took = together.seconds(planned) if test.variant == VIRTUAL else time.monotonic() - began
    noise = ProcessorTimes.now().noise_since(before, run.cgroups.cpu_s() - own)
    noise = clocks.told(noise)
    return BenchTrial(
        test.suite, test.test, planned.runtime, test.count, test.variant, planned.block, at,
        took, figures, failure, noise, again(run.job, planned), tuple(run.notes),
        tuple(run.witnesses),
    )  # fmt: skip


def _figures(
    run: BenchRun, planned: PlannedTrial, booted: dict[str, Booted | Inside], together: rounds_boot.AtOnce
) -> tuple[BenchFigure, ...]:
    """What a trial gives. Raises as suites do."""
    test, machine = planned.test, booted.get(planned.runtime)
    if isinstance(machine, Inside) and test.variant == VIRTUAL:
        return together.figures(planned, machine)
    if isinstance(machine, Inside):
        return inside_trial(test, machine)
    if machine is not None:
        return machine_timed(run, test, machine) if test.variant != CLOCK else machine_trial(test, machine)
    return SUITES[test.suite].trial(run, test, planned.runtime)


def again(job: BenchJob, planned: PlannedTrial) -> str:
    """The command that measures this cell again, into a file of its own: what is there goes on, and would have it."""
    machine = next((one for one in job.machines if one.name == planned.runtime), None)
    within = ""
    if job.inside is not None and _is_within(planned.runtime, job):
        name = planned.runtime.removeprefix(f"{job.inside.machine.name}/")
        runtimes = next(one for one in job.inside_runtimes if description.load(one).name == name)
        within = f" --inside {shlex.quote(f'{VM}{job.inside.disk}')}"
    elif machine is not None:
        runtimes = f"{VM}{machine.folder}" if machine.folder else machine.name
    else:
        described = next(name for name in job.runtimes if description.load(name).name == planned.runtime)
        runtimes = "native" if planned.runtime == "native" else f"native,{described}"
    way = f" --variant {shlex.quote(planned.test.variant)}" if planned.test.variant else ""
    quick = " --quick" if job.quick else ""
    trees = (("unixbench", job.unixbench_source), ("iozone", job.iozone_source), ("netperf", job.netperf_source))
    published = "".join(f" --{name}-source {shlex.quote(tree)}" for name, tree in trees if tree)
    image = f" --image {shlex.quote(job.reference)}" if job.reference not in ("", BENCH_IMAGE) else ""
    host = f" --host-name {shlex.quote(job.host_name)}" if job.host_name else ""
    ways = f"{way} --repeat {job.repeat} --seed {job.seed}{quick}"
    return (
        f"vmtailor bench {planned.test.suite} --on {shlex.quote(runtimes)}{within} --only {planned.test.test} "
        f"--n {planned.test.count}{ways}{published}{image}{host} -o {AGAIN}"
    )


def main(words: list[str]) -> int:
    """Do the job in a file. The exit code is that of the error."""
    try:
        measure(records.load(BenchJob, Path(words[0])))
    except VmtailorError as error:
        terminal.show_error(error)
        return int(error.exit_code)
    except OSError as error:
        refused = HostError(f"the host refused: {error}", hint="is the disk full, or the results' folder gone?")
        terminal.show_error(refused)
        return int(refused.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
