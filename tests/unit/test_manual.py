# SPDX-License-Identifier: Apache-2.0
"""`vmtailor help` prints every page that a message names, and -h shows help."""

from __future__ import annotations

import ast
import os
import pty
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.source_words import trees
from tests.fakes.started import Start

import vmtailor
from vmtailor.base import manual, near_names, terminal
from vmtailor.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(vmtailor.__file__).parent


def texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the texts of a file that are no docstrings."""
    said = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    yield from (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    )


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    yield from (
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "manual.command"
    )


def test_pages_that_messages_name_exist_and_are_named_by_one_function() -> None:
    found = set()
    for path, tree in trees().items():
        for call in calls(tree):
            (name,) = (ast.literal_eval(argument) for argument in call.args)
            assert name in manual.pages(), f"{path}:{call.lineno}: no page {name}"
            found.add(name)
        if path.name != "manual.py":
            by_path = [f"{path}:{node.lineno}" for node in texts(tree) if "docs/" in str(node.value)]
            assert not by_path, by_path
    assert found >= {"exercise", "run-and-docker-run", "boot-formats", "bench-runtimes"}


def test_no_table_of_the_program_names_a_page_by_its_path() -> None:
    def values(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for inner in value:
                yield from values(inner)
        elif isinstance(value, str):
            yield value

    files = [*SOURCE.rglob("*.toml")]
    assert len(files) > 50
    for file in files:
        assert not [text for text in values(tomllib.loads(file.read_text())) if "docs/" in text], file


def test_every_page_for_users_has_a_name_of_its_own_that_is_no_verb() -> None:
    files = [page for kind in manual.KINDS for page in (ROOT / "docs" / kind).glob("*.md")]
    assert sorted(page.stem for page in files) == sorted(manual.pages())
    assert not {verb.name for verb in VERBS} & set(manual.pages())
    assert manual.pages()["exercise"].title == "The exercise file"


def test_a_wheel_carries_the_same_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    made = runpy.run_path(str(ROOT / "setup.py"))
    assert made["PAGES"] == manual.KINDS
    out = tmp_path / "docs"
    (out / "reference").mkdir(parents=True)
    (out / "reference" / "of-an-older-build.md").touch()
    made["BuildWithNatives"].copy_pages(out)
    copied = {page.stem: page.read_text() for page in out.rglob("*.*")}
    assert copied == {name: page.text for name, page in manual.pages().items()}


def test_help_lists_pages_and_prints_one(start: Start) -> None:
    code, out, err = start("help")
    assert (code, err) == (0, "")
    assert all(f"  {name} " in out for name in manual.pages())
    code, out, err = start("help", "exercise")
    assert (code, out, err) == (0, (ROOT / "docs/reference/exercise.md").read_text(), "")


def test_help_takes_a_page_as_links_write_it_and_a_verb(start: Start) -> None:
    assert start("help", "../reference/images.md#a-plain-directory")[1].startswith("# Images\n")
    for verb in ("gate", "run"):
        assert start("help", verb)[1] == start(verb, "--help")[1]


@pytest.mark.parametrize(
    ("asked", "meant"), [("exercize", "exercise"), ("fit-an-image", "fit-your-image"), ("analyse", "analyze")]
)
def test_a_page_that_does_not_exist(asked: str, meant: str, start: Start) -> None:
    code, out, err = start("help", asked)
    assert (code, out) == (2, "") and f"did you mean {meant}?" in err and "vmtailor help lists" in err


def test_without_its_pages_an_installation_says_so(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manual, "pages", dict)
    assert start("help")[0] == 3


def test_on_a_terminal_a_page_is_set_and_paged(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("pydoc.pager", shown.append)
    monkeypatch.setenv("COLUMNS", "60")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        terminal.show_page(manual.pages()["exercise"].text)
    os.close(ours)
    (text,) = shown
    assert "The exercise file" in text and "# The exercise" not in text and "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_h_is_help_of_every_verb_but_run(verb: Any, start: Start) -> None:
    code, out, _ = start(verb.name, "-h")
    if verb.name == "run":
        assert code == 125 and out == ""
    else:
        assert code == 0 and out == start(verb.name, "--help")[1]


def test_h_without_a_verb(start: Start) -> None:
    assert start("-h")[:2] == start("--help")[:2]


def test_names_that_were_meant() -> None:
    assert near_names.nearest("EPOL", ["EPOLL", "POSIX", "FUTEX"]) == ("EPOLL",)
    assert near_names.nearest("epol", ["EPOLL"]) == ("EPOLL",) and near_names.nearest("", ["A"]) == ()
    assert near_names.nearest("x" * 10_000, ["x" * 10_000]) == near_names.nearest("x" * 80, ["x" * 81]) == ()
    assert near_names.asked("prot", ["port", "path"]) == "did you mean port?" and near_names.asked("zz", ["port"]) == ""
