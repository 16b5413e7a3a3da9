# SPDX-License-Identifier: Apache-2.0
"""Print how long the last `make unit` and the last `.ci/run` took, and where their time went."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

TIMES = Path(__file__).resolve().parents[1] / "build/times"
#: Runs: the file of each, what starts it, and the seconds that it may take on two idle processors.
RUNS = (("unit.xml", "make unit", 60), ("test.xml", "make test", 2400))
LONGEST = 15


def ranked(seconds: dict[str, float]) -> list[tuple[str, float]]:
    """Return names and their seconds, the most first."""
    return sorted(seconds.items(), key=lambda one: -one[1])


def shown(path: Path, command: str, goal: float) -> list[str]:
    """Return the lines of one run: its length, the share of each kind of test, and the longest files."""
    if not path.is_file():
        return [f"{command}: not run here yet"]
    suite = ElementTree.parse(path).getroot().find("testsuite")
    if suite is None:
        return [f"{command}: {path} holds no run"]
    kinds: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    counted = 0
    for case in suite.iter("testcase"):
        counted += 1
        parts = case.get("classname", "").split(".")
        file = next((part for part in parts if part.startswith("test_")), parts[-1])
        kinds[parts[1] if len(parts) > 1 else parts[0]] += float(case.get("time", 0))
        files[file] += float(case.get("time", 0))
    took = float(suite.get("time", 0))
    return [
        f"{command}: {took:.0f} s for {counted} tests (goal: {goal} s), {suite.get('timestamp')}",
        "  " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in ranked(kinds)) + ", over both processes",
        *(f"  {seconds:7.1f} s  {name}" for name, seconds in ranked(files)[:LONGEST]),
    ]


def main(folder: Path = TIMES) -> int:
    for name, command, goal in RUNS:
        print("\n".join(shown(folder / name, command, goal)))
    whole = folder / "ci"
    if whole.is_file():
        print(f".ci/run: {whole.read_text().strip()} s, setup and checks included")
    return 0


if __name__ == "__main__":
    sys.exit(main())
