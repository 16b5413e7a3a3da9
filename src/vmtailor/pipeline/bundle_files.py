# SPDX-License-Identifier: Apache-2.0
"""The files of a bundle, written from the findings of a fit, and the place where they go. An interrupted run leaves the
old bundle or the new one, never half of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmtailor.base.disk_full import disk_full_is_a_host_error, no_space
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import durable, records
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.files.holes import copy_with_holes, has_room
from vmtailor.base.progress import step
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.image import sbom
from vmtailor.drivers.image.image_packages import Inventory
from vmtailor.drivers.image.sbom import FilePart, KernelPart
from vmtailor.drivers.kernel import load_profile
from vmtailor.model.architecture import named
from vmtailor.model.bundle import (
    BASELINE_CONFIG,
    CONFIG,
    PAGE,
    PLAN,
    RECORD,
    RUN,
    SBOM,
    STATES,
    SYSTEM_MAP,
    TRACE,
    Bundle,
)
from vmtailor.model.fit_run import FitRun
from vmtailor.pipeline.subject import Findings, Fitted, UsersDisk
from vmtailor.stages import report


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
    profile = load_profile.digest_of(plan.flags)
    if profile is not None:
        built[load_profile.FILE] = load_profile.kept(profile, subject.store)
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
        patches=plan.patches,
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


def require_writable(out: Path) -> None:
    """Fail before the long work when the bundle could not be written. Something else is at its place, or a system's
    bundle that keeps the system's state, which no fit makes again."""
    if out.exists() and not (out.is_dir() and ((out / RECORD).is_file() or not any(out.iterdir()))):
        raise UserInputError(f"{out} exists and is not a bundle", hint="name another folder with -o, or remove it")
    kept = next((name for name in STATES.values() if os.path.lexists(out / name)), "")
    if kept:
        raise UserInputError(
            f"{out} keeps what its system wrote ({kept}), and a new fit would throw it away",
            hint="name another folder with -o; or move that file away, or remove it",
        )
    parent = out.absolute().parent
    if not parent.is_dir():
        raise UserInputError(f"the folder {parent} does not exist", hint="make it, or name another with -o")


def _require_same(disk: UsersDisk, sealed: Bundle) -> None:
    """Require that the disk is the one that was fitted: a running system may have written to it meanwhile."""
    (copied,) = (one for one in sealed.files if one.name == disk.name)
    if copied.sha256 != disk.sha256:
        raise UserInputError(
            f"{disk.file} changed while it was fitted: the proof does not apply to its content now",
            hint="shut down what writes to it (a running machine, a download), and fit it again",
        )


def require_room(out: Path, disk: Path) -> None:
    """Fail before the long work when the bundle's copy of a disk would not fit. Raises HostError."""
    parent = out.absolute().parent
    with disk_full_is_a_host_error(parent):
        if not has_room(disk, parent):
            raise no_space(f"in {parent} for the bundle's copy of {disk}", elsewhere="name a folder elsewhere with -o")


def place(made: Path, out: Path, command: str, disk: UsersDisk | None = None) -> FitRun:
    """Copy a finished bundle to the requested place. Its record names this place and this command.

    An older bundle there is replaced at once, or, if something goes wrong, not at all. Raises UserInputError when the
    disk has changed since it was fitted."""
    out = out.absolute()
    with disk_full_is_a_host_error(out.parent):
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
        try:
            # Contents alone: in the cache nobody but its owner may read them.
            shutil.copytree(made, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
            if disk is not None:
                with step("copy the disk"):
                    copy_with_holes(disk.file, folder / disk.name)
            for inner in folder.rglob("*"):
                if inner.is_dir():
                    inner.chmod(0o755)
            run = replace(run_in(folder), bundle=str(out), command=command)
            records.save(run, folder / RUN)
            record = replace(records.load(Bundle, folder / RECORD), name=out.name)
            report.write_page(run, folder / PAGE, record.words)
            _for_the_owner_alone_to_change(folder)
            sealed = seal(folder, record)
            if disk is not None:
                _require_same(disk, sealed)
            require_writable(out)  # again: it took long to get here
            if out.exists():
                durable.exchange(folder, out)
                if folder.is_symlink():  # a link was there, and not its target
                    folder.unlink()
            else:
                durable.place(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return run


def run_in(folder: Path) -> FitRun:
    """Read the record of a finished fit in the cache."""
    return records.load(FitRun, folder / RUN)


def _for_the_owner_alone_to_change(folder: Path) -> None:
    """Whatever the umask is: others may read a bundle, but files that others can write are copied before each use."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
