# SPDX-License-Identifier: Apache-2.0
"""A family kernel: one on which any image starts at once, without a fit, and without a proof for that image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vmtailor.model.bundle import BundleFile
from vmtailor.model.margin import Margin
from vmtailor.model.plan import RootFormat

#: The record in a family kernel's folder.
RECORD = "family.json"


@dataclass(frozen=True)
class FamilyKernel:
    """A kernel, and the machine that it is for. `kernel`: the name of its file; beside it are its configuration, its
    table of symbols, and mostly its plan, under the names that they have in a bundle. `words`: its command line, with
    the root that it expects. `memory_bytes`: what a machine gets where nobody says another. `made_for`: the image that
    it was fitted to; empty for one that was made for no image. `files`: all files, with their digests."""

    SCHEMA: ClassVar[str] = "vmtailor/family/1"

    architecture: str
    machine: str
    cpus: int
    memory_bytes: int
    kernel: str
    kernel_version: str
    root_format: RootFormat
    words: tuple[str, ...]
    network: bool
    margins: tuple[Margin, ...]
    made_for: str
    sources: tuple[tuple[str, str], ...]
    files: tuple[BundleFile, ...]
