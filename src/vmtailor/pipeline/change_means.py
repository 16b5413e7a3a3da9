# SPDX-License-Identifier: Apache-2.0
"""The means to apply each kind of change to a machine, in one table. A kind without a means says so.

An applied setting records the value that was there before, and applying `Change.back` restores it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vmtailor.analysis.changes import choice, trial_hardware
from vmtailor.analysis.changes.change_catalogue import SPOKEN
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.kernel import kernel_patches
from vmtailor.drivers.rootfs import small_initrd
from vmtailor.model.change import COMPILED, Change, ChangeKind, Setting
from vmtailor.model.machine import Machine

#: Words that the kernel gathers: the values of all are one list, separated by commas.
GATHERED = ("module_blacklist", "initcall_blacklist", "modprobe.blacklist")
#: The word by which init is told what to write below /proc/sys and /sys (docs/reference/guest-init.md).
SET = "VT_SET"
#: The words by which systemd is told what its systemd-tmpfiles writes, beside what its files say: one line (systemd 252
#: and later), or several in base64 (254 and later).
ONE_LINE, LINES = 'systemd.set_credential="tmpfiles.extra:', "systemd.set_credential_binary=tmpfiles.extra:"


@dataclass(frozen=True)
class KernelRequest:
    """Another kernel: values of symbols, flags of the compiler, patches of the source (id → digest). A flag or patch
    with None is taken away."""

    symbols: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str | None] = field(default_factory=dict)
    patches: Mapping[str, str | None] = field(default_factory=dict)


#: Gives that kernel.
Rebuild = Callable[[KernelRequest], Path]
#: Gives the machine with other files on its first disk (path → content; None: there is none), and what stood there.
Write = Callable[[Machine, Mapping[str, str | None]], tuple[Machine, Mapping[str, str | None]]]


@dataclass(frozen=True)
class Means:
    """The means to apply changes. `folder`: keeps intermediate files. `small_init`: the init of a small initial RAM
    disk. `rebuild`: compiles another kernel, if that is possible; `config` has the values of its symbols, `compiled`
    its flags and patches, by name. `write`: puts files on a copy of the disk, if one may be made. `tuned`: our init
    starts the machine, and writes settings of the kernel before anything else. `services`: a service manager starts
    it, which may be systemd."""

    folder: Path
    small_init: Path
    rebuild: Rebuild | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    write: Write | None = None
    compiled: Mapping[str, str] = field(default_factory=dict)
    tuned: bool = False
    services: bool = False


def applied(changes: Sequence[Change], machine: Machine, means: Means) -> tuple[Machine, tuple[Change, ...]]:
    """Return the machine with the changes, and the changes as they were made, with the values that stood there before.
    Symbols are set together, so that one kernel is compiled, and so are files. Raises UserInputError for impossible
    changes, and for those of other processors."""
    made: list[Change] = []
    symbols: dict[str, str] = {}
    compiled: dict[ChangeKind, dict[str, str | None]] = {kind: {} for kind in COMPILED}
    files: dict[str, str | None] = {}
    for change in changes:
        if why := choice.not_for(change, machine.architecture) or choice.impossible(change):
            raise UserInputError(why)
        settings = []
        for setting in change.settings:
            if setting.kind is ChangeKind.CONFIG:
                symbols[setting.name] = "n" if setting.value is None else setting.value
                settings.append(replace(setting, before=means.config.get(setting.name, "n")))
                continue
            if setting.kind in compiled:
                named = kernel_patched(setting)
                compiled[setting.kind][setting.name] = named.value
                settings.append(replace(named, before=means.compiled.get(setting.name)))
                continue
            if setting.is_file:
                files[setting.name] = setting.value
                settings.append(setting)
                continue
            machine, done = HOW[setting.kind](setting, machine, means)
            settings.append(done)
        made.append(replace(change, settings=tuple(settings)))
    if symbols or any(compiled.values()):
        if means.rebuild is None:
            raise UserInputError(
                "a kernel with another configuration, compiler flag or patch is tried on a container's bundle only"
            )
        asked = KernelRequest(symbols, compiled[ChangeKind.COMPILER], compiled[ChangeKind.PATCH])
        machine = replace(machine, kernel=str(means.rebuild(asked)))
    if files:
        if means.write is None:
            raise UserInputError("files of a disk can be tried by the fit of a system only")
        machine, before = means.write(machine, files)
        made = [_with_before(change, before) for change in made]
    return machine, tuple(made)


def kernel_patched(setting: Setting) -> Setting:
    """Return a setting that names a patch with its digest; any other as it is. Raises UserInputError for an unknown
    patch."""
    if setting.kind is not ChangeKind.PATCH or setting.value is None:
        return setting
    known = kernel_patches.every().get(setting.name)
    if known is None:
        raise UserInputError(
            f"there is no patch '{setting.name}'", hint=f"there are: {', '.join(kernel_patches.every())}"
        )
    return replace(setting, value=known.sha256)


def _with_before(change: Change, before: Mapping[str, str | None]) -> Change:
    settings = (replace(one, before=before[one.name]) if one.is_file else one for one in change.settings)
    return replace(change, settings=tuple(settings))


def for_bundle(changes: Sequence[Change], machine: Machine) -> None:
    """Raise UserInputError for changes that no bundle's machine can have, or not this one, whose kernel was made for
    it."""
    for change in changes:
        if why := choice.not_for(change, machine.architecture) or choice.obstacle(change):
            raise UserInputError(why)
        for setting in change.settings:
            if (setting.kind, setting.name) == (ChangeKind.MACHINE, "type") and setting.value != machine.board:
                raise UserInputError(
                    f"this kernel was made for {machine.board}: fit the image again with --machine {setting.value}"
                )


def _word(setting: Setting, machine: Machine, means: Means) -> tuple[Machine, Setting]:
    """Set a word: others of its name go, but a list grows. Of several with one name the last is the earlier value."""
    _require_kernel(machine)
    words = [(word, *word.partition("=")) for word in machine.words]
    before = next((value for _, name, _, value in reversed(words) if name == setting.name), None)
    value = setting.value
    if setting.name in GATHERED and value is not None and before is not None and setting.before != before:
        value = ",".join(dict.fromkeys([*before.split(","), *value.split(",")]))
    done = replace(setting, value=value, before=before)
    if value == before:
        return machine, done
    place = next((i for i, (_, name, *_) in enumerate(words) if name == setting.name), len(words))
    kept = [word for word, name, *_ in words if name != setting.name]
    if value is not None:
        kept.insert(place if setting.name in GATHERED else len(kept), str(done))
    return replace(machine, words=tuple(kept)), done


def _unit(setting: Setting, machine: Machine, means: Means) -> tuple[Machine, Setting]:
    _require_kernel(machine)
    if setting.value not in ("masked", None):
        raise UserInputError(f"a unit can be masked and nothing else, not {setting.value!r}")
    word = f"systemd.mask={setting.name}"
    done = replace(setting, before="masked" if word in machine.words else None)
    if done.value == done.before:
        return machine, done
    kept = tuple(one for one in machine.words if one != word)
    return replace(machine, words=(*kept, word) if setting.value else kept), done


def _initrd(setting: Setting, machine: Machine, means: Means) -> tuple[Machine, Setting]:
    if setting.name != "initrd":
        raise _not_yet(setting)
    _require_kernel(machine)
    if setting.value != "small":
        return replace(machine, initrd=setting.value), replace(setting, before=machine.initrd)
    if machine.initrd is None or not machine.disks:
        raise UserInputError("there is no initial RAM disk to rebuild")
    means.folder.mkdir(parents=True, exist_ok=True)
    out = (means.folder / "initrd-small").absolute()
    small_initrd.rebuild(Path(machine.initrd), machine.disks[0], means.small_init, out)
    return replace(machine, initrd=str(out)), replace(setting, before=machine.initrd)


def _machine(setting: Setting, machine: Machine, means: Means) -> tuple[Machine, Setting]:
    """Memory is only ever made less, and flags are added, except by a setting that knows what stands there."""
    value = setting.value
    if setting.name == "type" and value is not None:
        return replace(machine, board=value), replace(setting, before=machine.board)
    if setting.name == "memory_bytes" and value is not None:
        before = str(machine.memory_bytes)
        wanted = int(value) if setting.before == before else min(machine.memory_bytes, int(value))
        return replace(machine, memory_bytes=wanted), replace(setting, value=str(wanted), before=before)
    if setting.name == "cpu":
        # Flags behind the model. (Which are never given alone, the file of the change says.)
        model, _, flags = machine.cpu_model.partition(",")
        if value is not None and flags and setting.before != flags:
            value = f"{flags},{value}"
        return (
            replace(machine, cpu_model=f"{model},{value}" if value else model),
            replace(setting, value=value, before=flags or None),
        )
    if setting.name == "firmware":
        return replace(machine, firmware=value), replace(setting, before=machine.firmware)
    if trial_hardware.is_known(setting.name):
        before_it = "" if trial_hardware.has(machine, setting.name) else None
        change = trial_hardware.taken if value is None else trial_hardware.given
        return change(machine, setting.name), replace(setting, before=before_it)
    raise _not_yet(setting)


def _runtime(setting: Setting, machine: Machine, means: Means) -> tuple[Machine, Setting]:
    """Set a file of the kernel's below /proc/sys or /sys, through the word that our init or systemd reads."""
    if not means.tuned and not means.services:
        raise _not_yet(setting)
    if not _SETTABLE.fullmatch(setting.name) or "/../" in setting.name:
        raise UserInputError(f"{setting.name} is no setting of the kernel below /proc/sys or /sys")
    if setting.value is not None and not _SET_VALUE.fullmatch(setting.value):
        raise UserInputError(f"{setting.value!r} cannot be written to {setting.name}")
    if means.services:
        return _by_credential(setting, machine)
    now = next((word.partition("=")[2] for word in machine.words if word.startswith(f"{SET}=")), "")
    there = dict(one.partition("=")[::2] for one in now.split(";") if one)
    done = replace(setting, before=_spaces(there.get(setting.name)))
    if setting.value is None:
        there.pop(setting.name, None)
    else:
        there[setting.name] = setting.value.replace(" ", "%20")
    word = f"{SET}=" + ";".join(f"{name}={value}" for name, value in there.items())
    kept = tuple(one for one in machine.words if not one.startswith(f"{SET}="))
    return replace(machine, words=(*kept, word) if there else kept), done


