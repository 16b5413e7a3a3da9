# SPDX-License-Identifier: Apache-2.0
"""Read what a kernel's build leaves beside it: its configuration and its table of symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from vmtailor.analysis.bootlog.boot_record import Observed, RawCall, architecture
from vmtailor.analysis.bootlog.log_lines import Content, decode
from vmtailor.base.files import dot_config
from vmtailor.model.architecture import every

_TITLES = {"riscv": "riscv64"} | {word: name for row in every() for word, name in row.log.titles.items()}
#: The title of a configuration: architecture, and version.
TITLE = re.compile(rb"# Linux/(\S{1,30}) (\S{1,60}) Kernel Configuration")


def parse_config(lines: Iterable[bytes]) -> dict[str, str]:
    """Return symbol (without CONFIG_) → value, without the quotes of strings. A symbol that is not set is not there."""
    text = "\n".join(decode(line.strip(), 1200) for line in lines if b"CONFIG_" in line)
    return {name: value for name, value in dot_config.parse(text).items() if value != "n"}


def read_config(content: Content) -> Observed:
    """Read a configuration."""
    lines = list(content.lines())
    observed = Observed(content.path)
    observed.config, observed.arch = parse_config(lines), arch_of(lines)
    observed.version = version_of(b"\n".join(lines[:10]))
    return observed


def read_symbols(content: Content) -> Observed:
    """Read a table of symbols."""
    observed = Observed(content.path)
    observed.symbols = parse_symbols(content.lines())
    return observed


def arch_of(lines: Iterable[bytes]) -> str | None:
    """Return the architecture of the title, `# Linux/arm 6.13.9 Kernel Configuration`."""
    for line in lines:
        match = TITLE.match(line)
        if match:
            name = decode(match[1], 30)
            return _TITLES.get(name, architecture(name))
    return None


def version_of(sample: bytes) -> str | None:
    """Return the kernel version of the title."""
    match = TITLE.search(sample[:400])
    return decode(match[2], 60) if match else None


#: Address, nm's letter for the kind, name, and the module in /proc/kallsyms.
SYMBOL = re.compile(
    rb"([0-9a-f]{8,16}) ([ABCDGINPRSTUVWabcdginprstuvw?-]) ([A-Za-z_$.][\w.$]{0,199})(?:\s+\[[\w-]{1,60}\])?\s*$"
)
_ADDRESS = re.compile(r"0x([0-9a-f]{6,16})$")
#: A kernel with all that there is has a quarter of these.
MAX_SYMBOLS = 1_000_000
#: Kernels that load themselves somewhere else move by multiples of this, in bytes: the least of any architecture.
_MOVES_BY = 1 << 16
#: Calls that give the distance: the first ones logged, which are the kernel's own and no module's.
_FIRST = 8


def parse_symbols(lines: Iterable[bytes]) -> dict[int, str]:
    """Return address → name of the functions; of several at one address the first that is no mark of a section's begin.
    Zeros are what /proc/kallsyms shows to whoever may not know."""
    found: dict[int, str] = {}
    for line in islice(lines, MAX_SYMBOLS):
        match = SYMBOL.match(line)
        if match is None or match[2] not in b"tTwW":
            continue
        at, name = int(match[1], 16), match[3].decode("ascii", "replace")
        if at and found.get(at, "_").startswith("_"):
            found[at] = name
    return found


def give_names(calls: Sequence[RawCall], symbols: Mapping[int, str]) -> bool:
    """Give initcalls that are logged by address the names of their table (modules' are in none). A kernel that was
    moved when it was loaded, all of it by the same, is known by that. False where there are such calls, and the table
    has none of them: it is another kernel's."""
    unnamed = {call.name: int(match[1], 16) for call in calls if (match := _ADDRESS.match(call.name))}
    moved = _moved(list(unnamed.values()), symbols)
    names = {text: symbols[at - moved] for text, at in unnamed.items() if at - moved in symbols}
    for call in calls:
        call.name = names.get(call.name, call.name)
    return bool(names) or not unnamed


def _moved(addresses: Sequence[int], symbols: Mapping[int, str]) -> int:
    """Return the number of bytes that a kernel was moved by. It is 0 if any address is a symbol's, or if no single
    distance fits all of the first."""
    first = addresses[:_FIRST]
    if len(first) < _FIRST or any(at in symbols for at in addresses):
        return 0
    ways = {first[0] - at for at in symbols if (first[0] - at) % _MOVES_BY == 0}
    fitting = [way for way in ways if all(at - way in symbols for at in first)]
    return fitting[0] if len(fitting) == 1 else 0
