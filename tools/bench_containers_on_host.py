# SPDX-License-Identifier: Apache-2.0
"""`make bench-containers-on-host`: containers in the machine that hosts them, as it is and as it was fitted.

    tools/bench_containers_on_host.py [--disk FILE --bundle FOLDER] [--units keep] [--on ROWS] [--boots N]
                                      [--suites startup,unixbench,memory] [--out DIR] [--page FILE] [--report]

The disk is that of examples/debian-vm, and the bundle one of `make bench-host`: what is there is used, otherwise it is
made, which takes hours. Then `vmtailor bench --inside vm:DISK,vm:BUNDLE` counts containers in both: starts, units of
work, idle memory, density. Every trial is kept in OUT/containers.json, so an interrupted run goes on where it was.
OUT/containers.md has one page: the host before and after, containers in it, other ways to run them beside. `--page`
writes it into a page, between its marks; `--report` measures nothing and writes it from what is there.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench_host import ROWS, disk, fitted, shown
from bench_page import publish, say

from vmtailor.analysis.statistics import significance
from vmtailor.base.files import records
from vmtailor.bench.analysis.boot_counts import FUNCTIONS, WITHIN
from vmtailor.bench.analysis.cells import Against, Cell, against, cells_of
from vmtailor.bench.analysis.figure_parts import OF
from vmtailor.bench.analysis.phrases import amount, title_of
from vmtailor.bench.model.results import BenchResults, HostRun
from vmtailor.model.bundle import RUN
from vmtailor.model.change import Verdict
from vmtailor.model.fit_run import FitRun

ROOT = Path(__file__).resolve().parent.parent
#: The small image: an engine loads it in every boot.
IMAGE = ROOT / "benchmarks" / "unixbench"
#: Units of work that the kernel does: a program executed, a KB copied, a process, a pipe, a switch, a call.
UNITS = "execl,fstime,spawn,pipe,context1,syscall"
#: The suites to run, each with its options: units of all tests share a boot.
SUITES: Mapping[str, tuple[str, ...]] = {
    "startup": ("--starts", "5"),
    "unixbench": ("--one-boot", "--only", UNITS),
    "memory": (),
}
#: Minutes of one boot under emulation on two processors, by the end of a row's name; of what boots for itself, one.
MINUTES = {"native": 2.0, "docker": 5.0, "podman": 5.0}
#: Boots of a row for each repetition: starts; units; idle instances and density.
BOOTS = {"startup": 1, "unixbench": 1, "memory": 2}
#: The least by which the kernel's part of a container's start has to fall.
GOAL = 0.20
START = f"kernel {WITHIN.name}"
#: Functions that clear and copy memory by repeated string instructions: emulation counts each repetition, a byte.
STRINGS = (
    "clear_page_erms", "copy_mc_enhanced_fast_string", "rep_movs_alternative", "rep_stos_alternative", "__memcpy",
)  # fmt: skip
#: Functions that are named of a difference.
NAMED = 12


@dataclass(frozen=True)
class Change:
    """A figure of one engine on both hosts. `change`: None where a side has no values."""

    before: Cell
    after: Cell
    change: Against | None

    @property
    def worse(self) -> bool:
        """Return whether it is worse with 95 % confidence."""
        return self.change is not None and self.change.verdict is Verdict.WORSE

    @property
    def title(self) -> str:
        return f"{title_of(*self.before.key.of_test).partition(', instruction')[0]}: {self.before.key.figure}"


def judged(before: Cell, after: Cell) -> Change:
    """Compare a figure of two hosts: as counts where boots of each agree to a hundredth, otherwise by ranks."""
    if not before.values or not after.values or statistics.median(before.values) <= 0:
        return Change(before, after, None)
    if max(map(spread, (before, after))) > significance.LOOSE_SHARE:
        sides = (before.values, after.values)
        return Change(before, after, against(*sides, larger_is_better=before.larger_is_better))
    sign = -1.0 if before.larger_is_better else 1.0
    left, right = ([sign * value for value in side] for side in (before.values, after.values))
    base, found = statistics.median(before.values), significance.exact(left, right)
    low, high = sorted(1 + sign * (end or 0.0) / base for end in (found.low, found.high))
    return Change(before, after, Against(statistics.median(after.values) / base, low, high, found.verdict))


def spread(cell: Cell) -> float:
    """Return how far a cell's boots differ, as a share of their median."""
    middle = abs(statistics.median(cell.values)) if cell.values else 0.0
    return significance.spread(cell.values) / middle if middle else 0.0


