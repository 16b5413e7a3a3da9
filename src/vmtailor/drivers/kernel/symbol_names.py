# SPDX-License-Identifier: Apache-2.0
"""Names of configuration symbols, before any kernel source is read: those of two kernels that the program has, and
those that a source at hand defines.

`data/symbols/kernel.xz` is made by tools/kernel_symbols.py: a line with the kernels' versions, then one name a line."""

from __future__ import annotations

import functools
import lzma
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

#: Statements of Kconfig that define a symbol.
_DEFINES = ("config", "menuconfig")
#: Longest Kconfig file that is read.
_MOST_BYTES = 4 << 20


@functools.cache
def shipped() -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the versions of the kernels whose names the program has, and all names that either of them defines for any
    processor."""
    packed = resources.files("vmtailor").joinpath("data", "symbols", "kernel.xz").read_bytes()
    versions, *names = lzma.decompress(packed).decode().split()
    return tuple(versions.split(",")), frozenset(names)


def of_source(source: Path) -> frozenset[str]:
    """Return the names that a source tree defines, for any processor. Reading takes some two seconds."""
    return frozenset(name for file in sorted(source.rglob("Kconfig*")) for name in defined(file))


def defined(file: Path) -> Iterator[str]:
    """Yield the names that a Kconfig file defines, as often as it does."""
    try:
        with file.open(errors="replace") as opened:
            text = opened.read(_MOST_BYTES)
    except OSError:  # a folder, or a link to nothing
        return
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if len(words) > 1 and words[0] in _DEFINES and words[1].replace("_", "").isalnum():
            yield words[1]
