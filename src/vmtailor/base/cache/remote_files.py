# SPDX-License-Identifier: Apache-2.0
"""Files of a remote cache, by fsspec: on a folder that hosts share, an object store, or in memory. A file is there
whole or not at all."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vmtailor.base.errors import HostError, UserInputError

#: Backends that show a written file only when it is whole, and can make one that must not be there yet.
_WHOLE = ("memory", "s3", "s3a", "gs", "gcs", "abfs", "az")
#: Folders of this host, which others may share: a file is written beside its place there.
_FOLDERS = ("file", "local")
_PART = ".part-"
#: How the extra of fleets and shared caches is installed.
INSTALL_EXTRA = "make setup-fleet, or where a wheel is installed: pip install 'WHEEL[fleet]'"


def require_library() -> None:
    """Raise HostError where fsspec is not installed."""
    if importlib.util.find_spec("fsspec") is None:
        raise HostError(
            "a remote cache needs the extra vmtailor[fleet]: fsspec cannot be imported",
            hint=INSTALL_EXTRA,
        )


def shown(url: str) -> str:
    """Return a URL as it is printed: without a name and a password that it may have."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url


class RemoteFiles:
    """The files below one URL. Names are relative, with `/` between folders."""

    def __init__(self, url: str) -> None:
        """Raise HostError where fsspec, or the package that it needs for this URL, is missing; UserInputError for a URL
        of a kind that cannot hold a cache."""
        require_library()
        import fsspec

        # What stands before the first colon: of a chain (`simplecache::s3://`), the first.
        kind = fsspec.utils.get_protocol(url)
        if kind not in (*_FOLDERS, *_WHOLE):
            raise UserInputError(
                f"{shown(url)} cannot hold a remote cache: a file that is being written would be seen there",
                hint=f"use a folder, or one of {', '.join(f'{one}://' for one in _WHOLE[1:])}",
            )
        try:
            system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise HostError(f"{shown(url)} cannot be used: {error}", hint="install that package, too") from error
        except (ValueError, TypeError) as error:
            raise UserInputError(f"{shown(url)} is no place of a remote cache", hint="a folder, or s3://…") from error
        self._system: Any = system
        self._root = str(root).rstrip("/")
        self._local = kind in _FOLDERS

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """Return a file's bytes, one more than `most_bytes` of a longer one; None where there is none."""
        try:
            found: bytes = self._system.cat_file(self._at(name), start=0, end=most_bytes + 1)
        except FileNotFoundError:
            return None
        return found

    def size(self, name: str) -> int | None:
        """Return a file's length in bytes; None where there is none."""
        try:
            return int(self._system.info(self._at(name))["size"])
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Write a file; one that is there is replaced."""
        if not self._local:
            self._system.pipe_file(self._at(name), data)
            return
        with self._beside(name, data) as made:
            made.replace(self._at(name))

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet, and return True; of several writers, one does. False: it is there."""
        try:
            if not self._local:
                self._system.pipe_file(self._at(name), data, mode="create")
                return True
            with self._beside(name, data) as made:
                os.link(made, self._at(name))
        except FileExistsError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; none where there is no such folder."""
        try:
            found = self._system.ls(self._at(folder), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for path in found if _PART not in (name := str(path).rstrip("/").rpartition("/")[2]))

    @contextlib.contextmanager
    def _beside(self, name: str, data: bytes) -> Iterator[Path]:
        """Write data to a file of another name in the same folder, which goes when the block is left."""
        final = Path(self._at(name))
        final.parent.mkdir(parents=True, exist_ok=True)
        made = final.with_name(f"{_PART}{secrets.token_hex(8)}")
        try:
            with made.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield made
        finally:
            made.unlink(missing_ok=True)
