# SPDX-License-Identifier: Apache-2.0
"""`make bench-remedies`: each remedy that earlier work published, tried on today's machine.

    tools/bench_remedies.py [--boots 2] [--jobs 2] [--machine cloud generic] [--out build/bench-remedies] [--page FILE]

The machines are those of examples/debian-vm, one for each kernel that benchmarks/remedies/published.toml names; each
is booted as it is and with each remedy alone, on the instruction clock, until a container has run. Two boots of the
same bytes hardly differ there; so the machine as it is is booted with words that mean nothing, too, and what those
move is no saving. The messages that are gone are the proof that something was taken out. What a boot loader waits is
before the kernel, where virtual time begins: it is timed by the host, from QEMU's start to the kernel's first line. A
kernel without messages has to be compiled: that is tried on the machine fitted to an image, whose milestones are met
in the kernel's code. Each series of boots is a folder below OUT: what is there is not made again. OUT/remedies.md has
the table; `--page` writes it into a page, between its marks.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from bench_page import publish, say

from vmtailor.analysis.guests.machine_variants import PLACEBO_WORDS
from vmtailor.analysis.statistics.significance import spread
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.machine import Clock

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "debian-vm"
REMEDIES = ROOT / "benchmarks" / "remedies" / "published.toml"
READY = "log:a container ran"
TIMEOUT_S = 3000
#: Exit code of `boot` where the guest never got ready.
NEVER_READY = 5
AS_IT_IS, CHANGES = "as-it-is", "changes-of-the-catalogue"
#: The record of a series that came to its end; its own, in the same folder, is there as soon as the first boot is.
DONE = "series.json"
READY_TITLE = "to a container"
#: Milestones between which it is measured, and their titles.
SPANS = (
    ("kernel", "initrd", "to the RAM disk"),
    ("kernel", "init", "to systemd"),
    ("kernel", "ready", READY_TITLE),
)
BEFORE = "before the kernel"
#: The kernel's first line, for machines that are started by a boot loader of their own.
FIRST_LINE = "log:Linux version"
#: What begins a message on a kernel's console: its time, or its level where it has none, behind what a terminal was
#: told; and what differs from boot to boot.
_BEGIN = re.compile(r"^(\x1b.*?)?(?:\[ *\d+\.\d+\] |<\d{1,2}>)")
_OWN = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+")


class Remedy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row; what each field is: the head of the file."""

    what: str
    work: str
    said: str
    machine: str
    lines: str
    words: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    change: str = ""
    loader: int | None = None
    hardware: bool = False
    arrives: str = ""
    why: str = ""
    control: bool = False


class Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine, or a work, as the file has it."""

    title: str
    kernel: str = ""
    image: str = ""
    suite: str = "bookworm"
    add: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    loader: int | None = None


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    work: dict[str, Described]
    machine: dict[str, Described]
    remedy: tuple[Remedy, ...]


@dataclass(frozen=True)
class Message:
    """A line of the console. `shape`: without what differs from boot to boot."""

    text: str
    shape: str


@dataclass(frozen=True)
class Boots:
    """The boots of one machine, as it is or with a remedy. `spans`: by title, virtual seconds between milestones, a
    value for each boot; or the host's seconds BEFORE the kernel. `messages`: what the first boot said."""

    spans: Mapping[str, tuple[float, ...]]
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Row:
    """What became of a remedy. `gains`: seconds saved in each span, None where it was not tried. `decided`: that of
    the whole boot, None where it is no more than what boots of the same machine differ by. `gone`: messages;
    `there`: as many the machine has as it is. `arrived`: what the remedy brings in place of something was seen; None
    where it brings nothing."""

    remedy: Remedy
    gains: Mapping[str, float] | None
    decided: float | None
    there: int
    gone: int
    arrived: bool | None = None


def published(path: Path = REMEDIES) -> Published:
    found = msgspec.convert(tomllib.loads(path.read_text()), Published)
    for one in found.remedy:
        re.compile(one.lines), re.compile(one.arrives)
        if one.work not in found.work or one.machine not in found.machine:
            raise ValueError(f"{one.what}: no such work or machine")
        if bool(one.words or one.change or one.loader is not None) == bool(one.why):
            raise ValueError(f"{one.what}: either it is tried, or why it is not")
    return found


def controls(machine: str) -> list[Remedy]:
    """What is no remedy at all: words that mean nothing, booted once each."""
    return [
        Remedy(f"a word that means nothing, {number}", "", "", machine, "", words=(word,), control=True)
        for number, word in enumerate(PLACEBO_WORDS, 1)
    ]


