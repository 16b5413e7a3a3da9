# SPDX-License-Identifier: Apache-2.0
"""Hold what one file says about one boot, before it is judged: the common result of all readers."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

import msgspec

from vmtailor.model.architecture import every
from vmtailor.model.boots.timeline import PhaseSpan, Process, UnitSpan, UseSample, Warn, WarningCode

#: Messages kept for matching against the catalogue of advice; a log can have millions.
MAX_MESSAGES = 20_000
#: A kernel whose first line is later than this counts from its firmware's start.
LATE_US = 1_000_000
#: Between stamps of whole seconds, shorter stretches say nothing: each may be off by a second.
RESOLVED_US = 2_000_000
#: Interval between notes of how much was printed, and notes kept at most.
PRINTED_EVERY_US, MOST_PRINTED = 10_000, 20_000
#: Characters kept of one message.
MAX_TEXT = 400


_ARCHES = (
    {"aarch64": "arm64", "ppc64-le": "ppc64le", "powerpc64le": "ppc64le"}
    | {word: name for row in every() for word, name in row.log.names.items()}
)  # fmt: skip
#: How `uname -m` calls a kernel of 32 bits by the version of its processor: armv7l, armv6hf.
_ARM = re.compile(r"armv\d\w{0,10}")


def architecture(word: str) -> str:
    """Return one name for one architecture, as `uname -m` and Kconfig call it: arm64, arm, riscv64 …"""
    return _ARCHES.get(word) or ("arm" if _ARM.fullmatch(word) else word)


class RawCall(msgspec.Struct, gc=False):
    """An initcall as the log has it. Stamps in microseconds; `order` is the number of its first line."""

    name: str
    module: str | None
    start_us: int | None
    end_us: int | None
    reported_us: int | None
    returned: int | None
    task: int | None
    level: str | None
    asynchronous: bool
    finished: bool
    characters: int = 0  # printed between its two lines, its own included; with `base_us`, what that line was longer
    base_us: int | None = None  # stamp of the last `calling` before it returned, where that was of another call


class RawProbe(msgspec.Struct, gc=False):
    """A `probe of …` line. `caller` is what printk's caller field says, such as T25."""

    device: str
    end_us: int | None
    reported_us: int
    returned: int
    caller: str | None


class Gap(msgspec.Struct, gc=False):
    """A stretch without a message, the message it followed, and the one that ended it."""

    start_us: int
    end_us: int
    text: str
    after: str = ""


@dataclass
class Observed:
    """Everything one reader found. Times in microseconds on the kernel's clock, unless `epoch` is set: then on the wall
    clock (microseconds since 1970), to be joined by whoever knows the offset; or `relative` is set: zero is the file's
    first event."""

    path: str
    format: str = ""  # as it is shown
    is_log: bool = True  # False: it says nothing about a boot
    version: str | None = None
    arch: str | None = None
    command_line: str | None = None
    hypervisor: str | None = None
    clocksource: str | None = None
    clocksource_switch_us: int | None = None
    initcalls: list[RawCall] = field(default_factory=list)
    probes: list[RawProbe] = field(default_factory=list)
    marks: dict[str, tuple[int, str]] = field(default_factory=dict)
    phases: list[PhaseSpan] = field(default_factory=list)
    units: list[UnitSpan] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    samples: list[UseSample] = field(default_factory=list)
    messages: list[tuple[int | None, str]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    symbols: dict[int, str] = field(default_factory=dict)  # address → function of the kernel
    warnings: list[Warn] = field(default_factory=list)
    first_us: int | None = None
    last_us: int | None = None
    first_line_seen: bool = False
    clock_from_us: int | None = None  # the clock was set to this while the kernel began, and then ran
    clock_set_us: int | None = None  # what it said before
    kernel_log: bool = False
    stamped: bool = False
    in_initrd: bool = False  # a service manager's welcome named its initial RAM disk
    pending: dict[str, str] = field(default_factory=dict)  # marks of lines without a stamp, for the next that has one
    login_after_us: int | None = None  # the last stamp before a login prompt that has none
    closing: bool = False  # it says that the machine goes down
    loader: bool = False  # lines of a firmware or loader stand before the kernel's
    coarse: bool = False  # stamps of whole seconds
    arrived: bool = False  # early lines are stamped when the journal read them, not when they were said
    milliseconds: bool = False  # initcalls say "msecs"
    rough: bool = False  # the line under way is stamped to the second
    rough_us: set[int] = field(default_factory=set)  # moments that are known to the second only
    lines: int = 0
    characters: int = 0
    printed: list[tuple[int, int]] = field(default_factory=list)  # moment, and characters before it; not every line's
    epoch: bool = False
    relative: bool = False
    has_stages: bool = False  # its units are the stages of cloud-init
    charted_total_us: int | None = None  # what a bootchart shows: from the first process to the last sample
    printed_total_us: int | None = None  # what systemd gave as the sum of its phases
    epoch_zero_us: int | None = None  # wall-clock microseconds of the kernel clock's zero, where the file tells

    def prints(self, at_us: int) -> None:
        """Note that a line is printed now. How much was printed before is kept now and then."""
        if self.printed and at_us - self.printed[-1][0] < PRINTED_EVERY_US:
            return
        if len(self.printed) >= MOST_PRINTED:
            del self.printed[1::2]
        self.printed.append((at_us, self.characters))

    def not_printed(self, characters: int) -> None:
        """Take back that the last line, of so many characters, was printed: it went to the journal alone, and no
        console waited for it. 0: it was printed."""
        self.lines -= bool(characters)
        self.characters -= characters

    def characters_until(self, end_us: int | None) -> int:
        """Return how much was printed up to a moment; all of it without one."""
        if end_us is None:
            return self.characters
        place = bisect_right(self.printed, end_us, key=lambda one: one[0])
        return self.printed[place][1] if place < len(self.printed) else self.characters

    @property
    def kernel_lines(self) -> bool:
        """Return whether a kernel itself said anything that is known."""
        return bool(
            self.first_line_seen or self.version or self.command_line or self.initcalls or self.probes
            or not self.marks.keys().isdisjoint(("run-any", "freed"))
        )  # fmt: skip

    @property
    def kernel_seen(self) -> bool:
        """Return whether anything in it is surely the kernel's or comes after it."""
        return bool(
            self.first_line_seen or self.version or self.command_line or self.initcalls or self.probes or self.phases
            or not self.marks.keys().isdisjoint(("run-any", "freed", "systemd-first", "switch-root"))
        )  # fmt: skip

    def warn(self, code: WarningCode, text: str) -> None:
        """Add a warning once per code and text."""
        warning = Warn(str(code), text)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def mark(self, name: str, at_us: int | None, source: str, *, last: bool = False) -> None:
        """Note a moment; the first of a name counts, or the last."""
        if at_us is not None and (last or name not in self.marks):
            self.marks[name] = (at_us, source[:MAX_TEXT])
            if self.rough:
                self.rough_us.add(at_us)
