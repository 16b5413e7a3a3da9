# SPDX-License-Identifier: Apache-2.0
"""The text of a list, and names and places in it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import read_regular
from vmtailor.drivers.image.documents import shown
from vmtailor.drivers.image.image_reference import Source, image_name

#: Bytes of a list, and entries of it, at most.
LIST_BYTES, ENTRIES_MAX = 8 << 20, 10_000
#: Names of entries, which are names of folders, too.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLACES = {f"{one}:" for one in (Source.OCI, Source.OCI_ARCHIVE, Source.DOCKER_ARCHIVE, Source.ROOTFS)} | {"disk:"}
_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})\Z")


@dataclass(frozen=True)
class ListText:
    """A list's file, whole. `path`: as it was given."""

    path: str
    text: str
    sha256: str

    @property
    def folder(self) -> Path:
        """Return the folder that relative paths of the list begin at."""
        return Path(self.path).absolute().parent


def read(path: Path) -> ListText:
    """Return the text of a list. Raises UserInputError: no regular file, too large, not UTF-8, a NUL in it."""
    data = read_regular(path, "the list", LIST_BYTES, hint="vmtailor help fleet-list shows the forms of a list")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserInputError(f"{path} is not text in UTF-8: byte {error.start}", hint="save it as UTF-8") from error
    if "\0" in text:
        raise UserInputError(f"{path} holds a NUL, so it is no text", hint="give the list itself")
    return ListText(str(path), text, hashlib.sha256(data).hexdigest())


def reference_of(text: str, folder: Path, origin: str) -> str:
    """Return a reference as `fit` takes it: a bare name is one of a registry, a relative path begins at the list's
    folder. Raises UserInputError for what is neither."""
    prefix, colon, rest = text.partition(":")
    if f"{prefix}{colon}" in _PLACES and rest:
        return f"{prefix}:{folder / rest}"
    if colon and prefix in set(Source) and rest:
        return text
    if text.startswith(("/", "./", "../")):
        return str(folder / text)
    if image_name(text):
        return f"docker://{text}"
    raise UserInputError(
        f"{origin}: {shown(text, 80)} is no image", hint="write NAME:TAG, docker://NAME, oci:DIR, or a path with ./"
    )


def digest_of(reference: str) -> str:
    """Return the digest that a reference ends in; empty where it has none."""
    found = _DIGEST.search(reference[-80:])
    return found.group(1) if found else ""


def name_from(reference: str) -> str:
    """Return the name of an entry whose list gives it none: the last part of the image's name, with its tag."""
    prefix, colon, rest = reference.partition(":")
    known = colon and (prefix in set(Source) or f"{prefix}:" in _PLACES)
    plain = _DIGEST.sub("", rest if known else reference).rstrip("/")
    last = plain.rpartition("/")[2].rpartition(":")
    parts = (last[0] or last[2], last[2] if last[0] else "")
    named = "-".join(one for one in parts if one and one != "latest")
    cleaned = re.sub(r"[^A-Za-z0-9._-]", "-", named)[:100].lstrip("._-")
    return cleaned or "image"


def require_name(name: str, origin: str) -> str:
    """Return the name of an entry. Raises UserInputError where no folder could have it."""
    if not NAME.fullmatch(name):
        raise UserInputError(
            f"{origin}: {shown(name, 60)} cannot be the name of an entry",
            hint="letters, digits, dots, dashes and underscores, at most 100; the first is a letter or a digit",
        )
    return name


def require_apart(names: Sequence[tuple[str, str]], origin: str) -> None:
    """Raise UserInputError where two entries have one name, which their folders would share. Names that differ in case
    alone are one, as some file systems see them. `names`: each with the words that say where it stands."""
    counted = Counter(name.casefold() for name, _ in names)
    twice = next((name for name, _ in names if counted[name.casefold()] > 1), None)
    if twice is not None:
        places = [where for name, where in names if name.casefold() == twice.casefold()]
        raise UserInputError(
            f"{origin}: two entries are called {twice}: {_some(places)}", hint="give one of them another name"
        )


def require_few(count: int, origin: str) -> None:
    """Raise UserInputError for a list without entries, or with too many."""
    if count == 0:
        raise UserInputError(f"{origin} names no image", hint="vmtailor help fleet-list shows the forms of a list")
    if count > ENTRIES_MAX:
        raise UserInputError(f"{origin} names more than {ENTRIES_MAX} images", hint="split the list")


def _some(places: Iterable[str], most: int = 3) -> str:
    every = list(places)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
