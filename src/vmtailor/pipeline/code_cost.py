# SPDX-License-Identifier: Apache-2.0
"""The cost of a counted boot of a baseline, by function, file and symbol. Places of code found for one subject serve
the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmtailor.analysis.cost import attribution, plugin_counts
from vmtailor.analysis.cost.attribution import Attribution, Place
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.ksource import facts
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.files import records
from vmtailor.base.notation import module_name
from vmtailor.drivers.kernel import symbolizer
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.drivers.kernel.known_places import KnownPlaces
from vmtailor.drivers.monitors import counts_file
from vmtailor.model.boots.counters import Counters, SourceFrames
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.trace import LoadedModule, Trace
from vmtailor.pipeline import keys
from vmtailor.pipeline.subject import Subject
from vmtailor.stages.kernel_plan import KernelTree


@dataclass(frozen=True, eq=False)
class Code:
    """A baseline's code: its kernel with symbols and debug information, its source, and its configuration."""

    kernel: KernelBaseline
    source: SourceTree
    tree: KernelTree
    config: Mapping[str, str]
    table: SymbolTable
    architecture: str
    store: Store

    @classmethod
    def of(cls, subject: Subject[Any], tree: KernelTree) -> Code:
        """Return the code of a subject's baseline."""
        return cls(
            kernel=subject.kernel,
            source=subject.source,
            tree=tree,
            config=subject.config,
            table=subject.table,
            architecture=subject.architecture.name,
            store=subject.store,
        )

    def places(self, frames: Mapping[int, SourceFrames]) -> dict[int, Place]:
        """Return address → what the instruction there belongs to."""
        return attribution.places(
            frames,
            attribution.Conditions(self.tree.facts, facts.reader(self.source.path)),
            enabled={name: value for name, value in self.config.items() if value in ("y", "m")},
            choosable=self.tree.kconfig.prompted,
            always=self.tree.always(),
            name_of=self.table.in_image,
        )

    def of_image(self, addresses: NDArray[np.uint64], more: Mapping[int, SourceFrames]) -> dict[int, Place]:
        """Return the places of addresses of the kernel's image, and of those that have the frames `more`."""
        known = KnownPlaces(self.store, self._key())
        asked = known.without(addresses)
        found = self.places(symbolizer.symbolize(Path(self.kernel.debug_vmlinux), asked) | dict(more))
        known.add({address: found.get(address) for address in asked})
        return known.places | found

    def _key(self) -> str:
        """Return the cache key of the place of an address: the baseline (without its modules), the source, and the code
        that reads it."""
        baseline = replace(self.kernel, debug_modules_dir="")
        return digest(
            records.to_bytes(baseline),
            self.source.digest,
            self.architecture,
            *(keys.code_of(module.__name__) for module in (attribution, symbolizer)),
        )


def attributed(subject: Subject[Any], record: Trace, folder: Path, tree: KernelTree) -> Attribution:
    """Return the cost of every function, file and symbol of the baseline's kernel in the coverage boot."""
    code = Code.of(subject, tree)
    counts = counts_file.read(folder / record.coverage_file)
    where = attribution.addresses(counts)
    of_modules = code.table.in_modules(where)
    sections = [(module.name, name, at) for module in record.modules for name, at in module.sections]
    files = {module_name(path.stem): path for path in Path(code.kernel.debug_modules_dir).rglob("*.ko")}
    frames = symbolizer.symbolize_modules(files, sections, where[of_modules].tolist())
    return _by_phase(counts, code.of_image(where[~of_modules], frames))


def of_system(
    code: Code,
    counts: Counters,
    modules: Sequence[LoadedModule],
    path_of: Callable[[str], str],
    symbol_of: Callable[[str], str | None],
) -> Attribution:
    """Return the cost for a system with an init of its own. Modules are counted as a whole: a system has dozens, and
    their debug information is as large as the kernel's. `modules`: those that were loaded at the end. `path_of`: a
    module's path in the tree without suffix, or "". `symbol_of`: that path → its symbol."""
    where = attribution.addresses(counts)
    of_modules = code.table.in_modules(where)
    found = code.of_image(where[~of_modules], {})
    return _by_phase(counts, found | in_modules(where[of_modules], modules, path_of, symbol_of))


def in_modules(
    addresses: NDArray[np.uint64],
    modules: Sequence[LoadedModule],
    path_of: Callable[[str], str],
    symbol_of: Callable[[str], str | None],
) -> dict[int, Place]:
    """Return address → the module that lies there, for those that lie in one."""
    found: dict[int, Place] = {}
    for one in modules:
        path = path_of(one.name)
        place = (f"[{one.name}]", f"{path}.ko" if path else "", (symbol_of(path) or "") if path else "")
        inside = addresses[(addresses >= np.uint64(one.base)) & (addresses < np.uint64(one.base + one.bytes))]
        found |= dict.fromkeys(inside.tolist(), place)
    return found


def _by_phase(counts: Counters, where: Mapping[int, Place]) -> Attribution:
    phase_of = {id(stretch): phase.value for phase, stretch in plugin_counts.phased(counts)}
    return attribution.attribute(counts, where, lambda stretch: phase_of.get(id(stretch), stretch.begin))
