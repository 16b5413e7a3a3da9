# SPDX-License-Identifier: Apache-2.0
"""Kernel source trees: unpacked once into the cache and never written to, or a folder that the user has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.cache import remote
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.progress import step
from vmtailor.model.architecture import Architecture

_GIVE = "give the top folder of a Linux source, or its tarball"
# Files whose content tells one tree from another well enough: a patched tree differs in one of them or in its size.
_TELLTALE = ("Makefile", "Kconfig", "MAINTAINERS", "localversion", "localversion-rt")


@dataclass(frozen=True)
class SourceTree:
    """An unpacked source. `digest` names its content (of the package or tarball; of sizes and times for a folder)."""

    path: Path
    digest: str

    @property
    def version(self) -> str:
        """Return VERSION.PATCHLEVEL.SUBLEVEL of the top Makefile. Raises UserInputError when this is not a kernel
        source."""
        return version_of(self.path)


def version_of(source: Path) -> str:
    """Return the upstream version of a source tree, such as 6.12.117; a missing sublevel is 0."""
    makefile = source / "Makefile"
    try:
        text = makefile.read_text("utf-8", "replace")[:4000]
    except OSError:
        raise UserInputError(f"{source} is not a kernel source: it has no Makefile", hint=_GIVE) from None
    parts = []
    for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"):
        match = re.search(rf"^{name}[ \t]*=[ \t]*+(\d*)[ \t]*$", text, re.MULTILINE)
        if match is None:
            raise UserInputError(f"{source} is not a kernel source: its Makefile names no {name}", hint=_GIVE)
        parts.append(match[1] or "0")
    return ".".join(parts)


def extra_version_of(source: Path) -> str:
    """Return what the Makefile of a source tree puts behind its version, such as -rc3; mostly nothing."""
    match = re.search(
        r"^EXTRAVERSION[ \t]*=[ \t]*+(\S*)[ \t]*$", (source / "Makefile").read_text("utf-8", "replace")[:4000], re.M
    )
    return match[1] if match is not None else ""


def require_version(tree: SourceTree, version: str, of_what: str) -> None:
    """Raise UserInputError, naming both, unless the source is of this upstream version (6.1 equals 6.1.0)."""
    found = tree.version
    if found.removesuffix(".0") != version.removesuffix(".0"):
        raise UserInputError(
            f"the kernel source {tree.path} is {found}, but {of_what} is {version}",
            hint=f"give the source of {version}, or choose the baseline with --kernel {found}",
        )


def place(name: str) -> Path:
    """Return a path as a user wrote it, expanded. Raises UserInputError for the home of an unknown user."""
    try:
        try:
            return Path(name).expanduser()
        except RuntimeError as error:
            raise UserInputError(f"{name}: no such home folder", hint="write the whole path") from error
    except RuntimeError:
        raise UserInputError(
            f"the kernel source {name} does not exist: no such user", hint="give a folder, or a tarball"
        ) from None


def provide(store: Store, given: str) -> SourceTree:
    """Return the source that a user named: `DIR`, `TARBALL`, or `TARBALL,sha256` with the checksum it must have."""
    name, _, wanted = given.partition(",")
    path = place(name).resolve()
    if path.is_dir():
        version_of(path)
        if (path / ".config").exists() or (path / "include/config/auto.conf").exists():
            raise UserInputError(
                f"the kernel source {path} has been built in; building beside it would fail",
                hint=f"clean it (make -C {path} mrproper), or give another folder",
            )
        remote.keep_local(f"the kernel source {path} is a folder, known by modification times alone")
        return SourceTree(path, _digest_of_folder(path))
    if not path.is_file():
        raise UserInputError(
            f"the kernel source {path} does not exist", hint="give a folder or a tarball with --source"
        )
    found = sha256_of(path)
    if wanted and wanted.lower().removeprefix("sha256:") != found:
        raise UserInputError(
            f"{path} has SHA-256 {found}, not {wanted}", hint="fetch it again, or correct the checksum"
        )
    key = digest("tarball", found)

    def fill(folder: Path) -> None:
        unpack(path, folder, path.name)
        version_of(folder)

    return SourceTree(store.get("kernel-source", key, fill), key)


def unpack(tarball: Path, folder: Path, title: str) -> None:
    """Unpack a source tarball without its top folder. Raises UserInputError when it is damaged."""
    tar = process.require_tool("tar")
    with step(f"unpacking {title}"):
        try:
            process.run(
                [tar, "--extract", "--file", str(tarball), "--directory", str(folder), "--strip-components=1",
                 "--no-same-owner", "--no-same-permissions"],
                timeout_s=1800, name="the kernel's source",
            )  # fmt: skip
        except process.CommandFailed as error:
            raise UserInputError(
                f"{tarball} cannot be unpacked", hint="fetch it again", details=error.details
            ) from error


def _digest_of_folder(path: Path) -> str:
    """Return a digest over names, sizes and modification times: reading 1.5 GB at every start costs more than it
    proves."""
    process.require_tool("find", "findutils")
    listing = process.run(
        ["find", ".", "-type", "f", "-not", "-path", "./.git/*", "-printf", "%P %s %T@\\n"], timeout_s=300, cwd=path
    ).stdout
    parts = [path / name for name in _TELLTALE if (path / name).is_file()]
    return digest("folder", b"\n".join(sorted(listing.splitlines())), *parts)


#: Modules that a virtual machine's boot, or a container, loads.
DEBUG_MODULES = (
    "virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "net_failover", "failover",
    "erofs", "netfs", "lz4hc_compress", "squashfs", "ext4", "jbd2", "mbcache", "crc16", "crc32c_generic", "libcrc32c",
    "overlay", "af_packet", "unix", "ipv6", "autofs4", "fuse", "tun", "veth", "bridge",
    "binfmt_misc", "dimlib", "crct10dif_common", "crct10dif_generic",
)  # fmt: skip


def debug_modules_of(architecture: Architecture) -> tuple[str, ...]:
    """Return the modules whose debug information one architecture's baseline needs, with its own ones."""
    return (*DEBUG_MODULES, *architecture.packages.debug_modules)
