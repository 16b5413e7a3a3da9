# SPDX-License-Identifier: Apache-2.0
"""Count what the samples of `watch` cost the machine: boots a system with an exercise on the instruction clock, with
the counting plugin, and prints the instructions of the sampler and of the attendant that passes its text on, a sample.

    python tools/watch_cost.py disk:FILE EXERCISE --memory 2048

The cost is that of the load's phase, in which the exercise should sleep: kernel and user instructions, with everything
that the kernel did since the program ran last, such as its idle loop. It is an upper bound.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.guests import machine_variants
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.base.natives import locate
from vmtailor.model.architecture import presumed
from vmtailor.model.boots.counters import CodeMark, Counters, CountingConfig
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import RECORD, MachineWatch, WatchedKind
from vmtailor.pipeline.systems import exercise_boots
from vmtailor.stages import exercise_file

#: Programs of ours that take part in a sample.
OURS = ("sampler", "attendant")


def costs(counters: Counters, begin: str, end: str) -> dict[str, tuple[int, int]]:
    """Return kernel and user instructions of each of our programs between two marks."""
    found = dict.fromkeys(OURS, (0, 0))
    inside = False
    for stretch in counters.stretches:
        inside = inside or stretch.begin == begin
        if inside:
            for one in stretch.owners:
                if one.owner in found:
                    kernel, user = found[one.owner]
                    found[one.owner] = (kernel + one.kernel, user + one.user)
        if stretch.end == end:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("disk")
    parser.add_argument("exercise", type=Path)
    parser.add_argument("--memory", type=int, default=2048, help="MiB")
    parser.add_argument("--every", type=int, default=1000, help="milliseconds between two samples")
    parser.add_argument("--timeout", type=float, default=3000.0)
    parser.add_argument("--keep", type=Path, help="folder for consoles and records")
    asked = parser.parse_args()
    marks = tuple(CodeMark(name, at) for name, at in locate().attendant_marks().items())
    with tempfile.TemporaryDirectory() as folder:
        out = asked.keep or Path(folder)
        made = exercise_boots.exercised(
            asked.disk,
            exercise_file.load_system(asked.exercise),
            lambda row: replace(
                machine_variants.countable(machine_variants.usual(row)),
                memory_bytes=asked.memory << 20,
                clock=Clock.INSTRUCTIONS,
            ),
            out,
            times=1,
            timeout_s=asked.timeout,
            store=Store(),
            sample_ms=asked.every,
            counted=CountingConfig(marks=marks, architecture=presumed().name),
        )
        boot = made.series.boots[0]
        watch = records.load(MachineWatch, out / boot.folder / RECORD)
    if boot.boot.problem:
        print("not as asked:", boot.boot.problem)
    at = {mark.name: mark.at_ns for mark in watch.marks}
    inside = [number for number, ns in enumerate(watch.times_ns) if at["load"] <= ns < at["load_end"]]
    containers = [one for one in watch.of(WatchedKind.CONTAINER) if one.figure == "cpu_us"]
    last = sum(one.values[inside[-1]] is not None for one in containers)
    print(f"{len(inside)} samples in the load, {len(watch.containers)} containers seen, {last} at the end")
    whole = 0
    for name, (kernel, user) in costs(made.counters[0], "load", "load_end").items():
        whole += kernel + user
        print(f"{name:10} kernel {kernel / len(inside) / 1e6:7.3f} M, user {user / len(inside) / 1e6:7.3f} M a sample")
    print(f"{'together':10} {whole / len(inside) / 1e6:.3f} M instructions a sample")


if __name__ == "__main__":
    main()
