# SPDX-License-Identifier: Apache-2.0
"""Results that go on: one file, several runs, nothing lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from vmtailor import __version__
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.bench.analysis.schedule import LEFT_OUT
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import (
    BenchFailure,
    BenchHost,
    BenchResults,
    BenchTrial,
    HostRun,
    RuntimeIdentity,
    SuiteName,
)
from vmtailor.bench.run import harness, results_file
from vmtailor.bench.run.bench_rows import GuestRow
from vmtailor.bench.run.guest_engine import GuestEngine
from vmtailor.bench.run.shared_boots import SharedBoots
from vmtailor.bench.runtimes import networks
from vmtailor.bench.suites.bench_run import RUN_OVER, BenchRun

HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
JOB = BenchJob((SuiteName.STARTUP,), ("native",), (1,), 6, True, 1, "sha256:0", "", "", "", "", "")


def run_of(*runtimes: str, left_out: tuple[str, ...] = ()) -> HostRun:
    trials = tuple(BenchTrial(SuiteName.STARTUP, "report", name, 1, "warm", 1, 0.0, 1.0) for name in runtimes)
    rows = tuple(RuntimeIdentity(name) for name in runtimes)
    return HostRun(HOST, "sha256:0", True, 1, (("repeat", "6"),), rows, trials, left_out)


def test_runtimes_of_an_earlier_run_stay_beside_those_of_this_one(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    assert results_file.earlier(out, JOB, HOST.id) is None
    out_of_time = f"startup: http: {LEFT_OUT} 84 min"  # as the run now says anew, where it is so
    first = run_of("native", "docker", left_out=("docker: it is slow", "isolation: not in the quick form", out_of_time))
    records.save(results_file.having(out, first), out)
    before = results_file.earlier(out, JOB, HOST.id)
    assert before == first and results_file.earlier(out, replace(JOB, quick=False), HOST.id) is None
    now = replace(run_of("docker", "vm:stock"), trials=(), options=(("repeat", "6"), ("set", "ours")))
    known = results_file.going_on(before, now)
    assert [one.runtime for one in known.identities] == ["native", "docker", "vm:stock"]
    assert known.trials == first.trials and dict(known.options) == {"repeat": "6", "set": "ours"}
    again = results_file.going_on(before, run_of("docker", "native"))
    assert [one.runtime for one in again.identities] == ["native", "docker"]  # tables keep their columns
    assert known.left_out == ("isolation: not in the quick form",)  # of what is measured now, only this run's word
    other = replace(known, quick=False)
    records.save(results_file.having(out, other), out)
    assert [run.quick for run in records.load(type(results_file.having(out, other)), out).runs] == [True, False]


def test_a_file_that_takes_long_to_write_is_written_less_often_and_in_the_end(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    times = iter([0.0, *(0.0, 0.1), 1.9, *(2.2, 2.2), *(2.2, 2.2)])
    keeping = results_file.Keeping(out, lambda: next(times))

    def kept(*runtimes: str, last: bool = False) -> list[str]:
        keeping.keep(run_of(*runtimes), last=last)
        (run,) = records.load(BenchResults, out).runs
        return [trial.runtime for trial in run.trials]

    assert kept("a") == ["a"]  # which takes a tenth of a second: for two nothing is written
    assert kept("a", "b") == ["a"]
    assert kept("a", "b", "c") == ["a", "b", "c"]  # which takes no time
    assert kept("a", "b", "c", "d") == ["a", "b", "c", "d"]
    times = iter([2.2, 2.3, 2.3, 2.4, 2.4])
    assert kept("a") == ["a"] and kept("b") == ["a"] and kept("b", last=True) == ["b"]


def measured(version: str, *options: tuple[str, str]) -> HostRun:
    run = run_of("docker")
    return replace(run, identities=(RuntimeIdentity("docker", version),), options=(("repeat", "6"), *options))


def test_samples_are_not_pooled_with_those_of_another_version_or_another_program() -> None:
    before = measured("20.10", ("published set tree", "1"), ("our set flags", "-O3"))
    for now, words in (
        (measured("26.1"), r"docker was 20\.10, and is 26\.1"),
        (measured("20.10", ("published set tree", "2")), "published set tree was 1, and is 2"),
        (measured("20.10", ("description of crun", "a")), ""),  # of which there was none
        (measured("20.10", ("repeat", "9")), ""),
    ):
        if words:
            with pytest.raises(UserInputError, match=words) as found:
                results_file.going_on(before, now)
            assert "-o ANOTHER.json" in found.value.hint
            with pytest.raises(UserInputError, match=words):
                results_file.require_alike(before, now.identities, now.options)
        else:
            assert results_file.going_on(before, now).trials == before.trials
    missing = replace(now, identities=(RuntimeIdentity("docker", "26.1", problem="it did not start"),))
    assert results_file.going_on(before, missing).trials == before.trials
    unmeasured = replace(before, trials=())
    assert results_file.going_on(unmeasured, measured("26.1", ("published set tree", "1"))).trials == ()


def test_other_machines_are_refused_before_any_row_is_asked_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    machine = "Linux 6.1, 4567"

    class Row:
        name, beginning = "vm:lab/kvm:mine", "boot it"

        def __init__(self, version: str) -> None:
            self.version = version

        def identity(self) -> RuntimeIdentity:
            asked.append(self.version)
            return RuntimeIdentity(self.name, self.version)

    rows = [Row("QEMU 7"), Row("QEMU 8")]
    monkeypatch.setattr(harness, "Cgroups", lambda: SimpleNamespace(version="v2", enter_harness=lambda: None))
    monkeypatch.setattr(networks, "loopback_up", lambda: None)
    monkeypatch.setattr(harness, "_unpack", lambda *_: None)
    monkeypatch.setattr(harness, "_rows", lambda *_: iter(rows))
    monkeypatch.setattr(harness, "this_host", lambda *_, **__: HOST)
    monkeypatch.setattr(harness, "_descriptions", lambda _: [("machine of kvm:mine", machine)])
    out = tmp_path / "bench.json"
    before = replace(run_of("vm:lab/kvm:mine"), options=(("machine of kvm:mine", "Linux 6.1, 0123"),))
    before = replace(before, identities=(RuntimeIdentity("vm:lab/kvm:mine", "QEMU 7"),))
    records.save(BenchResults("0", (before,)), out)
    job = replace(JOB, out=str(out), folder=str(tmp_path))
    with pytest.raises(UserInputError, match=r"machine of kvm:mine was Linux 6\.1, 0123, and is Linux 6\.1, 4567"):
        harness.measure(job)
    assert asked == []
    machine = "Linux 6.1, 0123"
    rows.reverse()
    with pytest.raises(UserInputError, match="kvm:mine was QEMU 7, and is QEMU 8"):
        harness.measure(job)
    assert asked == ["QEMU 8"]  # and not what comes after it


def test_a_row_within_a_machine_is_asked_once_what_it_is(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    rows = (
        RuntimeIdentity("vm:lab/docker", "20.10 in Linux 6.12, microvm, 1 GiB, 0123"),
        RuntimeIdentity("vm:lab/lxc", "5.0 in Linux 6.12, microvm, 1 GiB, 0123", problem="it did not start"),
    )
    before = replace(run_of(), identities=rows)
    records.save(BenchResults(__version__, (before,)), out)
    known = results_file.asked_before(out, before)
    assert known == {"vm:lab/docker": rows[0]} and results_file.asked_before(out, None) == {}

    def asked(name: str, disk: str) -> RuntimeIdentity:
        anew = RuntimeIdentity(name, "asked anew")
        where = f"in Linux 6.12, microvm, 1 GiB, {disk}"
        engine = cast(GuestEngine, SimpleNamespace(name=name, where=where, facts={}, identity=lambda _: anew))
        run = cast(BenchRun, SimpleNamespace(asked_before=known, job=JOB))
        row = GuestRow(run, engine, cast(SharedBoots, None))
        assert (row.beginning == f"boot {name}") is (row.identity() == anew)
        return row.identity()

    assert asked("vm:lab/docker", "0123") == rows[0]
    assert asked("vm:lab/docker", "4567").version == "asked anew"  # of another disk: then going on is refused
    assert asked("vm:lab/lxc", "0123").version == "asked anew"  # which had a problem
    records.save(BenchResults("0.0.1", (before,)), out)
    assert results_file.asked_before(out, before) == {}  # another version may ask otherwise


def test_what_the_end_of_a_run_cut_off_is_done_again() -> None:
    before = run_of("native", "docker")
    cut = replace(before.trials[1], failure=BenchFailure(RUN_OVER))
    failed = replace(before.trials[1], failure=BenchFailure("it ended with 1"))
    for trial, kept in ((cut, 1), (failed, 2)):
        run = replace(before, trials=(before.trials[0], trial))
        assert len(results_file.going_on(run, run_of("native")).trials) == kept
