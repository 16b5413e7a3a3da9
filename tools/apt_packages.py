# SPDX-License-Identifier: Apache-2.0
"""Print the system packages that vmtailor needs for a purpose, one a line, from the table that `vmtailor doctor` uses
too.

    tools/apt_packages.py run|setup|cross|dev

`run`: to install vmtailor and run bundles. `setup`: to fit images of this host's processor, too. `cross`: to fit images
of the other processors besides, with nothing of `setup`. `dev`: all, for the tests.

Runs before anything is installed, so it uses the standard library only."""

from __future__ import annotations

import platform
import sys
import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src/vmtailor/data"
PURPOSES = ("run", "setup", "cross", "dev")


def hosts(architecture: str) -> list[str]:
    """Return the words that `uname -m` says on hosts of a row of data/architectures."""
    return list(tomllib.loads((DATA / "architectures" / f"{architecture}.toml").read_text())["hosts"])


def serves(row: dict[str, Any], purpose: str) -> bool:
    """Return whether a row of the table is needed for a purpose on this host. A cross compiler is none on a host of its
    own processor."""
    named = [row[key] for key in ("machines", "cross") if key in row]
    own = any(platform.machine() in hosts(name) for name in named)
    if purpose == "run":
        return bool(row.get("runs")) or ("machines" in row and own)
    if "cross" in row and own:
        return False
    if purpose == "cross":
        return bool(named) and not own
    return purpose == "dev" or (row["need"] != "development" and (own or not named))


def main(arguments: list[str]) -> int:
    """Print each package of the purpose once, in order."""
    if len(arguments) != 1 or arguments[0] not in PURPOSES:
        print(f"usage: apt_packages.py {'|'.join(PURPOSES)}", file=sys.stderr)
        return 2
    tables = [DATA / "tools.toml", *sorted((DATA / "monitors").glob("*.toml"))]
    rows = [row for table in tables for row in tomllib.loads(table.read_text()).get("tool", ())]
    for package in dict.fromkeys(row["package"] for row in rows if serves(row, arguments[0])):
        print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
