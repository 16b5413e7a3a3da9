# SPDX-License-Identifier: Apache-2.0
"""Benchmarks for real: engines driven in the scope, and nothing of them left, whenever it ends. Needs root and the
engines (make setup-bench); elsewhere each test says what is missing."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.program import run_program

from vmtailor.base.files import records
from vmtailor.base.process import on_path
from vmtailor.bench.model.results import BenchResults, HostRun
from vmtailor.bench.runtimes import description, host_cgroups, scope
from vmtailor.bench.runtimes.host_cgroups import PREFIX
from vmtailor.bench.runtimes.host_runtime import missing

REPOSITORY = Path(__file__).parents[2]
CRUN = REPOSITORY / "examples/runtimes/crun.toml"
#: One that only forks, one that mounts and unshares, one described by a file.
RUNTIMES = {"native": "", "nspawn": "systemd-nspawn", str(CRUN): "crun"}
#: What their tests drive besides; `make setup-dev` installs all of it.
BESIDES = ("ab",)
#: Moments at which the harness is killed: one here, all of them by `make test-all`; so many of those come before it
#: has a scope.
FEW, MANY, EARLY = 1, 30, 6
#: Seconds within which a run has its scope, and within which a killed one has ended, on a busy host.
SCOPE_S, END_S = 120.0, 120.0
#: As many repetitions as no run gets to that is killed: they take half an hour.
ENDLESS = 1000
#: What an engine may say of a test that it cannot do on some kernels (docs/how-to/compare-runtimes.md).
REFUSED = {("gvisor", "http"): "root network namespace"}
RUN_S = 480.0
#: Half a minute on a host that does nothing else.
BUILD_S = 1800.0

pytestmark = [pytest.mark.system]


@pytest.fixture(scope="module")
def image() -> Path:
    """The image of the benchmarks, built again where what it is made of is newer."""
    if os.geteuid() != 0:
        pytest.skip("engines need root")
    absent = [program for program in (*RUNTIMES.values(), *BESIDES) if program and on_path(program) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)}: make setup-dev")
    layout, made_of = REPOSITORY / "build/images/bench", REPOSITORY / "benchmarks/image"
    index = layout / "index.json"
    newest = max(path.stat().st_mtime for path in (*made_of.rglob("*"), REPOSITORY / "examples/build.py"))
    if not index.is_file() or index.stat().st_mtime < newest:
        build = [sys.executable, str(REPOSITORY / "examples/build.py"), str(made_of), str(layout)]
        subprocess.run(build, check=True, timeout=BUILD_S)
    return layout


def words(image: Path, out: Path, *more: str, repeat: int = 2) -> list[str]:
    return ["bench", *more, "--image", f"oci:{image}", "--quick", "--repeat", str(repeat), "-o", str(out)]


def run_of(out: Path) -> HostRun:
    (found,) = records.load(BenchResults, out).runs
    return found


#: Scopes that somebody else had begun on this host before the first test.
OTHERS = tuple(path.name for path in scope.PLACE.glob(f"{PREFIX}*"))


def nothing_is_left() -> list[str]:
    """What scopes left: folders, cgroups, mounts, network devices and namespaces of ours, and processes of engines;
    but for those of others."""
    return [text for text in _all_that_is_left() if not any(name in text for name in OTHERS)]


def _all_that_is_left() -> list[str]:
    found = [str(path) for path in scope.PLACE.glob(f"{PREFIX}*")]
    found += [str(path) for root in host_cgroups.hierarchies() for path in root.glob(f"{PREFIX}*")]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if PREFIX in line]
    found += [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith("vb-")]
    found += [path.name for path in Path("/run/netns").glob("bench*")] if Path("/run/netns").is_dir() else []
    lines = [line for line in _command_lines() if f"/{PREFIX}".encode() in line and b"pytest" not in line]
    return found + [line.replace(b"\0", b" ").decode("utf-8", "replace") for line in lines]


def _command_lines() -> Iterator[bytes]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield (entry / "cmdline").read_bytes()


def test_every_runtime_is_what_its_row_says_and_reports(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "bench.json"
    on = ",".join(RUNTIMES)
    ended = run_program(tmp_path, *words(image, out, "startup", "--only", "report", "--on", on), timeout_s=RUN_S)
    assert ended.code == 0, ended.stderr
    assert "plan: 6 cells (2 tests, 3 runtimes), 18 trials: about" in ended.stderr  # said before any of them
    run = run_of(out)
    assert [one.runtime for one in run.identities] == ["native", "nspawn", "crun"]
    assert not [one.problem or one.missing for one in run.identities if one.problem or one.missing]
    assert len({one.program_sha256 for one in run.identities}) == 1
    failed = [(trial.runtime, trial.test, trial.failure) for trial in run.trials if trial.failure]
    assert not failed
    assert len(run.trials) == 2 * 3 * (2 + 1)  # warm and cold; three runtimes; two repetitions and a warm-up
    for trial in run.trials:
        figures = {figure.name: figure.value for figure in trial.figures}
        assert all(value > 0 for value in figures.values())
        assert len(trial.witnesses) == 1  # every instance said who it is
        assert figures["own report"] <= figures["exit"] and figures["first output"] <= figures["exit"]
    assert nothing_is_left() == []
    again = run_program(tmp_path, *words(image, out, "startup", "--only", "report", "--on", on), timeout_s=RUN_S)
    assert again.code == 0 and "18 of them done" in again.stderr
    assert "0 trials" in again.stderr  # what was there is not measured again
    page = tmp_path / "page.html"
    shown = run_program(tmp_path, "bench", "report", out, "-o", page, timeout_s=RUN_S)
    assert shown.code == 0 and "nspawn" in page.read_text()
    # What the page gives to be copied, done as it stands: the same cell, and native's beside it.
    cell = next(trial for trial in run.trials if trial.runtime == "crun" and trial.variant == "cold")
    program, *command = shlex.split(cell.command)
    monkeypatch.chdir(tmp_path)
    copied = run_program(tmp_path, *command, timeout_s=RUN_S)
    assert program == "vmtailor" and copied.code == 0, copied.stderr
    measured = run_of(tmp_path / "again.json")
    wanted = {trial.key for trial in run.trials if trial.variant == "cold" and trial.runtime in ("native", "crun")}
    assert {trial.key for trial in measured.trials} == wanted and measured.seed == run.seed
    assert not [trial.failure for trial in measured.trials if trial.failure]


@pytest.mark.slow
@pytest.mark.parametrize("engine", description.known())
def test_every_engine_that_is_known_starts_serves_and_stops(image: Path, tmp_path: Path, engine: str) -> None:
    if lacking := missing(description.load(engine)):
        pytest.skip(lacking)
    tmp_path.chmod(0o700)  # what is in it, TMPDIR too, is closed to users that an engine's programs become
    out = tmp_path / "bench.json"
    arguments = words(image, out, "startup", "--only", "report,apart,http", "--on", engine)
    ended = run_program(tmp_path, *arguments, timeout_s=BUILD_S)
    assert ended.code == 0, ended.stderr
    run = run_of(out)
    (row,) = run.identities
    assert (row.runtime, row.missing, row.problem) == (engine, "", "")
    assert len(run.trials) == 4 * (2 + 1)  # report warm and cold, http, apart; two repetitions and a warm-up
    failed = [(trial.test, trial.failure.reason, trial.failure.evidence) for trial in run.trials if trial.failure]
    assert not [one for one in failed if (engine, one[0]) not in REFUSED or REFUSED[engine, one[0]] not in one[2]]
    assert nothing_is_left() == []


def test_a_runtime_that_is_missing_is_a_row(image: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent.toml"
    absent.write_text(CRUN.read_text().replace('"crun"', '"no-such-crun"').replace('name = "no-such', 'name = "no'))
    out = tmp_path / "bench.json"
    ended = run_program(
        tmp_path, *words(image, out, "startup", "--only", "report", "--on", f"native,{absent}"), timeout_s=RUN_S
    )
    assert ended.code == 0, ended.stderr
    (row,) = [one for one in run_of(out).identities if one.runtime != "native"]
    assert "no-such-crun not found" in row.missing and any("no-such-crun" in text for text in run_of(out).left_out)


def _killed_at(image: Path, folder: Path, delay_s: float, what: int, *, in_scope: bool = True) -> None:
    """Start a run, kill it while it goes on, and see that nothing stays. `delay_s`: since there is its scope, or since
    it was begun, unless it is killed `in_scope`. `what`: the signal."""
    out, err, before = folder / "bench.json", folder / "stderr", _scopes()
    on = ",".join(RUNTIMES)
    arguments = words(image, out, "startup", "--only", "report,apart", "--on", on, repeat=ENDLESS)
    with err.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "vmtailor", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + SCOPE_S
        while in_scope and not _watched(_scopes() - before):
            assert process.poll() is None, f"it ended without a scope:\n{err.read_text(errors='replace')}"
            assert time.monotonic() < deadline, f"it makes no scope:\n{err.read_text(errors='replace')}"
            time.sleep(0.02)
        time.sleep(delay_s)
        assert process.poll() is None, f"it ended before it was killed:\n{err.read_text(errors='replace')}"
        process.send_signal(what)
        process.wait(END_S)
    finally:
        if process.poll() is None:  # it would go on without us
            process.kill()
            process.wait()
    deadline = time.monotonic() + 60  # who sweeps is another process, and this host may be busy
    while nothing_is_left() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert nothing_is_left() == [], f"killed after {delay_s:.2f} s by {what}"
    if out.exists():  # whole, whatever was being written
        records.load(BenchResults, out)


def _scopes() -> set[str]:
    return {path.name for path in scope.PLACE.glob(f"{PREFIX}*")}


def _watched(names: set[str]) -> bool:
    """Whether one of these scopes has a process that removes it. One that is killed before is the next one's to remove,
    which is some milliseconds' worth."""
    return bool(names) and any(name.encode() in line for line in _command_lines() for name in names)


