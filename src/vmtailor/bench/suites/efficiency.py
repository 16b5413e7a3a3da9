# SPDX-License-Identifier: Apache-2.0
"""What one instance gets of processor, memory, disk and network, by the tests and sizes that published tables use."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

from vmtailor.base.natives import locate
from vmtailor.base.process import require_tool, spawn
from vmtailor.bench.analysis.trial_plan import BenchTest
from vmtailor.bench.model.instance import BENCH, Volume
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.runtimes.host_state import available_bytes
from vmtailor.bench.runtimes.networks import Link
from vmtailor.bench.runtimes.stopwatch import Timed
from vmtailor.bench.suites.bench_run import BenchRun, TrialFailed, number, said_object
from vmtailor.bench.suites.peers import NETSERVER, PING, await_listening
from vmtailor.bench.suites.published_sets import IOZONE, NETPERF, built
from vmtailor.bench.suites.suite import Suite

DEADLINE_S = 1800.0
#: Equations, as published. 2/3 N³ operations: a tenth of them is 4642.
EQUATIONS, QUICK_EQUATIONS = 10_000, 4_642
#: Bytes of each of STREAM's arrays, which no cache holds, and repetitions within a trial.
ARRAY_BYTES, ROUNDS, QUICK_ROUNDS = 160 << 20, 20, 3
#: Bytes of the file on disk, and of a record, as published.
FILE_BYTES, QUICK_FILE_BYTES, RECORD_BYTES = 1 << 30, 100 << 20, 8 << 10
NETWORK_S, QUICK_NETWORK_S = 10, 1
#: Request and response, one byte each way: its test and its program in the image.
LATENCY, PING_PROGRAM = "tcp-latency", "/bench/ping"
#: Variants of tests that published programs run.
WITH_IOZONE, WITH_NETPERF = "IOzone", "netperf"
IOZONE_CACHE = (
    "write and rewrite have the flush to the disk in them (-e); nothing is forgotten in between, so read comes from "
    "the page cache as reread does, as far as that holds the file"
)
#: Seconds that a trial takes on a host with two processors, in full and in the quick form.
COSTS_S = {
    "linpack": (6.0, 1.0),
    "stream": (4.0, 1.0),
    "disk": (6.0, 2.0),
    "tcp-send": (11.0, 1.5),
    "tcp-receive": (11.0, 1.5),
    LATENCY: (11.0, 1.5),
}
DISK_JOBS = (
    ("write", ("--rw=write", "--end_fsync=1")),
    ("rewrite", ("--rw=write", "--end_fsync=1")),
    ("read", ("--rw=read", "--invalidate=1")),  # from the disk, as far as the instance can forget what it wrote
    ("reread", ("--rw=read", "--invalidate=0")),  # from the page cache
)


class Efficiency(Suite):
    """The suite."""

    name: SuiteName = SuiteName.EFFICIENCY

    def tests(self, job: BenchJob) -> list[BenchTest]:
        return [BenchTest(self.name, test, 1, _set(test, job), costs[job.quick]) for test, costs in COSTS_S.items()]

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        """Which published programs were built, and how."""
        found: list[tuple[str, str]] = []
        for one, source in ((IOZONE, run.job.iozone_source), (NETPERF, run.job.netperf_source)):
            if source:
                tree = built(one, source, run)
                found += [(f"{one.title} tree", tree.digest), (f"{one.title} compiler", tree.compiler)]
        if run.job.iozone_source:
            found.append(("IOzone and the page cache", IOZONE_CACHE))
        return tuple(found)

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        if test.test == "linpack":
            return _linpack(run, runtime)
        if test.test == "stream":
            return _stream(run, runtime)
        if test.test == "disk":
            return _iozone(run, runtime) if test.variant == WITH_IOZONE else _disk(run, runtime)
        if test.test == LATENCY:
            return _netperf_latency(run, runtime) if test.variant == WITH_NETPERF else _latency(run, runtime)
        if test.variant == WITH_NETPERF:
            return _netperf(run, runtime, receive=test.test == "tcp-receive")
        return _tcp(run, runtime, receive=test.test == "tcp-receive")


def _set(test: str, job: BenchJob) -> str:
    if test == "disk" and job.iozone_source:
        return WITH_IOZONE
    return WITH_NETPERF if test.startswith("tcp-") and job.netperf_source else ""


def rate(name: str, value: float, unit: str) -> BenchFigure:
    """A figure of which more is better."""
    return BenchFigure(name, value, unit, True)


def _linpack(run: BenchRun, runtime: str) -> tuple[BenchFigure, ...]:
    equations = QUICK_EQUATIONS if run.quick else EQUATIONS
    if 8 * equations**2 > available_bytes() // 2:
        raise TrialFailed(f"{equations} equations do not fit into half of the memory that is free")
    words = ["/bench/linpack", str(equations), str(len(os.sched_getaffinity(0)))]
    said = said_object(run.run(runtime, words, deadline_s=DEADLINE_S))
    return (rate("dgesv", number(said, "gflops"), "GFLOP/s"),)


def _stream(run: BenchRun, runtime: str) -> tuple[BenchFigure, ...]:
    words = [BENCH, "stream", str(ARRAY_BYTES), str(QUICK_ROUNDS if run.quick else ROUNDS)]
    said = said_object(run.run(runtime, words, deadline_s=DEADLINE_S))
    return tuple(rate(kernel, number(said, kernel), "MB/s") for kernel in ("copy", "scale", "add", "triad"))


def disk_words(size: int) -> list[str]:
    """fio's command: four passes over one file of the instance's own writable layer."""
    words = [
        "fio", "--output-format=json", "--filename=/data/file", f"--size={size}", f"--bs={RECORD_BYTES}",
        "--ioengine=psync", "--thread",
    ]  # fmt: skip
    for number_, (name, options) in enumerate(DISK_JOBS):
        words += [f"--name={name}", *(["--stonewall"] if number_ else []), *options]
    return words


def _disk(run: BenchRun, runtime: str) -> tuple[BenchFigure, ...]:
    words = disk_words(QUICK_FILE_BYTES if run.quick else FILE_BYTES)
    said = said_object(run.run(runtime, words, deadline_s=DEADLINE_S))
    return tuple(
        rate(name, number(said, "jobs", index, "write" if "write" in name else "read", "bw_bytes") / 1e6, "MB/s")
        for index, (name, _) in enumerate(DISK_JOBS)
    )


def _iozone(run: BenchRun, runtime: str) -> tuple[BenchFigure, ...]:
    """The same four passes by IOzone: its two first tests, with what is written flushed within the time."""
    tree = built(IOZONE, run.job.iozone_source, run)
    size, record = QUICK_FILE_BYTES if run.quick else FILE_BYTES, RECORD_BYTES
    words = [f"{IOZONE.at}/iozone", "-e", "-i", "0", "-i", "1", "-s", f"{size >> 10}k", "-r", f"{record >> 10}k"]
    found = run.run(
        runtime, [*words, "-f", "/data/file"], deadline_s=DEADLINE_S, volumes=(Volume(str(tree.folder), IOZONE.at),)
    )
    rates = iozone_rates(found.stdout.decode("utf-8", "replace"), size >> 10, record >> 10)
    if rates is None:
        raise TrialFailed("IOzone did not print its figures", found.said)
    return tuple(rate(name, value * 1024 / 1e6, "MB/s") for (name, _), value in zip(DISK_JOBS, rates, strict=True))


def iozone_rates(said: str, size_kib: int, record_kib: int) -> tuple[float, ...] | None:
    """KiB a second of write, rewrite, read, reread: the row that begins with the sizes of file and record."""
    for line in said.splitlines():
        words = line.split()
        if words[:2] == [str(size_kib), str(record_kib)] and len(words) >= 6:
            with contextlib.suppress(ValueError):
                return tuple(float(word) for word in words[2:6])
    return None


def _netperf(run: BenchRun, runtime: str, *, receive: bool) -> tuple[BenchFigure, ...]:
    """netperf's stream to, or from, its server in the peer's namespace."""
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    found, used = _netperf_asked(run, runtime, "TCP_MAERTS" if receive else "TCP_STREAM", ["-f", "m"])
    megabits = netperf_rate(found.stdout.decode("utf-8", "replace"))
    if megabits is None:
        raise TrialFailed("netperf did not print its figures", found.said)
    moved = megabits * 1e6 / 8 * seconds
    return (rate("throughput", megabits / 8, "MB/s"), BenchFigure("CPU per byte", used * 1e9 / moved, "ns/B"))


def _netperf_latency(run: BenchRun, runtime: str) -> tuple[BenchFigure, ...]:
    """netperf's request and response of a byte each; it says how many there were in a second."""
    found, _ = _netperf_asked(run, runtime, "TCP_RR", [])
    transactions = netperf_transactions(found.stdout.decode("utf-8", "replace"))
    if transactions is None:
        raise TrialFailed("netperf did not print its figures", found.said)
    return (rate("round trips", transactions, "1/s"), BenchFigure("mean round trip", 1 / transactions, "s"))


