# SPDX-License-Identifier: Apache-2.0
"""What one instance gets of processor, memory, disk and network, by the tests and sizes that published tables use."""

from __future__ import annotations

import os
import subprocess

from vmtailor.analysis.bench.plan import BenchTest
from vmtailor.base.natives import locate
from vmtailor.base.process import require_tool, spawn
from vmtailor.drivers.host.bench_host import available_bytes
from vmtailor.model.bench.job import BenchJob
from vmtailor.model.bench.results import BenchFigure, SuiteName
from vmtailor.pipeline.bench.bench_run import BENCH, BenchRun, TrialFailed, number, said_object
from vmtailor.pipeline.bench.suites.listening import await_listening
from vmtailor.pipeline.bench.suites.suite import Suite

DEADLINE_S = 1800.0
#: Equations, as published. 2/3 N³ operations: a tenth of them is 4642.
EQUATIONS, QUICK_EQUATIONS = 10_000, 4_642
#: Bytes of each of STREAM's arrays, which no cache holds, and repetitions within a trial.
ARRAY_BYTES, ROUNDS, QUICK_ROUNDS = 160 << 20, 20, 3
#: Bytes of the file on disk, and of a record, as published.
FILE_BYTES, QUICK_FILE_BYTES, RECORD_BYTES = 1 << 30, 100 << 20, 8 << 10
NETWORK_S, QUICK_NETWORK_S = 10, 1
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
        costs = (("linpack", 70.0), ("stream", 15.0), ("disk", 25.0), ("tcp-send", 14.0), ("tcp-receive", 14.0))
        return [BenchTest(self.name, test, 1, "", cost / (10 if job.quick else 1)) for test, cost in costs]

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        if test.test == "linpack":
            return _linpack(run, runtime)
        if test.test == "stream":
            return _stream(run, runtime)
        if test.test == "disk":
            return _disk(run, runtime)
        return _tcp(run, runtime, receive=test.test == "tcp-receive")


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


def _tcp(run: BenchRun, runtime: str, *, receive: bool) -> tuple[BenchFigure, ...]:
    """iperf3 with a peer in a namespace of its own. The processor time is that of both ends and all between."""
    seconds = QUICK_NETWORK_S if run.quick else NETWORK_S
    with run.runtimes[runtime].network(0, peer=True) as link:
        serve = [str(locate().folder / "enter"), "-n", link.peer, require_tool("iperf3"), "--server", "--one-off"]
        with spawn(serve, stderr=subprocess.DEVNULL) as server:
            await_listening(server.pid)
            words = ["iperf3", "--client", link.outside, "--time", str(seconds), "--json"]
            before = run.cgroups.cpu_s()
            found = run.run(
                runtime, [*words, *(["--reverse"] if receive else [])], deadline_s=DEADLINE_S, network=link.path
            )
            used = run.cgroups.cpu_s() - before
    said = said_object(found)
    bits = number(said, "end", "sum_received", "bits_per_second")
    moved = number(said, "end", "sum_received", "bytes")
    if moved <= 0:
        raise TrialFailed("nothing was received", found.said)
    figures = [rate("throughput", bits / 8e6, "MB/s"), BenchFigure("CPU per byte", used * 1e9 / moved, "ns/B")]
    if not receive:  # the sender's kernel says it, and that of some runtimes says nothing
        rtt = number(said, "end", "streams", 0, "sender", "mean_rtt")
        figures += [BenchFigure("round trip under load", rtt / 1e6, "s")] if rtt > 0 else []
    return tuple(figures)
