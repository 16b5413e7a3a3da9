# SPDX-License-Identifier: Apache-2.0
"""A bundle's folder as input that somebody else may have made: its record, and its files once they are checked against
the record.

QEMU and the compiler open files by name, some time after this check. So a name is handed on only if nobody but the user
can put another file under it, as in a bundle after a fit or after unpacking. If others can write there (a shared
folder, files unpacked with somebody else's ownership), the checked bytes are copied into the cache under their digest,
and the copy is used. Files that this program reads itself are read at once from the checked descriptor."""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config, plain_files, portable, records
from vmtailor.base.files.digests import sha256_of_rest
from vmtailor.base.natives import mark_addresses
from vmtailor.base.text import plain
from vmtailor.drivers.host import bundle_values, digest_cache
from vmtailor.drivers.image.allowance import Room
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import (
    BASELINE_CONFIG,
    EXERCISE,
    IMAGE,
    INIT,
    MONITORS,
    PAGE,
    RECORD,
    SYSTEM,
    SYSTEM_EXERCISE,
    SYSTEM_RUN,
    SYSTEM_TRACED,
    TRACE,
    TRACED,
    Bundle,
    BundleFile,
    stage_of,
)
from vmtailor.model.exercise import Exercise
from vmtailor.model.image import Image
from vmtailor.model.machine import Disk, DiskFormat, DiskMode
from vmtailor.model.systems.system import System
from vmtailor.model.trace import Trace
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.model.watched.system_trace import SystemTrace

T = TypeVar("T")

#: Longest record that is read. A long trace's is a few MiB.
RECORD_BYTES = 256 << 20
#: Longest log of a trace, and longest of all other files that are read whole.
DATA_BYTES = 1 << 30
#: Longest table of symbols and configuration that are read, and longest init. Tables of large kernels have 10 MiB.
MOST_TABLE_BYTES, MOST_INIT_BYTES = 64 << 20, 4 << 20
#: Lines as nm writes them; what of them becomes a span goes into the plugin's configuration.
_TABLE = re.compile(rb"(?:[0-9a-f]{16} [A-Za-z?] [!-~]{1,512}\n)*")
_AGAIN = "get the bundle again, or fit the image again"
_CHUNK = 1 << 20


class SavedFolder(ABC):
    """A folder of files that a fit has left there, all of them (a bundle) or only some (a work folder). Somebody else
    may have made it: what is read is checked, and UserInputError says what is wrong with it, or missing."""

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self.store = store

    @abstractmethod
    def data(self, name: str, most_bytes: int = DATA_BYTES) -> bytes:
        """Return the content of a file, checked in one go."""

    @abstractmethod
    def lists(self, name: str) -> bool:
        """Return whether the folder has a file."""

    @abstractmethod
    def hint(self, name: str) -> str:
        """Return the command that gets a missing or damaged file back."""

    @abstractmethod
    def digest(self, name: str) -> str:
        """Return the SHA-256, in hex, of a file. Raises UserInputError for a file that is not what a record says."""

    @property
    @abstractmethod
    def disk_name(self) -> str:
        """Return the name of the first disk."""

    @abstractmethod
    def changed(self, name: str) -> UserInputError:
        """Return the error for a file that is not what it was."""

    def file(self, name: str) -> Path:
        """Return a path under which a file can be opened that nobody else changes. Raises UserInputError for a file
        that is not what a record says."""
        sha256 = self.digest(name)
        return self.path / name if plain_files.ours_alone(self.path, name) else self._copy(name, sha256)

    def _copy(self, name: str, sha256: str) -> Path:
        def fill(folder: Path) -> None:
            total = hashlib.sha256()
            with plain_files.opened(self.path, name) as source, (folder / "file").open("wb") as target:
                room = Room(folder)  # a file of holes is small until it is copied
                while part := source.read(_CHUNK):
                    room.take(len(part))
                    total.update(part)
                    target.write(part)
            if total.hexdigest() != sha256:
                raise self.changed(name)

        return self.store.get("bundle-files", sha256, fill) / "file"

    @property
    def is_system(self) -> bool:
        """Return whether it is of a system with an init of its own."""
        return self.lists(SYSTEM)

    @cached_property
    def root(self) -> Disk:
        """Return the first disk: a container's root file system, or a system's disk, of which what is written is thrown
        away."""
        path = str(self.file(self.disk_name))
        if not self.is_system:
            return Disk(path)
        form = DiskFormat.QCOW2 if self.disk_name.endswith(f".{DiskFormat.QCOW2}") else DiskFormat.RAW
        return Disk(path, form, DiskMode.OVERLAID)

    def lacks(self, name: str) -> UserInputError:
        """Return the error for a file that is not there."""
        wrote = stage_of(name) or "fit"
        where = f"the record of {self.path} lists" if is_bundle(self.path) else f"{self.path} has"
        return UserInputError(f"{where} no {plain(name)}: vmtailor {wrote} writes it", hint=self.hint(name))

    def record(self, kind: type[T], name: str, most_bytes: int = RECORD_BYTES) -> T:
        """Return a record of the folder."""
        return records.from_bytes(kind, self.data(name, most_bytes), str(self.path / name), hint=self.hint(name))

    @cached_property
    def exercise(self) -> Exercise:
        """Return the exercise of a container. Raises UserInputError for one that no file could say."""
        found = self.record(Exercise, EXERCISE)
        bundle_values.require_exercise(found, self.path / EXERCISE)
        return found

    @cached_property
    def trace(self) -> Trace:
        """Return the record of a container's trace. Raises UserInputError for what no trace says."""
        found = self.record(Trace, TRACED)
        bundle_values.require_trace(found, self.path / TRACED)
        return portable.within(found, self.store.root)

    @cached_property
    def system(self) -> System:
        """Return the system. Raises UserInputError for a record that names no place of a root."""
        found = self.record(System, SYSTEM)
        path = found.init.path
        disk = found.disk
        placed = disk is not None and 0 <= disk.root <= 256 and disk.root_type in ("ext4", "xfs")
        if not placed or not path.startswith("/") or "\0" in path or len(path) > 4095:
            raise UserInputError(f"{self.path / SYSTEM} does not say where the system is", hint="fit the system again")
        return found

    @cached_property
    def system_exercise(self) -> SystemExercise:
        """Return the exercise of a system. Raises UserInputError for one that no file could say."""
        found = self.record(SystemExercise, SYSTEM_EXERCISE)
        bundle_values.require_system_exercise(found, self.path / SYSTEM_EXERCISE)
        return found

    @cached_property
    def system_run(self) -> SystemRun:
        """Return the run of the exercise on the system's own kernel. Raises UserInputError for what no boot takes."""
        found = self.record(SystemRun, SYSTEM_RUN)
        bundle_values.require_cpu_s(found.boot.cpu_s, self.path / SYSTEM_RUN)
        return found

    @cached_property
    def system_trace(self) -> SystemTrace:
        """Return the record of a system's trace. Raises UserInputError for what no trace says."""
        found = self.record(SystemTrace, SYSTEM_TRACED)
        bundle_values.require_system_trace(found, self.path / SYSTEM_TRACED)
        return found

    def requests(self) -> bytes:
        """Return the tracer's log of a container."""
        return self.data(f"{TRACE}/{self.trace.requests_file}")


