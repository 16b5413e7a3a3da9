# SPDX-License-Identifier: Apache-2.0
"""Write the tables of docs/reference/run-and-docker-run.md; with --check only say whether they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from vmtailor.cli.docker_options import DockerOption, Parity, known, subjects
from vmtailor.model.option import rows_of
from vmtailor.pipeline.machine_run import RunOptions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "run-and-docker-run.md"

#: The page is written by hand up to here.
MARK = (
    "<!-- What follows is written by tools/docker_run_reference.py from src/vmtailor/data/docker_run.toml: "
    "run `make docs`. -->"
)
WORDS = {Parity.SAME: "same", Parity.DIFFERS: "differs", Parity.MISSING: "missing"}


def page() -> str:
    """The whole page as Markdown."""
    parts = [PAGE.read_text().partition(MARK)[0] + MARK + "\n"]
    for subject in subjects():
        parts += [f"## {subject.title}\n", "| option of `docker run` | here | |", "| --- | --- | --- |"]
        parts += [_row(option) for option in subject.options]
        parts.append("")
    parts += [
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


def _row(option: DockerOption) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    says = option.says
    if option.answer is Parity.MISSING and option.own_hint:
        says += f" Instead: {option.own_hint}."
    return f"| {names} | {WORDS[option.answer]} | {says} |"


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
