# SPDX-License-Identifier: Apache-2.0
"""The root of a system on an LVM volume: its device, and the words by which a kernel makes a linear volume itself, so
that no initial RAM disk is needed (CONFIG_DM_INIT)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vmtailor.base.errors import UserInputError
from vmtailor.model.systems.system import LinearVolume, System

#: The word's name: the kernel's own, and read by the small init in kernels that cannot do it.
CREATE = "dm-mod.create"
#: The first device that the mapper makes.
_FIRST = "/dev/dm-0"
_SECTOR = 512
#: Bytes of the word: the least command line has 2,048, and there are other words.
_MOST_BYTES = 1200


def device_of(subject: System, *, direct: bool) -> str:
    """Return the device of a system's root on the first virtio disk. `direct`: a volume was made by the kernel, before
    anybody could give it a name."""
    disk = subject.disk
    volume = disk.volume if disk is not None else None
    if volume is not None:
        return _FIRST if direct else f"/dev/mapper/{volume.mapped_name}"
    number = disk.root if disk is not None else 0
    return f"/dev/vda{number or ''}"


def words_of(subject: System, *, direct: bool = True) -> tuple[str, ...]:
    """Return the word that has the kernel make the volume of the root; none where it is on no volume, or somebody else
    makes it."""
    volume = subject.disk.volume if subject.disk is not None else None
    return (create_word(volume, lambda number: f"/dev/vda{number or ''}"),) if direct and volume is not None else ()


def create_word(volume: LinearVolume, device: Callable[[int], str]) -> str:
    """Return the word for a volume: LVM's name and id, by which LVM's programs know it as theirs, and each segment in
    sectors. `device`: gives the device of a partition's number (0: of the whole disk).

    Raises UserInputError for a volume of so many segments that a command line has no room for them."""
    rows, at = [], 0
    for one in volume.segments:
        size = one.size_bytes // _SECTOR
        rows.append(f"{at} {size} linear {device(one.partition)} {one.start_bytes // _SECTOR}")
        at += size
    word = f'{CREATE}="{volume.mapped_name},{volume.id},,rw,{",".join(rows)}"'
    if len(word) > _MOST_BYTES:
        raise UserInputError(
            f"the volume {volume.full_name} has {len(rows)} segments: a command line has no room to name them",
            hint="move them together in the system: pvmove",
        )
    return word


def is_direct(words: Iterable[str]) -> bool:
    """Return whether a kernel with these words makes the volume of its root."""
    return any(word.startswith(f"{CREATE}=") for word in words)


def has_initrd(subject: System) -> bool:
    """Return whether the system has an initial RAM disk of its own."""
    entry, installed = subject.entry, subject.installed
    return bool((entry is not None and entry.initrd) or (installed is not None and installed.initrd))
