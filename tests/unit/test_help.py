# SPDX-License-Identifier: Apache-2.0
"""Help is whole: each verb's, on narrow and wide terminals, and the words for what is no option or verb."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.fakes.started import Start
from tests.unit.test_cli_reference import tool

from vmtailor.cli.verbs import GROUPS, VERBS, Verb

VERB = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)


def names_of(verb: Verb) -> list[str]:
    """Every option and argument that a verb declares."""
    module: Any = tool()
    found = []
    for parameter in module._parameters(verb.function()):
        if parameter.is_argument:
            found.append(parameter.name)
        else:
            found += [word.strip("`,") for word in parameter.names.split() if word.startswith("`-")]
    return found


@pytest.mark.parametrize("columns", ["40", "80", "200"])
@VERB
def test_help_has_every_option(verb: Verb, columns: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, out, err = start(verb.name, "--help")
    assert (code, err) == (0, "")
    words = {word.strip(",[]{}").removesuffix("...").strip("]") for word in out.replace("/", " ").split()}
    missing = [name for name in names_of(verb) if name not in words and name.upper() not in words]
    assert not missing, missing
    assert out.startswith(f"Usage: vmtailor {verb.name} ")
    assert all(len(line) <= max(50, int(columns)) for line in out.splitlines())


def test_brackets_in_a_help_text_are_brackets(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "http:PORT[/PATH]" in start("boot", "--help")[1].replace("\n", "")


@VERB
def test_the_list_of_verbs_says_what_each_says_of_itself(verb: Verb) -> None:
    first = " ".join(inspect.cleandoc(verb.function().__doc__ or "").split("\n\n")[0].split())
    assert verb.help == first.split(". ")[0].rstrip(".") + "."
    assert verb.function().__name__ == verb.name


def test_each_verb_is_in_one_line_of_the_list() -> None:
    listed = [name for _, lines in GROUPS for names, _ in lines for name in names.split(", ")]
    assert sorted(listed) == sorted(verb.name for verb in VERBS)


def test_all_verbs_are_listed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("40", "80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        code, out, err = start("--help")
        assert (code, err) == (0, "")
        assert {verb.name for verb in VERBS} | {"--version;", "--debug", "--help."} <= set(out.replace(",", "").split())
        lines = out.splitlines()
        assert all(len(line) <= max(50, int(columns)) for line in lines)
        assert columns == "40" or len(lines) < 24  # one screen, with the prompt below


def test_without_a_verb_help_is_shown_and_it_counts_as_wrong(start: Start) -> None:
    code, out, err = start()
    assert code == 2 and "Run it like a container:" in out and err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-verb",), "No such command 'no-such-verb'."),
        (("analyse", "x"), "Did you mean 'analyze'?"),
        (("--no-such-option",), "No such option: --no-such-option"),
        (("analyze", "--tpo", "3", "x"), "--top"),
        (("analyze", "--top", "x", "x"), "'--top'"),
        (("analyze",), "Missing argument"),
        (("boot", "--clock", "sundial"), "Invalid value for '--clock': 'sundial' is not one of"),
        (("gate", "x", "--budgets"), "requires an argument"),
        (("analyze", "--top", "\x1b[2J", "x"), "'--top'"),
        (("\x1b[2Jx\nhint: y",), "No such command"),
    ],
)
def test_wrong_words_end_with_2_and_say_what_is_wrong(arguments: tuple[str, ...], words: str, start: Start) -> None:
    code, out, err = start(*arguments)
    assert code == 2 and out == ""
    lines = err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: vmtailor")
    assert words in lines[0] and "\x1b" not in err and "--help" in lines[1]
