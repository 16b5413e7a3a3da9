# SPDX-License-Identifier: Apache-2.0
"""`install`: the kernel of a system's bundle beside the kernels of its disk, with an entry in its boot loader. The disk
is not written: the result is a copy."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.systems import loader_change
from vmtailor.analysis.systems.loader_change import NewEntry
from vmtailor.base import process
from vmtailor.base.cache.store import Store
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config, durable
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.base.progress import step
from vmtailor.drivers.disks import boot_loaders, disk_use
from vmtailor.drivers.disks.boot_loaders import Written
from vmtailor.drivers.disks.fat import Fat
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.targets import targets
from vmtailor.model.machine import DiskFormat
from vmtailor.model.systems.system import DiskLayout, System
from vmtailor.pipeline import bundle_export, bundle_kernel_forms
from vmtailor.pipeline.systems import mapped_root
from vmtailor.stages import system_files
from vmtailor.stages.system_files import OpenedSystem

_CONVERT_S = 1800.0
_GRUB = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
_FOLDER = "/vmtailor"
#: Words that name the root, which the disk has by another name outside of our machines; `panic=-1` would hide a panic
#: of a machine that nobody watches, but it is what leads back to the old entry.
_ROOT = ("root", mapped_root.CREATE)


@dataclass(frozen=True)
class Installed:
    """The new disk. `loader`: in words; `fallback`: how the old entry comes back; `keep`: the command that makes the
    new entry the default, run in the system; empty where that happens by itself."""

    disk: Path
    loader: str
    written: tuple[Written, ...]
    fallback: str
    keep: str = ""


def install(bundle: Path, disk: Path, out: Path, store: Store) -> Installed:
    """Write a copy of `disk` to `out`, with a bundle's kernel, its configuration and a boot entry.

    Raises UserInputError for a bundle of another system, a kernel that firmware cannot start, a disk that is in use or
    has no known loader, and an `out` that is there."""
    files = bundle_folder.load(bundle, store)
    if not files.is_system:
        raise UserInputError(f"{bundle} is a container's", hint="vmtailor export BUNDLE --to disk makes a disk of it")
    if out.exists() or out.is_symlink():
        raise UserInputError(f"{out} exists", hint="name another file with -o, or remove it")
    disk_use.require_unused(disk)
    target = targets.chosen("disk")
    bundle_export.require_needs(files, target)
    with system_files.of_disk(disk, f"disk:{disk}") as found:
        _require_same(files.system, found.subject, disk)
        kernel = bundle_kernel_forms.made(files, target.kernel_form, store).read_bytes()
        with _copy(found, out) as raw:
            return _written(files, found, kernel, raw, out)


def _require_same(fitted: System, found: System, disk: Path) -> None:
    """Raise UserInputError where the root of a disk is not where the bundle's kernel was made to find it."""
    before, now = fitted.disk, found.disk
    assert before is not None and now is not None
    shapes = [(one.root, one.root_volume, one.root_type) for one in (before, now)]
    if fitted.architecture != found.architecture or shapes[0] != shapes[1] or fitted.os != found.os:
        raise UserInputError(
            f"{disk} has another system than the one that the bundle was fitted to",
            hint=f"fit it: vmtailor fit disk:{disk} -x EXERCISE --for disk -o BUNDLE",
        )


@contextlib.contextmanager
def _copy(found: OpenedSystem, out: Path) -> Iterator[Path]:
    """Give a raw copy of a disk to be changed; at the end it is put in its place, in the form of the given disk."""
    opened = found.disk
    assert opened is not None
    parent = out.absolute().parent
    if not parent.is_dir():
        raise UserInputError(f"the folder {parent} does not exist", hint="make it, or name another with -o")
    with (
        disk_full_is_a_host_error(parent),
        tempfile.TemporaryDirectory(dir=parent, prefix=f".{out.name}-") as folder,
    ):
        raw = Path(folder) / "disk.raw"
        with step("a copy of the disk"):
            copy_with_holes(opened.raw.resolve(), raw)
            raw.chmod(0o600)
        yield raw
        made = raw
        if opened.format is DiskFormat.QCOW2:
            made = raw.with_name("disk.qcow2")
            tool = process.require_tool("qemu-img", "qemu-utils")
            argv = [tool, "convert", "-f", "raw", "-O", "qcow2", str(raw), str(made)]
            process.run(argv, timeout_s=_CONVERT_S)
        durable.place(made, out.absolute())


def _written(files: BundleFolder, found: OpenedSystem, kernel: bytes, raw: Path, out: Path) -> Installed:
    layout = found.subject.disk
    assert layout is not None and found.disk is not None
    name = f"the copy of {found.disk.path}"
    label = re.sub(r"[^a-z0-9]+", "-", files.bundle.name.lower()).strip("-")[:40] or "system"
    version = files.bundle.kernel_version
    entry = NewEntry(
        id=f"vmtailor-{label}",
        title=f"Linux {version} fitted by vmtailor ({label})",
        version=version,
        kernel="",
        words=words_of(files.bundle.words, layout),
    )
    config = dot_config.render(files.config).encode()
    fat = boot_loaders.systemd_boot(raw, layout.partitions, name)
    if fat is not None:
        return _by_systemd_boot(fat, entry, kernel, config, out)
    return _by_grub(found, _grub_place(found, layout), entry, kernel, config, raw, out)


