# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/load-changes.md from the catalogue of changes that are tried under load."""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

from vmtailor.analysis.changes.load_catalogue import LoadChange, catalogue
from vmtailor.model.change import ChangeKind, Setting

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "load-changes.md"
HEAD = """<!-- Written by tools/load_reference.py; change data/changes/load instead. -->
# Changes that are tried under load

    vmtailor boot BUNDLE --try load --under load

boots the bundle with each proposed change alone and then with all that helped, and judges by the kernel's
instructions a request of its exercise. `--judge request` counts the programs' instructions, too; `--judge p99`
(`p50`, `p90`, `p99.9`) is the latency of its load at a rate, in virtual time. `--under both` asks that neither the
boot nor the load is worse. A name of the tables below tries one change, `a+b` two as one. These can be
named besides:

| name | what is tried |
| --- | --- |
| `SYMBOL=VALUE` | the kernel compiled with another value of a configuration symbol |
| `cc:-O3`, `cc:-march=NAME`, `cc:--param=NAME=NUMBER` | the kernel compiled with a flag behind its own |
| `cc:CC=clang-19` | the kernel compiled by clang and linked by lld of that version, where they are installed |
| `/proc/sys/NAME=VALUE`, `/sys/FILE=VALUE` | init writes it before the container starts (`VT_SET`) |

A change that cannot be had is a row with its reason: a flag that the compiler does not take, a patch that does not
apply, a scheduler that the kernel lacks. The others go on. Kernels are compiled once for the same source,
configuration, flags and patches, and the cache keeps them. No flag names a file or a program.

`clang-profile` compiles two kernels, and needs clang, lld and llvm-profgen (`make setup-dev`). It boots the first one
under the load, and compiles the second one by its counts ([how](../explanation/under-load-changes.md#by-a-profile)). A
bundle has the profile as `load.profile`, and its plan names it by SHA-256; another profile in its place is refused.

What is not proposed is tried by its name alone: it gives up a protection, or the network or another load would pay for
it.

    vmtailor fit IMAGE -x EXERCISE --try load --under load

tries them on the fitted machine, and keeps in the bundle what was better together, if the whole proof passes with it.
The report has a row for each change, and the ledger each trial.

A patch of the kernel's source is an experiment, and unsafe. It is one of this program's own (`data/patches`), named by
its digest, and changes C files of the kernel alone. A bundle with one says so in red, `export` refuses it without
`--allow-patched PATCH`, and `run IMAGE` passes it over. A bundle that names any other patch is refused.
"""


def rows(changes: list[LoadChange]) -> str:
    """Return the table of one subject."""
    lines = ["| change | sets | why | gives up | proposed |", "| --- | --- | --- | --- | --- |"]
    for one in changes:
        sets = ", ".join(f"`{_text(setting)}`" for setting in one.candidate.change.settings)
        why = one.reason + "".join(f"; published: {text}" for text in one.published)
        cells = (f"`{one.id}`", sets, why, one.gives_up or "–", "yes" if one.proposed else "no")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _text(setting: Setting) -> str:
    return f"{setting.name}={setting.value}" if setting.value and setting.kind is not ChangeKind.PATCH else str(setting)


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for subject, changes in groupby(catalogue(), key=lambda one: one.subject):
        parts.append(f"## {subject}\n\n{rows(list(changes))}\n")
    return "\n".join(parts)


def main() -> int:
    """Write the page, or say with --check whether it is as it would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, "utf-8")
        return 0
    if PAGE.read_text("utf-8") == text:
        return 0
    print(f"{PAGE} is stale: make docs writes it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
