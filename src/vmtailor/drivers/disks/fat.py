# SPDX-License-Identifier: Apache-2.0
"""A FAT file system on a disk image, read and written by mtools: nothing is mounted."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.process import CommandFailed
from vmtailor.drivers.disks.sandbox import run_shut_in

_PACKAGE, _TIMEOUT_S = "mtools", 120.0
_MOST_LISTED, _MOST_TEXT = 1 << 20, 1 << 20
_ROOM_BYTES = 1 << 20
#: Names that cannot be read as anything else by mtools.
_PLAIN = re.compile(r"(?:/[A-Za-z0-9_.+-]{1,100}){1,16}")


@dataclass(frozen=True)
class Fat:
    """The file system at an offset of raw bytes. `name`: what messages call it."""

    raw: Path
    offset: int
    name: str

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names of files in a folder; none where there is no such folder."""
        said = self._run("mdir", ["-b", "-i", self._image, f"::{_plain(folder)}/"], _MOST_LISTED, missing=b"")
        lines = said.decode("utf-8", "replace").splitlines()
        return tuple(line.rpartition("/")[2] for line in lines if line.startswith("::") and not line.endswith("/"))

    def text(self, path: str) -> str:
        """Return a short file as text; empty where there is none."""
        said = self._run("mtype", ["-i", self._image, f"::{_plain(path)}"], _MOST_TEXT, missing=b"")
        return said.decode("utf-8", "replace")

    def is_file(self, path: str) -> bool:
        """Return whether there is a file of a name; FAT takes capitals and others for the same."""
        above, _, name = path.rpartition("/")
        return name.lower() in (one.lower() for one in self.names(above))

    def put(self, path: str, data: bytes) -> None:
        """Write a file into a raw image in a folder of our own, folders on the way made; an old one goes.

        Raises UserInputError where there is no room."""
        above = _plain(path).rpartition("/")[0]
        for number in range(2, above.count("/") + 2):
            folder = "/".join(above.split("/")[:number])
            self._run("mmd", ["-D", "s", "-i", self._image, f"::{folder}"], _MOST_LISTED, writes=True, missing=b"")
        with tempfile.NamedTemporaryFile(dir=self.raw.parent, prefix="content-") as content:
            content.write(data)
            content.flush()
            words = ["-o", "-i", self._image, content.name, f"::{path}"]
            self._run("mcopy", words, _ROOM_BYTES, writes=True)
        if self._run("mtype", ["-i", self._image, f"::{path}"], len(data) + _ROOM_BYTES, missing=b"") != data:
            raise UserInputError(f"{path} cannot be written to {self.name}", hint="is there room for it?")

    def remove(self, path: str) -> None:
        """Remove a file of a raw image in a folder of our own."""
        words = ["-i", self._image, f"::{_plain(path)}"]
        self._run("mdel", words, _ROOM_BYTES, writes=True)

    @property
    def _image(self) -> str:
        return f"{self.raw}@@{self.offset}"

    def _run(
        self, tool: str, words: list[str], most_bytes: int, *, writes: bool = False, missing: bytes | None = None
    ) -> bytes:
        """Return what a tool prints. `missing`: in place of that where it fails; else UserInputError is raised."""
        most_bytes = self.raw.stat().st_size + _ROOM_BYTES if writes else most_bytes
        try:
            return run_shut_in(
                _PACKAGE, ["-c", tool, *words], shown=() if writes else (self.raw,),
                written=self.raw.parent if writes else None, package=_PACKAGE, most_bytes=most_bytes,
                timeout_s=_TIMEOUT_S,
            ).stdout  # fmt: skip
        except CommandFailed as error:
            if missing is not None:
                return missing
            raise UserInputError(
                f"{self.name} cannot be changed", hint="for details, run fsck.fat -n on a copy", details=error.details
            ) from error


def _plain(path: str) -> str:
    if not _PLAIN.fullmatch(path):
        raise UserInputError(f"{path!r} is not a path that can be read or changed on a FAT file system")
    return path