def words_of(words: tuple[str, ...], layout: DiskLayout) -> tuple[str, ...]:
    """Return a bundle's words with the root by what the disk itself says: UUIDs of its partitions, in place of the
    device that our machine has it as."""
    kept = tuple(word for word in words if word.partition("=")[0] not in _ROOT)
    uuids = {one.number: one.partition_uuid for one in layout.partitions}
    if (volume := layout.volume) is not None:
        create = mapped_root.create_word(volume, lambda number: _device(uuids.get(number, ""), number))
        return ("root=/dev/dm-0", create, *kept)
    return (f"root={_device(uuids.get(layout.root, ''), layout.root)}", *kept)


def _device(uuid: str, number: int) -> str:
    return f"PARTUUID={uuid}" if uuid else f"/dev/vda{number or ''}"


def _by_systemd_boot(fat: Fat, entry: NewEntry, kernel: bytes, config: bytes, out: Path) -> Installed:
    folder = f"{_FOLDER}/{entry.id}"
    made = replace(entry, kernel=f"{folder}/linux")
    entries = "/loader/entries"
    old = [name for name in fat.names(entries) if loader_change.is_ours(name, [entry.id])]
    files = {
        f"{folder}/linux": kernel,
        f"{folder}/config": config,
        f"{entries}/{loader_change.bls_name(made)}": loader_change.bls_entry(made).encode(),
    }
    if text := fat.text("/loader/loader.conf"):
        files["/loader/loader.conf"] = loader_change.without_default(text).encode()
    done = boot_loaders.write_fat(fat, files, [f"{entries}/{name}" for name in old])
    fallback = (
        f"systemd-boot tries the new entry {loader_change.TRIES} times; unless the system marks it as good "
        "(systemd-bless-boot), the old one starts then"
    )
    return Installed(out, "systemd-boot", (done,), fallback)


@dataclass(frozen=True)
class _GrubPlace:
    """The place of GRUB's configuration: its path in the system, the byte of the disk at which its file system begins,
    and the folder where that is mounted (empty for the root)."""

    path: str
    start: int
    mounted: str

    def inside(self, path: str) -> str:
        """Return a path of the system as the file system has it."""
        return path.removeprefix(self.mounted)


def _grub_place(found: OpenedSystem, layout: DiskLayout) -> _GrubPlace:
    """Return the place of GRUB's configuration. Raises UserInputError where there is none, or none that is written."""
    assert found.disk is not None
    path = next((one for one in _GRUB if found.root.is_file(one)), "")
    if not path:
        raise boot_loaders.no_loader(found.disk.path)
    on_volume = bool(layout.root_volume) and not layout.boot
    part = next((one for one in layout.partitions if one.number == (layout.boot or layout.root)), None)
    content = part.content if part is not None else layout.root_type
    if on_volume or not content.startswith("ext"):
        where = "an LVM volume" if on_volume else f"a file system of the kind {content}"
        raise UserInputError(
            f"{found.disk.path} has GRUB's configuration on {where}, which vmtailor does not write",
            hint="vmtailor export BUNDLE --to qemu starts the disk with the kernel from outside",
        )
    return _GrubPlace(path, part.start_bytes if part is not None else 0, "/boot" if layout.boot else "")


def _by_grub(
    found: OpenedSystem, place: _GrubPlace, entry: NewEntry, kernel: bytes, config: bytes, raw: Path, out: Path
) -> Installed:
    assert found.disk is not None
    own = found.subject.entry
    folder = place.path.rpartition("/")[0]
    made = replace(entry, kernel=place.inside(f"/boot/{entry.id}"))
    like = place.inside(own.kernel) if own is not None else ""
    environment = found.root.read(f"{folder}/grubenv", loader_change.BLOCK_BYTES)
    files = {
        f"/boot/{entry.id}": kernel,
        f"/boot/{entry.id}.config": config,
        place.path: loader_change.with_grub_entry(found.root.text(place.path), made, like).encode(),
        f"{folder}/grubenv": loader_change.with_variable(environment, loader_change.NEXT, entry.id),
    }
    inside = {place.inside(path): data for path, data in files.items()}
    done = boot_loaders.write_ext4(raw, place.start, inside, f"the copy of {found.disk.path}")
    fallback = "GRUB starts the new entry once, if it can write its environment; the old one is the default after that"
    keep = f"grub-editenv {folder}/grubenv set saved_entry={entry.id}"
    return Installed(disk=out, loader="GRUB", written=(done,), fallback=fallback, keep=keep)
