# SPDX-License-Identifier: Apache-2.0
"""Images of another processor than this host's, fitted from their building on: with packages of that architecture, a
cross-compiled kernel, and the same proof. The smallest in any test run, of which it is the second cold fit; lighttpd
where time does not matter."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.asking import answered
from tests.fakes.program import assert_nothing_left, finish, run_program, started
from tests.system.conftest import EXAMPLES, FIT_S

from vmtailor.base.files import records
from vmtailor.drivers.host import host_client
from vmtailor.model.architecture import Architecture, named
from vmtailor.model.bundle import Bundle
from vmtailor.model.fit_run import FitRun
from vmtailor.model.plan import Plan
from vmtailor.model.trace import Trace
from vmtailor.pipeline import kernel_repair
from vmtailor.pipeline.image_subject import prepare
from vmtailor.pipeline.options import FitOptions

pytestmark = pytest.mark.system
#: What the server waits by; it has another way, which is slower.
LACKING = "EPOLL"
#: Share of the instructions that a function, a file and a symbol are told of.
ATTRIBUTED = 0.95


@dataclass(frozen=True)
class Goal:
    """The most that a tailored kernel may have: instructions on the way to init, net; bytes of its file; least memory
    of lighttpd's machine in bytes (docs/explanation/results.md)."""

    instructions: float
    kernel_bytes: float
    memory_bytes: int


GOALS = {"arm64": Goal(30e6, 5e6, 24 << 20), "mips64el": Goal(60e6, 6e6, 48 << 20)}
#: What is fitted here; the last has no goals.
FITTED = (*GOALS, "riscv64")


@dataclass(frozen=True)
class Foreign:
    """An image of another processor, fitted. `document` is what `fit --json` printed."""

    row: Architecture
    bundle: Path
    document: dict[str, Any]


def require(row: Architecture) -> None:
    for program in (row.emulator.program, f"{row.kernel.cross}gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not here")


def fitted(name: str, architecture: str, folder: Path, *more: str) -> Foreign:
    row = named(architecture)
    require(row)
    layout, bundle = folder / "layout", folder / "bundle"
    build = [sys.executable, str(EXAMPLES / "build.py"), name, str(layout), "--arch", architecture]
    subprocess.run(build, check=True, timeout=600)
    arguments = ("fit", f"oci:{layout}", "--exercise", EXAMPLES / name / "exercise.toml", "--margin", "none", "--json")
    ended = run_program(folder, *arguments, *more, "--repeat", "2", "-o", bundle, timeout_s=FIT_S)
    assert ended.code == 0, f"the fit failed with {ended.code}:\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    assert_nothing_left(ended)
    return Foreign(row, bundle, json.loads(ended.stdout))


