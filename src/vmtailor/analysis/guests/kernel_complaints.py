# SPDX-License-Identifier: Apache-2.0
"""Find a kernel's complaints, and those that are new."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from vmtailor.analysis.cost.plugin_counts import UNKNOWN, SymbolTable
from vmtailor.base.files import toml_files
from vmtailor.base.text import without_escapes

#: A message in the kernel's own log: level, perhaps a time stamp and a caller.
_LOGGED = re.compile(r"^<(\d+)>(?:\[\s*\d+\.\d+\])?(?:\[\s*[TC]\d+\])?\s?(.*)$")
#: A message on a console, which does not show the level.
_SHOWN = re.compile(r"^(?:\[\s*\d+\.\d+\])?(?:\[\s*[TC]\d+\])?\s?(.*)$")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+")
#: Names that are made anew each time: of containers, of the mounts and scopes that belong to them.
_MADE_UP = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{12,}(?![0-9A-Za-z])")
_CALL = re.compile(r"(\b(?:calling  |initcall ))0x([0-9a-f]{16})(?= )")
#: An initcall among a kernel's symbols: of which module, on which line of which level (include/linux/init.h).
_INITCALL_OF = re.compile(r"\b__initcall__kmod_(\w{1,56}?)__\d+_\d+_")
#: Modules that are looked for in a log: the table may be a stranger's, and each makes an expression longer.
_MOST_MODULES = 10_000
#: Stands in a row of data/expected_messages.toml for the modules that a kernel has built in.
_BUILT_IN = "<built-in>"
#: KERN_WARNING. Levels above it are no complaint; the facility is in the higher bits.
WARNING = 4
#: Lines kept at most: a guest may print without end.
MOST_LINES = 2000


def complaints(log: str, console: str = "") -> list[str]:
    """Return messages of level warning and worse in the kernel's log, and all that was on the console, in order.

    `log`: lines with level prefixes, as init sends them; empty after a panic. `console`: what was shown with `quiet`,
    which is errors only; programs print elsewhere.
    """
    found = []
    for line in log.splitlines():
        match = _LOGGED.match(without_escapes(line))
        if match and int(match.group(1)) & 7 <= WARNING:
            found.append(match.group(2).strip())
    for line in console.splitlines():
        match = _SHOWN.match(without_escapes(line))
        if match:
            found.append(match.group(1).strip())
    return [message for message in dict.fromkeys(found) if message][:MOST_LINES]


def behind_firmware(console: str, end: str) -> str:
    """Return a console without what firmware printed ahead of the kernel, whose last line begins with `end`. The
    console is unchanged where there is no such line, or none is known."""
    lines = console.splitlines(keepends=True)
    last = next((number for number, line in enumerate(lines) if end and line.startswith(end)), -1)
    return "".join(lines[last + 1 :])


def whole(log: str, console: str) -> str:
    """Return the kernel's words, each once: its log as init sent it, then what only the console has, such as the last
    ones."""
    logged = {_LOGGED.sub(r"\2", line).strip() for line in log.splitlines()}
    rest = [line for line in console.splitlines() if _SHOWN.sub(r"\1", line).strip() not in logged]
    return "\n".join([*log.splitlines(), *rest, ""]) if log else console


def named(log: str, table: SymbolTable) -> str:
    """Return a log in which initcalls have names: a kernel without the table of its own symbols prints their
    addresses."""

    def name(match: re.Match[str]) -> str:
        address = int(match[2], 16)
        found = table.name_of(address)
        return match[0] if found == UNKNOWN else f"{match[1]}{found}+0x0/0x0"

    return _CALL.sub(name, log)


def built_in_modules(system_map: str) -> frozenset[str]:
    """Return the modules that a kernel has built in, from its System.map: those that have an initcall. Their names are
    as in /proc/modules; of a table that is no kernel's, the first ones are returned."""
    found = (match[1] for match in _INITCALL_OF.finditer(system_map))
    return frozenset(itertools.islice(found, _MOST_MODULES))


def expected_messages(built_in: Iterable[str] = ()) -> tuple[re.Pattern[str], ...]:
    """Return the messages of a smaller machine that have a known reason: data/expected_messages.toml. `built_in`:
    modules that its kernel has built in, of which some rows speak; without them those rows are left out."""
    patterns = [row["pattern"] for row in toml_files.own_table("expected_messages")["message"]]
    names = "|".join(re.escape(name).replace("_", "[-_]") for name in sorted(built_in))
    return tuple(
        re.compile(one.replace(_BUILT_IN, f"(?:{names})")) for one in patterns if names or _BUILT_IN not in one
    )


def shape(name: str) -> str:
    """Return a name without what is made up anew each time, so that those of two runs can be compared."""
    return _MADE_UP.sub("#", name)


def new_lines(
    after: Iterable[str],
    before: Iterable[str],
    expected: Iterable[re.Pattern[str]] = (),
    plain: Callable[[str], str] = lambda line: _NUMBERS.sub("#", line),
) -> Iterator[str]:
    """Yield the lines of `after` that equal none of `before` once both are made `plain`: each once, in order.

    `plain`: by default without numbers. `expected`: messages that a smaller machine is known for
    (data/expected_messages.toml)."""
    known, patterns = {plain(line) for line in before}, tuple(expected)
    for line in after:
        if plain(line) not in known and not any(pattern.search(line) for pattern in patterns):
            known.add(plain(line))
            yield line
