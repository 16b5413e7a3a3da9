# SPDX-License-Identifier: Apache-2.0
"""What a system's own kernel cost while its exercise ran on it, put down to functions, files and symbols."""

from __future__ import annotations

from pathlib import Path

from vmtailor.analysis.cost.attribution import Attribution
from vmtailor.base.progress import step
from vmtailor.drivers.guest.attendant_volume import MODULES
from vmtailor.drivers.monitors import counts_file
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import attributing
from vmtailor.pipeline.attributing import Code
from vmtailor.pipeline.systems.inputs import SystemInputs
from vmtailor.pipeline.systems.planning import symbol_in
from vmtailor.stages.trace import modules_of


def costs(given: SystemInputs, run: SystemRun, counts: Path) -> Attribution | None:
    """None where nothing was counted: an exercise with steps from outside is driven on the wall clock. `counts`: the
    plugin's file."""
    if not counts.is_file():
        return None
    options = given.options
    code = Code(given.kernel, given.source, given.tree, given.config, given.table, options.architecture, options.store)
    paths = given.own.modules.paths
    with step("attribution of the baseline's cost"):
        return attributing.of_system(
            code,
            counts_file.read(counts),
            modules_of(run.report.file(MODULES.name), ""),
            lambda name: paths.get(name, ""),
            symbol_in(given.source.path),
        )
