# SPDX-License-Identifier: Apache-2.0
"""What the traced boot cost, put down to functions, files and symbols. Places of the baseline's code that were found
for one image are known for the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.cost import attribution, counters
from vmtailor.analysis.cost.attribution import Attribution
from vmtailor.analysis.ksource import facts
from vmtailor.base.cache.store import digest
from vmtailor.base.files import records
from vmtailor.drivers.kernel import symbolizer
from vmtailor.drivers.kernel.known_places import KnownPlaces
from vmtailor.drivers.qemu import plugin_file
from vmtailor.model.trace import Trace
from vmtailor.pipeline import keys
from vmtailor.pipeline.inputs import FitInputs
from vmtailor.stages.plan import Tree


def attributed(inputs: FitInputs, record: Trace, folder: Path, tree: Tree) -> Attribution:
    """What every function, file and symbol of the baseline's kernel cost in the coverage boot."""
    counts = plugin_file.read(folder / record.coverage_file)
    where = attribution.addresses(counts)
    of_modules = inputs.table.in_modules(where)
    known = KnownPlaces(inputs.options.store, _key(inputs))
    image = known.without(where[~of_modules])
    sections = [(module.name, name, at) for module in record.modules for name, at in module.sections]
    files = {path.stem.replace("-", "_"): path for path in Path(inputs.kernel.debug_modules_dir).rglob("*.ko")}
    frames = symbolizer.symbolize(Path(inputs.kernel.debug_vmlinux), image)
    frames |= symbolizer.symbolize_modules(files, sections, where[of_modules].tolist())
    found = attribution.places(
        frames,
        attribution.Conditions(tree.facts, facts.reader(inputs.source.path)),
        enabled={name: value for name, value in inputs.config.items() if value in ("y", "m")},
        choosable=tree.kconfig.prompted,
        always=tree.always(),
    )
    known.add({address: found.get(address) for address in image})
    phase_of = {id(stretch): phase.value for phase, stretch in counters.phased(counts)}
    return attribution.attribute(counts, known.places | found, lambda stretch: phase_of.get(id(stretch), stretch.begin))


def _key(inputs: FitInputs) -> str:
    """What the place of an address depends on: the baseline (its modules aside), the source, and the code that reads
    it."""
    baseline = replace(inputs.kernel, debug_modules_dir="")
    return digest(
        records.to_bytes(baseline),
        inputs.source.digest,
        inputs.options.architecture,
        *(keys.code_of(module.__name__) for module in (attribution, symbolizer)),
    )
