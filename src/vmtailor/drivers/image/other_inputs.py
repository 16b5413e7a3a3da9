# SPDX-License-Identifier: Apache-2.0
"""Files and folders that are no image, known by what is in them: each with the next command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import open_regular
from vmtailor.base.text import plain
from vmtailor.drivers.image.decompress import chunks_of, is_compressed
from vmtailor.drivers.image.layer_reader import Layer, damage_is_reported
from vmtailor.model.architecture import every
from vmtailor.model.bundle import RECORD, RUN, TRACED, WORK

#: Files that say how an image is built; what composes containers of images.
BUILD_FILES = ("Dockerfile", "Containerfile")
_COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
#: The sign of a tar.
_TAR_AT, _TAR = 257, b"ustar"
_HEAD_BYTES = 70_000
_CONVERT = "qemu-img convert -O qcow2 {file} disk.qcow2, then give disk:disk.qcow2"


@dataclass(frozen=True)
class _Sign:
    """Bytes at an offset of a file, what they are the sign of, and the next step. `{file}` in it is the file."""

    at: int
    magic: bytes
    what: str
    hint: str


_SIGNS = (
    _Sign(0x8001, b"CD001", "a CD (ISO 9660)", "install it on a disk, and give disk:FILE"),
    _Sign(0, b"KDMV", "a disk of VMware (VMDK)", _CONVERT),
    _Sign(0, b"# Disk DescriptorFile", "a disk of VMware (VMDK)", _CONVERT),
    _Sign(0x40, b"\x7f\x10\xda\xbe", "a disk of VirtualBox (VDI)", _CONVERT),
    _Sign(0, b"vhdxfile", "a disk of Hyper-V (VHDX)", _CONVERT),
    _Sign(0, b"conectix", "a disk of Hyper-V (VHD)", _CONVERT),
    _Sign(32, b"SIF_MAGIC", "an image of Apptainer (SIF)", "apptainer build --sandbox ROOT {file}, then give ROOT"),
    _Sign(0, b"hsqs", "a root file system (squashfs)", "unsquashfs -d ROOT {file}, then give rootfs:ROOT"),
    _Sign(1024, b"\xe2\xe1\xf5\xe0", "a root file system (erofs)",
          "fsck.erofs --extract=ROOT {file}, then give rootfs:ROOT"),
    _Sign(0, b"070701", "an initial RAM disk (cpio)", "vmtailor boot --kernel KERNEL --initrd {file} starts it"),
    _Sign(0, b"PK\x03\x04", "a zip archive", "unpack it, and give the image in it"),
    _Sign(0, b"!<arch>\n", "a package (deb)", "unpack it to ROOT, and give rootfs:ROOT --entrypoint /PROGRAM"),
    _Sign(0, b"\xed\xab\xee\xdb", "a package (rpm)", "install it in an image, and give that"),
    _Sign(0, b"\x7fELF", "a program (ELF)", "put it into a folder, and give rootfs:FOLDER --entrypoint /PROGRAM"),
)  # fmt: skip
#: Signs of disks that may be compressed; an uncompressed one never comes here.
_DISKS = ((0, b"QFI\xfb"), (510, b"\x55\xaa"), (1080, b"\x53\xef"))


def folder(path: Path) -> UserInputError | None:
    """Return the error for a folder that is neither an OCI layout nor a root file system; None for another."""

    def has(*names: str) -> bool:
        return any(os.path.lexists(path / name) for name in names)

    quoted, root = shlex.quote(str(path)), _is_root(path)
    saved = has("manifest.json") and not root
    rows = (
        (
            has(RECORD) and not root, "is a bundle: it was fitted already",
            f"vmtailor run {quoted} starts it, vmtailor refit {quoted} fits it again",
        ),
        (
            has(WORK, TRACED) and not root, "is a work folder of single stages",
            f"vmtailor plan {quoted}, vmtailor build {quoted} and vmtailor measure {quoted} take it",
        ),
        (
            has("index.json") and not root and (path / "blobs").is_dir(),
            "is an OCI layout without its file oci-layout",
            f"""echo '{{"imageLayoutVersion": "1.0.0"}}' > {shlex.quote(str(path / "oci-layout"))}""",
        ),
        (
            saved and has("version"), "is an image in skopeo's own form",
            f"skopeo copy dir:{quoted} oci:{quoted}-oci, then give {quoted}-oci",
        ),
        (
            saved and (has("repositories") or any(path.glob("*/layer.tar"))), "is an unpacked archive of `docker save`",
            f"tar -C {quoted} -cf {quoted}.tar . packs it; then give {quoted}.tar",
        ),
        (
            has("config.json") and not root and (path / "rootfs").is_dir(),
            "is a folder of an OCI runtime, such as runc",
            f"give rootfs:{shlex.quote(str(path / 'rootfs'))} --entrypoint with the words of its config.json",
        ),
    )  # fmt: skip
    for applies, what, hint in rows:
        if applies:
            return UserInputError(f"{path} {what}", hint=hint)
    return None if root else _to_be_built(path, [name for name in (*BUILD_FILES, *_COMPOSE_FILES) if has(name)])


def holds_image(path: Path) -> bool:
    """Return whether a folder is an image for sure: an OCI layout, or a root file system."""
    return (path / "oci-layout").is_file() or _is_root(path)


def _is_root(path: Path) -> bool:
    return (path / "usr").is_dir() or ((path / "bin").is_dir() and (path / "etc").is_dir())


def _to_be_built(path: Path, names: list[str]) -> UserInputError | None:
    """Return the error for a folder with files of these names, from which an image has yet to be built; None where
    there are none."""
    if not names:
        return None
    if names[0] in _COMPOSE_FILES:
        return UserInputError(
            f"{path} holds {names[0]}, which starts containers of several images",
            hint="docker compose build; then give each image by its name: docker-daemon:NAME:TAG",
        )
    name, quoted, file = _image_of(path), shlex.quote(str(path)), shlex.quote(str(path / names[0]))
    by_docker = "" if names[0] == BUILD_FILES[0] else f" -f {file}"  # of these, docker looks for the first alone
    by_podman = "" if names[0] in BUILD_FILES else f" -f {file}"
    return UserInputError(
        f"{path} holds a {names[0]}, from which an image has yet to be built",
        hint=f"docker build -t {name}{by_docker} {quoted}, then give docker-daemon:{name}:latest; "
        f"or podman build -t {name}{by_podman} {quoted}, then containers-storage:localhost/{name}:latest",
    )


def _image_of(path: Path) -> str:
    """Return a name for the image that is built in a folder."""
    name = path.absolute().resolve().name.lower()
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name).strip("-")
    return kept[:40] or "mine"


def file(path: Path) -> UserInputError | None:
    """Return the error for a file that is known not to be an archive; None for what may be one."""
    with open_regular(path, "the image", hint="give a file that can be read") as opened:
        head = opened.read(_HEAD_BYTES) or b""
    if not head:
        return UserInputError(f"{path} is empty", hint="check the command that made it")
    if path.name in (RECORD, RUN) and os.path.lexists(path.parent / RECORD):
        return folder(path.parent)
    sign = next((one for one in (*_kernels(), *_SIGNS) if head[one.at : one.at + len(one.magic)] == one.magic), None)
    if sign is not None:
        return UserInputError(
            f"{path} is {sign.what}, and no image", hint=sign.hint.format(file=shlex.quote(str(path)))
        )
    if is_compressed(path):
        return _compressed(path)
    return _text(path, head) if _is_text(head) else None


def _kernels() -> Iterator[_Sign]:
    """Yield the signs of packed kernels."""
    for header in (row.kernel.header for row in every()):
        if header is not None:
            magic = header.magic.encode()
            yield _Sign(header.magic_at, magic, "a Linux kernel", "vmtailor boot --kernel {file} starts it")


def _compressed(path: Path) -> UserInputError | None:
    """Return the error for a compressed disk; None for another file, damaged ones among them."""
    head = b""
    try:
        with damage_is_reported(Layer(path, str(path))):
            for piece in chunks_of(path):
                head += piece
                if len(head) > 2048:
                    break
    except UserInputError:
        return None
    is_tar = head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR  # whose first file has any bytes where disks have signs
    if is_tar or not any(head[at : at + len(magic)] == magic for at, magic in _DISKS):
        return None
    return UserInputError(f"{path} is a compressed disk", hint="uncompress it, and give disk:FILE")


def _is_text(head: bytes) -> bool:
    try:
        text = head[:4096].decode("utf-8", "strict") if len(head) <= 4096 else head[:4096].decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return False
    return b"\0" not in head[:4096] and all(letter.isprintable() or letter in "\r\n\t\x1b" for letter in text)


def _text(path: Path, head: bytes) -> UserInputError:
    name, quoted = path.name, shlex.quote(str(path))
    builds = name in (*BUILD_FILES, *_COMPOSE_FILES) or name.startswith("Dockerfile.") or name.endswith(".dockerfile")
    if builds and (error := _to_be_built(path.parent, [name])):
        return error
    if path.suffix == ".toml":
        return UserInputError(f"{path} is a TOML file", hint=f"an exercise goes beside an image: -x {quoted}")
    if b"Linux version" in head or b"kernel:" in head:
        return UserInputError(f"{path} is a boot log", hint=f"vmtailor analyze {quoted} reads it")
    return UserInputError(f"{path} is text, and no image", hint="give an image, a folder or a disk")


def archive(path: Path, names: Collection[str]) -> UserInputError:
    """Return the error for an archive that holds no image, by the names of its files."""
    tops = {name.partition("/")[0] for name in names}
    quoted = shlex.quote(str(path))
    if "usr" in tops or {"bin", "etc"} <= tops:
        return UserInputError(
            f"{path} holds a root file system without a configuration, as `docker export` writes it",
            hint=f"give rootfs:{quoted} --entrypoint with its program; or the image itself, by `docker save`",
        )
    if built := next((name for name in BUILD_FILES if name in tops), ""):
        return UserInputError(
            f"{path} holds a {built}, from which an image has yet to be built",
            hint=f"docker build -t mine - < {quoted}, then give docker-daemon:mine:latest",
        )
    packed = next((name for name in names if name.endswith((".tar", "/index.json", "/oci-layout"))), "")
    if packed:
        return UserInputError(
            f"{path} holds no image itself, but {plain(packed)[:100]}", hint="unpack it, and give what is in it"
        )
    return UserInputError(f"{path} holds no image", hint="an archive of `docker save` or of an OCI layout is needed")
