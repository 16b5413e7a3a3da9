# SPDX-License-Identifier: Apache-2.0
"""The partitions of an exported disk, and the GPT that sfdisk makes of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

SECTOR = 512
#: Partitions begin at whole MiB.
ALIGN = 1 << 20
LINUX, SWAP = "0FC63DAF-8483-4772-8E79-3D69D8477DE4", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"
TYPES = {
    "root": LINUX, "run": LINUX,
    "bios": "21686148-6449-6E6F-744E-656564454649", "efi": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
}  # fmt: skip
#: Numbers of partitions. Init finds the run volume behind the root; GRUB's configuration names the last one.
NUMBERS = {"root": 1, "run": 2, "bios": 3, "efi": 4}


@dataclass(frozen=True)
class DiskPart:
    """A partition: its name in the table, where it begins and its length, in bytes, its number, type (a GUID) and
    UUID."""

    name: str
    start: int
    length: int
    number: int
    type: str
    uuid: uuid.UUID

    @property
    def end(self) -> int:
        """Return the byte behind it."""
        return self.start + self.length


def uuid_of(name: str, seed: str) -> uuid.UUID:
    """Return a partition's UUID. `seed`: it follows from it, so that equal exports are equal."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"vmtailor {seed} {name}")


def aligned(length: int) -> int:
    """Return a length as whole MiB, one at least."""
    return max(ALIGN, -(-length // ALIGN) * ALIGN)


def layout(lengths: Sequence[tuple[str, int]], seed: str) -> tuple[DiskPart, ...]:
    """Return partitions of at least these lengths, in bytes, one behind the other. `seed`: of `uuid_of`."""
    found, start = [], ALIGN
    for name, length in lengths:
        found.append(
            DiskPart(
                name=name,
                start=start,
                length=aligned(length),
                number=NUMBERS[name],
                type=TYPES[name],
                uuid=uuid_of(name, seed),
            )
        )
        start = found[-1].end
    return tuple(found)


def table(parts: Sequence[DiskPart], seed: str) -> str:
    """Return what sfdisk makes a GPT of."""
    label = uuid.uuid5(uuid.NAMESPACE_OID, f"vmtailor {seed}")
    lines = [f"{part.number} : start={part.start // SECTOR}, size={part.length // SECTOR}, "
             f"type={part.type}, uuid={part.uuid}" + f', name="{part.name}"' * bool(part.name)
             for part in parts]  # fmt: skip
    return "\n".join(["label: gpt", f"label-id: {label}", "unit: sectors", "first-lba: 34", *lines]) + "\n"
