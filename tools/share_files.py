# SPDX-License-Identifier: Apache-2.0
"""Write the manual pages and the completions of shells below a folder, as they are installed below /usr/local:

    tools/share_files.py FOLDER

They are made from the table of options, so that nothing of them is kept in the repository. setup.py puts them into a
wheel, and `make share` writes them to build/share."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from vmtailor.cli.shells import man_pages, scripts

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def files() -> dict[str, str]:
    """Return the text of every file by its path below the folder."""
    found = {place: scripts.script(shell) for shell, place in scripts.PLACES.items()}
    return found | {f"{man_pages.PLACE}/{name}": text for name, text in man_pages.pages(release_date()).items()}


def release_date() -> str:
    """Return the day of the newest release."""
    found = re.search(r"^## \[\d.+?\] - (\d{4}-\d\d-\d\d)$", CHANGELOG.read_text(encoding="utf-8"), re.M)
    assert found is not None, "no release in CHANGELOG.md"
    return found[1]


def main(arguments: list[str]) -> int:
    """Write the files. Returns the exit status."""
    if len(arguments) != 1:
        print("usage: share_files.py FOLDER", file=sys.stderr)
        return 2
    for name, text in files().items():
        path = Path(arguments[0]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