def _by_credential(setting: Setting, machine: Machine) -> tuple[Machine, Setting]:
    """Set a file by systemd-tmpfiles, which writes what a credential on the command line says: one line for a file."""
    _require_kernel(machine)
    lines = _told(machine.words)
    kept = [line for line in lines if line.split()[1:2] != [setting.name]]
    before = next((" ".join(line.split()[6:]) for line in lines if line not in kept), None)
    if setting.value is not None:
        kept.append(f"w {setting.name} - - - - {setting.value}")
    words = tuple(word for word in machine.words if not word.startswith((ONE_LINE, LINES)))
    if len(kept) == 1:
        words = (*words, f'{ONE_LINE}{kept[0]}"')
    elif kept:
        text = "".join(f"{line}\n" for line in kept)
        words = (*words, LINES + base64.b64encode(text.encode()).decode())
    return replace(machine, words=words), replace(setting, before=before)


def _told(words: Sequence[str]) -> list[str]:
    """Return the lines that systemd-tmpfiles is told on a command line. Raises UserInputError for what is no base64."""
    for word in words:
        if word.startswith(ONE_LINE):
            return [word.removeprefix(ONE_LINE).removesuffix('"')]
        if word.startswith(LINES):
            try:
                return base64.b64decode(word.removeprefix(LINES), validate=True).decode().splitlines()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise UserInputError(f"the word {LINES} of the command line is not in base64") from error
    return []


