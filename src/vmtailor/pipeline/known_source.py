# SPDX-License-Identifier: Apache-2.0
"""The inputs of an explanation: a kernel's configuration, and the source that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.bootlog import kernel_build
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import name_index
from vmtailor.analysis.explain.lookup import KnownSource
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config
from vmtailor.base.garbage import no_collections
from vmtailor.base.notation import version_key
from vmtailor.base.progress import step
from vmtailor.base.text import is_number
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.kernel import kept_source, kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import Architecture, named, presumed
from vmtailor.model.architecture import names as architectures
from vmtailor.stages.kernel_plan import KernelTree, read_tree


@dataclass(frozen=True)
class Configuration:
    """A kernel's configuration. `version` and `architecture` are those of its title; empty without one."""

    symbols: dict[str, str]
    version: str
    architecture: str


def read_configuration(path: Path) -> Configuration:
    """Return the symbols of a configuration, and its kernel. Raises UserInputError."""
    data = dot_config.read(path)
    head = data.splitlines()[:20]
    return Configuration(
        dot_config.parse(data.decode("utf-8", "replace")),
        kernel_build.version_of(data[:400]) or "",
        kernel_build.arch_of(head) or "",
    )


@dataclass(frozen=True)
class SourceAtHand:
    """The facts of a source, and its version. `note`: says so when that is not the version that was asked for."""

    known: KnownSource
    version: str
    note: str = ""


def source_for(given: str | None, version: str, architecture: str | None = None) -> SourceAtHand | None:
    """Return the source to read: the one `given` (a folder, a tarball, or a version of a packaged kernel), else the
    cached one of this version or its series. None when neither exists."""
    store = Store()
    note = ""
    if given is not None:
        tree = _given(given, architecture, store)
    else:
        found = _cached(version, store)
        if found is None:
            return None
        tree = found
    if version and tree.version.removesuffix(".0") != _plain(version).removesuffix(".0"):
        note = f"read in the source of {tree.version}; the kernel is {version}"
    return SourceAtHand(_known(tree, architecture, store), tree.version, note)


def newest_source(architecture: str | None = None) -> SourceAtHand | None:
    """Return the newest source that the cache has; None when it has none."""
    store = Store()
    found = kept_source.by_version(store)
    if not found:
        return None
    version = max(found, key=version_key)
    return SourceAtHand(_known(found[version], architecture, store), version, f"read in the source of {version}")


@dataclass(frozen=True)
class WholeSource:
    """A source with its facts: its folder and digest, the requests it answers, and its tree."""

    tree: SourceTree
    known: KnownSource
    read: KernelTree


def whole_source(version: str, architecture: str | None, store: Store) -> WholeSource | None:
    """Return the source of exactly this version if the cache has it; None otherwise."""
    tree = _cached(version, store, exact=True)
    return None if tree is None else known_of(tree, architecture, store)


def known_of(tree: SourceTree, architecture: str | None, store: Store) -> WholeSource:
    """Return a source with its facts."""
    read = read_tree(tree.path, tree.version, tree.digest, store, architecture=_row(architecture).name)
    return WholeSource(tree, _known(tree, architecture, store), read)


def _given(given: str, architecture: str | None, store: Store) -> SourceTree:
    if kernel_source.place(given.partition(",")[0]).exists():
        return kernel_source.provide(store, given)
    if not is_number(given[:1]) or "/" in given:
        raise UserInputError(
            f"the kernel source {given} does not exist", hint="give a folder, a tarball, or a version such as 6.12"
        )
    cached = _cached(given, store, exact=True)
    if cached is not None:
        return cached
    return packaged_baseline.select(selection.of_host(), _row(architecture), given).source(store)


def _row(architecture: str | None) -> Architecture:
    return named(architecture) if architecture is not None and architecture in architectures() else presumed()


def _plain(version: str) -> str:
    """6.12.117+deb12-cloud → 6.12.117."""
    kept = ""
    for character in version:
        if not (is_number(character) or character == "."):
            break
        kept += character
    return kept.rstrip(".")


def _cached(version: str, store: Store, *, exact: bool = False) -> SourceTree | None:
    """Return the source of a version that the cache has, else the newest of its series; `exact`: only if asked for."""
    wanted = _plain(version)
    series = ".".join(wanted.split(".")[:2])
    found = kept_source.by_version(store)
    if wanted in found:
        return found[wanted]
    alike = [one for one in found if one == series or one.startswith(f"{series}.")]
    if not alike or (exact and wanted != series):
        return None
    return found[max(alike, key=version_key)]


def _known(tree: SourceTree, architecture: str | None, store: Store) -> KnownSource:
    row = _row(architecture)
    with step(f"reading the source of {tree.version}"), no_collections():
        read = read_tree(tree.path, tree.version, tree.digest, store, architecture=row.name)
        more = name_index.load(tree.path, read.facts, tree.digest, store, architecture=row)
    return KnownSource(read.facts, more, demand_rules.load(architecture=row).for_kernel(tree.version), read.kconfig)
