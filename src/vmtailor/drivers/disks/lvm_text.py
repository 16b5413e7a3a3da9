# SPDX-License-Identifier: Apache-2.0
"""LVM's metadata: the text that a physical volume carries → the volumes of its group. It may be hostile: it is read in
one pass, no deeper and no longer than LVM's own is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain

#: Depth of sections, and words of a whole text, at most.
MOST_DEPTH, MOST_WORDS = 8, 400_000
#: Volumes and segments of a group that are read.
MOST_VOLUMES, MOST_SEGMENTS = 256, 4096
SECTOR = 512
_WORD = re.compile(r'[\w.+-]{1,200}|"(?:[^"\\\n]|\\[^\n]){0,4096}+"|[{}\[\]=,]|#[^\n]{0,4096}+|\s{1,4096}', re.ASCII)
_NAME = re.compile(r"[a-zA-Z0-9+_.-]{1,127}")
_ID = re.compile(r"[a-zA-Z0-9]{32}")
#: Kinds of segments that are no stretches of a disk → what people call them.
_KINDS = {
    "thin": "a thin volume", "thin-pool": "a thin pool", "snapshot": "a snapshot", "mirror": "a mirror",
    "cache": "a cached volume", "cache-pool": "a cache", "writecache": "a cached volume", "vdo": "a VDO volume",
    "vdo-pool": "a VDO pool", "crypt": "encrypted", "integrity": "a volume with checksums",
}  # fmt: skip


class TextSection(dict[str, "int | str | list[int | str] | TextSection"]):
    """A section of the text: name → number, text, list, or section."""


@dataclass(frozen=True)
class LogicalSegment:
    """A stretch of a logical volume: `size_bytes` of a physical volume (its id), from `start_bytes` of it on."""

    physical: str
    start_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class LogicalVolume:
    """A volume that a group shows. `id`: its own, without dashes. `unlike`: what it is, in words, where it is not
    linear, and no segments then."""

    name: str
    id: str
    segments: tuple[LogicalSegment, ...]
    unlike: str = ""


@dataclass(frozen=True)
class VolumeGroup:
    """A volume group. `sequence`: goes up with every change."""

    name: str
    id: str
    sequence: int
    volumes: tuple[LogicalVolume, ...]


class _Damaged(ValueError):
    pass


def parse(text: str, name: str) -> VolumeGroup:
    """Return the group that a text describes. Raises UserInputError for one that makes no sense. `name`: of the
    physical volume, in messages."""
    try:
        return _group(_sections(text))
    except (_Damaged, KeyError, TypeError, ValueError) as error:
        raise UserInputError(
            f"{name} has damaged LVM metadata: {plain(str(error))[:200]}",
            hint="for details, run pvck --dump metadata on a copy of it",
        ) from error


def _words_of(text: str) -> list[str]:
    """Return the words of a text, without spaces and comments."""
    found, at = list[str](), 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise _Damaged(f"byte {at} begins no word")
        at = match.end()
        if not match[0][0].isspace() and match[0][0] != "#":
            found.append(match[0])
        if len(found) > MOST_WORDS:
            raise _Damaged("it is too long")
    return found


def _sections(text: str) -> TextSection:
    """Return the text's sections and values; a loop, so that depth costs nothing."""
    words = _words_of(text)
    top, at = TextSection(), 0
    inside = [top]
    while at < len(words):
        if words[at] == "}":
            inside.pop()
            at += 1
            if not inside:
                raise _Damaged("a section ends that did not begin")
            continue
        key, follows = _name(words[at]), words[at + 1] if at + 1 < len(words) else ""
        if follows == "{":
            inside.append(TextSection())
            inside[-2][key] = inside[-1]
            at += 2
        elif follows == "=":
            inside[-1][key], at = _assigned(words, at + 2)
        else:
            raise _Damaged(f"nothing follows {key}")
        if len(inside) > MOST_DEPTH:
            raise _Damaged("it is too deep")
    if len(inside) != 1:
        raise _Damaged("it ends too early")
    return top


