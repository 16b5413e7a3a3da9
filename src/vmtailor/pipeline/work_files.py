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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from vmtailor.base.cache.store import Store, digest, writing
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import durable, plain_files, records
from vmtailor.base.files.digests import SHA256
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.base.files.records import Older
from vmtailor.base.progress import step
from vmtailor.drivers.host import bundle_values, digest_cache
from vmtailor.drivers.host.bundle_folder import DATA_BYTES, RECORD_BYTES, SavedFolder, is_bundle
from vmtailor.model.bundle import (
    BUILT,
    CONFIG,
    COVERAGE,
    DISKS,
    MEASURED,
    PLAN,
    REQUESTS,
    STAGE_FILES,
    SYSTEM_FILES,
    SYSTEM_MAP,
    SYSTEM_TRACED,
    TRACE,
    TRACED,
    VERIFIED,
    WORK,
    WORK_KERNEL,
    stage_of,
)
from vmtailor.model.fit_run import Side
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.model.trace import Trace
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_trace import SystemTrace
from vmtailor.pipeline.subject import Subject, WorkFiles
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


# vmtailor/work/1: of images alone.
@dataclass(frozen=True)
class Work:
    """The record that all stages begin with. `image.archive` names the image's folder in the cache, the paths of
    `kernel` are below the cache, and the source is named by its digest alone. `image`: None for a system, whose records
    stand beside this one. `disk`: its disk, a file of the folder, with that file's digest."""

    SCHEMA: ClassVar[str] = "vmtailor/work/2"
    OLDER: ClassVar[Older] = {"vmtailor/work/1": lambda document: document}

    image: Image | None
    kernel: KernelBaseline
    architecture: str
    machine: str
    memory_bytes: int
    cpus: int
    cpu_model: str
    root_format: RootFormat
    disk: str = ""
    disk_sha256: str = ""


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

    def save_trace(self, subject: Subject[Any], files: WorkFiles) -> None:
        """Write what a trace found, with what it began with. What later stages wrote goes: it was made of another.
        Raises UserInputError for a disk that is another one than was traced."""
        self.require_writable()
        options, kernel, root, image, disk = subject.options, files.kernel, self.store.root, files.image, files.disk
        places: dict[str, Any] = {name: str(Path(getattr(kernel, name)).relative_to(root)) for name in PLACES}
        work = Work(
            image=replace(image, archive=Path(image.archive).parent.name) if image is not None else None,
            kernel=replace(kernel, **places, source_dir="", source_digest=subject.source.digest),
            architecture=options.architecture,
            machine=options.machine,
            memory_bytes=options.memory_bytes,
            cpus=options.cpus,
            cpu_model=options.cpu_model,
            root_format=options.root_format if disk is None else RootFormat.EXT4,
            disk=disk.name if disk is not None else "",
            disk_sha256=disk.sha256 if disk is not None else "",
        )
        with disk_full_is_a_host_error(self.path.parent):
            self._forget("trace")
            for name in {*STAGE_FILES["trace"], *SYSTEM_FILES} - {*files.saved, *files.copied}:
                (self.path / name).unlink(missing_ok=True)
            (self.path / TRACE).mkdir(parents=True, exist_ok=True)
            for name, found in files.copied.items():
                self._put(found, name)
            for name, record in files.saved.items():
                records.save(record, self.path / name)
            if disk is not None:
                with step("copy the disk"):
                    self._put(disk.file, disk.name, copy_with_holes)
            records.save(work, self.path / WORK)
        if disk is not None:
            self.digest(disk.name)

    def save_plan(self, made: Plan) -> None:
        self._save("plan", made, PLAN)

    def save_kernel(self, plan_sha256: str, files: KernelFiles) -> KernelFiles:
        """Write a kernel that was built from the plan of this digest. Return the files as they are here."""
        with disk_full_is_a_host_error(self.path):
            for source, name in ((files.image, WORK_KERNEL), (files.config, CONFIG), (files.system_map, SYSTEM_MAP)):
                self._put(Path(source), name)
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
        if found.image is not None and not _KEY.fullmatch(found.image.archive):
            raise self._wrong(where, "the image is none that the cache holds")
        if found.image is None and not (found.disk in DISKS.values() and SHA256.fullmatch(found.disk_sha256)):
            raise self._wrong(where, "it names neither an image nor a disk")
        return found

    @property
    def is_system(self) -> bool:
        return self.work().image is None

    @property
    def disk_name(self) -> str:
        return self.work().disk

    def digest(self, name: str) -> str:
        if not self.lists(name):
            raise self.lacks(name)
        with plain_files.opened(self.path, name) as file:
            found = digest_cache.sha256_of(file, self.store)
        if name in DISKS.values() and found != self.work().disk_sha256:
            raise self.changed(name)
        return found

    def changed(self, name: str) -> UserInputError:
        return UserInputError(f"{self.path / name} is not the file that was traced", hint=self.hint(name))

    @cached_property
    def trace(self) -> Trace:
        """Return the trace's record."""
        found = super().trace
        if (found.coverage_file, found.requests_file) != (COVERAGE, REQUESTS):
            raise self._wrong(self.path / TRACED, "its files have other names")
        return found

    @cached_property
    def system_trace(self) -> SystemTrace:
        """Return the record of a system's trace."""
        found = super().system_trace
        if found.requests_file != REQUESTS:
            raise self._wrong(self.path / SYSTEM_TRACED, "its files have other names")
        return found

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
        bundle_values.require_hardware(
            where,
            architecture=work.architecture,
            board=work.machine,
            cpus=work.cpus,
            memory_bytes=work.memory_bytes,
            kernel_version=work.kernel.version,
            words=words,
            image=work.image.config if work.image is not None else None,
        )

    def lists(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def hint(self, name: str) -> str:
        stage = stage_of(name)
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

    def _put(self, source: Path, name: str, copy: Callable[[Path, Path], object] = shutil.copyfile) -> None:
        """Copy a file to a name of the folder: by a rename, so that no link is followed that was there."""
        made = self.path / f"{name}.new"
        made.unlink(missing_ok=True)
        copy(source, made)
        made.chmod(0o644)
        durable.place(made, self.path / name)

    def _wrong(self, where: Path, what: str) -> UserInputError:
        return UserInputError(f"{where}: {what}", hint="vmtailor trace IMAGE -o FOLDER writes it")
