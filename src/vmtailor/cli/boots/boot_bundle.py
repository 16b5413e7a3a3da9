# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot BUNDLE`: a machine that was fitted, with its own exercise."""

from __future__ import annotations

from pathlib import Path

from vmtailor.analysis.changes import choice
from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.progress import step
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.cli.boots.boot_output import show_boot_cost, show_series, telling
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline import boot_trials, bundle_boots, machine_testbed
from vmtailor.pipeline.options import BootOptions
from vmtailor.stages.boot import profile


def boot_bundle(asked: BootOptions, bundle: Path) -> None:
    """Boot a bundle `times` times, try changes on it, or attribute one boot. Raises UserInputError for options that do
    not apply to bundles."""
    refuse(asked, OptionSubject.FITTED, bundle)
    architecture = bundle_folder.load(bundle).bundle.architecture
    words = (*asked.append, *(profile.INITCALLS if asked.debug_initcalls else ()))
    own = Chosen(
        cpu_model=asked.cpu_model or "",
        accelerator=asked.accelerator,
        clock=asked.clock,
        append=words,
        memory_bytes=asked.memory_bytes,
    )
    subject = bundle_boots.prepare(bundle, own, asked.timeout_s, guest_programs.of(architecture), Store())
    if asked.attribute:
        show_boot_cost(bundle_boots.attribute(subject, asked.out), asked.out, asked.json, architecture)
    else:
        show_series(_boots(asked, subject, bundle.name), asked.out, asked.json)


def _boots(asked: BootOptions, subject: bundle_boots.Booted, name: str) -> BootSeries:
    """Return the bundle booted, or changes tried on it."""
    wanted = choice.for_bundle(asked.changes, subject.loaded.bundle.kernel_version)
    if wanted and (words := machine_testbed.doubt(asked.clock, asked.judged_by, len(wanted), asked.times)):
        output.note(words)
    title = f"try {len(wanted)} changes on" if wanted else "boot"
    with step(f"{title} {name}") as progress:
        on_boot = telling(progress, asked.times)
        if not wanted:
            return bundle_boots.boots(subject, asked.times, asked.out, on_boot)
        return boot_trials.on_bundle(
            subject, wanted, asked.out, times=asked.times, judged_by=asked.judged_by, on_boot=on_boot
        )
