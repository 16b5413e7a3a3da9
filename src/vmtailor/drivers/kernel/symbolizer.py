# SPDX-License-Identifier: Apache-2.0
"""Addresses → functions, files and lines, inlined frames included: llvm-symbolizer where it is there, else addr2line.

llvm-symbolizer is several times as fast, and needs half the memory. Sections of modules (relocatable files) are always
addr2line's: it takes an offset into a named section.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.process import require_tool, run
from vmtailor.base.text import is_number
from vmtailor.model.boots.counters import SourceFrame, SourceFrames

TIMEOUT_S = 300.0
_PLACE = re.compile(r"(.*?):(\d+|\?)(?::\d+)?(?: \(discriminator \d+\))?\Z")
_NAMES = ("llvm-symbolizer", *(f"llvm-symbolizer-{n}" for n in range(25, 13, -1)))


def symbolize(binary: Path, addresses: Iterable[int], *, section: str = "") -> dict[int, SourceFrames]:
    """Return the frames at each address; addresses without debug information are left out.

    `section`: addresses are offsets into this section of a relocatable file. Raises HostError when no tool is there or
    it does not end in time."""
    asked = list(dict.fromkeys(addresses))
    if not asked:
        return {}
    if not binary.is_file():
        raise HostError(
            f"{binary} does not exist", hint="install the kernel's debug information: costs are attributed by it"
        )
    text = "\n".join(hex(a) for a in asked).encode() + b"\n"
    llvm = next((n for n in _NAMES if shutil.which(n)), None)
    if section or llvm is None:
        tool = require_tool("addr2line", "binutils")
        argv = [tool, "-a", "-f", "-i", "-e", str(binary), *(["-j", section] if section else [])]
        done = run(argv, timeout_s=TIMEOUT_S, stdin_bytes=text, ok=(0, 1))
        found = parse_addr2line(done.text)
        if done.returncode == 0:
            _require_all(tool, binary, len(asked), len(found))
        return dict(_known(found))
    argv = [llvm, f"--obj={binary}", "--inlining", "--functions=linkage", "--no-demangle"]
    output = run(argv, timeout_s=TIMEOUT_S, stdin_bytes=text).text
    stacks = parse_llvm(output)
    _require_all(llvm, binary, len(asked), len(stacks))
    return dict(_known(zip(asked, stacks, strict=True)))


def _require_all(tool: str, binary: Path, asked: int, answered: int) -> None:
    """Require an answer for each address: those that are missing would look as if they had no debug information."""
    if answered != asked:
        raise HostError(f"{Path(tool).name} answered {answered} of {asked} addresses of {binary}", hint="try again")


def _known(pairs: Iterable[tuple[int, SourceFrames]]) -> Iterator[tuple[int, SourceFrames]]:
    return ((address, frames) for address, frames in pairs if frames)


class _Interner:
    """Equal frames and stacks become one object: there are ten times as many addresses as lines."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, str], SourceFrame | None] = {}
        self._stacks: dict[tuple[SourceFrame, ...], SourceFrames] = {}

    def frame(self, function: str, place: str) -> SourceFrame | None:
        key = (function, place)
        if key not in self._frames:
            self._frames[key] = _frame(function, place)
        return self._frames[key]

    def stack(self, frames: list[SourceFrame]) -> SourceFrames:
        key = tuple(frames)
        return self._stacks.setdefault(key, key)


def _frame(function: str, place: str) -> SourceFrame | None:
    match = _PLACE.match(place)
    file, line = (match.group(1), match.group(2)) if match else (place, "0")
    if function in ("??", "") and file in ("??", ""):
        return None
    if function.startswith("$"):  # a mark of the assembler's, which is no function: the file alone is known
        function = ""
    return SourceFrame(
        "" if function == "??" else function, "" if file == "??" else file, int(line) if is_number(line) else 0
    )


def parse_llvm(output: str) -> list[SourceFrames]:
    """Output of llvm-symbolizer: per address pairs of lines (function, file:line:column), then an empty line."""
    names = _Interner()
    stacks: list[SourceFrames] = []
    frames: list[SourceFrame] = []
    function: str | None = None
    for line in output.split("\n"):
        if not line:
            function = None
            stacks.append(names.stack(frames))
            frames = []
        elif function is None:
            function = line
        else:
            frame = names.frame(function, line)
            if frame is not None:
                frames.append(frame)
            function = None
    return stacks[:-1] if output.endswith("\n") else stacks


def parse_addr2line(output: str) -> list[tuple[int, SourceFrames]]:
    """Output of `addr2line -a -f -i`: per address a line 0x…, then pairs of lines (function, file:line)."""
    names = _Interner()
    found: list[tuple[int, list[SourceFrame]]] = []
    function: str | None = None
    for line in output.splitlines():
        if function is None and re.fullmatch(r"0x[0-9a-f]+", line):
            found.append((int(line, 16), []))
        elif function is None:
            function = line
        else:
            frame = names.frame(function, line)
            if frame is not None and found:
                found[-1][1].append(frame)
            function = None
    return [(address, names.stack(frames)) for address, frames in found]


def symbolize_modules(
    files: Mapping[str, Path], sections: Iterable[tuple[str, str, int]], addresses: Iterable[int]
) -> dict[int, SourceFrames]:
    """Return SourceFrames of addresses inside loaded modules. `files`: module → its file with debug information;
    `sections`: (module, section, address at which it was loaded). Each address belongs to the nearest section of code
    below it; where the kernel gave the freed code of one module's start to another one, to the latter."""
    code = [(at, name, module) for module, name, at in sections if module in files and "text" in name]
    starts = [(at, module, name) for at, name, module in sorted(code, key=lambda s: (s[0], s[1] == ".text", s))]
    groups: dict[tuple[str, str, int], list[int]] = {}
    index = -1
    for address in sorted(set(addresses)):
        while index + 1 < len(starts) and starts[index + 1][0] <= address:
            index += 1
        if index >= 0:
            base, module, name = starts[index]
            groups.setdefault((module, name, base), []).append(address)
    found: dict[int, SourceFrames] = {}
    for (module, name, base), inside in groups.items():
        frames = symbolize(files[module], [a - base for a in inside], section=name)
        found |= {a: frames[a - base] for a in inside if a - base in frames}
    return found
