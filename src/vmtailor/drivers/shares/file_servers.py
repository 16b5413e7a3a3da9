# SPDX-License-Identifier: Apache-2.0
"""Programs that serve a folder of the host to a machine, shut in with that folder alone: virtiofsd, or by 9p the
monitor itself.

With virtiofsd each folder has a server of its own, which native/serve starts before the monitor: in a root of its own
that has the server's libraries and the folder, without a network, and with the rights of its starter at most."""

from __future__ import annotations

import functools
import os
import pwd
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import natives, process
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.files import toml_files
from vmtailor.drivers.confinement import confinement, program_needs
from vmtailor.drivers.confinement.confinement import Root
from vmtailor.model.guest_mounts import Share

#: Names another server than the one that is installed.
PROGRAM_VARIABLE = "VMTAILOR_VIRTIOFSD"
_TOOL = "virtiofsd"
#: QEMU's own server asks it how many files may be open at most.
_MOST_FILES = "/proc/sys/fs/file-max"
#: Numbers of a user's further users and groups.
_SUBORDINATE = {"uids": Path("/etc/subuid"), "gids": Path("/etc/subgid")}
_MOST_TABLE_BYTES = 1 << 20
#: A server's own descriptors, by which it opens files again; no other process.
_OWN = "/proc/self"
_MAPPERS = ("newuidmap", "newgidmap")


@dataclass(frozen=True)
class FileServer:
    """A server. `own_words`: those of QEMU's own, in C; the other is the one in Rust. `needs`: files and folders of the
    host that it cannot do without."""

    program: str
    own_words: bool
    needs: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """Return its command: its socket is descriptor 3, and what it shares is /shared."""
        if self.own_words:
            # Device nodes that a guest's root made could be opened by others here.
            settings = ("source=/shared", "sandbox=chroot", "cache=auto", "log_level=err", "modcaps=-mknod:-setfcap")
            options = (word for setting in settings for word in ("-o", setting))
            return (self.program, "-f", "--fd=3", "--rlimit-nofile=0", *options)
        return (
            self.program, "--fd=3", "--shared-dir=/shared", "--sandbox=chroot", "--cache=auto", "--log-level=error",
            "--rlimit-nofile=0", "--modcaps=-mknod:-setfcap",
        )  # fmt: skip


@dataclass(frozen=True)
class Users:
    """The users of the host that a machine's users are. `root`: the kind of namespace, in native/serve's words;
    `further`: words that give the starter's subordinate users."""

    root: str
    further: tuple[str, ...] = ()


def place() -> str | None:
    """Return the path of this host's server; None where there is none."""
    named = os.environ.get(PROGRAM_VARIABLE)
    return next((path for path in ([named] if named else _places()) if Path(path).is_file()), None)


def installed() -> FileServer:
    """Return the server of this host. Raises HostError where there is none."""
    found = place()
    if found is None:
        raise HostError(
            "folders of the host need a file server, and this host has none (virtiofsd)",
            hint="install the package virtiofsd (on Debian 12 qemu-system-common has it), or fit the image with "
            "--keep folders-9p: then QEMU serves them itself",
        )
    return _probe(found)


def _places() -> list[str]:
    row = next(row for row in toml_files.own_table("tools")["tool"] if row["name"] == _TOOL)
    return list(row["file"])


@functools.cache
def _probe(program: str) -> FileServer:
    real = Path(program).resolve()
    said = process.run([program, "--help"], timeout_s=20, ok=range(256))
    own_words = "--shared-dir" not in said.text + said.error_text
    needs = (*program_needs.needs(real, program_needs.listed(real)), *((_MOST_FILES,) if own_words else ()))
    return FileServer(str(real), own_words, needs)


def users() -> Users:
    """Return who the guest's users are on this host. Raises HostError where a server cannot be shut in."""
    how = confinement.available()
    if how.root is Root.SHARED:
        raise HostError(
            "a file server cannot be shut in on this host: " + (how.lacking[0] if how.lacking else "no namespaces"),
            hint="allow mount namespaces (vmtailor doctor says what was refused), or run without -v",
        )
    if how.root is Root.MOUNT:
        return Users("mount")
    mappers = [process.on_path(name) for name in _MAPPERS]
    ranges = [_subordinate(word, table) for word, table in _SUBORDINATE.items()]
    if None in mappers or None in ranges:
        return Users("user")
    further = [word for found in ranges if found is not None for word in found]
    return Users("ids", (*further, "mappers", *(one for one in mappers if one is not None)))


def _subordinate(word: str, table: Path) -> tuple[str, str, str] | None:
    """Return native/serve's words for the first range that a table gives this user."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = ""
    try:
        with table.open("rb") as file:
            lines = file.read(_MOST_TABLE_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        owner, _, rest = line.partition(":")
        found = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", rest, re.ASCII)
        if owner and owner in (name, str(os.geteuid())) and found and int(found[2]):
            return word, found[1], found[2]
    return None


def in_monitor(shares: Sequence[Share], places: Sequence[str]) -> list[str]:
    """Return the launcher's words that show a monitor which serves them itself these shares at these places of its
    root, and leave it the rights over files that a server has. Raises HostError where it cannot be shut in."""
    made = ["files", *users().further]
    for share, place_there in zip(shares, places, strict=True):
        made += [share.word, share.path, place_there]
    return [*made, "show", _OWN]


def words(shares: Sequence[Share], descriptors: Sequence[int]) -> list[str]:
    """Return the command, up to the program that it becomes, which starts a server for each share. That program has the
    connections as these descriptors. Raises HostError where this host has no server, or cannot shut it in."""
    server, mapped = installed(), users()
    program = natives.locate().serve
    if not program.is_file():
        raise VmtailorError(f"{program} is missing", hint="install vmtailor again")
    made = [str(program), "parent", str(os.getpid()), "root", mapped.root, *mapped.further]
    for path in server.needs:
        made += ["show", path]
    made += ["device", "/dev/null"]
    for word in server.command:
        made += ["arg", word]
    for share, descriptor in zip(shares, descriptors, strict=True):
        made += [share.word, str(descriptor), share.path]
    return [*made, "--"]
