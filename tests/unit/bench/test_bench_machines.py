# SPDX-License-Identifier: Apache-2.0
"""Machines on the instruction clock: what is counted of them, what is not, and what they are set beside."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.bench.analysis.benchmarks import INDEX
from vmtailor.bench.analysis.boot_counts import per_unit, timed_start
from vmtailor.bench.analysis.cells import cells, compared_with
from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.analysis.weighted_ranks import advise
from vmtailor.bench.cli.result_tables import cell_table
from vmtailor.bench.model.job import STOCK, BenchJob, BenchMachine
from vmtailor.bench.model.results import CLOCK, BenchFigure, BenchHost, BenchTrial, HostRun, RuntimeIdentity, SuiteName
from vmtailor.bench.run import image_machine
from vmtailor.bench.run.bench_rows import MachineRow
from vmtailor.bench.run.harness import again as again_words
from vmtailor.bench.run.image_machine import ImageMachine
from vmtailor.bench.run.launch import bench
from vmtailor.bench.run.machine_counts import cannot_tell, machine_tests, timed_too
from vmtailor.bench.suites.bench_run import BenchRun
from vmtailor.bench.suites.startup import Startup
from vmtailor.bench.suites.unixbench import UnixBench
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.model.boots.boot import Boot, ContainerRun, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.bundle import Bundle
from vmtailor.model.change import Verdict
from vmtailor.model.machine import Accelerator, Machine

MACHINE = BenchMachine(STOCK, Machine("microvm", 256 << 20), "6.12", "/map")
BUNDLE = BenchMachine("vm:mine", Machine("microvm", 256 << 20), "6.12", folder="/over/there/mine")
SAVED = Path(__file__).parents[2] / "data/saved/container"
JOB = BenchJob(
    tuple(SuiteName), ("native",), (1,), 6, True, 1, "", "", "", "", "", "", machines=(MACHINE, BUNDLE)
)  # fmt: skip


def again(job: BenchJob, one: PlannedTrial) -> str:
    return shlex.join(again_words(job, one))


def boot(kernel: int, user: int, ports: int, end_ns: int) -> Boot:
    phases = (
        PhaseCounts(Phase.KERNEL, 1000, 10, port_accesses=5, mmio_accesses=1),
        PhaseCounts(Phase.START_UP, kernel, user, port_accesses=ports, mmio_accesses=0),
    )
    marks = (Milestone("entry", 1010, 1010), Milestone("ready", 0, end_ns))
    return Boot(Outcome.READY, marks, 1.0, phases=phases)


def test_a_unit_costs_what_so_many_more_of_it_do() -> None:
    found = {
        figure.name: figure.value for figure in per_unit(boot(700, 70, 30, 2010), boot(1700, 90, 40, 3010), 10, {})
    }
    assert found == {
        "kernel a unit": 100.0, "user a unit": 2.0, "devices a unit": 1.0, "virtual time a unit": 1e-7,
    }  # fmt: skip


def test_machines_are_compared_with_the_stock_one_and_exactly() -> None:
    trials = [
        BenchTrial(SuiteName.STARTUP, "boot", name, 1, CLOCK, block, 0.0, 1.0, (BenchFigure("kernel", value, "i"),))
        for name, value in ((STOCK, 2000.0), ("vm:mine", 500.0))
        for block in (1, 2)
    ]
    native = BenchTrial(SuiteName.STARTUP, "report", "native", 1, "warm", 1, 0.0, 1.0, (BenchFigure("exit", 1.0, "s"),))
    found = {cell.key.runtime: cell for cell in cells([*trials, native])}
    assert found[STOCK].against is None and found["native"].against is None
    assert found["vm:mine"].against is not None
    assert found["vm:mine"].against.ratio == 0.25 and found["vm:mine"].against.verdict is Verdict.BETTER
    assert compared_with([*found.values()]) == STOCK
    # Where the stock machine was not measured there is no ratio, and none is spoken of.
    alone = cells([trial for trial in trials if trial.runtime != STOCK])
    assert compared_with(alone) == "" and alone[0].against is None
    assert [column.header for column in cell_table("", alone, {}).columns][4] == ""
    assert [column.header for column in cell_table("", [*found.values()][:2], {}).columns][4] == "to vm:stock"
    host = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
    run = HostRun(host, "sha256:0", True, 1, (), (RuntimeIdentity("native"),), (*trials, native))
    ranked = advise(run, {"startup": 1.0})  # what nobody else has is not ranked
    assert not any("vm:" in text for text in ranked.left_out)


def test_what_emulation_cannot_tell_is_said() -> None:
    found = machine_tests(JOB)
    assert {test.variant for test in found} == {CLOCK}
    assert {test.suite for test in found} == {SuiteName.STARTUP, SuiteName.UNIXBENCH}
    assert not {"dhry2reg", "whetstone-double"} & {test.test for test in found}
    words = cannot_tell(JOB)
    for name in (STOCK, "vm:mine"):
        for suite in ("efficiency", "memory", "isolation"):
            assert f"{name}: {suite}: cannot tell without KVM: emulated time is not virtualised time" in words
        assert f"{name}: unixbench dhry2reg, whetstone-double: cannot tell without KVM" in words
    assert [test.test for test in machine_tests(replace(JOB, only=("boot",)))] == ["boot"]


def test_where_kvm_works_machines_are_timed_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = replace(JOB, quick=False, kvm=True)
    wall = [*Startup().tests(full), *UnixBench().tests(full)]
    timed = [test for test in wall if timed_too(test)]
    assert {test.test for test in timed} == {"report", *INDEX} and len(timed) == 13
    assert {test.variant for test in timed} == {"warm", "our set, 1 copy, one core"}  # a machine here has one processor
    assert not any("cannot tell" in text for text in cannot_tell(full))
    found = Boot(Outcome.READY, (Milestone("entry", wall_s=0.2),), 0.5)
    assert timed_start(found) == {"exit": 0.5, "program started": 0.2}
    job = BenchJob((SuiteName.STARTUP,), (STOCK,), (1,), 10, False, 1, out=str(tmp_path / "b.json"))
    verdict = KvmVerdict(KvmState.HANGS, "the guest hung")
    monkeypatch.setattr(monitors.usual(), "kvm", lambda: verdict)
    with pytest.raises(HostError, match="KVM does not work here: the guest hung"):
        bench(job, Store(tmp_path / "c"), require_kvm=True)


@pytest.mark.parametrize(("kvm", "way"), [(True, "timed"), (False, "run")])
def test_a_machine_is_asked_what_it_is_under_kvm_where_that_works(tmp_path: Path, kvm: bool, way: str) -> None:
    asked = []

    class Asked(ImageMachine):
        def timed(self, words: Sequence[str], accelerator: Accelerator = Accelerator.KVM) -> Boot:
            asked.append(("timed", *words))
            return Boot(Outcome.READY, (), 0.5, container=ContainerRun(0, True, stdout="none"))

        def run(self, words: Sequence[str]) -> Boot:
            asked.append(("run", *words))
            return Boot(Outcome.READY, (), 0.5, container=ContainerRun(0, True, stdout="none"))

    cgroups: Any = None
    run = BenchRun(job=replace(JOB, kvm=kvm), folder=tmp_path, cgroups=cgroups, here={})
    assert MachineRow(run, Asked(MACHINE, tmp_path)).identity().problem == "it did not report what it is"
    assert asked == [(way, "/bench/bench", "report")]


def test_a_cell_of_a_machine_has_its_own_command(tmp_path: Path) -> None:
    test = machine_tests(JOB)[0]
    assert again(JOB, PlannedTrial(test, STOCK, 1)).startswith("vmtailor bench startup --on vm:stock --only boot")
    assert "--on vm:/over/there/mine" in again(JOB, PlannedTrial(test, "vm:mine", 1))
    own = replace(JOB, reference="oci:mine")
    assert again(own, PlannedTrial(test, STOCK, 1)).endswith(
        "--image oci:mine -o again.json"
    )  # never into its own file
    records.save(JOB, tmp_path / "job.json")
    assert records.load(BenchJob, tmp_path / "job.json") == JOB


def test_a_bundle_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="no such bundle"):
        image_machine.check([f"vm:{tmp_path / 'nowhere'}"])
    with pytest.raises(UserInputError):
        image_machine.check([f"vm:{tmp_path}"])  # a folder, and no bundle
    image_machine.check([STOCK, "native"])


def test_another_fit_of_the_same_machine_is_the_same_machine(own_cache: Store) -> None:
    bundle = bundle_folder.load_container(SAVED, own_cache).bundle
    digits = image_machine.machine_digest(bundle)
    assert len(digits) == 12

    def with_other(name: str) -> Bundle:
        files = tuple(replace(one, sha256="0" * 64) if one.name == name else one for one in bundle.files)
        assert files != bundle.files
        return replace(bundle, files=files)

    # The record of a fit holds times: `make bench-lab` fits the demo again, and still goes on with its results.
    again = replace(with_other("run.json"), name="other", image_reference="oci:/elsewhere", sources=())
    assert image_machine.machine_digest(again) == digits
    for other in (with_other(bundle.kernel), with_other(bundle.root), replace(bundle, words=(*bundle.words, "nosmp"))):
        assert image_machine.machine_digest(other) != digits
