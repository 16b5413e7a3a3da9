# SPDX-License-Identifier: Apache-2.0
"""Manual pages have every verb and every option, and nothing in them is taken for a request of the typesetter."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.fakes.tools import load_tool

from vmtailor.cli.shells import man_pages
from vmtailor.cli.verbs import GROUPS, VERBS, Verb

DATE = "2026-01-31"
_REQUESTS = (".TH", ".SH", ".SS", ".TP", ".PP", ".BR", '.\\"')


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_the_page_of_a_verb_has_all_that_it_takes(verb: Verb) -> None:
    page = man_pages.verb_page(verb, DATE)
    plain = page.replace("\\-", "-")
    for one in verb.parameters():
        names = (
            (one.row.metavar or one.row.name,) if one.row.is_argument else (*one.names, *filter(None, [one.row.short]))
        )
        for name in names:
            assert re.search(rf"^\\f[BI].*{re.escape(name)}\\fR", plain, re.M), name
    assert plain.splitlines()[2].startswith(f".TH VMTAILOR-{verb.name.upper()} 1 {DATE} ")
    assert ".SH EXIT STATUS" in plain and ".BR vmtailor (1)" in plain
    wrong = [line for line in page.splitlines() if line[:1] in (".", "'") and not line.startswith(_REQUESTS)]
    assert not wrong


def test_the_page_of_the_program_has_every_verb_in_its_group() -> None:
    page = man_pages.program_page(DATE)
    for verb in VERBS:
        assert page.count(f"\n\\fB{verb.name}\\fR\n") == 1, verb.name
    assert page.count(".SS ") == len(GROUPS)


def test_words_that_the_typesetter_would_change_are_kept() -> None:
    (line,) = man_pages._text("'a' `-x` \\n ~^…")
    assert line == "\\(aqa\\(aq \\fB\\-x\\fR \\en \\(ti\\(ha\\&..."
    assert list(man_pages._text(".so x")) == ["\\&.so x"]


def test_share_files_are_written_where_shells_and_man_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = load_tool("share_files")
    assert tool.main([str(tmp_path)]) == 0
    found = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()}
    assert found == set(tool.files())
    assert {"share/man/man1/vmtailor.1", "share/man/man1/vmtailor-run.1"} <= found
    assert "share/bash-completion/completions/vmtailor" in found
    assert tool.main([]) == 2 and "usage" in capsys.readouterr().err


def test_the_typesetter_warns_of_nothing(tmp_path: Path) -> None:
    for name, text in man_pages.pages(DATE).items():
        (tmp_path / name).write_text(text)
    command = ["mandoc", "-Tlint", "-Wwarning", *sorted(str(one) for one in tmp_path.iterdir())]
    linted = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, "", "")
