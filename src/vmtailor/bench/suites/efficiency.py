# SPDX-License-Identifier: Apache-2.0
"""The share of processor, memory, disk and network that one instance gets, by the tests and sizes of published
tables."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from vmtailor.base.natives import locate
from vmtailor.base.process import require_tool, spawn
from vmtailor.bench.analysis.benchmarks import WITH_IOZONE, BenchTest, Values, benchmark
from vmtailor.bench.model.instance import BENCH, Volume
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.runtimes.host_state import available_bytes
from vmtailor.bench.runtimes.networks import IPERF, NETSERVER, PING, Link, await_listening
from vmtailor.bench.runtimes.stopwatch import TimedCommand
from vmtailor.bench.suites.bench_run import BenchRun, TrialFailed, number, said_object
from vmtailor.bench.suites.published_sets import IOZONE, NETPERF, built, tree_facts
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
#: The variant of network tests that netperf runs.
WITH_NETPERF = "netperf"
IOZONE_CACHE = (
    "write and rewrite have the flush to the disk in them (-e); nothing is forgotten in between, so read comes from "
    "the page cache as reread does, as far as that holds the file"
)
DISK_JOBS = (
    ("write", ("--rw=write", "--end_fsync=1")),
    ("rewrite", ("--rw=write", "--end_fsync=1")),
    ("read", ("--rw=read", "--invalidate=1")),  # from the disk, as far as the instance can forget what it wrote
    ("reread", ("--rw=read", "--invalidate=0")),  # from the page cache
)


def _set(test: str, job: BenchJob) -> str:
    if test == "disk" and job.iozone_source:
        return WITH_IOZONE
    return WITH_NETPERF if test.startswith("tcp-") and job.netperf_source else ""


def _linpack(run: BenchRun, _: BenchTest, runtime: str) -> Values:
    equations = QUICK_EQUATIONS if run.quick else EQUATIONS
    if 8 * equations**2 > available_bytes() // 2:
        raise TrialFailed(f"{equations} equations do not fit into half of the memory that is free")
    words = ["/bench/linpack", str(equations), str(len(os.sched_getaffinity(0)))]
    said = said_object(run.run(runtime, words, deadline_s=DEADLINE_S))
    return {"dgesv": number(said, "gflops")}


def _stream(run: BenchRun, _: BenchTest, runtime: str) -> Values:
    words = [BENCH, "stream", str(ARRAY_BYTES), str(QUICK_ROUNDS if run.quick else ROUNDS)]
    said = said_object(run.run(runtime, words, deadline_s=DEADLINE_S))
    return {kernel: number(said, kernel) for kernel in ("copy", "scale", "add", "triad")}


def disk_words(size: int) -> list[str]:
    """Return fio's command: four passes over one file in the instance's own writable layer."""
    words = [
        "fio", "--output-format=json", "--filename=/data/file", f"--size={size}", f"--bs={RECORD_BYTES}",
        "--ioengine=psync", "--thread",
    ]  # fmt: skip
    for number_, (name, options) in enumerate(DISK_JOBS):
        words += [f"--name={name}", *(["--stonewall"] if number_ else []), *options]
    return words


def _disk(run: BenchRun, test: BenchTest, runtime: str) -> Values:
    size = QUICK_FILE_BYTES if run.quick else FILE_BYTES
    if test.variant == WITH_IOZONE:
        return _iozone(run, runtime, size)
    said = said_object(run.run(runtime, disk_words(size), deadline_s=DEADLINE_S))
    return {
        name: number(said, "jobs", index, "write" if "write" in name else "read", "bw_bytes") / 1e6
        for index, (name, _) in enumerate(DISK_JOBS)
    }


def _iozone(run: BenchRun, runtime: str, size: int) -> Values:
    """Run the same four passes with IOzone: its first two tests, with the flush of the writes within the time."""
    tree = built(IOZONE, run.job.iozone_source, run)
    sizes = ["-s", f"{size >> 10}k", "-r", f"{RECORD_BYTES >> 10}k"]
    words = [f"{IOZONE.at}/iozone", "-e", "-i", "0", "-i", "1", *sizes]
    found = run.run(
        runtime, [*words, "-f", "/data/file"], deadline_s=DEADLINE_S, volumes=(Volume(str(tree.folder), IOZONE.at),)
    )
    rates = iozone_rates(found.stdout.decode("utf-8", "replace"), size >> 10, RECORD_BYTES >> 10)
    if rates is None:
        raise TrialFailed("IOzone did not print its figures", found.said)
    return {name: value * 1024 / 1e6 for (name, _), value in zip(DISK_JOBS, rates, strict=True)}


def iozone_rates(said: str, size_kib: int, record_kib: int) -> tuple[float, ...] | None:
    """Return KiB a second of write, rewrite, read and reread, from the row that begins with the sizes of file and
    record; None where there is none."""
    for line in said.splitlines():
        words = line.split()
        if words[:2] == [str(size_kib), str(record_kib)] and len(words) >= 6:
            with contextlib.suppress(ValueError):
                return tuple(float(word) for word in words[2:6])
    return None


def _network(run: BenchRun, test: BenchTest, runtime: str) -> Values:
    receive, netperf = test.test == "tcp-receive", test.variant == WITH_NETPERF
    if test.test == LATENCY:
        return _netperf_latency(run, runtime) if netperf else _latency(run, runtime)
    return (_netperf if netperf else _tcp)(run, runtime, receive=receive)


def _netperf(run: BenchRun, runtime: str, *, receive: bool) -> Values:
    """Run netperf's stream to, or from, its server in the peer's namespace."""
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    megabits, used = _netperf_asked(run, runtime, "TCP_MAERTS" if receive else "TCP_STREAM", ["-f", "m"], 5)
    return {"throughput": megabits / 8, "CPU per byte": used * 1e9 / (megabits * 1e6 / 8 * seconds)}


def _netperf_latency(run: BenchRun, runtime: str) -> Values:
    """Run netperf's request and response of one byte each; it prints their number in a second."""
    transactions, _ = _netperf_asked(run, runtime, "TCP_RR", [], 6)
    return {"round trips": transactions, "mean round trip": 1 / transactions}


