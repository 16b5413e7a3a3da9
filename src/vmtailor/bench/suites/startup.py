# SPDX-License-Identifier: Apache-2.0
"""The time that an instance takes to start, by boundaries that are named and never mixed.

Each figure begins just before the start command is executed. It ends at one of four points: the instance's own report,
its first byte of output through the runtime, the end of the start command, or the first right answer over HTTP. The
report is a file that its first visible instruction creates; the kernel notifies us."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from vmtailor.base.process import spawn
from vmtailor.bench.analysis.benchmarks import BenchTest, Values, benchmark
from vmtailor.bench.model.instance import BENCH, CALL_BACK, Volume
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.runtimes.host_runtime import Surroundings
from vmtailor.bench.runtimes.stopwatch import MOST_BYTES, CallBacks, timed
from vmtailor.bench.suites.bench_run import BenchRun, TrialFailed, succeeded
from vmtailor.bench.suites.suite import Suite

DEADLINE_S = 60.0
#: Seconds for running instances to report what they are.
_REPORT_S = 20.0
#: Seconds between two requests over HTTP, and between staggered starts.
POLL_S, STAGGER_S = 0.0005, 0.05
MANY = ("serial", "staggered", "at-once")


def drop_page_cache() -> None:
    """Drop the page cache. Raises TrialFailed where that is not allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        raise TrialFailed(f"the page cache cannot be dropped here: {error.strerror}") from error


def _report(run: BenchRun, _: BenchTest, runtime: str) -> Values:
    driver = run.runtimes[runtime]
    with (
        run.calling_back(run.spec([BENCH, "report", f"{CALL_BACK}/here"])) as (wanted, callbacks),
        run.placed(runtime, wanted) as spec,
    ):
        words = driver.run_words(spec)
        found = succeeded(timed(words, deadline_s=DEADLINE_S, callbacks=callbacks, **driver.surroundings()))
    if not found.reports or found.first_output_s is None:
        raise TrialFailed("the instance did not report", found.said)
    run.witness(runtime, found.stdout)
    return {"own report": found.reports[0], "first output": found.first_output_s, "exit": found.exit_s}


def _http(run: BenchRun, _: BenchTest, runtime: str) -> Values:
    driver = run.runtimes[runtime]
    with driver.network(0) as link, run.placed(runtime, run.spec([BENCH, "serve", "80"], network=link.path)) as spec:
        words = driver.run_words(spec)
        started = time.monotonic()
        with tempfile.TemporaryFile() as said, spawn(words, stderr=said, **driver.surroundings()) as process:
            while not answers(link.inside):
                if time.monotonic() - started > DEADLINE_S or process.poll() is not None:
                    said.seek(0)
                    raise TrialFailed("it never answered over HTTP", said.read(4000).decode("utf-8", "replace"))
                time.sleep(POLL_S)
            took = time.monotonic() - started
            told = _said(link.inside, "/report", within_s=_REPORT_S)
            run.witness(runtime, told.partition(b"\r\n\r\n")[2], network=True)
            return {"first answer": took}


def answers(address: str, port: int = 80) -> bool:
    """Return whether a server gives the right answer now."""
    said = _said(address, "/", port)
    return said.startswith(b"HTTP/1.0 200") and said.endswith(b"bench\n")


def _said(address: str, path: str, port: int = 80, within_s: float = 0.2) -> bytes:
    """Return a server's answer within so many seconds; empty where there is none. It is untrusted: at most MOST_BYTES
    are read."""
    said, until = b"", time.monotonic() + within_s
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=within_s) as asked:
        asked.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        while len(said) < MOST_BYTES and (left := until - time.monotonic()) > 0:
            asked.settimeout(left)
            if not (piece := asked.recv(4096)):
                break
            said += piece
    return said


def _apart(run: BenchRun, _: BenchTest, runtime: str) -> Values:
    driver = run.runtimes[runtime]
    with (
        run.calling_back(run.spec([BENCH, "hold", f"{CALL_BACK}/here"])) as (wanted, callbacks),
        run.placed(runtime, wanted) as spec,
    ):
        commands, where = driver.commands(spec), driver.surroundings()
        figures = {"create": _all(commands.create, where)} if commands.create else {}
        started = time.monotonic()
        with spawn(commands.start, **where) as process:
            Reports(callbacks, ["here"]).wait(["here"], started + DEADLINE_S)
            figures["start to own report"] = time.monotonic() - started
            _have_report(run, runtime, run.callback_folder(spec), ["here"], callbacks)
            if not commands.stays:
                process.wait(DEADLINE_S)
                figures["stop"] = _all(commands.stop, where)
            else:
                before = time.monotonic()
                process.terminate()
                process.wait(DEADLINE_S)
                figures["stop"] = time.monotonic() - before
    return figures


