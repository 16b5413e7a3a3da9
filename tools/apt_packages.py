# SPDX-License-Identifier: Apache-2.0
"""Print the system packages that the project needs, one a line, from the table that `vmtailor doctor` uses too.

Runs before anything is installed, so it uses the standard library only."""

from __future__ import annotations

import platform
import sys
import tomllib
from pathlib import Path

DATA = Path(__file__).parent.parent / "src/vmtailor/data"


def hosts(architecture: str) -> list[str]:
    """What `uname -m` says on hosts of a row of data/architectures."""
    return list(tomllib.loads((DATA / "architectures" / f"{architecture}.toml").read_text())["hosts"])


def main() -> int:
    """Print each package once, in order. A cross compiler is none on a host of its own processor."""
    tables = [DATA / "tools.toml", *sorted((DATA / "monitors").glob("*.toml"))]
    rows = [
        row
        for table in tables
        for row in tomllib.loads(table.read_text()).get("tool", ())
        if "cross" not in row or platform.machine() not in hosts(row["cross"])
    ]
    for package in dict.fromkeys(row["package"] for row in rows if row.get("package")):
        print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
