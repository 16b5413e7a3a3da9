# SPDX-License-Identifier: Apache-2.0
"""Milestones of a boot from its console, whose lines carry host times: what each line means, and the kernel's clock
joined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vmtailor.base.text import without_escapes
from vmtailor.model.boots.boot import Milestone

_STAMP = re.compile(r"(?:^|(?<=[^\d]))\[ *(\d{1,6}\.\d{6})\](?:\[ *[TC]\d+\])? ?")
#: A guest whose console says so will not get ready any more; what it means, for a person.
DEAD_ENDS = (
    (re.compile(r"Kernel panic - not syncing: ?(.*)"), "the kernel panicked: {}"),
    (re.compile(r"^\(initramfs\) *$"), "the initial RAM disk gave up and opened a shell"),
    (re.compile(r"You are in (?:rescue|emergency) mode"), "systemd went into emergency mode"),
    (
        re.compile(r"^(?:Boot failed|No bootable device|error: no such (?:partition|device))"),
        "no system to boot was found",
    ),
)

#: Milestone, the line that means it, and whether the last such line counts.
MARKS = (
    ("loader", re.compile(r"^(?:GRUB loading|Welcome to GRUB|SYSLINUX|Booting `)"), False),
    ("initrd", re.compile(r"Run /init as init process"), False),
    ("root mounted",
     re.compile(r"(?:EXT4-fs|XFS|BTRFS|erofs).{0,200}\bmount(?:ed|ing V5) (?:filesystem|with root)"), False),
    ("init", re.compile(r"(?:Run /(?:usr/)?(?:s?bin|lib/systemd|\.vmtailor)/\S+ as init process"
                        r"|systemd\[1\]: systemd \d.{0,200} running in system mode)"), True),
    ("login", re.compile(r"^[\w.() -]{0,80}login: ?"), False),
    ("systemd finished", re.compile(r"Startup finished in "), False),
)  # fmt: skip


@dataclass(frozen=True)
class MarkLine:
    """One message of the console: host time, the kernel's own time where it has a stamp, clean text without the
    stamp."""

    wall_s: float
    guest_s: float | None
    text: str


def lines_of(timed: Iterable[tuple[float, str]]) -> list[MarkLine]:
    """Return clean lines; one that a kernel message was printed into (behind a prompt, say) becomes two."""
    found = []
    for wall_s, raw in timed:
        text = without_escapes(raw)
        stamps = list(_STAMP.finditer(text))[:8]
        if not stamps or stamps[0].start() > 0:
            head = text[: stamps[0].start()] if stamps else text
            found.append(MarkLine(wall_s, None, head))
        for number, stamp in enumerate(stamps):
            end = stamps[number + 1].start() if number + 1 < len(stamps) else len(text)
            found.append(MarkLine(wall_s, float(stamp[1]), text[stamp.end() : end]))
    return found


def kernel_zero(lines: Sequence[MarkLine]) -> float | None:
    """Return the host time of the kernel clock's zero; None without stamps. A line shows up when it is printed or
    later, so the smallest difference is the truest."""
    return min((line.wall_s - line.guest_s for line in lines if line.guest_s is not None), default=None)


def ns(seconds: float | None) -> int | None:
    """Return seconds as whole nanoseconds."""
    return None if seconds is None else round(seconds * 1e9)


def milestones(lines: Sequence[MarkLine], extra: Sequence[tuple[str, re.Pattern[str]]] = ()) -> tuple[Milestone, ...]:
    """Return what the console tells of a boot, in the order of time. `extra`: milestones of the user's own. A stamped
    line is placed by its stamp, since lines may be printed late."""
    zero = kernel_zero(lines)
    found: dict[str, Milestone] = {}
    if zero is not None:
        found["kernel"] = Milestone(
            name="kernel", executed=None, virtual_ns=0, wall_s=max(zero, 0.0), source="zero of the kernel's clock"
        )
    for line in lines:
        for name, pattern, last in (*MARKS, *((name, pattern, False) for name, pattern in extra)):
            if (name not in found or last) and pattern.search(line.text):
                wall = line.wall_s
                if line.guest_s is not None and zero is not None:
                    wall = min(wall, zero + line.guest_s)
                found[name] = Milestone(
                    name=name, executed=None, virtual_ns=ns(line.guest_s), wall_s=wall, source=line.text.strip()[:120]
                )
    return tuple(sorted(found.values(), key=lambda m: m.wall_s or 0.0))


def line_with(lines: Sequence[MarkLine], said: str) -> MarkLine | None:
    """Return the first line that has what a watcher saw of it."""
    wanted = [part.strip() for part in _STAMP.split(without_escapes(said))[::2] if part.strip()]
    return next((line for line in lines if wanted and wanted[-1] in line.text), None)


def guest_time(lines: Sequence[MarkLine], line: MarkLine | None) -> float | None:
    """Return a line's own stamp; for one without, and for what is no line, that of the last stamped line before."""
    before = None
    for one in lines:
        if one.guest_s is not None:
            before = one.guest_s
        if one is line:
            break
    return before


def dead_end(text: str) -> str:
    """Return why a guest that printed this line is lost, or ""."""
    clean = without_escapes(text)
    for pattern, words in DEAD_ENDS:
        if found := pattern.search(_STAMP.sub("", clean)):
            return words.format(found[1].strip()[:200] if found.groups() else "")
    return ""


def grabserial(lines: Iterable[tuple[float, str]]) -> str:
    """Return the console with host times, one line each, as grabserial writes them: `[time delta] text`."""
    out, before = [], 0.0
    for at, text in lines:
        out.append(f"[{at:.6f} {at - before:.6f}] {text}")
        before = at
    return "\n".join(out) + "\n"
