# SPDX-License-Identifier: Apache-2.0
"""Systems with an init of their own, read from a reference: `disk:FILE`, or an image's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.systems import init_units
from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.image import image_reference, other_inputs
from vmtailor.drivers.image.flat_archive import ArchiveTree
from vmtailor.drivers.rootfs import boot_disk
from vmtailor.model.architecture import named
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.systems.system import SubjectKind, System
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import image_fetch as image_stage
from vmtailor.stages import system_disk
from vmtailor.stages import system_files as subject_stage
from vmtailor.stages.image_fetch import ImageOptions
from vmtailor.stages.system_files import OpenedSystem

DISK = f"{SubjectKind.DISK}:"
#: The number of a file system that fills its disk.
WHOLE = 0
#: First bytes of what is a disk image, where a path is given without a prefix: qcow2's; an MBR's or loader's last two
#: of a sector; ext4's.
_SIGNS = ((0, boot_disk.MAGIC), (510, b"\x55\xaa"), (1080, b"\x53\xef"))


def disk_path(reference: str) -> Path | None:
    """Return the file of a disk's reference; None when it is one of an image or a root tree."""
    if reference.startswith(DISK):
        if reference == DISK:
            raise UserInputError("nothing follows 'disk:'", hint="for example: disk:machine.qcow2")
        return Path(reference.removeprefix(DISK))
    path = Path(reference) if "\0" not in reference else Path("/nowhere")
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(2048)
    if not any(head[at : at + len(sign)] == sign for at, sign in _SIGNS):
        return None
    return path if other_inputs.file(path) is None else None  # kernels and CDs have a sign of disks, too


@contextlib.contextmanager
def opened(reference: str, store: Store, *, partition: int | None = None, init: str = "") -> Iterator[OpenedSystem]:
    """Read a system's files, for as long as the block lasts. Raises UserInputError with the reason, HostError for a
    missing tool or space."""
    path = disk_path(reference)
    if path is not None:
        with subject_stage.of_disk(path, reference, partition=partition, init=init) as found:
            yield found
        return
    _require_whole(partition)
    yield _in_archive(image_stage.fetch(reference, store, ImageOptions(system=True)), reference, init)


@contextlib.contextmanager
def on_disk(options: FitOptions, image: Image | None) -> Iterator[OpenedSystem]:
    """Read a system to be fitted, on a disk that a machine can be started from: its own, or one that is made from
    `image`. A tree without a kernel gets the distribution's. Raises as `opened` and `require_host` do, and as
    packaged.provide."""
    reference, store = options.reference, options.store
    if image is None:
        path = disk_path(reference)
        assert path is not None
        with subject_stage.of_disk(path, reference, partition=options.partition) as found:
            require_host(found.subject)
            yield found
        return
    _require_whole(options.partition)
    tree = _in_archive(image, reference).subject
    require_host(tree)
    kernel = None if tree.kernel else packaged_baseline.provide(options.distribution, named(tree.architecture), store)
    made = system_disk.make(image, kernel, store)
    init = tree.init.path
    with subject_stage.of_disk(made, reference, partition=WHOLE, init=init, identity=image.digest) as found:
        yield replace(found, subject=replace(found.subject, notes=(*found.subject.notes, *_notes(image, kernel))))


def require_host(subject: System) -> None:
    """Raise UserInputError for a system of another processor than this host's: it can be booted, but not traced."""
    architecture = named(subject.architecture)
    if not architecture.is_host:
        raise UserInputError(
            f"{subject.reference} is a system for {architecture.title}, and is traced and fitted on a host of its own "
            "kind",
            hint="here it can be shown, and booted: vmtailor boot disk:FILE --exercise FILE",
        )


def has_own_init(reference: str, image: Image) -> bool:
    """Return whether an image is a system with an init of its own: its entry point is one, or, of a plain tree, it has
    one."""
    root, argv = RootTree(ArchiveTree(Path(image.archive))), image.config.argv
    if _is_tree(reference):
        return init_units.find_init(root) is not None
    return bool(argv) and init_units.is_init(root, argv[0])


def _require_whole(partition: int | None) -> None:
    if partition is not None:
        raise UserInputError("--partition is for disks", hint="vmtailor show disk:FILE --partition NUMBER")


def _is_tree(reference: str) -> bool:
    return image_reference.parse_reference(reference).source is image_reference.Source.ROOTFS


def _in_archive(image: Image, reference: str, init: str = "") -> OpenedSystem:
    argv, tree = image.config.argv, _is_tree(reference)
    chosen = init or (argv[0] if argv and not tree else "")
    kind = SubjectKind.ROOT if tree else SubjectKind.IMAGE
    return subject_stage.of_archive(Path(image.archive), reference, kind, init=chosen, identity=image.digest)


def _notes(image: Image, kernel: KernelBaseline | None) -> Iterator[str]:
    """Return remarks for the reader about a disk that was made from a tree."""
    if kernel is not None:
        yield f"it has no kernel: that of {kernel.origin[0]} was installed in its disk"
    config = image.config
    told = [
        *(["arguments"] if len(config.argv) > 1 else []),
        *(["environment"] if any(name != "PATH" for name, _ in config.env) else []),
        *(["user"] if config.user not in ("", "0", "root") else []),
    ]
    if told:
        yield f"what the image says for container engines is not told to its init: {', '.join(told)}"
