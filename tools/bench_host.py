# SPDX-License-Identifier: Apache-2.0
"""`make bench-host`: fit the machine that hosts containers, print what the figures are held against.

    tools/bench_host.py [--machine q35 microvm] [--units keep trim] [--mask UNIT] [--try CHANGE]
                        [--try-file PATH=FILE] [--boots N] [--out DIR] [--page FILE]

The disk is that of examples/debian-vm, made once; it is fitted for each machine and each way with units. What was
finished is found again, so that it can be interrupted: each fit is a bundle below OUT, and a second run reads them from
there. With `--mask`, `--try` or `--try-file` there is one more column: `trim` without the units, and with the
changes beside the kernel, that are named. OUT/host.md has the table; `--page` writes it into a page, between its marks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_page import publish, say

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.model.boots.boot import Phase, PhaseCounts
from vmtailor.model.bundle import RUN
from vmtailor.model.fit_run import FitRun, Side

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "debian-vm"
MEMORY = "2G"


@dataclass(frozen=True)
class Row:
    """One line: a figure of a side, in its unit; at most `goal` on the tailored side, where there is one, or at least
    `below` less than the baseline's, or at least the share `less`."""

    title: str
    of: Callable[[Side], float | None]
    digits: int = 2
    goal: float | None = None
    units: str = ""  # the goal holds with these alone
    masked: float | None = None  # the goal with units masked by name
    below: float | None = None
    less: float | None = None

    def missed(self, run: FitRun, units: str) -> bool:
        """Whether it has a goal for this way, and misses it. A figure that is missing does."""
        found, before = self.of(run.tailored), self.of(run.baseline)
        if self.below is not None:
            return found is None or before is None or before - found < self.below
        if self.less is not None:
            return found is None or before is None or found > before * (1 - self.less)
        goal = self.masked if self.masked is not None and "--mask" in units.split() else self.goal
        return goal is not None and self.units in ("", *units.split()) and (found or float("inf")) > goal

    @property
    def wanted(self) -> str:
        """The goal, as the table has it."""
        if self.below is not None:
            return f"−{shown(self.below, self.digits)}"
        if self.less is not None:
            return f"−{self.less:.0%}".replace("%", " %")
        goals = [(self.goal, self.units), (self.masked, "--mask")]
        told = [(shown(goal, self.digits), units) for goal, units in goals if goal is not None]
        return ", ".join(f"{goal} (`{units}`)" if units else goal for goal, units in told)


def _loops_us(side: Side) -> float | None:
    """Microseconds of the named loops that only emulation causes, before init: an instruction is a nanosecond."""
    if side.init_instructions is None or side.init_instructions_net is None:
        return None
    return (side.init_instructions - side.init_instructions_net) / 1e3


def _seconds(us: float | None, without_us: float | None = 0.0) -> float | None:
    return None if us is None or without_us is None else (us - without_us) / 1e6


def _after(side: Side, part: Callable[[PhaseCounts], int]) -> float | None:
    """Seconds of a part of what was executed between systemd's start and ready: an instruction is a nanosecond."""
    found = [part(one) for one in side.phases if one.phase in (Phase.INIT, Phase.START_UP)]
    return sum(found) / 1e9 if found else None


def _span(side: Side) -> float | None:
    if side.ready_virtual_us is None or side.init_virtual_us is None:
        return None
    return (side.ready_virtual_us - side.init_virtual_us) / 1e6


def _idle(side: Side) -> float | None:
    """Seconds between systemd's start and ready in which nothing was executed."""
    span, busy = _span(side), _after(side, lambda one: one.kernel + one.user)
    return None if span is None or busy is None else span - busy


ROWS = (
    Row("kernel entry → systemd of the real root, virtual s, gross", lambda s: _seconds(s.init_virtual_us), goal=0.50),
    Row("the same, net", lambda s: _seconds(s.init_virtual_us, _loops_us(s)), goal=0.30),
    Row(
        "kernel entry → a container ran, virtual s",
        lambda s: _seconds(s.ready_virtual_us),
        goal=5.0,
        units="trim",
        masked=4.3,
    ),
    Row("systemd's start → a container ran, virtual s", _span),
    Row("of it in the kernel", lambda s: _after(s, lambda one: one.kernel), less=0.2, units="keep"),
    Row("of it in programs", lambda s: _after(s, lambda one: one.user)),
    Row("of it idle", _idle),
    Row("kernel entry → systemd, M instructions, net", lambda s: _millions(s.init_instructions_net), 1),
    Row("device accesses to ready", lambda s: s.device_accesses, 0),
    Row("kernel file, compressed, MB", lambda s: s.kernel_compressed_bytes / 1e6, goal=3.5),
    Row("symbols =y with a prompt", lambda s: s.symbols_prompted, 0, goal=380),
    Row("least memory until it is at rest, MiB", lambda s: _mebibytes(s.min_memory_bytes), 0, below=50),
)


