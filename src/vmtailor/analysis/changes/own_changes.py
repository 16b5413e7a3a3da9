# SPDX-License-Identifier: Apache-2.0
"""Changes that a user spells out for `--try`, beside those of the catalogue.

NAME, NAME=VALUE    a word of the kernel's command line that is no id of the catalogue; word:NAME is one in any case
sysctl:NAME=VALUE   a setting of the kernel's
unit:-UNIT          a unit masked
disk:NAME=VALUE     a setting of the first disk's queue, such as its scheduler
/sys/FILE=VALUE     a file of the kernel's, below /sys or /proc/sys
config:SYMBOL=VALUE a symbol of the kernel's configuration: on bundles of containers
kernel:VERSION      another kernel; the error says which command compares two
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vmtailor.analysis.changes.change_catalogue import Candidate
from vmtailor.base import near_names
from vmtailor.base.errors import UserInputError
from vmtailor.model import option_values
from vmtailor.model.change import Cause, Change, ChangeKind, Reason, Setting

WORD, CONFIG = "word:", "config:"
#: Files that a setting may be written to.
FILES = ("/proc/sys/", "/sys/")
#: A symbol with its value.
SYMBOL = re.compile(r"(?:CONFIG_)?([A-Z0-9][A-Za-z0-9_]*)=([^\s+]+)")
#: The folder of the settings of the first disk's queue.
_QUEUE = "/sys/block/vda/queue/"
_MASK, _SYSCTL = "systemd.mask", "sysctl."
#: How much of a word and of an id is the same before the word is taken for a misspelt id: `nosmt` is none.
_MISSPELT = 0.8
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")
_KEY = re.compile(r"[a-z0-9][\w./-]{0,120}")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,245}\.(?:service|socket|target|timer|mount|path|device|swap|automount|slice)")
_FORMS = "a kernel word NAME=VALUE, sysctl:NAME=VALUE, unit:-UNIT, disk:NAME=VALUE, config:SYMBOL=VALUE on a bundle"
_ASKED = Reason(Cause.USER, "user:try", "asked for")


@dataclass(frozen=True)
class _Place:
    """The kind of machine that a change is tried on. `ids`: names that a word may be a misspelling of."""

    bundle: bool
    ids: Sequence[str]

    @property
    def spoken(self) -> str:
        return "a bundle" if self.bundle else "a machine"


def on_machine(name: str, ids: Sequence[str]) -> tuple[Candidate, ...]:
    """Return the change that a name spells out, on a machine with an init of its own. `ids`: those of the catalogue.
    Raises UserInputError for what is no change, or cannot be made there."""
    if found := SYMBOL.fullmatch(name):
        return _of_config(f"{found[1]}={found[2]}", _Place(False, ids))
    return _spelled(name, _Place(False, ids))


def on_bundle(name: str, ids: Sequence[str]) -> tuple[Candidate, ...]:
    """Return the change that a name spells out, on the bundle of a container. Raises UserInputError as `on_machine`."""
    return _spelled(name, _Place(True, ids))


def is_own_word(one: Candidate) -> bool:
    """Return whether a change is a word of the command line that the user spelled out, and no setting of the
    kernel's."""
    words = [setting for setting in one.change.settings if setting.kind is ChangeKind.COMMAND_LINE]
    return _ASKED in one.change.reasons and any(not word.name.startswith(_SYSCTL) for word in words)


def symbol(name: str) -> str:
    """Return SYMBOL=VALUE of config:SYMBOL=VALUE. Raises UserInputError for what is none."""
    text = name.removeprefix(CONFIG)
    if not SYMBOL.fullmatch(text):
        raise UserInputError(f"{name[:80]} names no symbol with a value", hint="like config:USB=n")
    return text


def _spelled(name: str, place: _Place) -> tuple[Candidate, ...]:
    if name.startswith(FILES) and "=" in name:
        path, _, value = name.partition("=")
        return _written(name, path, value)
    head, sign, rest = name.partition(":")
    return _KINDS[head](rest, place) if sign and head in _KINDS else _of_word(name, place, sure=False)


