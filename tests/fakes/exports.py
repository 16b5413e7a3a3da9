# SPDX-License-Identifier: Apache-2.0
"""Exports of a made-up bundle, whose kernel has what the targets want."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.bundle_data import bundle, write_bundle

from vmtailor.base.cache.store import Store
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.targets import targets
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.pipeline.bundle_export import Exported, export

#: Marks of an init that knows all that exports need.
INIT = b"\0VT_CONSOLE\0kernel-word-ip\0VT_ROOTFILE\0dhcp\0VT_DISKS\0"


def made_bundle(folder: Path, target: str, **record: Any) -> Path:
    """A bundle whose configuration has the symbols of a target and of all its variants."""
    made = write_bundle(folder)
    needs = targets.chosen(target).row.need
    symbols = {name: value for need in needs for name, value in need.symbols.items()}
    (made / "config").write_text("".join(f"CONFIG_{name}={value}\n" for name, value in symbols.items()))
    (made / "init").write_bytes(INIT)
    seal(made, bundle(**record))
    return made


def exported(folder: Path, target: str, wishes: ExportWishes | None = None, **record: Any) -> Exported:
    """A made-up bundle, exported; `record`: what its record says otherwise."""
    made = made_bundle(folder / "bundle", target, **record)
    return export(made, target, folder / "out", wishes or ExportWishes(), Store(folder / "cache"))
