# SPDX-License-Identifier: Apache-2.0
"""Mounts of a run as docker spells them: `-v`, `--mount`, and what the machine has of them."""

from __future__ import annotations

import contextlib
import csv
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.shares import volumes
from vmtailor.model.architecture import Bus
from vmtailor.model.machine import Disk
from vmtailor.model.mounts import GROUPS, SYMBOLS, GuestMount, MountKind, Share

#: Most mounts of a machine.
MOST = 16
#: Transports of a board that has no PCI.
_TRANSPORTS = 8
_HINT = "write it as -v FOLDER:PATH[:ro], or -v NAME:PATH for a volume"
#: Options of a mount that change nothing here, as engines take them too where there is nothing to do for them.
_IDLE = frozenset({"z", "Z", "cached", "delegated", "consistent"})
_PROPAGATION = frozenset({"private", "rprivate", "shared", "rshared", "slave", "rslave"})
_TAG = "vtfs{}"


@dataclass(frozen=True, kw_only=True)
class WantedMount:
    """A mount as the user gave it. `source`: a path of the host, a volume's name; empty for memory and for a volume
    without a name. `made`: a folder that is not there is made. `as_image`: a volume begins with the image's content.
    `text`: as it was given."""

    kind: MountKind
    source: str
    target: str
    read_only: bool = False
    made: bool = False
    as_image: bool = True
    options: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Mounted:
    """The mounts of a machine: what it shares, its further disks behind init's own, and init's orders."""

    shares: tuple[Share, ...] = ()
    disks: tuple[Disk, ...] = ()
    orders: tuple[GuestMount, ...] = ()


def parse_volumes(texts: Sequence[str]) -> tuple[WantedMount, ...]:
    """Return what `-v` options ask for: `[SOURCE:]TARGET[:OPTIONS]`. Raises UserInputError."""
    return tuple(_volume(text) for text in texts)


def parse_mounts(texts: Sequence[str]) -> tuple[WantedMount, ...]:
    """Return what `--mount` options ask for: `type=…,source=…,target=…`. Raises UserInputError."""
    return tuple(_mount(text) for text in texts)


def _volume(text: str) -> WantedMount:
    parts = text.split(":")
    if len(parts) > 3 or not all(parts) or "\0" in text:
        raise UserInputError(f"-v {plain(text[:200])} is no mount", hint=_HINT)
    if len(parts) == 1:
        return WantedMount(kind=MountKind.VOLUME, source="", target=_target(text, text), text=text)
    source, target, *rest = parts
    words = rest[0].split(",") if rest else []
    read_only = _mode(words, text)
    if source.startswith(("/", ".", "~")):
        return WantedMount(
            kind=MountKind.FOLDER, source=str(Path(source).expanduser()), target=_target(target, text), text=text,
            read_only=read_only, made=True,
        )  # fmt: skip
    volumes.require_name(source)
    return WantedMount(
        kind=MountKind.VOLUME, source=source, target=_target(target, text), text=text,
        read_only=read_only, as_image="nocopy" not in words,
    )  # fmt: skip


def _mode(words: Sequence[str], text: str) -> bool:
    """Return whether the options of `-v` make it read-only."""
    for word in words:
        if word in _PROPAGATION:
            raise UserInputError(
                f"-v {plain(text)}: mounts do not pass between a machine and its host, so there is no '{word}'",
                hint="leave it out",
            )
        if word not in _IDLE | {"ro", "rw", "nocopy"}:
            raise UserInputError(f"-v {plain(text)}: '{plain(word[:80])}' is no option of a mount", hint="ro or rw")
    if "ro" in words and "rw" in words:
        raise UserInputError(f"-v {plain(text)} is both ro and rw", hint="choose one")
    return "ro" in words


def _target(path: str, text: str) -> str:
    """Return the absolute path in the container, without `.` and `..`."""
    found = posixpath.normpath(path)
    if not path.startswith("/") or "\0" in path:
        raise UserInputError(f"{plain(text[:200])}: '{plain(path[:200])}' is not an absolute path", hint=_HINT)
    found = "/" + found.lstrip("/")
    if found == "/":
        raise UserInputError(f"{plain(text[:200])}: the container's root cannot be replaced", hint="name a folder in it")
    return found


