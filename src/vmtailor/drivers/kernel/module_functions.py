# SPDX-License-Identifier: Apache-2.0
"""The functions of a loaded module, by the symbols of its file and by where the kernel put its sections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

#: Sections whose memory is given back once the module is loaded: others may lie there later.
_GONE = (".init", ".exit")


def functions(path: Path, sections: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return address and name of each function. `sections`: name → address. Empty for a file without symbols, and for
    one that is no ELF file, as a compressed one."""
    found = []
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            names = [section.name for section in elf.iter_sections()]
            table = elf.get_section_by_name(".symtab")
            if not isinstance(table, SymbolTableSection):
                return []
            for symbol in table.iter_symbols():
                index = symbol["st_shndx"]
                if symbol["st_info"]["type"] != "STT_FUNC" or not isinstance(index, int):
                    continue
                section = names[index]
                if section in sections and not section.startswith(_GONE):
                    found.append((sections[section] + int(symbol["st_value"]), symbol.name))
    except (ELFError, IndexError, KeyError):
        return []
    return found
