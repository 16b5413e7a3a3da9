# SPDX-License-Identifier: Apache-2.0
"""`run --explain-failures` and `refit --observed`: what a kernel refused is named, and comes in.

A program asks for what small kernels lack (tests/guests/asker), in the kernel that was fitted to `lighttpd`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fakes.program import (
    Ended,
    assert_clear,
    assert_nothing_left,
    finish,
    interrupt,
    run_program,
    started,
)
from tests.system.conftest import FIT_S, Fitted, with_image

from vmtailor.base.files import records
from vmtailor.model.syscalls import ObservedRun

pytestmark = pytest.mark.system

ASKER = Path(__file__).parents[1] / "guests" / "asker"
#: The call of the program, and the symbol that its kernel lacks: nothing in the image could ask for it.
LACKING = {"flock": "FILE_LOCKING", "timerfd_create": "TIMERFD", "socket": "PACKET"}
HEAD = "refused that the baseline would have given"


@pytest.fixture(scope="module")
def asker(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_image(lighttpd.bundle, ASKER, tmp_path_factory.mktemp("asker"), network=False)


def lines_of(ended: Ended) -> dict[str, str]:
    """The row of each call in what was said."""
    rows = [line for line in ended.stderr.splitlines() if line.startswith(("asker ", "process "))]
    return {row.split()[1].partition("(")[0]: row for row in reversed(rows)}


def test_what_was_refused_is_named_with_its_symbol(asker: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "--explain-failures", "--observed", tmp_path / "o.json", asker, "many")
    assert_nothing_left(ended)
    assert ended.code == 5 and "flock: Function not implemented\n" in ended.stdout
    assert HEAD in ended.stderr and f"refit {asker} --observed {tmp_path / 'o.json'}" in ended.stderr
    rows = lines_of(ended)
    for call, symbol in LACKING.items():
        assert rows[call].split()[-1] == symbol, ended.stderr
    assert "/nowhere" not in ended.stderr  # that is a file of the image's, and the kernel is not why
    seen = records.load(ObservedRun, tmp_path / "o.json")
    assert seen.whole and {call.name: call.count for call in seen.calls}["flock"] == 1001


def test_without_the_option_nothing_is_claimed(asker: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", asker)
    assert (ended.code, ended.stderr) == (5, "")


def test_a_run_that_is_stopped_gives_its_answer(asker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", "--explain-failures", asker, "wait") as running:
        running.wait_for("waiting", where=running.out)
        interrupt(running)
        ended = finish(running, 60.0)
    assert_nothing_left(ended)
    assert ended.code == 128 + 15 and set(LACKING) <= set(lines_of(ended))


def test_a_run_that_is_killed_gives_what_it_knows(asker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", "--explain-failures", "--stop-signal", "CONT", asker, "wait") as running:
        running.wait_for("waiting", where=running.out)
        interrupt(running)
        interrupt(running)
        ended = finish(running, 60.0)
    assert ended.code == 128 + 9 and set(LACKING) <= set(lines_of(ended))
    assert "there may have been more" in ended.stderr


def test_what_cannot_be_executed_is_said_as_ever(asker: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "--explain-failures", "--entrypoint", "/nope", asker)
    assert ended.code == 127 and "execve(/nope): No such file or directory" in ended.stderr
    nowhere = run_program(tmp_path, "run", "--observed", tmp_path / "none" / "o.json", asker)
    assert_clear(nowhere, 125, "cannot be written")
    # What never ran was not watched, and nothing is claimed of it.
    portless = run_program(tmp_path, "run", "--explain-failures", "-p", "8080:80", asker)
    assert_clear(portless, 125, "no port can be published")
    assert "refused" not in portless.stderr


@pytest.mark.attack
def test_a_guest_that_lies_and_floods(asker: Path, tmp_path: Path) -> None:
    """Names that steer a terminal, lines that no tracer wrote, 20 000 kinds of refused calls."""
    ended = run_program(tmp_path, "run", "--observed", tmp_path / "o.json", asker, "lie")
    assert_nothing_left(ended)
    assert ended.code == 5 and set(LACKING) <= set(lines_of(ended))
    assert "\x1b" not in ended.stderr and len(ended.stderr) < 100_000
    assert (tmp_path / "o.json").stat().st_size < 4 << 20
    assert records.load(ObservedRun, tmp_path / "o.json").untold > 5_000


def test_refit_shows_what_comes_in(lighttpd: Fitted, asker: Path, tmp_path: Path) -> None:
    run_program(tmp_path, "run", "--observed", tmp_path / "o.json", asker)
    ended = run_program(
        tmp_path, "refit", lighttpd.bundle, "--observed", tmp_path / "o.json", "--dry-run", "--json", timeout_s=600
    )
    assert ended.code == 0, ended.stderr
    found = json.loads(ended.stdout)
    rows = {row["symbol"]: row["reasons"][0] for row in found["comes"] if row["prompt"]}
    assert found["schema"] == "vmtailor/refit/1" and set(rows) == set(LACKING.values())
    assert all(r["reference"].startswith("observed:") and "seen in a run" in r["text"] for r in rows.values())
    assert found["goes"] == found["altered"] == found["words_come"] == found["words_go"] == []


@pytest.mark.slow
def test_refit_builds_a_kernel_that_gives_it(lighttpd: Fitted, asker: Path, tmp_path: Path) -> None:
    run_program(tmp_path, "run", "--observed", tmp_path / "o.json", asker)
    made = tmp_path / "made"
    ended = run_program(
        tmp_path, "refit", lighttpd.bundle, "--observed", tmp_path / "o.json", "--repeat", "1", "-o", made,
        timeout_s=FIT_S,
    )  # fmt: skip
    assert ended.code == 0, f"{ended.stdout}\n{ended.stderr}"
    again = run_program(
        tmp_path, "run", "--explain-failures", with_image(made, ASKER, tmp_path / "again", network=False)
    )
    assert again.code == 5 and "flock: given\n" in again.stdout and "socket(AF_PACKET): given\n" in again.stdout
    assert HEAD in again.stderr and "nothing was refused" in again.stderr
    # What it knows stays with it: nothing else is to be done.
    same = run_program(tmp_path, "refit", made, "--observed", tmp_path / "o.json", timeout_s=600)
    assert same.code == 0 and "the plan is the same" in same.stdout and "nothing is built" in same.stderr
