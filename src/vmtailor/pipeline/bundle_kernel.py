# SPDX-License-Identifier: Apache-2.0
"""Recompiled kernels of a bundle: with other values of some symbols, or with debug information."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
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
from vmtailor.drivers.kernel import compiler_flags, kept_source, kernel_patches, load_profile, make
from vmtailor.drivers.kernel.kernel_source import SourceTree, require_version
from vmtailor.model.architecture import named
from vmtailor.model.bundle import PLAN
from vmtailor.model.change import COMPILED, Change, ChangeKind, Setting
from vmtailor.model.plan import Plan
from vmtailor.pipeline import profiled_kernel
from vmtailor.pipeline.change_means import KernelRequest
from vmtailor.pipeline.profiled_kernel import CountedLoad
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
    made = loaded.record(Plan, PLAN) if loaded.lists(PLAN) else None
    flags, patches = ((), ()) if made is None else (made.flags, made.patches)
    if made is not None:
        bring_profile(loaded, made, store)
    if only_cached:
        config = store.path("bundle-config", key) / "config"
        if (
            not config.is_file()
            or debug_kernel.cached(config, system_map, wanted, store, architecture, flags, patches) is None
        ):
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
    debug = debug_kernel.provide(config, system_map, source.path, source.digest, store, architecture, flags, patches)
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


def bring_profile(loaded: BundleFolder, made: Plan, store: Store) -> None:
    """Keep the profile that a bundle's kernel was compiled by in the cache. Raises UserInputError unless the bundle has
    that very profile."""
    sha256 = load_profile.digest_of(made.flags)
    if sha256 is None:
        return
    if not loaded.lists(load_profile.FILE) or loaded.listed(load_profile.FILE).sha256 != sha256:
        raise UserInputError(
            f"the bundle {loaded.path} has not the profile {sha256[:16]} that its kernel was compiled by",
            hint="get the bundle again, or fit the image again",
        )
    data = loaded.data(load_profile.FILE, load_profile.MOST_BYTES)
    if not load_profile.is_profile(data):
        raise UserInputError(f"{load_profile.FILE} of the bundle {loaded.path} is no profile of a load")
    load_profile.keep(data, store)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


class Rebuilder:
    """A compiler of a bundle's kernel with other values of some symbols, other flags or patches. It changes nothing
    else. `load`: what a kernel is booted under to compile another one by its profile."""

    def __init__(self, loaded: BundleFolder, store: Store, load: CountedLoad | None = None) -> None:
        self._loaded = loaded
        self._store = store
        self._load = load
        self._kconfigs: dict[str, Kconfig] = {}
        self.fallen: dict[tuple[tuple[str, str], ...], tuple[str, ...]] = {}

    @cached_property
    def plan(self) -> Plan:
        made = self._loaded.record(Plan, PLAN)
        bring_profile(self._loaded, made, self._store)
        return made

    @cached_property
    def compiled(self) -> Mapping[str, str]:
        """Return the flags and patches of the bundle's kernel, by name."""
        return compiled_with(self.plan)

    def __call__(self, asked: KernelRequest) -> Path:
        """The kernel's file, with its table of symbols beside it; the bundle's own where nothing changes.

        Raises UserInputError for symbols, flags and patches that are not there, or values that cannot be had,
        BuildError when the kernel does not compile."""
        values, config = asked.symbols, self._loaded.config
        compiled = {**asked.flags, **asked.patches}
        same = all(self.compiled.get(name) == value for name, value in compiled.items())
        if same and all(config.get(name, "n") == value for name, value in values.items()):
            return self._loaded.kernel
        asked = profiled_kernel.named(asked, lambda one: self._planned(one)[:2], self._store, self._load)
        other, source, fallen = self._planned(asked)
        words = [f"{name}={value}" for name, value in values.items()]
        words += [str(one) for change in other.changes for one in change.settings if one.name in compiled]
        gone = f", without {', '.join(fallen)}" if fallen else ""
        # Others may be compiling in the same folder: this waits for them.
        with step(f"the kernel with {', '.join(words)}{gone}: what that changes is compiled"):
            return Path(build.build_kernel(other, source.path, source.digest, self._store).image)

    def _planned(self, asked: KernelRequest) -> tuple[Plan, SourceTree, tuple[str, ...]]:
        """Return the plan of a request, the source, and the symbols that fall with it."""
        values = asked.symbols
        made, where = self.plan, str(self._loaded.path / PLAN)
        other = replace(made, changes=compiler_changes(made, asked))
        architecture = named(self._loaded.bundle.architecture)
        compiler_flags.require_known(other.flags, build.toolchain_of(other))
        source = source_of(self._loaded, self._store)
        kernel_patches.require_for(other.patches, source.version, architecture.name)
        kconfig = self._kconfig_for(source, make.llvm_of(other.flags))
        planned = foreign_config.harmless(kconfig, dict(made.fragment), where)
        fragment, fallen = changed(kconfig, planned, values, made.baseline)
        self.fallen[tuple(sorted(values.items()))] = fallen
        # The symbols are those of the plan before: they are not held against this kernel.
        return replace(other, fragment=fragment), source, fallen

    def _kconfig_for(self, source: SourceTree, llvm: str) -> Kconfig:
        """Return the symbols that the source has under gcc, or under LLVM of this suffix."""
        if llvm not in self._kconfigs:
            with step("facts of the kernel source"):
                self._kconfigs[llvm] = planning.read_tree(
                    source.path, source.version, source.digest, self._store,
                    architecture=self._loaded.bundle.architecture, llvm=llvm,
                ).kconfig  # fmt: skip
        return self._kconfigs[llvm]


def compiled_with(made: Plan) -> dict[str, str]:
    """Return the flags and patches of a plan's kernel: name → value."""
    every = (one for change in made.changes for one in change.settings if one.kind in COMPILED)
    return {one.name: one.value for one in every if one.value is not None}


def compiler_changes(made: Plan, asked: KernelRequest) -> tuple[Change, ...]:
    """Return the flags and patches of a plan's kernel with those of a request, as changes of a plan, a setting each."""
    found: dict[tuple[ChangeKind, str], str | None] = {}
    for change in made.changes:
        for one in change.settings:
            if one.kind in COMPILED:
                found[one.kind, one.name] = one.value
    # A flag that is asked for again comes last: of two that exclude each other, a compiler takes the later one.
    for kind, values in ((ChangeKind.COMPILER, asked.flags), (ChangeKind.PATCH, asked.patches)):
        for name, value in values.items():
            found.pop((kind, name), None)
            found[kind, name] = value
    settings = (Setting(kind, name, value) for (kind, name), value in found.items() if value is not None)
    return tuple(Change(one.name, str(one), (one,)) for one in settings)


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
