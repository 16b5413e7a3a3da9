# SPDX-License-Identifier: Apache-2.0
"""The trace: what was seen while the exercise ran on the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vmtailor.base.files.records import Older
from vmtailor.model.boots.boot import Boot
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Machine, with_machine
from vmtailor.model.syscalls import FailedCall


@dataclass(frozen=True)
class LoadedModule:
    """A kernel module in the guest: its name and where its sections lie, for turning addresses into lines."""

    name: str
    base: int
    bytes: int
    sections: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class ModuleRequest:
    """The container made the kernel ask for `request` (an alias, such as `net-pf-38`), and `module` answers to it.
    `path` is the module's in the kernel's tree, without ending: `crypto/af_alg`."""

    request: str
    module: str
    path: str


@dataclass(frozen=True)
class FileUse:
    """A path that was opened, and how often it worked. `written` when any opening could write."""

    path: str
    opened: int
    failed: int
    written: bool


# vmtailor/trace/1: with vmtailor/machine/1 and vmtailor/boot/1.
# vmtailor/trace/2: with vmtailor/machine/2 and vmtailor/boot/2; without `requests_cpu_s`.
# vmtailor/trace/3: with vmtailor/machine/2.
@dataclass(frozen=True)
class Trace:
    """Two boots of the baseline with the exercise. Files are named relative to the record's own folder:
    `coverage_file` is the plugin's output, `requests_file` the tracer's log. `machine` has loaded the modules of
    `modules_requested` before the container starts. `requests_cpu_s`: processor seconds of QEMU for the whole boot in
    which calls were seen, where they could be told."""

    SCHEMA: ClassVar[str] = "vmtailor/trace/4"
    OLDER: ClassVar[Older] = {"vmtailor/trace/3": with_machine}

    image_digest: str
    exercise_origin: str
    kernel_release: str
    cpu_model: str
    machine: Machine
    coverage_boot: Boot
    requests_boot: Boot
    requests_report: GuestReport
    phases: tuple[tuple[str, float], ...]  # phase of the container → second of the guest's clock at which it began
    coverage_file: str
    requests_file: str
    modules: tuple[LoadedModule, ...]
    failed_calls: tuple[FailedCall, ...]
    files: tuple[FileUse, ...]
    kernel_warnings: tuple[str, ...]
    modules_requested: tuple[ModuleRequest, ...] = ()
    requests_cpu_s: float | None = None
