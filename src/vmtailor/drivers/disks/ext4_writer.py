# SPDX-License-Identifier: Apache-2.0
"""Files that are put into an ext4 file system, or taken out of it, by debugfs: nothing is mounted. What is written to
is a copy of ours, never the image that a user gave."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from vmtailor.base.errors import UserInputError
from vmtailor.base.process import CommandFailed
from vmtailor.drivers.disks import ext4
from vmtailor.drivers.disks.shut_in import run_shut_in

#: A path whose parts cannot be read as anything but names in debugfs's commands.
_PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.@+-]{1,255})+", re.ASCII)
_TIMEOUT_S = 120.0
_ROOM_BYTES = 1 << 20
_OWNER = re.compile(rb"^User:\s+(\d+)\s+Group:\s+(\d+)\b", re.MULTILINE)
_MODE = re.compile(rb"\bType: regular\s+Mode:\s+([0-7]{4})\b")
_THERE = re.compile(rb"\bType: (?:regular|symlink)\b")


def require_plain(path: str) -> None:
    """Raise UserInputError for a path that is not absolute, or has more than plain names in it."""
    if not _PLAIN.fullmatch(path):
        raise UserInputError(
            f"{path!r} is no path of a file that can be changed",
            hint="an absolute one of letters, digits and . _ - + @, like /etc/docker/daemon.json",
        )


def put(raw: Path, offset: int, files: Mapping[str, bytes | None], name: str) -> None:
    """Give files other content; None: no such file is left. One that is there keeps its owner and mode, a new one is
    root's, for all to read; a link is replaced by a file. `raw`: raw bytes in a folder of our own; `name`: what
    messages call the file system.

    Raises UserInputError for a path that is not plain, whose folder is not there, or for which there is no room."""
    for path in files:
        require_plain(path)
    ext4.require_clean(raw, offset, name)
    commands, contents = [], []
    for number, (path, data) in enumerate(files.items()):
        at = PurePosixPath(path)
        about = _run(raw, offset, f"stat {path}\n", name, write=False)
        mode, owner = _MODE.search(about), _OWNER.search(about)
        if _THERE.search(about):
            commands.append(f"rm {path}")
        if data is not None:
            content = raw.with_name(f"{raw.name}.content-{number}")
            content.write_bytes(data)
            contents.append(content)
            user, group = (int(owner[1]), int(owner[2])) if mode and owner else (0, 0)
            commands += [f"cd {at.parent}", f"write {_quoted(content)} {at.name}", f"sif {at.name} uid {user}"]
            commands += [f"sif {at.name} gid {group}", f"sif {at.name} mode 010{mode[1].decode() if mode else '0644'}"]
    try:
        _run(raw, offset, "".join(f"{one}\n" for one in commands), name, write=True)
    finally:
        for content in contents:
            content.unlink()
    for path, data in files.items():
        _require_there(raw, offset, path, data, name)


def _require_there(raw: Path, offset: int, path: str, data: bytes | None, name: str) -> None:
    """debugfs ends well whatever becomes of its commands: what it has done is looked at."""
    there = _THERE.search(_run(raw, offset, f"stat {path}\n", name, write=False)) is not None
    if data is None and not there:
        return
    if data is not None and there and _content(raw, offset, path, name) == data:
        return
    raise UserInputError(
        f"{path} cannot be changed on {name}",
        hint=f"there must be a folder {PurePosixPath(path).parent}, and room for the file",
    )


def _quoted(path: Path) -> str:
    """One word of debugfs's, whatever the cache's folder is called."""
    return '"' + str(path).replace('"', '""') + '"'


def _content(raw: Path, offset: int, path: str, name: str) -> bytes:
    return _debugfs(raw, ["-R", f"cat {path}", f"{raw}?offset={offset}"], None, name)


def _run(raw: Path, offset: int, commands: str, name: str, *, write: bool) -> bytes:
    device = f"{raw}?offset={offset}"
    return _debugfs(raw, [*(["-w"] if write else []), "-f", "-", device], commands.encode(), name)


def _debugfs(raw: Path, arguments: list[str], commands: bytes | None, name: str) -> bytes:
    try:
        done = run_shut_in(
            "debugfs", arguments, written=raw.parent, package="e2fsprogs",
            most_bytes=raw.stat().st_size + _ROOM_BYTES, timeout_s=_TIMEOUT_S, stdin_bytes=commands,
        )  # fmt: skip
    except CommandFailed as error:
        raise UserInputError(f"{name} cannot be written to", details=error.details) from error
    if b"while trying to open" in done.stderr:
        raise UserInputError(f"{name} cannot be written to", details=done.error_text[-2000:])
    return done.stdout
