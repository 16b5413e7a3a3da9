# SPDX-License-Identifier: Apache-2.0
"""The probes of `bench_margin.py`: what is run in a machine, and what it said.

A probe is a command that prints a line for each feature: `NAME ok`, `NAME fail:WHY` or `NAME hang`, and at last
`probe ended`. It runs on both machines in exactly the same way: the same root file system, memory, processor model and
clock, our init as PID 1, the container's user and capabilities; only the kernel differs. The clock is QEMU's
instruction clock: a wait costs nothing, so a hang is seen at once, and two runs say the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from vmtailor.analysis.guests import boots
from vmtailor.base.cache.store import Store
from vmtailor.booting.booter import boot
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.rootfs import initramfs
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.machine import Clock, Machine
from vmtailor.pipeline.image_subject import ImageSubject
from vmtailor.pipeline.subject import scratch_of

BENCH = Path(__file__).resolve().parent.parent / "benchmarks" / "margin"
ENDED = "probe ended"
#: Guest seconds and host seconds that a probe may take as a whole.
GUEST_S, HOST_S = 3600.0, 1500.0
#: How often the baseline is started again with the modules that the probe made its kernel ask for.
MODULE_ROUNDS = 6
_LINE = re.compile(r"([!-~]{1,100}) (ok|hang|fail:(.{0,200}))")


class Outcome(StrEnum):
    """What became of one feature. `lost`: the probe did not come so far."""

    OK = "ok"
    FAILS = "fails"
    HANGS = "hangs"
    LOST = "lost"


@dataclass(frozen=True)
class Feature:
    """One feature in one machine."""

    name: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class Probed:
    """What a probe said in one machine. `ended`: it came to its end. `seconds`: of the host, for the last boot.
    `modules`: those that a modular kernel has loaded because the probe made it ask. `last`: its last words where it did
    not end."""

    SCHEMA: ClassVar[str] = "vmtailor-bench/probed/1"

    features: tuple[Feature, ...]
    ended: bool
    seconds: float
    modules: tuple[str, ...] = ()
    last: str = ""


# --- what is run ---

#: Joins the files of the Python probe, so that nothing of it has to be in the image that is fitted.
_JOINED = """import sys, types
for name, text in {files!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
"""
#: In the order in which they are joined.
PYTHON_FILES = (
    *("features", "sockets", "files", "signals", "processes"),
    *("memory", "libraries", "pseudo_files", "ending"),
)


def python_text() -> str:
    """The Python probe as one text."""
    folder = BENCH / "probes" / "python"
    return _JOINED.format(files=[(name, (folder / f"{name}.py").read_text()) for name in PYTHON_FILES])


def commands() -> Mapping[str, Sequence[str]]:
    """The probe of each image."""
    probes = BENCH / "probes"
    php = 'file_put_contents("/tmp/probe.php", $argv[1]); require "/tmp/probe.php";'
    return {
        "python": ("python3", "-c", python_text()),
        "jvm": ("/usr/bin/java", "-cp", "/srv/app.jar", "App", "probe"),
        "node": ("node", "-e", (probes / "node.js").read_text()),
        "go": ("/app", "probe"),
        "php-fpm": ("php", "-r", php, "--", (probes / "php.php").read_text()),
        "postgresql": ("sh", "-c", (probes / "postgresql.sh").read_text()),
    }


# --- what it said ---


def parse(text: str) -> tuple[tuple[Feature, ...], bool]:
    """The features in a probe's output, each once, and whether it came to its end. Other lines are passed over."""
    found: dict[str, Feature] = {}
    lines = text.splitlines()
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is not None:
            name, said, why = match.groups()
            outcome = Outcome.OK if said == "ok" else Outcome.HANGS if said == "hang" else Outcome.FAILS
            found.setdefault(name, Feature(name, outcome, why or ""))
    return tuple(found.values()), ENDED in lines


def newly(before: Probed, after: Probed) -> tuple[Feature, ...]:
    """What worked in one machine and does not in the other; what the other did not come to is lost."""
    there = {one.name: one for one in after.features}
    lost = "" if after.ended else after.last[-200:]
    return tuple(
        there.get(one.name, Feature(one.name, Outcome.LOST, lost))
        for one in before.features
        if one.outcome is Outcome.OK and (one.name not in there or there[one.name].outcome is not Outcome.OK)
    )


# --- where it runs ---


def probed(machine: Machine, argv: Sequence[str], scratch: Path) -> tuple[Probed, Gathered]:
    """Run a probe in a machine whose first disk is the container's root."""
    run = Run(argv=tuple(argv), exercise=Exercise("probe", Ready(ReadyKind.EXIT, None, GUEST_S)), key=FIXED_KEY)
    machine = replace(machine, clock=Clock.INSTRUCTIONS, network=False)
    found, gathered = boot(machine, Exercised(run, HOST_S), scratch)
    report = gathered.report
    features, ended = parse(report.stdout)
    last = "" if ended else "\n".join([*found.failures, report.stderr[-1000:], boots.kernel_words(report)[-1000:]])
    return Probed(features, ended, found.seconds, (), last), gathered


def on_baseline(inputs: ImageSubject, argv: Sequence[str]) -> Probed:
    """The probe on the baseline, started again until no module is missing that it makes the kernel ask for: elsewhere
    the host would load it."""
    modules = Path(inputs.kernel.modules_dir)
    more: tuple[str, ...] = ()
    for _ in range(MODULE_ROUNDS):
        found, gathered = probed(inputs.machine_with(more), argv, inputs.scratch)
        requests = initramfs.requested(boots.kernel_words(gathered.report))
        missing = {one.module for one in initramfs.providers(modules, requests)} - set(more)
        if not missing:
            break
        more = (*more, *sorted(missing))
    return replace(found, modules=more)


def on_tailored(bundle: Path, store: Store) -> tuple[Machine, Path]:
    """A bundle's machine with the processor that its baseline was traced on, and where temporary files may lie."""
    loaded = bundle_folder.load_container(bundle, store)
    chosen = Chosen(cpu_model=loaded.trace.cpu_model, clock=Clock.INSTRUCTIONS)
    return machine_of(loaded, chosen), scratch_of(store)
