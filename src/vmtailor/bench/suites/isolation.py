# SPDX-License-Identifier: Apache-2.0
"""The loss of well-behaved instances when one misbehaves. Of five instances, four serve HTTP to ApacheBench, first
while the fifth idles (t1), then while it misbehaves (t2). An instance that does not answer all requests in time did not
report, which is a result.

Caps on everything keep the host alive: limits of each stress and of the scope, a deadline in every stress, and a
watchdog of the host's memory and disk."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, ClassVar

from vmtailor.base import notation
from vmtailor.base.process import require_tool, spawn
from vmtailor.base.process import run as done
from vmtailor.bench.analysis.benchmarks import BENCHMARKS, RATIO, SILENT, T1, T2, BenchTest, Values, benchmark
from vmtailor.bench.analysis.instance_report import parted
from vmtailor.bench.model.instance import BENCH, CALL_BACK, InstanceSpec, Limits, Volume
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.runtimes.host_state import available_bytes
from vmtailor.bench.runtimes.instance_cgroups import write_limit
from vmtailor.bench.runtimes.networks import Link, await_listening
from vmtailor.bench.runtimes.stopwatch import said_until_now
from vmtailor.bench.suites.bench_run import NO_LIMITS, RUN_OVER, BenchRun, TrialFailed
from vmtailor.bench.suites.startup import answers
from vmtailor.bench.suites.suite import Suite

FULL_DISK = "full-disk"
STRESSES = tuple(name for suite, name in BENCHMARKS if suite == SuiteName.ISOLATION)
LIMITED, UNLIMITED = "with limits", "without limits"
INSTANCES = 5
#: Requests to each of the four, how many at once, and the seconds that a stress runs before they are sent again.
REQUESTS, QUICK_REQUESTS, AT_ONCE = 30_000, 3_000, 4
SETTLE_S, QUICK_SETTLE_S = 3.0, 0.5
START_S = 60.0
#: Requests a second that an undisturbed instance must answer at least; t1 may take accordingly long.
SLOWEST = 25.0
#: Limits of each instance, beside its share of the processors: memory, processes, bytes a second to disk.
MEMORY_BYTES, PIDS, WRITE_BYTES_S = 256 << 20, 256, 10 << 20
#: Caps of the stresses themselves, and the memory and disk that the watchdog leaves the host.
MEMORY_SHARE, DISK_BYTES, PROCESSES = 0.4, 1 << 30, 1000
LEAST_MEMORY, LEAST_DISK = 0.05, 2 << 30
#: The disk that is filled, never the host's: a small one of the instance's own, in memory. FILL fills it repeatedly.
FULL_BYTES, FULL_AT = 64 << 20, "/full"
FILL = f"while :; do cat /dev/zero >{FULL_AT}/file; done 2>/dev/null"
#: An instance did not report after this many times the undisturbed time, but at least these seconds, and at most a
#: second for this many requests.
PATIENCE, LEAST_PATIENCE_S, LEAST_RATE = 20.0, 10.0, 10.0
#: Steps of priority by which the harness is above the instances, so that a fork bomb cannot starve it.
ABOVE = 15
#: Exit statuses of an instance that caused no stress: success, or a shell's for a program that is not there.
NOT_RUN = (0, 126, 127)
_MOUNT_S = 20.0
#: The name by which the misbehaving instance calls back.
_THERE = "here"
_TOOK = re.compile(rb"^Time taken for tests:\s+([\d.]+) seconds", re.MULTILINE)
_COMPLETE = re.compile(rb"^Complete requests:\s+(\d+)", re.MULTILINE)
_WRONG = re.compile(rb"^(?:Failed requests|Non-2xx responses):\s+([1-9]\d*)", re.MULTILINE)


def losses(before: Sequence[float], after: Sequence[float | None], patience_s: float) -> Values:
    """Return the losses of the four: seconds before and under stress, None for one that did not report. Its ratio is a
    lower bound, as if it had answered when the wait ended; otherwise the worst would not count."""
    ratios = [(patience_s if t2 is None else t2) / t1 for t1, t2 in zip(before, after, strict=True)]
    return {SILENT: float(after.count(None)), T1: before, T2: after, RATIO: ratios}


def _lost(run: BenchRun, test: BenchTest, runtime: str) -> Values:
    limits = limits_of(run) if test.variant == LIMITED else NO_LIMITS
    requests = QUICK_REQUESTS if run.quick else REQUESTS
    with _five(run, runtime, test.test, limits) as five:
        first = _asked(five.addresses, requests, requests / SLOWEST, run)
        if None in first:
            raise TrialFailed("an instance did not answer undisturbed", five.said())
        before = [took for took in first if took is not None]
        patience_s = patience(max(before), requests)
        if patience_s < PATIENCE * max(before):
            run.notes.append(f"who took {patience_s / max(before):.1f} times as long as before did not report")
        with _stress_peer(test.test, five.misbehaving), _above() as above:
            five.go.touch()
            time.sleep(QUICK_SETTLE_S if run.quick else SETTLE_S)
            after = _asked(five.addresses, requests, patience_s, run, above)
            five.require_stressed()
            run.notes.insert(0, five.fate())
        for said in five.reports():
            run.witness(runtime, said, network=True)
    return losses(before, after, patience_s)


class Isolation(Suite):
    """The suite of well-behaved instances' losses."""

    name = SuiteName.ISOLATION
    trials: ClassVar = dict.fromkeys(STRESSES, _lost)

    def tests(self, job: BenchJob) -> list[BenchTest]:
        return [
            benchmark(self.name, stress).planned(variant=way, quick=job.quick, warm_up=False)
            for way in ((LIMITED,) if job.quick else (LIMITED, UNLIMITED))
            for stress in STRESSES
        ]

    def left_out(self, job: BenchJob) -> tuple[str, ...]:
        return (f"isolation: {UNLIMITED}: not in the quick form",) if job.quick else ()

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        if not run.runtimes:
            return ()
        limits = limits_of(run)
        disk = (
            "no limit to disk"
            if limits.write is None
            else f"{notation.mebibytes(WRITE_BYTES_S)}/s to {limits.write.path}"
        )
        words = f"{limits.cpus:g} CPUs, {notation.mebibytes(MEMORY_BYTES)}, {PIDS} processes, {disk}"
        return (("isolation limits", words),)


