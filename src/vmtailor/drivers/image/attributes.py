# SPDX-License-Identifier: Apache-2.0
"""Extended attributes that files of images carry: those that Linux has a place for, and a count of the others.

Archives of other systems hold attributes that no file system of Linux takes, such as macOS's `com.apple.*`. Container
engines pass over them, and so do we."""

from __future__ import annotations

import struct
import tarfile

from vmtailor.base.text import encodable, plural
from vmtailor.drivers.image.documents import shown

#: Lists of who may do what with a file, in the kernel's form.
ACLS = ("system.posix_acl_access", "system.posix_acl_default")
NAME_BYTES, VALUE_BYTES = 255, 65_536
_NAMESPACES = ("user.", "trusted.", "security.")
_ACL_VERSION = 2
_ACL_ENTRY = struct.Struct("<HHI")
_TAGS = frozenset({0x01, 0x02, 0x04, 0x08, 0x10, 0x20})
#: Names that are told apart; further ones are counted as one.
_MOST_NAMES = 20


def has_place(name: str, value: str, kind: bytes) -> bool:
    """Return whether Linux would set an attribute on a file of this kind (a type of tar)."""
    raw, data = _bytes(name), _bytes(value)
    if len(raw) > NAME_BYTES or len(data) > VALUE_BYTES:
        return False
    if "=" in name or "\0" in name or encodable(name) != name:
        return False  # no keyword of an archive's header, though a file system may have it
    if name in ACLS:
        wanted = kind == tarfile.DIRTYPE if name == ACLS[1] else kind != tarfile.SYMTYPE
        return wanted and _is_acl(data)
    if name.startswith("user.") and kind not in (tarfile.REGTYPE, tarfile.DIRTYPE):
        return False
    return any(name.startswith(space) and len(name) > len(space) for space in _NAMESPACES)


def _is_acl(data: bytes) -> bool:
    if len(data) < 4 or struct.unpack_from("<I", data)[0] != _ACL_VERSION or (len(data) - 4) % _ACL_ENTRY.size:
        return False
    return all(tag in _TAGS and rights <= 7 for tag, rights, _ in _ACL_ENTRY.iter_unpack(data[4:]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class ForeignAttributes:
    """Counts attributes that are left out."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._others = 0

    def add(self, name: str) -> None:
        if name in self._counts or len(self._counts) < _MOST_NAMES:
            self._counts[name] = self._counts.get(name, 0) + 1
        else:
            self._others += 1

    def remarks(self) -> tuple[str, ...]:
        """Return a sentence for each name, with the number of files that had it."""
        named = [(f"attribute {shown(encodable(name), 60)}", count) for name, count in self._counts.items()]
        others = [("other attributes", self._others)] if self._others else []
        return tuple(
            f"{what} of {plural(count, 'file')} (Linux has no place for it)" for what, count in (*named, *others)
        )
