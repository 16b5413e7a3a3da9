# SPDX-License-Identifier: Apache-2.0
"""Monitors within a machine: what each is told to start, what is counted of it, how its machine's words are judged, and
what is refused."""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from tests.unit.bench.test_bench_inside_machine import INSIDE, WITHIN_JOB
from tests.unit.test_attribution_boot import counters as counters_of
from tests.unit.test_attribution_boot import stretch

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.bench.analysis.boot_counts import PROGRAM, WITHIN, per_unit, started, to_program
from vmtailor.bench.analysis.cells import cells
from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.analysis.starts_within import HEADER, TITLE, starts_within
from vmtailor.bench.model.job import BenchJob, BenchMonitor
from vmtailor.bench.model.results import (
    CLOCK,
    BenchFigure,
    BenchHost,
    BenchResults,
    BenchTrial,
    HostRun,
    RuntimeIdentity,
    SuiteName,
)
from vmtailor.bench.pages.bench_page import bench_page
from vmtailor.bench.run import launch, machine_monitors
from vmtailor.bench.run.bench_rows import MonitoredRow
from vmtailor.bench.run.counted_work import WITHIN_WORK
from vmtailor.bench.run.harness import again as again_words
from vmtailor.bench.run.launch import bench
from vmtailor.bench.run.machine_counts import cannot_tell, counted_trial, machine_tests
from vmtailor.bench.run.machine_monitors import ReadyMonitor, StartedMachine, is_monitor, with_monitors
from vmtailor.bench.run.monitor_engine import MonitorEngine, described
from vmtailor.bench.runtimes.guest_runtime import ABSENT, FAILED
from vmtailor.drivers.guest.wire import FromGuest, encode
from vmtailor.model.boots.boot import Boot, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.counters import GuestTotals, SpanReached, Totals
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.boots.workload import FIXED_KEY
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Accelerator, Disk, Machine

ROW = BenchMonitor(
    name="kvm:mine", asked="kvm:/over there/mine", title="QEMU", argv=("qemu-system-x86_64", "-kernel", "/a b"),
    files=(("/run/vmtailor-monitor/config.json", '{"a": "it\'s"}'),), version=("qemu-system-x86_64", "--version"),
    machine="Linux 6.12",
)  # fmt: skip
HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
KNOWN = replace(INSIDE, monitors=(ROW,))
KRUN_START = "native/krun-start/krun-start.c"
BUNDLE = Path(__file__).parents[2] / "data/saved/container"


def engine(tmp_path: Path) -> MonitorEngine:
    return MonitorEngine(KNOWN, described(ROW, ()), tmp_path, monitor=ROW)


def test_what_makes_a_monitor_ready_is_a_script_that_a_shell_reads(tmp_path: Path) -> None:
    asked = engine(tmp_path).asked(["/bench/bench", "report"])
    read = subprocess.run(["sh", "-n"], input=asked.prepare.encode(), capture_output=True, timeout=20, check=False)
    assert read.returncode == 0, read.stderr
    assert "must modprobe kvm_amd" in asked.prepare
    assert f"command -v qemu-system-x86_64 >/dev/null || {FAILED[:4]}" in asked.prepare
    (orders,) = (word for line in asked.prepare.splitlines() if "base64 -d" in line for word in shlex.split(line)[-1:])
    told = base64.b64decode(orders.split()[1])
    assert told.startswith(b"vtrun ") and b"arg /bench/bench\0arg report\0" in told and len(told) % 512 == 0
    # The key is put back before the run that counts, and outside of it.
    assert asked.prepare.index("cp /run/vmtailor-monitor/copy") > asked.prepare.index('exec "$0"')
    assert asked.run[-3:] == ROW.argv and "cp " not in asked.run[2]


def boot(user: int, guest: int, entries: int) -> Boot:
    row = PhaseCounts(
        Phase.LOAD, 500, user, port_accesses=3, mmio_accesses=1, guest=guest, entries=entries
    )  # fmt: skip
    return Boot(Outcome.READY, (Milestone("load", 0, 0), Milestone("load_end", 0, 10**9)), 1.0, phases=(row,))


