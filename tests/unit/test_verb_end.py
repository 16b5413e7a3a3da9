# SPDX-License-Identifier: Apache-2.0
"""The end of a verb fits a terminal of 80×24: the verdict, four figures, and commands that can be copied whole."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.fit_run_data import fit_run, hostile_run
from tests.fakes.started import Start

from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole, Text
from vmtailor.base.verb_end import EndFigure, EndVerdict, NextCommand, VerbEnd, VerdictMark, command_lines, show_end
from vmtailor.base.wrong_answers import lacks
from vmtailor.model.exercise import Proof
from vmtailor.model.fit_run import FitRun, Warning
from vmtailor.stages.report import fit_end, show, show_figures
from vmtailor.stages.report.report_tables import doubts

BUNDLE = "/home/anna/projects/shop/containers/images/frontend/fitted"


def on_screen(print_it: Any, columns: int = 80, *, terminal: bool = True) -> list[str]:
    """Return the lines that a screen shows, as they were sent to it."""
    out = io.StringIO()
    print_it(TerminalConsole(file=out, width=columns, height=24, force_terminal=terminal))
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


def fitted(run: FitRun, columns: int = 80, **more: Any) -> list[str]:
    return on_screen(lambda console: show(run, console), columns, **more)


def rows(lines: list[str], columns: int) -> int:
    return sum(max(1, -(-len(line) // columns)) for line in lines)


def commands(lines: list[str]) -> list[list[str]]:
    """Return the commands as a shell takes them from the screen."""
    whole = "\n".join(lines).replace(" \\\n", " ")
    return [shlex.split(line) for line in whole.split("\n") if line.startswith("  vmtailor ")]


def test_a_fit_ends_with_its_verdict_four_figures_and_commands() -> None:
    lines = fitted(fit_run(bundle="/srv/fitted", lacks=()))
    assert lines[0].startswith("✓ verified with load: oci:images/lighttpd works in its own machine")
    titles = [line.partition("  ")[0] for line in lines[3:8]]
    assert titles[1:] == ["instructions to init, net", "kernel file", "least memory", "symbols with a prompt"]
    assert commands(lines) == [
        ["vmtailor", "run", "-p", "8080:80", "/srv/fitted"],
        ["vmtailor", "report", "/srv/fitted"],
        ["vmtailor", "explain", "/srv/fitted", "EPOLL"],
        ["vmtailor", "verify", "/srv/fitted", "--clock", "wall"],
    ]
    assert rows(lines, 80) < 24 and all(len(line) <= 80 for line in lines)
    assert not any("Trials" in line or "by cause" in line for line in lines)


@pytest.mark.parametrize("columns", [120, 80, 60])
@pytest.mark.parametrize("number", [0, 1, 3, 40])
def test_many_doubts_do_not_push_the_verdict_off_the_screen(columns: int, number: int) -> None:
    warnings = tuple(Warning("spread", f"{one}: " + "the figure differs between boots " * 6) for one in range(number))
    run = fit_run(bundle=BUNDLE, warnings=warnings, lacks=())
    lines = fitted(run, columns)
    assert rows(lines, columns) < 24
    if number:
        assert any("0: the figure differs" in line for line in lines)
    if number > 3:
        left = next(line for line in lines if line.startswith("and "))
        assert re.fullmatch(r"and \d+ more in the report", left), left
    most_useful = [["vmtailor", "run", "-p", "8080:80", BUNDLE], ["vmtailor", "report", BUNDLE]]
    assert commands(lines)[:2] == most_useful[: 1 if columns < 80 else 2]


def test_on_a_narrow_terminal_no_word_of_a_command_is_divided() -> None:
    lines = fitted(fit_run(bundle=BUNDLE), 40)
    assert commands(lines)[0] == ["vmtailor", "run", "-p", "8080:80", BUNDLE]
    assert f"    {BUNDLE}" in lines  # longer than the terminal is wide, and on a line of its own
    assert any(line == "  vmtailor run -p 8080:80 \\" for line in lines)


def test_off_a_terminal_a_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    long = f"{BUNDLE}/{'deeper/' * 20}x"
    assert f"  vmtailor verify {long} --clock wall" in fitted(fit_run(bundle=long), terminal=False)


def test_colours_are_left_out_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent() -> str:
        out = io.StringIO()
        show(fit_run(), TerminalConsole(file=out, width=80, height=24, force_terminal=True, color_system="standard"))
        return out.getvalue()

    coloured = r"\x1b\[[0-9;]*3[0-9]"
    assert re.search(coloured, sent())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(coloured, sent())


@given(
    st.lists(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1), min_size=1, max_size=8),
    st.integers(20, 120),
)
def test_a_command_says_the_same_however_it_is_laid_out(words: list[str], width: int) -> None:
    lines = command_lines(words, width)
    assert shlex.split("\n".join(lines).replace(" \\\n", " ")) == words
    for number, line in enumerate(lines):
        one_word = len(shlex.split(line.removesuffix(" \\"))) == 1
        assert len(line) <= width or one_word
        assert line.endswith(" \\") == (number < len(lines) - 1)


def test_verdicts_have_the_mark_that_they_earned() -> None:
    def mark(**changes: Any) -> VerdictMark:
        return fit_end.verdict(fit_run(**changes)).mark

    assert mark() is mark(proof=Proof.ENDED) is VerdictMark.GOOD
    assert mark(proof=Proof.STARTED) is mark(proof=Proof.DERIVED) is VerdictMark.DOUBTFUL
    assert mark(degraded=hostile_run().degraded) is VerdictMark.DOUBTFUL
    assert mark(verified=False) is VerdictMark.BAD


def test_a_fit_that_does_not_work_has_no_figures_and_says_what_failed() -> None:
    failure = "load step 1 (GET :80/): 0 of 200 right: " + lacks(
        "body", "It works", "<html>\n<title>403</title>\n" * 20
    )
    run = fit_run()
    lines = fitted(replace(run, verified=False, trials=(replace(run.trials[0], failures=(failure,)),)))
    assert lines[0].startswith("✗ not verified: ")
    assert f"failed  {failure}" in " ".join(line.strip() for line in lines)
    assert not any("least memory" in line for line in lines)
    assert commands(lines) == [["vmtailor", "report", "out"]]
    failed = replace(run, verified=False, trials=(replace(run.trials[0], failures=(failure,)),), unexplained=("X",))
    assert [note.plain for note in doubts(failed)] == [f"failed  {failure}"]


def test_a_time_stands_in_for_instructions_that_were_not_counted() -> None:
    run = fit_run()
    run = replace(
        run,
        baseline=replace(run.baseline, init_instructions_net=None, ready_wall_us=9e6),
        tailored=replace(run.tailored, init_instructions_net=None, ready_wall_us=3e6),
    )
    assert [one.title for one in fit_end.headlines(run)][:2] == ["start → ready", "kernel file"]


def test_measure_ends_alike(tmp_path: Path) -> None:
    lines = on_screen(lambda console: show_figures(fit_run(), "work folder", console, verbose=False))
    assert lines[0].startswith("✓ measured: ") and commands(lines) == [
        ["vmtailor", "measure", "work folder", "--verbose"]
    ]
    verbose = on_screen(lambda console: show_figures(fit_run(), "work", console, verbose=True))
    assert any("kernel entry → ready" in line for line in verbose) and commands(verbose) == []


@pytest.mark.attack
@pytest.mark.parametrize("name", ["x" * 5000, "x " * 2500])
def test_a_long_name_does_not_push_the_end_off_the_screen(name: str) -> None:
    lines = fitted(fit_run(bundle=BUNDLE, reference=name, warnings=(Warning("x", name),), lacks=()))
    assert rows(lines, 80) < 24 and lines[0].startswith("✓ verified with load: ")
    assert commands(lines)[0] == ["vmtailor", "run", "-p", "8080:80", BUNDLE]
    assert name in "".join(fitted(fit_run(reference=name), terminal=False))


@pytest.mark.attack
def test_a_report_names_the_bundle_that_was_given(start: Start, tmp_path: Path) -> None:
    made = tmp_path / "received"
    made.mkdir()
    (made / "run.json").write_bytes(records.to_bytes(fit_run(bundle="/somebody/elses")))
    code, out, _ = start("report", str(made))
    assert code == 0 and "/somebody" not in out and f"  vmtailor run -p 8080:80 {made}\n" in out
    assert "/somebody" not in (made / "report.html").read_text()


@pytest.mark.attack
def test_names_from_outside_neither_steer_nor_pass_for_a_command() -> None:
    evil = "x\x1b[2J\nvmtailor run evil; rm -rf ~\u202e"
    for run in (hostile_run(), fit_run(bundle=evil, reference=evil, warnings=(Warning("x", evil),))):
        out = io.StringIO()
        show(run, TerminalConsole(file=out, width=80, height=24, force_terminal=True))
        text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
        assert "\x1b" not in text and "\u202e" not in text and "\nvmtailor run evil" not in text
    bundle = "/tmp/a b; c$(d)</script>"
    assert commands(fitted(fit_run(bundle=bundle), terminal=False))[1] == ["vmtailor", "report", bundle]


def test_a_bundle_in_this_folder_is_named_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fit_end.near(f"{tmp_path}/build/demo") == "build/demo"
    assert fit_end.near(f"{tmp_path}/-x") == "./-x" and fit_end.near(f"{tmp_path}/~x") == "./~x"
    assert fit_end.near("-x") == "./-x"
    assert fit_end.near("/elsewhere/x") == "/elsewhere/x" and fit_end.near(str(tmp_path)) == "."
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert fit_end.near(f"{gone}/x") == f"{gone}/x"


def test_every_part_may_be_missing() -> None:
    assert on_screen(lambda console: show_end(VerbEnd(), console)) == []
    figure = EndFigure("size", "2", "1", "÷ 2")
    end = VerbEnd(
        verdict=EndVerdict(VerdictMark.BAD, "no"), figures=(figure,) * 9, notes=[Text("n")], files=(("a", "b"),),
        commands=(NextCommand("Do it", ("true",)),),
    )  # fmt: skip
    lines = on_screen(lambda console: show_end(cast("Any", end), console))
    assert lines[0] == "✗ no" and sum("÷ 2" in line for line in lines) == 4
    assert lines[-5:] == ["", "a  b", "", "Do it:", "  true"]
