# SPDX-License-Identifier: Apache-2.0
"""The generated reference of the command line has every command, and every option of each."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import typer
from tests.fakes.tools import load_tool
from typer.testing import CliRunner

from vmtailor.cli.main import app


def tool() -> ModuleType:
    return load_tool("cli_reference")


def test_every_command_is_documented_with_a_sentence() -> None:
    module = tool()
    found = module.commands()
    assert len(found) >= 3
    page = module.PAGE.read_text()
    for path, callback in found:
        assert f"\n## vmtailor {path}\n" in page, f"{path}: run make docs"
        assert (callback.__doc__ or "").strip(), path


def test_every_option_that_help_shows_is_in_the_page() -> None:
    module = tool()
    page = module.page()
    for path, _ in module.commands():
        section = page.split(f"\n## vmtailor {path}\n")[1].split("\n## ")[0]
        result = CliRunner().invoke(app, [*path.split(), "--help"], env={"COLUMNS": "300", "TERM": "dumb"})
        assert result.exit_code == 0, (path, result.exception)
        text = result.stdout
        names = {word.strip("│, ") for word in text.split() if word.strip("│, ").startswith("--")} - {"--help"}
        shown = {name for name in names if name.replace("-", "").isalnum()}
        assert bool(shown) == (path not in ("help", "completions", "wait", "rename", "generate")), path
        missing = {name for name in shown if name not in section and not name.startswith("--no-")}
        assert not missing, (path, missing)


def test_every_parameter_has_help() -> None:
    module = tool()
    for path, callback in module.commands():
        for parameter in module._parameters(callback):
            assert parameter.info.help, f"vmtailor {path}: {parameter.name} has no help"


def test_the_page_is_what_the_program_says() -> None:
    assert tool().main(["--check"]) == 0


def test_a_page_that_is_not_up_to_date_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tool()
    page = tmp_path / "cli.md"
    monkeypatch.setattr(module, "PAGE", page)
    page.write_text("old")
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0 and module.main(["--check"]) == 0


def test_both_ways_to_declare_parameters_are_understood() -> None:
    many_option, flag_option = typer.Option([], "--many", "-m", help="h"), typer.Option(False)

    def verb(name: str, many: list[str] = many_option, flag: bool = flag_option) -> None:
        """Do."""

    module = tool()
    names = [parameter.names for parameter in module._parameters(verb)]
    assert names == ["`-m`, `--many` TEXT", "`--flag`, `--no-flag`"]
