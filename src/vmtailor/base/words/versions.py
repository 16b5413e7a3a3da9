# SPDX-License-Identifier: Apache-2.0
"""The order of version numbers of programs and upstream kernels. Packages have an order of their own:
`Distribution.version_key`."""

from __future__ import annotations

import re

_LEADING = re.compile(r"\d+(?:\.\d+)*", re.ASCII)


def version_key(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, for comparison: `6.12.117-1~deb12` → (6, 12, 117); () when it begins
    with none."""
    match = _LEADING.match(version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
