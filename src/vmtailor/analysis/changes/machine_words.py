# SPDX-License-Identifier: Apache-2.0
"""Reasons for the words on the kernel command line of a fitted machine: those of the plan have theirs; the machine's
and the system's own have them here."""

from __future__ import annotations

from collections.abc import Iterable

from vmtailor.model.change import Cause, Change, ChangeKind, Reason, Setting
from vmtailor.model.plan import Plan

#: How a word begins (`NAME=`), or the whole word, with its reason.
_REASONS = {
    "root=": "the disk, or the partition of it, with the root file system",
    "ro": "the root file system is mounted for reading; a system mounts it again when it has checked it",
    "rw": "the root file system is mounted for writing",
    "rootfstype=": "the format of the root file system: no other one is tried",
    "rootflags=": "options of the root file system's mount",
    "rootwait": "the kernel waits for the disk with the root file system",
    "init=": "the first program; a container's machine has one of vmtailor's own",
    "rdinit=": "the first program of the initial RAM disk",
    "console=": "the serial line, which is where messages of kernel and programs go",
    "quiet": "the kernel prints warnings alone: each line on a serial console takes time at boot",
    "loglevel=": "how much the kernel prints on its console",
    "panic=": "a panic restarts the machine, at which its monitor ends: a machine that is lost does not hang",
    "reboot=": "how the machine is powered off: at a triple fault its monitor ends",
    "nokaslr": "addresses are those of the symbol table and the same at each boot: what was counted is what runs",
    "systemd.mask=": "a unit that the exercise does not need is not started",
}
_OWN = "the system's own: its boot loader, or the user, gives it to the kernel"


def explained(plan: Plan, words: Iterable[str]) -> tuple[Change, ...]:
    """Return the words of a command line as changes, each with its reason."""
    planned = {change.id: change for change in plan.words}
    return tuple(planned.get(word) or _of(word) for word in dict.fromkeys((*words, *planned)))


def _of(word: str) -> Change:
    name, _, value = word.partition("=")
    text = _REASONS.get(word) or _REASONS.get(f"{name}=")
    cause, reference = (Cause.PLATFORM, "platform:machine") if text else (Cause.USER, "system:command-line")
    reason = Reason(cause, reference, text or _OWN)
    return Change(word, "", (Setting(ChangeKind.COMMAND_LINE, name, value),), (reason,))


def is_known(what: str) -> bool:
    """Return whether something is a word that machines of vmtailor are told, or the name of one."""
    return what in _REASONS or f"{what.partition('=')[0]}=" in _REASONS