def test_a_machine_in_the_machine_is_counted_apart() -> None:
    start = {figure.name: figure.value for figure in started(boot(70, 9000, 12), {}, (WITHIN,))}
    assert start["guest to its end"] == 9000 and start["exits to its end"] == 12 and start["kernel to its end"] == 500
    unit = {figure.name: figure.value for figure in per_unit(boot(70, 9000, 12), boot(70, 9500, 32), 10, {}, WITHIN)}
    assert unit["guest a unit"] == 50 and unit["exits a unit"] == 2


def said(*frames: tuple[FromGuest, bytes]) -> bytes:
    return b"".join(encode(kind, data, number, FIXED_KEY) for number, (kind, data) in enumerate(frames))


def gathered(line: bytes, words: str = "") -> Gathered:
    files = (("bench-serial", base64.encodebytes(line).decode()), ("bench-monitor", words))
    return Gathered(End(Ending.EXITED, "qemu", "", "", 1.0, 0), 0.0, GuestReport(files=files), b"", ())


def test_what_the_machine_in_the_machine_says_is_judged(tmp_path: Path) -> None:
    one = engine(tmp_path)
    fine = said((FromGuest.STDOUT, b'{"kernel"'), (FromGuest.STDOUT, b": 1}\n"), (FromGuest.EXIT, b"0 0 "))
    assert one.output(gathered(b"a line of the kernel\n" + fine)) == b'{"kernel": 1}\n'
    with pytest.raises(GuestError, match="that QEMU started: its command ended with 3"):
        one.output(gathered(said((FromGuest.EXIT, b"3 0 "))))
    with pytest.raises(GuestError, match="init gave up: no disk"):
        one.output(gathered(said((FromGuest.FATAL, b"VIRTIO_BLK\0no disk"))))
    with pytest.raises(GuestError, match="did not come to its end") as found:
        one.output(gathered(b"Kernel panic - not syncing\n", "Could not access KVM"))
    assert "Kernel panic" in found.value.details and "Could not access KVM" in found.value.details
    # Whoever has not the key cannot say that it went well.
    forged = b"".join(encode(FromGuest.EXIT, b"0 0 ", number) for number in range(2))
    with pytest.raises(GuestError, match="did not come to its end"):
        one.output(gathered(forged))
    nothing = gathered(b"")
    with pytest.raises(GuestError, match="did not come to its end"):
        one.output(replace(nothing, report=GuestReport(files=(("bench-serial", "no base64 *"),))))


def test_a_failure_has_the_commands_own_words_and_says_whose_kernel_it_was(tmp_path: Path) -> None:
    line = said((FromGuest.STDERR, b"first\nbench: mmap: \x1b[1mrefused\n"), (FromGuest.EXIT, b"1 0 "))
    with pytest.raises(GuestError) as found:
        engine(tmp_path).output(gathered(line))
    own = "in the machine that QEMU started: its command ended with 1: bench: mmap: \\x1b[1mrefused"
    assert found.value.message == own
    with pytest.raises(GuestError) as found:
        replace(engine(tmp_path), monitor=replace(ROW, lent=True)).output(gathered(line))
    lent = "its kernel was fitted to another image, and may lack what this one needs: `make bench-bundle` fits this one"
    assert found.value.message == f"{own}; {lent}"


@pytest.mark.parametrize("lent", [False, True])
def test_a_report_without_proc_is_a_problem_that_names_it(tmp_path: Path, lent: bool) -> None:
    report = b'{"schema": "vmtailor/bench-report/1", "kernel": "6.12", "program_sha256": ""}\n'
    line = said((FromGuest.STDOUT, report), (FromGuest.EXIT, b"0 0 "))
    files = (*gathered(line).report.files, ("bench-here", report.decode()))
    told = replace(gathered(line), report=GuestReport(files=files))

    class Reporting(MonitorEngine):
        def driven(self, *_: object, **__: object) -> tuple[Boot, Gathered]:
            return boot(1, 1, 1), told

    row = replace(ROW, lent=lent)
    problem = Reporting(KNOWN, described(row, ()), tmp_path, monitor=row).identity("ab").problem
    assert problem.startswith("it cannot tell which program ran: it has no /proc")
    assert problem.endswith("`make bench-bundle` fits this one") is lent


