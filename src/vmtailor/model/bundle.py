# SPDX-License-Identifier: Apache-2.0
"""The bundle: the folder that comes out. `bundle.json` in it says what each file is and how to start the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vmtailor.base.files.records import Older
from vmtailor.model.architecture import presumed_name
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import DiskFormat
from vmtailor.model.plan import RootFormat

RECORD = "bundle.json"
#: A copy of the init in the root file system: the addresses of a boot's milestones depend on its build.
INIT = "init"
#: The configuration of the baseline's kernel.
BASELINE_CONFIG = "baseline.config"
#: Calls that runs refused; part of the evidence since (`refit --observed`).
OBSERVED = "observed.json"
#: The description of a system with an init of its own, and its exercise.
SYSTEM, SYSTEM_EXERCISE = "system.json", "system-exercise.json"
#: The record of such a system on its own kernel, by which its machines are judged.
SYSTEM_RUN = "system-run.json"
#: The disk of such a system, by its format.
DISKS = {form: f"disk.{form}" for form in DiskFormat}
EXERCISE, PLAN, IMAGE = "exercise.json", "plan.json", "image.json"
#: The kept state of a system (`run --keep-state`), by its format: it is the user's, and no record lists it.
STATES = {form: f"state.{form}" for form in DiskFormat}
#: The record of the fit: all that was found.
RUN = "run.json"
#: The verdicts of other monitors since; no record lists it.
MONITORS = "monitors.json"
#: The folder of the trace in a bundle, with its record, the counts of its coverage, and the tracer's log.
TRACE, TRACE_RECORD, COVERAGE, REQUESTS = "trace", "trace.json", "coverage.counts", "requests.strace"
TRACED = f"{TRACE}/{TRACE_RECORD}"
#: The record of the trace of a system with an init of its own.
SYSTEM_TRACED = f"{TRACE}/system-trace.json"
LOGS = (f"{TRACE}/{COVERAGE}", f"{TRACE}/{REQUESTS}")
CONFIG, SYSTEM_MAP, SBOM, PAGE = "config", "System.map", "sbom.cdx.json", "report.html"
#: The records of a work folder: what the trace began with, the kernel that was built, and what was found of it.
WORK, WORK_KERNEL, BUILT = "work.json", "vmlinux", "kernel.json"
VERIFIED, MEASURED = "verification.json", "measured.json"
#: The files that the trace of a system writes, beside the record of what it began with.
SYSTEM_FILES = (SYSTEM, SYSTEM_EXERCISE, SYSTEM_RUN, SYSTEM_TRACED, f"{TRACE}/{REQUESTS}", *DISKS.values())
#: The stages in their order, and the files that each writes into a work folder.
STAGE_FILES: Mapping[str, tuple[str, ...]] = {
    "trace": (WORK, EXERCISE, TRACED, *LOGS),
    "plan": (PLAN,),
    "build": (BUILT, WORK_KERNEL, CONFIG, SYSTEM_MAP),
    "verify": (VERIFIED,),
    "measure": (MEASURED,),
}


def stage_of(name: str) -> str:
    """Return the stage that writes a file; empty for a file that no single stage writes."""
    if name in SYSTEM_FILES:
        return "trace"
    return next((stage for stage, names in STAGE_FILES.items() if name in names), "")


@dataclass(frozen=True)
class BundleFile:
    """A file of a bundle: its name in the folder (`vmlinux`, `trace/trace.json`), its length and its SHA-256 in hex."""

    name: str
    bytes: int
    sha256: str


def _undressed(old: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a record, without an image where it is of a system."""
    files = old.get("files")
    named = [one.get("name") for one in files if isinstance(one, dict)] if isinstance(files, list) else []
    return {**old, "image": None} if SYSTEM in named else old


# vmtailor/bundle/1: without `files`. It is not read any more: nothing says whether its kernel is the one that was
#     verified. The same fit, made again, takes all that is slow from the cache.
# vmtailor/bundle/2: `files`.
# vmtailor/bundle/3: a system has no `image`, which held its processor and ports.
# vmtailor/bundle/4: `patches`.
@dataclass(frozen=True)
class Bundle:
    """Files are named relative to the bundle's folder, so that it can be moved. `words` is the kernel command line
    without what depends on a start (root device and init stay in). `memory_bytes` is the default size of the machine.
    `privileged`: the container was fitted so, and is run so unless told otherwise. `image`: None for a system.
    `patches`: those of the kernel's source, each with its digest: such a kernel is unsafe.

    `files` has every file of the folder but this record, the page that `report` writes again whenever it is asked to,
    and the verdicts of other monitors, which name this record by its digest. Digests find accidents, and files that
    were exchanged without the record. They are no signature: who can write the record can write other digests into
    it."""

    SCHEMA: ClassVar[str] = "vmtailor/bundle/4"
    OLDER: ClassVar[Older] = {"vmtailor/bundle/2": _undressed, "vmtailor/bundle/3": dict}

    name: str
    image_reference: str
    image_digest: str
    image: ImageConfig | None
    kernel: str
    kernel_version: str
    kernel_config: str
    system_map: str
    root: str
    root_format: RootFormat
    machine: str
    cpus: int
    memory_bytes: int
    network: bool
    words: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]
    files: tuple[BundleFile, ...] = ()
    privileged: bool = False
    patches: tuple[tuple[str, str], ...] = ()
    architecture: str = field(default_factory=presumed_name)
