# SPDX-License-Identifier: Apache-2.0
"""The files of a bundle, written from the findings of a fit: those that every subject has, and its own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtailor.base.files import records
from vmtailor.base.files.digests import sha256_of
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.image import sbom
from vmtailor.drivers.image.image_packages import Inventory
from vmtailor.drivers.image.sbom import FilePart, KernelPart
from vmtailor.model.architecture import named
from vmtailor.model.bundle import BASELINE_CONFIG, CONFIG, PLAN, RUN, SBOM, SYSTEM_MAP, TRACE, Bundle
from vmtailor.model.fit_run import FitRun
from vmtailor.pipeline.subject import Findings, Fitted


@dataclass(frozen=True)
class OwnFiles:
    """The files that only one kind of subject has. `root`: the name of its root file system or disk; `saved`: name →
    record; `copied`, `traced`: name → file, in the bundle and among its traces; `listed`: names of those files that
    the bill of materials lists, with the file of each; `inventory`: the packages in the root."""

    root: str
    saved: Mapping[str, Any]
    copied: Mapping[str, Path]
    traced: Mapping[str, Path]
    listed: Mapping[str, Path]
    inventory: Inventory


def fill(folder: Path, run: FitRun, found: Findings[Any], fitted: Fitted, own: OwnFiles) -> None:
    """Write every file of a bundle, except its page and a copy of the user's disk, which depend on the bundle's
    place."""
    subject, plan = found.subject, fitted.plan
    kernel = Path(named(plan.architecture).kernel.file).name
    files = fitted.kernel
    built: dict[str, str | Path] = {kernel: files.image, CONFIG: files.config, SYSTEM_MAP: files.system_map}
    (folder / TRACE).mkdir()
    traced = {f"{TRACE}/{name}": path for name, path in own.traced.items()}
    for name, path in {**built, BASELINE_CONFIG: subject.kernel.config, **own.copied, **traced}.items():
        shutil.copyfile(path, folder / name)
    for name, record in {**own.saved, PLAN: plan, RUN: run}.items():
        records.save(record, folder / name)
    (folder / SBOM).write_bytes(_bill(run, found, fitted, own))
    bundle = Bundle(
        name=subject.options.out.name,
        image_reference=run.reference,
        image_digest=run.image_digest,
        image=run.image,
        kernel=kernel,
        kernel_version=subject.kernel.version,
        kernel_config=CONFIG,
        system_map=SYSTEM_MAP,
        root=own.root,
        root_format=plan.root_format,
        architecture=plan.architecture,
        machine=plan.machine,
        cpus=plan.cpus,
        memory_bytes=subject.options.memory_bytes,
        network=plan.network,
        words=fitted.machine.words,
        sources=run.sources,
        privileged=run.exercise.privileged,
    )
    seal(folder, bundle)


def _bill(run: FitRun, found: Findings[Any], fitted: Fitted, own: OwnFiles) -> bytes:
    kernel = KernelPart(
        version=found.subject.kernel.version,
        origin=found.subject.kernel.origin,
        sha256=fitted.kernel.sha256,
        config_sha256=sha256_of(Path(fitted.kernel.config)),
    )
    return sbom.document(
        name=Path(run.bundle).name,
        image_reference=run.reference,
        image_digest=run.image_digest,
        kernel=kernel,
        own=[FilePart(name, sha256_of(path)) for name, path in own.listed.items()],
        inventory=own.inventory,
    )
