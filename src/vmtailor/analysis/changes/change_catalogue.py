# SPDX-License-Identifier: Apache-2.0
"""The catalogue of changes: one file each in data/changes, read and checked.

A file says how to recognise that the change would help (`[[match]]`, `[[unless]]`), for which families of processors
(`processors`: "all", or their names) and on which machines (`[[needs]]`, one of which must be met), what it costs and
risks, the ways to make it, in words (`[[way]]`, each with a table `needs` of its own where it is not for all these
machines), what others measured (`published`), and how it is tried (`[[trial]]`, where it can be).
Of a trial:

    id       the file's own where it is left out; of several trials of one file each has its own
    does     what is done, in words
    processors  where it is for fewer families than the file
    KIND     one table a kind of setting (model/change.py): name = value. `true`: a word without a value; `false`: away
    timeline what the saving is read from in a boot that shows more of itself: processes, units, modules, initcalls
             (names, whole, as patterns), `console`, `initrd` (its phase, less what it waits for), `advice` (what
             `analyze` expects)
    cost     what the saving in instructions is read from in a boot's cost: symbols, files, functions (themselves);
             initcalls, with all they called; helpers, programs that the kernel starts before init: "all", or those "for
             tests" of the crypto manager; `share`: so much of all that
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.errors import VmtailorError
from vmtailor.base.notation import version_key
from vmtailor.model.boots.timeline import MachineInfo, MachineKind
from vmtailor.model.change import Cause, Change, ChangeKind, Reason, Setting

FOLDER = Path(__file__).resolve().parents[2] / "data" / "changes"

#: Things that a match looks at.
MATCH_KINDS = frozenset(
    {
        "initcall",
        "probe",
        "message",
        "late-message",
        "unit",
        "config",
        "config-unset",
        "command-line",
        "gap",
        "silence",
        "span",
        "phase",
        "phase-length",
        "console",
        "deferral",
        "absent-probe",
        "module",
        "waiting",
        "arch",
    }
)
#: The value of `processors` in a change for all of them.
ALL_PROCESSORS = "all"
#: Ways to compute the saving (docs/reference/advice.md).
SAVINGS = frozenset(
    {
        "exclusive",
        "phase-part",
        "phase-over",
        "console",
        "gap",
        "unit",
        "deferral",
        "module",
        "printing",
        "none",
    }
)
#: Kinds in words for people.
SPOKEN = {
    **{kind: kind.value for kind in ChangeKind},
    ChangeKind.CONFIG: "configuration",
    ChangeKind.COMMAND_LINE: "command line",
    ChangeKind.ROOTFS: "root file system",
    ChangeKind.KERNEL_VERSION: "kernel version",
}


_MACHINES = {str(kind): kind for kind in MachineKind if kind is not MachineKind.VIRTUAL}


@dataclass(frozen=True)
class Needs:
    """Conditions of a change, all of which must hold. A wanted fact must be seen in the log; an unwanted one must not.

    `virtual`: a hypervisor is there (or none is). `hypervisors`: it is one of these. `kinds`: the machine is of one of
    these; `no_kinds`: of none of these. `has` and `lacks` are words of data/boot_facts.toml. `arch`: the processor's
    family is one of these, where it is known."""

    virtual: bool | None = None
    hypervisors: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    no_kinds: tuple[str, ...] = ()
    cpus_at_least: int | None = None
    cpus_at_most: int | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()

    def met(self, machine: MachineInfo, arch: str | None) -> bool:
        """Return whether this machine meets the conditions."""
        virtual = machine.hypervisor is not None
        return all(
            (
                self.virtual is None or self.virtual == virtual,
                not self.hypervisors or machine.hypervisor in self.hypervisors,
                not self.kinds or machine.kind in self.kinds,
                machine.kind not in self.no_kinds,
                self.cpus_at_least is None or (machine.cpus is not None and machine.cpus >= self.cpus_at_least),
                self.cpus_at_most is None or (machine.cpus is not None and machine.cpus <= self.cpus_at_most),
                set(self.has) <= set(machine.has),
                not set(self.lacks) & set(machine.has),
                not self.arch or arch is None or arch in self.arch,
            )
        )

    def words(self) -> str:
        """Return the conditions as words for a person."""
        parts = []
        if self.virtual is not None:
            parts.append("a virtual machine" if self.virtual else "no virtual machine")
        if self.hypervisors:
            parts.append(f"hypervisor {' or '.join(self.hypervisors)}")
        if self.kinds:
            parts.append(f"a {' or '.join(self.kinds)}")
        if self.no_kinds:
            parts.append(f"no {', no '.join(self.no_kinds)}")
        if self.cpus_at_least is not None:
            parts.append(f"at least {self.cpus_at_least} CPUs")
        if self.cpus_at_most is not None:
            parts.append(f"at most {self.cpus_at_most} CPU{'s' if self.cpus_at_most > 1 else ''}")
        parts += [f"seen: {', '.join(self.has)}"] if self.has else []
        parts += [f"not seen: {', '.join(self.lacks)}"] if self.lacks else []
        parts += [f"processors {', '.join(self.arch)}"] if self.arch else []
        return "; ".join(parts)


def needs_of(raw: dict[str, Any]) -> Needs:
    """Return the conditions of a table of data/changes. Its keys: `hypervisor` (true, false, a name or names), a kind
    of machine = true or false, `fips`, `cpus_at_least`, `cpus_at_most`, `has`, `lacks`, `arch`. Raises ValueError for
    another key, TypeError for a value of another type."""
    raw = dict(raw)
    virtual: bool | None = None
    hypervisors: tuple[str, ...] = ()
    hypervisor = raw.pop("hypervisor", None)
    if isinstance(hypervisor, bool):
        virtual = hypervisor
    elif hypervisor is not None:
        hypervisors = _names(hypervisor)
    kinds = [str(_MACHINES[name]) for name in list(raw) if name in _MACHINES and _flag(raw[name])]
    no_kinds = [str(_MACHINES[name]) for name in list(raw) if name in _MACHINES and not _flag(raw[name])]
    for name in (*kinds, *no_kinds):
        del raw[name]
    has, lacks = list(_names(raw.pop("has", ()))), list(_names(raw.pop("lacks", ())))
    if MachineKind.PHONE in no_kinds and "android" not in lacks:
        lacks.append("android")  # boards run a phone's system as well
    if "fips" in raw:
        (has if _flag(raw.pop("fips")) else lacks).append("fips")
    least, most, arch = raw.pop("cpus_at_least", None), raw.pop("cpus_at_most", None), _names(raw.pop("arch", ()))
    if raw:
        raise ValueError(f"unknown need {', '.join(raw)}")
    if not all(isinstance(value, (int, type(None))) for value in (least, most)):
        raise TypeError("a number of CPUs is not a number")
    return Needs(
        virtual=virtual,
        hypervisors=hypervisors,
        kinds=tuple(kinds),
        no_kinds=tuple(no_kinds),
        cpus_at_least=least,
        cpus_at_most=most,
        has=tuple(has),
        lacks=tuple(lacks),
        arch=arch,
    )


def any_met(needs: Sequence[Needs], machine: MachineInfo, arch: str | None) -> bool:
    """Return whether one of several is met; an empty list is met."""
    return not needs or any(one.met(machine, arch) for one in needs)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _names(value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{value!r} is neither a word nor a list of words")
    return tuple(names)


@dataclass(frozen=True)
class Match:
    """One sign that a change would help. `pattern` must match a name whole, or a part of a message; `to` ends a span;
    `value` is of a symbol."""

    kind: str
    pattern: re.Pattern[str]
    min_us: int = 0
    to: re.Pattern[str] | None = None
    value: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Way:
    """One way to make the change, in words, for kernels from `from_version` up to but without `until_version`."""

    kind: ChangeKind
    what: str
    from_version: str = ""
    until_version: str = ""
    needs: tuple[Needs, ...] = ()


@dataclass(frozen=True)
class InTimeline:
    """The rows of a timeline that a saving is read from: names, as whole patterns."""

    processes: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    initcalls: tuple[str, ...] = ()
    console: bool = False
    initrd: bool = False
    advice: bool = False


@dataclass(frozen=True)
class InCost:
    """The rows of a boot's cost that a saving in instructions is read from, as whole patterns. A function counts once,
    by its symbol, its file or its name; an initcall with all that it called."""

    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    initcalls: tuple[str, ...] = ()
    helpers: str = ""  # programs that the kernel starts before init (modprobe): "all", or those "for tests"
    share: float = 1.0  # so much of all that


@dataclass(frozen=True)
class Candidate:
    """A change that can be tried, with where its saving is read from beforehand. `advice` is the id of its file.
    `processors`: the families that it is for, where they are fewer than the file's.
    `parts`: several that are tried as one, which has nothing else of its own then."""

    change: Change
    advice: str = ""
    timeline: InTimeline = InTimeline()
    cost: InCost = InCost()
    parts: tuple[Candidate, ...] = ()
    processors: tuple[str, ...] = ()

    @property
    def single(self) -> tuple[Candidate, ...]:
        """Return each of its parts by itself, or itself."""
        return self.parts or (self,)


@dataclass(frozen=True)
class KnownChange:
    """One change of the catalogue. `processors`: the families that it is for, empty for all. `gone` says why kernels
    from `until_version` on do not need it."""

    id: str
    title: str
    looks: str
    costs: str
    risk: str
    processors: tuple[str, ...]
    saving: str
    confidence: str
    judged_on: str
    from_version: str
    until_version: str
    gone: str
    ways: tuple[Way, ...]
    matches: tuple[Match, ...]
    unless: tuple[Match, ...]
    trials: tuple[Candidate, ...]
    needs: tuple[Needs, ...] = ()
    published: tuple[str, ...] = ()


def _match(raw: dict[str, Any]) -> Match:
    if raw["kind"] not in MATCH_KINDS:
        raise ValueError(f"unknown kind of match {raw['kind']!r}")
    return Match(
        kind=raw["kind"],
        pattern=re.compile(bounded(raw["pattern"])),
        min_us=int(raw.get("min_us", 0)),
        to=re.compile(bounded(raw["to"])) if "to" in raw else None,
        value=re.compile(bounded(raw["value"])) if "value" in raw else None,
    )


def _value(raw: object) -> str | None:
    if isinstance(raw, bool):
        return "" if raw else None
    if not isinstance(raw, str):
        raise TypeError(f"{raw!r} is no text")
    return raw


def processors_of(raw: object) -> tuple[str, ...]:
    """Return the families of processors that a change is for, as logs and rows call them; empty for "all". Raises
    TypeError for another value."""
    if raw == ALL_PROCESSORS:
        return ()
    if not isinstance(raw, list) or not raw or not all(isinstance(name, str) for name in raw):
        raise TypeError(f"processors = {raw!r} is neither {ALL_PROCESSORS!r} nor a list of names")
    return tuple(raw)


def is_for(entry: KnownChange, arch: str | None) -> bool:
    """Return whether a change is for a family of processors. An unknown family counts as one."""
    return not entry.processors or arch is None or arch in entry.processors


def _trial(raw: dict[str, Any], entry: str, title: str) -> Candidate:
    timeline = msgspec.convert(raw.pop("timeline", {}), InTimeline)
    cost = msgspec.convert(raw.pop("cost", {}), InCost)
    name, does = raw.pop("id", entry), raw.pop("does")
    processors = processors_of(raw.pop("processors", ALL_PROCESSORS))
    # Anything that is no id and no place to read from is a kind; ChangeKind raises for an unknown one.
    settings = tuple(
        Setting(ChangeKind(kind), key, _value(value)) for kind, table in raw.items() for key, value in table.items()
    )
    if not settings:
        raise ValueError(f"the trial {name} sets nothing")
    reason = Reason(Cause.ADVICE, f"advice:{entry}", title)
    return Candidate(Change(name, does, settings, (reason,)), entry, timeline, cost, processors=processors)


def read(path: Path) -> KnownChange:
    """Return one file of the catalogue. Raises VmtailorError when it is not as it must be: it is ours."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
        ways = tuple(
            Way(
                kind=ChangeKind(w["kind"]),
                what=w["what"],
                from_version=w.get("from_version", ""),
                until_version=w.get("until_version", ""),
                needs=(needs_of(w["needs"]),) if "needs" in w else (),
            )
            for w in raw["way"]
        )
        if raw["id"] != path.stem or raw["saving"] not in SAVINGS:
            raise ValueError("its id is not its file's name, or its saving is unknown")
        return KnownChange(
            id=raw["id"],
            title=raw["title"],
            looks=raw["looks"],
            costs=raw["costs"],
            risk=raw["risk"],
            processors=processors_of(raw["processors"]),
            saving=raw["saving"],
            confidence=raw["confidence"],
            judged_on=raw.get("judged_on", ""),
            from_version=raw.get("from_version", ""),
            until_version=raw.get("until_version", ""),
            gone=raw.get("gone", ""),
            ways=ways,
            matches=tuple(_match(m) for m in raw["match"]),
            unless=tuple(_match(m) for m in raw.get("unless", ())),
            trials=tuple(_trial(t, raw["id"], raw["title"]) for t in raw.get("trial", ())),
            needs=tuple(needs_of(n) for n in raw.get("needs", ())),
            published=tuple(raw.get("published", ())),
        )
    except (KeyError, ValueError, TypeError, AttributeError, re.error) as error:
        raise VmtailorError(f"the catalogue's file {path.name} is wrong: {error}") from error


@functools.cache
def catalogue() -> tuple[KnownChange, ...]:
    """Return all changes, by id."""
    return tuple(read(path) for path in sorted(FOLDER.glob("*.toml")))


def candidates() -> tuple[Candidate, ...]:
    """Return all changes of the catalogue that can be tried."""
    return tuple(one for known in catalogue() for one in known.trials)


def in_range(version: str | None, from_version: str, until_version: str) -> bool:
    """Return whether a kernel lies in a range. An unknown kernel counts as in it."""
    known = version_key(version) if version else ()
    if not known:
        return True
    if from_version and known < version_key(from_version):
        return False
    return not (until_version and known >= version_key(until_version))