def _of_word(text: str, place: _Place, *, sure: bool = True) -> tuple[Candidate, ...]:
    """Return a word of the command line, which is checked as those of --append are. `sure`: it is no misspelt id."""
    name, sign, value = text.partition("=")
    if option_values.kernel_words(text) != (text,) or not _NAME.fullmatch(name) or (sign and not value):
        raise _unknown(text, place)
    if name.startswith(_SYSCTL) and not (sign and _KEY.fullmatch(name.removeprefix(_SYSCTL))):
        raise _unknown(text, place)
    if not sure and not sign and (question := near_names.asked(name, place.ids, alike=_MISSPELT)):
        raise UserInputError(
            f"no change {name!r} can be tried on {place.spoken}",
            hint=f"{question} A word of the kernel's command line that is called so is {WORD}{name}",
        )
    if name == _MASK and sign:
        return _of_unit(f"-{value}", place)
    return _one(text, f"{text} on the kernel's command line", Setting(ChangeKind.COMMAND_LINE, name, value))


def _of_sysctl(text: str, place: _Place) -> tuple[Candidate, ...]:
    key, sign, value = text.partition("=")
    if not sign or not value or not _KEY.fullmatch(key):
        raise UserInputError(f"sysctl:{text[:80]} is no setting with a value", hint="like sysctl:vm.swappiness=10")
    if place.bundle:
        return _written(f"sysctl:{text}", f"/proc/sys/{key.replace('.', '/')}", value)
    # Kernels since 5.8 take it from their command line, before any program runs.
    if option_values.kernel_words(value) != (value,):
        raise UserInputError(f"sysctl:{text[:80]}: a word of the command line holds no spaces")
    setting = Setting(ChangeKind.COMMAND_LINE, f"sysctl.{key}", value)
    return _one(f"sysctl:{text}", f"{key} is {value} from the start", setting)


def _of_unit(text: str, place: _Place) -> tuple[Candidate, ...]:
    if place.bundle:
        raise UserInputError(f"unit:{text[:80]}: a container's machine has no units")
    if not text.startswith("-") or not _UNIT.fullmatch(text[1:]):
        raise UserInputError(f"unit:{text[:80]} is no unit to mask", hint="like unit:-rsyslog.service")
    return _one(f"unit:{text}", f"{text[1:]} masked", Setting(ChangeKind.UNIT, text[1:], "masked"))


def _of_disk(text: str, place: _Place) -> tuple[Candidate, ...]:
    key, sign, value = text.partition("=")
    if not sign or not value or not re.fullmatch(r"[a-z_]{1,40}", key):
        raise UserInputError(f"disk:{text[:80]} is no setting of a disk with a value", hint="like disk:scheduler=none")
    return _written(f"disk:{text}", _QUEUE + key, value)


def _of_config(text: str, place: _Place) -> tuple[Candidate, ...]:
    """Refuse a symbol on a disk, whose kernel is its distribution's; bundles take it elsewhere (choice.py)."""
    found = SYMBOL.fullmatch(text)
    raise UserInputError(
        f"{text[:80]} needs another kernel, and a disk's is its distribution's",
        hint="vmtailor fit disk:DISK -x EXERCISE compiles one for it"
        + (f", with --drop {found[1]} without that symbol" if found and found[2] == "n" else "")
        + f"; on the bundle of a container, vmtailor boot BUNDLE --try {text[:80]} compiles it",
    )


def _of_kernel(text: str, place: _Place) -> tuple[Candidate, ...]:
    if place.bundle:
        hint = f"vmtailor refit BUNDLE --kernel {text[:40]} fits it again on that kernel and measures both"
    else:
        hint = "vmtailor boot DISK --kernel FILE -o NEW, then vmtailor compare boots OLD NEW"
    raise UserInputError("another version of the kernel is fitted or booted by itself, and is no trial", hint=hint)


def _written(name: str, path: str, value: str) -> tuple[Candidate, ...]:
    does = f"{path} is {value}: before the container starts, or when systemd makes its first files"
    return _one(name, does, Setting(ChangeKind.RUNTIME, path, value))


def _one(name: str, does: str, setting: Setting) -> tuple[Candidate, ...]:
    return (Candidate(Change(name, does, (setting,), (_ASKED,))),)


def _unknown(text: str, place: _Place) -> UserInputError:
    hint = near_names.or_else(text[:80], place.ids, f"Own words, one a --try: {_FORMS}")
    return UserInputError(f"no change {text[:80]!r} can be tried on {place.spoken}", hint=hint)


#: The part before a colon → how what follows is read.
_KINDS: Mapping[str, Callable[[str, _Place], tuple[Candidate, ...]]] = {
    "word": _of_word,
    "sysctl": _of_sysctl,
    "unit": _of_unit,
    "disk": _of_disk,
    "config": _of_config,
    "kernel": _of_kernel,
}