def _all(commands: Sequence[Sequence[str]], where: Surroundings) -> float:
    """Run commands one after the other, and return their seconds. Their output goes to a file: processes that they
    leave running would keep a pipe open. Raises TrialFailed."""
    before = time.monotonic()
    for words in commands:
        with tempfile.TemporaryFile() as said, spawn(words, stdout=said, stderr=said, **where) as process:
            if process.wait(DEADLINE_S) != 0:
                said.seek(0)
                raise TrialFailed(
                    f"{words[0]} ended with {process.returncode}", said.read(4000).decode(errors="replace")
                )
    return time.monotonic() - before


class Reports:
    """The moments, on the monotonic clock, at which instances first call back by these names. Other files are
    ignored."""

    def __init__(self, callbacks: CallBacks, names: Sequence[str]) -> None:
        self.names = names
        self.at: dict[str, float] = {}
        self._callbacks = callbacks

    def note(self, until_s: float = 0.0) -> bool:
        """Note the names of new files as called back now; with a moment, wait for the next until then. Return whether
        any file was new."""
        new = self._callbacks.wait(until_s) if until_s else self._callbacks.take()
        at = time.monotonic()
        for name in new:
            if name in self.names:
                self.at.setdefault(name, at)
        return bool(new)

    def wait(self, names: Sequence[str], deadline: float) -> None:
        """Wait until these names have called back. Raises TrialFailed."""
        while not self.at.keys() >= set(names):
            if not self.note(deadline):
                raise TrialFailed(f"{len(self.at)} of {len(self.names)} instances reported")


@contextlib.contextmanager
def holding(run: BenchRun, runtime: str, count: int, how: str) -> Iterator[tuple[list[float], list[float]]]:
    """Hold so many instances until the block is left. Yields the moments at which each was started and at which it
    reported, in the order of their starts. When the block is left, they report from inside before they are ended."""
    driver = run.runtimes[runtime]
    shared = run.spec([BENCH])
    with contextlib.ExitStack() as held:
        _, callbacks = held.enter_context(run.calling_back(shared))
        folder = run.folder / "callbacks" / shared.name
        specs = []
        volumes = (Volume(str(folder), CALL_BACK),)
        for number in range(count):
            spec = replace(run.spec([BENCH, "hold", f"{CALL_BACK}/{number}"]), volumes=volumes)
            specs.append(held.enter_context(run.placed(runtime, spec)))
        commands = [driver.run_words(spec) for spec in specs]
        starts: list[float] = []
        reports = Reports(callbacks, [str(number) for number in range(count)])
        for name, words in zip(reports.names, commands, strict=True):
            starts.append(time.monotonic())
            held.enter_context(spawn(words, **driver.surroundings()))
            if how == "serial":
                reports.wait([name], starts[-1] + DEADLINE_S)
            elif how == "staggered":
                # A report that comes meanwhile is noted now, not when all have been started.
                while reports.note(starts[0] + len(starts) * STAGGER_S):
                    pass
            else:
                reports.note()
        reports.wait(reports.names, starts[0] + DEADLINE_S)
        yield starts, [reports.at[name] for name in reports.names]
        _have_report(run, runtime, folder, reports.names, callbacks)


def _have_report(run: BenchRun, runtime: str, folder: Path, names: Sequence[str], callbacks: CallBacks) -> None:
    """Have running instances report from inside. Raises TrialFailed."""
    if runtime not in run.identities:
        return
    for name in names:
        (folder / f"{name}.ask").touch()
    wanted, deadline = {f"{name}.told" for name in names}, time.monotonic() + _REPORT_S
    told: set[str] = set()
    while not wanted <= told:
        new = callbacks.wait(deadline)  # an instance that never stops creating files does not move it
        if not new:
            raise TrialFailed(f"{len(wanted & told)} of {len(names)} instances said what they are")
        told |= {*new}
    for name in names:
        run.witness(runtime, _written(folder / f"{name}.report"))


def _written(path: Path) -> bytes:
    """Return the contents of an instance's file in a shared folder: only of a regular file, and at most MOST_BYTES."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(MOST_BYTES) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


def _many(run: BenchRun, test: BenchTest, runtime: str) -> Values:
    with holding(run, runtime, test.count, test.test) as (starts, reports):
        each = [report - start for start, report in zip(starts, reports, strict=True)]
        return {"all reported": max(reports) - starts[0], "own report": each}


class Startup(Suite):
    """The suite of starts."""

    name = SuiteName.STARTUP
    trials: ClassVar = {"report": _report, "http": _http, "apart": _apart, **dict.fromkeys(MANY, _many)}

    def tests(self, job: BenchJob) -> list[BenchTest]:
        alone = (("report", "warm"), ("report", "cold"), ("http", "warm"), ("apart", "warm"))
        found = [benchmark(self.name, test).planned(variant=variant) for test, variant in alone]
        counts = [count for count in job.counts if count > 1]
        return found + [
            benchmark(self.name, test).planned(count=count, variant="warm") for count in counts for test in MANY
        ]

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        if test.variant == "cold":
            drop_page_cache()
        return super().trial(run, test, runtime)
