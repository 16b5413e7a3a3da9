# SPDX-License-Identifier: Apache-2.0
"""From a reference to a system with an init of its own: `disk:FILE`, or what an image's reference names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.model.systems.subject import SubjectKind
from vmtailor.stages import image as image_stage
from vmtailor.stages import subject as subject_stage
from vmtailor.stages.image import ImageOptions, Source
from vmtailor.stages.subject import OpenedSubject

DISK = f"{SubjectKind.DISK}:"
#: First bytes of what is a disk image, where a path is given without a prefix: qcow2's; an MBR's or loader's last two
#: of a sector; ext4's.
_SIGNS = ((0, b"QFI\xfb"), (510, b"\x55\xaa"), (1080, b"\x53\xef"))


def disk_path(reference: str) -> Path | None:
    """The file of a disk's reference; None when it is one of an image or a root tree."""
    if reference.startswith(DISK):
        if reference == DISK:
            raise UserInputError("nothing follows 'disk:'", hint="for example: disk:machine.qcow2")
        return Path(reference.removeprefix(DISK))
    path = Path(reference) if "\0" not in reference else Path("/nowhere")
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(2048)
    return path if any(head[at : at + len(sign)] == sign for at, sign in _SIGNS) else None


@contextlib.contextmanager
def opened(reference: str, store: Store, *, partition: int | None = None, init: str = "") -> Iterator[OpenedSubject]:
    """Read a system's files, for as long as the block lasts. Raises UserInputError, in words that name what is wrong;
    HostError for a missing tool or space."""
    path = disk_path(reference)
    if path is not None:
        with subject_stage.of_disk(path, reference, partition=partition, init=init) as found:
            yield found
        return
    if partition is not None:
        raise UserInputError("--partition is for disks", hint="vmtailor show disk:FILE --partition NUMBER")
    image = image_stage.fetch(reference, store, ImageOptions(system=True))
    root = image_stage.parse_reference(reference).source is Source.ROOTFS
    argv = image.config.argv
    named = init or (argv[0] if argv and not root else "")
    kind = SubjectKind.ROOT if root else SubjectKind.IMAGE
    yield subject_stage.of_archive(Path(image.archive), reference, kind, init=named, identity=image.digest)
