# SPDX-License-Identifier: Apache-2.0
"""The bundle: the folder that comes out. `bundle.json` in it says what each file is and how to start the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import MachineKind
from vmtailor.model.plan import RootFormat

RECORD = "bundle.json"
#: The init that the root file system holds, once more: where it marks the milestones of a boot depends on its build.
INIT = "init"


@dataclass(frozen=True)
class Bundle:
    """Paths are relative to the bundle's folder, so that it can be moved. `words` is the kernel command line without
    what depends on a start (root device and init stay in). `memory_bytes` is the default size of the machine.
    `privileged`: the container was fitted so, and is run so unless told otherwise."""

    SCHEMA: ClassVar[str] = "vmtailor/bundle/1"

    name: str
    image_reference: str
    image_digest: str
    image: ImageConfig
    kernel: str
    kernel_version: str
    kernel_config: str
    system_map: str
    root: str
    root_format: RootFormat
    machine: MachineKind
    cpus: int
    memory_bytes: int
    network: bool
    words: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]
    privileged: bool = False
