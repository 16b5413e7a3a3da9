# SPDX-License-Identifier: Apache-2.0
"""Files of a work folder: their names, writing and reading.

A folder may be a stranger's, so only regular files are read, up to the size that a fit makes them. Files handed to
other programs by name (QEMU, the symbolizer) are copies in the cache, named by the digest of the content that was read.
Image, baseline kernel and source are only in the cache: the record names them by digest, since a path could lead
anywhere."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from vmtailor.base.cache.store import Store, digest, disk_full_is_a_host_error, writing
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import plain_files, records
from vmtailor.base.files.digests import SHA256
from vmtailor.drivers.host import bundle_values
from vmtailor.drivers.host.bundle_folder import DATA_BYTES, RECORD_BYTES, SavedFolder, is_bundle
from vmtailor.model.bundle import (
    BUILT,
    CONFIG,
    COVERAGE,
    EXERCISE,
    LOGS,
    MEASURED,
    PLAN,
    REQUESTS,
    STAGE_FILES,
    SYSTEM_MAP,
    TRACE,
    TRACED,
    VERIFIED,
    WORK,
    WORK_KERNEL,
    Bundle,
)
from vmtailor.model.fit_run import Side
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.model.trace import Trace
from vmtailor.model.trial import Verification
from vmtailor.pipeline.image_subject import ImageSubject
from vmtailor.stages import build

#: The paths of a baseline, as they lie in folders of the cache that drivers of distributions make, or the compiler.
_FOLDER = r"kernel-[a-z-]{1,40}/[0-9a-f]{40}"
PLACES = {
    "vmlinuz": rf"({_FOLDER})/vmlinuz",
    "config": rf"({_FOLDER})/config",
    "modules_dir": rf"({_FOLDER})/(?:modules|lib/modules/[A-Za-z0-9][A-Za-z0-9.+~_-]{{0,127}})",
    "system_map": rf"({_FOLDER})/System\.map",
    "debug_vmlinux": rf"({_FOLDER})/vmlinux",
    "debug_modules_dir": rf"({_FOLDER})(?:/debug)?",
}
_KEY = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Work:
    """The record that all stages begin with. `image.archive` names the image's folder in the cache, the paths of
    `kernel` are below the cache, and the source is named by its digest alone."""

    SCHEMA: ClassVar[str] = "vmtailor/work/1"

    image: Image
    kernel: KernelBaseline
    architecture: str
    machine: str
    memory_bytes: int
    cpus: int
    cpu_model: str
    root_format: RootFormat


@dataclass(frozen=True)
class WorkKernel:
    """The kernel in a work folder, its files by their names there. `plan_sha256`: the record it was built from."""

    SCHEMA: ClassVar[str] = "vmtailor/work-kernel/1"

    plan_sha256: str
    files: KernelFiles


@dataclass(frozen=True)
class BothSides:
    """Both machines measured. `baseline_of`: the version of vmtailor whose fit measured the baseline; empty where both
    were measured now."""

    SCHEMA: ClassVar[str] = "vmtailor/both-sides/1"

    baseline: Side
    tailored: Side
    baseline_of: str = ""


def is_work_folder(path: Path) -> bool:
    """Return whether a path is a work folder, whatever is missing in it. A bundle is none."""
    return path.is_dir() and not is_bundle(path) and any(os.path.lexists(path / name) for name in (WORK, TRACED))


class WorkFolder(SavedFolder):
    """One work folder. Its files are checked: UserInputError for content that no stage writes, and for missing files,
    with the stage that writes them."""

    def __init__(self, path: Path, store: Store | None = None) -> None:
        super().__init__(path.absolute(), store or Store())

    def require_writable(self) -> None:
        """Raise UserInputError, before the long work, when something else is at the folder's place."""
        path = self.path
        empty = not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))
        if not empty and not is_work_folder(path):
            raise UserInputError(
                f"{path} exists and is not a work folder", hint="name another folder with -o, or remove it"
            )
        if (path / TRACE).is_symlink():
            raise UserInputError(f"{path / TRACE} is a symbolic link", hint="remove it")
        if not path.parent.is_dir():
            raise UserInputError(f"the folder {path.parent} does not exist", hint="make it, or name another with -o")

    def save_trace(self, inputs: ImageSubject, record: Trace, folder: Path) -> None:
        """Write a trace's results and inputs. Files of later stages are removed: they were made from another trace."""
        self.require_writable()
        options, kernel, root = inputs.options, inputs.kernel, self.store.root
        places: dict[str, Any] = {name: str(Path(getattr(kernel, name)).relative_to(root)) for name in PLACES}
        source = replace(kernel, **places, source_dir="", source_digest=inputs.source.digest)
        work = Work(
            image=replace(inputs.image, archive=Path(inputs.image.archive).parent.name),
            kernel=source,
            architecture=options.architecture,
            machine=options.machine,
            memory_bytes=options.memory_bytes,
            cpus=options.cpus,
            cpu_model=options.cpu_model,
            root_format=options.root_format,
        )
        with disk_full_is_a_host_error(self.path.parent):
            self._forget("trace")
            (self.path / TRACE).mkdir(parents=True, exist_ok=True)
            for name, found in zip(LOGS, (record.coverage_file, record.requests_file), strict=True):
                self._copy(folder / found, name)
            named = replace(record, coverage_file=COVERAGE, requests_file=REQUESTS)
            records.save(named, self.path / TRACED)
            records.save(inputs.exercise, self.path / EXERCISE)
            records.save(work, self.path / WORK)

    def save_plan(self, made: Plan) -> None:
        self._save("plan", made, PLAN)

    def save_kernel(self, plan_sha256: str, files: KernelFiles) -> KernelFiles:
        """Write a kernel that was built from the plan of this digest. Return the files as they are here."""
        with disk_full_is_a_host_error(self.path):
            for source, name in ((files.image, WORK_KERNEL), (files.config, CONFIG), (files.system_map, SYSTEM_MAP)):
                self._copy(Path(source), name)
        named = replace(files, image=WORK_KERNEL, config=CONFIG, system_map=SYSTEM_MAP)
        self._save("build", WorkKernel(plan_sha256, named), BUILT)
        return build.located(files, self.path)

    def save_verification(self, found: Verification) -> None:
        records.save(found, self.path / VERIFIED)  # nothing is made of it

    def save_measured(self, found: BothSides) -> None:
        records.save(found, self.path / MEASURED)

    def work(self) -> Work:
        """Return the record that all stages begin with."""
        found, where = self.record(Work, WORK), self.path / WORK
        bundle_values.require_cpu_model(found.cpu_model, where)
        self._require_machine(found, where)
        at = {name: re.fullmatch(form, getattr(found.kernel, name)) for name, form in PLACES.items()}
        folders = [match[1] if match else "" for match in at.values()]
        # The image's three belong together: an initial RAM disk is named by the first two, and made of the third.
        if not all(folders) or len(set(folders[:3])) != 1 or not SHA256.fullmatch(found.kernel.source_digest):
            raise self._wrong(where, "the baseline's kernel is none that the cache holds")
        if not _KEY.fullmatch(found.image.archive):
            raise self._wrong(where, "the image is none that the cache holds")
        return found

    @cached_property
    def trace(self) -> Trace:
        """Return the trace's record."""
        found = super().trace
        if (found.coverage_file, found.requests_file) != (COVERAGE, REQUESTS):
            raise self._wrong(self.path / TRACED, "its files have other names")
        return found

    def trace_folder(self) -> Path:
        """Return a copy of the trace's files that nobody else can change."""
        parts = {Path(name).name: self.data(name) for name in LOGS}
        return self.store.get("work", digest(*parts.values()), writing(parts))

    def plan(self, work: Work) -> tuple[Plan, str]:
        """Return the plan, and the digest of its record. An edited plan, too, must be for the traced machine; whether
        its symbols are valid, only the kernel's source says (`work_stages.build`)."""
        where, data = self.path / PLAN, self.data(PLAN, RECORD_BYTES)
        found = records.from_bytes(Plan, data, str(where), hint="vmtailor plan writes it again")
        wanted = (work.architecture, work.machine, work.cpus, work.root_format, work.kernel.version)
        if (found.architecture, found.machine, found.cpus, found.root_format, found.kernel_version) != wanted:
            raise UserInputError(
                f"{where} is for another machine, format of the root or kernel version than {self.path / WORK}",
                hint="trace again with the options for that machine",
            )
        if len({name for name, _ in found.fragment}) != len(found.fragment):
            raise UserInputError(f"{where}: a symbol is set twice in its fragment", hint="leave one of them")
        self._require_machine(work, where, tuple(word.id for word in found.words))
        return found, hashlib.sha256(data).hexdigest()

    def kernel(self, plan_sha256: str) -> KernelFiles:
        """Return the kernel that was built from the plan of this digest: copies that nobody else can change."""
        found, where = self.record(WorkKernel, BUILT), self.path / BUILT
        if found.plan_sha256 != plan_sha256:
            raise UserInputError(
                f"{self.path / PLAN} was changed after {WORK_KERNEL} was built from it",
                hint=f"vmtailor build {self.path}",
            )
        parts = {name: self.data(name) for name in (WORK_KERNEL, CONFIG, SYSTEM_MAP)}
        kernel = parts[WORK_KERNEL]
        if hashlib.sha256(kernel).hexdigest() != found.files.sha256 or len(kernel) != found.files.image_bytes:
            raise UserInputError(
                f"{self.path / WORK_KERNEL} is not the kernel that {where} is about", hint=f"vmtailor build {self.path}"
            )

        at = self.store.get("work", digest(*parts.values()), writing(parts))
        return replace(
            found.files, image=str(at / WORK_KERNEL), config=str(at / CONFIG), system_map=str(at / SYSTEM_MAP)
        )

    def _require_machine(self, work: Work, where: Path, words: tuple[str, ...] = ()) -> None:
        """Raise UserInputError unless a fit could have made this machine."""
        asked = Bundle(
            name="",
            image_reference=work.image.reference,
            image_digest=work.image.digest,
            image=work.image.config,
            kernel=WORK_KERNEL,
            kernel_version=work.kernel.version,
            kernel_config=CONFIG,
            system_map=SYSTEM_MAP,
            root="root",
            root_format=work.root_format,
            architecture=work.architecture,
            machine=work.machine,
            cpus=work.cpus,
            memory_bytes=work.memory_bytes,
            network=False,
            words=words,
            sources=(),
        )
        bundle_values.require_machine(asked, where)

    def lists(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def hint(self, name: str) -> str:
        stage = next(stage for stage, names in STAGE_FILES.items() if name in names)
        return f"vmtailor trace IMAGE -o {self.path}" if stage == "trace" else f"vmtailor {stage} {self.path}"

    def data(self, name: str, most_bytes: int = DATA_BYTES) -> bytes:
        if not self.lists(name):
            raise self.lacks(name)
        return plain_files.read(self.path, name, most_bytes)

    def _save(self, stage: str, record: Any, name: str) -> None:
        self._forget(stage)
        records.save(record, self.path / name)

    def _forget(self, stage: str) -> None:
        """Remove what later stages wrote."""
        stages = list(STAGE_FILES)
        for later in stages[stages.index(stage) + 1 :]:
            for name in STAGE_FILES[later]:
                (self.path / name).unlink(missing_ok=True)

    def _copy(self, source: Path, name: str) -> None:
        """Copy a file to a name of the folder: by a rename, so that no link is followed that was there."""
        made = self.path / f"{name}.new"
        made.unlink(missing_ok=True)
        shutil.copyfile(source, made)
        made.chmod(0o644)
        made.replace(self.path / name)

    def _wrong(self, where: Path, what: str) -> UserInputError:
        return UserInputError(f"{where}: {what}", hint="vmtailor trace IMAGE -o FOLDER writes it")
