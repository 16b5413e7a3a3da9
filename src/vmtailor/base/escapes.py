# SPDX-License-Identifier: Apache-2.0
"""Terminal escape sequences and control characters taken out of what guests and logs print. (To show them instead:
`text`.)"""

from __future__ import annotations

import re

_SEQUENCES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # operating system commands and other strings
    r"|\x1b[ -/]*[0-~]?"  # the short ones
)
_TEXT = re.compile(_SEQUENCES)
_BYTES = re.compile(_SEQUENCES.encode())
#: All controls but tab and line feed.
_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])
_NO_CONTROLS = dict.fromkeys(_CONTROLS)


def without_sequences(text: str) -> str:
    """Text without escape sequences; other controls stay."""
    return _TEXT.sub("", text) if "\x1b" in text else text


def without(text: str) -> str:
    """Text without escape sequences, and without controls but tab and line feed."""
    return without_sequences(text).translate(_NO_CONTROLS)


def count_and_remove(data: bytes) -> tuple[bytes, int]:
    """Return bytes without escape sequences, and how many there were."""
    return _BYTES.subn(b"", data) if b"\x1b" in data else (data, 0)


def without_controls(data: bytes) -> bytes:
    """Return bytes without controls but tab and line feed."""
    return data.translate(None, _CONTROLS)