def _millions(count: float | None) -> float | None:
    return None if count is None else count / 1e6


def _mebibytes(count: int | None) -> float | None:
    return None if count is None else count / (1 << 20)


def disk(out: Path) -> Path:
    """The example's disk, made where it is not there."""
    folder = out / "debian-vm"
    if not (folder / "disk.raw").is_file():
        subprocess.run([sys.executable, str(EXAMPLE / "build"), str(folder)], check=True)
    return folder / "disk.raw"


def fitted(out: Path, machine: str, units: str, boots: int, named: Sequence[str]) -> FitRun | None:
    """The record of one fit; None where it did not come to its end. `named`: options and values of the ways that have
    such."""
    bundle = out / f"{machine}-{units.replace(' --', '-')}"
    way, *rest = units.split()
    argv = [sys.executable, "-m", "vmtailor", "fit", f"disk:{disk(out)}", "-x", str(EXAMPLE / "exercise.toml"),
            "--memory", MEMORY, "--machine", machine, "--units", way, *(named if rest else ()),
            "--repeat", str(boots),
            "-o", str(bundle), "--json"]  # fmt: skip
    say(f"=== {machine}, --units {units}")
    ended = subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
    if ended.returncode not in (0, 1):
        return None
    try:
        return records.load(FitRun, bundle / RUN)
    except UserInputError as error:
        say(f"    {error.message}")
        return None


def shown(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}".replace(",", " ")


def table(runs: Sequence[tuple[str, str, FitRun]]) -> str:
    """The table in Markdown: the baseline of each machine, then each way with units."""
    machines = dict.fromkeys(machine for machine, _, _ in runs)
    columns: list[tuple[str, str, Side]] = []
    for machine in machines:
        of_it = [(units, run) for one, units, run in runs if one == machine]
        columns.append((f"{machine}, baseline", "", of_it[0][1].baseline))
        columns += [(f"{machine}, `{units}`", units, run.tailored) for units, run in of_it]
    lines = [
        "| | " + " | ".join(title for title, _, _ in columns) + " | goal |",
        "| --- | " + "---: | " * len(columns) + "---: |",
    ]
    for row in ROWS:
        cells = [shown(row.of(side), row.digits) for _, _, side in columns]
        lines.append(f"| {row.title} | {' | '.join(cells)} | {row.wanted} |")
    lines += ["", *(_words(machine, units, run) for machine, units, run in runs)]
    return "\n".join(lines) + "\n"


def _words(machine: str, units: str, run: FitRun) -> str:
    repairs = sum(1 for trial in run.trials if trial.purpose == "repair")
    steps = len(run.exercise.load)
    missed = [row.title for row in ROWS if row.missed(run, units)]
    over = f"; over its goal: {', '.join(missed)}" if missed else ""
    verdict = "verified" if run.verified else "not verified"
    seconds = sum(seconds for _, seconds in run.stage_seconds)
    return f"- {machine}, `{units}`: {verdict}, {steps} steps, {repairs} repairs, {seconds / 60:.0f} min{over}."


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The machine that hosts containers, fitted and held against its goals."
    )
    parser.add_argument("--machine", nargs="+", default=["q35"], metavar="KIND", help="q35 microvm")
    parser.add_argument("--units", nargs="*", default=["keep", "trim"], choices=["keep", "trim"], help="may be none")
    parser.add_argument("--mask", nargs="+", default=[], metavar="UNIT", help="once more with trim, without these")
    parser.add_argument("--try", nargs="+", default=[], metavar="CHANGE", dest="tries", help="and with these changes")
    parser.add_argument("--try-file", nargs="+", default=[], metavar="PATH=FILE", dest="files", help="and these files")
    parser.add_argument("--boots", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/bench-host"))
    parser.add_argument("--page", type=Path, help="a page that gets the table, between its marks")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    out = chosen.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    options = {"--mask": chosen.mask, "--try": chosen.tries, "--try-file": chosen.files}
    named = [word for option, values in options.items() for value in values for word in (option, value)]
    given = [option for option, values in options.items() if values]
    ways = [*chosen.units, *([" ".join(["trim", *given])] if given else [])]
    pairs = [(machine, units) for machine in chosen.machine for units in ways]
    say(f"{len(pairs)} fits, the first up to 90 minutes on two processors; what is there is found")
    runs = []
    for machine, units in pairs:
        found = fitted(out, machine, units, chosen.boots, named)
        if found is not None:
            runs.append((machine, units, found))
    if not runs:
        raise SystemExit("no fit came to its end")
    publish(out, chosen.page, "host", table(runs))


if __name__ == "__main__":
    main()