def changes(run: HostRun, before: str, after: str) -> dict[str, list[Change]]:
    """Return engine → its figures on both hosts, parts left out. `before`, `after`: the machines' names."""
    cells = [sampled(run, cell) for cell in cells_of(run) if OF not in cell.key.figure]
    later = {(cell.key.row, cell.key.runtime): cell for cell in cells}
    found: dict[str, list[Change]] = {}
    for cell in cells:
        machine, _, engine = cell.key.runtime.partition("/")
        other = later.get((cell.key.row, f"{after}/{engine}"))
        if machine == before and engine and other is not None and (cell.values or other.values):
            found.setdefault(engine, []).append(judged(cell, other))
    return found


def sampled(run: HostRun, cell: Cell) -> Cell:
    """Return a cell with each start as a value of its own, where a boot has several; otherwise as it is."""
    key = cell.key
    found = [
        figure.value
        for trial in run.trials
        if (trial.of_test, trial.runtime) == (key.of_test, key.runtime) and trial.block
        for figure in trial.figures
        if figure.name == key.figure
    ]
    return replace(cell, values=tuple(found))


def functions(run: HostRun, runtime: str) -> dict[str, float]:
    """Return function of the kernel → its instructions in a start, by the medians of a row's boots."""
    begins = f"{FUNCTIONS} {WITHIN.name}{OF}"
    return {
        cell.key.figure.removeprefix(begins): statistics.median(cell.values)
        for cell in cells_of(run)
        if cell.key.runtime == runtime and cell.key.figure.startswith(begins) and cell.values
    }


def parts(run: HostRun, runtime: str) -> dict[str, float]:
    """Return subsystem of the kernel → its instructions in a start."""
    begins = f"{START}{OF}"
    return {
        cell.key.figure.removeprefix(begins): statistics.median(cell.values)
        for cell in cells_of(run)
        if cell.key.runtime == runtime and cell.key.figure.startswith(begins) and cell.values
    }


def engine_table(rows: Sequence[Change]) -> str:
    """Return the table of one engine: each figure before and after, with the spread of the boots and the change."""
    lines = ["| | as it is | as fitted | spread | change | 95 % | |", "| --- |" + " ---: |" * 5 + " --- |"]
    for row in rows:
        sides = [middle(one) for one in (row.before, row.after)]
        apart = " / ".join(f"{100 * spread(one):.1f} %" for one in (row.before, row.after))
        change, between, verdict = "", "", ""
        if row.change is not None:
            change = f"{100 * (row.change.ratio - 1):+.1f} %"
            ends = (row.change.low, row.change.high)
            between = " … ".join(f"{100 * (end - 1):+.1f} %" for end in ends if end is not None)
            verdict = "**worse**" if row.worse else str(row.change.verdict)
        elif not row.before.values or not row.after.values:
            verdict = "failed"
        lines.append(f"| {row.title} | {' | '.join(sides)} | {apart} | {change} | {between} | {verdict} |")
    return "\n".join(lines)


def middle(cell: Cell) -> str:
    """Return a cell's median with its unit."""
    return amount(statistics.median(cell.values), cell.unit) if cell.values else "–"


