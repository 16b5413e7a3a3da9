# SPDX-License-Identifier: Apache-2.0
"""Whether a qcow2 image stands on other files of the host: the image itself names them, and is untrusted."""

from __future__ import annotations

import struct
from pathlib import Path

from vmtailor.base.errors import UserInputError

MAGIC = b"QFI\xfb"
#: Version, then where the name of the file below is (0: there is none).
_HEAD = struct.Struct(">4sIQ")
_INCOMPATIBLE = struct.Struct(">Q")
_INCOMPATIBLE_AT = 72
#: Bit of the incompatible features: the data are in another file.
_EXTERNAL_DATA = 1 << 2


def require_alone(path: str) -> None:
    """Raise UserInputError when a qcow2 image has a backing file, or its data elsewhere."""
    with Path(path).open("rb") as file:
        head = file.read(_INCOMPATIBLE_AT + _INCOMPATIBLE.size)
    if len(head) < _HEAD.size or not head.startswith(MAGIC):
        return  # QEMU says what is wrong with it
    _, version, backing = _HEAD.unpack_from(head)
    external = False
    if version >= 3 and len(head) == _INCOMPATIBLE_AT + _INCOMPATIBLE.size:
        external = bool(_INCOMPATIBLE.unpack_from(head, _INCOMPATIBLE_AT)[0] & _EXTERNAL_DATA)
    if backing or external:
        raise UserInputError(
            f"the disk image {path} stands on another file, which it names itself",
            hint=f"make one image of both: qemu-img convert -O qcow2 {path} whole.qcow2",
        )