def _assigned(words: Sequence[str], at: int) -> tuple[int | str | list[int | str], int]:
    """Return the value or list that begins at a word, and the number of the word behind it."""
    if at < len(words) and words[at] != "[":
        return _value(words[at]), at + 1
    found = list[int | str]()
    for number in range(at + 1, len(words)):
        if words[number] == "]":
            return found, number + 1
        if words[number] != ",":
            found.append(_value(words[number]))
    raise _Damaged("it ends too early")


def _name(word: str) -> str:
    if not _NAME.fullmatch(word):
        raise _Damaged(f"{word} is no name")
    return word


def _value(word: str) -> int | str:
    if word.startswith('"'):
        return word[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not re.fullmatch(r"-?[0-9]{1,19}", word):
        raise _Damaged(f"{word} is no value")
    return int(word)


def _group(top: Mapping[str, object]) -> VolumeGroup:
    name, section = next(
        ((name, one) for name, one in top.items() if isinstance(one, TextSection)), ("", TextSection())
    )
    extent = _number(section, "extent_size") * SECTOR
    physical: dict[str, tuple[str, int, int]] = {}
    for key, one in _inner(section, "physical_volumes").items():
        if isinstance(one, TextSection):
            start, count = _number(one, "pe_start") * SECTOR, _number(one, "pe_count")
            physical[key] = (_id(one), start, count)
    volumes = [
        _volume(key, one, extent, physical)
        for key, one in list(_inner(section, "logical_volumes").items())[:MOST_VOLUMES]
        if isinstance(one, TextSection) and "VISIBLE" in _words(one, "status")
    ]
    return VolumeGroup(_name(name), _id(section), _number(section, "seqno"), tuple(volumes))


def _volume(
    name: str, section: TextSection, extent: int, physical: Mapping[str, tuple[str, int, int]]
) -> LogicalVolume:
    count = _number(section, "segment_count")
    if not 0 < count <= MOST_SEGMENTS:
        raise _Damaged(f"{name} has {count} segments")
    segments, next_extent = [], 0
    for number in range(1, count + 1):
        one = section[f"segment{number}"]
        if not isinstance(one, TextSection):
            raise _Damaged(f"segment{number} of {name} is no section")
        kind = str(one["type"])
        stripes = one.get("stripes")
        if kind != "striped" or one.get("stripe_count") != 1 or not isinstance(stripes, list) or len(stripes) != 2:
            unlike = "striped" if kind == "striped" else _KINDS.get(kind, f"a volume of the kind {plain(kind)[:40]}")
            return LogicalVolume(_name(name), _id(section), (), unlike)
        length, first = _number(one, "extent_count"), _number(one, "start_extent")
        device, place = str(stripes[0]), stripes[1]
        if device not in physical:  # a hidden volume below it, as of a RAID
            return LogicalVolume(_name(name), _id(section), (), "a volume of other volumes")
        own, data, most = physical[device]
        if not isinstance(place, int) or first != next_extent or length < 1 or place < 0 or place + length > most:
            raise _Damaged(f"segment{number} of {name} is nowhere")
        next_extent += length
        segments.append(LogicalSegment(own, data + place * extent, length * extent))
    return LogicalVolume(_name(name), _id(section), tuple(segments))


def _inner(section: TextSection, key: str) -> TextSection:
    found = section.get(key, TextSection())
    if not isinstance(found, TextSection):
        raise _Damaged(f"{key} is no section")
    return found


def _number(section: TextSection, key: str) -> int:
    found = section[key]
    if not isinstance(found, int) or found < 0:
        raise _Damaged(f"{key} is no number")
    return found


def _words(section: TextSection, key: str) -> Sequence[int | str]:
    found = section.get(key, [])
    return found if isinstance(found, list) else [str(found)]


def _id(section: TextSection) -> str:
    found = str(section["id"]).replace("-", "")
    if not _ID.fullmatch(found):
        raise _Damaged("an id has not 32 letters and digits")
    return found
