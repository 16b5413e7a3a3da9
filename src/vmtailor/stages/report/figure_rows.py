# SPDX-License-Identifier: Apache-2.0
"""Rows of figures for terminal and page; a missing figure has the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from vmtailor.base import figures
from vmtailor.model.fit_run import Side

#: Figures of a side that may be None.
FIGURES = (
    "init_instructions", "init_instructions_net", "reset_instructions", "reset_instructions_net", "ready_instructions",
    "init_virtual_us", "ready_virtual_us", "device_accesses", "device_accesses_net", "request_kernel_instructions",
    "request_user_instructions", "min_memory_bytes", "memory", "init_wall_us", "ready_wall_us",
)  # fmt: skip


#: Prefix of figures → why such a figure is missing although boots were measured.
_REASONS = (
    ("request_", "not counted: the exercise gives the container no request inside the guest"),
    ("ready_", "not reached: a program that runs to its end never gets ready"),
    ("min_memory_", "not searched: no boot with less memory was tried"),
    ("memory", "not known: the guest's own account of its memory could not be read"),
    ("device_", "not counted: accesses to devices are counted by QEMU's plugin, which was not there"),
    ("", "not reached: no counted boot came so far"),
)


def why_missing(side: Side, figure: str) -> str:
    """Return the reason why a side has no such figure; empty when it has one."""
    if getattr(side, figure) is not None:
        return ""
    if not side.boots:
        return "not measured: the tailored machine is not verified, and a figure of it would say nothing"
    return next(reason for start, reason in _REASONS if figure.startswith(start))


def missing_of(side: Side) -> dict[str, str]:
    """Return every missing figure with the reason."""
    return {figure: reason for figure in FIGURES if (reason := why_missing(side, figure))}


class MeasuredSides(Protocol):
    """A record with both sides measured, such as that of a fit."""

    @property
    def baseline(self) -> Side: ...

    @property
    def tailored(self) -> Side: ...


@dataclass(frozen=True)
class FigureRow:
    """One measured figure of both sides. `name`: its field in a side. `what`: the exact meaning of the count. `exact`:
    the unrounded values. `why`: the reason when one is missing."""

    name: str
    title: str
    what: str
    baseline: str
    tailored: str
    ratio: str
    exact: tuple[float | None, float | None]
    strong: bool = False
    why: str = ""


@dataclass(frozen=True)
class FigureGroup:
    """Figures on one clock: only these may stand in one table."""

    title: str
    conditions: str
    rows: tuple[FigureRow, ...]


def groups(run: MeasuredSides) -> tuple[FigureGroup, ...]:
    """Return the size of the kernels; what was executed; wall time. No group has two clocks."""
    return (_size(run), _executed(run), _wall(run))


def _row(
    run: MeasuredSides,
    title: str,
    what: str,
    name: str,
    form: Callable[[float | None], str],
    *,
    strong: bool = False,
) -> FigureRow:
    sides = (run.baseline, run.tailored)
    before, after = (getattr(side, name) for side in sides)
    why = next((reason for side in sides if (reason := why_missing(side, name))), "")
    return FigureRow(
        name=name,
        title=title,
        what=what,
        baseline=form(before),
        tailored=form(after),
        ratio=figures.ratio(before, after),
        exact=(before, after),
        strong=strong,
        why=why,
    )


def _size(run: MeasuredSides) -> FigureGroup:
    return FigureGroup(
        "Size",
        f"baseline {run.baseline.kernel_file}, tailored {run.tailored.kernel_file}",
        (
            _row(
                run,
                "symbols =y with a prompt",
                "configuration symbols that a person can switch, =y",
                "symbols_prompted",
                figures.grouped,
                strong=True,
            ),
            _row(
                run,
                "symbols =y in all",
                "with those that only other symbols select",
                "symbols_y",
                figures.grouped,
            ),
            _row(
                run,
                "kernel file",
                "bytes of the very file that is booted",
                "kernel_bytes",
                figures.file_bytes,
                strong=True,
            ),
            _row(
                run,
                "kernel file, compressed",
                "the same file, for storing and sending",
                "kernel_compressed_bytes",
                figures.file_bytes,
            ),
            _row(
                run,
                "least memory",
                "in which the exercise still passes, found by bisection",
                "min_memory_bytes",
                figures.memory_bytes,
                strong=True,
            ),
        ),
    )


def _executed(run: MeasuredSides) -> FigureGroup:
    return FigureGroup(
        "Instructions, virtual time, device accesses",
        f"instruction clock, {run.tailored.boots} boots a side, {spread(run)}",
        (
            _row(
                run,
                "kernel entry → init, net",
                "without loops that only emulation causes",
                "init_instructions_net",
                figures.millions,
                strong=True,
            ),
            _row(
                run,
                "kernel entry → init, gross",
                "all guest instructions",
                "init_instructions",
                figures.millions,
            ),
            _row(
                run,
                "reset → init, net",
                "with firmware and decompression",
                "reset_instructions_net",
                figures.millions,
            ),
            _row(
                run,
                "reset → init, gross",
                "with firmware and decompression",
                "reset_instructions",
                figures.millions,
            ),
            _row(
                run,
                "kernel entry → ready",
                "to the first good answer of the exercise, its client left out",
                "ready_instructions",
                figures.millions,
            ),
            _row(
                run,
                "virtual time to init",
                "executed and waited, one ns an instruction",
                "init_virtual_us",
                figures.microseconds,
            ),
            _row(
                run,
                "virtual time to ready",
                "executed and waited, one ns an instruction",
                "ready_virtual_us",
                figures.microseconds,
            ),
            _row(
                run,
                "device accesses, net",
                "ports and device memory, to ready: each is an exit under KVM",
                "device_accesses_net",
                figures.grouped,
            ),
            _row(
                run,
                "device accesses, gross",
                "with those of loops that only emulation causes",
                "device_accesses",
                figures.grouped,
            ),
            _row(
                run,
                "kernel instructions a request",
                "under load, mean over all requests",
                "request_kernel_instructions",
                figures.short,
                strong=True,
            ),
            _row(
                run,
                "user instructions a request",
                "under load, mean over all requests",
                "request_user_instructions",
                figures.short,
            ),
        ),
    )


def _wall(run: MeasuredSides) -> FigureGroup:
    def accelerator(side: Side) -> str:
        return dict(side.wall_conditions).get("accelerator", "accelerator not recorded")

    under = accelerator(run.baseline)
    if accelerator(run.tailored) != under:
        under = f"baseline {under}, tailored {accelerator(run.tailored)}: not comparable"
    return FigureGroup(
        "Wall time",
        f"host clock, median, {under}",
        (
            _row(run, "start → init", "from the start of QEMU", "init_wall_us", figures.microseconds),
            _row(run, "start → ready", "from the start of QEMU", "ready_wall_us", figures.microseconds),
        ),
    )


def spread(run: MeasuredSides) -> str:
    """Return the largest spread of any figure on the instruction clock, in words."""
    found = [value for side in (run.baseline, run.tailored) for _, value in side.spread]
    if not found or min(run.baseline.boots, run.tailored.boots) < 2:
        return "spread not known"
    worst = max(found)
    return "all agree to the instruction" if worst == 0 else f"spread at most {100 * worst:.2g} %"