def _netperf_asked(run: BenchRun, runtime: str, test: str, more: Sequence[str]) -> tuple[Timed, float]:
    """netperf run in an instance, its server in the peer's namespace; and the processor time that both ends used
    for it."""
    tree = built(NETPERF, run.job.netperf_source, run)
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    with run.runtimes[runtime].network(0, peer=True) as link:
        serve = [str(locate().folder / "enter"), "-n", link.peer, str(tree.folder / "src/netserver"), "-D", "-4"]
        with spawn(serve, stderr=subprocess.DEVNULL) as server:
            await_listening(server.pid, NETSERVER)
            words = [f"{NETPERF.at}/src/netperf", "-H", link.outside, "-t", test, "-l", str(seconds), "-P", "0", *more]
            volumes = (Volume(str(tree.folder), NETPERF.at),)
            return _with_cpu(run, runtime, words, link, volumes)


def _with_cpu(
    run: BenchRun, runtime: str, words: Sequence[str], link: Link, volumes: Sequence[Volume] = ()
) -> tuple[Timed, float]:
    """Run a command in an instance of that network; and the processor time in seconds that everything used for it,
    without what an instance takes to come and go: that of one that does nothing."""

    def timed_by_cpu(command: Sequence[str]) -> tuple[Timed, float]:
        before = run.cgroups.cpu_s()
        found = run.run(runtime, command, deadline_s=DEADLINE_S, network=link.path, volumes=volumes)
        return found, run.cgroups.cpu_s() - before

    _, own_s = timed_by_cpu([BENCH, "null"])
    found, used_s = timed_by_cpu(words)
    return found, max(0.0, used_s - own_s)


