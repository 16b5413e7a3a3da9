# SPDX-License-Identifier: Apache-2.0
"""Choose the changes to try from what a user types: ids of the catalogue, symbols with values, and several joined by
`+`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from vmtailor.analysis.changes import load_catalogue, own_changes, trial_hardware
from vmtailor.analysis.changes.change_catalogue import (
    SPOKEN,
    Candidate,
    InCost,
    KnownChange,
    candidates,
    catalogue,
    in_range,
)
from vmtailor.base import manual
from vmtailor.base.errors import UserInputError
from vmtailor.model.change import Cause, Change, ChangeKind, Reason, Setting

#: Suffix of a catalogue id that selects its change of the configuration, not of the command line.
CONFIGURATION = "/configuration"
#: A flag of the compiler, and files that init sets.
_FLAG, _FILE = "cc:", own_changes.FILES
#: The name of all changes of the catalogue.
ALL = "all"


def for_machine(wanted: Sequence[str]) -> tuple[Candidate, ...]:
    """Return the changes to try on a machine with an init of its own: by id, or by that of the catalogue's file; `all`
    for every one, also those that no trial is possible of, which say so; own words (own_changes.py). Raises
    UserInputError for an unknown one, and for the id of one that cannot be tried."""
    chosen: dict[str, Candidate] = {}
    for name in wanted:
        if is_joined(name):
            chosen[name] = joined(name, for_machine)
            continue
        if name == ALL:
            found: Sequence[Candidate] = (*candidates(), *untried())
        else:
            found = _by_id(name) or own_changes.on_machine(name, _ids())
        chosen.update((one.change.id, one) for one in found)
    return tuple(chosen.values())


def is_joined(name: str) -> bool:
    """Return whether a name is of several changes that are tried as one. A word in its long form is one word."""
    return "+" in name and not name.startswith((own_changes.WORD, *_FILE))


def untried() -> tuple[Candidate, ...]:
    """Return the changes of the catalogue that no trial is possible of, each with the reason as its problem."""
    return tuple(
        Candidate(Change(one.id, one.title, (), (_advised(one),), problem=one.untried), one.id)
        for one in catalogue()
        if one.untried
    )


def impossible(change: Change) -> str:
    """Return why no trial of a change is possible; "" where one is."""
    return "" if change.settings else change.problem


def _advised(one: KnownChange) -> Reason:
    return Reason(Cause.ADVICE, f"advice:{one.id}", one.title)


def _ids() -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(one.change.id for one in candidates()), *(one.id for one in catalogue())]))


def for_system(wanted: Sequence[str], files: Sequence[tuple[str, str | None]] = ()) -> tuple[Candidate, ...]:
    """Return the changes to try on a fitted system: words and units, by id, since the user who names them must know
    them; settings of the kernel and units of the user's own. Files of its disk are each a path with its content, or
    None to remove it. Raises UserInputError for another change, and for two contents of one file."""
    if ALL in wanted:
        raise UserInputError("`all` cannot be tried on a fitted system", hint="name the changes that you can live with")
    found = for_machine(wanted)
    for one in found:
        if one.hardware:
            raise UserInputError(
                f"{one.change.id} is tried on a machine {trial_hardware.words_for(one.hardware)}: a fit adds nothing",
                hint=f"vmtailor boot DISK --try {one.change.id}",
            )
        for part in one.single:
            if own_changes.is_own_word(part):
                raise UserInputError(
                    f"no change {part.change.id!r} can be tried on a fitted system",
                    hint="an id, sysctl:NAME=VALUE or unit:-UNIT can; vmtailor boot DISK --try tries any word",
                )
        for setting in one.change.settings:
            if setting.kind not in (ChangeKind.COMMAND_LINE, ChangeKind.UNIT):
                raise UserInputError(
                    f"{one.change.id} changes the {SPOKEN[setting.kind]}, but only words and units can change here",
                    hint="vmtailor boot DISK --try tries it on the system's own kernel",
                )
    for path in (path for path, count in Counter(path for path, _ in files).items() if count > 1):
        raise UserInputError(f"{path} is given twice", hint="give each file once")
    return (*found, *(_file(path, content) for path, content in files))


def _file(path: str, content: str | None) -> Candidate:
    asked = Reason(Cause.USER, "user:try", "asked for")
    does = "it is not there" if content is None else "another content"
    return Candidate(Change(f"file:{path}", does, (Setting(ChangeKind.ROOTFS, path, content),), (asked,)))


def _by_id(name: str) -> list[Candidate]:
    """Return the changes of a name. Raises UserInputError for the id of one that no trial is possible of."""
    for one in untried():
        if name == one.change.id:
            raise UserInputError(
                f"{name}: no trial is possible: {one.change.problem}",
                hint=f"{manual.command('advice')} has all remedies",
            )
    return [one for one in candidates() if name in (one.change.id, one.advice)]


def for_bundle(wanted: Sequence[str], kernel_version: str) -> tuple[Candidate, ...]:
    """Return the changes to try on a bundle: as `for_machine`, and `SYMBOL=VALUE`, `ID/configuration`, `cc:FLAG`, files
    of /proc/sys and /sys, and what is tried under load. `all` is every one, those that need another kernel or cannot be
    tried with the reason; `load` is every one that is proposed under load. Raises UserInputError for an unknown one."""
    chosen: dict[str, Candidate] = {}
    for name in wanted:
        chosen.update((one.change.id, one) for one in _for_bundle(name, kernel_version))
    return tuple(chosen.values())


def _typed(name: str) -> list[Candidate]:
    """Return the change that cc:FLAG spells out."""
    asked = Reason(Cause.USER, "user:try", "asked for")
    if name.startswith(_FLAG) and len(name) > len(_FLAG):
        flag, equals, value = name.removeprefix(_FLAG).partition("=")
        setting = Setting(ChangeKind.COMPILER, flag, value if equals else "")
        return [Candidate(Change(name, f"the kernel compiled with {setting}", (setting,), (asked,)))]
    return []


def _for_bundle(name: str, kernel_version: str) -> Sequence[Candidate]:
    if is_joined(name):
        return (joined(name, functools.partial(for_bundle, kernel_version=kernel_version)),)
    if name.startswith(own_changes.CONFIG):
        name = own_changes.symbol(name)
    if match := own_changes.SYMBOL.fullmatch(name):
        asked = Reason(Cause.USER, "user:try", "asked for")
        return (_configured(f"{match[1]}={match[2]}", "", ((match[1], match[2]),), asked),)
    if name == ALL:
        return (*(_without_compile(one) for one in candidates()), *untried())
    if name.endswith(CONFIGURATION):
        return _by_configuration(name, kernel_version)
    named = _by_id(name) or _typed(name) or load_catalogue.named(name)
    return named or own_changes.on_bundle(name, (*_ids(), *(one.id for one in load_catalogue.catalogue())))


def _by_configuration(name: str, kernel_version: str) -> tuple[Candidate, ...]:
    """Return the change of ID/configuration. Raises UserInputError where the file of that id says no values."""
    entry = next((one for one in catalogue() if one.id == name.removesuffix(CONFIGURATION)), None)
    values = _configuration(entry, kernel_version) if entry is not None else ()
    if entry is None or not values:
        configured = [one.id + CONFIGURATION for one in catalogue() if _configuration(one, kernel_version)]
        raise UserInputError(
            f"no change {name!r} can be tried on a bundle",
            hint=f"with another kernel there are: {', '.join(configured)}, or any SYMBOL=VALUE",
        )
    return (_configured(entry.id + CONFIGURATION, entry.id, values, _advised(entry)),)


def _without_compile(one: Candidate) -> Candidate:
    """Return a change of the catalogue as `all` tries it: one that compiles a kernel says its name instead."""
    if not any(setting.kind is ChangeKind.CONFIG for setting in one.change.settings):
        return one
    why = f"it compiles another kernel, which takes minutes: --try {one.change.id}"
    return replace(one, change=replace(one.change, settings=(), problem=why))


def _configured(name: str, advice: str, values: tuple[tuple[str, str], ...], reason: Reason) -> Candidate:
    text = ", ".join(f"{symbol}={value}" for symbol, value in values)
    off = tuple(symbol for symbol, value in values if value == "n")
    settings = tuple(Setting(ChangeKind.CONFIG, symbol, value) for symbol, value in values)
    return Candidate(Change(name, f"the kernel compiled with {text}", settings, (reason,)), advice, cost=InCost(off))


def _configuration(entry: KnownChange, kernel_version: str) -> tuple[tuple[str, str], ...]:
    """Return symbols and values of the first way that is a configuration and says them and nothing else."""
    for way in entry.ways:
        if way.kind is ChangeKind.CONFIG and in_range(kernel_version, way.from_version, way.until_version):
            found = [own_changes.SYMBOL.fullmatch(part.strip()) for part in way.what.split(",")]
            if all(found):
                return tuple((match[1], match[2]) for match in found if match)
    return ()


def joined(name: str, choose: Callable[[Sequence[str]], tuple[Candidate, ...]]) -> Candidate:
    """Return one change of several: of `a+b`, each as `choose` finds it."""
    parts = choose([part.strip() for part in name.split("+") if part.strip()])
    if len(parts) == 1:
        return parts[0]
    hardware = tuple(dict.fromkeys(item for part in parts for item in part.hardware))
    return Candidate(together(name, [part.change for part in parts]), parts=parts, hardware=hardware)


def together(name: str, changes: Sequence[Change]) -> Change:
    """Several changes as one."""
    settings = tuple(setting for change in changes for setting in change.settings)
    reasons = tuple(dict.fromkeys(reason for change in changes for reason in change.reasons))
    return Change(name, "; ".join(change.does for change in changes), settings, reasons)


def not_for(change: Change, architecture: str) -> str:
    """Return why a change of the catalogue does not suit a family of processors; "" where it does, or is no such
    change."""
    entries = [entry for entry in catalogue() if f"advice:{entry.id}" in {one.reference for one in change.reasons}]
    for entry in entries:
        settings = {(one.kind, one.name) for one in change.settings}
        trials = (one for one in entry.trials if settings >= {(s.kind, s.name) for s in one.change.settings})
        wanted = [entry.processors, *(one.processors for one in trials)]
        for names in wanted:
            if names and architecture not in names:
                return f"{entry.id} is for {', '.join(names)}, and this machine is of {architecture}"
    return ""


def obstacle(change: Change) -> str:
    """Return why a change cannot be made on any bundle's machine; "" where it can."""
    return next((why for setting in change.settings if (why := _obstacle(setting))), "")


def _obstacle(setting: Setting) -> str:
    if setting.kind is ChangeKind.UNIT:
        return "a container's machine has no units"
    if setting.kind is ChangeKind.ROOTFS and setting.name == "initrd":
        return "a container's machine has no initial RAM disk"
    if setting.kind is ChangeKind.MACHINE and setting.name in ("firmware", "options"):
        return "a container's machine takes no further options of QEMU"
    if setting.kind is ChangeKind.MACHINE and trial_hardware.is_known(setting.name):
        return f"a container's machine never has {trial_hardware.known()[setting.name].what}"
    return ""
