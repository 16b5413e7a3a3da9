# SPDX-License-Identifier: Apache-2.0
"""`make bench-load-rates`: a container under load, on the packaged kernel and on the one that was fitted to it.

    tools/bench_load_rates.py [--bundle build/demo] [--exercises examples/lighttpd] [--loads peak surf commands sweep]
                              [--out build/bench-load] [--page FILE]

Each load is exercise-NAME.toml of the folder of exercises, driven on the instruction clock by the client in the guest,
with every instruction counted. Two machines and four loads are eight boots of up to five minutes each. Each is a file
of OUT: what is there is not made again. The knee of the sweep stands beside the rate that one processor gives by the
instructions of a request, the client's included: counted in a boot of its own, just below the highest rate that was
held, since the first requests of a boot are dearer.
OUT/rates.md has the tables; `--page` writes them into a page, between its marks.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench_page import publish, say

from vmtailor.analysis.cost import request_costs
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import boots, load_rows, machine_variants
from vmtailor.base import figures
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records, temporary
from vmtailor.base.natives import Natives
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot
from vmtailor.booting.bundle_booter import workload_of
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.cli.tables import load_table
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CountingConfig
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Clock, Machine
from vmtailor.pipeline import second_measure
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import exercise_file

ROOT = Path(__file__).resolve().parent.parent
EXERCISES = ROOT / "examples" / "lighttpd"
LOADS = ("peak", "surf", "commands", "sweep")
#: The boot just below the highest rate that the sweep found to be held, and what share of it that is.
KNEE, BELOW = "knee", 0.97
BASELINE, TAILORED = "packaged kernel", "fitted kernel"
TIMEOUT_S = 3000.0


def machines(loaded: BundleFolder, folder: Path) -> dict[str, tuple[Machine, SymbolTable]]:
    """Return both machines of a bundle, each with its kernel's symbols: without a network device, as they are
    measured."""
    inputs = second_measure.inputs_of(loaded, FitOptions(str(folder), folder, store=Store()))
    own = machine_of(loaded, Chosen(cpu_model=loaded.trace.cpu_model, clock=Clock.INSTRUCTIONS))
    own = replace(own, network=False)
    return {BASELINE: (inputs.baseline, inputs.table), TAILORED: (own, second_measure.table_of(loaded))}


def driven(machine: Machine, table: SymbolTable, exercise: Exercise, loaded: BundleFolder, out: Path) -> Boot:
    """Boot a machine under an exercise's load, with everything counted. Raises SystemExit where the load is not
    right."""
    natives: Natives = guest_programs.of(loaded.bundle.architecture)
    config = CountingConfig(marks=boots.marks(table, natives), architecture=table.architecture)
    work = workload_of(exercise, TIMEOUT_S).unhurried(Clock.INSTRUCTIONS)
    with temporary.held_folder(out) as scratch:
        counted = machine_variants.counted(machine)
        found, _ = boot(counted, work, scratch, counting=Counting(natives, config, table))
    if found.failures:
        raise SystemExit(found.problem)
    return found


def knee_of(sweep: Boot | None) -> tuple[float, float] | None:
    """Return the highest rate that a sweep held and the lowest that it did not; None for a sweep without."""
    loads = sweep.container.loads if sweep is not None and sweep.container is not None else ()
    return next((one.knee for one in loads if one.knee is not None), None)


def at_rate(exercise: Exercise, rate: float) -> Exercise:
    """Return an exercise whose sweep asks at one rate alone, for a second or more: what the client takes to begin and
    to end is in its figures, too."""
    steps = [
        step
        if step.load is None or step.load.to_rate is None
        else replace(step, load=replace(step.load, rate=rate, to_rate=None, seconds=max(1.0, step.load.seconds)))
        for step in exercise.load
    ]
    return replace(exercise, load=tuple(steps))


def page(found: Mapping[tuple[str, str], Boot]) -> str:
    """Return the tables: the instructions of a request by load, each load's stages, and the knees."""
    lines = ["| load | machine | kernel | program | kernel for the client | client | together | gives at most |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for (load, name), one in found.items():
        cost = request_costs.of_boot(one)
        if cost is None:
            continue
        parts = (cost.kernel, cost.user, cost.client_kernel, cost.client_user, cost.whole)
        cells = [load, name, *(figures.short(part) for part in parts), f"{figures.grouped(cost.most)} a second"]
        lines.append(f"| {' | '.join(cells)} |")
    for (load, name), one in found.items():
        assert one.container is not None
        for result in one.container.loads:
            lines += ["", f"{load}, {name}:", "", f"| {' | '.join(load_rows.HEADS)} |"]
            lines.append("|" + " --- |" * len(load_rows.HEADS))
            lines += [f"| {' | '.join(cell or '–' for cell in row)} |" for row in load_table.rows(result)]
    return "\n".join([*lines, "", *knees(found), ""])


def knees(found: Mapping[tuple[str, str], Boot]) -> list[str]:
    """Return a row for each machine: the knee of its sweep beside the rate that the instructions of a request give."""
    rows = ["| machine | held | not held | by instructions | the knee differs by |", "| --- | --- | --- | --- | --- |"]
    for name in (BASELINE, TAILORED):
        knee, there = knee_of(found.get(("sweep", name))), found.get((KNEE, name))
        cost = request_costs.of_boot(there) if there is not None else None
        if cost is None or knee is None:
            continue
        held, broken = knee
        apart = 100 * ((held + broken) / 2 / cost.most - 1)
        cells = (name, figures.grouped(held), figures.grouped(broken), figures.grouped(cost.most), f"{apart:+.1f} %")
        rows.append(f"| {' | '.join(cells)} |")
    return rows if len(rows) > 2 else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=ROOT / "build" / "demo")
    parser.add_argument("--exercises", type=Path, default=EXERCISES)
    parser.add_argument("--loads", nargs="+", choices=LOADS)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-load")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    files = {load: given.exercises / f"exercise-{load}.toml" for load in LOADS}
    asked = given.loads or [load for load in LOADS if files[load].is_file()]
    loads = [*asked, KNEE] if "sweep" in asked else asked
    given.out.mkdir(parents=True, exist_ok=True)
    loaded = bundle_folder.load_container(given.bundle, Store())
    sides = machines(loaded, given.bundle)
    found: dict[tuple[str, str], Boot] = {}
    say(f"{len(sides) * len(loads)} boots of up to five minutes each; what is in {given.out} is not made again")
    for load in loads:
        for name, (machine, table) in sides.items():
            file = given.out / f"{load}-{name.partition(' ')[0]}.json"
            if not file.is_file():
                exercise = exercise_file.load(files["sweep" if load == KNEE else load], loaded.image)
                if load == KNEE:
                    if (knee := knee_of(found["sweep", name])) is None:
                        continue
                    exercise = at_rate(exercise, BELOW * knee[0])
                say(f"{load} on the {name}")
                records.save(driven(machine, table, exercise, loaded, given.out), file)
            found[load, name] = records.load(Boot, file)
    image = given.exercises.resolve().name
    publish(given.out, given.page, "rates" if image == EXERCISES.name else f"rates-{image}", page(found))


if __name__ == "__main__":
    main()
