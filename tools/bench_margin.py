# SPDX-License-Identifier: Apache-2.0
"""`make bench-margin`: what newly fails with each margin, what each margin costs, which images share a kernel.

    tools/bench_margin.py [--only python go] [--margin none] [--no-family | --no-probes] [--family jvm] [--page FILE]

Each image of benchmarks/margin/ that has a probe is fitted once with each margin, with the exercise that is derived
from the image alone; its probe then runs on the baseline and on each machine (bench_margin_probe.py). Further images of
servers are fitted with the default margin, to see which share a kernel and how long each takes. How many hours all that
needs is said first. Every fit and every probe is a file below OUT: what is there already, from the same program and
image, is not made again, so that it can be interrupted. OUT/tables.md and OUT/family.md have the tables; `--page`
writes them into a page, between their marks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench_margin_probe import BENCH, Probed, commands, on_baseline, on_tailored, probed
from bench_margin_table import FitCell, Measured, ProbeCell, document, family_document, fit_cell
from bench_page import publish, say

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import records
from vmtailor.pipeline import keys
from vmtailor.pipeline.image_subject import prepare
from vmtailor.pipeline.options import FitOptions

ROOT = Path(__file__).resolve().parent.parent
#: Where images are described; an exercise file that lies beside one is not used here.
PLACES = (BENCH, ROOT / "examples", ROOT / "tests" / "data" / "servers")
MARGINS = ("none", "reachable", "server", "reachable+server")
#: What a fit chooses by itself where the exercise is derived.
DEFAULT = "reachable+server"
MEMORY = 512 << 20
#: Host seconds for one of each on two cores, before any was seen.
FIT_S, PROBE_S = 400.0, 120.0
#: Servers of the distribution that are fitted to see which of them share a kernel.
FAMILY = (
    "lighttpd", "nginx", "redis", "php-fpm", "postgresql", "haproxy", "memcached", "apache2", "mosquitto", "unbound",
)  # fmt: skip
#: Images that are fitted beside them, to see how long that takes: the one of those that are probed that boots slowest.
TIMED = ("jvm",)
QUICK = ("python",)

Cell = TypeVar("Cell", FitCell, ProbeCell)


def described(image: str) -> Path:
    """The folder with an image's description."""
    return next(folder / image for folder in PLACES if (folder / image / "image.toml").is_file())


@dataclass(frozen=True)
class Task:
    """One cell that may have to be made: a fit (with a margin), or a probe (on the baseline where `margin` is None)."""

    image: str
    margin: str | None
    probe: bool


def tasks(probed_images: Sequence[str], margins: Sequence[str], family: Sequence[str]) -> list[Task]:
    """All cells in the order in which they are made: each image's baseline, then margin by margin."""
    made: list[Task] = []
    for image in probed_images:
        made.append(Task(image, None, True))
        for margin in margins:
            made += [Task(image, margin, False), Task(image, margin, True)]
    made += [Task(image, DEFAULT, False) for image in family]
    return list(dict.fromkeys(made))


def hours(open_tasks: Sequence[Task]) -> float:
    """How long the tasks will take, in hours."""
    return sum(PROBE_S if task.probe else FIT_S for task in open_tasks) / 3600