def test_the_version_of_a_row_is_whole(tmp_path: Path) -> None:
    version = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1"
    report = b'{"kernel": "6.12", "program_sha256": "ab"}\n'
    came = gathered(said((FromGuest.STDOUT, report), (FromGuest.EXIT, b"0 0 ")))
    files = (*came.report.files, ("bench-version", version), ("bench-here", report.decode()))
    came = replace(came, report=GuestReport(files=files))

    class Driven(MonitorEngine):
        def driven(self, *_: object, **__: object) -> tuple[Boot, Gathered]:
            return boot(1, 1, 1), came

    one = Driven(KNOWN, described(ROW, ()), tmp_path, monitor=ROW)
    found = one.identity("ab")
    assert found.version == f"{version} {one.where}"


def test_a_disk_without_the_monitor_names_the_command_that_builds_one(tmp_path: Path) -> None:
    came = gathered(b"")

    class Lacking(MonitorEngine):
        log = f"{FAILED}qemu-system-x86_64 {ABSENT}"

        def driven(self, *_: object, **__: object) -> tuple[Boot, Gathered]:
            return boot(1, 1, 1), replace(came, report=GuestReport(files=(("bench-log", self.log),)))

    one = Lacking(KNOWN, described(ROW, ()), tmp_path, monitor=ROW)
    problem = one.identity("ab").problem
    assert problem.startswith("in the machine: qemu-system-x86_64 is not there (`make bench-lab` builds")
    Lacking.log = f"{FAILED}test -e /dev/kvm"
    assert "bench-lab" not in one.identity("ab").problem
    assert "fitted to" not in replace(one, monitor=replace(ROW, lent=True)).identity("ab").problem


@pytest.mark.parametrize("name", ["kvm", "libkrun", "firecracker"])
def test_a_bundles_machine_is_started_from_our_disk(tmp_path: Path, name: str) -> None:
    program = tmp_path / "program"
    program.touch()
    machine = Machine(
        "microvm", 64 << 20, kernel="/b/vmlinux", words=("root=/dev/vda",), disks=(Disk("/b/root.erofs"),), network=True
    )
    one = machine_monitors._placed(f"{name}:/b/mine", 2, StartedMachine(machine, "Linux 6.12", 4096), None)
    assert (one.row.name, one.row.entry, one.memory_bytes) == (f"{name}:mine", 4096, 64 << 20)
    assert {entry.path: entry.data for entry in one.entries} == {
        "m2-kernel": Path("/b/vmlinux"), "m2-root": Path("/b/root.erofs"),
    }  # fmt: skip
    text = " ".join([*one.row.argv, *(content for _, content in one.row.files)])
    for wanted in ("/run/vmtailor-ours/m2-kernel", "/run/vmtailor-ours/m2-root", "/run/vmtailor-monitor/orders"):
        assert wanted in text
    assert "VT_RUN=1" in text and "tap" not in text
    given = machine_monitors._placed(f"{name}:/b/mine", 0, StartedMachine(machine, "Linux 6.12", 4096), program)
    assert given.row.argv[0] == "/run/vmtailor-ours/m0-program" and given.row.argv[1:] != ()
    assert given.entries[-1].data == program and given.entries[-1].mode == 0o755
    # Results do not go on with another program.
    program.write_text("another")
    other = machine_monitors._placed(f"{name}:/b/mine", 0, StartedMachine(machine, "Linux 6.12", 4096), program)
    assert len({placed.row.machine for placed in (one, given, other)}) == 3


def test_a_machine_that_a_monitor_cannot_start_is_refused() -> None:
    machine = Machine("q35", 64 << 20, kernel="/k", initrd="/i", disks=(Disk("/r"),))
    with pytest.raises(UserInputError, match="Firecracker cannot start this machine"):
        machine_monitors._placed("firecracker:/b", 0, StartedMachine(machine, "", 0), None)


def test_the_machine_around_changes_for_monitors_alone() -> None:
    machine = Machine("microvm", 1 << 30, accelerator=Accelerator.TCG, architecture="x86_64")
    assert with_monitors(machine, ()) is machine
    found = with_monitors(machine, [ReadyMonitor(ROW, (), 64 << 20), ReadyMonitor(ROW, (), 256 << 20)])
    assert found.cpu_model.startswith("max,") and found.memory_bytes == (1 << 30) + (512 << 20)
    with pytest.raises(UserInputError, match="does not emulate KVM"):
        with_monitors(replace(machine, architecture="mips64el"), [ReadyMonitor(ROW, (), 1)])