@pytest.fixture(scope="module")
def hello_arm64(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return fitted("hello", "arm64", tmp_path_factory.mktemp("arm64"))


@pytest.fixture(scope="module", params=FITTED)
def lighttpd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return fitted("lighttpd", request.param, tmp_path_factory.mktemp(request.param))


def check(foreign: Foreign) -> None:
    """What holds for every fit of another processor."""
    document, bundle = foreign.document, foreign.bundle
    assert document["verified"] is True and document["unexplained"] == 0 and document["degraded"] == []
    record = records.load(Bundle, bundle / "bundle.json")
    assert record.architecture == foreign.row.name and record.machine == foreign.row.board_names[0]
    assert record.kernel == Path(foreign.row.kernel.file).name
    for side in ("baseline", "tailored"):
        assert document[side]["init_instructions"] > 0 and document[side]["device_accesses"] > 0
    assert document["tailored"]["init_instructions"] < document["baseline"]["init_instructions"] / 4
    run = records.load(FitRun, bundle / "run.json")
    for one in (run.baseline, run.tailored):
        assert dict(one.spread)["init_instructions"] == 0.0 == dict(one.spread)["ready_instructions"], one.name
    plan = records.load(Plan, bundle / "plan.json")
    assert all(symbol.reasons for symbol in plan.symbols)
    assert records.load(Trace, bundle / "trace" / "trace.json").cpu_model == foreign.row.emulator.cpu_model


def within_goals(foreign: Foreign) -> None:
    tailored, goal = foreign.document["tailored"], GOALS.get(foreign.row.name)
    if goal is None:
        return
    assert tailored["init_instructions_net"] <= goal.instructions and tailored["kernel_bytes"] <= goal.kernel_bytes
    assert tailored["min_memory_bytes"] <= goal.memory_bytes


def test_hello_for_arm64(hello_arm64: Foreign) -> None:
    check(hello_arm64)
    within_goals(hello_arm64)


def test_it_runs_with_the_programs_own_exit_code(hello_arm64: Foreign, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", hello_arm64.bundle)
    assert (ended.code, ended.stdout) == (3, "Hello from a machine made to measure.\n"), ended.stderr
    assert_nothing_left(ended)


@pytest.mark.slow
def test_it_works_under_kvm_in_the_lab_for_arm64(hello_arm64: Foreign, tmp_path: Path) -> None:
    """The exercise, and every system call, where QEMU emulates arm64's level of hypervisors."""
    build = [sys.executable, str(EXAMPLES.parent / "tools" / "lab.py"), "--arch", "arm64"]
    subprocess.run(build, check=True, stdout=subprocess.PIPE, timeout=1500)
    ended = run_program(tmp_path, "verify", hello_arm64.bundle, "--on", "qemu", "--lab", "--json", timeout_s=900.0)
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["verified"] and found["on"] == "lab/qemu" and not found["failures"]
    assert_nothing_left(ended)
    ended = run_program(tmp_path, "verify", hello_arm64.bundle, "--on", "libkrun", "--lab")
    assert ended.code == 3 and "the lab has no libkrun" in ended.stderr and "there are: qemu" in ended.stderr


def test_every_symbol_of_its_kernel_is_explained(hello_arm64: Foreign, tmp_path: Path) -> None:
    for name, words in (("SERIAL_AMBA_PL011", "serial line"), ("ARM64_PTR_AUTH", "signed")):
        ended = run_program(tmp_path, "explain", hello_arm64.bundle, name)
        assert ended.code == 0 and words in " ".join(ended.stdout.split()), ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FITTED if name != "arm64"])
