# SPDX-License-Identifier: Apache-2.0
"""Bundles of one image on several processors: figures side by side, and what only one of them needs.

Counts of two processors are of two instruction sets. They are set side by side, and no verdict is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.comparison import Platform, PlatformFigure, PlatformSymbol, ProcessorsCompared
from vmtailor.model.change import Change
from vmtailor.model.fit_run import FitRun, Side

#: Figure → the field of a side, and its unit.
FIGURES = (
    ("symbols =y", "symbols_y", ""),
    ("symbols with a prompt", "symbols_prompted", ""),
    ("kernel file", "kernel_bytes", "bytes"),
    ("kernel file, packed", "kernel_compressed_bytes", "bytes"),
    ("kernel entry to init", "init_instructions", "instructions"),
    ("kernel entry to init, net", "init_instructions_net", "instructions"),
    ("kernel entry to ready", "ready_instructions", "instructions"),
    ("of the kernel, a request", "request_kernel_instructions", "instructions"),
    ("of the programs, a request", "request_user_instructions", "instructions"),
    ("device accesses", "device_accesses", ""),
    ("least memory", "min_memory_bytes", "bytes"),
)


def compare_processors(names: Sequence[str], runs: Sequence[FitRun]) -> ProcessorsCompared:
    """Set runs side by side. Raises UserInputError where two are of one processor: those are compared with each
    other."""
    architectures = [run.plan.architecture for run in runs]
    if len(set(architectures)) < len(architectures):
        raise UserInputError(
            f"two of these bundles are of one processor ({', '.join(architectures)})",
            hint="compare those with each other, or give one bundle for each processor",
        )
    platforms = tuple(
        Platform(
            name=name,
            architecture=run.plan.architecture,
            machine=run.plan.machine,
            kernel_version=run.plan.kernel_version,
            verified=run.verified,
        )
        for name, run in zip(names, runs, strict=True)
    )
    sides = [run.tailored for run in runs]
    figures = tuple(PlatformFigure(name, unit, _values(field, sides)) for name, field, unit in FIGURES)
    kept = [{one.id: one for one in run.plan.symbols if one.is_kept} for run in runs]
    everywhere = set.intersection(*(set(one) for one in kept))
    return ProcessorsCompared(platforms, figures, len(everywhere), tuple(_differing(kept, everywhere)))


def _values(field: str, sides: Sequence[Side]) -> tuple[float | None, ...]:
    return tuple(None if (value := getattr(side, field)) is None else float(value) for side in sides)


def _differing(kept: Sequence[dict[str, Change]], everywhere: set[str]) -> Iterator[PlatformSymbol]:
    """Return the symbols that differ: those chosen first, then those that Kconfig sets by itself, each in the order of
    names."""
    first = {name: change for one in reversed(kept) for name, change in one.items()}
    names = sorted(set(first) - everywhere, key=lambda name: (not first[name].setting.chosen, name))
    for name in names:
        why = first[name].reasons[0].text if first[name].reasons and first[name].setting.chosen else ""
        yield PlatformSymbol(name, tuple(one[name].value if name in one else None for one in kept), why)