def test_a_row_names_its_command_and_what_it_cannot_show() -> None:
    job = replace(WITHIN_JOB, insides=(KNOWN,), at_once=False)
    planned = PlannedTrial(machine_tests(job)[0], "vm:engines/kvm:mine", 1)
    words = shlex.join(again_words(job, planned))
    assert "--on 'kvm:/over there/mine' --inside 'vm:/over there/engines.raw'" in words
    assert "vm:engines/kvm:mine: two-level paging, caches and real devices are not in instruction counts" in (
        cannot_tell(job)
    )
    assert not MonitoredRow.within  # no several at once
    # The host's share of a unit is a difference of boots: it is told where a unit is counted, and only there.
    for suite, told in ((SuiteName.UNIXBENCH, True), (SuiteName.EFFICIENCY, True), (SuiteName.STARTUP, False)):
        lines = cannot_tell(replace(job, suites=(suite,)))
        assert any(line.startswith("vm:engines/kvm:mine: kernel and user a unit") for line in lines) is told


def test_efficiency_is_counted_by_the_unit_within_a_machine_alone() -> None:
    job = replace(WITHIN_JOB, insides=(KNOWN,), suites=(SuiteName.EFFICIENCY,), only=(), at_once=False)
    assert [test.test for test in machine_tests(job)] == list(WITHIN_WORK)
    assert not machine_tests(replace(job, insides=(), inside_runtimes=()))
    assert WITHIN_WORK["linpack"].units == 37_573  # thousands: 2/3 n³ + 2 n² of 400 equations less those of 200
    assert WITHIN_WORK["stream"].units == 4 * 10 * 4096 and WITHIN_WORK["disk"].units == 2048

    class Counted(MonitorEngine):
        subsystems: ClassVar = {}

        def run(self, command: Sequence[str]) -> Boot:
            return boot(int(command[1]) ** 3, 0, 0)

    # What a cell gives to be copied is known before the machine is.
    copied = replace(job, insides=(), only=("linpack",), variant=CLOCK)
    launch._check_tests(copied, with_machines=True, inside=True)
    with pytest.raises(UserInputError, match="instruction clock"):
        launch._check_tests(copied, with_machines=True, inside=False)
    (linpack,) = (test for test in machine_tests(job) if test.test == "linpack")
    one = Counted(KNOWN, described(ROW, ()), Path(), monitor=ROW)
    found = {figure.name: figure.value for figure in counted_trial(linpack, one)}
    assert found["user a unit"] == (400**3 - 200**3) / 37_573
    assert any("efficiency tcp-send, tcp-receive, tcp-latency: cannot tell" in text for text in cannot_tell(job))