class Bench:
    """Where cells are kept, and how each is made."""

    def __init__(self, out: Path, store: Store, code: str) -> None:
        self._out = out
        self._store = store
        self._code = code

    def layout(self, image: str) -> Path:
        return self._out / "images" / image

    def build(self, image: str) -> None:
        """Make an image from its packages, unless it was made from the same description: packages that were updated
        since do not count, so that a bench goes on with what it began with."""
        folder = described(image)
        builder, stamp = ROOT / "examples" / "build.py", self._out / "images" / f"{image}.made-from"
        common = [path for name in (folder, ROOT / "examples" / "common") for path in name.iterdir() if path.is_file()]
        made_from = digest(*(path.read_bytes() for path in (builder, *sorted(common))))
        if stamp.is_file() and stamp.read_text() == made_from and self.layout(image).is_dir():
            return
        subprocess.run([sys.executable, str(builder), str(folder), str(self.layout(image))], check=True)
        stamp.write_text(made_from)

    def path(self, task: Task) -> Path:
        kind = "probe" if task.probe else "fit"
        return self._out / task.image / f"{kind}-{task.margin or 'baseline'}.json"

    def bundle(self, task: Task) -> Path:
        return self._out / task.image / f"bundle-{task.margin}"

    def key(self, task: Task) -> str:
        """What a cell depends on: this program, the image, and of a probe its own text and kernel."""
        index = self.layout(task.image) / "index.json"
        parts = [self._code, str(MEMORY), index.read_text(), task.margin or ""]
        if task.probe:
            parts.append("\0".join(commands()[task.image]))
            if task.margin is not None:
                fit = self.cell(Task(task.image, task.margin, False), FitCell)
                parts.append(fit.kernel if fit is not None else "")
        return digest(*parts)

    def cell(self, task: Task, kind: type[Cell]) -> Cell | None:
        """A cell that is there and still holds."""
        path = self.path(task)
        if not path.is_file() or not (self.layout(task.image) / "index.json").is_file():
            return None
        try:
            found = records.load(kind, path)
        except UserInputError:  # of another format, or cut short
            return None
        return found if found.key == self.key(task) else None

    def is_there(self, task: Task) -> bool:
        if task.probe:
            return self.cell(task, ProbeCell) is not None
        fit = self.cell(task, FitCell)
        return fit is not None and not fit.failed

    def make(self, task: Task) -> None:
        self.path(task).parent.mkdir(parents=True, exist_ok=True)
        if not task.probe:
            records.save(self._fit(task), self.path(task))
            return
        argv = commands()[task.image]
        if task.margin is None:
            options = FitOptions(reference=f"oci:{self.layout(task.image)}", out=self.bundle(task), memory_bytes=MEMORY)
            found = on_baseline(prepare(options), argv)
        else:
            fit = self.cell(Task(task.image, task.margin, False), FitCell)
            if fit is None or fit.failed:
                say(f"    no machine to probe: {fit.failed if fit else 'it was not fitted'}")
                return
            machine, scratch = on_tailored(self.bundle(task), self._store)
            found, _ = probed(machine, argv, scratch)
        records.save(ProbeCell(self.key(task), found), self.path(task))
        say(f"    {_said(found)}")

    def _fit(self, task: Task) -> FitCell:
        argv = [sys.executable, "-m", "vmtailor", "fit", f"oci:{self.layout(task.image)}", "--margin", str(task.margin),
                "--memory", f"{MEMORY >> 20}M", "--json", "-o", str(self.bundle(task))]  # fmt: skip
        started = time.monotonic()
        ended = subprocess.run(argv, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - started
        if ended.returncode not in (0, 1):
            lines = [line for line in ended.stderr.splitlines() if line.startswith("error")]
            why = (lines or ended.stderr.splitlines()[-1:] or ["no word"])[0][:160]
            say(f"    {why}")
            return FitCell(self.key(task), seconds, failed=why)
        return fit_cell(self.key(task), seconds, json.loads(ended.stdout))

    def measured(self, image: str, margins: Sequence[str]) -> Measured:
        """All cells of an image that hold."""
        fits = {one: cell for one in margins if (cell := self.cell(Task(image, one, False), FitCell)) is not None}
        probes = {one: said for one in margins if (said := self.cell(Task(image, one, True), ProbeCell)) is not None}
        return Measured(image, self.cell(Task(image, None, True), ProbeCell), fits, probes)


def _said(found: Probed) -> str:
    good = sum(1 for one in found.features if one.outcome == "ok")
    return f"{good} of {len(found.features)} work" + ("" if found.ended else "; it did not come to its end")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What newly fails with each margin, and what each costs.")
    names = sorted(commands())
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--margin", nargs="+", choices=MARGINS, default=list(MARGINS), metavar="MARGIN", help="some")
    parser.add_argument("--quick", action="store_true", help=f"{' '.join(QUICK)} with the default margin, no family")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--no-family", action="store_true", help="do not fit further servers")
    some.add_argument("--no-probes", action="store_true", help="fit further servers alone")
    further = (*FAMILY, *TIMED)
    parser.add_argument("--family", nargs="+", choices=further, default=further, metavar="NAME", help="some of them")
    parser.add_argument("--out", type=Path, default=Path("build/bench-margin"), help="where cells and bundles go")
    parser.add_argument("--tables", action="store_true", help="make nothing, print what is there")
    parser.add_argument("--page", type=Path, help="a page that gets the tables, between its marks")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.only, chosen.margin, chosen.no_family = list(QUICK), [DEFAULT], True
    return chosen


def conditions() -> str:
    return (
        f"Machines of {MEMORY >> 20} MiB and one CPU, under QEMU's instruction clock; exercises derived from the image "
        f"alone. Seconds are of this host, with {os.cpu_count()} processors. A figure that was not taken is a dash."
    )


def main() -> None:
    chosen = arguments()
    family = () if chosen.no_family else tuple(chosen.family)
    only = () if chosen.no_probes else chosen.only
    bench = Bench(chosen.out.absolute(), Store(), keys.code())
    wanted = tasks(only, chosen.margin, family)
    if not chosen.tables:
        make_all(bench, wanted)
    if only:
        images = [bench.measured(image, chosen.margin) for image in only]
        publish(chosen.out, chosen.page, "tables", document(images, chosen.margin, DEFAULT, conditions()))
    if family:
        fits = {name: cell for name in family if (cell := bench.cell(Task(name, DEFAULT, False), FitCell)) is not None}
        servers = {name: cell for name, cell in fits.items() if name in FAMILY}
        timed = {name: cell for name, cell in fits.items() if name in TIMED}
        publish(chosen.out, chosen.page, "family", family_document(servers, timed, DEFAULT, conditions()))


def make_all(bench: Bench, wanted: Sequence[Task]) -> None:
    """Make what is not there. One that fails is said, and does not keep the next from being made."""
    for image in dict.fromkeys(task.image for task in wanted):
        bench.build(image)
    missing = [task for task in wanted if not bench.is_there(task)]
    say(f"{len(wanted) - len(missing)} of {len(wanted)} are there; the rest takes about {hours(missing):.1f} hours")
    for number, task in enumerate(missing, 1):
        what = f"probe on {task.margin or 'the baseline'}" if task.probe else f"fit with {task.margin}"
        say(f"=== {number} of {len(missing)}: {task.image}, {what}")
        try:
            bench.make(task)
        except VmtailorError as error:  # the next ones may do
            say(f"    error: {error.message}")


if __name__ == "__main__":
    main()
