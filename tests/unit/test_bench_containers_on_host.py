# SPDX-License-Identifier: Apache-2.0
"""The page of containers in the machine that hosts them: what is worse is marked, the goal is judged, the symbols of a
difference are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fakes.fit_run_data import fit_run
from tests.fakes.tools import load_tool

from vmtailor.bench.analysis.boot_counts import FUNCTIONS
from vmtailor.bench.model.results import CLOCK, BenchFailure, BenchFigure, BenchHost, BenchTrial, HostRun, SuiteName

HOST = BenchHost("h", "6.12", "processor", 2, 1 << 34, "x86_64", "v2", kvm=False, virtualised=False)


def tool() -> Any:
    return load_tool("bench_containers_on_host")


def trials(
    runtime: str, test: str, figure: str, values: Sequence[float], unit: str = "instructions", larger: bool = False
) -> list[BenchTrial]:
    suite = {"boot": SuiteName.STARTUP, "syscall": SuiteName.UNIXBENCH}.get(test, SuiteName.MEMORY)
    return [
        BenchTrial(
            suite=suite, test=test, runtime=runtime, count=1, variant=CLOCK, block=block, started_unix_s=0.0,
            seconds=1.0, figures=(BenchFigure(name=figure, value=value, unit=unit, larger_is_better=larger),),
        )
        for block, value in enumerate(values, 1)
    ]  # fmt: skip


def run_of(*parts: list[BenchTrial]) -> HostRun:
    found = [trial for part in parts for trial in part]
    return HostRun(
        host=HOST, image_digest="d", quick=False, seed=1, trials=tuple(found), left_out=("vm:disk/podman: no",)
    )


START = "kernel to its end"
VARYING = (350e6, 356e6, 345e6, 352e6)  # as engines' starts do, by two or three per cent


def test_a_fifth_less_of_the_kernel_is_the_goal() -> None:
    less = run_of(
        trials("vm:disk/docker", "boot", START, VARYING),
        trials("vm:q35-keep/docker", "boot", START, [value * 0.75 for value in VARYING]),
    )
    text = tool().page(less, None, "vm:disk", "vm:q35-keep")
    assert "docker: **The kernel's part of a container's start: 25.0 % less; the goal of 20 % less is held.**" in text
    assert "| startup: boot: kernel to its end |" in text and "better" in text and "worse" not in text
    little = run_of(
        trials("vm:disk/docker", "boot", START, VARYING),
        trials("vm:q35-keep/docker", "boot", START, [value * 1.02 for value in VARYING]),
    )
    text = tool().page(little, None, "vm:disk", "vm:q35-keep")
    assert "2.0 % more; the goal of 20 % less is missed" in text
    none = run_of(trials("vm:disk/docker", "boot", "user to its end", VARYING))
    assert "worse" not in tool().page(none, None, "vm:disk", "vm:q35-keep")


def test_what_is_worse_is_marked_with_the_functions_of_it() -> None:
    kept = [
        *trials("vm:disk/docker", "boot", f"{FUNCTIONS} to its end: clear_page_erms", [1e6] * 4),
        *trials("vm:q35-keep/docker", "boot", f"{FUNCTIONS} to its end: clear_page_erms", [1e6] * 4),
        *trials("vm:disk/docker", "boot", f"{FUNCTIONS} to its end: copy_page", [5e6] * 4),
        *trials("vm:q35-keep/docker", "boot", f"{FUNCTIONS} to its end: copy_page", [9e6] * 4),
        *trials("vm:disk/docker", "boot", f"{FUNCTIONS} to its end: audit_filter", [3e6] * 4),
    ]
    run = run_of(
        trials("vm:disk/docker", "boot", START, VARYING),
        trials("vm:q35-keep/docker", "boot", START, [value * 1.3 for value in VARYING]),
        kept,
        trials("vm:disk/native", "syscall", "kernel a unit", [1000.0, 1000.1], "instructions"),
        trials("vm:q35-keep/native", "syscall", "kernel a unit", [1010.0, 1010.1], "instructions"),
        trials("vm:disk/docker", "density", "started", [20.0, 20.0], "instances", larger=True),
        trials("vm:q35-keep/docker", "density", "started", [24.0, 24.0], "instances", larger=True),
    )
    text = tool().page(run, fit_run(), "vm:disk", "vm:q35-keep")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert "**worse**" in rows["startup: boot: kernel to its end"]
    assert "**worse**" in rows["unixbench: syscall: kernel a unit"]  # two boots are enough: they agree
    assert "better" in rows["memory: density: started"] and "+20.0 %" in rows["memory: density: started"]
    assert "350.0 M instructions of the kernel as it is, 455.3 M as fitted (+30.1 %)." in text
    assert "Came: `copy_page` +4 000." in text and "went: `audit_filter` -3 000." in text
    assert "Worse with 95 % confidence: startup: boot: kernel to its end." in text
    assert "| the host itself | as it is | as fitted |" in text and "- vm:disk/podman: no" in text


def test_few_boots_that_differ_tell_nothing() -> None:
    run = run_of(
        trials("vm:disk/docker", "boot", START, VARYING[:2]),
        trials("vm:q35-keep/docker", "boot", START, [value * 1.3 for value in VARYING[:2]]),
    )
    assert "undecided" in tool().page(run, None, "vm:disk", "vm:q35-keep")
    failed = trials("vm:disk/docker", "boot", START, [1.0])[0]
    failed = BenchTrial(**{**vars(failed), "figures": (), "failure": BenchFailure("in the machine: it did not start")})
    run = HostRun(host=HOST, image_digest="d", quick=False, seed=1, trials=(failed,))
    assert "- vm:disk/docker, startup: boot, instruction clock: in the machine: it did not start" in tool().page(
        run, None, "vm:disk", "vm:q35-keep"
    )


def test_hours_are_said_beforehand() -> None:
    rows = ["native", "docker", "vm:stock"]
    assert 1 < tool().lasting(rows, 4, ["startup", "unixbench", "memory"]) < 10
    assert tool().lasting(rows, 1, ["startup"]) < 0.5