def patience(t1_s: float, requests: int) -> float:
    """Return the seconds that so many requests may take under stress where they took `t1_s` without."""
    return min(max(LEAST_PATIENCE_S, PATIENCE * t1_s), requests / LEAST_RATE)


def limits_of(run: BenchRun) -> Limits:
    """Return the limits of each of the five; together they have all processors."""
    cpus = round(len(os.sched_getaffinity(0)) / INSTANCES, 2)
    write = write_limit(run.folder, WRITE_BYTES_S)
    return Limits(memory_bytes=MEMORY_BYTES, cpus=cpus, pids=PIDS, write=write)


def stress_words(stress: str, seconds: float, link: Link, memory_bytes: int) -> list[str]:
    """Return the command of the misbehaving instance; it ends by itself after so many seconds."""
    whole = str(round(seconds))
    ng = ["stress-ng", "--quiet", "--timeout", f"{whole}s", "--temp-path", "/data"]
    iperf = ["iperf3", "--client", link.outside, "--udp", "--bitrate", "0", "--length", "8000", "--time", whole]
    return {
        "cpu": [*ng, "--cpu", str(4 * len(os.sched_getaffinity(0)))],
        "memory": [*ng, "--vm", "2", "--vm-bytes", str(memory_bytes), "--vm-keep"],
        "disk": [*ng, "--hdd", "2", "--hdd-bytes", str(DISK_BYTES)],
        FULL_DISK: ["timeout", whole, "sh", "-c", FILL],
        "net-send": [*iperf, "--parallel", "2"],
        "net-receive": [*iperf, "--parallel", "2", "--reverse"],
        "fork-bomb": [BENCH, "fork-bomb", str(PROCESSES), whole],
    }[stress]


@dataclass
class _Five:
    """The instances. `addresses`: of the four that serve; `misbehaving`: the network of the fifth; `outputs`: standard
    output and error of each, the fifth first; `go`: the file that starts the stress."""

    addresses: list[str]
    misbehaving: Link
    process: subprocess.Popen[bytes]
    outputs: list[tuple[IO[bytes], IO[bytes]]]
    go: Path

    def reports(self) -> list[bytes]:
        """Return each instance's report from inside, made before it became its program."""
        return [parted(said_until_now(out))[0] for out, _ in self.outputs]

    def said(self) -> str:
        """Return the end of the fifth's output."""
        out, errors = (said_until_now(file) for file in self.outputs[0])
        return (parted(out)[1] + errors)[-500:].decode("utf-8", "replace").strip()

    def require_stressed(self) -> None:
        """Raise TrialFailed where the stress did not run: every stress lasts until it is ended, so one that ended well,
        or was not found, did not."""
        if self.process.poll() in NOT_RUN:
            raise TrialFailed(f"the stress did not run: it ended with {self.process.returncode}", self.said())

    def fate(self) -> str:
        """Return the state of the misbehaving instance when the others were done."""
        status = self.process.poll()
        if status is None:
            return "the misbehaving one still ran"
        return f"the misbehaving one had ended with {status}" + (f": {self.said()[-200:]}" if self.said() else "")


