# SPDX-License-Identifier: Apache-2.0
"""A benchmark from outside: everything is fetched and made ready, the scope is made, the run goes on within it."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from dataclasses import dataclass, replace
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
from vmtailor.bench.model.results import BenchResults, SuiteName
from vmtailor.bench.run import guest_engine, image_machine, rounds_boot
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

_COPY_S = 1800.0
#: A run ends by itself long before this; a week.
_LONGEST_S = 7 * 86400.0


@dataclass(frozen=True)
class BenchOptions:
    """The request of a user. `image`: a reference; `counts`: instances at once; `only`: tests.
    `unixbench_source`, `iozone_source`, `netperf_source`: trees of published programs.
    `require_kvm`: machines have to be timed. `within_s`: how long it may take from now on; tests are left out for it.
    `inside`: `vm:DISK`, the machine in which `runtimes` that are none themselves run; empty: on this host; `at_once`:
    `counts` of them at once, which was asked for there, and `repeat` may be 1: nothing but the work varies.
    `variant`: of the tests, those that are run in this way; `seed`: of the order; None: that of the results that are
    there, or a new one; `host_name`: what results call this host; empty: a name of ours that stays."""

    suites: tuple[SuiteName, ...]
    runtimes: tuple[str, ...]
    image: str
    out: Path
    store: Store
    counts: tuple[int, ...] = (1,)
    repeat: int = 10
    quick: bool = False
    only: tuple[str, ...] = ()
    unixbench_source: Path | None = None
    iozone_source: Path | None = None
    netperf_source: Path | None = None
    require_kvm: bool = False
    within_s: float | None = None
    inside: str = ""
    variant: str = ""
    seed: int | None = None
    host_name: str = ""
    at_once: bool = False


def bench(options: BenchOptions) -> BenchResults:
    """Measure, and return what the file then holds. Raises UserInputError, HostError."""
    if options.out.is_dir():
        raise UserInputError(f"{options.out} is a folder: results are one file", hint="-o bench.json")
    described = tuple(name for name in options.runtimes if not image_machine.is_machine(name))
    for name in described:
        description.load(name)
    image_machine.check(options.runtimes)
    rounds_boot.check(options.counts, described, inside=bool(options.inside))
    if options.inside:
        guest_engine.check(options.inside)
        if not described:
            raise UserInputError("--inside needs an engine that runs in the machine", hint="--on native,podman,…")
    here = () if options.inside else described
    job = BenchJob(
        suites=options.suites,
        runtimes=here,
        counts=options.counts,
        repeat=options.repeat,
        quick=options.quick,
        seed=_seed(options),
        image_digest="",
        archive="",
        image_archive="",
        program_sha256="",
        folder="",
        out=str(options.out.absolute()),
        only=options.only,
        unixbench_source=_tree(UNIXBENCH, options.unixbench_source),
        iozone_source=_tree(IOZONE, options.iozone_source),
        netperf_source=_tree(NETPERF, options.netperf_source),
        within_s=options.within_s,
        until_s=None if options.within_s is None else time.monotonic() + options.within_s,
        inside_runtimes=described if options.inside else (),
        variant=options.variant,
        at_once=bool(options.inside) and options.at_once,
        host_name=options.host_name or stable_name(),
    )
    _check_tests(job, bool(options.inside) or any(image_machine.is_machine(name) for name in options.runtimes))
    kvm_works = _kvm(options)
    require_root()
    _require_seen(options)
    image = _image(options)
    job = replace(
        job,
        machines=image_machine.ready(options.runtimes, options.image, options.store),
        kvm=kvm_works,
        reference=options.image,
    )
    job = replace(
        job, image_digest=image.digest, archive=image.archive, program_sha256=_program(image),
        image_archive=_packed(options, image),
    )  # fmt: skip
    if options.inside:
        counted = bool(machine_tests(job))
        known = guest_engine.ready(options.inside, image, job.image_archive, options.store, by_subsystem=counted)
        job = replace(job, inside=known)
    with locked(_lock_of(options), f"a benchmark into {options.out.name}"), held() as scope:
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
    return records.load(BenchResults, options.out)


#: Of these a run has its own, in which nothing of the host's is.
_REPLACED = ("/run", "/dev/shm", "/proc", "/sys")


def _require_seen(options: BenchOptions) -> None:
    """Raise UserInputError where a file lies where the run, which has its own folders there, would not see it."""
    named = [("the results", options.out), ("the cache", options.store.root)]
    named += [
        (name, Path(name.removeprefix(VM))) for name in (*options.runtimes, options.inside) if name.startswith(VM)
    ]
    sources = (options.unixbench_source, options.iozone_source, options.netperf_source)
    named += [(str(source), source) for source in sources if source is not None]
    for what, path in named:
        for place in _REPLACED:
            if path.absolute().resolve().is_relative_to(place):
                raise UserInputError(
                    f"{plain(what)[:100]} would lie below {place}, of which a run of engines has its own",
                    hint="another folder: what is written there would be gone with the run",
                )


def _kvm(options: BenchOptions) -> bool:
    """Return whether KVM works, so that machines can be timed. Raises HostError where they have to be, and cannot."""
    verdict = monitors.usual().kvm()
    if options.require_kvm and not verdict.works:
        raise HostError(f"KVM does not work here: {verdict.reason}", hint="vmtailor doctor says more")
    return verdict.works


def _lock_of(options: BenchOptions) -> Path:
    """Return the lock of who writes these results: two at once would each take what the other one adds for gone."""
    return options.store.folder("bench-locks") / digest(str(options.out.absolute().resolve()))[:16]


def _tree(published: Published, source: Path | None) -> str:
    return str(check(published, source.absolute())) if source else ""


def _image(options: BenchOptions) -> Image:
    try:
        return fetch(options.image, options.store)
    except UserInputError as error:
        error.hint = f"{error.hint}; the image of the benchmarks: make bench-image".lstrip("; ")
        raise


def _seed(options: BenchOptions) -> int:
    """Return the one that is asked for; that of the results which are there, so that they go on; otherwise a new
    one."""
    if options.seed is not None:
        return options.seed
    if options.out.is_file():
        runs = records.load(BenchResults, options.out).runs
        if runs:
            return runs[-1].seed
    return random.SystemRandom().randrange(1 << 31)


def _program(image: Image) -> str:
    content = flat_archive.read(Path(image.archive)).content(BENCH)
    if not content:
        raise UserInputError(f"{image.reference} has no {BENCH}", hint="the image of the benchmarks: make bench-image")
    return hashlib.sha256(content).hexdigest()


def _check_tests(job: BenchJob, with_machines: bool) -> None:
    known = {test.test for suite in job.suites for test in SUITES[suite].tests(job)}
    known |= {test.test for test in machine_tests(replace(job, only=()))} if with_machines else set()
    known |= {test.test for test in rounds_boot.tests(replace(job, only=()))} if job.at_once else set()
    for name in job.only:
        if name not in known:
            raise UserInputError(
                f"no test {plain(name)[:64]!r} is in {', '.join(job.suites)} with these instances",
                hint=f"known: {', '.join(sorted(known))}",
            )
    ways = {test.variant for suite in job.suites for test in SUITES[suite].tests(job)}
    ways |= {test.variant for test in machine_tests(replace(job, only=()))} if with_machines else set()
    ways |= {test.variant for test in rounds_boot.tests(replace(job, only=()))} if job.at_once else set()
    if job.variant and not any(is_way(way, job.variant) for way in ways):
        raise UserInputError(
            f"no test of {', '.join(job.suites)} is run in the way {plain(job.variant)[:64]!r}",
            hint=f"known: {'; '.join(sorted(way for way in ways if way)) or 'none'}",
        )


def _packed(options: BenchOptions, image: Image) -> str:
    """Return the image as engines load it; found again by its digest. Empty where no runtime loads it."""
    named = [name for name in options.runtimes if not image_machine.is_machine(name)]
    if not any(description.load(name).root is description.RootForm.IMAGE for name in named):
        return ""
    reference = options.image
    source = reference if ":" in reference.split("/")[0] else f"oci:{reference}"

    def fill(folder: Path) -> None:
        words = ["copy", "--quiet", source, f"docker-archive:{folder / ARCHIVE}:{TAG}"]
        with step("pack the image for the engines"):
            try:
                run([require_tool("skopeo"), *words], timeout_s=_COPY_S)
            except CommandFailed as error:
                raise UserInputError(f"{reference} cannot be packed for engines", details=error.details) from error

    return str(options.store.get("bench-archive", digest("bench-archive", image.digest, TAG), fill) / ARCHIVE)
