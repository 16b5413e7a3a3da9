# SPDX-License-Identifier: Apache-2.0
"""Bound how much of this host one image may take: content, entries, memory, and the disk that stays free."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import figures, notation
from vmtailor.base.disk_full import CACHE_ELSEWHERE, DiskFull, no_space
from vmtailor.base.errors import UserInputError, VmtailorError

#: Content of one image, unless the user says otherwise; the second where the disk has not twice the first free.
DEFAULT_BYTES = 16 << 30
SMALL_BYTES = 2 << 30
#: Content that one entry stands for: a block of a disk. So a limit of size bounds the number of entries, too.
ENTRY_BYTES = 4096
#: Folders within folders: the kernel resolves about twice as many, and no image of use has as many.
DEPTH = 1000
#: Layers of one image; engines stop at 127 or 500.
LAYERS = 1000
#: Bytes that stay free on the disk.
RESERVE_BYTES = 64 << 20
#: Bytes between two looks at the free space.
_LOOK_BYTES = 16 << 20
#: More than a program writes between two looks at it.
_AHEAD_BYTES = 64 << 20
OPTION = "--max-image-size"


@dataclass(frozen=True)
class ImageLimits:
    """The most that an image may ask of the host. `unpacked_bytes`: of all its layers, uncompressed; `metadata_bytes`
    bounds names and attributes in memory."""

    entries: int = DEFAULT_BYTES // ENTRY_BYTES
    unpacked_bytes: int = DEFAULT_BYTES
    metadata_bytes: int = 512 << 20

    @classmethod
    def of_size(cls, size: int) -> ImageLimits:
        """Return the limits of an image of so many bytes."""
        return cls(max(1, size // ENTRY_BYTES), size)

    @classmethod
    def for_disk(cls, folder: Path) -> ImageLimits:
        """Return the limits where the user said nothing."""
        return cls.of_size(DEFAULT_BYTES if free_bytes(folder) >= 2 * DEFAULT_BYTES else SMALL_BYTES)


class TooLarge(UserInputError):
    """An image has more than it may have."""

    def __init__(self, what: str, than: str, limits: ImageLimits) -> None:
        size = limits.unpacked_bytes
        super().__init__(
            f"{what} {than}; the limit for an image is {notation.size_text(size)}",
            hint=f"if you trust it, raise the limit: {OPTION} {notation.size_text(2 * size)}",
        )


def too_much(what: str, limits: ImageLimits) -> TooLarge:
    """Return the error for an image with too much content."""
    return TooLarge(what, f"unpacks to more than {notation.size_text(limits.unpacked_bytes)}", limits)


def too_many(what: str, limits: ImageLimits) -> TooLarge:
    """Return the error for an image with too many entries."""
    return TooLarge(what, f"has more than {limits.entries} entries", limits)


class Allowance:
    """Counts bytes, perhaps of several streams, and refuses what goes beyond the limit."""

    def __init__(self, limits: ImageLimits) -> None:
        self.limits = limits
        self.spent = 0

    def spend(self, size: int, what: str) -> None:
        """Count `size` bytes of `what`. Raises TooLarge."""
        self.spent += size
        if self.spent > self.limits.unpacked_bytes:
            raise too_much(what, self.limits)


def free_bytes(folder: Path) -> int:
    """Return bytes that are free on the disk of a folder."""
    return shutil.disk_usage(folder).free


class Room:
    """Looks at the free space while something is written to `folder`, and stops before it is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._until = _LOOK_BYTES  # what is small needs no reserve

    def take(self, size: int) -> None:
        """Allow `size` more bytes to be written. Raises HostError when the disk is about to be full."""
        self._until -= size
        if self._until <= 0:
            self._until = _LOOK_BYTES
            require_room(self._folder, _LOOK_BYTES)


def require_room(folder: Path, size: int) -> None:
    """Raise HostError unless so many bytes, and the reserve, are free."""
    free = free_bytes(folder)
    if free < size + (RESERVE_BYTES if size >= _LOOK_BYTES else 0):
        raise about_to_be_full(folder, free)


@dataclass(frozen=True)
class WrittenByTool:
    """Bound what a program writes to a folder, looked at while it runs. `most_bytes`: of what it may write; `occupied`:
    returns what it has written; `refuse`: makes the error for more; `elsewhere`: how to use another disk."""

    folder: Path
    most_bytes: int
    occupied: Callable[[], int]
    refuse: Callable[[], VmtailorError]
    elsewhere: str = CACHE_ELSEWHERE

    def look(self) -> None:
        """Raise the error for too much, or DiskFull when the disk is about to be full."""
        written, free = self.occupied(), free_bytes(self.folder)
        if written > self.most_bytes:
            raise self.refuse()
        # What is small needs no reserve.
        if free < (RESERVE_BYTES + _AHEAD_BYTES if written >= _LOOK_BYTES else 0):
            raise about_to_be_full(self.folder, free, self.elsewhere)


def about_to_be_full(folder: Path, free: int, elsewhere: str = CACHE_ELSEWHERE) -> DiskFull:
    """Return the error for a folder whose disk has too little room."""
    return no_space(f"for the image in {folder}: {figures.file_bytes(free)} are free", elsewhere=elsewhere)
