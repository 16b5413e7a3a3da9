# SPDX-License-Identifier: Apache-2.0
"""The commands that try what `analyze` advises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vmtailor.analysis.changes import choice
from vmtailor.analysis.changes.change_catalogue import Candidate, catalogue
from vmtailor.base.verb_end import NextCommand
from vmtailor.model.boots.timeline import Timeline
from vmtailor.model.change import ChangeKind

#: Stand for what a log does not tell.
DISK, BUNDLE = "DISK", "BUNDLE"
#: Options by which a disk boots with a command line of its own.
_DIRECT = ("--kernel", "FILE", "--initrd", "FILE", "--append", "WORDS")
_VERB = ("vmtailor", "boot")
#: Kinds of settings that are on the kernel's command line, or beside it.
_NEED_KERNEL = (ChangeKind.COMMAND_LINE, ChangeKind.UNIT, ChangeKind.RUNTIME, ChangeKind.ROOTFS)


@dataclass(frozen=True)
class BootOrigin:
    """The boot that a log is of, as its record tells. `options`: those of `vmtailor boot` that gave the machine."""

    subject: str
    is_bundle: bool
    options: tuple[str, ...] = ()


def commands(timeline: Timeline, booted: BootOrigin | None) -> tuple[NextCommand, ...]:
    """Return the commands that try the remedies named for a boot; none where none can be tried. Of a log alone
    (`booted` is None), DISK and BUNDLE stand for what was booted."""
    tried = dict(_tried(timeline))
    on_disk = tuple(name for name, trials in tried.items() if any(not _compiles(one) for one in trials))
    on_bundle = tuple(name for name, trials in tried.items() if any(_suits_bundle(one) for one in trials))
    if booted is not None and booted.is_bundle:
        return _command("Try what would help", booted.subject, on_bundle)
    if booted is not None:
        return _command("Try what would help", booted.subject, on_disk, booted.options)
    direct = any(one.kind in _NEED_KERNEL for name in on_disk for trial in tried[name] for one in trial.change.settings)
    compiled = tuple(name for name in on_bundle if name not in on_disk)
    return (
        *_command("Try what would help, on the disk", DISK, on_disk, _DIRECT if direct else ()),
        *_command("Try what takes another kernel, on a container's bundle", BUNDLE, compiled),
    )


def _command(does: str, subject: str, names: tuple[str, ...], options: tuple[str, ...] = ()) -> tuple[NextCommand, ...]:
    return (NextCommand(does, (*_VERB, subject, "--try", ",".join(names), *options)),) if names else ()


def _tried(timeline: Timeline) -> Iterator[tuple[str, tuple[Candidate, ...]]]:
    """Yield the ids of the remedies that apply, each with the trials for this processor; those without one are left
    out."""
    entries = {entry.id: entry for entry in catalogue()}
    arch = timeline.kernel.arch
    for remedy in timeline.advice:
        entry = entries.get(remedy.id) if remedy.applies else None
        trials = entry.trials if entry is not None else ()
        suits = tuple(one for one in trials if arch is None or not one.processors or arch in one.processors)
        if suits:
            yield remedy.id, suits


def _compiles(one: Candidate) -> bool:
    return any(setting.kind is ChangeKind.CONFIG for setting in one.change.settings)


def _suits_bundle(one: Candidate) -> bool:
    return not one.hardware and not choice.obstacle(replace(one.change, problem=""))
