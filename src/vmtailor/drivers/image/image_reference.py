# SPDX-License-Identifier: Apache-2.0
"""References to images as people type them: read, or refused with the spelling that was meant."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path

from vmtailor.base import manual, near_names
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import kind_of
from vmtailor.drivers.image import image_archive, other_inputs, skopeo
from vmtailor.model.systems.system import SubjectKind


class Source(StrEnum):
    """The source of an image. The value is the prefix of a reference, without its colon."""

    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"
    DOCKER = "docker"
    DOCKER_DAEMON = "docker-daemon"
    CONTAINERS_STORAGE = "containers-storage"
    ROOTFS = "rootfs"


@dataclass(frozen=True)
class Reference:
    """A parsed reference. `rest`: the text after the prefix, a path (perhaps with a tag), or a name in a registry.
    `shown`: the text in messages, if it differs. `pinned`: the current digest of a name in a registry.
    `architecture`: the wanted one as the image's lists spell it, if it differs."""

    source: Source
    rest: str
    shown: str = ""
    pinned: skopeo.Pinned | None = None
    architecture: str = ""

    @property
    def text(self) -> str:
        return f"{self.source}:{self.rest}"

    @property
    def name(self) -> str:
        return self.shown or self.text

    @property
    def path(self) -> Path:
        """Return the file or folder; a tag after the last colon does not belong to it."""
        whole = Path(self.rest)
        if self.source == Source.ROOTFS or whole.exists() or ":" not in self.rest:
            return whole
        return Path(self.rest.partition(":")[0])

    @property
    def tag(self) -> str:
        """Return the text that follows the path, with its colon."""
        return self.rest.removeprefix(str(self.path))


#: Sources of which the rest of a reference is the name of an image.
_NAMED = frozenset({Source.DOCKER, Source.DOCKER_DAEMON, Source.CONTAINERS_STORAGE})
#: Prefixes of other programs, each with ours.
_OTHER_PREFIXES = {
    "podman": "containers-storage:", "containers": "containers-storage:", "docker-image": "docker://",
    "registry": "docker://", "image": "docker://",
}  # fmt: skip
#: Endings of files, which no name in a registry has.
_FILES = (".tar", ".tgz", ".gz", ".xz", ".zst", ".bz2", ".qcow2", ".img", ".raw", ".iso", ".vmdk", ".oci", ".toml")
_DISKS = (".qcow2", ".img", ".raw")
#: Longest text that is looked at as the name of an image, and most names of a folder that a missing one is compared to.
_LONGEST, _MOST_NAMES = 1000, 2000
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def parse_reference(text: str) -> Reference:
    """Understand a reference: `PREFIX:…`, or a path whose kind is seen from its content.

    Raises UserInputError when it is neither, with the spelling that was meant."""
    require_text(text, "the image reference")
    prefix, colon, rest = text.partition(":")
    if colon and prefix in set(Source):
        if not rest:
            raise UserInputError(f"nothing follows '{text}'", hint=f"for example: {prefix}:NAME")
        return _spelled(Source(prefix), rest)
    if colon and prefix == SubjectKind.DISK:
        raise UserInputError(
            f"{text} is a system with an init of its own; this command takes images",
            hint="vmtailor fit, show and boot take disks",
        )
    path = Path(text or "/nowhere")
    if path.is_dir():
        return Reference(_folder_kind(path), text)
    if path.is_file():
        return Reference(_archive_kind(path), text)
    if colon and Path(prefix, "oci-layout").is_file():
        return Reference(Source.OCI, text)
    raise _not_found(text)


def require_text(text: str, what: str) -> None:
    """Require text in UTF-8 without NUL: records are UTF-8, and no program can be given a NUL. Raises
    UserInputError."""
    if "\0" in text or (not text.isascii() and text != text.encode("utf-8", "replace").decode()):
        raise UserInputError(f"{what} {text[:200]!r} is not text in UTF-8", hint="rename it, or type it again")


# ---- with a prefix


