# SPDX-License-Identifier: Apache-2.0
"""`run --explain-failures`: watch a run, and find calls that its kernel refused and the baseline would have allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vmtailor.analysis.demands import demand_rules, refusals
from vmtailor.analysis.demands.degradation import MISSING
from vmtailor.analysis.demands.demand import Demands
from vmtailor.analysis.demands.refusals import Refused, Told
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.drivers.guest.guest_volume import tells_refused
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.image import flat_archive
from vmtailor.model.architecture import named
from vmtailor.model.bundle import PLAN, TRACED
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import ObservedRun
from vmtailor.pipeline import bundle_kernel
from vmtailor.pipeline.image_subject import tools_volume
from vmtailor.stages.image_fetch import kept_for


@dataclass(frozen=True)
class WatchedRun:
    """The findings of a watched run. `by_source`: the kernel's source was available. Otherwise only our own rules were
    asked, and calls stand without the symbols that the source would name."""

    observed: ObservedRun
    refused: tuple[Refused, ...]
    by_source: bool

    @property
    def explained(self) -> tuple[Refused, ...]:
        return tuple(one for one in self.refused if one.demands)

    @property
    def unexplained(self) -> tuple[Refused, ...]:
        """Return the calls that nothing explains. First come those that the kernel lacks, then those for missing files,
        which are many."""
        found = (one for one in self.refused if not one.demands)
        return tuple(sorted(found, key=lambda one: one.call.error not in MISSING))

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in self.explained for name in one.symbols))


class Watch:
    """The watch over one run. Raises UserInputError for a bundle whose init cannot report refused calls."""

    def __init__(self, bundle: Path, store: Store | None = None) -> None:
        self._store = store or Store()
        self._loaded = bundle_folder.load_container(bundle, self._store)
        if not tells_refused(self._loaded.init):
            raise UserInputError(
                f"the init of {bundle} is of an older version, and cannot tell what its kernel refuses",
                hint="fit the image again",
            )
        self._told = Told()

    def tools(self) -> Path:
        """Return the tracer's volume. Raises HostError without a tracer."""
        bundle = self._loaded.bundle
        return tools_volume(self._store, bundle.root_format, named(bundle.architecture))

    def hear(self, told: bytes) -> None:
        """Take what init told of refused calls."""
        self._told.hear(told)

    def observed(self) -> ObservedRun:
        """Return the calls refused so far."""
        bundle = self._loaded.bundle
        return ObservedRun(
            image_reference=bundle.image_reference,
            image_digest=bundle.image_digest,
            kernel_version=bundle.kernel_version,
            kernel_sha256=self._loaded.listed(bundle.kernel).sha256,
            calls=self._told.calls(),
            untold=self._told.untold,
            whole=self._told.whole,
        )

    def findings(self) -> WatchedRun:
        """Judge the refused calls."""
        return judge(self._loaded, self.observed(), self._store)


def judge(loaded: BundleFolder, observed: ObservedRun, store: Store) -> WatchedRun:
    """Judge the refused calls in a bundle's machine by the kernel's source and the baseline's configuration."""
    facts = _facts(loaded, store)
    baseline = baseline_config(loaded)
    enabled = {name: value for name, value in baseline.items() if value in ("y", "m")}
    known = facts if facts is not None else Facts(loaded.bundle.kernel_version, {}, {}, {})
    demands = Demands(
        known, demand_rules.load(architecture=named(loaded.bundle.architecture)), enabled, _Heads(loaded, store)
    )
    found = refusals.judged(observed.calls, demands, baseline, loaded.config, _failed_on_baseline(loaded))
    return WatchedRun(observed, found, facts is not None)


def baseline_config(loaded: BundleFolder) -> Mapping[str, str]:
    """Return the configuration that the bundle was made from. For an older bundle its plan gives it: everything but
    modules that were not loaded."""
    if loaded.baseline_config is not None:
        return loaded.baseline_config
    plan = loaded.record(Plan, PLAN)
    return {c.setting.name: c.setting.before for c in plan.changes if c.sets_symbol and c.setting.before is not None}


def _facts(loaded: BundleFolder, store: Store) -> Facts | None:
    """Return the facts of the kernel's source, where the cache has it. Nothing is downloaded."""
    try:
        source = bundle_kernel.source_at_hand(loaded, store)
        if source is None:
            return None
        architecture = named(loaded.bundle.architecture)
        return ksource_facts.load(
            source.path, loaded.bundle.kernel_version, source.digest, store, architecture=architecture
        )
    except (VmtailorError, OSError):
        return None


def _failed_on_baseline(files: BundleFolder) -> frozenset[tuple[str, str, str]]:
    if not files.lists(TRACED):
        return frozenset()
    return frozenset((call.name, call.arguments, call.error) for call in files.trace.failed_calls)


class _Heads:
    """First bytes of the image's files, where the cache has the image; read when the first is asked for."""

    def __init__(self, files: BundleFolder, store: Store) -> None:
        self._files = files
        self._store = store

    def __call__(self, path: str) -> bytes:
        return self._archive.head(path) if self._archive is not None else b""

    @cached_property
    def _archive(self) -> flat_archive.FlatArchive | None:
        try:
            image = kept_for(self._files, self._store)
            return flat_archive.read(Path(image.archive)) if image is not None else None
        except (VmtailorError, OSError):
            return None
