# SPDX-License-Identifier: Apache-2.0
"""A benchmark from outside: everything is fetched and made ready, the scope is made, and the run goes on within it."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import ExitCode, HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.process import CommandFailed, require_tool, run, spawn
from vmtailor.base.progress import step
from vmtailor.base.text import plain
from vmtailor.bench.analysis.schedule import is_way
from vmtailor.bench.model.instance import BENCH
from vmtailor.bench.model.job import VM, BenchJob
from vmtailor.bench.model.results import BenchResults
from vmtailor.bench.run import image_machine, machine_around, machine_monitors, rounds_boot
from vmtailor.bench.run.machine_counts import machine_tests
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes.guest_runtime import ARCHIVE
from vmtailor.bench.runtimes.host_state import stable_name
from vmtailor.bench.runtimes.scope import held, require_root
from vmtailor.bench.suites.bench_run import TAG
from vmtailor.bench.suites.published_sets import IOZONE, NETPERF, UNIXBENCH, Published, check
from vmtailor.bench.suites.registry import SUITES
from vmtailor.drivers.image import flat_archive
from vmtailor.drivers.monitors import monitors
from vmtailor.model.image import Image
from vmtailor.stages.image_fetch import fetch

#: No program in place of a monitor's own.
NO_PROGRAMS: Mapping[str, Path] = {}
_COPY_S = 1800.0
#: A week, in seconds: a run ends by itself long before.
_LONGEST_S = 7 * 86400.0


def bench(
    asked: BenchJob,
    store: Store,
    *,
    insides: Sequence[str] = (),
    require_kvm: bool = False,
    programs: Mapping[str, Path] = NO_PROGRAMS,
) -> BenchResults:
    """Measure, and return what the results' file then holds. `insides`: `vm:DISK` or `vm:BUNDLE`, the machines in
    which the job's engines run; none: this host. `require_kvm`: fail unless machines can be timed. `programs`: the
    user's own of monitors within such a machine, by the monitor's name. Raises UserInputError, HostError."""
    out = Path(asked.out)
    if out.is_dir():
        raise UserInputError(f"{out} is a folder: results are one file", hint="-o bench.json")
    named = asked.runtimes
    monitored = tuple(name for name in named if machine_monitors.is_monitor(name))
    described = tuple(name for name in named if not image_machine.is_machine(name) and name not in monitored)
    for name in described:
        description.load(name)
    image_machine.check(named)
    machine_monitors.check(monitored, programs, inside=bool(insides))
    rounds_boot.check(asked.counts, described, inside=bool(insides))
    if insides:
        machine_around.check(insides)
        if not (described or monitored):
            raise UserInputError("--inside needs an engine that runs in the machine", hint="--on native,podman,…")
    job = replace(
        asked,
        runtimes=() if insides else described,
        inside_runtimes=described if insides else (),
        out=str(out.absolute()),
        unixbench_source=_tree(UNIXBENCH, asked.unixbench_source),
        iozone_source=_tree(IOZONE, asked.iozone_source),
        netperf_source=_tree(NETPERF, asked.netperf_source),
        until_s=None if asked.within_s is None else time.monotonic() + asked.within_s,
        at_once=bool(insides) and asked.at_once,
        host_name=asked.host_name or stable_name(),
    )
    _check_tests(job, with_machines=bool(insides) or len(described) < len(named), inside=bool(insides))
    kvm_works = _kvm(required=require_kvm)
    require_root()
    _require_seen(asked, store, insides)
    image = _image(job.reference, store)
    job = replace(
        job,
        machines=image_machine.ready(named, job.reference, store),
        kvm=kvm_works,
        image_digest=image.digest,
        archive=image.archive,
        program_sha256=_program(image),
        image_archive=packed(described, job.reference, image, store),
    )
    if insides:
        monitors_ = machine_monitors.ready(monitored, programs, image, job.reference, store)
        counted = bool(machine_tests(job, inside=True))
        board = machine_around.board_of(insides, store)
        known = (
            machine_around.ready(
                one, image, job.image_archive, store, by_subsystem=counted, monitored=monitors_, board=board
            )
            for one in insides
        )
        job = replace(job, insides=tuple(known))
    # Of two runs into one file, each would drop what the other one adds.
    lock = store.folder("bench-locks") / digest(str(Path(job.out).resolve()))[:16]
    with locked(lock, f"a benchmark into {out.name}"), held() as scope:
        job = replace(job, folder=str(scope.folder))
        file = scope.folder / "job.json"
        records.save(job, file)
        words = [*scope.words(), sys.executable, "-m", "vmtailor.bench.run.harness", str(file)]
        with spawn(words, stdout=None, stderr=None) as process:
            try:
                status = process.wait(_LONGEST_S)
            except subprocess.TimeoutExpired:
                raise HostError("the benchmark did not end within a week") from None
    if status == ExitCode.USER_INPUT:
        raise UserInputError("nothing was measured", hint="as said above")
    if status != 0:
        raise HostError(f"the run ended with {status}", hint="the results so far are kept; run it again")
    return records.load(BenchResults, out)


#: Folders of which a run has its own, with nothing of the host's.
_REPLACED = ("/run", "/dev/shm", "/proc", "/sys")


def _require_seen(job: BenchJob, store: Store, insides: Sequence[str]) -> None:
    """Raise UserInputError for a file in a folder that the run replaces by its own."""
    named = [("the results", Path(job.out)), ("the cache", store.root)]
    named += [(name, Path(name.removeprefix(VM))) for name in (*job.runtimes, *insides) if name.startswith(VM)]
    sources = (job.unixbench_source, job.iozone_source, job.netperf_source)
    named += [(source, Path(source)) for source in sources if source]
    for what, path in named:
        for place in _REPLACED:
            if path.absolute().resolve().is_relative_to(place):
                raise UserInputError(
                    f"{plain(what)[:100]} would lie below {place}, of which a run of engines has its own",
                    hint="another folder: what is written there would be gone with the run",
                )


def _kvm(*, required: bool) -> bool:
    """Return whether KVM works, so that machines can be timed. Raises HostError where that is required and it does
    not."""
    verdict = monitors.usual().kvm()
    if required and not verdict.works:
        raise HostError(f"KVM does not work here: {verdict.reason}", hint="vmtailor doctor says more")
    return verdict.works


def _tree(published: Published, source: str) -> str:
    return str(check(published, Path(source).absolute())) if source else ""


def _image(reference: str, store: Store) -> Image:
    try:
        return fetch(reference, store)
    except UserInputError as error:
        error.hint = f"{error.hint}; the image of the benchmarks: make bench-image".lstrip("; ")
        raise


def seed_of(asked: int | None, out: Path) -> int:
    """Return the seed asked for; otherwise that of the results in the file, so that they go on; otherwise a new one.
    Raises UserInputError for a file that holds no results."""
    if asked is not None:
        return asked
    runs = records.load(BenchResults, out).runs if out.is_file() else ()
    return runs[-1].seed if runs else random.SystemRandom().randrange(1 << 31)


def _program(image: Image) -> str:
    content = flat_archive.read(Path(image.archive)).content(BENCH)
    if not content:
        raise UserInputError(f"{image.reference} has no {BENCH}", hint="the image of the benchmarks: make bench-image")
    return hashlib.sha256(content).hexdigest()


def _check_tests(job: BenchJob, *, with_machines: bool, inside: bool) -> None:
    every = replace(job, only=())
    tests = [test for suite in job.suites for test in SUITES[suite].tests(job)]
    tests += machine_tests(every, inside=inside) if with_machines else []
    tests += rounds_boot.tests(every) if job.at_once else []
    known, ways = {test.test for test in tests}, {test.variant for test in tests}
    for name in job.only:
        if name not in known:
            raise UserInputError(
                f"no test {plain(name)[:64]!r} is in {', '.join(job.suites)} with these instances",
                hint=f"known: {', '.join(sorted(known))}",
            )
    if job.variant and not any(is_way(way, job.variant) for way in ways):
        raise UserInputError(
            f"no test of {', '.join(job.suites)} is run in the way {plain(job.variant)[:64]!r}",
            hint=f"known: {'; '.join(sorted(way for way in ways if way)) or 'none'}",
        )


def packed(described: Sequence[str], reference: str, image: Image, store: Store) -> str:
    """Return the image as engines load it; found again by its digest. Empty where none of the runtimes loads it."""
    if not any(description.load(name).root is description.RootForm.IMAGE for name in described):
        return ""
    source = reference if ":" in reference.split("/", maxsplit=1)[0] else f"oci:{reference}"

    def fill(folder: Path) -> None:
        words = ["copy", "--quiet", source, f"docker-archive:{folder / ARCHIVE}:{TAG}"]
        with step("pack the image for the engines"):
            try:
                run([require_tool("skopeo"), *words], timeout_s=_COPY_S)
            except CommandFailed as error:
                raise UserInputError(f"{reference} cannot be packed for engines", details=error.details) from error

    return str(store.get("bench-archive", digest("bench-archive", image.digest, TAG), fill) / ARCHIVE)
