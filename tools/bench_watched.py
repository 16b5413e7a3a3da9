# SPDX-License-Identifier: Apache-2.0
"""`make bench-watched`: containers on a host are watched, on the machine as it is and on the machine fitted to it.

    tools/bench_watched.py [--disk FILE --bundle FOLDER] [--units keep] [--out DIR] [--page FILE]

The steps are those that a published thesis watched: a package index update, an installation from a repository on
loopback in one container and in two, ten idle minutes (examples/watched-containers). `vmtailor watch` records each
machine on the instruction clock into OUT/watched; what is there is not watched again. OUT/watched.html has the charts
of both side by side, and OUT/watched.md their tasks; `--page` writes that table into a page, between its marks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench_host import disk, fitted
from bench_page import publish, say

from vmtailor.base.files import records
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.model.machine_watch import RECORD, MachineWatch, WatchedKind, WatchSeries
from vmtailor.stages.report.watch_page import watch_page

ROOT = Path(__file__).resolve().parent.parent
EXERCISE = ROOT / "examples" / "watched-containers" / "exercise.toml"
MEMORY = "2G"
#: A sample this often: the shortest steps take less than a second. Seconds that a watch may take under emulation.
EVERY, TIMEOUT_S = "200ms", 3600
#: A step's title has its name between these: a shell's comment, and the end of a line as it is shown.
NAMES, LINE = "sh -c # ", "\\x0a"
#: Processor time of the machine that is work, by its figures.
WORK = ("cpu_user_us", "cpu_nice_us", "cpu_system_us", "cpu_irq_us", "cpu_softirq_us")


@dataclass(frozen=True)
class Task:
    """A named step of one machine. Seconds are those of the machine's own clock; `containers`: processor time of all
    containers; `held`: bytes of memory that they hold at its end; `written`: bytes to the machine's disks."""

    name: str
    seconds: float
    work: float
    kernel: float
    containers: float
    held: float
    written: float
    received: float


def tasks(watch: MachineWatch) -> list[Task]:
    """Return the named steps of a watch, in their order. Raises ValueError for a watch without steps."""
    steps = [mark for mark in watch.marks if mark.name.startswith("step-") or mark.name == "load_end"]
    found = []
    for mark, after in pairwise(steps):
        span = (mark.at_ns, after.at_ns)
        machine = {one.figure: one for one in watch.of(WatchedKind.MACHINE)}
        containers = watch.of(WatchedKind.CONTAINER)
        disks = watch.of(WatchedKind.DISK)

        def all_of(series: Iterable[WatchSeries], figure: str, span: tuple[int, int] = span) -> float:
            return sum(grown(watch, one, *span) for one in series if one.figure == figure)

        found.append(
            Task(
                name=mark.title.partition(NAMES)[2].partition(LINE)[0] or mark.title,
                seconds=(span[1] - span[0]) / 1e9,
                work=sum(all_of(machine.values(), name) for name in WORK) / 1e6,
                kernel=all_of(machine.values(), "cpu_system_us") / 1e6,
                containers=all_of(containers, "cpu_us") / 1e6,
                held=sum(at(watch, one, span[1]) for one in containers if one.figure == "memory_bytes"),
                written=all_of(disks, "written_bytes"),
                received=all_of(containers, "received_bytes"),
            )
        )
    if not found:
        raise ValueError("the watch has no steps")
    return found


def grown(watch: MachineWatch, series: WatchSeries, begin: int, end: int) -> float:
    """Return what a figure grows by between two moments, from the last samples before them."""
    return max(0.0, at(watch, series, end) - at(watch, series, begin))


def at(watch: MachineWatch, series: WatchSeries, moment: int) -> float:
    """Return a figure at a moment: that of the last sample before it, 0 before the first."""
    known = 0
    for time_ns, value in zip(watch.times_ns, series.values, strict=True):
        if time_ns > moment:
            break
        known = known if value is None else value
    return float(known)


#: Title of a figure → how it is shown of a task.
FIGURES: tuple[tuple[str, Callable[[Task], str]], ...] = (
    ("seconds of the machine's clock", lambda task: f"{task.seconds:.2f}"),
    ("processor, s", lambda task: f"{task.work:.2f}"),
    ("of it kernel, s", lambda task: f"{task.kernel:.2f}"),
    ("processor of the containers, s", lambda task: f"{task.containers:.2f}"),
    ("memory of the containers, MiB", lambda task: f"{task.held / (1 << 20):.1f}"),
    ("written to disks, MB", lambda task: f"{task.written / 1e6:.2f}"),
    ("received by containers, kB", lambda task: f"{task.received / 1e3:.1f}"),
)


def table(before: Sequence[Task], after: Sequence[Task]) -> str:
    """Return tasks × figures, as it is and as fitted."""
    lines = ["| task | | as it is | as fitted |", "| --- | --- | ---: | ---: |"]
    for left, right in zip(before, after, strict=True):
        for number, (title, shown) in enumerate(FIGURES):
            sides = (shown(left), shown(right))
            if number and all(float(side) == 0 for side in sides):
                continue
            lines.append(f"| {left.name if not number else ''} | {title} | {' | '.join(sides)} |")
    return "\n".join(lines)


def watched(subject: str, folder: Path) -> MachineWatch:
    """Return the watch of a machine, made where it is not there. Exits where its exercise does not end as asked."""
    if not (folder / RECORD).is_file():
        say(f"=== watch {subject}, about ten minutes on two processors")
        program = (sys.executable, "-m", "vmtailor", "watch", subject, "-x", str(EXERCISE))
        options = (
            "--clock",
            "instructions",
            "--every",
            EVERY,
            "--memory",
            MEMORY,
            "--timeout",
            str(TIMEOUT_S),
            "-o",
            str(folder),
        )
        ended = subprocess.run([*program, *options], check=False)
        if ended.returncode:
            sys.exit(ended.returncode)
    return records.load(MachineWatch, folder / RECORD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disk", type=Path, help="a disk that was made before")
    parser.add_argument("--bundle", type=Path, help="the bundle of its fit")
    parser.add_argument("--units", default="keep", choices=("keep", "trim"), help="the fit of bench-host that is used")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-host")
    parser.add_argument("--page", type=Path, help="a page that gets the table, between its marks")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    machine = asked.disk or disk(asked.out)
    bundle = asked.bundle
    if bundle is None:
        run = fitted(asked.out, "q35", asked.units, 2, [])
        if run is None:
            sys.exit("the machine was not fitted")
        bundle = Path(run.bundle)
    sides = [
        watched(f"disk:{machine}", asked.out / "watched" / "as-it-is"),
        watched(str(bundle), asked.out / "watched" / "as-fitted"),
    ]
    named = tuple(zip(("as it is", "as fitted"), sides, strict=True))
    write_atomic(asked.out / "watched.html", watch_page("containers on a host, watched", named).encode())
    publish(asked.out, asked.page, "watched", table(*map(tasks, sides)))


if __name__ == "__main__":
    main()
