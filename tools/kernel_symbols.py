# SPDX-License-Identifier: Apache-2.0
"""Make the list of names of configuration symbols from kernel sources: src/vmtailor/data/symbols/kernel.xz.

    python tools/kernel_symbols.py SOURCE [SOURCE …]

Each SOURCE is an unpacked kernel tree, the oldest first. The same trees give the same bytes.
src/vmtailor/drivers/kernel/symbol_names.py reads the list."""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

from vmtailor.drivers.kernel.kernel_source import version_of
from vmtailor.drivers.kernel.symbol_names import of_source

OUT = Path(__file__).parents[1] / "src/vmtailor/data/symbols/kernel.xz"


def packed(sources: list[Path]) -> bytes:
    """Return the bytes of the list."""
    names = sorted({name for source in sources for name in of_source(source)})
    text = "\n".join([",".join(version_of(source) for source in sources), *names])
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


def main(arguments: list[str]) -> int:
    """Write the list. Returns the exit status."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_bytes(packed([Path(argument) for argument in arguments]))
    print(f"{OUT}: {OUT.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
