# SPDX-License-Identifier: Apache-2.0
"""Runs under fakeroot, as a program of its own: unpack our flat archive from standard input, then become a mkfs.

    fakeroot -- python3 -I unpack.py FOLDER COMMAND...

Owners, modes, device nodes and extended attributes go to fakeroot's books, where the mkfs of the same session finds
them. FOLDER is private and temporary. The archive is one that `layers` has written: every name stands below real
directories. Links are made last all the same, so that nothing could ever be written through one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile

_XATTR = "SCHILY.xattr."


def path_of(folder: bytes, name: str) -> bytes:
    """Return the path that an entry is unpacked to. Raises ValueError for a name that leads out."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"unexpected name {name!r}")
    return b"/".join([folder, *(part.encode("utf-8", "surrogateescape") for part in parts)])


def describe(path: bytes, info: tarfile.TarInfo) -> None:
    """Owner, attributes, mode, time: in the order in which the later do not undo the earlier."""
    os.lchown(path, info.uid, info.gid)
    for key, value in info.pax_headers.items():
        if key.startswith(_XATTR):
            name = key.removeprefix(_XATTR).encode("utf-8", "surrogateescape")
            os.setxattr(path, name, value.encode("utf-8", "surrogateescape"), follow_symlinks=False)
    if not info.issym():
        os.chmod(path, info.mode)  # noqa: PTH101  # names are bytes, which pathlib cannot hold
    seconds, _, fraction = str(info.pax_headers.get("mtime", int(info.mtime))).partition(".")
    time_ns = int(seconds) * 10**9 + int(fraction.ljust(9, "0")[:9] or 0)
    os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)


def unpack(folder: bytes) -> None:
    directories: list[tuple[bytes, tarfile.TarInfo]] = []
    symlinks: list[tuple[bytes, tarfile.TarInfo]] = []
    links: list[tuple[bytes, tarfile.TarInfo]] = []
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
        for info in archive:
            archive.members.clear()  # type: ignore[attr-defined]  # it would keep every header in memory
            path = path_of(folder, info.name)
            if info.isdir():
                if path != folder:
                    os.mkdir(path, 0o700)  # noqa: PTH102
                directories.append((path, info))
            elif info.issym():
                symlinks.append((path, info))
            elif info.islnk():
                links.append((path, info))
            elif info.isreg():
                source = archive.extractfile(info)
                assert source is not None
                with os.fdopen(
                    os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
                ) as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                describe(path, info)
            else:
                kind = {tarfile.CHRTYPE: 0o020000, tarfile.BLKTYPE: 0o060000, tarfile.FIFOTYPE: 0o010000}[info.type]
                os.mknod(path, kind | 0o600, os.makedev(info.devmajor, info.devminor))
                describe(path, info)
    for path, info in symlinks:
        os.symlink(info.linkname.encode("utf-8", "surrogateescape"), path)  # noqa: PTH211
        describe(path, info)
    for path, info in links:
        os.link(path_of(folder, info.linkname), path, follow_symlinks=False)
    for path, info in reversed(directories):
        describe(path, info)


if __name__ == "__main__":
    try:
        unpack(os.fsencode(sys.argv[1]))
    except OSError as error:
        sys.exit(f"unpack: {error.strerror}: {error.filename!r}")
    os.execv(sys.argv[2], sys.argv[2:])
