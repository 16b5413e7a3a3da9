# SPDX-License-Identifier: Apache-2.0
"""Family kernels in the cache, one folder each. They come from a fit, from `family build`, or from somebody else."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import plain_files, records
from vmtailor.base.files.digests import SHA256, sha256_of
from vmtailor.base.text import plain
from vmtailor.drivers.host import bundle_values
from vmtailor.model.architecture import named
from vmtailor.model.bundle import CONFIG, PLAN, SYSTEM_MAP
from vmtailor.model.family import RECORD, FamilyKernel
from vmtailor.model.margin import Margin, label

#: Names of family kernels in the cache.
KIND = "family"
#: Longest record that is read, and the most bytes of each file. A kernel has 10 to 40 MiB.
MOST_RECORD_BYTES = 1 << 20
MOST_FILE_BYTES = 256 << 20
_HINT = "make it again: vmtailor family build -o oci:DIR"


@dataclass(frozen=True)
class Family:
    """A family kernel in the cache. `key`: the SHA-256, in hex, of its record."""

    record: FamilyKernel
    folder: Path
    key: str

    @property
    def phrase(self) -> str:
        """Return the words for this kernel in the line that a run prints."""
        if Margin.SERVER in self.record.margins:
            return "family kernel"
        return f"kernel of {self.record.made_for} with the margin {label(self.record.margins)}"


def names_of(architecture: str) -> tuple[str, ...]:
    """Return the names of the files of a family kernel: kernel, configuration, symbols, plan."""
    return Path(named(architecture).kernel.file).name, CONFIG, SYSTEM_MAP, PLAN


def digest_of(data: bytes) -> str:
    """Return the SHA-256, in hex, of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def parsed(data: bytes, origin: str) -> FamilyKernel:
    """Read the record of a family kernel, which may be a stranger's. Raises UserInputError for one that is damaged, and
    for a machine that no fit makes."""
    if len(data) > MOST_RECORD_BYTES:
        raise UserInputError(f"{origin} is larger than {MOST_RECORD_BYTES} bytes", hint=_HINT)
    record = records.from_bytes(FamilyKernel, data, origin, hint=_HINT)
    where = Path(origin)
    bundle_values.require_hardware(
        where,
        architecture=record.architecture,
        board=record.machine,
        cpus=record.cpus,
        memory_bytes=record.memory_bytes,
        kernel_version=record.kernel_version,
        words=record.words,
        image=None,
    )
    kernel, config, table, plan = names_of(record.architecture)
    listed = [one.name for one in record.files]
    if sorted(listed) not in (sorted((kernel, config, table)), sorted((kernel, config, table, plan))):
        names = ", ".join(plain(name[:40]) for name in listed[:8])
        raise UserInputError(f"{origin} lists {names or 'no files'}: a family kernel has others", hint=_HINT)
    if record.kernel != kernel:
        raise UserInputError(f"{origin} names {plain(record.kernel[:40])} as its kernel", hint=_HINT)
    for one in record.files:
        if not SHA256.fullmatch(one.sha256) or not 0 <= one.bytes <= MOST_FILE_BYTES:
            raise UserInputError(f"{origin} gives no size and digest that {one.name} could have", hint=_HINT)
    return record


def kept(record: FamilyKernel, store: Store, write: Callable[[str, Path], None]) -> Family:
    """Return a family kernel in the cache. Where it is not there yet, `write` puts each of its files at a path. Raises
    UserInputError for a file that is not what the record says."""
    data = records.to_bytes(record)
    key = digest_of(data)

    def fill(folder: Path) -> None:
        for one in record.files:
            path = folder / one.name
            write(one.name, path)
            if path.stat().st_size != one.bytes or sha256_of(path) != one.sha256:
                raise UserInputError(f"the file {one.name} of the family kernel is damaged", hint="get it again")
        (folder / RECORD).write_bytes(data)

    return Family(record, store.get(KIND, key, fill), key)


def newest(store: Store, architecture: str) -> Family | None:
    """Return the family kernel of a processor that was put into the cache last; None where there is none."""
    found = [one for one in every(store) if one.record.architecture == architecture]
    if not found:
        return None
    store.used(found[0].folder)
    return found[0]


def every(store: Store) -> list[Family]:
    """Return the family kernels in the cache that were not fitted to one image alone, the newest first."""
    found: list[tuple[float, Family]] = []
    with contextlib.suppress(OSError):
        for folder in (store.root / KIND).iterdir():
            with contextlib.suppress(VmtailorError, OSError):
                data = plain_files.read(folder, RECORD, MOST_RECORD_BYTES)
                key = digest_of(data)
                record = parsed(data, str(folder / RECORD))
                if key[:40] == folder.name and Margin.SERVER in record.margins:
                    found.append(((folder / RECORD).stat().st_mtime, Family(record, folder, key)))
    return [one for _, one in sorted(found, key=lambda pair: (-pair[0], pair[1].key))]