@contextlib.contextmanager
def _served(run: BenchRun, runtime: str, port: int, words: Callable[[Link], Sequence[str]]) -> Iterator[Link]:
    """Hold a network for one instance, with a server that listens at its other end. `words`: enter the peer's namespace
    and start the server."""
    with run.runtimes[runtime].network(0, peer=True) as link:
        enter = str(locate().folder / "enter")
        with spawn([enter, *words(link)], stderr=subprocess.DEVNULL) as server:
            await_listening(server.pid, port)
            yield link


def _netperf_asked(run: BenchRun, runtime: str, test: str, more: Sequence[str], numbers: int) -> tuple[float, float]:
    """Run netperf in an instance, with its server in the peer's namespace. Returns the last of the `numbers` in its
    line, and the processor time of both ends."""
    tree = built(NETPERF, run.job.netperf_source, run)
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    server = [str(tree.folder / "src/netserver"), "-D", "-4"]
    with _served(run, runtime, NETSERVER, lambda link: ["-n", link.peer, *server]) as link:
        words = [f"{NETPERF.at}/src/netperf", "-H", link.outside, "-t", test, "-l", str(seconds), "-P", "0", *more]
        volumes = (Volume(str(tree.folder), NETPERF.at),)
        found, used = _with_cpu(run, runtime, words, link, volumes)
    figure = netperf_figure(found.stdout.decode("utf-8", "replace"), numbers)
    if figure is None:
        raise TrialFailed("netperf did not print its figures", found.said)
    return figure, used