@pytest.mark.attack
@pytest.mark.parametrize("number", range(FEW))
def test_a_killed_harness_leaves_nothing(image: Path, tmp_path: Path, number: int) -> None:
    delay = random.Random(number).uniform(1, 12)
    _killed_at(image, tmp_path, delay, signal.SIGKILL if number % 2 == 0 else signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(MANY))
def test_a_harness_killed_at_any_moment_leaves_nothing(image: Path, tmp_path: Path, number: int) -> None:
    """The first ones while it begins, with a scope or without; the others as soon as there is one, and later."""
    what = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number % 3]
    if number < EARLY:
        _killed_at(image, tmp_path, number * 0.1, what, in_scope=False)
    else:
        _killed_at(image, tmp_path, (number - EARLY) * 0.7, what)


@pytest.mark.slow
def test_unixbench_scores_every_instance_and_the_published_one_runs_from_its_tree(image: Path, tmp_path: Path) -> None:
    out, on = tmp_path / "bench.json", ",".join(RUNTIMES)
    arguments = words(image, out, "unixbench", "--only", "dhry2reg,shell1", "--n", "1,2", "--on", on)
    ended = run_program(tmp_path, *arguments, timeout_s=RUN_S)
    assert ended.code == 0, ended.stderr
    ours = run_of(out)
    assert not [(trial.runtime, trial.failure) for trial in ours.trials if trial.failure]
    assert {len(trial.figures) for trial in ours.trials if trial.count == 2} == {2}  # one score an instance
    assert "gcc" in dict(ours.options)["our set compiler"]
    assert any("not in the quick form" in text for text in ours.left_out)
    out = tmp_path / "published.json"
    tree = REPOSITORY / "tests/fakes/unixbench"
    arguments = words(image, out, "unixbench", "--only", "dhry2reg,shell1", "--n", "1", "--on", on)
    ended = run_program(tmp_path, *arguments, "--unixbench-source", tree, timeout_s=RUN_S)
    assert ended.code == 0, ended.stderr
    published = run_of(out)
    assert not [(trial.runtime, trial.failure) for trial in published.trials if trial.failure]
    of_tree = [trial for trial in published.trials if trial.variant.startswith("published set")]
    scores = {trial.test: {figure.value for figure in trial.figures} for trial in of_tree}
    ours_beside = {(trial.test, trial.runtime) for trial in published.trials if trial not in of_tree}
    assert ours_beside == {("dhry2reg", "native"), ("shell1", "native")}  # ours is checked against it
    shown = run_program(tmp_path, "bench", "report", out, timeout_s=RUN_S)
    assert shown.code == 0 and "Our set against the published one" in shown.stdout and "far apart" in shown.stdout
    assert scores == {"dhry2reg": {1000.0}, "shell1": {10.0}}  # COUNT over TIME, by the second and by the minute
    assert not list((tree / "pgms").glob("looper"))  # it was built in a copy
    assert nothing_is_left() == []


