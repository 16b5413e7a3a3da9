#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make bench-run-lab`: all that `vmtailor run BUNDLE` costs on a host with KVM, in instructions, beside podman.

    tools/bench_run_lab.py [--bundle FOLDER] [--image REFERENCE] [--no-podman] [--json FILE] DISK

DISK (tools/bench_lab.py --python) starts under emulation, where KVM works because QEMU emulates AMD's SVM. vmtailor is
put beside it as it is installed here. It runs one command of the benchmarks' image twice, as podman does: the first
start is checked in full, the second one follows its orders. A bundle of another image lends its kernel. Prints both
starts by part, podman's second start, and the goal; exits with 1 where that is missed.
"""

from __future__ import annotations

import argparse
import json
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path

import bench_run_lab_parts as run_parts
from bench_run_lab_parts import StartPart

import vmtailor
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError, HostError, VmtailorError
from vmtailor.base.files import records
from vmtailor.base.natives import elf_symbols
from vmtailor.base.process import require_tool
from vmtailor.bench.model.instance import BENCH
from vmtailor.bench.model.job import BenchInside, BenchMonitor
from vmtailor.bench.run import guest_engine, launch, machine_around
from vmtailor.bench.run.guest_engine import OURS_DISK, TREE_DISK, GuestEngine
from vmtailor.bench.run.machine_monitors import ReadyMonitor
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes.description import Commands, Description, RootForm
from vmtailor.bench.runtimes.guest_runtime import OURS, REST_S, in_guest
from vmtailor.bench.suites.bench_run import TAG
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.rootfs.rootfs import Extra, ExtraKind
from vmtailor.model.boots.counters import ENTRY, CodeSpan
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.model.exercise import Expect, Step, StepKind
from vmtailor.model.image import Image
from vmtailor.stages.image_fetch import fetch
from vmtailor.stages.root_volume import build_root

TREE = Path(__file__).resolve().parent.parent
#: Instructions of podman's start in such a machine, which the second start may have at most.
GOAL = 488e6
PYTHON = f"python3.{sys.version_info.minor}"
#: Folders on our disk: the virtual environment, the bundle, the compiled modules of Python's own library.
_ENVIRONMENT, _BUNDLE, _LIBRARY = "venv", "bundle", "library"
#: What of libraries nothing here loads: their tests; and libraries of numbers, which no `run` loads.
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip", "turtledemo"}
_NOT_LOADED = {"numpy", "scipy"}
_MOST_MEMORY = 256 << 20
_STEP_S = 1800.0


def main() -> int:
    """Print the figures; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("disk", type=Path, metavar="DISK")
    parser.add_argument("--bundle", type=Path, default=Path("build/demo"), metavar="FOLDER")
    parser.add_argument("--image", default="oci:build/images/bench", metavar="REFERENCE")
    parser.add_argument("--no-podman", action="store_true", help="leave podman out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    asked = parser.parse_args()
    store, engines = Store(), () if asked.no_podman else ("podman",)
    image = fetch(asked.image, store)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = lent(asked.bundle, image, folder / _BUNDLE, store)
        entries = [*environment(), *compiled_library(asked.disk, folder), *of_folder(bundle, _BUNDLE)]
        packed = launch.packed(engines, asked.image, image, store)
        known = machine_around.ready(
            f"vm:{asked.disk}", image, packed, store, by_subsystem=False, monitored=[as_monitor(entries)]
        )  # fmt: skip
        starts = RunEngine(known, described(), folder / "scratch").both_starts()
        podman = [podman_start(known, folder / "scratch")] if engines else []
    show(starts, podman)
    if asked.json is not None:
        document = {"first": starts[0], "second": starts[1], **({"podman": podman} if podman else {})}
        told = {name: [asdict(one) for one in parts] for name, parts in document.items()}
        asked.json.write_text(json.dumps(told, indent=1) + "\n")
    return int(run_parts.whole(starts[1], "").executed > GOAL)


def show(starts: Sequence[Sequence[StartPart]], podman: Sequence[StartPart]) -> None:
    """Print the tables and the goal."""
    first, second = starts
    rows = [run_parts.HEADER, *run_parts.lines(second, "vmtailor run, the second start")]
    rows += run_parts.lines(podman, "podman run, the second start")[:1] if podman else []
    print(run_parts.table([*rows, *run_parts.lines(first, "vmtailor run, the first start")]))
    all_ = run_parts.whole(second, "").executed
    print(f"goal: at most {GOAL / 1e6:.0f} M for the second start: {'missed' if all_ > GOAL else 'met'}")


# --- what is put beside the disk


def lent(bundle: Path, image: Image, out: Path, store: Store) -> Path:
    """Return a bundle with this image as its root and without a network: the bundle's own kernel and machine."""
    shutil.copytree(bundle, out)
    before = records.load(Bundle, out / RECORD)
    if before.image_digest != image.digest:
        root = build_root(image, before.root_format, guest_programs.of(before.architecture), store)
        shutil.copyfile(root, out / before.root)
    bundle_folder.seal(out, replace(before, image=image.config, network=False))
    return out


def environment() -> list[Extra]:
    """Return vmtailor with the libraries that it is locked to, as pip installs them into a virtual environment, with
    all modules compiled."""
    site = f"{_ENVIRONMENT}/lib/{PYTHON}/site-packages"
    own = Path(vmtailor.__file__).parent
    files = {f"vmtailor/{path.relative_to(own)}": path for path in own.rglob("*") if path.is_file()}
    lock = (TREE / "requirements.lock").read_text()
    for name in (line.partition("==")[0] for line in lock.splitlines() if "==" in line and line[0].isalnum()):
        if name not in _NOT_LOADED:
            files |= {
                str(file): Path(str(file.locate())) for file in metadata.files(name) or () if ".." not in file.parts
            }
    kept = {name: path for name, path in files.items() if not _LEFT_OUT & set(Path(name).parts) and _is_source(path)}
    found = [
        Extra(f"{site}/{name}", data=path, mode=path.stat().st_mode & 0o755) for name, path in sorted(kept.items())
    ]
    found += compiled(((f"{site}/{name}", path) for name, path in kept.items()), f"{OURS}/")
    script = (TREE / "bin/vmtailor").read_text().partition("\n")[2]
    python = f"{_ENVIRONMENT}/bin/python"
    return [
        *found,
        Extra(f"{_ENVIRONMENT}/pyvenv.cfg", data=b"home = /usr/bin\ninclude-system-site-packages = false\n"),
        Extra(python, ExtraKind.SYMLINK, target=f"/usr/bin/{PYTHON}"),
        Extra(f"{_ENVIRONMENT}/bin/vmtailor", data=f"#!{OURS}/{python}\n{script}".encode(), mode=0o755),
    ]


def _is_source(path: Path) -> bool:
    return path.suffix != ".pyc" and "__pycache__" not in path.parts


def compiled_library(disk: Path, folder: Path) -> list[Extra]:
    """Return the compiled modules of the disk's own Python: packages compile them when they are installed, and nothing
    of the disk has run. Raises HostError where the disk has none of this version."""
    debugfs = require_tool("debugfs", package="e2fsprogs")
    subprocess.run(
        [debugfs, "-R", f"rdump /usr/lib/{PYTHON} {folder}", disk], check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    source = folder / PYTHON
    if not source.is_dir():
        raise HostError(f"{disk} has no {PYTHON}, which runs vmtailor here", hint="tools/bench_lab.py --python DISK")
    paths = sorted(path for path in source.rglob("*.py") if not _LEFT_OUT & set(path.relative_to(source).parts))
    names = ((f"{_LIBRARY}/{path.relative_to(source)}", path) for path in paths)
    return compiled(names, "/usr/lib/")


def compiled(sources: Iterable[tuple[str, Path]], place: str) -> list[Extra]:
    """Return the compiled form of each module, in the folder where Python looks for it. `sources`: path on our disk,
    and the file; `place`: where that disk is."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        out = Path(name, "out")
        for path, source in sources:
            if source.suffix != ".py":
                continue
            how = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(source), str(out), f"{place}{path}", quiet=2, invalidation_mode=how)
            if out.is_file():  # templates of modules are none
                at = Path(path)
                cached = at.parent / "__pycache__" / f"{at.stem}.{sys.implementation.cache_tag}.pyc"
                found.append(Extra(str(cached), data=out.read_bytes()))
                out.unlink()
    return found


def of_folder(folder: Path, name: str) -> list[Extra]:
    """Return all files of a folder, by the name that it gets."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [Extra(f"{name}/{path.relative_to(folder)}", data=path) for path in paths]


def as_monitor(entries: Sequence[Extra]) -> ReadyMonitor:
    """Return vmtailor as something that starts machines there: KVM works around it, with the memory for one."""
    row = BenchMonitor(
        name="run", asked="run", title="vmtailor run", argv=("vmtailor",), files=(), version=(), machine=""
    )  # fmt: skip
    return ReadyMonitor(row, tuple(entries), _MOST_MEMORY)


# --- the starts


def described() -> Description:
    """Return how the machine is made ready: KVM, and Python's modules, beside which there is room for compiled ones."""
    return Description(
        name="run", title="vmtailor run", programs=("modprobe", "qemu-system-x86_64", PYTHON), packages=(),
        root=RootForm.IMAGE,
        commands=Commands(
            load=(
                ("modprobe", "kvm_amd"), ("test", "-e", "/dev/kvm"),
                ("cp", "-r", f"{OURS}/{_LIBRARY}/.", f"/usr/lib/{PYTHON}/"),
            ),
            run=("true",), start=(),
        ),
        own_kernel=True,
    )  # fmt: skip


@dataclass(frozen=True)
class RunEngine(GuestEngine):
    """`vmtailor run` in the machine."""

    guests = True
    words: tuple[str, ...] = field(default=("env", "HOME=/root", f"{OURS}/{_ENVIRONMENT}/bin/vmtailor", "run", "--rm"))

    def spans(self) -> tuple[CodeSpan, ...]:
        """Return the places where parts end."""
        parts = guest_programs.of(self.known.machine.machine.architecture)
        host = {
            run_parts.BEGIN: (parts.attendant, "job_start"), run_parts.SUPERVISOR: (parts.supervise, "main"),
            run_parts.LAUNCHER: (parts.launch, "main"), run_parts.MONITOR: (parts.launch, "vt_mark_program"),
        }  # fmt: skip
        spans = [CodeSpan(name, elf_symbols(file.read_bytes())[symbol]) for name, (file, symbol) in host.items()]
        entered = CodeSpan(run_parts.ENTERED, ENTRY)
        return (*spans, entered, CodeSpan(run_parts.PROGRAM, parts.marks()["entry"], in_guest=True))

    def both_starts(self) -> list[list[StartPart]]:
        """Return the parts of the first start and of the second. Raises GuestError where one fails."""
        prepare = Step(
            StepKind.COMMAND, argv=("sh", "-c", in_guest(self.described, (), TAG, TREE_DISK, OURS_DISK).prepare)
        )
        # The entry point is the program itself: what is run is what podman runs.
        argv = (*self.words, "--entrypoint", BENCH, f"{OURS}/{_BUNDLE}", "report")
        start = Step(StepKind.COMMAND, argv=argv, expect=Expect(exit_code=0, contains="{"))
        rest = Step(StepKind.COMMAND, argv=("sh", "-c", f"sync; sleep {REST_S}"))
        exercise = SystemExercise(
            origin="bench", ready=SystemReady(SystemReadyKind.COMMAND, prepare, timeout_s=_STEP_S),
            load=(start, rest, start), step_timeout_s=_STEP_S,
        )  # fmt: skip
        found, gathered = self.driven(exercise, ())
        guest_engine.require_ready(found, gathered, found.problem if found.failures else "")
        steps = [] if gathered.counters is None else run_parts.steps(gathered.counters)
        if len(steps) != len(exercise.load):
            raise GuestError("the starts were not counted", hint="make lab and this command again")
        return [steps[0], steps[2]]


def podman_start(known: BenchInside, scratch: Path) -> StartPart:
    """Return podman's second start."""
    figures = GuestEngine(known, description.load("podman"), scratch).start([BENCH, "report"])
    values = {one.name: int(one.value) for one in figures}
    return StartPart("podman", values["user to its end"], values["kernel to its end"], 0, 0, 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}\n{error.details}") from error
