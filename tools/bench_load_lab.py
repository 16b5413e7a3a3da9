# SPDX-License-Identifier: Apache-2.0
"""`make bench-load-lab`: the rate at which a container's machine breaks under KVM, in the lab.

    tools/bench_load_lab.py [--bundle build/demo] [--out build/bench-load] [--page FILE]

The packaged kernel and the fitted one start in the lab, and lighttpd's exercise drives each at once and by a sweep: by
the client in the guest, and the fitted one also by the lab, over a TAP device. Six boots of two to six minutes each;
each is a file of OUT, and what is there is not made again. OUT/lab.md has the table; `--page` writes it into a page.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import bench_load_rates as rates
from bench_page import publish, say

from vmtailor.base import figures
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records, temporary
from vmtailor.booting.booter import boot
from vmtailor.booting.bundle_booter import workload_of
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.monitors import monitors
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.load_result import LoadResult
from vmtailor.model.boots.workload import Clients
from vmtailor.model.exercise import Step
from vmtailor.model.machine import LAB, USUAL_MONITOR, Machine
from vmtailor.stages import exercise_file

#: Requests of a closed loop: each is executed twice over by the emulated host.
REQUESTS = 400
#: By how much the rate of a sweep's stage is higher than the last one's.
STEP = 1.06


@dataclass(frozen=True)
class Row:
    """One row of the table: a machine, who asks it, the rates between which it breaks, and how long each is asked."""

    machine: str
    clients: Clients
    first: float
    last: float
    stage_s: float = 0.05

    @property
    def title(self) -> str:
        return f"{self.machine}, asked by {'the guest' if self.clients is Clients.INSIDE else 'the lab'}"


ROWS = (
    Row(rates.BASELINE, Clients.INSIDE, 5000, 9000),
    Row(rates.TAILORED, Clients.INSIDE, 8000, 12000),
    Row(rates.TAILORED, Clients.HOST, 3000, 6000, stage_s=0.2),  # an answer alone takes a hundredth of less
)


def loads(step: Step, row: Row) -> dict[str, Step]:
    """Return the two loads of a row, by their names: at once, and a sweep of a step with a rate."""
    assert step.load is not None
    sweep = replace(step.load, rate=row.first, to_rate=row.last, step=STEP, seconds=row.stage_s)
    closed = replace(step.load, rate=None, to_rate=None, sessions=REQUESTS, at_once=16)
    return {"at once": replace(step, load=closed), "sweep": replace(step, load=sweep)}


def driven(machine: Machine, row: Row, step: Step, loaded: BundleFolder, out: Path) -> Boot:
    """Boot a machine in the lab under one load. Raises SystemExit where that is not right."""
    exercise = exercise_file.load(rates.EXERCISES / "exercise-sweep.toml", loaded.image)
    machine = replace(machine, monitor=f"{LAB}{USUAL_MONITOR}", network=row.clients is Clients.HOST)
    slow = monitors.of(machine).slowness
    work = workload_of(replace(exercise, load=(step,)), slow * rates.TIMEOUT_S).unhurried(machine.clock)
    with temporary.held_folder(out) as scratch:
        found, _ = boot(machine, replace(work, clients=row.clients), scratch)
    if found.failures and step.load is not None and step.load.to_rate is None:
        raise SystemExit(f"{row.title}: {found.problem}")
    return found


def table(found: dict[tuple[Row, str], LoadResult]) -> str:
    """Return the table: each machine's rate at once, and its knee."""
    heads = ("machine", "at once", "held", "not held", "the knee differs by")
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for row in ROWS:
        closed, knee = found[row, "at once"].stages[0].achieved, found[row, "sweep"].knee
        if closed is None or knee is None:
            lines.append(f"| {row.title} | no knee between {row.first:g} and {row.last:g} | | | |")
            continue
        apart = 100 * (sum(knee) / 2 / closed - 1)
        cells = (row.title, *(figures.grouped(one) for one in (closed, *knee)), f"{apart:+.1f} %")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=rates.ROOT / "build" / "demo")
    parser.add_argument("--out", type=Path, default=rates.ROOT / "build" / "bench-load")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    loaded = bundle_folder.load_container(given.bundle, Store())
    sides = rates.machines(loaded, given.bundle)
    (step,) = exercise_file.load(rates.EXERCISES / "exercise-sweep.toml", loaded.image).loads
    say(f"{2 * len(ROWS)} boots of two to six minutes each; what is in {given.out} is not made again")
    found: dict[tuple[Row, str], LoadResult] = {}
    for row in ROWS:
        for name, load in loads(step, row).items():
            file = given.out / f"lab-{row.machine.partition(' ')[0]}-{row.clients}-{name.replace(' ', '-')}.json"
            if not file.is_file():
                say(f"{row.title}: {name}")
                records.save(driven(sides[row.machine][0], row, load, loaded, given.out), file)
            run = records.load(Boot, file).container
            assert run is not None
            (found[row, name],) = run.loads
    publish(given.out, given.page, "lab", table(found))


if __name__ == "__main__":
    main()