def as_one(boots: Sequence[Boots]) -> Boots:
    """Boots of one machine as one; its messages are those of the first."""
    spans = {title: sum((one.spans.get(title, ()) for one in boots), ()) for title in boots[0].spans}
    return Boots(spans, boots[0].messages)


def title_of(remedy: Remedy | None) -> str:
    """What the folder of its boots is called; changes of one machine are tried in one series."""
    if remedy is None or remedy.change:
        return AS_IT_IS if remedy is None else CHANGES
    return re.sub(r"\W+", "-", remedy.what.lower())[:40].strip("-")


def of_machines(found: Published, names: Sequence[str] | None) -> Published:
    """The rows of some machines alone, or all."""
    unknown = sorted(set(names or ()) - found.machine.keys())
    if unknown:
        raise SystemExit(f"no machine {', '.join(unknown)}: there are {', '.join(found.machine)}")
    wanted = names or list(found.machine)
    return msgspec.structs.replace(
        found,
        machine={name: about for name, about in found.machine.items() if name in wanted},
        remedy=tuple(one for one in found.remedy if one.machine in wanted),
    )


def changes_of(found: Published, machine: str) -> list[str]:
    """The changes of the catalogue that are tried on a machine."""
    return [one.change for one in found.remedy if one.change and one.machine == machine]


def messages(console: str) -> tuple[Message, ...]:
    """What the console says, line by line, without times."""
    lines = (line.rstrip() for line in console.splitlines())
    texts = (_BEGIN.sub(lambda begin: begin[1] or "", line) for line in lines if _BEGIN.match(line))
    return tuple(Message(text, _OWN.sub("#", text)) for text in texts)


def proof(lines: str, before: Sequence[Message], after: Sequence[Message]) -> tuple[int, int]:
    """How many messages of a remedy the machine has as it is, and how many of them are gone with it."""
    mine = [one.shape for one in before if re.search(lines, one.text)]
    left = {one.shape for one in after}
    return len(mine), sum(1 for shape in mine if shape not in left)


