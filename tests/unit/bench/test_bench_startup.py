# SPDX-License-Identifier: Apache-2.0
"""Starts of several instances: whose report is whose; and what idle ones cost where the cache stays."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.model.instance import InstanceSpec
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.runtimes.host_runtime import Surroundings
from vmtailor.bench.runtimes.stopwatch import CallBacks
from vmtailor.bench.suites import instance_memory, startup
from vmtailor.bench.suites.bench_run import TrialFailed
from vmtailor.bench.suites.instance_memory import InstanceMemory
from vmtailor.bench.suites.startup import Startup


def test_call_backs_have_names(tmp_path: Path) -> None:
    with contextlib.closing(CallBacks(tmp_path)) as callbacks:
        assert callbacks.take() == []
        for name in ("0", "a-longer-name-than-a-word", "2"):
            (tmp_path / name).touch()
        assert callbacks.take() == ["0", "a-longer-name-than-a-word", "2"] and callbacks.take() == []


class Run:
    """Stands for the run in the scope: instances are processes on this host that call back when they are told to."""

    def __init__(self, folder: Path, delays: list[float]) -> None:
        self.folder, self._delays, self._number = folder, delays, 0
        self.notes: list[str] = []
        self.runtimes = {"native": self}
        self.identities: dict[str, Any] = {}
        self.said: list[bytes] = []

    def spec(self, command: list[str]) -> InstanceSpec:
        self._number += 1
        return InstanceSpec(f"one-{self._number}", tuple(command))

    @contextlib.contextmanager
    def calling_back(self, spec: InstanceSpec) -> Iterator[Any]:
        folder = self.folder / "callbacks" / spec.name
        folder.mkdir(parents=True)
        with contextlib.closing(CallBacks(folder)) as callbacks:
            yield spec, callbacks

    @contextlib.contextmanager
    def placed(self, _runtime: str, spec: InstanceSpec) -> Iterator[InstanceSpec]:
        yield spec

    def surroundings(self) -> Surroundings:
        return {"env": None, "cwd": self.folder}

    def run_words(self, spec: InstanceSpec) -> tuple[str, ...]:
        number = spec.command[-1].rsplit("/", 1)[-1]
        file = Path(spec.volumes[0].source) / number
        return "sh", "-c", f"sleep {self._delays[int(number)]}; : > {file}; exec sleep 60"


@pytest.mark.lengthy
@pytest.mark.parametrize("how", ["serial", "staggered", "at-once"])
def test_each_instance_has_its_own_time_however_they_are_started(tmp_path: Path, how: str) -> None:
    run: Any = Run(tmp_path, [2.4, 0.01, 1.2])
    began = time.monotonic()
    figures = Startup().trial(run, BenchTest(SuiteName.STARTUP, how, 3), "native")
    whole = time.monotonic() - began
    own = {figure.instance: figure.value for figure in figures if figure.name == "own report"}
    assert len(own) == 3 and own[0] >= 2.4 and own[2] >= 1.2 and own[1] < own[2] < own[0]
    (all_,) = [figure.value for figure in figures if figure.name == "all reported"]
    assert max(own.values()) <= all_ <= whole


def test_instances_that_hold_say_what_they_are_before_they_are_ended(tmp_path: Path) -> None:
    class Asked(Run):
        def run_words(self, spec: InstanceSpec) -> tuple[str, ...]:
            file = Path(spec.volumes[0].source) / spec.command[-1].rsplit("/", 1)[-1]
            told = f"echo {file.name} > {file}.report; : > {file}.told"
            return "sh", "-c", f": > {file}; while ! [ -e {file}.ask ]; do sleep 0.01; done; {told}; exec sleep 60"

        def witness(self, runtime: str, said: bytes) -> None:
            self.said.append(said)

    run: Any = Asked(tmp_path, [])
    run.identities = {"native": None}
    with startup.holding(run, "native", 3, "at-once"):
        assert not run.said and not [*tmp_path.rglob("*.ask")]
    assert sorted(run.said) == [b"0\n", b"1\n", b"2\n"]


def test_what_an_instance_left_in_place_of_its_report_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    assert startup._written(tmp_path / "link") == startup._written(tmp_path / "pipe") == b""
    assert startup._written(tmp_path / "nothing") == b"" and startup._written(tmp_path / "secret") == b"of the host"


def test_who_calls_back_under_another_name_did_not_report(tmp_path: Path) -> None:
    with contextlib.closing(CallBacks(tmp_path)) as callbacks:
        for name in ("0", "else"):
            (tmp_path / name).touch()
        with pytest.raises(TrialFailed, match="1 of 2 instances reported"):
            startup.Reports(callbacks, ["0", "1"]).wait(["0", "1"], time.monotonic() + 0.1)


def test_the_first_call_back_of_each_counts(tmp_path: Path) -> None:
    with contextlib.closing(CallBacks(tmp_path)) as callbacks:
        reports = startup.Reports(callbacks, ["0"])
        (tmp_path / "0").touch()
        reports.wait(["0"], time.monotonic() + 60)
        first = dict(reports.at)
        (tmp_path / "0").unlink()
        (tmp_path / "0").touch()
        reports.note(time.monotonic() + 0.01)
    assert reports.at == first


def test_idle_instances_are_measured_where_the_page_cache_cannot_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise TrialFailed("the page cache cannot be dropped here: Read-only file system")

    monkeypatch.setattr(instance_memory, "drop_page_cache", refused)
    monkeypatch.setattr(instance_memory, "pss_bytes", iter([1000, 9000]).__next__)
    run: Any = Run(tmp_path, [0.0, 0.0])
    found = InstanceMemory().trial(run, BenchTest(SuiteName.MEMORY, "idle", 2), "native")
    figures = {figure.name: figure.value for figure in found}
    assert figures["PSS of each"] == 4000 and "MemAvailable for each" in figures
    assert run.notes == ["the page cache cannot be dropped here: Read-only file system"]


class Restless(CallBacks):
    """Call-backs of an instance that never stops creating files, none of which was asked for."""

    def __init__(self) -> None:
        self.fd, other = os.pipe()
        os.write(other, b"x")  # never read: there is always something

    def take(self) -> list[str]:
        return ["junk"]


def test_an_instance_that_creates_files_without_end_does_not_move_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "_REPORT_S", 0.2)
    run: Any = Run(tmp_path, [])
    run.identities["native"] = object()
    callbacks = Restless()
    with pytest.raises(TrialFailed, match="0 of 1 instances said what they are"):
        startup._have_report(run, "native", tmp_path, ["0"], callbacks)
    with pytest.raises(TrialFailed, match="0 of 2 instances reported"):
        startup.Reports(callbacks, ["0", "1"]).wait(["0", "1"], time.monotonic() + 0.2)


def test_a_server_that_answers_byte_by_byte_has_one_deadline_for_all_of_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                while True:
                    client.sendall(b"x")
                    time.sleep(0.02)

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        said = startup._said("127.0.0.1", "/", server.getsockname()[1], within_s=0.3)
    assert set(said) == set(b"x") and time.monotonic() - began < 10