def _with_cpu(
    run: BenchRun, runtime: str, words: Sequence[str], link: Link, volumes: Sequence[Volume] = ()
) -> tuple[TimedCommand, float]:
    """Run a command in an instance in that network. Returns it with the processor time in seconds that everything used
    for it, less the cost of an instance that does nothing."""

    def timed_by_cpu(command: Sequence[str]) -> tuple[TimedCommand, float]:
        before = run.cgroups.cpu_s()
        found = run.run(runtime, command, deadline_s=DEADLINE_S, network=link.path, volumes=volumes)
        return found, run.cgroups.cpu_s() - before

    _, own_s = timed_by_cpu([BENCH, "null"])
    found, used_s = timed_by_cpu(words)
    return found, max(0.0, used_s - own_s)


def _latency(run: BenchRun, runtime: str) -> Values:
    """Run our own test: a byte to the peer and a byte back, one at a time."""
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S

    def serve(link: Link) -> list[str]:  # the image's program, as nobody and in the image's root
        return ["-u", "-n", link.peer, "-r", str(run.folder / "tree"), PING_PROGRAM, "serve", link.outside, str(PING)]

    with _served(run, runtime, PING, serve) as link:
        words = [PING_PROGRAM, "ask", link.outside, str(PING), str(seconds)]
        said = said_object(run.run(runtime, words, deadline_s=DEADLINE_S, network=link.path))
    took, trips = number(said, "seconds"), number(said, "round_trips")
    if took <= 0 or trips <= 0:
        raise TrialFailed("nothing came back", str(said)[:500])
    return {
        "round trips": trips / took,
        "mean round trip": took / trips,
        "median round trip": number(said, "median_s"),
        "99 % of round trips within": number(said, "p99_s"),
    }


def netperf_figure(said: str, numbers: int) -> float | None:
    """Return netperf's figure: the last number of the first line with so many numbers, megabits (5) or transactions (6)
    a second; None where there is none."""
    for line in said.splitlines():
        words = line.split()
        if len(words) == numbers:
            with contextlib.suppress(ValueError):
                found = [float(word) for word in words]
                return found[-1] if found[-1] > 0 else None
    return None


def _tcp(run: BenchRun, runtime: str, *, receive: bool) -> Values:
    """Run iperf3 with a peer in a namespace of its own. The processor time is that of both ends and everything between
    them, without the instance's start and end."""
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    server = [require_tool("iperf3"), "--server", "--one-off"]
    with _served(run, runtime, IPERF, lambda link: ["-n", link.peer, *server]) as link:
        words = ["iperf3", "--client", link.outside, "--time", str(seconds), "--json"]
        found, used = _with_cpu(run, runtime, [*words, *(["--reverse"] if receive else [])], link)
    said = said_object(found)
    bits = number(said, "end", "sum_received", "bits_per_second")
    moved = number(said, "end", "sum_received", "bytes")
    if moved <= 0:
        raise TrialFailed("nothing was received", found.said)
    return {"throughput": bits / 8e6, "CPU per byte": used * 1e9 / moved}


class Efficiency(Suite):
    """The suite of an instance's share of the host."""

    name = SuiteName.EFFICIENCY
    trials: ClassVar = {
        "linpack": _linpack,
        "stream": _stream,
        "disk": _disk,
        "tcp-send": _network,
        "tcp-receive": _network,
        LATENCY: _network,
    }

    def tests(self, job: BenchJob) -> list[BenchTest]:
        return [benchmark(self.name, test).planned(variant=_set(test, job), quick=job.quick) for test in self.trials]

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        """Return the published programs that were built, with their compilers."""
        found: list[tuple[str, str]] = []
        for one, source in ((IOZONE, run.job.iozone_source), (NETPERF, run.job.netperf_source)):
            if source:
                found += tree_facts(one, source, run, one.title)
        if run.job.iozone_source:
            found.append(("IOzone and the page cache", IOZONE_CACHE))
        return tuple(found)
