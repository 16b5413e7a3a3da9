# SPDX-License-Identifier: Apache-2.0
"""Print the system packages that the project needs, one a line, from the table that `vmtailor doctor` uses too.

Runs before anything is installed, so it uses the standard library only."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

TABLE = Path(__file__).parent.parent / "src/vmtailor/data/tools.toml"


def main() -> int:
    """Print each package once, in order."""
    rows = tomllib.loads(TABLE.read_text())["tool"]
    for package in dict.fromkeys(row["package"] for row in rows if row.get("package")):
        print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
