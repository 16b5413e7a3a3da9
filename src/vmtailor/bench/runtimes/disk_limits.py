# SPDX-License-Identifier: Apache-2.0
"""Which block device a folder's writes go to, as far as the kernel lets them be limited there."""

from __future__ import annotations

import os
from pathlib import Path

from vmtailor.bench.model.instance import WriteLimit


def write_limit(folder: Path, bytes_s: int, sys: Path = Path("/sys")) -> WriteLimit | None:
    """A limit on the whole disk that holds a folder; None where its file system is on none that can be named (memory,
    network, several disks)."""
    device = folder.stat().st_dev
    place = sys / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    if not place.exists():
        return None
    whole = place.resolve()
    if (whole / "partition").is_file():
        whole = whole.parent
    major, minor = (whole / "dev").read_text().strip().split(":")
    return WriteLimit(int(major), int(minor), f"/dev/{whole.name}", bytes_s)