def test_starts_within_a_machine_stand_in_one_table() -> None:
    reached = [
        Totals(kernel=100, guest=GuestTotals(kernel=5)),  # of the first start, which does not count
        Totals(kernel=300, user=7, ports=2, guest=GuestTotals(early=1_000_000, kernel=500_005, entries=9)),
    ]
    begin = stretch("ready", "load", Totals(kernel=200, guest=GuestTotals(kernel=5)))
    counters = counters_of(begin, spans=tuple(SpanReached(PROGRAM, one) for one in reached))
    told = {figure.name: figure.value for figure in to_program(counters)}
    assert told == {
        "kernel to the program": 100, "user to the program": 7, "devices to the program": 2,
        "guest to the program": 1_500_000, "exits to the program": 9,
    }  # fmt: skip
    assert not to_program(replace(counters, spans=counters.spans[:1]))  # passed before the load alone

    def trial(name: str, block: int, *figures: BenchFigure) -> BenchTrial:
        return BenchTrial(SuiteName.STARTUP, "boot", name, 1, CLOCK, block, 0.0, 1.0, figures)

    trials = [
        trial(name, block, *started(start, {}, (WITHIN,)))
        for block in (1, 2)
        for name, start in (("vm:lab/kvm:mine", boot(70, 2_000_000, 12)), ("vm:lab/native", boot(9000, 0, 0)))
    ]
    trials += [trial("vm:lab/kvm:mine", 1, *to_program(counters))]
    trials += [trial("vm:stock", 1, BenchFigure("kernel to its end", 1.0, "instructions"))]
    first, second = starts_within(cells(trials))
    assert first.row == ("vm:lab/native", "0.0", "0 %", "0.0", "0.0", "0.0", "", "0", "1,000.0")
    assert second.row == ("vm:lab/kvm:mine", "2.0", "0 %", "0.0", "0.0", "2.0", "1.5", "12", "1,000.0")
    assert second.executed == 500 + 70 + 2_000_000 and len(HEADER) == len(second.row)
    # Boots differ by the sum of what was executed, not by one part of it.
    unlike = [
        trial("vm:lab/lxc", block, *started(boot(user, 0, 0), {}, (WITHIN,))) for block, user in ((1, 480), (2, 540))
    ]
    (found,) = starts_within(cells(unlike))
    assert found.executed == 1010 and found.spread == 60 / 1010 and found.row[2] == "5.9 %"
    assert replace(found, spread=0.0009).row[2] == "< 0.1 %"
    (single,) = starts_within(cells(unlike[:1]))
    assert single.spread is None and single.row[2] == ""
    within = tuple(one for one in trials if "/" in one.runtime)
    run = HostRun(HOST, "sha256:0", False, 1, (), (RuntimeIdentity("vm:lab/native"),), within)
    page = bench_page(BenchResults("0", (run,)))
    assert TITLE in page and 'vm:lab/kvm:mine</th><td class="n">2.0</td>' in page and "which is emulated" in page
    assert "To vm:stock" not in page and "vm:stock, the baseline of ratios, was not measured" in page


def test_the_disk_is_built_again_only_where_its_description_is_newer(tmp_path: Path) -> None:
    """Its digest is a condition of the results: another one would end an interrupted run."""
    disk = tmp_path / "bench/lab.raw"
    tree = BUNDLE.parents[3]
    made_of = (*(tree / "benchmarks/engines").iterdir(), *map(tree.joinpath, ("tools/bench_lab.py", KRUN_START)))
    newest = max(path.stat().st_mtime for path in made_of)
    words = ["make", "--silent", "--dry-run", f"BUILD={tmp_path}", "bench-lab"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}

    def built() -> bool:
        said = subprocess.run(words, cwd=tree, env=kept, capture_output=True, text=True, check=True, timeout=60).stdout
        assert f"--inside vm:{disk}" in said
        return f"tools/bench_lab.py {disk}" in said

    assert built()
    disk.parent.mkdir()
    disk.touch()
    os.utime(disk, (newest + 1, newest + 1))
    assert not built()
    os.utime(disk, (newest - 1, newest - 1))
    assert built()


def test_names() -> None:
    assert all(map(is_monitor, ("kvm:stock", "kvm:/a/b", "libkrun:x", "firecracker:x")))
    assert not any(map(is_monitor, ("vm:stock", "native", "kvm", "my.toml", "lab/qemu:x")))


@pytest.mark.parametrize(
    ("inside", "on", "programs", "words"),
    [
        ("", ("kvm:stock",), (), "starts within a machine, and none is named"),
        ("vm:x", ("kvm:/no/where",), (), "no such bundle"),
        ("vm:x", ("libkrun:stock",), (), "needs an initial RAM disk"),
        ("vm:x", ("kvm:stock",), ("firecracker",), "no row of --on is started by it"),
        ("vm:x", ("kvm:stock",), ("qemu",), "is not there"),
    ],
)
def test_what_cannot_be_started_is_refused(
    tmp_path: Path, inside: str, on: tuple[str, ...], programs: tuple[str, ...], words: str
) -> None:
    job = BenchJob((SuiteName.STARTUP,), on, (1,), 10, False, 1, out=str(tmp_path / "b.json"))
    with pytest.raises(UserInputError, match=words):
        bench(
            job,
            Store(tmp_path / "c"),
            insides=(inside,) if inside else (),
            programs=dict.fromkeys(programs, tmp_path / "p"),
        )
