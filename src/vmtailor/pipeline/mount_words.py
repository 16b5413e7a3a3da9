# SPDX-License-Identifier: Apache-2.0
"""Mounts of a run as docker spells them: `-v` and `--mount`."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.shares import volumes
from vmtailor.model.guest_mounts import MountKind

_HINT = "write it as -v FOLDER:PATH[:ro], or -v NAME:PATH for a volume"
#: Options of a mount that change nothing here, as engines take them too where there is nothing to do for them.
_IDLE = frozenset({"z", "Z", "cached", "delegated", "consistent"})
_PROPAGATION = frozenset({"private", "rprivate", "shared", "rshared", "slave", "rslave"})


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


def parse_volumes(texts: Sequence[str]) -> tuple[WantedMount, ...]:
    """Return what `-v` options ask for: `[SOURCE:]TARGET[:OPTIONS]`. Raises UserInputError."""
    return tuple(_volume(text) for text in texts)


def parse_mounts(texts: Sequence[str]) -> tuple[WantedMount, ...]:
    """Return what `--mount` options ask for: `type=…,source=…,target=…`. Raises UserInputError."""
    return tuple(_mount(text) for text in texts)


def _volume(text: str) -> WantedMount:
    parts = text.split(":")
    if len(parts) > 3 or not all(parts) or "\0" in text:
        raise UserInputError(f"-v {plain(text[:200])} is not a mount", hint=_HINT)
    if len(parts) == 1:
        return WantedMount(kind=MountKind.PLACE, source="", target=_target(text, text), text=text)
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
            raise UserInputError(f"-v {plain(text)}: '{plain(word[:80])}' is not an option of a mount", hint="ro or rw")
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
        raise UserInputError(
            f"{plain(text[:200])}: the container's root cannot be replaced", hint="name a folder in it"
        )
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
        hint = "type=bind,src=…,dst=…"
        raise UserInputError(f"--mount {plain(text[:200])} is not a line of fields", hint=hint) from error
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
        what = f"'{plain(value[:80])}' is neither true nor false"
        raise UserInputError(f"--mount {plain(text[:200])}: {what}", hint="leave the value out for true")
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
    if not wanted.source:
        return replace(wanted, kind=MountKind.PLACE)
    volumes.require_name(wanted.source)
    return wanted


def _memory(wanted: WantedMount, values: Mapping[str, str]) -> WantedMount:
    if wanted.source:
        raise UserInputError(f"--mount {plain(wanted.text)}: a tmpfs has no source", hint="leave it out")
    for name, pattern in (("size", r"[0-9]{1,15}[kmgKMG]?"), ("mode", r"[0-7]{1,4}")):
        if name in values and not re.fullmatch(pattern, values[name]):
            what = f"no {name} is '{plain(values[name][:80])}'"
            raise UserInputError(f"--mount {plain(wanted.text)}: {what}", hint="tmpfs-size=64m, tmpfs-mode=1777")
    return replace(wanted, options=tuple(f"{name}={values[name]}" for name in ("size", "mode") if name in values))


_CHECKS: Mapping[str, Callable[[WantedMount, Mapping[str, str]], WantedMount]] = {
    "bind": _bind, "volume": _named, "tmpfs": _memory,
}  # fmt: skip
