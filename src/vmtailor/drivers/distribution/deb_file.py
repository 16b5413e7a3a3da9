# SPDX-License-Identifier: Apache-2.0
"""Files out of a .deb, streamed: nothing is unpacked that is not asked for."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from vmtailor.base import process
from vmtailor.base.errors import HostError


@contextlib.contextmanager
def opened(deb: Path) -> Iterator[tarfile.TarFile]:
    """The files of a .deb as a stream: read the members in their order."""
    dpkg_deb = process.require_tool("dpkg-deb", "dpkg")
    with process.spawn([dpkg_deb, "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        try:
            with tarfile.open(fileobj=running.stdout, mode="r|") as archive:
                yield archive
        except tarfile.TarError as error:
            raise HostError(f"{deb} is damaged: {error}", hint=f"delete {deb.parent}, then try again") from error


def extract(
    deb: Path, place: Callable[[str], Path | None], *, on_bytes: Callable[[int], None] | None = None
) -> tuple[Path, ...]:
    """Write the regular files of a .deb for which `place(name)` gives a path. Names come without the leading `./`."""
    written = []
    with opened(deb) as archive:
        for name, source in _files(archive):
            if on_bytes is not None:
                on_bytes(archive.offset)
            if (target := place(name)) is not None:
                _write(source, target)
                written.append(target)
    return tuple(written)


def extract_one(deb: Path, wanted: str, target: Path) -> None:
    """One file; reading stops behind it, which saves most of a large package."""
    with opened(deb) as archive:
        for name, source in _files(archive):
            if name == wanted:
                _write(source, target)
                return


def _files(archive: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each regular file; the content is there until the next one is asked for."""
    for member in archive:
        source = archive.extractfile(member) if member.isfile() else None
        if source is not None:
            yield member.name.removeprefix("./"), source


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
