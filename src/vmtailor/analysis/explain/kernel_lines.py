# SPDX-License-Identifier: Apache-2.0
"""Lines of a kernel's log in a pasted message: the option and the file that printed each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmtailor.analysis.bootlog.formats import read_chunks
from vmtailor.analysis.explain.failure import MOST_CHARACTERS, Recognised
from vmtailor.analysis.printk.message_index import index
from vmtailor.base.text import without_escapes

_MOST_LINES = 40
#: Before a kernel's line in a journal.
_FROM_KERNEL = re.compile(r".{0,80}?\skernel: ")
#: Doubt of a message that was not understood, and of one with an error or a name alone.
_NOT_UNDERSTOOD, _LITTLE = 4, 3


@dataclass(frozen=True)
class PrintedBy:
    """A line of a kernel with its origin. `options`: one of them is needed, none where every kernel has the file.
    `selected_by`: what keeps a single option on. `stamped`: a kernel's log has it, with its time.
    `begins`: it says no more than that something was set up."""

    line: str
    options: tuple[str, ...]
    source: str
    selected_by: tuple[str, ...] = ()
    stamped: bool = False
    begins: bool = False


def printed_lines(message: str) -> tuple[PrintedBy, ...]:
    """Return the lines of a message that a kernel printed, each once, as far as the index knows them."""
    text = without_escapes(message[: 2 * MOST_CHARACTERS])[:MOST_CHARACTERS]
    read = read_chunks("the message", iter([text.encode("utf-8", "replace")]))
    lines = read.messages or [(None, line.strip()) for line in text.splitlines()]
    known = index()
    found: dict[str, PrintedBy] = {}
    for at_us, text_of_line in lines:
        behind = _FROM_KERNEL.match(text_of_line) if at_us is None else None
        stamped = at_us is not None or behind is not None
        line = text_of_line[behind.end() :] if behind is not None else text_of_line
        if line in found or len(found) == _MOST_LINES:
            continue
        origin = known.origin(line, read.version, read.arch)
        if origin is not None:
            selectors = known.selected_by(origin.options[0]) if len(origin.options) == 1 else ()
            found[line] = PrintedBy(line, origin.options, origin.path, selectors, stamped=stamped, begins=origin.begins)
    return tuple(found.values())


def decides(lines: tuple[PrintedBy, ...], read: Recognised) -> bool:
    """Return whether the lines are the answer to a message that was read so: most only say that an option was set
    up, or nothing else was recognised. An error of a program is answered as such."""
    if not lines or read.error:
        return False
    setting_up = 2 * sum(one.begins and bool(one.options) for one in lines) > len(lines)
    return setting_up or read.doubt == _NOT_UNDERSTOOD or (read.doubt == _LITTLE and any(one.stamped for one in lines))
