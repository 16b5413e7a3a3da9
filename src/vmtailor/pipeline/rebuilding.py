# SPDX-License-Identifier: Apache-2.0
"""A bundle's kernel again: with other values of some symbols, or with debug information to look inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.ksource.closure import close
from vmtailor.analysis.ksource.kconfig import Kconfig, parse_config
from vmtailor.base import records
from vmtailor.base.errors import UserInputError
from vmtailor.base.progress import step
from vmtailor.base.store import Store
from vmtailor.drivers import kernel_packages
from vmtailor.drivers.kernel_source import SourceTree
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.plan import Plan
from vmtailor.stages import build, debug_kernel
from vmtailor.stages import plan as planning
from vmtailor.stages.boot.attribution import Known
from vmtailor.stages.boot.bundle import Loaded

PLAN = "plan.json"
#: The entry of a bundle's sources that ends with the digest of the kernel's source.
_SOURCE = "kernel source"


def source_of(loaded: Loaded, store: Store) -> SourceTree:
    """The source that a bundle's kernel was compiled from: in the cache, or fetched as a package.

    Raises UserInputError when it is another one than any that can be had here."""
    wanted = dict(loaded.bundle.sources).get(_SOURCE, "").rpartition(", ")[2]
    folder = store.path("kernel-source", wanted)
    if wanted and folder.is_dir():
        return SourceTree(folder, wanted)
    version = loaded.bundle.kernel_version
    for kernel in _at_hand(store, version):
        if kernel.source_digest == wanted:
            return SourceTree(Path(kernel.source_dir), kernel.source_digest)
    try:
        found = kernel_packages.provide(store, version)
    except UserInputError:
        found = None
    if found is None or found.source_digest != wanted:
        raise UserInputError(
            f"the source that the kernel of {loaded.bundle.name} was compiled from ({version}) is not at hand",
            hint="fit the image again on this host",
        )
    return SourceTree(Path(found.source_dir), found.source_digest)


def _at_hand(store: Store, version: str) -> list[KernelBaseline]:
    files = sorted((store.root / "baselines").glob("*.json"))
    found = [records.load(KernelBaseline, file) for file in files]
    return [kernel for kernel in found if kernel.version == version and Path(kernel.source_dir).is_dir()]


def known(loaded: Loaded, store: Store, *, only_cached: bool = False) -> Known | None:
    """All that is known of a bundle's kernel; its debug information is compiled once, which takes as long as the
    kernel did at first. None when that was not done yet and only the cache is asked.

    Raises UserInputError without the source, HostError when this compiler makes another kernel."""
    wanted = dict(loaded.bundle.sources).get(_SOURCE, "").rpartition(", ")[2]
    if only_cached and debug_kernel.cached(loaded.config, loaded.system_map, wanted, store) is None:
        return None
    source = source_of(loaded, store)
    vmlinux = debug_kernel.provide(loaded.config, loaded.system_map, source.path, source.digest, store)
    version = loaded.bundle.kernel_version
    return Known(version, version, loaded.system_map, vmlinux, source.path, source.digest, loaded.config)


class Rebuilder:
    """Compiles a bundle's kernel with other values of some symbols: what they change and nothing else."""

    def __init__(self, loaded: Loaded, store: Store) -> None:
        self._loaded = loaded
        self._store = store
        self._kconfig: Kconfig | None = None
        self.fallen: dict[tuple[tuple[str, str], ...], tuple[str, ...]] = {}

    def __call__(self, values: Mapping[str, str]) -> Path:
        """The kernel's file, with its table of symbols beside it; the bundle's own where nothing changes.

        Raises UserInputError for symbols that are not there or cannot have these values, BuildError when the kernel
        does not compile."""
        config = parse_config(self._loaded.config.read_text())
        if all(config.get(name, "n") == value for name, value in values.items()):
            return self._loaded.kernel
        source = source_of(self._loaded, self._store)
        made = records.load(Plan, self._loaded.folder / PLAN)
        if self._kconfig is None:
            with step("facts of the kernel source"):
                self._kconfig = planning.read_tree(source.path, made.kernel_version, source.digest, self._store).kconfig
        fragment, fallen = changed(self._kconfig, dict(made.fragment), values)
        self.fallen[tuple(sorted(values.items()))] = fallen
        # The choices are those of the plan before: they are not held against this kernel.
        other = replace(made, fragment=fragment, choices=())
        asked = ", ".join(f"{name}={value}" for name, value in values.items())
        gone = f", without {', '.join(fallen)}" if fallen else ""
        # Others may be compiling in the same folder: this waits for them.
        with step(f"the kernel with {asked}{gone}: what that changes is compiled"):
            return Path(build.build_kernel(other, source.path, source.digest, self._store).image)


def changed(
    kconfig: Kconfig, fragment: Mapping[str, str], values: Mapping[str, str]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """A fragment with other values of some symbols, with what they need, and without what cannot be had beside them
    (which comes second). Raises UserInputError when a value cannot be had."""
    for name in values:
        if not kconfig.known(name):
            raise UserInputError(f"this kernel has no configuration symbol {name}", hint="write it without CONFIG_")
    wanted, fallen = {**fragment, **values}, []
    while True:
        closure = close(kconfig, wanted.items())
        for one in closure.lost:
            if one.name in values:
                raise UserInputError(f"the kernel cannot have {one}", hint="vmtailor explain says what keeps a symbol")
        if not closure.lost:
            break
        fallen += [one.name for one in closure.lost]
        for one in closure.lost:
            del wanted[one.name]
    final = [
        (name, value) for name, value in closure.fragment if kconfig.prompted(name) and (name in wanted or value != "n")
    ]
    return tuple(final), tuple(fallen)
