# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of files, read in pieces whatever their size."""

from __future__ import annotations

import hashlib
from io import BufferedReader
from pathlib import Path


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content: 64 hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return sha256_of_rest(file)


def sha256_of_rest(file: BufferedReader) -> str:
    """SHA-256 of what is left of an open file. Raises OSError."""
    return hashlib.file_digest(file, "sha256").hexdigest()