_KEYS = {
    "type": "type", "source": "source", "src": "source", "target": "target", "dst": "target", "destination": "target",
    "readonly": "readonly", "ro": "readonly", "volume-nocopy": "nocopy", "tmpfs-size": "size", "tmpfs-mode": "mode",
    "consistency": "idle", "bind-propagation": "propagation", "volume-driver": "driver",
    "bind-nonrecursive": "idle", "bind-recursive": "idle",
}  # fmt: skip
_OF_TYPE = {"nocopy": "volume", "driver": "volume", "size": "tmpfs", "mode": "tmpfs", "propagation": "bind"}


def _mount(text: str) -> WantedMount:
    values = _values(text)
    kind = values.get("type", "volume")
    if kind not in ("bind", "volume", "tmpfs"):
        raise UserInputError(f"--mount {plain(text)}: no type '{plain(kind[:80])}'", hint="bind, volume or tmpfs")
    for key, owner in _OF_TYPE.items():
        if key in values and owner != kind:
            raise UserInputError(f"--mount {plain(text)}: '{key}' is for type={owner}", hint="leave it out")
    if "target" not in values:
        raise UserInputError(f"--mount {plain(text)} has no target", hint="add target=/PATH")
    wanted = WantedMount(
        kind=_TYPES[kind], source=values.get("source", ""), target=_target(values["target"], text), text=text,
        read_only=_flag(values, "readonly", text), as_image=not _flag(values, "nocopy", text),
    )  # fmt: skip
    return _CHECKS[kind](wanted, values)


_TYPES = {"bind": MountKind.FOLDER, "volume": MountKind.VOLUME, "tmpfs": MountKind.MEMORY}


def _values(text: str) -> dict[str, str]:
    """Return the fields of `--mount`, which are those of a line of CSV, by one name for each."""
    try:
        (fields,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError) as error:
        raise UserInputError(f"--mount {plain(text[:200])} is no line of fields", hint="type=bind,src=…,dst=…") from error
    found: dict[str, str] = {}
    for field in fields:
        name, sign, value = field.partition("=")
        known = _KEYS.get(name.strip().lower())
        if known is None:
            raise UserInputError(
                f"--mount {plain(text[:200])}: '{plain(name[:80])}' is not known",
                hint="type, source, target, readonly, volume-nocopy, tmpfs-size, tmpfs-mode",
            )
        if not sign and known not in ("readonly", "nocopy", "idle"):
            raise UserInputError(f"--mount {plain(text[:200])}: '{name}' needs a value", hint=f"{name}=…")
        found[known] = value if sign else "true"
    return found


def _flag(values: Mapping[str, str], name: str, text: str) -> bool:
    value = values.get(name, "false").lower()
    if value not in ("true", "1", "false", "0"):
        raise UserInputError(f"--mount {plain(text[:200])}: '{plain(value[:80])}' is neither true nor false", hint="true")
    return value in ("true", "1")


def _bind(wanted: WantedMount, values: Mapping[str, str]) -> WantedMount:
    if values.get("propagation", "rprivate") not in ("private", "rprivate"):
        raise UserInputError(
            f"--mount {plain(wanted.text)}: mounts do not pass between a machine and its host", hint="leave it out"
        )
    if not wanted.source.startswith(("/", ".")):
        raise UserInputError(f"--mount {plain(wanted.text)}: source is not a path", hint="source=/PATH")
    return wanted


def _named(wanted: WantedMount, values: Mapping[str, str]) -> WantedMount:
    if values.get("driver", "local") != "local":
        raise UserInputError(f"--mount {plain(wanted.text)}: volumes have no drivers here", hint="leave it out")
    if wanted.source:
        volumes.require_name(wanted.source)
    return wanted


def _memory(wanted: WantedMount, values: Mapping[str, str]) -> WantedMount:
    if wanted.source:
        raise UserInputError(f"--mount {plain(wanted.text)}: a tmpfs has no source", hint="leave it out")
    for name, pattern in (("size", r"[0-9]{1,15}[kmgKMG]?"), ("mode", r"[0-7]{1,4}")):
        if name in values and not re.fullmatch(pattern, values[name]):
            raise UserInputError(f"--mount {plain(wanted.text)}: no {name} '{plain(values[name])}'", hint="size 64m, mode 1777")
    return replace(wanted, options=tuple(f"{name}={values[name]}" for name in ("size", "mode") if name in values))


_CHECKS: Mapping[str, Callable[[WantedMount, Mapping[str, str]], WantedMount]] = {
    "bind": _bind, "volume": _named, "tmpfs": _memory,
}  # fmt: skip


