# SPDX-License-Identifier: Apache-2.0
"""A bundle's folder as input that somebody else may have made: its record, and its files once they are what the record
says.

Between this check and the use lies time: QEMU and the compiler open files by their names. So a name is handed on only
where nobody but the user can put another file under it, which is how bundles lie after a fit and after unpacking.
Where others can write (a shared folder, files unpacked with somebody else's ownership), the bytes that were checked are
kept in the cache under their digest, and it is that copy which is used. What is read by this program itself is read
from the descriptor that was checked, in one go.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import plain_files, records
from vmtailor.base.files.digests import sha256_of_rest
from vmtailor.base.text import plain
from vmtailor.drivers.host import bundle_values, digest_cache
from vmtailor.model.bundle import EXERCISE, RECORD, SYSTEM, Bundle, BundleFile
from vmtailor.model.exercise import Exercise

#: Longest record that is read. A long trace's is a few MiB.
RECORD_BYTES = 256 << 20
#: Longest log of a trace, and longest of all other files that are read whole.
DATA_BYTES = 1 << 30
_AGAIN = "get the bundle again, or fit the image again"
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class BundleFolder:
    """A bundle whose record was read and found sound. Each file is checked when it is asked for."""

    path: Path
    bundle: Bundle
    store: Store

    def listed(self, name: str) -> BundleFile:
        """What the record says of a file. Raises UserInputError when it says nothing."""
        for one in self.bundle.files:
            if one.name == name:
                return one
        raise UserInputError(
            f"the record of the bundle {self.path} says nothing of its file {plain(name)}", hint=_AGAIN
        )

    def lists(self, name: str) -> bool:
        return any(one.name == name for one in self.bundle.files)

    def data(self, name: str, most_bytes: int = DATA_BYTES) -> bytes:
        """The content of a file. Raises UserInputError when it is not what the record says."""
        wanted = self.listed(name)
        found = plain_files.read(self.path, name, most_bytes)
        if hashlib.sha256(found).hexdigest() != wanted.sha256:
            raise self._changed(name)
        return found

    def file(self, name: str) -> Path:
        """A path under which a file can be opened that is what the record says; `data` says what is raised."""
        wanted = self.listed(name)
        with plain_files.opened(self.path, name) as file:
            if os.fstat(file.fileno()).st_size != wanted.bytes:
                raise self._changed(name)
            if digest_cache.sha256_of(file, self.store) != wanted.sha256:
                raise self._changed(name)
        return self.path / name if plain_files.ours_alone(self.path, name) else self._copy(name, wanted)

    def _copy(self, name: str, wanted: BundleFile) -> Path:
        def fill(folder: Path) -> None:
            total = hashlib.sha256()
            with plain_files.opened(self.path, name) as source, (folder / "file").open("wb") as target:
                while part := source.read(_CHUNK):
                    total.update(part)
                    target.write(part)
            if total.hexdigest() != wanted.sha256:
                raise self._changed(name)

        return self.store.get("bundle-files", wanted.sha256, fill) / "file"

    def _changed(self, name: str) -> UserInputError:
        return UserInputError(
            f"{self.path / name} is not the file that the bundle was made with: its content is another one", hint=_AGAIN
        )

    def exercise(self) -> Exercise:
        """The exercise that the bundle was fitted with. Raises UserInputError for one that no file could say."""
        where = self.path / EXERCISE
        found = records.from_bytes(Exercise, self.data(EXERCISE, RECORD_BYTES), str(where))
        bundle_values.require_exercise(found, where)
        return found


def is_bundle(folder: Path) -> bool:
    """Whether a path is a bundle's folder, whatever is wrong with it."""
    return os.path.lexists(folder / RECORD)


def load(folder: Path, store: Store | None = None) -> BundleFolder:
    """Read the record of a container's bundle, as `load_any` does. Raises UserInputError for a system's, too."""
    found = load_any(folder, store)
    if found.lists(SYSTEM):
        raise UserInputError(
            f"{folder} is the bundle of a system with an init of its own, and this is for those of containers",
            hint=f"vmtailor run {folder} starts it, verify proves it again; explain and report tell of it",
        )
    return found


def load_any(folder: Path, store: Store | None = None) -> BundleFolder:
    """Read a bundle's record. Raises UserInputError when it is none, damaged, of another version, when it asks for a
    machine that no fit makes, names files that are none of its own, or lacks its kernel or root."""
    if not is_bundle(folder):
        raise UserInputError(f"{folder} is no bundle", hint="vmtailor fit IMAGE -o FOLDER makes one")
    data = plain_files.read(folder, RECORD, RECORD_BYTES)
    bundle = records.from_bytes(Bundle, data, str(folder / RECORD), hint="fit the image again")
    bundle_values.require_machine(bundle, folder / RECORD)
    found = BundleFolder(folder.absolute(), bundle, store or Store())
    for name in (bundle.kernel, bundle.root):
        with plain_files.opened(folder, name):
            found.listed(name)
    return found


def describe(folder: Path, without: Collection[str] = ()) -> tuple[BundleFile, ...]:
    """What a record says of the files in a bundle that was just written: all but the record, and those in `without`."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != RECORD and name not in without:
            with plain_files.opened(folder, name) as file:
                digest = sha256_of_rest(file)
                found.append(BundleFile(name, os.fstat(file.fileno()).st_size, digest))
    return tuple(found)
