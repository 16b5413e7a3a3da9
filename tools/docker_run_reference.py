# SPDX-License-Identifier: Apache-2.0
"""Write the tables of docs/reference/run-and-docker-run.md; with --check only say whether they are up to date."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from vmtailor.cli.docker_options import DockerOption, Parity, known, subjects
from vmtailor.model.option import rows_of
from vmtailor.pipeline.machine_run import RunOptions

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "run-and-docker-run.md"
#: Scripts that podman and vmtailor run alike, and what they show.
CASES = ROOT / "tests" / "data" / "podman" / "cases.toml"

#: The page is written by hand up to here.
MARK = (
    "<!-- What follows is written by tools/docker_run_reference.py from src/vmtailor/data/docker_run.toml: "
    "run `make docs`. -->"
)
HEAD = ("| option of `docker run` | here | | shown by |", "| --- | --- | --- | --- |")
WORDS = {Parity.SAME: "same", Parity.DIFFERS: "differs", Parity.MISSING: "missing"}


def shown_by() -> dict[str, str]:
    """Return what shows that an option is the same: its name → a case, or a test."""
    table = tomllib.loads(CASES.read_text())
    found = {name: f"`{case['name']}`" for case in table["case"] for name in case.get("holds", ())}
    return {**found, **{name: f"`{test.rpartition('::')[2]}`" for name, test in table["tests"].items()}}


def page() -> str:
    """The whole page as Markdown."""
    shown = shown_by()
    parts = [PAGE.read_text().partition(MARK)[0] + MARK + "\n"]
    for subject in subjects():
        parts += [f"## {subject.title}\n", *HEAD]
        parts += [_row(option, shown) for option in subject.options]
        parts.append("")
    parts += [
        "## Where podman differs\n",
        "Cases are scripts of tests/data/podman/cases.toml, which podman and vmtailor run alike: what they print is "
        "compared. In these it is another on purpose.\n",
        "| case | |",
        "| --- | --- |",
        *(f"| `{name}` | {reason} |" for name, reason in _reasons()),
        "",
        "## Only here\n",
        "| option | |",
        "| --- | --- |",
        *_only_here(),
        "",
    ]
    return "\n".join(parts)


def _only_here() -> list[str]:
    """Return a line for each option of `run` that `docker run` has not, and for each that switches one of them off."""
    lines = []
    for one, row in rows_of(RunOptions):
        off = row.type is bool and one.default is not False
        if not row.is_argument and (known(row.name) is None or off):
            name = f"--no-{row.name[2:]}" if off else row.name
            words = f"{name} FILE" if row.type is Path else name
            lines.append(
                f"| `{words}` | {'Switch this off: ' + row.help[0].lower() + row.help[1:] if off else row.help} |"
            )
    return lines


def _reasons() -> list[tuple[str, str]]:
    cases = tomllib.loads(CASES.read_text())["case"]
    return [(case["name"], case["reason"]) for case in cases if "reason" in case]


def _row(option: DockerOption, shown: Mapping[str, str]) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    says = option.says
    if option.answer is Parity.MISSING and option.own_hint:
        says += f" Instead: {option.own_hint}."
    by = ", ".join(dict.fromkeys(shown[name] for name in option.names if name in shown))
    return f"| {names} | {WORDS[option.answer]} | {says} | {by} |"


def main(arguments: list[str]) -> int:
    """Write the page, or check it. Returns the exit status."""
    wanted = page()
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == wanted:
            return 0
        print(f"{PAGE} is not what the program says; run: make docs", file=sys.stderr)
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