def moved(left: Mapping[str, float], right: Mapping[str, float], *, up: bool) -> str:
    """Return in words where instructions came (`up`) or went, the most first."""
    by = {name: right.get(name, 0.0) - left.get(name, 0.0) for name in left.keys() | right.keys()}
    names = sorted((name for name in by if (by[name] > 0) == up and by[name]), key=lambda name: (-abs(by[name]), name))
    return ", ".join(f"`{name}` {by[name] / 1e3:+,.0f}".replace(",", " ") for name in names[:NAMED]) or "none"


def net(rows: Sequence[Change], side: tuple[Mapping[str, float], int]) -> float | None:
    """Return the kernel's instructions of a start without those of STRINGS. `side`: the functions of a host, and 0 for
    the host as it is, 1 for the fitted one."""
    row = next((one for one in rows if one.before.key.suite == "startup" and one.before.key.figure == START), None)
    values = (row.before, row.after)[side[1]].values if row is not None else ()
    return statistics.median(values) - sum(side[0].get(name, 0.0) for name in STRINGS) if values else None


def without_strings(before: float | None, after: float | None) -> str:
    """Return a sentence on a start's kernel without what clears and copies memory."""
    if not before or after is None:
        return ""
    change = f"{100 * (after / before - 1):+.1f} %"
    return (
        f"Without what clears and copies pages, each byte of which emulation counts: {before / 1e6:.1f} M instructions "
        f"of the kernel as it is, {after / 1e6:.1f} M as fitted ({change})."
    )


def verdict(rows: Sequence[Change]) -> str:
    """Return the sentence on the goal of the kernel's part of a container's start."""
    row = next((one for one in rows if one.before.key.suite == "startup" and one.before.key.figure == START), None)
    if row is None or row.change is None:
        return "**The kernel's part of a container's start: not measured.**"
    less = 100 * (1 - row.change.ratio)
    words = f"{less:.1f} % less" if less >= 0 else f"{-less:.1f} % more"
    held = "held" if row.change.ratio <= 1 - GOAL else "missed"
    return f"**The kernel's part of a container's start: {words}; the goal of {100 * GOAL:.0f} % less is {held}.**"


def host_table(run: FitRun) -> str:
    """Return the host itself before and after: its start, its size. What was not measured has no row."""
    lines = ["| the host itself | as it is | as fitted |", "| --- | ---: | ---: |"]
    for row in ROWS:
        sides = [row.of(side) for side in (run.baseline, run.tailored)]
        if sides == [None, None]:
            continue
        cells = [shown(side, row.digits) for side in sides]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def beside_table(run: HostRun) -> str:
    """Return one start of each way to run the image, each where it runs."""
    lines = ["| one start | kernel, M | programs, M | virtual ms |", "| --- | ---: | ---: | ---: |"]
    known: dict[str, dict[str, float]] = {}
    for cell in cells_of(run):
        if cell.key.suite == "startup" and cell.key.test == "boot" and cell.values and OF not in cell.key.figure:
            known.setdefault(cell.key.runtime, {})[cell.key.figure] = statistics.median(cell.values)
    for name, values in known.items():
        kernel, user, took = (values.get(f"{what} {WITHIN.name}") for what in ("kernel", "user", "virtual time"))
        if kernel is not None and user is not None and took is not None:
            lines.append(f"| {name} | {kernel / 1e6:,.1f} | {user / 1e6:,.1f} | {1e3 * took:,.1f} |")
    return "\n".join(lines)


def page(run: HostRun, fit: FitRun | None, before: str, after: str) -> str:
    """Return the page's tables in Markdown."""
    return "\n\n".join(_sections(run, fit, before, after)) + "\n"