@pytest.mark.slow
def test_what_misbehaves_is_contained_and_the_others_report(image: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    arguments = words(image, out, "isolation", "--only", "fork-bomb,memory,full-disk", "--on", ",".join(RUNTIMES))
    ended = run_program(tmp_path, *arguments, timeout_s=RUN_S)
    assert ended.code == 0, ended.stderr
    run = run_of(out)
    assert not [(trial.runtime, trial.test, trial.failure) for trial in run.trials if trial.failure]
    assert len(run.trials) == 3 * 3 * 2  # three stresses, three runtimes, two repetitions; t1 is the warm-up
    for trial in run.trials:
        names = [figure.name for figure in trial.figures]
        silent = next(figure.value for figure in trial.figures if figure.name == "did not report")
        assert names.count("t1") == 4 and names.count("t2 / t1") == 4 - silent
        assert "the misbehaving one" in trial.notes[0]
        if trial.test == "full-disk":  # full all the time, and nobody else feels it
            assert silent == 0 and "still ran" in trial.notes[0]
    assert "256 processes" in dict(run.options)["isolation limits"]
    page = tmp_path / "page.html"
    shown = run_program(tmp_path, "bench", "report", out, "-o", page, timeout_s=RUN_S)
    assert shown.code == 0 and 'class="heat"' in page.read_text()
    assert nothing_is_left() == []


@pytest.mark.slow
def test_published_programs_do_the_disk_and_network_tests(image: Path, tmp_path: Path) -> None:
    out, fakes = tmp_path / "bench.json", REPOSITORY / "tests/fakes"
    arguments = words(image, out, "efficiency", "--only", "disk,tcp-send,tcp-latency", "--on", ",".join(RUNTIMES))
    trees: list[str | Path] = ["--iozone-source", fakes / "iozone", "--netperf-source", fakes / "netperf"]
    ended = run_program(tmp_path, *arguments, *trees, timeout_s=RUN_S)
    assert ended.code == 0, ended.stderr
    run = run_of(out)
    assert not [(trial.runtime, trial.test, trial.failure) for trial in run.trials if trial.failure]
    found = {(trial.test, figure.name): figure.value for trial in run.trials for figure in trial.figures}
    assert found["disk", "write"] == 102.4 and found["disk", "reread"] == 409.6  # KiB/s → MB/s
    assert found["tcp-send", "throughput"] == 1000.0
    assert found["tcp-latency", "round trips"] == 20_000.0
    assert {trial.variant for trial in run.trials} == {"IOzone", "netperf"}
    out = tmp_path / "ours.json"
    ended = run_program(
        tmp_path, *words(image, out, "efficiency", "--only", "tcp-latency", "--on", ",".join(RUNTIMES)), timeout_s=RUN_S
    )
    assert ended.code == 0, ended.stderr
    for trial in run_of(out).trials:  # ours: a byte each way
        assert trial.failure is None
        took = {figure.name: figure.value for figure in trial.figures}
        assert 0 < took["median round trip"] <= took["99 % of round trips within"] < 1
    assert nothing_is_left() == []


def disk_of_engines() -> Path:
    """The machine with the engines, built again where what it is made of is newer."""
    disk = REPOSITORY / "build/bench/engines.raw"
    made_of = REPOSITORY / "benchmarks/engines"
    if not disk.is_file() or disk.stat().st_mtime < (made_of / "system.toml").stat().st_mtime:
        disk.parent.mkdir(parents=True, exist_ok=True)
        build = [sys.executable, str(REPOSITORY / "examples/build.py"), str(made_of), str(disk)]
        subprocess.run(build, check=True, timeout=BUILD_S)
    return disk


@pytest.mark.slow
def test_engines_within_a_machine_are_counted_to_the_instruction(image: Path, tmp_path: Path) -> None:
    disk = disk_of_engines()
    absent = tmp_path / "absent.toml"
    absent.write_text(CRUN.read_text().replace('"crun"', '"no-such-crun"').replace('name = "no-such', 'name = "no'))
    out = tmp_path / "bench.json"
    on = ["--on", f"native,nspawn,{absent}", "--inside", f"vm:{disk}"]
    arguments = words(image, out, "startup,isolation", *on)
    ended = run_program(tmp_path, *arguments, timeout_s=BUILD_S)
    assert ended.code == 0, ended.stderr
    run = run_of(out)
    rows = {one.runtime: one for one in run.identities}
    assert set(rows) == {"vm:engines/native", "vm:engines/nspawn", "vm:engines/no-crun"}
    assert "no-such-crun is not there" in rows["vm:engines/no-crun"].problem
    native, nspawn = rows["vm:engines/native"], rows["vm:engines/nspawn"]
    assert not native.problem and not nspawn.problem
    own = {name: str(kind) for name, kind in nspawn.namespaces}
    assert own["pid"] == own["mnt"] == own["net"] == "own" and nspawn.kernel == native.kernel
    assert {str(kind) for _, kind in native.namespaces} == {"shared"}
    assert not [(trial.runtime, trial.failure) for trial in run.trials if trial.failure]
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for trial in run.trials:
        for figure in trial.figures:
            found[trial.runtime, figure.name].append(figure.value)
    for name in ("kernel to its end", "user to its end", "virtual time to its end"):
        least, most = (found[f"vm:engines/{one}", name] for one in ("native", "nspawn"))
        assert len(least) == len(most) == 2
        assert max(least) - min(least) <= 0.001 * max(least) and max(most) - min(most) <= 0.001 * max(most)
        assert min(most) > 2 * max(least)  # namespaces, mounts, a cgroup, its own process
    assert any(text.startswith("vm:engines/…: isolation: cannot tell") for text in run.left_out)
    assert nothing_is_left() == []


@pytest.mark.slow
def test_memory_within_a_machine_grows_with_its_instances_until_none_fits(image: Path, tmp_path: Path) -> None:
    out, on = tmp_path / "bench.json", ["--on", "native,nspawn,podman", "--inside", f"vm:{disk_of_engines()}"]
    ended = run_program(tmp_path, *words(image, out, "memory", *on, "--n", "1,4"), timeout_s=2 * BUILD_S)
    assert ended.code == 0, ended.stderr
    run = run_of(out)
    assert not [(trial.runtime, trial.test, trial.failure) for trial in run.trials if trial.failure]
    found: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
    for trial in run.trials:
        for figure in trial.figures:
            found[trial.runtime, figure.name, trial.count].append(figure.value)
    for name in ("native", "nspawn", "podman"):
        row = f"vm:engines/{name}"
        for count in (1, 4):
            least = found[row, "memory.current of each", count]
            most = found[row, "MemAvailable for each", count]
            assert len(least) == len(most) == 2 and 0 < max(least) < 64 << 20 and max(most) < 128 << 20
        assert 32 << 20 < min(found[row, "in use before the first", 4]) < 512 << 20
        assert found[row, "still answered", 1] == found[row, "started", 1] and max(found[row, "started", 1]) <= 12
    # A process of a chroot is the least; an engine's monitor stays beside each of its own.
    native, podman = (min(found[f"vm:engines/{one}", "MemAvailable for each", 4]) for one in ("native", "podman"))
    assert native < podman
    assert nothing_is_left() == []


@pytest.mark.slow
def test_a_machine_under_kvm_is_counted_beside_an_engine(image: Path, tmp_path: Path) -> None:
    disk = REPOSITORY / "build/bench/lab.raw"
    made_of = [*(REPOSITORY / "benchmarks/engines").iterdir(), REPOSITORY / "native/krun-start/krun-start.c"]
    made_of += [REPOSITORY / "tools/bench_lab.py"]
    if not disk.is_file() or disk.stat().st_mtime < max(path.stat().st_mtime for path in made_of):
        disk.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(made_of[-1]), str(disk)], check=True, timeout=BUILD_S)
    out = tmp_path / "bench.json"
    on = ["--on", "native,kvm:stock", "--inside", f"vm:{disk}"]
    ended = run_program(tmp_path, *words(image, out, "startup,efficiency", "--only", "boot", *on), timeout_s=BUILD_S)
    assert ended.code == 0, ended.stderr
    run = run_of(out)
    assert not [one.problem for one in run.identities if one.problem]
    assert not [(trial.runtime, trial.failure) for trial in run.trials if trial.failure]
    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for trial in run.trials:
        for figure in trial.figures:
            values[trial.runtime.rpartition("/")[2], figure.name].append(figure.value)
    assert ("native", "guest to its end") not in values
    for name in ("guest to its end", "exits to its end", "user to its end"):
        one, other = values["kvm:stock", name]
        assert one > 1000 and abs(one / other - 1) < 0.01
    assert min(values["kvm:stock", "guest to its end"]) > 10 * max(values["native", "kernel to its end"])
    assert any("two-level paging" in text for text in run.left_out)
    assert nothing_is_left() == []