def _latency(run: BenchRun, runtime: str) -> tuple[BenchFigure, ...]:
    """Our own: a byte to the peer and a byte back, whoever asks waits."""
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    with run.runtimes[runtime].network(0, peer=True) as link:
        enter = [str(locate().folder / "enter"), "-u", "-n", link.peer, "-r", str(run.folder / "tree")]
        serve = [*enter, PING_PROGRAM, "serve", link.outside, str(PING)]
        with spawn(serve, stderr=subprocess.DEVNULL) as server:
            await_listening(server.pid, PING)
            words = [PING_PROGRAM, "ask", link.outside, str(PING), str(seconds)]
            said = said_object(run.run(runtime, words, deadline_s=DEADLINE_S, network=link.path))
    took, trips = number(said, "seconds"), number(said, "round_trips")
    if took <= 0 or trips <= 0:
        raise TrialFailed("nothing came back", str(said)[:500])
    return (
        rate("round trips", trips / took, "1/s"),
        BenchFigure("mean round trip", took / trips, "s"),
        BenchFigure("median round trip", number(said, "median_s"), "s"),
        BenchFigure("99 % of round trips within", number(said, "p99_s"), "s"),
    )


def netperf_rate(said: str) -> float | None:
    """Megabits a second: the last of the five numbers of the one line."""
    for line in said.splitlines():
        words = line.split()
        if len(words) == 5:
            with contextlib.suppress(ValueError):
                numbers = [float(word) for word in words]
                return numbers[4] if numbers[4] > 0 else None
    return None


def netperf_transactions(said: str) -> float | None:
    """Transactions a second: the last of the six numbers of the first line."""
    for line in said.splitlines():
        words = line.split()
        if len(words) == 6:
            with contextlib.suppress(ValueError):
                numbers = [float(word) for word in words]
                return numbers[5] if numbers[5] > 0 else None
    return None


def _tcp(run: BenchRun, runtime: str, *, receive: bool) -> tuple[BenchFigure, ...]:
    """iperf3 with a peer in a namespace of its own. The processor time is that of both ends and all between, but not
    of the instance's start and end."""
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    with run.runtimes[runtime].network(0, peer=True) as link:
        serve = [str(locate().folder / "enter"), "-n", link.peer, require_tool("iperf3"), "--server", "--one-off"]
        with spawn(serve, stderr=subprocess.DEVNULL) as server:
            await_listening(server.pid)
            words = ["iperf3", "--client", link.outside, "--time", str(seconds), "--json"]
            found, used = _with_cpu(run, runtime, [*words, *(["--reverse"] if receive else [])], link)
    said = said_object(found)
    bits = number(said, "end", "sum_received", "bits_per_second")
    moved = number(said, "end", "sum_received", "bytes")
    if moved <= 0:
        raise TrialFailed("nothing was received", found.said)
    return (rate("throughput", bits / 8e6, "MB/s"), BenchFigure("CPU per byte", used * 1e9 / moved, "ns/B"))