def test_hello_for_others(name: str, tmp_path: Path) -> None:
    foreign = fitted("hello", name, tmp_path)
    check(foreign)
    within_goals(foreign)
    ended = run_program(tmp_path, "run", foreign.bundle)
    assert (ended.code, ended.stdout) == (3, "Hello from a machine made to measure.\n"), ended.stderr
    assert_nothing_left(ended)
    words = ("boot", foreign.bundle, "--clock", "instructions", "-n", "2", "--json", "-o", tmp_path / "out")
    ended = run_program(tmp_path, *words, timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr[-2000:]
    first, second = (
        [(m["name"], m["virtual_ns"]) for m in one["boot"]["milestones"]] for one in boots_of(ended.stdout)
    )
    assert first == second and dict(first)["ready"] > dict(first)["init"] > 0
    assert_nothing_left(ended)


@pytest.mark.slow
def test_hello_for_arm64_on_the_other_packaged_kernel(tmp_path: Path) -> None:
    """The kernel of Debian 12 itself, older than the one that is preferred: its calls are in a header, its image
    elsewhere. The same goals, and the same protection as far as it has it."""
    foreign = fitted("hello", "arm64", tmp_path, "--kernel", "6.1")
    check(foreign)
    within_goals(foreign)
    plan = records.load(Plan, foreign.bundle / "plan.json")
    assert plan.kernel_version.startswith("6.1.")
    for name in ("UNMAP_KERNEL_AT_EL0", "ARM64_E0PD", "ARM64_PTR_AUTH_KERNEL", "ARM64_BTI"):
        symbol = plan.symbol(name)
        assert symbol is not None and symbol.is_kept, name
    ended = run_program(tmp_path, "run", foreign.bundle)
    assert (ended.code, ended.stdout) == (3, "Hello from a machine made to measure.\n"), ended.stderr
    assert_nothing_left(ended)


@pytest.mark.slow
def test_what_each_part_of_its_kernel_costs_is_told(lighttpd: Foreign, tmp_path: Path) -> None:
    """The kernel once more, with debug information: function and file of what was executed, and the symbol that has it
    built, where it is not built in any case."""
    words = ("boot", lighttpd.bundle, "--attribute", "--json", "-o", tmp_path / "out")
    ended = run_program(tmp_path, *words, timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr[-2000:]
    cost = json.loads(ended.stdout)
    told = [row for row in cost["functions"] if row["file"]]
    assert sum(row["instructions"] for row in told) >= ATTRIBUTED * cost["total"]
    assert any(row["symbol"] for row in told)


@pytest.mark.slow
def test_lighttpd(lighttpd: Foreign, tmp_path: Path) -> None:
    """Goals of the published table; and a request through a published port."""
    check(lighttpd)
    within_goals(lighttpd)
    port = host_client.free_port()
    with started(tmp_path, "run", "-p", f"127.0.0.1:{port}:80", lighttpd.bundle) as running:
        assert b"made to measure" in answered(f"http://127.0.0.1:{port}/")
        running.process.send_signal(signal.SIGTERM)
        assert_nothing_left(finish(running, 60.0))


@pytest.mark.slow
def test_changes_are_tried_on_its_bundle(lighttpd: Foreign, tmp_path: Path) -> None:
    """A word of the command line, counted exactly; and what says why it cannot be tried."""
    words = ("--judge", "instructions", "-n", "1", "--try", "rcu-expedited,SOUND=n,cron,pci-or-mmio", "--json")
    ended = run_program(tmp_path, "boot", lighttpd.bundle, *words, "-o", tmp_path / "out", timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr[-2000:]
    trials = {one["id"]: one for one in json.loads(ended.stdout)["trials"]}
    measured = trials["rcu-expedited"]["measured"][0]
    assert measured["low"] == measured["high"] and trials["rcu-expedited"]["verdict"] in ("better", "worse", "same")
    assert trials["SOUND=n"]["problem"] == "the machine is like this already"
    assert "no units" in trials["cron"]["problem"]
    foreign = f"pci-or-mmio is for x86_64, and this machine is of {lighttpd.row.name}"
    assert trials["pci-or-mmio"]["problem"] == foreign
    assert_nothing_left(ended)


@pytest.mark.slow
def test_what_lighttpd_lacks_is_put_back(lighttpd: Foreign, tmp_path: Path, forget: Callable[[str], None]) -> None:
    """A rule is taken away, so that the plan lacks what the server asks for."""
    forget(LACKING)
    exercise = EXAMPLES / "lighttpd" / "exercise.toml"
    reference = f"oci:{lighttpd.bundle.parent / 'layout'}"
    findings = prepare(FitOptions(reference, tmp_path / "bundle", exercise_file=exercise, margins=())).trace()
    repaired = kernel_repair.fit_kernel(findings)
    first, *_, last = findings.trials
    assert not first.passed and any("epoll" in failure for failure in first.failures), first
    assert last.passed and last.purpose == "repair"
    assert (LACKING, "y", "better") in [(change.id, change.value, change.verdict) for change in last.changes]
    assert repaired.verification.passed and repaired.plan.unexplained == ()


def boots_of(document: str) -> list[dict[str, Any]]:
    boots: list[dict[str, Any]] = json.loads(document)["boots"]
    assert [one["boot"]["outcome"] for one in boots] == ["ready"] * len(boots)
    return boots