def require_meant(wanted: Sequence[WantedMount], files: BundleFolder) -> None:
    """Raise UserInputError for mounts that a bundle's machine cannot have, with the command that makes one that can."""
    if not wanted:
        return
    if len(wanted) > MOST:
        raise UserInputError(f"{len(wanted)} mounts are too many for a machine", hint=f"at most {MOST}")
    seen: set[str] = set()
    for one in wanted:
        if one.target in seen:
            raise UserInputError(f"two mounts have the place {plain(one.target)}", hint="give each a place of its own")
        seen.add(one.target)
    groups = [name for name, symbols in GROUPS.items() if _lacks(wanted, symbols, files)]
    if groups:
        lacking = ", ".join(symbol for name in groups for symbol in GROUPS[name] if files.config.get(symbol) != "y")
        raise UserInputError(
            f"the kernel of {files.path} cannot mount {' and '.join(_WORDS[name] for name in groups)}: it lacks {lacking}",
            hint=f"vmtailor refit {files.path} --keep {','.join(groups)} makes a second kernel, which takes minutes",
        )
    if not guest_volume.can_mount(files.init):
        raise UserInputError(
            f"the init of {files.path} is of a version that could not mount anything",
            hint="fit the image again",
        )


_WORDS = {"folders": "folders of the host", "volumes": "volumes"}


def _lacks(wanted: Sequence[WantedMount], symbols: Sequence[str], files: BundleFolder) -> bool:
    asked = any(SYMBOLS.get(one.kind) == symbols and (one.source or one.kind is MountKind.FOLDER) for one in wanted)
    return asked and any(files.config.get(symbol) != "y" for symbol in symbols)


@contextlib.contextmanager
def held(wanted: Sequence[WantedMount], first_disk: int) -> Iterator[Mounted]:
    """Find what is mounted, make what is made, and hold volumes against other machines. `first_disk`: the number of the
    first further disk. Raises UserInputError for what is not there, and for a volume that another machine uses."""
    shares: list[Share] = []
    disks: dict[str, Disk] = {}
    orders: list[GuestMount] = []
    # As engines do it: what lies below another mount comes after it.
    with contextlib.ExitStack() as stack:
        for one in sorted(wanted, key=lambda one: one.target.count("/")):
            order = GuestMount(
                kind=one.kind, target=one.target, read_only=one.read_only, options=one.options,
                as_image=one.kind is MountKind.VOLUME and one.as_image,
            )  # fmt: skip
            if one.kind is MountKind.FOLDER:
                shares.append(_share(one, len(shares)))
                order = replace(order, source=shares[-1].tag, single_file=shares[-1].single_file)
            elif one.kind is MountKind.VOLUME:
                if not one.source:
                    continue  # the root can be written, and is thrown away: see `places`
                if one.source not in disks:
                    disks[one.source] = stack.enter_context(volumes.in_use(one.source))
                order = replace(order, source=str(first_disk + list(disks).index(one.source)))
            orders.append(order)
        yield Mounted(tuple(shares), tuple(disks.values()), tuple(orders))


def _share(one: WantedMount, number: int) -> Share:
    if one.made and not os.path.lexists(one.source):
        try:
            Path(one.source).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot(one, error) from error
    try:
        path = Path(one.source).resolve(strict=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise _cannot(one, error) from error
    except RuntimeError as error:
        raise UserInputError(f"{plain(one.source)} is a link that leads to itself", hint="check the path") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UserInputError(
            f"{plain(one.source)} is neither a folder nor a file, and cannot be shared with a machine",
            hint="sockets, FIFOs and devices of the host stay there",
        )
    if str(path) == "/":
        raise UserInputError("the host's whole root cannot be shared with a machine", hint="name a folder in it")
    return Share(_TAG.format(number), str(path), one.read_only, stat.S_ISREG(mode))


def _cannot(one: WantedMount, error: OSError) -> UserInputError:
    why = os.strerror(error.errno or 0).lower()
    return UserInputError(f"{plain(one.source)} cannot be shared: {why}", hint="check the path given with -v")


def require_room(mounted: Mounted, bus: Bus, others: int) -> None:
    """Raise UserInputError where a board without PCI has too few places for the devices. `others`: those beside."""
    if bus is Bus.MMIO and len(mounted.shares) + len(mounted.disks) + others > _TRANSPORTS:
        raise UserInputError(
            f"this machine has {_TRANSPORTS} places for devices, too few for so many folders and volumes",
            hint=f"at most {_TRANSPORTS - others}; a folder above several of them takes one",
        )
