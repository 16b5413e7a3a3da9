# SPDX-License-Identifier: Apache-2.0
"""The catalogue of changes: one file each in data/changes, read and checked.

A file says how to recognise that the change would help (`[[match]]`, `[[unless]]`), for which families of processors
(`processors`: "all", or their names) it is. It says what must be seen before it speaks (`[[seen]]`, one of which must
hold) and what it is never said to (`[[never]]`, none of which may hold): remedy_audience.py has their keys. It says
what it costs and risks, the ways to make it, in words (`[[way]]`, each with a table `needs` of its own where it is not
for all these machines or signs), what others measured (`published`), and how it is tried (`[[trial]]`), or why no trial
is possible (`untried`, one line). Of a trial:

    id       the file's own where it is left out; of several trials of one file each has its own
    does     what is done, in words
    processors  where it is for fewer families than the file
    hardware what both machines of the trial have: names of data/hardware.toml; with a `-` before it, what they lack
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.analysis.changes import trial_hardware
from vmtailor.analysis.changes.remedy_audience import Audience, Condition, condition_of
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.errors import VmtailorError
from vmtailor.base.notation import version_key
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


@dataclass(frozen=True)
class Match:
    """One sign that a change would help. `pattern` must match a name whole, or a part of a message; `to` ends a span,
    or is in the message that ends a silence; `value` is of a symbol. `phase`: a unit must begin in it. `beside`: a unit
    counts, too, that is known to have run beside the boot."""

    kind: str
    pattern: re.Pattern[str]
    min_us: int = 0
    to: re.Pattern[str] | None = None
    value: re.Pattern[str] | None = None
    phase: str = ""
    beside: bool = True


@dataclass(frozen=True)
class Way:
    """One way to make the change, in words, for kernels from `from_version` up to but without `until_version`."""

    kind: ChangeKind
    what: str
    from_version: str = ""
    until_version: str = ""
    needs: tuple[Condition, ...] = ()


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
    `processors`: the families that it is for, where they are fewer than the file's. `hardware`: what both machines of
    its trial have, or lack (analysis/changes/trial_hardware.py).
    `parts`: several that are tried as one, which has nothing else of its own then."""

    change: Change
    advice: str = ""
    timeline: InTimeline = InTimeline()
    cost: InCost = InCost()
    parts: tuple[Candidate, ...] = ()
    processors: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()

    @property
    def single(self) -> tuple[Candidate, ...]:
        """Return each of its parts by itself, or itself."""
        return self.parts or (self,)


@dataclass(frozen=True)
class KnownChange:
    """One change of the catalogue. `processors`: the families that it is for, empty for all. `gone` says why kernels
    from `until_version` on do not need it. `untried` says why no trial is possible, where there are no `trials`."""

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
    audience: Audience = field(default_factory=Audience)
    published: tuple[str, ...] = ()
    untried: str = ""


def _match(raw: dict[str, Any]) -> Match:
    if raw["kind"] not in MATCH_KINDS:
        raise ValueError(f"unknown kind of match {raw['kind']!r}")
    return Match(
        kind=raw["kind"],
        pattern=re.compile(bounded(raw["pattern"])),
        min_us=int(raw.get("min_us", 0)),
        to=re.compile(bounded(raw["to"])) if "to" in raw else None,
        value=re.compile(bounded(raw["value"])) if "value" in raw else None,
        phase=raw.get("phase", ""),
        beside=raw.get("beside", True),
    )


def _audience(raw: dict[str, Any]) -> Audience:
    seen, never = (tuple(condition_of(one) for one in raw[name]) for name in ("seen", "never"))
    if not seen or not never:
        raise ValueError("it says not what must be seen, or not what it is never said to")
    return Audience(seen, never)


def settings_of(tables: Mapping[str, Any], name: str) -> tuple[Setting, ...]:
    """Return the settings in the tables of a change, one a kind of setting. Raises ValueError for an unknown kind, and
    where there are none; TypeError for a value that is none."""
    found = tuple(
        Setting(ChangeKind(kind), key, _value(value)) for kind, table in tables.items() for key, value in table.items()
    )
    if not found:
        raise ValueError(f"{name} sets nothing")
    return found


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
    hardware = tuple(raw.pop("hardware", ()))
    if unknown := [one for one in hardware if not trial_hardware.is_known(one)]:
        raise ValueError(f"the trial {name} has unknown hardware: {', '.join(unknown)}")
    # Anything that is no id and no place to read from is a kind; ChangeKind raises for an unknown one.
    settings = settings_of(raw, f"the trial {name}")
    reason = Reason(Cause.ADVICE, f"advice:{entry}", title)
    change = Change(name, does, settings, (reason,))
    return Candidate(change, entry, timeline, cost, processors=processors, hardware=hardware)


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
                needs=(condition_of(w["needs"]),) if "needs" in w else (),
            )
            for w in raw["way"]
        )
        if raw["id"] != path.stem or raw["saving"] not in SAVINGS:
            raise ValueError("its id is not its file's name, or its saving is unknown")
        untried = raw.get("untried", "")
        if bool(untried) is bool(raw.get("trial")) or "\n" in untried:
            raise ValueError("it needs either a trial, or one line that says why none is possible (untried)")
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
            audience=_audience(raw),
            published=tuple(raw.get("published", ())),
            untried=untried,
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
