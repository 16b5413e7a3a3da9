# SPDX-License-Identifier: Apache-2.0
"""A change: one reversible step away from the baseline, with its cause, its effects and a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from vmtailor.model.evidence import Evidence


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDECIDED = "undecided"


class Cause(StrEnum):
    """The causes of a change. Direct causes name a record; a dependency names the symbol that needs it."""

    DEMANDED = "demanded"
    PLATFORM = "platform"
    POLICY = "policy"
    MARGIN = "margin"  # kept beyond what was demanded: what the image could ask, what servers usually need
    DEPENDENCY = "dependency"
    REPAIR = "repair"  # a trial showed that it is needed, or is not
    ADVICE = "advice"  # the catalogue's advice
    USER = "user"  # asked for by name


class ChangeKind(StrEnum):
    """The kinds of settings. pipeline/change_means.py applies each."""

    CONFIG = "config"  # a configuration symbol
    COMMAND_LINE = "command-line"  # a word of the kernel's command line
    ROOTFS = "rootfs"  # initial RAM disk, or a file on the disk: its path, and its content
    INIT = "init"
    UNIT = "unit"  # of the service manager
    RUNTIME = "runtime"  # sysctl, sysfs
    MACHINE = "machine"  # an option of the machine or its monitor
    COMPILER = "compiler"
    KERNEL_VERSION = "kernel-version"
    PATCH = "patch"  # of the kernel's source: the id of one of data/patches, and its digest


#: The kinds that another kernel is compiled for, beside symbols.
COMPILED = (ChangeKind.COMPILER, ChangeKind.PATCH)


class Figure(StrEnum):
    """The figures that an effect can be on. Instructions are executed ones; net ones exclude the loops that only
    emulation causes."""

    INIT_INSTRUCTIONS = "instructions, kernel entry to init"
    INIT_INSTRUCTIONS_NET = "instructions, kernel entry to init, net"
    BEFORE_KERNEL = "instructions, reset to kernel entry, net"
    TRACE_INSTRUCTIONS = "instructions, the whole trace"
    KERNEL_BYTES = "kernel file"
    SYMBOLS = "symbols with a prompt"
    READY = "time of ready"  # on the clock that is judged by
    REQUEST_KERNEL = "kernel instructions a request"  # of the load; the client's own are left out
    REQUEST = "kernel and user instructions a request"
    P50 = "latency under load, p50"  # of the load at a rate, in virtual time
    P90 = "latency under load, p90"
    P99 = "latency under load, p99"
    P999 = "latency under load, p99.9"
    WALL = "host time to ready"
    CPU = "QEMU's processor time to ready"


UNITS = {
    **{figure: "instructions" for figure in Figure if figure.startswith("instructions")},
    Figure.KERNEL_BYTES: "bytes",
    Figure.SYMBOLS: "",
    **dict.fromkeys((Figure.READY, Figure.WALL, Figure.CPU), "s"),
    **{figure: "s" for figure in Figure if figure.startswith("latency")},
    **dict.fromkeys((Figure.REQUEST_KERNEL, Figure.REQUEST), "instructions"),
}


@dataclass(frozen=True)
class Reason:
    """`text` says why; `reference` resolves to a record: `policy:ID`, `platform:ID`, `trace:…` or `symbol:NAME`."""

    cause: Cause
    reference: str
    text: str


@dataclass(frozen=True)
class Setting:
    """One thing that is set. `name` is a symbol (without CONFIG_), a word's part before `=`, a unit, an option;
    `value` is what it is set to (y, m, n, a number or a string; "" for a word without a value), None: it is taken
    away. `before` is what stood there, None: nothing. `chosen`: False where it cannot be set by itself and follows
    from other settings."""

    kind: ChangeKind
    name: str
    value: str | None
    before: str | None = None
    chosen: bool = True

    @property
    def back(self) -> Setting:
        """Return the setting that restores what stood there."""
        return replace(self, value=self.before, before=self.value)

    @property
    def is_file(self) -> bool:
        """Return whether it is the content of a file on the system's disk, whose path is the name."""
        return self.kind is ChangeKind.ROOTFS and self.name.startswith("/")

    def __str__(self) -> str:
        if self.value is None:
            return f"without {self.name}"
        if self.is_file:
            return f"{self.name}, of {len(self.value.encode())} bytes"
        if self.kind is ChangeKind.PATCH:
            return f"patch {self.name}"
        return f"{self.name}={self.value}" if self.value else self.name


@dataclass(frozen=True)
class Effect:
    """By how much a figure changes, in `unit`; less is negative. `low` and `high` are the 95 % interval of `value`,
    equal to it where the figure is exact. `source` is what it was read from."""

    figure: Figure
    value: float
    low: float
    high: float
    unit: str
    source: str = ""


def exact(figure: Figure, value: float, source: str = "") -> Effect:
    """Return an effect without an interval."""
    return Effect(figure=figure, value=value, low=value, high=value, unit=UNITS[figure], source=source)


@dataclass(frozen=True)
class Change:
    """`id` names it: a symbol, a word, an id of the catalogue. `does` says what is done, for a person. `evidence`: what
    was seen of it on the baseline. `expected` was read before it was tried, `measured` after; the first of them is what
    the verdict is on. `problem`: why it could not be tried, or what no longer worked."""

    id: str
    does: str
    settings: tuple[Setting, ...]
    reasons: tuple[Reason, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    expected: tuple[Effect, ...] = ()
    measured: tuple[Effect, ...] = ()
    verdict: Verdict = Verdict.UNDECIDED
    problem: str = ""

    @property
    def setting(self) -> Setting:
        """Return the only setting of a change that has one."""
        (only,) = self.settings
        return only

    @property
    def value(self) -> str:
        """Return the value that a symbol is set to."""
        return "n" if self.setting.value is None else self.setting.value

    @property
    def takes_away(self) -> bool:
        """Return whether less is there with it: a symbol is n, a unit is masked."""
        units = [setting for setting in self.settings if setting.kind is ChangeKind.UNIT]
        return bool(units) or (self.sets_symbol and self.value == "n")

    @property
    def back(self) -> Change:
        """Return the change that takes this one back, once it was applied: its settings the other way round."""
        return Change(self.id, f"taken back: {self.does}", tuple(setting.back for setting in reversed(self.settings)))

    @property
    def sets_symbol(self) -> bool:
        """Return whether it is a symbol of the configuration, and nothing else."""
        return len(self.settings) == 1 and self.settings[0].kind is ChangeKind.CONFIG

    @property
    def is_kept(self) -> bool:
        """Return whether it is a symbol that is in the kernel as code (y or m). Numbers, strings and n are not."""
        return self.sets_symbol and self.setting.value in ("y", "m")

    def expects(self, figure: Figure) -> Effect | None:
        return next((effect for effect in self.expected if effect.figure is figure), None)

    def measures(self, figure: Figure) -> Effect | None:
        return next((effect for effect in self.measured if effect.figure is figure), None)

    def saves(self, figure: Figure) -> int:
        """Return the saving expected of a figure that counts; 0 where nothing is expected."""
        found = self.expects(figure)
        return -round(found.value) if found is not None else 0


def symbol(name: str, value: str, *reasons: Reason, before: str | None = None, chosen: bool = True) -> Change:
    """Return a symbol of the configuration as a change."""
    return Change(
        name,
        "",
        (Setting(kind=ChangeKind.CONFIG, name=name, value=value, before=before, chosen=chosen),),
        tuple(reasons),
    )