def judged(remedy: Remedy, before: Boots, after: Boots | None) -> Row:
    there, gone = proof(remedy.lines, before.messages, after.messages if after else before.messages)
    if after is None:
        return Row(remedy, None, None, there, gone)
    pairs = {title: (before.spans[title], after.spans[title]) for title in before.spans if title in after.spans}
    gains = {title: _mean(one) - _mean(two) for title, (one, two) in pairs.items()}
    whole = next(reversed(pairs))
    decided = gains[whole] if abs(gains[whole]) > max(map(spread, pairs[whole])) else None
    arrived = any(re.search(remedy.arrives, one.text) for one in after.messages) if remedy.arrives else None
    return Row(remedy, gains, decided, there, gone, arrived)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class Machines:
    """The example's machines, made and booted where that was not done before."""

    def __init__(self, out: Path, boots: int, found: Published) -> None:
        self._out, self._boots, self._machines = out, boots, found.machine
        self._changes = {name: changes_of(found, name) for name in found.machine}

    def make(self, names: Iterable[str]) -> None:
        """The disks of these machines, before anything long begins. Raises SystemExit where a program is missing."""
        for name in names:
            if self._machines[name].loader is not None and shutil.which("grub-mkimage") is None:
                raise SystemExit("grub-mkimage is missing: install the packages grub-common and grub-pc-bin")
        for name in names:
            self.bundle(name) if self._machines[name].image else self.disk(name)

    def bundle(self, name: str) -> Path:
        """The machine fitted to an example's image, as `make demo` does it."""
        image = self._machines[name].image
        folder, content = self._out / f"bundle-{image}", self._out / f"image-{image}"
        if not (folder / "bundle.json").is_file():
            subprocess.run([sys.executable, str(ROOT / "examples" / "build.py"), image, str(content)], check=True)
            exercise = ROOT / "examples" / image / "exercise.toml"
            argv = [sys.executable, "-m", "vmtailor", "fit", f"oci:{content}", "-x", str(exercise), "-o", str(folder)]
            subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        return folder

    def disk(self, name: str) -> Path:
        """The folder with a machine's disk; machines of one kernel and the same packages share one."""
        about = self._machines[name]
        same = next(
            other
            for other, one in self._machines.items()
            if (one.suite, one.kernel, one.add) == (about.suite, about.kernel, about.add)
        )
        folder = self._out / f"vm-{same}"
        if not (folder / "disk.raw").is_file():
            build = [sys.executable, str(EXAMPLE / "build"), str(folder)]
            argv = [*build, "--suite", about.suite, "--flavour", about.kernel]
            subprocess.run([*argv, *(f"--add={package}" for package in about.add)], check=True)
        return folder

    def _with_loader(self, vm: Path, seconds: int) -> Path:
        """The machine's disk with a boot loader of its own that waits so long."""
        disk = vm / f"loader-{seconds}.raw"
        if not disk.is_file():
            argv = [sys.executable, str(EXAMPLE / "with-loader"), str(vm), str(disk), "--timeout", str(seconds)]
            subprocess.run(argv, check=True)
        return disk

    def booted(self, name: str, remedy: Remedy | None = None) -> Boots | None:
        """As it is, or with a remedy. None where it never got ready."""
        change = remedy.change if remedy is not None else ""
        title = title_of(remedy)
        folder = self._out / name / title
        if not (folder / DONE).is_file():
            times = 1 if remedy is not None and remedy.control else self._boots
            argv = [sys.executable, "-m", "vmtailor", "boot", "-n", str(times), "--json", "-o", str(folder)]
            argv += self._machine(name, remedy)
            argv += ["--try", ",".join(self._changes[name])] if change else []
            say(f"=== {name}: {title}")
            ended = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
            if ended.returncode not in (0, NEVER_READY):  # that is a result, and all else is not
                raise SystemExit(f"{name}, {title}: not booted (exit code {ended.returncode}); start again to go on")
            document = json.loads(ended.stdout)
            write_atomic(folder / DONE, json.dumps(document).encode())
        return read(folder, change)

    def _machine(self, name: str, remedy: Remedy | None) -> list[str]:
        """What `boot` is told of a machine: with a remedy, where that is words and devices."""
        about, counted = self._machines[name], ["--clock", "instructions"]
        words, devices = (remedy.words, remedy.devices) if remedy is not None else ((), ())
        if about.image:
            return [str(self.bundle(name)), *counted, *(["--append", " ".join(words)] if words else [])]
        vm, waits = self.disk(name), self._waits(name, remedy)
        line = " ".join(((vm / "cmdline").read_text().strip(), *about.words, *words))
        argv = [
            "--machine",
            "q35",
            "--timeout",
            str(TIMEOUT_S),
            *(f"--qemu={word}" for word in (*about.devices, *devices)),
        ]
        if waits is not None:
            return [str(self._with_loader(vm, waits)), *argv, "--ready", FIRST_LINE, "--clock", "wall"]
        return [str(vm / "disk.raw"), *argv, "--kernel", str(vm / "vmlinuz"), "--initrd", str(vm / "initrd.img"),
                "--append", line, "--ready", READY, *counted]  # fmt: skip

    def together(self, wanted: Sequence[tuple[str, Remedy | None]], jobs: int) -> None:
        """Boot so many series at a time of those that are counted, which is the same beside others; the host's clock is
        for series that are alone."""
        series = {(name, title_of(remedy)): (name, remedy) for name, remedy in wanted}
        counted = [one for one in series.values() if self._waits(*one) is None]
        with ThreadPoolExecutor(jobs) as pool:
            for _ in pool.map(lambda one: self.booted(*one), counted):
                pass

    def _waits(self, name: str, remedy: Remedy | None) -> int | None:
        """Seconds that its boot loader waits; None where it has none."""
        changed = remedy.loader if remedy is not None else None
        return self._machines[name].loader if changed is None else changed


def read(folder: Path, change: str = "") -> Boots | None:
    """What a series says of the machine as it is, or of the one with a change."""
    document = json.loads((folder / DONE).read_text())
    document.pop("schema")
    series = msgspec.convert(document, BootSeries)
    variants = [one.name for one in series.variants if one.changes == ((change,) if change else ())]
    if not variants:
        return None
    entries = series.entries(variants[0])
    if series.clock is Clock.WALL:
        at = [one.boot.at("ready") for one in entries]
        console = (folder / entries[0].folder / "console.log").read_text(errors="replace")
        return None if None in at else Boots({BEFORE: tuple(one for one in at if one is not None)}, messages(console))
    spans = {}
    for first, last, title in SPANS:
        ends = [(one.boot.at(first, series.clock), one.boot.at(last, series.clock)) for one in entries]
        whole = [end - begin for begin, end in ends if begin is not None and end is not None]
        if len(whole) == len(ends):  # a machine without an initial RAM disk has no milestone there
            spans[title] = tuple(whole)
    console = (folder / entries[0].folder / "console.log").read_text(errors="replace")
    return Boots(spans, messages(console)) if READY_TITLE in spans else None


