# SPDX-License-Identifier: Apache-2.0
"""Recompiled kernels of a bundle: with other values of some symbols, or with debug information."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.ksource import foreign_config
from vmtailor.analysis.ksource.closure import close
from vmtailor.analysis.ksource.kconfig import Kconfig, unknown_symbol
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config
from vmtailor.base.files.digests import SHA256
from vmtailor.base.progress import step
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.kernel import kept_source
from vmtailor.drivers.kernel.kernel_source import SourceTree, require_version
from vmtailor.model.architecture import named
from vmtailor.model.bundle import PLAN
from vmtailor.model.plan import Plan
from vmtailor.stages import build, debug_kernel
from vmtailor.stages import kernel_plan as planning
from vmtailor.stages.boot.boot_attribution import Known

#: The entry of a bundle's sources that ends with the digest of the kernel's source.
_SOURCE = "kernel source"
# Part of every key: raise it when other values of a bundle's configuration are taken.
_CONFIG_RULES = "1"


def source_digest(loaded: BundleFolder) -> str:
    """Return the digest of the source that a bundle's kernel was compiled from. It names a folder of the cache whose
    makefiles are run, so it is a digest and nothing else; UserInputError otherwise."""
    digests = [text.rpartition(", ")[2] for name, text in loaded.bundle.sources if name == _SOURCE]
    if len(digests) != 1 or not SHA256.fullmatch(digests[0]):
        raise UserInputError(
            f"the bundle {loaded.path} does not say which source its kernel was compiled from",
            hint="fit the image again on this host",
        )
    return digests[0]


def source_of(loaded: BundleFolder, store: Store, distribution: Distribution | None = None) -> SourceTree:
    """Return the source that a bundle's kernel was compiled from: from the cache, or fetched as a package of the
    distribution (this host's by default).

    Raises UserInputError when the right source is not available here."""
    found = source_at_hand(loaded, store)
    if found is not None:
        return found
    wanted = source_digest(loaded)
    version = loaded.bundle.kernel_version
    try:
        architecture = named(loaded.bundle.architecture)
        kernel = packaged_baseline.provide(distribution or selection.of_host(), architecture, store, version)
    except UserInputError:
        kernel = None
    if kernel is None or kernel.source_digest != wanted:
        raise UserInputError(
            f"the source that the kernel of {loaded.path} was compiled from ({version}) is not at hand",
            hint="fit the image again on this host",
        )
    return SourceTree(Path(kernel.source_dir), kernel.source_digest)


def source_at_hand(loaded: BundleFolder, store: Store) -> SourceTree | None:
    """Return that source if the cache has it; nothing is fetched."""
    tree = kept_source.by_digest(source_digest(loaded), store)
    if tree is not None:
        require_version(tree, loaded.bundle.kernel_version, f"the kernel of {loaded.path}")
    return tree


def known(loaded: BundleFolder, store: Store, *, only_cached: bool = False) -> Known | None:
    """Return all that is known of a bundle's kernel. Its debug information is compiled once, which takes as long as the
    kernel did at first. None when that is missing and only the cache is asked.

    Raises UserInputError without the source, HostError when this compiler makes another kernel."""
    wanted = source_digest(loaded)
    system_map = _kept(loaded.symbols, "System.map", store)
    key = digest(_CONFIG_RULES, wanted, dot_config.render(loaded.config))
    architecture = loaded.bundle.architecture
    if only_cached:
        config = store.path("bundle-config", key) / "config"
        if not config.is_file() or debug_kernel.cached(config, system_map, wanted, store, architecture) is None:
            return None
    source = source_of(loaded, store)

    def fill(folder: Path) -> None:
        with step("the bundle's configuration, held against the kernel source"):
            kconfig = planning.read_tree(
                source.path, source.version, source.digest, store, architecture=architecture
            ).kconfig
            taken = foreign_config.harmless(kconfig, loaded.config, str(loaded.path / loaded.bundle.kernel_config))
        (folder / "config").write_text(dot_config.render(taken))

    config = store.get("bundle-config", key, fill) / "config"
    debug = debug_kernel.provide(config, system_map, source.path, source.digest, store, architecture)
    version = loaded.bundle.kernel_version
    return Known(
        release=version,
        version=version,
        system_map=system_map,
        vmlinux=debug.vmlinux,
        source=source.path,
        source_digest=source.digest,
        config=config,
        architecture=architecture,
        moved=debug.system_map,
    )


def _kept(data: bytes, name: str, store: Store) -> Path:
    """Data that was checked, as a file that nobody else can change."""
    key = digest(data)
    return store.get("bundle-data", key, lambda folder: _write(folder / name, data)) / name


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


class Rebuilder:
    """A compiler of a bundle's kernel with other values of some symbols. It changes nothing else."""

    def __init__(self, loaded: BundleFolder, store: Store) -> None:
        self._loaded = loaded
        self._store = store
        self._kconfig: Kconfig | None = None
        self.fallen: dict[tuple[tuple[str, str], ...], tuple[str, ...]] = {}

    def __call__(self, values: Mapping[str, str]) -> Path:
        """The kernel's file, with its table of symbols beside it; the bundle's own where nothing changes.

        Raises UserInputError for symbols that are not there or cannot have these values, BuildError when the kernel
        does not compile."""
        config = self._loaded.config
        if all(config.get(name, "n") == value for name, value in values.items()):
            return self._loaded.kernel
        source = source_of(self._loaded, self._store)
        made, where = self._loaded.record(Plan, PLAN), str(self._loaded.path / PLAN)
        if self._kconfig is None:
            with step("facts of the kernel source"):
                self._kconfig = planning.read_tree(
                    source.path, source.version, source.digest, self._store,
                    architecture=self._loaded.bundle.architecture,
                ).kconfig  # fmt: skip
        planned = foreign_config.harmless(self._kconfig, dict(made.fragment), where)
        fragment, fallen = changed(self._kconfig, planned, values, made.baseline)
        self.fallen[tuple(sorted(values.items()))] = fallen
        # The symbols are those of the plan before: they are not held against this kernel.
        other = replace(made, fragment=fragment, changes=())
        asked = ", ".join(f"{name}={value}" for name, value in values.items())
        gone = f", without {', '.join(fallen)}" if fallen else ""
        # Others may be compiling in the same folder: this waits for them.
        with step(f"the kernel with {asked}{gone}: what that changes is compiled"):
            return Path(build.build_kernel(other, source.path, source.digest, self._store).image)


def changed(
    kconfig: Kconfig, fragment: Mapping[str, str], values: Mapping[str, str], baseline: Mapping[str, str]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return a fragment with other values of some symbols and their dependencies, taken from the baseline where
    possible. The second value lists the symbols that cannot be kept beside them. Raises UserInputError when a value is
    impossible."""
    for name in values:
        if not kconfig.known(name):
            raise unknown_symbol(name, kconfig.symbols)
    wanted, fallen = {**fragment, **values}, []
    while True:
        closure = close(kconfig, wanted.items(), baseline=baseline)
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
