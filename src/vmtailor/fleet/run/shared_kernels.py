# SPDX-License-Identifier: Apache-2.0
"""Kernels that the finished images of a fleet share: the plans in their bundles say what each asks for, and an image
that is fitted again keeps what the others of its kernel ask for besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.text import plural
from vmtailor.drivers.host import bundle_folder
from vmtailor.fleet.model import kernel_groups, kernel_wishes
from vmtailor.fleet.model.fleet_record import FleetRecord, ImageStanding
from vmtailor.fleet.model.kernel_groups import KernelSharing, Pays
from vmtailor.model.bundle import RECORD, RUN
from vmtailor.model.fit_run import FitRun


@dataclass(frozen=True)
class SharedKernels:
    """The kernels of a fleet. `keep`: image → what `--keep` gets for it; without images that keep nothing more."""

    sharing: KernelSharing
    keep: Mapping[str, tuple[str, ...]]

    def lines(self) -> Iterator[str]:
        """Yield a line for each kernel, with what its images pay for it, and for each two that cannot be joined."""
        for number, kernel in enumerate(self.sharing.kernels, 1):
            yield f"kernel {number}: {', '.join(map(_said, kernel.images))}"
        for before, name, why in self.sharing.apart:
            yield f"{before} and {name} cannot share a kernel: {why}"

    def why(self, name: str) -> str:
        """Return why an image needs another fit for its kernel; empty where it has that kernel."""
        if name not in self.keep:
            return ""
        kernel = next(one for one in self.sharing.kernels if name in {image.image for image in one.images})
        others = ", ".join(one.image for one in kernel.images if one.image != name)
        return f"it shares a kernel with {others}, which asks for {plural(len(self.keep[name]), 'symbol')} more"


def of_folder(folder: Path, known: FleetRecord, kernels: str | int) -> SharedKernels:
    """Return the kernels that the finished images of a fleet would share. `kernels`: as `kernel_groups.share` takes it.
    Raises UserInputError for a bundle that was changed."""
    wishes = {}
    for one in known.images:
        bundle = folder / one.entry.name
        if one.standing is ImageStanding.DONE and (bundle / RECORD).is_file():
            run = bundle_folder.load(bundle).record(FitRun, RUN)
            wish = kernel_wishes.of_plan(one.entry.name, run.plan, run.tailored.init_instructions_net)
            wishes[wish.name] = wish
    sharing = kernel_groups.share(tuple(wishes.values()), kernels)
    kept = {image.image: kernel.keep_for(wishes[image.image]) for kernel in sharing.kernels for image in kernel.images}
    return SharedKernels(sharing, {name: names for name, names in kept.items() if names})


def _said(one: Pays) -> str:
    if not one.symbols:
        return one.image
    cost = "" if one.share is None else f", {one.share:.1%} more instructions to init"
    return f"{one.image} (+{plural(len(one.symbols), 'symbol')}{cost})"
