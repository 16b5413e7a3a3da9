# SPDX-License-Identifier: Apache-2.0
"""What the tests of hostile bundles share."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.architecture import Architecture
from vmtailor.model.bundle import RECORD
from vmtailor.model.plan import RootFormat
from vmtailor.model.trial import Verification
from vmtailor.pipeline import reverify
from vmtailor.stages import verify
from vmtailor.stages.verify import Target


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A cache of the test's own, where the program looks for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    return Store()


def start(folder: Path) -> None:
    """What `run` and `verify` do before QEMU is started."""
    machine_of(bundle_folder.load(folder), Chosen())


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """Nothing is booted: what would have been verified."""
    seen: list[Target] = []

    def record(target: Target, *_: object) -> Verification:
        seen.append(target)
        return Verification(("wrong",) if target.image.user == "fail" else ())

    monkeypatch.setattr(verify, "verify", record)

    def tools_volume(store: Store, form: RootFormat, row: Architecture) -> Path:
        assert form in RootFormat and row.name
        return Path("/tools")

    monkeypatch.setattr(reverify, "tools_volume", tools_volume)
    return seen


def respell(folder: Path, words: str, others: str) -> None:
    """Write other words into a bundle's record."""
    record = folder / RECORD
    record.write_text(record.read_text().replace(words, others))
