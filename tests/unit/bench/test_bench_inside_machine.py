# SPDX-License-Identifier: Apache-2.0
"""Engines within a machine: what its guest is told to do, what is counted of it, and what is refused."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.bundle_data import write_bundle
from tests.unit.bench.test_bench_descriptions import strictly_filled
from tests.unit.bench.test_bench_machines import JOB

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import records
from vmtailor.bench.analysis.boot_counts import WITHIN, per_unit, started
from vmtailor.bench.analysis.schedule import PlannedTrial, plan
from vmtailor.bench.model.instance import Limits
from vmtailor.bench.model.job import BenchInside, BenchJob, BenchMachine
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.run import guest_engine
from vmtailor.bench.run.guest_engine import GuestEngine, exercise_of
from vmtailor.bench.run.harness import again as again_words
from vmtailor.bench.run.launch import bench
from vmtailor.bench.run.machine_counts import cannot_tell, machine_tests
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes import guest_runtime as guest
from vmtailor.bench.runtimes.guest_runtime import FAILED, REST_S, in_guest
from vmtailor.model.boots.boot import Boot, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.exercise import StepKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Machine

MACHINE = BenchMachine("vm:engines", Machine("microvm", 1 << 30), "6.12", "/map")
INSIDE = BenchInside(MACHINE, "/over there/engines.raw", "/dev/vda", "ext4", "/sbin/init", False)
WITHIN_JOB = replace(JOB, runtimes=(), machines=(), insides=(INSIDE,), inside_runtimes=("native", "podman"))
EXAMPLES = Path(__file__).parents[3] / "examples/runtimes"
NAMES = (*description.known(), *map(str, sorted(EXAMPLES.glob("*.toml"))))


def asked(name: str, limits: Limits | None = None) -> tuple[str, tuple[str, ...]]:
    found = in_guest(description.load(name), ["/bench/bench", "report"], "bench:1", "/dev/vdb", "/dev/vdc", limits)
    return found.prepare, found.run


@pytest.mark.parametrize("name", NAMES)
def test_every_description_becomes_a_script_that_a_shell_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (description, guest):
        monkeypatch.setattr(module, "filled", strictly_filled)
    script, run = asked(name)
    read = subprocess.run(["sh", "-n"], input=script.encode(), capture_output=True, timeout=20, check=False)
    assert read.returncode == 0, read.stderr
    one = description.load(name)
    if one.root is description.RootForm.BUNDLE:  # its config.json, which the script writes, has the command
        assert '"/bench/bench",' in script
    else:
        assert "/bench/bench" in " ".join(run).split()
    for program in one.programs:
        assert f"command -v {program} >/dev/null || fail" in script
    # The last things before it counts: the command once, and rest.
    assert script.rstrip().endswith(f"sync\nsleep {REST_S}")
    assert all(run) or run[run.index("") - 1] == "--entrypoint"  # an empty entry point is a word, too


def test_what_an_instance_needs_is_made_as_on_a_host() -> None:
    script, run = asked("native")
    made = re.search(r"^must mkdir -p (\S+)/proc \1/sys \1/dev$", script, re.MULTILINE)  # an image may lack them
    assert made is not None and made.end() < script.index("mount --rbind /proc")
    assert "mount --rbind /proc" in script and "cgroup.procs" not in " ".join(run)  # isolates nothing
    script, run = asked("native", Limits(memory_bytes=1 << 20))
    assert "echo 1048576 >/sys/fs/cgroup/bench1/memory.max" in script and "/sys/fs/cgroup/bench1/cgroup.procs" in run
    script, run = asked("nspawn")
    assert "mount -t overlay" in script and "/sys/fs/cgroup/bench1/cgroup.procs" in run
    # Each in a cgroup of its own: nspawn passes controllers on in the first, which nobody enters again.
    assert "/sys/fs/cgroup/bench0/cgroup.procs systemd-nspawn" in script and "bench0" not in " ".join(run)
    assert script.count("systemd-nspawn --quiet") == 1
    script, run = asked("podman")
    assert run[:2] == ("env", "CONTAINERS_CONF=/var/lib/vmtailor-bench/podman/containers.conf")
    assert "load --quiet --input /run/vmtailor-ours/image.tar" in script and "overlay," not in script
    script, _ = asked("docker", Limits(pids=7))
    assert "until docker" in script and "--pids-limit 7" in script
    script, _ = asked(str(EXAMPLES / "crun.toml"))
    assert '"cgroupsPath": "/bench1"' in script


@pytest.mark.lengthy
def test_a_script_runs_once_and_says_what_is_wrong(tmp_path: Path) -> None:
    script, _ = asked("docker")
    here = script.replace("/run/vmtailor-bench", f"{tmp_path}/b").replace("mount -o remount,rw /\n", "")
    fake = tmp_path / "systemctl"  # it is not up when it is asked first
    fake.write_text(f"#!/bin/sh\n[ -e {tmp_path}/asked ] && echo degraded || echo starting\n: >{tmp_path}/asked\n")
    fake.chmod(0o755)
    here = here.replace("\nPATH=", f"\nPATH={tmp_path}:")
    here = here.replace("command -v docker ", "command -v no-such-docker ")
    for _ in range(2):
        assert subprocess.run(["sh", "-c", here], timeout=20, check=False).returncode == 0
    assert (tmp_path / "b.log").read_text() == f"{FAILED}docker is not there\n"


def test_the_command_is_the_load_and_all_else_comes_before() -> None:
    found = in_guest(description.load("nspawn"), ["/bench/bench", "null"], "bench:1", "/dev/vdb", "/dev/vdc")
    exercise = exercise_of(found)
    assert exercise.ready.step is not None and exercise.ready.step.argv == ("sh", "-c", found.prepare)
    assert [(step.kind, step.argv) for step in exercise.load] == [(StepKind.COMMAND, found.run)]
    assert exercise.load[0].expect.exit_code == 0


def boot(kernel: int, user: int, end_ns: int) -> Boot:
    phases = (
        PhaseCounts(Phase.KERNEL, 10**9, 0, port_accesses=99, mmio_accesses=99),
        PhaseCounts(Phase.LOAD, kernel, user, port_accesses=3, mmio_accesses=1),
    )
    return Boot(Outcome.READY, (Milestone("load", 0, 1000), Milestone("load_end", 0, end_ns)), 1.0, phases=phases)


def test_only_what_runs_within_is_counted() -> None:
    start = {figure.name: figure.value for figure in started(boot(700, 70, 3000), {}, (WITHIN,))}
    assert start == {
        "kernel to its end": 700.0, "user to its end": 70.0, "devices to its end": 4.0, "virtual time to its end": 2e-6,
    }  # fmt: skip
    unit = {figure.name: figure.value for figure in per_unit(boot(700, 70, 3000), boot(1700, 90, 4000), 10, {}, WITHIN)}
    assert unit == {"kernel a unit": 100.0, "user a unit": 2.0, "devices a unit": 0.0, "virtual time a unit": 1e-7}


def test_rows_are_engines_of_the_machine_and_their_cells_have_their_command(tmp_path: Path) -> None:
    rows = [GuestEngine(INSIDE, description.load(name), tmp_path).name for name in WITHIN_JOB.inside_runtimes]
    assert rows == ["vm:engines/native", "vm:engines/podman"]
    planned = plan(machine_tests(WITHIN_JOB), rows, 2, 1)
    assert {trial.runtime for trial in planned} == set(rows)
    words = shlex.join(again_words(WITHIN_JOB, PlannedTrial(planned[0].test, rows[1], 1)))
    assert "--on podman --inside 'vm:/over there/engines.raw' --only boot" in words
    said = cannot_tell(WITHIN_JOB)
    for suite in ("efficiency", "memory", "isolation", "unixbench dhry2reg"):
        assert any(text.startswith(f"vm:engines/…: {suite}") for text in said)
    records.save(WITHIN_JOB, tmp_path / "job.json")
    assert records.load(BenchJob, tmp_path / "job.json") == WITHIN_JOB


def gathered(log: str) -> Gathered:
    end = End(Ending.EXITED, "qemu", "", "", 1.0, 0)
    return Gathered(end, 0.0, GuestReport(files=(("bench-log", log),)), b"", ())


def test_what_the_guest_says_is_wrong_is_the_reason_of_the_cell() -> None:
    fine = boot(1, 1, 2)
    assert guest_engine._right(fine, gathered("loaded\n")) is fine
    with pytest.raises(GuestError, match="in the machine: docker is not there"):
        guest_engine._right(fine, gathered(f"starting\n{FAILED}docker is not there\n"))
    log = "loaded\n\ncause: no such cgroup\nwaited in vain\nno container\n" + FAILED + "docker run " + "x" * 400 + "\n"
    with pytest.raises(GuestError, match=r"x; it said: loaded; cause: no such cgroup; waited in vain; no container$"):
        guest_engine._right(fine, gathered(log))
    with pytest.raises(GuestError, match="load step 1") as found:
        guest_engine._right(replace(fine, failures=("load step 1 (podman)",)), gathered("words of podman"))
    assert "words of podman" in found.value.details


@pytest.mark.parametrize(
    ("inside", "on", "words"),
    [
        ("engines.raw", ("native",), "names no machine"),
        ("vm:", ("native",), "names no machine"),
        ("vm:nowhere.raw", ("native",), "is not a disk"),
        ("vm:{}", ("native",), "is not a disk image"),
        ("vm:{}/bundle", ("native",), "is the bundle of a container"),
        ("vm:{}/there+vm:{}/there", ("native",), "two machines have one name"),
        ("vm:{}/there", ("vm:stock",), "needs an engine that runs in the machine"),
    ],
)
def test_what_cannot_be_entered_is_refused(tmp_path: Path, inside: str, on: tuple[str, ...], words: str) -> None:
    (tmp_path / "short").write_bytes(b"no disk")
    (tmp_path / "there").write_bytes(bytes(4096))
    write_bundle(tmp_path / "bundle")
    for name in ("there", "bundle"):
        inside = inside.replace(f"{{}}/{name}", str(tmp_path / name))
    insides = inside.replace("{}", str(tmp_path / "short")).split("+")
    job = BenchJob((SuiteName.STARTUP,), on, (1,), 10, False, 1, out=str(tmp_path / "b.json"))
    with pytest.raises(UserInputError, match=words):
        bench(job, Store(tmp_path / "c"), insides=insides)