def _sections(run: HostRun, fit: FitRun | None, before: str, after: str) -> Iterator[str]:
    found = changes(run, before, after)
    engines = [name for name in found if name != "native"]
    for engine in engines:
        yield f"{engine}: {verdict(found[engine])}"
    if fit is not None:
        yield host_table(fit)
    for engine, rows in found.items():
        yield f"### {engine}, in it"
        yield engine_table(rows)
        left, right = (functions(run, f"{name}/{engine}") for name in (before, after))
        if left and right:
            by = tuple(parts(run, f"{name}/{engine}") for name in (before, after))
            words = [without_strings(*(net(rows, side) for side in ((left, 0), (right, 1))))]
            words += [f"Of a start's kernel, in thousands of instructions, went: {moved(left, right, up=False)}."]
            words += [f"Came: {moved(left, right, up=True)}."]
            words += [f"By subsystem, went: {moved(*by, up=False)}; came: {moved(*by, up=True)}."] if all(by) else []
            yield " ".join(words)
        if worse := [row.title for row in rows if row.worse]:
            yield f"Worse with 95 % confidence: {'; '.join(worse)}."
    yield "### Beside it"
    yield beside_table(run)
    failed = [
        f"{trial.runtime}, {title_of(*trial.of_test)}: {trial.failure.reason[:200]}"
        for trial in run.trials
        if trial.failure is not None
    ]
    if lacking := dict.fromkeys((*failed, *run.left_out)):  # a runtime that is not there is among the latter
        yield "Not measured:"
        yield "\n".join(f"- {text}" for text in lacking)


def lasting(rows: Sequence[str], boots: int, suites: Sequence[str]) -> float:
    """Return the hours of the containers' boots on two processors, without what is fitted."""
    minutes = sum(MINUTES.get(name, 0.3) * (1 if name.startswith("vm:") else 2) for name in rows)
    return minutes * (1 + boots * sum(BOOTS[suite] for suite in suites)) / 60


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Containers in the machine that hosts them, before and after its fit.")
    parser.add_argument("--disk", type=Path, help="a disk that was made before")
    parser.add_argument("--bundle", type=Path, help="the bundle of its fit")
    parser.add_argument("--units", default="keep", choices=["keep", "trim"], help="the fit of bench-host that is used")
    parser.add_argument("--on", default="native,docker,vm:stock", metavar="ROWS", help="engines that the disk has")
    parser.add_argument("--boots", type=int, default=2, help="of each row and figure; five starts in each")
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--out", type=Path, default=Path("build/bench-host"))
    parser.add_argument("--page", type=Path, help="a page that gets the tables, between its marks")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    out = chosen.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    bundle = (chosen.bundle or out / f"q35-{chosen.units}").absolute()
    suites, rows = chosen.suites.split(","), chosen.on.split(",")
    if not chosen.report:
        hours = lasting(rows, chosen.boots, suites)
        say(f"about {hours:.1f} hours on two processors; before that up to 1.5 hours for a fit that is not there")
        where = (chosen.disk or disk(out)).absolute()
        if chosen.bundle is None and fitted(out, "q35", chosen.units, 3, ()) is None:
            raise SystemExit("the host was not fitted: nothing to set beside it")
        measure(out, where, bundle, rows, chosen.boots, suites)
    found = records.load(BenchResults, out / "containers.json")
    fit = records.load(FitRun, bundle / RUN) if (bundle / RUN).is_file() else None
    before = f"vm:{(chosen.disk or out / 'debian-vm/disk.raw').stem}"
    publish(out, chosen.page, "containers", page(found.runs[-1], fit, before, f"vm:{bundle.stem}"))


def measure(out: Path, where: Path, bundle: Path, rows: Sequence[str], boots: int, suites: Sequence[str]) -> None:
    """Measure what is not there yet, suite by suite."""
    image = out / "images" / "unixbench"
    if not image.is_dir():
        image.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(ROOT / "examples/build.py"), str(IMAGE), str(image)], check=True)
    for suite in suites:
        argv = [sys.executable, "-m", "vmtailor", "bench", suite, *SUITES[suite], "--on", ",".join(rows), "--repeat",
                str(boots), "--image", f"oci:{image}", "--inside", f"vm:{where},vm:{bundle}",
                "-o", str(out / "containers.json")]  # fmt: skip
        say(f"=== {suite}")
        subprocess.run(argv, check=True)


if __name__ == "__main__":
    main()
