# SPDX-License-Identifier: Apache-2.0
"""Write the tables of docs/reference/run-and-docker-run.md; with --check only say whether they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from vmtailor.cli.docker_options import DockerOption, Parity, subjects

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "run-and-docker-run.md"

#: The page is written by hand up to here.
MARK = (
    "<!-- What follows is written by tools/docker_run_reference.py from src/vmtailor/data/docker_run.toml: "
    "run `make docs`. -->"
)
WORDS = {Parity.SAME: "same", Parity.DIFFERS: "differs", Parity.MISSING: "not there"}


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
        "| `--accelerator` | kvm or tcg |",
        "| `--explain-failures` | the container is watched, and at the end it is said what its kernel refused that the "
        "baseline would have given ([how](../how-to/see-what-was-refused.md)) |",
        "| `--observed FILE` | the same, and what was refused is written to the file |",
        "| `--no-outbound` | the guest can open no connections; published ports still lead in |",
        "| `--host-loopback` | the container reaches servers on this host's loopback, as 10.0.2.2 |",
        "| `--keep-state` | of a whole system: what it writes to its disk is there at its next start |",
        "| `--no-privileged` | root in the container without all capabilities, in a bundle that was fitted with them |",
        "",
    ]
    return "\n".join(parts)


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
