# SPDX-License-Identifier: Apache-2.0
"""Commands on pages: each is read by the command line as it is written, and each target of make is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from vmtailor.base.errors import UserInputError
from vmtailor.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
#: docs/reference/cli.md has the program's own forms of use (`[OPTIONS]`), by tools/cli_reference.py.
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for folder in ("docs", "examples", "benchmarks") for page in sorted((ROOT / folder).rglob("*.md"))
      if page.name != "cli.md"),
]  # fmt: skip
_BEFORE = re.compile(r"sudo|!|[A-Z_]+=.*")
#: What the shell would put there is one word.
_SHELL = re.compile(r"\$(?:\([^()]*\)|\w+)")


def lines_of(text: str) -> Iterator[str]:
    """The lines of a page's examples, each with those that continue it."""
    held = ""
    for line in text.splitlines():
        if not line.startswith("    "):
            held = ""
            continue
        held += line.strip()
        if held.endswith("\\"):
            held = held[:-1]
            continue
        yield held
        held = ""


def words_of(line: str) -> Iterator[list[str]]:
    """The words of each command of a line, without remarks, redirections, and what stands before the program."""
    lexer = shlex.shlex(_SHELL.sub("word", line), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    found: list[str] = []
    redirected = False
    for word in lexer:
        if word.startswith("#"):
            break
        if set(word) <= set("|&;"):
            yield found
            found = []
        elif not redirected and not set(word) <= set("<>") and (found or not _BEFORE.fullmatch(word)):
            found.append(word)
        redirected = set(word) <= set("<>")
    yield found


def commands_of(text: str, program: str) -> Iterator[list[str]]:
    """The arguments of each command of a program in a page's examples. Prose in them is none."""
    for line in lines_of(text):
        if program in line:
            for words in words_of(line):
                if words and words[0].rpartition("/")[2] == program:
                    yield words[1:]


def refusal(arguments: list[str]) -> str:
    """What the command line says against these arguments; empty where it would begin to work."""
    group = typer.main.get_command(app)
    try:
        context = group.make_context("vmtailor", list(arguments))
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])  # type: ignore[attr-defined]
        command.make_context(name, rest, parent=context)
    except UserInputError as error:
        return error.message
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_of_a_page_is_read(page: Path) -> None:
    found = {" ".join(words): refusal(words) for words in commands_of(page.read_text(), "vmtailor")}
    assert not {words: said for words, said in found.items() if said}


def test_the_pages_have_commands() -> None:
    assert sum(len(list(commands_of(page.read_text(), "vmtailor"))) for page in PAGES) > 120


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vmtailor fitt oci:x", "No such command"),
        ("sudo .venv/bin/vmtailor bench startup --slow", "No such option"),
        ("vmtailor run a && vmtailor boot disk.raw   five boots", "extra argument"),
        ("make demo; vmtailor compare before", "Missing argument"),
    ],
)
def test_a_command_that_is_none_is_found(line: str, said: str) -> None:
    found = [refusal(words) for words in commands_of(f"    {line}\n", "vmtailor")]
    assert said in found[-1]


def test_each_target_of_make_on_a_page_is_there() -> None:
    """In examples, and between backticks; the kernel's own targets, and that of native/, are of another Makefile."""
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    targets, elsewhere = set(phony[1].split()), {"allnoconfig", "olddefconfig", "others"}
    named: set[str] = set()
    for page in PAGES:
        text = page.read_text()
        named |= {word for words in commands_of(text, "make") for word in words if re.fullmatch(r"[a-z][a-z-]+", word)}
        named |= set(re.findall(r"`(?:sudo )?make ([a-z][a-z-]+)", text))
    assert len(named) > 15
    assert sorted(named - targets - elsewhere) == []
    said = set(re.findall(r'"make ([a-z|-]+)', (ROOT / "Makefile").read_text()))
    assert {target for words in said for target in words.split("|")} <= targets