class BundleFolder(SavedFolder):
    """A bundle whose record was read and found sound. Each file is checked when it is first asked for, and is the same
    one from then on. `record_bytes`: its record as it was read."""

    def __init__(self, path: Path, bundle: Bundle, store: Store, record_bytes: bytes = b"") -> None:
        super().__init__(path, store)
        self.bundle = bundle
        self.record_bytes = record_bytes

    @cached_property
    def record_sha256(self) -> str:
        """Return the SHA-256, in hex, of the record's bytes."""
        return hashlib.sha256(self.record_bytes).hexdigest()

    def listed(self, name: str) -> BundleFile:
        """Return what the record says of a file."""
        for one in self.bundle.files:
            if one.name == name:
                return one
        raise self.lacks(name)

    def lists(self, name: str) -> bool:
        return any(one.name == name for one in self.bundle.files)

    def hint(self, name: str) -> str:
        return _AGAIN

    def data(self, name: str, most_bytes: int = DATA_BYTES) -> bytes:
        wanted = self.listed(name)
        found = plain_files.read(self.path, name, most_bytes)
        if hashlib.sha256(found).hexdigest() != wanted.sha256:
            raise self.changed(name)
        return found

    def digest(self, name: str) -> str:
        wanted = self.listed(name)
        with plain_files.opened(self.path, name) as file:
            same_size = os.fstat(file.fileno()).st_size == wanted.bytes
            if not same_size or digest_cache.sha256_of(file, self.store) != wanted.sha256:
                raise self.changed(name)
        return wanted.sha256

    @property
    def disk_name(self) -> str:
        return self.bundle.root

    def changed(self, name: str) -> UserInputError:
        return UserInputError(
            f"{self.path / name} is not the file that the bundle was made with: its content differs", hint=_AGAIN
        )

    @property
    def image(self) -> Image:
        """Return the image of a container's bundle, without its archive."""
        bundle = self.bundle
        assert bundle.image is not None
        return Image(
            reference=bundle.image_reference,
            digest=bundle.image_digest,
            config=bundle.image,
            archive="",
            archive_sha256="",
            entries=0,
            unpacked_bytes=0,
        )

    @cached_property
    def kernel(self) -> Path:
        return self.file(self.bundle.kernel)

    @cached_property
    def symbols(self) -> bytes:
        """Return the kernel's table of symbols. Raises UserInputError when it is none."""
        found = self.data(self.bundle.system_map, MOST_TABLE_BYTES)
        if not _TABLE.fullmatch(found):
            raise UserInputError(
                f"{self.path / self.bundle.system_map} is not a table of symbols", hint="fit the image again"
            )
        return found

    @cached_property
    def config(self) -> dict[str, str]:
        """Return the kernel's configuration, name → value. Raises UserInputError for a file that kconfig would not
        write."""
        return self._config(self.bundle.kernel_config)

    @cached_property
    def baseline_config(self) -> dict[str, str] | None:
        """Return the configuration that the bundle was made from; None in older bundles."""
        return self._config(BASELINE_CONFIG) if self.lists(BASELINE_CONFIG) else None

    def _config(self, name: str) -> dict[str, str]:
        return dot_config.parse_strictly(self.data(name, MOST_TABLE_BYTES), str(self.path / name))

    @cached_property
    def init(self) -> bytes:
        """Return the init in the root file system; empty when the bundle does not say."""
        return self.data(INIT, MOST_INIT_BYTES) if self.lists(INIT) else b""

    @property
    def is_fitted(self) -> bool:
        """Return whether a fit made it; else it is an image on a family kernel, for which nothing is proven."""
        return self.lists(EXERCISE) or not self.lists(IMAGE)

    @property
    def may_be_pid_one(self) -> bool:
        """Return whether that init can make the entry point PID 1 (`Run.pid_one`); those of versions before cannot."""
        return PID_ONE in self.init

    @property
    def is_tuned(self) -> bool:
        """Return whether that init writes settings of the kernel (VT_SET); those of versions before cannot."""
        return b"\0VT_SET\0" in self.init

    @cached_property
    def init_marks(self) -> dict[str, int] | None:
        """Return the places where that init marks the milestones of a boot; None when the bundle has none."""
        return mark_addresses(self.init) if self.lists(INIT) else None


