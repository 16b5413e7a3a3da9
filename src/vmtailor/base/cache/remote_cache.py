# SPDX-License-Identifier: Apache-2.0
"""A remote cache: results that another host has made with the same tools are fetched, and ours are uploaded for others.
Whatever fails here costs a sentence, once, and the work goes on without it."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from vmtailor.base import output
from vmtailor.base.cache import packed_folder
from vmtailor.base.cache.packed_folder import PackedFolder, Piece, Unpackable
from vmtailor.base.cache.remote_files import RemoteFiles, shown
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import records, toml_files

T = TypeVar("T")
#: Longest list of a packed folder that is read.
MOST_LIST_BYTES = 16 << 20
#: Seconds for one question, and for one piece. A remote cache that needs longer is not asked again.
QUESTION_S, PIECE_S = 30.0, 120.0
#: Letters of a digest in names, as the local cache has them.
_KEY = 40


class RemoteCache:
    """One remote cache, for results of hosts with one fingerprint. `fingerprint`: its digest, asked for when it is
    first needed, and its record as bytes, which lies there to be read."""

    def __init__(self, url: str, fingerprint: Callable[[], tuple[str, bytes]]) -> None:
        self.url = url
        self._fingerprint = fingerprint
        self._files: RemoteFiles | None = None
        self._folder = ""
        self._damaged: set[tuple[str, str]] = set()
        self._off: set[str] = set()

    @property
    def folder(self) -> str:
        """Return the folder of the results that this host can use. Raises as `open`."""
        self.open()
        return self._folder

    def open(self) -> RemoteFiles:
        """Return the files of the remote cache. Raises HostError and UserInputError where it cannot be one."""
        if self._files is None:
            files = RemoteFiles(self.url)
            digest, _ = self._fingerprint()
            self._folder, self._files = f"results/{digest[:_KEY]}", files
        return self._files

    def name_of(self, kind: str, key: str) -> str:
        """Return the name of a result's list."""
        where = f"{kind}-{_host()}" if travelling()[kind] else kind
        return f"{self.folder}/{where}/{key[:_KEY]}.json"

    def fetch(self, kind: str, key: str, folder: Path) -> bool:
        """Fill an empty folder with a result of that name; return whether there is one. What is damaged counts as not
        there, and is uploaded again by whoever makes it."""
        if not self._asked(kind, "fetch"):
            return False
        try:
            self.open()  # asks this host for its tools, which has no limit of time
            packed = _within(QUESTION_S, lambda: self.listed(kind, key))
            if packed is None:
                return False
            packed_folder.unpack(packed, folder, self._piece)
        except Unpackable as error:
            self._damaged.add((kind, key))
            output.note(f"! the {_words(kind)} in {shown(self.url)} is not used: {error}")
        except Exception as error:  # of the library, its backends, the network: all mean that it is of no use now
            self._give_up("fetch", "nothing is taken from", error)
        else:
            return True
        for one in folder.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        return False

    def listed(self, kind: str, key: str) -> PackedFolder | None:
        """Return the list of a result, checked; None where there is none. Raises Unpackable for a damaged one."""
        data = self.open().read(self.name_of(kind, key), MOST_LIST_BYTES)
        if data is None:
            return None
        if len(data) > MOST_LIST_BYTES:
            raise Unpackable("its list is too long")
        try:
            packed = records.from_bytes(PackedFolder, data, "its list")
        except UserInputError as error:
            raise Unpackable("its list is damaged") from error
        packed_folder.check(packed, kind, key[:_KEY])
        return packed

    def unpacked(self, kind: str, key: str, folder: Path) -> None:
        """Fill an empty folder with a result that is there. Raises Unpackable for one that is damaged or gone, and the
        errors of the files."""
        packed = self.listed(kind, key)
        if packed is None:
            raise Unpackable("its list is gone")
        packed_folder.unpack(packed, folder, self._piece)

    def _piece(self, piece: Piece) -> bytes:
        data = _within(PIECE_S, lambda: self.open().read(_blob(piece), piece.packed_bytes))
        if data is None:
            raise Unpackable(f"the piece {piece.sha256[:12]} is missing")
        return data

    def publish(self, kind: str, key: str, folder: Path) -> None:
        """Upload a finished folder: its pieces, then the list, which alone makes it visible. Of several who upload the
        same result the first one counts."""
        if not self._asked(kind, "publish"):
            return
        again = (kind, key) in self._damaged

        def send(piece: Piece, data: bytes) -> None:
            _within(PIECE_S, lambda: self._send(piece, data, again))

        try:
            self.open()
            packed = packed_folder.pack(folder, kind, key[:_KEY], send)
            _within(QUESTION_S, lambda: self._name(packed, kind, key, again))
        except Unpackable as error:
            output.note(f"! the {_words(kind)} is not uploaded to {shown(self.url)}: {error}")
        except Exception as error:
            self._give_up("publish", "nothing is uploaded to", error)

    def _send(self, piece: Piece, data: bytes, again: bool) -> None:
        if again or self.open().size(_blob(piece)) != piece.packed_bytes:
            self.open().put(_blob(piece), data)

    def _name(self, packed: PackedFolder, kind: str, key: str, again: bool) -> None:
        data = records.to_bytes(packed)
        digest, record = self._fingerprint()
        self.open().create(f"fingerprints/{digest[:_KEY]}.json", record)
        if again:
            self.open().put(self.name_of(kind, key), data)
        else:
            self.open().create(self.name_of(kind, key), data)

    def _asked(self, kind: str, what: str) -> bool:
        return kind in travelling() and what not in self._off

    def _give_up(self, what: str, sentence: str, error: Exception) -> None:
        """Stop asking for the rest of this process, and say so once."""
        self._off.add(what)
        output.note(f"! {sentence} the remote cache {shown(self.url)} from here on: {why(error)}")


def why(error: Exception) -> str:
    if isinstance(error, VmtailorError):
        return error.message
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _words(kind: str) -> str:
    return kind.replace("-", " ")


def _blob(piece: Piece) -> str:
    return f"blobs/{piece.sha256[:2]}/{piece.sha256}"


def _within(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns. Raises its errors, and TimeoutError when it takes longer: it is left alone then."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    # Of the program's end nothing may wait for a server that does not answer.
    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return found[0]


@cache
def travelling() -> dict[str, bool]:
    """Return the kinds of results that travel, each with whether it depends on the host's processor."""
    return {row["name"]: row.get("host", False) for row in toml_files.own_table("remote_kinds")["kind"]}


@cache
def _host() -> str:
    """Return a short name for hosts with this one's processor."""
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return hashlib.sha256(f"{os.uname().machine} {model}".encode()).hexdigest()[:16]