#: Files that init may set, and values that a word of the command line can carry to it.
_SETTABLE = re.compile(r"/(?:proc/sys|sys)/[A-Za-z0-9_./:-]{1,200}")
_SET_VALUE = re.compile(r"[A-Za-z0-9_.,:/ +-]{1,100}")


def _spaces(text: str | None) -> str | None:
    return None if text is None else text.replace("%20", " ")


def _require_kernel(machine: Machine) -> None:
    if machine.kernel is None:
        raise UserInputError("the command line and initial RAM disk can be changed only with --kernel")


def _refused(setting: Setting, machine: Machine, means: Means) -> tuple[Machine, Setting]:
    raise _not_yet(setting)


def _not_yet(setting: Setting) -> UserInputError:
    return UserInputError(
        f"{setting}: a change of the kind {SPOKEN[setting.kind]} cannot be applied here yet",
        hint="words, units, settings of the kernel, the initial RAM disk, options of the machine can be; of a "
        "container's bundle, symbols, compiler flags and patches, too",
    )


#: Kind → how it is applied: the machine with it made, and the setting with what stood there before. Symbols, flags and
#: patches are set together, above.
HOW: Mapping[ChangeKind, Callable[[Setting, Machine, Means], tuple[Machine, Setting]]] = {
    ChangeKind.COMMAND_LINE: _word,
    ChangeKind.UNIT: _unit,
    ChangeKind.ROOTFS: _initrd,
    ChangeKind.MACHINE: _machine,
    ChangeKind.CONFIG: _refused,
    ChangeKind.INIT: _refused,
    ChangeKind.RUNTIME: _runtime,
    ChangeKind.COMPILER: _refused,
    ChangeKind.KERNEL_VERSION: _refused,
    ChangeKind.PATCH: _refused,
}