def _spelled(source: Source, rest: str) -> Reference:
    """Return a reference with a prefix, completed as container engines do it: a digest stands for the tag beside it,
    and an image of Docker's or podman's without either has the tag `latest`. Raises UserInputError for slashes that
    skopeo does not take."""
    if source is Source.DOCKER:
        name = rest.removeprefix("//")
        if name == rest:
            alone = _LETTERS.issuperset(rest)  # docker:27 is an image, too
            more = f"; docker://docker:{rest} for the image docker with the tag {rest}" if alone else ""
            raise UserInputError(
                f"docker:{rest} lacks the two slashes of a registry", hint=f"docker://{rest} for the image {rest}{more}"
            )
        if url := _from_browser(name):
            raise UserInputError(f"docker:{rest} is the address of a web page", hint=f"write docker://{url}")
        return Reference(source, f"//{_without_second(name)}")
    if rest.startswith("//") and not Path(rest).exists():
        raise UserInputError(f"only docker: is followed by slashes, not {source}:", hint=f"{source}:{rest.lstrip('/')}")
    if source in _NAMED and image_name(rest):
        rest = _without_second(rest)
        head, _, last = rest.rpartition("/")
        if source is Source.DOCKER_DAEMON and ":" not in last and "@" not in last:
            rest = f"{head}/{last}:latest".lstrip("/")
    return Reference(source, rest)


def _without_second(name: str) -> str:
    """Return a name without the tag that stands beside a digest: skopeo takes only one of them."""
    before, at, digest = name.partition("@")
    head, slash, last = before.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}" if at else name


# ---- without one


def _folder_kind(path: Path) -> Source:
    if (path / "oci-layout").is_file():
        return Source.OCI
    if error := other_inputs.folder(path):
        raise error
    return Source.ROOTFS


def _archive_kind(path: Path) -> Source:
    """Return a file's kind, told by its members. An archive of `docker save` may be both; its own form has the last
    word."""
    if error := other_inputs.file(path):
        raise error
    found = set()
    for name in image_archive.names(image_archive.BlobSource(path, str(path))):
        found.add(name)
        if name == "manifest.json":
            return Source.DOCKER_ARCHIVE
    if "oci-layout" in found:
        return Source.OCI_ARCHIVE
    raise other_inputs.archive(path, found)


def _not_found(text: str) -> UserInputError:
    """Return the error for a text that is no file, with what it may mean."""
    prefix, colon, rest = text.partition(":")
    if url := _from_browser(text):
        return UserInputError(f"{text} is the address of a web page", hint=f"for the image: docker://{url}")
    if colon and rest and "/" not in prefix:
        if prefix == "dir":
            return UserInputError(
                f"{text} is a folder in skopeo's own form",
                hint=f"skopeo copy {shlex.quote(text)} oci:FOLDER, then give oci:FOLDER",
            )
        if prefix == "file":
            return UserInputError(f"{text} is a URL of a file", hint=f"give its path: {rest.removeprefix('//')}")
        meant = _OTHER_PREFIXES.get(prefix)
        close = near_names.nearest(prefix, Source, 1)
        if meant or (close and prefix.count("-") == close[0].count("-")):
            ours = meant or ("docker://" if close[0] == Source.DOCKER else f"{close[0]}:")
            spelled = f"did you mean {ours}{rest.removeprefix('//')}?"
            more = f" For the image {text}: {_spellings(text)}" if image_name(text) else ""
            return UserInputError(f"'{prefix}:' is the prefix of no source of images", hint=f"{spelled}{more}")
    if _is_path(text) or not image_name(text):
        return _no_such_file(text)
    return UserInputError(f"'{text}' does not say where the image is", hint=_spellings(text))


def image_name(text: str) -> bool:
    """Return whether a text may be the name of an image: `nginx:1.27`, `ghcr.io/x/y@sha256:…`."""
    before, at, digest = text.partition("@")
    head, _, last = before.rpartition("/")
    last, colon, tag = last.partition(":")
    host, _, port = head.partition("/")[0].partition(":")
    parts = [
        *([host, *head.split("/")[1:]] if head else []),
        last,
        *([tag] if colon else []),
        *([port] if port else []),
    ]
    if at:
        kind, colon, value = digest.partition(":")
        parts += [kind, value.rstrip("…") or "0"] if colon and value else [""]  # cut short by who typed it
    return len(text) <= _LONGEST and all(part and part[0] not in ".-" and _LETTERS.issuperset(part) for part in parts)


def _spellings(text: str) -> str:
    """Return how the name of an image is written for a registry, for Docker and for podman on this host."""
    name = _without_second(text)
    head, slash, last = name.rpartition("/")
    low = f"{head}{slash}{last.partition(':')[0].lower()}{last[len(last.partition(':')[0]) :]}"
    tagged = low if ":" in last or "@" in low else f"{low}:latest"
    ways = {
        f"docker://{low}": "from its registry", f"docker-daemon:{tagged}": "from Docker on this host",
        f"containers-storage:{tagged}": "from podman on this host",
    }  # fmt: skip
    order: Iterable[str] = reversed(ways) if head.startswith("localhost") and ":" not in head else ways
    return "; ".join(f"{way} {ways[way]}" for way in order)