#: A word in an init that can make the entry point PID 1.
PID_ONE = b"\0pid-one\0"


def is_bundle(folder: Path) -> bool:
    """Return whether a path is a bundle's folder, whatever is wrong with it."""
    return os.path.lexists(folder / RECORD)


def no_bundle(folder: Path) -> UserInputError:
    """Return the error for a path that is not a bundle; for an image or a disk it has the command that fits it."""
    from vmtailor.drivers.image import image_reference  # what starts a bundle does without it

    return image_reference.instead_of_bundle(folder) or UserInputError(
        f"{folder} is not a bundle", hint="vmtailor fit IMAGE -o FOLDER makes one"
    )


def is_system(folder: Path) -> bool:
    """Return whether a path is the bundle of a system with an init of its own. Raises UserInputError for a damaged
    bundle."""
    return is_bundle(folder) and load(folder).is_system


def load(folder: Path, store: Store | None = None) -> BundleFolder:
    """Read a bundle's record. Raises UserInputError when it is missing, damaged, or of another version. It also raises
    it for a machine that no fit makes, for files that are not the bundle's own, and when kernel or root are missing."""
    if not is_bundle(folder):
        raise no_bundle(folder)
    data = plain_files.read(folder, RECORD, RECORD_BYTES)
    bundle = records.from_bytes(Bundle, data, str(folder / RECORD), hint="fit the image again")
    bundle_values.require_machine(bundle, folder / RECORD)
    found = BundleFolder(folder.absolute(), bundle, store or Store(), data)
    _require(found, bundle.kernel, bundle.root)
    if (bundle.image is None) is not found.is_system:
        raise UserInputError(f"{folder / RECORD} does not say whether it is of an image or a system", hint=_AGAIN)
    return found


def load_container(folder: Path, store: Store | None = None) -> BundleFolder:
    """Read a container's bundle, as `load` and `container_of` do."""
    return container_of(load(folder, store))


def container_of(found: BundleFolder) -> BundleFolder:
    """Return a container's bundle for what boots or plans it again: with its exercise, and the names of all that it is
    booted and counted with. Raises UserInputError for a system's: what asks for a container cannot do that yet."""
    if found.is_system:
        raise UserInputError(
            f"{found.path} is the bundle of a system with an init of its own; this command takes those of containers",
            hint=f"vmtailor run {found.path} starts it; verify, measure, refit, explain and report take it, too",
        )
    _require(found, found.bundle.system_map, found.bundle.kernel_config, EXERCISE)
    _ = found.exercise
    return found


def _require(found: BundleFolder, *names: str) -> None:
    for name in names:
        with plain_files.opened(found.path, name):
            found.listed(name)


def seal(folder: Path, record: Bundle) -> Bundle:
    """Write a bundle's record with the digests of all files that are there now, and return it."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        # The page is a view that `report` writes again, and each verification writes the verdicts again.
        if path.is_file() and name not in (RECORD, PAGE, MONITORS):
            with plain_files.opened(folder, name) as file:
                digest = sha256_of_rest(file)
                found.append(BundleFile(name, os.fstat(file.fileno()).st_size, digest))
    sealed = replace(record, files=tuple(found))
    records.save(sealed, folder / RECORD)
    return sealed
