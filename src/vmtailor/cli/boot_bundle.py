# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot` on a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.changes import choosing
from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.progress import step
from vmtailor.booting.bundle import Chosen
from vmtailor.drivers.guest import guest_programs
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.series import BootSeries, JudgedBy
from vmtailor.pipeline import booting, machine_bench, trying
from vmtailor.pipeline.bundles import load_bundle


@dataclass(frozen=True)
class BundleRequest:
    """What the user asked for of a bundle. `own`: what was chosen of its machine."""

    path: Path
    own: Chosen
    timeout_s: float
    times: int
    out: Path
    changes: tuple[str, ...] = ()
    judged_by: JudgedBy = JudgedBy.READY


def refuse(options: Sequence[tuple[str, object]]) -> None:
    """Raise UserInputError for options that have no meaning for a bundle, rather than to do without them silently."""
    given = [name for name, value in options if value]
    if given:
        raise UserInputError(
            f"{', '.join(given)}: a bundle has its own kernel, root and exercise",
            hint="its machine is chosen with vmtailor fit",
        )


def attribute(request: BundleRequest) -> BootCost:
    """What each part of the bundle's kernel costs."""
    return booting.attribute(_prepared(request), request.out)


def boots(request: BundleRequest) -> BootSeries:
    """The bundle booted, or changes tried on it."""
    subject = _prepared(request)
    wanted = choosing.for_bundle(request.changes, subject.loaded.bundle.kernel_version)
    if wanted and (words := machine_bench.doubt(request.own.clock, request.judged_by, len(wanted), request.times)):
        output.note(words)
    title = f"try {len(wanted)} changes on" if wanted else "boot"
    with step(f"{title} {request.path.name}") as progress:

        def on_boot(name: str, number: int, seconds: float) -> None:
            progress.update(number - 1, request.times, f"{name} {number}: {seconds:.0f} s")

        if not wanted:
            return booting.boots(subject, request.times, request.out, on_boot)
        return trying.on_bundle(
            subject, wanted, request.out, times=request.times, judged_by=request.judged_by, on_boot=on_boot
        )


def _prepared(request: BundleRequest) -> booting.Booted:
    return booting.prepare(
        request.path, request.own, request.timeout_s, guest_programs.of(architecture_of(request.path)), Store()
    )


def architecture_of(bundle: Path) -> str:
    """The architecture of a bundle, by name."""
    return load_bundle(bundle).architecture