def table(found: Published, before: Mapping[str, Boots], rows: Sequence[Row]) -> str:
    """The tables in Markdown: the machines as they are, then each remedy."""
    lines = [
        f"| as it is, and with words that mean nothing | {' | '.join(title + ', s' for _, _, title in SPANS)} |",
        f"| --- |{' ---: |' * len(SPANS)}",
    ]
    for name, boots in before.items():
        if BEFORE not in boots.spans:
            cells = (_cell(boots.spans[title]) if title in boots.spans else "–" for _, _, title in SPANS)
            lines.append(f"| {found.machine[name].title} | {' | '.join(cells)} |")
    for name, boots in before.items():
        if BEFORE in boots.spans:
            lines += ["", f"{found.machine[name].title}: {_cell(boots.spans[BEFORE])} s of the host before the kernel."]
    titles = " | ".join(f"saves: {title}, s" for _, _, title in SPANS)
    lines += ["", f"| remedy | said to gain | on | {titles} | its messages | verdict |"]
    lines += [f"| --- | --- | --- |{' ---: |' * (len(SPANS) + 1)} --- |"]
    lines += [_line(found, row) for row in rows]
    return "\n".join(lines) + "\n"


def _line(found: Published, row: Row) -> str:
    one = row.remedy
    known = row.gains or {}
    gains = " | ".join(f"{known[title]:.3f}" if title in known else "–" for _, _, title in SPANS)
    said = f"{one.said}: {found.work[one.work].title}"
    lines = f"{row.there}, {row.gone} gone"
    return f"| {one.what} | {said} | {one.machine} | {gains} | {lines} | {verdict(row)} |"


def _cell(span: Sequence[float]) -> str:
    return f"{_mean(span):.2f} ± {spread(span) / 2:.2f}"


def verdict(row: Row) -> str:
    """In words."""
    if row.gains is not None and BEFORE in row.gains and row.decided is not None:
        return f"real: {row.decided:.2f} s of the host, before the kernel"
    if row.remedy.why:
        return f"not tried: {row.remedy.why}"
    if row.gains is None:
        return "no container ran any more"
    if (doubt := _doubt(row)) or row.decided is None:
        return doubt or "less than boots of one machine differ by"
    return "real" if row.decided > 0 else "costs more than it saves"


def _doubt(row: Row) -> str:
    """Why its figures say nothing."""
    if row.arrived is False:
        return "cannot tell: what it brings did not arrive"
    if row.remedy.hardware and not row.there:
        return "cannot tell: the machine as it is shows nothing of it"
    return ""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Published remedies, each tried on today's machine.")
    parser.add_argument("--boots", type=int, default=2, choices=range(2, 11), metavar="N", help="of each, 2 to 10")
    parser.add_argument("--jobs", type=int, default=2, choices=range(1, 17), metavar="N", help="series at a time")
    parser.add_argument("--machine", nargs="+", metavar="NAME", help="the rows of these machines alone")
    parser.add_argument("--out", type=Path, default=Path("build/bench-remedies"))
    parser.add_argument("--page", type=Path, help="a page that gets the tables, between its marks")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    out = chosen.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    found = of_machines(published(), chosen.machine)
    machines = Machines(out, chosen.boots, published())
    machines.make(found.machine)
    tried = [one for one in found.remedy if not one.why]
    nothing = {name: controls(name) if about.loader is None else [] for name, about in found.machine.items()}
    named = [(name, one) for name in found.machine for one in (None, *nothing[name])]
    named += [(one.machine, one) for one in tried]
    series = len({(name, title_of(remedy)) for name, remedy in named})
    say(f"{len(tried)} remedies, {series} series of boots, two to five minutes each boot; what is there is found")
    machines.together(named, chosen.jobs)
    before: dict[str, Boots] = {}
    for name in found.machine:
        seen = [machines.booted(name, one) for one in (None, *nothing[name])]
        boots = [one for one in seen if one is not None]
        if len(boots) < len(seen):
            raise SystemExit(f"the machine {name} never got ready: its consoles are below {out / name}")
        before[name] = as_one(boots)
    rows = []
    for one in found.remedy:
        after = None if one.why else machines.booted(one.machine, one)
        rows.append(judged(one, before[one.machine], after))
    publish(out, chosen.page, "remedies", table(found, before, rows))


if __name__ == "__main__":
    main()