@pytest.mark.slow
def test_instances_at_once_share_one_processor_and_cost_the_same_a_unit(image: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    on = ["--on", "native,nspawn", "--inside", f"vm:{disk_of_engines()}"]
    asked = words(image, out, "unixbench", "--n", "0,2", "--only", "dhry2reg,whetstone-double", *on, repeat=1)
    ended = run_program(tmp_path, *asked, timeout_s=BUILD_S)
    assert ended.code == 0, ended.stderr
    run = run_of(out)
    assert not [(trial.runtime, trial.failure) for trial in run.trials if trial.failure]
    values: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for trial in run.trials:
        for figure in trial.figures:
            values[trial.runtime.rpartition("/")[2], trial.test, figure.name].append(figure.value)
    for test in ("dhry2reg", "whetstone-double"):
        (alone,), two = values["native", test, "score"], values["nspawn", test, "score"]
        assert len(two) == 2 and 0.95 < sum(two) / alone < 1.02  # there is one processor
        (unit,), (unit_of_two,) = (values[name, test, "user a unit"] for name in ("native", "nspawn"))
        assert abs(unit_of_two / unit - 1) < 0.02
        assert min(values["nspawn", test, "overlap"]) > 0.9
        assert 0.95 < min(values["nspawn", test, "score by processor time"]) / alone < 1.05
    assert nothing_is_left() == []
