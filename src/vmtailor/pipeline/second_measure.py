# SPDX-License-Identifier: Apache-2.0
"""Both machines of a bundle, measured again: its own, and the baseline that it was traced on. Of a system's bundle, its
own alone: the symbols of the system's own kernel are not in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.cost.side_figures import KernelFacts
from vmtailor.base.errors import UserInputError
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import named
from vmtailor.model.bundle import RUN
from vmtailor.model.fit_run import FitRun, Side
from vmtailor.model.machine import Clock
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline import fit_sides, measured_machines, reverify, work_stages
from vmtailor.pipeline.image_subject import ImageSubject, assembled, modules_asked_for
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.pipeline.second_fit import cpu_model_of, fitted_with
from vmtailor.pipeline.systems.driven_system import until_ready
from vmtailor.pipeline.work_files import BothSides, is_work_folder
from vmtailor.stages.system_verify import SystemTarget


def measure(folder: Path, asked: FitOptions) -> BothSides:
    """Measure both sides of a bundle or a work folder. A bundle's files are checked, and what it says of the sizes of
    its kernels is taken as it is.

    Raises UserInputError for a bundle that is damaged, or whose init is another version's; HostError and UserInputError
    where this host cannot have the baseline's kernel."""
    if is_work_folder(folder):
        return work_stages.measured(folder, asked)
    loaded = bundle_folder.load(folder, asked.store)
    if loaded.is_system:
        refuse(asked, OptionSubject.SYSTEM, folder)
        return _of_system(loaded, asked)
    loaded = bundle_folder.container_of(loaded)
    run = loaded.record(FitRun, RUN)
    inputs = inputs_of(loaded, asked)
    chosen = Chosen(cpu_model=cpu_model_of(loaded), clock=Clock.INSTRUCTIONS)
    tailored = replace(machine_of(loaded, chosen), network=False)  # measured without, as its baseline is
    before, after = measured_machines.both(
        fit_sides.baseline_asked(inputs),
        inputs.asked(tailored, table_of(loaded), fit_sides.TAILORED, network=loaded.bundle.network),
    )
    return BothSides(
        fit_sides.side_of(_facts(run.baseline), "baseline", inputs.baseline, before, {}),
        fit_sides.side_of(_facts(run.tailored), "tailored", tailored, after, {}),
    )


def _of_system(loaded: BundleFolder, asked: FitOptions) -> BothSides:
    """Measure a system's fitted machine, driven until it is ready. The baseline's figures are those of the fit; what
    depends on the host is left out of them."""
    run, saved = loaded.record(FitRun, RUN), reverify.saved_system(VerifyRequest(loaded.path), loaded)
    machine = machine_of(loaded, Chosen(cpu_model=cpu_model_of(loaded), clock=Clock.INSTRUCTIONS))
    target = SystemTarget(machine, saved.root, saved.exercise, guest_programs.of(saved.architecture))
    wanted = until_ready(target, table_of(loaded), fit_sides.TAILORED, asked.boots, asked.store)
    after = measured_machines.measured(wanted)
    return BothSides(
        replace(run.baseline, init_wall_us=None, ready_wall_us=None, wall_conditions=()),
        fit_sides.side_of(_facts(run.tailored), "tailored", machine, after, {}),
        baseline_of=run.version,
    )


def table_of(loaded: BundleFolder) -> SymbolTable:
    return SymbolTable.parse(loaded.symbols.decode("ascii", "replace"), loaded.bundle.architecture)


def _facts(side: Side) -> KernelFacts:
    return KernelFacts(
        label=side.kernel,
        file=side.kernel_file,
        symbols_y=side.symbols_y,
        symbols_prompted=side.symbols_prompted,
        bytes=side.kernel_bytes,
        compressed_bytes=side.kernel_compressed_bytes,
    )


def inputs_of(loaded: BundleFolder, asked: FitOptions) -> ImageSubject:
    """Return the subject that the fit began with, on exactly the kernel release it used."""
    bundle, record, parts = loaded.bundle, loaded.trace, guest_programs.of(loaded.bundle.architecture)
    if loaded.init != parts.init.read_bytes():
        raise UserInputError(
            f"the init of {loaded.path} is of another version, and counts otherwise", hint="fit the image again"
        )
    architecture = named(bundle.architecture)
    kernel = packaged_baseline.provide(asked.distribution, architecture, asked.store, record.kernel_release)
    source = SourceTree(Path(kernel.source_dir), kernel.source_digest)
    root = Path(loaded.root.path)
    inputs = assembled(fitted_with(loaded, asked), loaded.image, loaded.exercise, kernel, source, root)
    return replace(inputs, baseline=inputs.machine_with(modules_asked_for(record)))
