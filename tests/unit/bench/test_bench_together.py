# SPDX-License-Identifier: Apache-2.0
"""Instances that begin at one moment: each is there when it says so by its own name, and nobody else says it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.native_runtime import run_in

from vmtailor.bench.model.instance import CALL_BACK, InstanceSpec
from vmtailor.bench.suites import isolation
from vmtailor.bench.suites import simultaneous as several
from vmtailor.bench.suites.bench_run import NO_LIMITS, TIMED_OUT, BenchRun, TrialFailed
from vmtailor.bench.suites.simultaneous import together

#: An instance that was told to begin before it had said that it is there says so.
BEGIN = f"[ -e {CALL_BACK}/go ] && echo early; : >{CALL_BACK}/NAME; until [ -e {CALL_BACK}/go ]; do sleep .01; done"


@pytest.fixture
def run(tmp_path: Path) -> BenchRun:
    return run_in(tmp_path)


def words_of(*programs: str) -> Callable[[int], list[str]]:
    return lambda number: ["sh", "-c", programs[number].replace("NAME", str(number))]


def test_all_begin_when_the_last_one_is_there(run: BenchRun) -> None:
    programs = words_of(f"{BEGIN}; echo first", f"sleep .4; {BEGIN}; echo second")
    found = together(run, "native", programs, 2, seconds=0.0, grace_s=60.0)
    assert [one.stdout for one in found] == [b"first\n", b"second\n"]


def test_an_instance_that_creates_two_files_is_there_once(run: BenchRun) -> None:
    twice = f": >{CALL_BACK}/other; : >{CALL_BACK}/1.tmp; {BEGIN}; echo first"
    found = together(run, "native", words_of(twice, f"sleep .6; {BEGIN}; echo second"), 2, seconds=0.0, grace_s=60.0)
    assert [one.stdout for one in found] == [b"first\n", b"second\n"]


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("programs", "there", "evidence"),
    [
        ((BEGIN, "sleep .3; echo no memory >&2; exit 3"), 1, "no memory"),
        ((f": >{CALL_BACK}/1; : >{CALL_BACK}/2; {BEGIN.replace('NAME', 'else')}", "echo gone; exit 0"), 1, "gone"),
        (("echo waiting; exec sleep 20", "exec sleep 20"), 0, "waiting"),
    ],
)
def test_where_not_all_are_there_nobody_begins(
    run: BenchRun, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, str], there: int, evidence: str
) -> None:
    if there == 0:
        monkeypatch.setattr(several, "READY_S", 0.5)
    began = time.monotonic()
    with pytest.raises(TrialFailed, match=f"{there} of 2 instances were there to begin") as failed:
        together(run, "native", words_of(*programs), 2, seconds=0.0, grace_s=60.0)
    assert failed.value.details == evidence and not [*run.folder.rglob("go")]
    assert time.monotonic() - began < 15.0


def test_who_does_not_end_within_its_time_is_a_failure(run: BenchRun) -> None:
    began = time.monotonic()
    with pytest.raises(TrialFailed, match=TIMED_OUT):
        together(run, "native", words_of(BEGIN, f"{BEGIN}; exec sleep 20"), 2, seconds=0.1, grace_s=0.3)
    native: Any = run.runtimes["native"]
    assert time.monotonic() - began < 15.0 and len(native.cleared) == 2


@pytest.mark.lengthy
@pytest.mark.parametrize("is_there", [True, False])
def test_the_misbehaving_one_is_there_when_it_says_so_and_not_before(
    run: BenchRun, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    end = f": >{CALL_BACK}/here; exec sleep 20" if is_there else "echo refused >&2; exit 1"
    programs: Any = {"/bench/bench": f": >{CALL_BACK}/other; sleep .5; {end}", "/usr/sbin/lighttpd": "exec sleep 20"}
    native: Any = run.runtimes["native"]
    given = native.run_words

    def run_words(spec: InstanceSpec) -> tuple[str, ...]:
        words: tuple[str, ...] = given(InstanceSpec(spec.name, (programs[spec.command[0]],), volumes=spec.volumes))
        return ("sh", "-c", *words)

    monkeypatch.setattr(native, "run_words", run_words)
    monkeypatch.setattr(isolation, "answers", lambda _: True)
    if is_there:
        with isolation._five(run, "native", "cpu", NO_LIMITS) as five:
            assert (five.go.parent / "here").exists()
        return
    with (
        pytest.raises(TrialFailed, match="the five instances did not get ready") as failed,
        isolation._five(run, "native", "cpu", NO_LIMITS),
    ):
        pytest.fail("it was there")
    assert failed.value.details == "refused"
