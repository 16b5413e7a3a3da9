# SPDX-License-Identifier: Apache-2.0
"""The bundle of a system: every file of it but the disk, which is copied from the user's when the bundle is placed."""

from __future__ import annotations

import shutil
from pathlib import Path

from vmtailor.base.files import records
from vmtailor.base.files.digests import sha256_of
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.image import image_packages, sbom
from vmtailor.drivers.image.sbom import KernelPart
from vmtailor.model.architecture import named
from vmtailor.model.bundle import (
    BASELINE_CONFIG,
    CONFIG,
    PLAN,
    RUN,
    SBOM,
    SYSTEM,
    SYSTEM_EXERCISE,
    SYSTEM_MAP,
    SYSTEM_RUN,
    TRACE,
    Bundle,
)
from vmtailor.model.fit import FitRun
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Disk
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline.fitting import Fitted
from vmtailor.pipeline.systems.fitting import SystemFindings
from vmtailor.pipeline.systems.inputs import SystemInputs
from vmtailor.stages import system_trace


def disk_name(disk: Disk) -> str:
    """What the disk is called in the bundle."""
    return f"disk.{disk.format}"


def image_of(given: SystemInputs) -> ImageConfig:
    """What records of images have of a system: its processor, and the ports that its exercise asks."""
    ports = tuple(Port(number) for number in given.exercise.ports)
    return ImageConfig(architecture=given.row.image, exposed_ports=ports)


def fill(folder: Path, run: FitRun, found: SystemFindings, fitted: Fitted) -> None:
    """Write every file but the disk and the report, which depend on where the bundle will be."""
    given, kernel = found.inputs, Path(named(fitted.plan.architecture).kernel.file).name
    shutil.copyfile(fitted.kernel.image, folder / kernel)
    shutil.copyfile(fitted.kernel.config, folder / CONFIG)
    shutil.copyfile(fitted.kernel.system_map, folder / SYSTEM_MAP)
    shutil.copyfile(given.kernel.config, folder / BASELINE_CONFIG)
    bundle = Bundle(
        name=given.options.out.name,
        image_reference=given.subject.reference,
        image_digest=f"sha256:{given.identity}",
        image=image_of(given),
        kernel=kernel,
        kernel_version=given.kernel.version,
        kernel_config=CONFIG,
        system_map=SYSTEM_MAP,
        root=disk_name(fitted.machine.disks[0]),
        root_format=RootFormat.EXT4,
        architecture=fitted.plan.architecture,
        machine=fitted.plan.machine,
        cpus=fitted.plan.cpus,
        memory_bytes=given.options.memory_bytes,
        network=fitted.plan.network,
        words=fitted.machine.words,
        sources=run.sources,
    )
    records.save(given.subject, folder / SYSTEM)
    records.save(given.exercise, folder / SYSTEM_EXERCISE)
    records.save(found.before, folder / SYSTEM_RUN)
    records.save(fitted.plan, folder / PLAN)
    records.save(run, folder / RUN)
    traced = folder / TRACE
    traced.mkdir()
    for name in (system_trace.RECORD, found.trace.requests_file):
        shutil.copyfile(found.folder / name, traced / name)
    (folder / SBOM).write_bytes(_bill(run, given, fitted))
    seal(folder, bundle)


def _bill(run: FitRun, given: SystemInputs, fitted: Fitted) -> bytes:
    kernel = KernelPart(
        version=given.kernel.version,
        origin=given.kernel.origin,
        sha256=fitted.kernel.sha256,
        config_sha256=sha256_of(Path(fitted.kernel.config)),
    )
    os = given.subject.os
    return sbom.document(
        name=Path(run.bundle).name,
        image_reference=given.subject.reference,
        image_digest=f"sha256:{given.identity}",
        kernel=kernel,
        own=[],
        inventory=image_packages.inventory_of(given.found.root.text, os.id, os.version_id),
    )