def _from_browser(text: str) -> str:
    """Return the name of the image whose page in a registry somebody copied; empty for another text."""
    place = text.removeprefix("https://").removeprefix("http://")
    host, _, path = place.partition("/")
    if host == "hub.docker.com":
        kind, _, name = path.partition("/")
        parts = [part for part in name.partition("?")[0].split("/") if part]
        return "/".join(parts[: 1 if kind == "_" else 2]) if kind in ("_", "r") else ""
    return place.rstrip("/") if place != text and image_name(place.rstrip("/")) else ""


def _is_path(text: str) -> bool:
    return text.startswith(("/", ".", "~")) or text.endswith(_FILES) or os.path.lexists(text)


def _no_such_file(text: str) -> UserInputError:
    if os.path.lexists(text):
        path = Path(text)
        what = f"is {kind_of(path.stat().st_mode)}" if path.exists() else "is a symbolic link to nothing"
        return UserInputError(f"{text} {what}, and no image", hint="give a file or a folder")
    hint = f"{manual.command('images')} lists the kinds of references"
    if text in ("", "-"):
        hint = "docker save NAME | vmtailor fit docker-archive:-" if text else hint
        return UserInputError("the reference is " + ("- alone" if text else "empty"), hint=hint)
    if text.startswith("~"):
        hint = f"the shell replaces ~ only without quotes; {hint}"
    return UserInputError(
        f"there is no file or folder '{text}'"
        if _is_path(text)
        else f"'{text}' is neither a file or folder nor an image reference",
        hint=near_names.or_else(Path(text).name, _beside(Path(text)), hint),
    )


def _beside(path: Path) -> Iterator[str]:
    try:
        yield from (entry.name for entry in islice(path.parent.iterdir(), _MOST_NAMES))
    except (OSError, ValueError):
        return


# ---- in the place of a bundle


def text_of(path: Path) -> str:
    """Return a reference that was taken for a path, as it was typed: a path has no double slash."""
    text = str(path)
    return f"docker://{text.removeprefix('docker:/').lstrip('/')}" if text.startswith("docker:/") else text


def in_place_of_bundle(path: Path) -> str:
    """Return the image reference that stands where a bundle may be, too; empty for anything else. A folder without a
    prefix is an image only where it is one for sure."""
    text = text_of(path)
    if path.is_dir() and not other_inputs.holds_image(path):
        return ""
    try:
        parse_reference(text)
    except UserInputError:
        return ""
    return text


def without_source(path: Path) -> UserInputError | None:
    """Return the error for the name of an image that does not say where the image is, where a bundle may stand, too;
    None for what is no such name."""
    text = text_of(path)
    if text.partition(":")[0] in set(Source):
        try:
            parse_reference(text)
        except UserInputError as error:
            return error
    if not image_name(text) or _is_path(text):
        return None
    return UserInputError(
        f"{text} is neither a bundle's folder nor an image that says where it is",
        hint=f"vmtailor run docker://{_without_second(text)} starts the image of that name",
    )


def instead_of_bundle(path: Path) -> UserInputError | None:
    """Return the error for an image, or a disk, that stands where a bundle is to be; it has the command that fits it.
    None for what may not be one."""
    text = text_of(path)
    prefix, _, rest = text.partition(":")
    if prefix == SubjectKind.DISK or (path.is_file() and path.suffix in _DISKS):
        file = rest if prefix == SubjectKind.DISK else text
        return _fit_first(f"{text} is a disk, not a bundle", f"{shlex.quote(f'disk:{file}')} -x EXERCISE", file)
    if path.exists() and not path.is_file() and not other_inputs.holds_image(path):
        return other_inputs.folder(path)
    try:
        parse_reference(text)
    except UserInputError as error:
        if path.exists():
            return error
        named = image_name(text) and not _is_path(text)
        return _fit_first(f"{text} is not a bundle", f"docker://{text}", text) if named else None
    return _fit_first(f"{text} is an image, not a bundle", shlex.quote(text), rest or text)


def _fit_first(what: str, given: str, name: str) -> UserInputError:
    """Return the error for something that has yet to be fitted. `name`: what the bundle is called after."""
    last = name.partition("@")[0].rstrip("/").rpartition("/")[2].partition(":")[0].partition(".")[0].lower()
    out = shlex.quote(f"{last or 'new'}-vm")
    return UserInputError(what, hint=f"vmtailor fit {given} -o {out} makes the bundle {out} of it; give that")
