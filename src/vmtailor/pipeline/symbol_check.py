# SPDX-License-Identifier: Apache-2.0
"""Symbols that the user keeps or drops, checked before any long work. The kernel's source has the last word when it is
read; until then the names of two kernels are known, and those of sources at hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vmtailor.analysis.ksource import kconfig
from vmtailor.base import near_names, output
from vmtailor.base.errors import VmtailorError
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.kernel import kept_source, symbol_names
from vmtailor.drivers.targets import targets
from vmtailor.model.architecture import named, presumed, presumed_name
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages.kernel_plan import named_symbols


def require_known(options: FitOptions) -> None:
    """Raise UserInputError for targets that nobody knows; and, with the name that was meant, for symbols to keep or to
    drop that the kernel does not have.
    Where that cannot be told yet, a note says so."""
    targets.needed(options.targets, options.architecture or presumed_name())
    names = named_symbols((*options.keep, *options.drop))
    versions, shipped = symbol_names.shipped()
    strange = sorted(name for name in names if name not in shipped)
    if not strange:
        return
    source = Path(options.source.partition(",")[0]) if options.source is not None else None
    if source is not None and source.is_dir():
        _refuse(strange, symbol_names.of_source(source), f"the kernel source {source} has")
        return
    version = _packaged(options) if source is None else ""
    at_hand = next((one for one in kept_source.baselines(options.store) if one.version == version), None)
    if at_hand is not None:
        _refuse(strange, symbol_names.of_source(Path(at_hand.source_dir)), f"the kernel {version} has")
    elif _series(version) in map(_series, versions):
        _refuse(strange, shipped, f"the kernel {version} has")
    else:
        for name in strange:
            question = near_names.asked(name, shipped)
            output.note(f"! no kernel up to {versions[-1]} has the symbol {name}{'; ' * bool(question)}{question}")


def _refuse(names: Iterable[str], known: frozenset[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise kconfig.unknown_symbol(name, known, what)


def _packaged(options: FitOptions) -> str:
    """Return the version of the packaged kernel that a fit would take; empty where the fit itself is to say why there
    is none."""
    architecture = named(options.architecture) if options.architecture else presumed()
    if options.baseline_config is not None:
        return ""
    try:
        return packaged_baseline.select(options.distribution, architecture, options.kernel).version
    except VmtailorError:
        return ""


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])
