# SPDX-License-Identifier: Apache-2.0
"""What `make bench-run-lab` makes of counters, and prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.fakes.lab_counts import at, counters

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import bench_lab
import bench_run_lab
import bench_run_lab_parts as run_parts
from bench_run_lab_parts import BEGIN, ENTERED, LAUNCHER, MONITOR, PROGRAM, SUPERVISOR, StartPart

M = 1_000_000
MARKS = {"load": at(100, 100), "load_end": at(200, 400, guest_kernel=60, guest_user=4, entries=9)}
FIRST = [
    (BEGIN, at(1, 1)),  # before the load: the machine is made ready
    # Python tries the launcher and KVM, and becomes the supervisor.
    (BEGIN, at(101, 101)), (LAUNCHER, at(102, 101)), (MONITOR, at(102, 102)), (ENTERED, at(102, 103)),
    (SUPERVISOR, at(111, 121)), (LAUNCHER, at(112, 125)), (MONITOR, at(113, 145)),
    (ENTERED, at(133, 165)), (ENTERED, at(133, 170, guest_kernel=20, entries=1)),
    (PROGRAM, at(134, 200, guest_kernel=50, entries=5)),
    (ENTERED, at(135, 220, guest_kernel=52, guest_user=4, entries=6)),
]  # fmt: skip


def test_each_start_is_told_by_part() -> None:
    again = (BEGIN, at(150, 300, guest_kernel=60, guest_user=4, entries=9))
    first, second = run_parts.steps(counters(MARKS, [*FIRST, again]))
    costs = [(one.host_user, one.host_kernel, one.guest_kernel, one.guest_user, one.exits) for one in first]
    assert costs == [
        (10, 20, 0, 0, 0), (1, 4, 0, 0, 0), (1, 20, 0, 0, 0), (20, 20, 0, 0, 0), (1, 35, 50, 0, 5),
        (16, 100, 10, 4, 4),
    ]  # fmt: skip
    assert [one.title for one in first] == list(run_parts.PARTS.values())
    assert run_parts.whole(first, "all").executed == 49 + 199 + 64
    # A start of which no place was passed is one part, and so nothing of it is lost.
    assert [(one.title, one.executed) for one in second] == [(run_parts.PARTS[""], 150)]


def test_nothing_is_told_of_a_load_that_did_not_end() -> None:
    assert run_parts.steps(counters({"load": at(100, 100)}, FIRST)) == []
    assert run_parts.steps(counters({}, [])) == []


@pytest.mark.parametrize(("millions", "word"), [(488, "met"), (489, "missed")])
def test_the_goal_is_judged_by_the_second_start(capsys: pytest.CaptureFixture[str], millions: int, word: str) -> None:
    second = [StartPart("QEMU", M, 2 * M, 0, 0, 0), StartPart("guest", (millions - 10) * M, 0, 6 * M, M, 1234)]
    bench_run_lab.show(([StartPart("all", 900 * M, 0, 0, 0, 0)], second), [StartPart("podman", M, M, 0, 0, 0)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"goal: at most 488 M for the second start: {word}"
    cells = (f"{millions}.0", f"{millions - 9}.0", "2.0", "6.0", "1.0", "1,234")
    assert lines[1].split() == ["vmtailor", "run,", "the", "second", "start", *cells]
    assert any(line.split()[-6:] == ["2.0", "1.0", "1.0", "0.0", "0.0", "0"] for line in lines if "podman" in line)


def test_the_disk_has_this_version_of_python() -> None:
    assert f'packages = ["{bench_run_lab.PYTHON}"]' in bench_lab.python_rows()


def test_modules_are_compiled_where_python_looks_for_them(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("x = 1\n")
    (tmp_path / "template.py").write_text("{{ not python }\n")
    names = [(f"venv/p/{path.name}", path) for path in sorted(tmp_path.iterdir())]
    (only,) = bench_run_lab.compiled(names, "/run/ours/")
    assert only.path == f"venv/p/__pycache__/one.{sys.implementation.cache_tag}.pyc"
    assert isinstance(only.data, bytes) and b"/run/ours/venv/p/one.py" in only.data
