# SPDX-License-Identifier: Apache-2.0
"""Name the option of the kernel behind each line and hot spot, and the options that nothing in the log uses."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from vmtailor.analysis.bootlog.silences import told_by_what_follows
from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.printk.message_index import KIND_BOOL, KIND_MODULE, MessageIndex, Origin, index
from vmtailor.model.boots.timeline import Hotspot, PhaseName, PrintedLine, Timeline, UnusedOption

Messages = Sequence[tuple[int | None, str]]

#: Different lines that are looked up; a boot has a tenth of them, and a log that goes on for weeks says little of it.
MOST_ASKED = 6_000
#: Names of files and folders that say nothing about what is in them.
_PLAIN = frozenset({
    "base", "block", "bus", "char", "class", "common", "conn", "core", "dev", "driver", "drivers", "drv", "fs", "init",
    "inode", "kernel", "lib", "main", "misc", "mm", "mod", "module", "net", "probe", "proto", "setup", "super", "sysfs",
})  # fmt: skip
_TOKEN = re.compile(r"[a-z0-9_]{2,}")


def with_origins(timeline: Timeline, messages: Messages) -> Timeline:
    """Return the timeline with the origins of its lines and hot spots, and with the options that the log does not use.

    Of a log with stamps only stamped lines are the kernel's."""
    stamped = any(at_us is not None for at_us, _ in messages)
    kernel = [(at_us, text) for at_us, text in messages if at_us is not None or not stamped]
    if not kernel and not timeline.initcalls:
        return timeline
    known = index()
    version = timeline.kernel.version
    origins: dict[str, Origin | None] = {}
    rows = []
    for at_us, text in kernel:
        if text not in origins and len(origins) < MOST_ASKED:
            origins[text] = known.origin(text, version, timeline.kernel.arch)
        rows.append((at_us, text, origins.get(text)))
    lines = tuple(
        PrintedLine(at_us, text, origin.options, origin.path) for at_us, text, origin in rows if origin is not None
    )
    spots = tuple(_named(spot, timeline, known, origins) for spot in timeline.hotspots)
    return msgspec.structs.replace(
        timeline, hotspots=spots, lines=lines, unused=tuple(_unused(timeline, known, rows, messages))
    )


def _named(spot: Hotspot, timeline: Timeline, known: MessageIndex, origins: dict[str, Origin | None]) -> Hotspot:
    """Return a hot spot with the option it comes from: of a silence, that of the line before it."""
    origin = None
    if spot.kind == "initcall":
        origin = known.of_initcall(spot.name.partition(" [")[0])
    elif spot.kind == "gap" and spot.times == 1:
        gap = next((gap for gap in timeline.gaps if gap.start_us == spot.start_us), None)
        if gap is not None and not told_by_what_follows(gap):
            if gap.before not in origins:
                origins[gap.before] = known.origin(gap.before, timeline.kernel.version, timeline.kernel.arch)
            origin = origins[gap.before]
    if origin is None:
        return spot
    return msgspec.structs.replace(spot, options=origin.options, source=origin.path)


Row = tuple[int | None, str, Origin | None]


def _unused(timeline: Timeline, known: MessageIndex, rows: Sequence[Row], messages: Messages) -> Iterator[UnusedOption]:
    """Yield the options whose lines only say that they were set up, and that nothing else names or needs."""
    kernel = timeline.phase(PhaseName.KERNEL)
    end_us = kernel.end_us if kernel is not None else None
    first: dict[str, tuple[int | None, str, Origin]] = {}
    used: set[str] = set()
    for at_us, text, origin in rows:
        if origin is None or not origin.options:
            continue
        early = end_us is None or at_us is None or at_us <= end_us
        if origin.begins and early and len(origin.options) == 1:
            first.setdefault(origin.options[0], (at_us, text, origin))
        else:
            used.update(origin.options)
    used |= _needed_by(used, known)
    announced = {text for at_us, text, origin in rows if origin is not None and origin.begins}
    others = _words([
        *(text for _, text in messages if text not in announced), timeline.kernel.command_line or "",
        *(unit.name for unit in timeline.units), *(process.name for process in timeline.processes),
        *(module.name for module in timeline.modules),
    ])  # fmt: skip
    for option, (at_us, text, origin) in first.items():
        if option in used or option in _always() or timeline.config.get(option, "y") != "y":
            continue
        if not _can_go(option, known) or not others.isdisjoint(_own_words(text, origin)):
            continue
        selectors = known.selected_by(option)
        if used.intersection(selectors):
            continue
        held = tuple(one for one in selectors if one in first or timeline.config.get(one) in ("y", "m"))
        yield UnusedOption(
            option=option,
            at_us=at_us,
            text=text,
            source=origin.path,
            command=f"vmtailor boot BUNDLE --try {option}=n",
            held_by=held,
        )


def _needed_by(used: Iterable[str], known: MessageIndex) -> set[str]:
    """Return the options that some depend on, through however many others."""
    found: set[str] = set()
    pending = list(used)
    while pending:
        for other in known.depends_on(pending.pop()):
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def _can_go(option: str, known: MessageIndex) -> bool:
    """Return whether an option is a driver, a file system or a protocol, or a part of one: others are the machine."""
    if known.kind(option) == KIND_MODULE:
        return True
    return known.kind(option) == KIND_BOOL and any(known.kind(one) == KIND_MODULE for one in known.depends_on(option))


def _own_words(text: str, origin: Origin) -> set[str]:
    """Return the words by which other lines would name what a line is about."""
    folder, stem = posixpath.split(posixpath.splitext(origin.path)[0])
    prefix = text.partition(":")[0] if ":" in text[:24] else text.partition(" ")[0]
    names = {posixpath.basename(folder), stem, stem.replace("_", ""), *_TOKEN.findall(prefix.lower())}
    return {name.lower() for name in names} - _PLAIN


def _words(texts: Iterable[str]) -> set[str]:
    words = {word for text in texts for word in _TOKEN.findall(text.lower())}
    return words | {word.rstrip("0123456789") for word in words}  # loop0 is of loop


@cache
def _always() -> frozenset[str]:
    """Return the options that the catalogue gives every machine."""
    return frozenset(name for entry in symbol_catalogue.load().entries for name, value in entry.symbols if value != "n")
