# SPDX-License-Identifier: Apache-2.0
"""The baseline from a distribution's packages, without root: its kernel, the kernel's debug symbols, its source.

A baseline needs all three packaged in one version. Addresses are resolved through the symbols, and conditions are read
from the source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.notation import module_name
from vmtailor.drivers.distribution.distribution import Distribution, PackagedKernel
from vmtailor.drivers.kernel import kernel_source
from vmtailor.drivers.kernel.kernel_source import debug_modules_of
from vmtailor.model.architecture import Architecture
from vmtailor.model.kernel import KernelBaseline

# Part of the key of what was chosen: raise it when another kernel would be.
_CHOICE = "2"
_COMPILE = "have the baseline compiled once: --source, --baseline-config"


def ordered(distribution: Distribution, kernels: Iterable[PackagedKernel]) -> list[PackagedKernel]:
    """Newest first, as the distribution orders its versions."""
    return sorted(kernels, key=lambda kernel: distribution.version_key(kernel.package_version), reverse=True)


def select(
    distribution: Distribution,
    architecture: Architecture,
    wanted: str | None = None,
    kernels: Sequence[PackagedKernel] | None = None,
) -> PackagedKernel:
    """Return one kernel: the newest that was released, or what `wanted` names: a series (6.12), a version (6.12.117), a
    release or a package version. `kernels`: what the distribution said when it was asked before.

    Raises UserInputError when nothing fits `wanted`, HostError when nothing is packaged completely.
    """
    if why := distribution.lacking():
        raise HostError(why, hint=_COMPILE)
    found = ordered(distribution, distribution.kernels(architecture) if kernels is None else kernels)
    if wanted:
        for kernel in found:
            if wanted in (kernel.series, kernel.version, kernel.release, kernel.package_version):
                return kernel
        there = ", ".join(dict.fromkeys(kernel.version for kernel in found)) or "none"
        raise UserInputError(
            f"no packaged cloud kernel '{wanted}' with debug symbols and source of the same version",
            hint=f"complete here: {there}; or refresh the lists as root: {distribution.refresh}",
        )
    if not found:
        raise HostError(
            "no cloud kernel is packaged with debug symbols and source of the same version",
            hint=f"as root, run: {distribution.refresh}; or {_COMPILE}",
        )
    return next((kernel for kernel in found if not kernel.prerelease), found[0])


def provide(
    distribution: Distribution,
    architecture: Architecture,
    store: Store,
    wanted: str | None = None,
    *,
    debug_modules: Collection[str] | None = None,
) -> KernelBaseline:
    """Return the baseline, from the cache where it is there already.

    Every package is a step of its own, so that an interrupted run goes on with the next one. Raises HostError for
    lists, network and disk, UserInputError when nothing fits `wanted`."""
    # Asking for packages takes seconds; the answer holds until the lists change.
    modules = debug_modules_of(architecture) if debug_modules is None else debug_modules
    key = digest(
        _CHOICE, distribution.name, architecture.name, distribution.state(architecture), wanted or "", *sorted(modules)
    )
    memo = store.root / "baselines" / f"{key}.json"
    if memo.exists():
        known = records.load(KernelBaseline, memo)
        parts = (known.vmlinuz, known.debug_vmlinux, known.debug_modules_dir, known.source_dir, known.modules_dir)
        if all(Path(path).exists() for path in parts):
            store.used(memo, *parts)
            return known
    baseline = _provide(store, select(distribution, architecture, wanted), modules)
    records.save(baseline, memo, private=True)
    return baseline


def _provide(store: Store, kernel: PackagedKernel, debug_modules: Collection[str]) -> KernelBaseline:
    image = kernel.image(store)
    debug = kernel.debug(store)
    modules = kernel.debug_modules(store, debug_modules)
    tree = kernel.source(store)
    kernel_source.require_version(tree, kernel.version, f"the baseline ({kernel.packages[0]})")
    return KernelBaseline(
        version=kernel.version,
        release=kernel.release,
        vmlinuz=str(image / "vmlinuz"),
        config=str(image / "config"),
        system_map=str(debug / "System.map"),
        modules_dir=str(image / "modules"),
        debug_vmlinux=str(debug / "vmlinux"),
        debug_modules_dir=str(modules),
        source_dir=str(tree.path),
        source_digest=tree.digest,
        origin=(*kernel.packages, kernel.source_package),
    )


def with_debug_modules(
    distribution: Distribution, architecture: Architecture, baseline: KernelBaseline, store: Store, names: Iterable[str]
) -> KernelBaseline:
    """Return the baseline with debug information also for these modules, which a workload loaded unexpectedly."""
    wanted = frozenset(names)
    missing = wanted - {module_name(path.stem) for path in Path(baseline.debug_modules_dir).rglob("*.ko")}
    if not missing:
        return baseline
    kernel = next((k for k in distribution.kernels(architecture) if k.packages[0] == baseline.origin[0]), None)
    if kernel is None:
        return baseline
    more = frozenset(debug_modules_of(architecture)) | wanted
    return replace(baseline, debug_modules_dir=str(kernel.debug_modules(store, more)))