@contextlib.contextmanager
def _five(run: BenchRun, runtime: str, stress: str, limits: Limits) -> Iterator[_Five]:
    driver = run.runtimes[runtime]
    with contextlib.ExitStack() as held:
        links = [held.enter_context(driver.network(number)) for number in range(INSTANCES)]
        outputs: list[tuple[IO[bytes], IO[bytes]]] = []

        def begun(spec: InstanceSpec) -> subprocess.Popen[bytes]:
            placed = held.enter_context(
                run.placed(runtime, replace(spec, command=run.witnessed(runtime, spec.command)))
            )
            words = driver.run_words(placed)
            out, errors = (held.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            outputs.append((out, errors))
            return held.enter_context(spawn(words, stdout=out, stderr=errors, **driver.surroundings()))

        wanted, callbacks = held.enter_context(run.calling_back(run.spec([BENCH], limits, links[0].path)))
        folder = run.callback_folder(wanted)
        # The stress ends by itself, but not before the wait for the others does.
        seconds = SETTLE_S + patience(math.inf, QUICK_REQUESTS if run.quick else REQUESTS)
        hog = int(available_bytes() * MEMORY_SHARE)
        words = [BENCH, "after", CALL_BACK, _THERE, *stress_words(stress, seconds, links[0], hog)]
        volumes = [Volume(str(folder), CALL_BACK)]
        if stress == FULL_DISK:
            volumes.append(Volume(str(held.enter_context(_small_disk(run.folder / FULL_DISK))), FULL_AT))
        process = begun(replace(wanted, command=tuple(words), volumes=tuple(volumes)))
        for link in links[1:]:
            begun(run.spec(["/usr/sbin/lighttpd", "-D", "-f", "/bench/lighttpd.conf"], limits, link.path))
        five = _Five(
            addresses=[link.inside for link in links[1:]],
            misbehaving=links[0],
            process=process,
            outputs=outputs,
            go=folder / "go",
        )
        deadline, there = time.monotonic() + START_S, False
        while not there or not all(answers(address) for address in five.addresses):
            there = there or _THERE in callbacks.take()
            if time.monotonic() > deadline or process.poll() is not None:
                raise TrialFailed("the five instances did not get ready", five.said())
            time.sleep(0.01)
        yield five


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """Hold a file system of FULL_BYTES, mounted only in the scope."""
    folder.mkdir(exist_ok=True)
    done(["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES},mode=1777", "tmpfs", str(folder)], timeout_s=_MOUNT_S)
    try:
        yield folder
    finally:
        done(["umount", "--lazy", str(folder)], timeout_s=_MOUNT_S, ok=range(256))


def _asked(
    addresses: Sequence[str], requests: int, patience_s: float, run: BenchRun, above: int = 0
) -> list[float | None]:
    """Send requests to all at once. Returns the seconds that each took for its requests; None for one that did not
    report."""
    # ApacheBench runs at the instances' priority, not at the harness's own.
    ab = ["nice", "-n", str(above), require_tool("ab", "apache2-utils")]
    with contextlib.ExitStack() as held:
        asking = []
        for address in addresses:
            said = held.enter_context(tempfile.TemporaryFile())
            words = [*ab, "-q", "-n", str(requests), "-c", str(AT_ONCE), "-s", "5", f"http://{address}/"]
            asking.append((held.enter_context(spawn(words, stdout=said, stderr=said)), said))
        began = time.monotonic()
        deadline, over = began + patience_s, began + run.left_s()
        while any(process.poll() is None for process, _ in asking) and time.monotonic() < deadline:
            _watch(run)
            if time.monotonic() > over:
                raise TrialFailed(RUN_OVER)
            time.sleep(0.02)
        return [took_s(said_until_now(said), requests) if process.poll() == 0 else None for process, said in asking]


def took_s(said: bytes, requests: int) -> float | None:
    """Return the seconds that ApacheBench took; None where not all requests got the right answer."""
    took, complete = _TOOK.search(said), _COMPLETE.search(said)
    if took is None or complete is None or int(complete[1]) != requests or _WRONG.search(said):
        return None
    return float(took[1]) or None


def _watch(run: BenchRun) -> None:
    """Check the host. Raises TrialFailed, which ends all instances, where it is in danger."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if available_bytes() < LEAST_MEMORY * total:
        raise TrialFailed("the watchdog ended it: the host's memory came to an end")
    if shutil.disk_usage(run.folder).free < LEAST_DISK:
        raise TrialFailed("the watchdog ended it: the host's disk came to an end")


@contextlib.contextmanager
def _stress_peer(stress: str, link: Link) -> Iterator[None]:
    """Hold the other end of a network stress."""
    if not stress.startswith("net-"):
        yield
        return
    words = [require_tool("iperf3"), "--server", "--one-off", "--bind", link.outside]
    with spawn(words) as server:
        await_listening(server.pid)
        yield


@contextlib.contextmanager
def _above() -> Iterator[int]:
    """Raise our priority above all instances, which were started before. Yields the number of steps."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, before - ABOVE)
    try:
        yield before - os.getpriority(os.PRIO_PROCESS, 0)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
