# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot BUNDLE`: a machine that was fitted, with its own exercise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.changes import choice
from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.progress import step
from vmtailor.base.text import plural
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.cli.boots.boot_output import show_boot_cost, show_series, telling
from vmtailor.cli.unsafe_bundle import show_patches
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.monitors import monitors
from vmtailor.model.boots.series import BootSeries, judging
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline import boot_trials, bundle_boots, machine_testbed, monitor_choice
from vmtailor.pipeline.monitor_choice import MonitorChoice
from vmtailor.pipeline.options import BootOptions
from vmtailor.stages.boot import profile


def boot_bundle(asked: BootOptions, bundle: Path) -> None:
    """Boot a bundle `times` times, try changes on it, or attribute one boot. Raises UserInputError for options that do
    not apply to bundles."""
    refuse(asked, OptionSubject.FITTED, bundle)
    record = bundle_folder.load(bundle).bundle
    show_patches(record)
    architecture = record.architecture
    words = (*asked.append, *(profile.INITCALLS if asked.debug_initcalls else ()))
    own = Chosen(
        cpu_model=asked.cpu_model or "",
        accelerator=asked.accelerator,
        clock=asked.clock,
        append=words,
        memory_bytes=asked.memory_bytes,
    )
    choice = _monitor(asked, architecture)
    if choice is not None:
        own = replace(own, monitor=choice.monitor, accelerator=choice.accelerator, clock=choice.clock)
    natives = guest_programs.of(architecture)
    subject = bundle_boots.prepare(
        bundle, own, asked.timeout_s, natives, Store(), exercise=asked.exercise, clients=asked.clients
    )
    with monitors.lab_programs({} if choice is None else choice.programs):
        monitors.of(subject.machine).require(subject.machine)
        if choice is not None:
            monitor_choice.say(choice)
        _boot(asked, subject, bundle, architecture)


def _monitor(asked: BootOptions, architecture: str) -> MonitorChoice | None:
    """Return the monitor that the user named, or None. In the lab a machine is counted."""
    given = {"--accelerator": asked.accelerator is Accelerator.KVM, "--cpu-model": asked.cpu_model,
             "--attribute": asked.attribute, "--try": asked.changes}  # fmt: skip
    monitor_choice.refuse_beside(asked.on, asked.lab, *(name for name, value in given.items() if value))
    return monitor_choice.asked(asked.on, asked.lab, asked.program, architecture, Clock.INSTRUCTIONS)


def _boot(asked: BootOptions, subject: bundle_boots.Booted, bundle: Path, architecture: str) -> None:
    if asked.attribute:
        show_boot_cost(bundle_boots.attribute(subject, asked.out), asked.out, asked.json, architecture)
    else:
        show_series(_boots(asked, subject, bundle.name), asked.out, asked.json)


def _boots(asked: BootOptions, subject: bundle_boots.Booted, name: str) -> BootSeries:
    """Return the bundle booted, or changes tried on it."""
    wanted = choice.for_bundle(asked.changes, subject.loaded.bundle.kernel_version)
    judged = judging(asked.under, asked.judged_by)
    if wanted and (words := machine_testbed.doubt(asked.clock, judged[0], len(wanted), asked.times)):
        output.note(words)
    title = f"try {plural(len(wanted), 'change')} on" if wanted else "boot"
    with step(f"{title} {name}") as progress:
        on_boot = telling(progress, asked.times)
        if not wanted:
            return bundle_boots.boots(subject, asked.times, asked.out, on_boot)
        return boot_trials.on_bundle(subject, wanted, asked.out, times=asked.times, judged_by=judged, on_boot=on_boot)
