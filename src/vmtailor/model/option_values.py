# SPDX-License-Identifier: Apache-2.0
"""Values of options as people write them: each function returns the value, or raises UserInputError with a hint."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import open_regular
from vmtailor.model.guest_mounts import GROUPS
from vmtailor.model.margin import NONE, Margin

#: Longest content of a file that is tried on a system's disk.
MOST_FILE_BYTES = 64 << 10
_MIB = 1 << 20

_AGE = re.compile(r"([0-9]{1,6})\s*([hdw])\Z", re.ASCII)
_DURATION = re.compile(
    r"0|(?:([0-9]{1,6}(?:\.[0-9]{1,6})?)h)?(?:([0-9]{1,6}(?:\.[0-9]{1,6})?)m)?(?:([0-9]{1,6}(?:\.[0-9]{1,6})?)s)?"
    r"(?:([0-9]{1,9})ms)?",
    re.ASCII,
)
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def parse_memory(text: str, *, least: int = 8 << 20, most: int = 1 << 40) -> int:
    """Return the bytes of `256M`, `1.5g`, `64` (MiB), `134217728b`. Raises UserInputError for other text, and for a
    size that no machine has."""
    size = notation.parse_size(text, decimals=True)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is not an amount of memory", hint="write it as 256M or 1G")
    if not least <= size <= most:
        raise UserInputError(
            f"a machine cannot have '{text}' of memory",
            hint=f"from {notation.size_text(least)} to {notation.size_text(most)}",
        )
    return size - size % _MIB if "." in text else size


def boot_memory(text: str) -> int:
    """Return the memory of a guest that is booted, in bytes. Raises UserInputError."""
    return parse_memory(text, least=16 << 20, most=1 << 44)


def parse_age(text: str) -> float:
    """Return the seconds of `12h`, `30d`, `4w`. Raises UserInputError for other text."""
    match = _AGE.match(text.strip())
    if match is None:
        raise UserInputError(f"'{text[:40]}' is not an age", hint="write it as 12h, 30d or 4w")
    return float(int(match.group(1)) * _SECONDS[match.group(2)])


def parse_room(text: str) -> int:
    """Return the bytes of `0`, `500M`, `20G`. Raises UserInputError for other text."""
    size = 0 if text.strip() == "0" else notation.parse_size(text, needs_unit=True)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is not a size", hint="write it as 500M or 20G")
    return size


def parse_image_size(text: str) -> int:
    """Return the bytes of `16G`, `500M`, `1T`. Raises UserInputError for other text, and for a size that no image
    has."""
    size = notation.parse_size(text, needs_unit=True)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is not an image size", hint="write it as 500M, 32G or 1T")
    if not 1 << 20 <= size <= 1 << 44:
        raise UserInputError(f"an image cannot have a size of '{text}'", hint="from 1M to 16T")
    return size


def parse_volume_size(text: str) -> int:
    """Return the bytes of `500M`, `16G`, `1T`. Raises UserInputError for other text."""
    size = notation.parse_size(text, needs_unit=True)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is not the size of a volume", hint="write it as 500M, 16G or 1T")
    return size


def parse_cpus(text: str) -> int:
    """Return a number of CPUs, which container engines write as a decimal. Raises UserInputError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (1 <= number <= 64 and number.is_integer()):
        raise UserInputError(
            f"a machine cannot have '{text}' CPUs",
            hint="name a whole number, such as --cpus 2; systemd-run --scope -p CPUQuota=150% gives it a share of time",
        )
    return int(number)


def stop_seconds(number: int) -> float:
    """Return seconds to stop in; -1 is for ever."""
    return math.inf if number == -1 else number


#: Streams that a caller and a container can share.
STREAMS = ("stdin", "stdout", "stderr")


def parse_streams(texts: Sequence[str]) -> tuple[str, ...]:
    """Return streams of `--attach`, each once: stdin, stdout, stderr. Raises UserInputError."""
    found = tuple(dict.fromkeys(text.lower() for text in texts))
    for text in found:
        if text not in STREAMS:
            raise UserInputError(f"--attach: no stream is called '{text[:40]}'", hint=f"one of {', '.join(STREAMS)}")
    return found


def parse_switch(text: str) -> bool:
    """Return a switch that is written out, as `--sig-proxy=false`. Raises UserInputError."""
    if text.lower() not in ("true", "false", "1", "0", "t", "f"):
        raise UserInputError(f"'{text[:40]}' is neither true nor false", hint="write true or false")
    return text.lower() in ("true", "1", "t")


def parse_duration(text: str) -> float:
    """Return the seconds of `30s`, `1m30s`, `500ms`, `0`. Raises UserInputError for other text."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise UserInputError(f"'{text[:40]}' is not a span of time", hint="write it as 30s, 1m30s or 500ms")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds + milliseconds / 1000


def parse_labels(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return labels: NAME=VALUE, or NAME, whose value is empty. Raises UserInputError."""
    return tuple(label(text) for text in texts)


def label(text: str) -> tuple[str, str]:
    """Return the name and the value of one label. Raises UserInputError for one without a name."""
    name, _, value = text.partition("=")
    if not name or "\0" in text:
        raise UserInputError(f"'{text[:80]}' is not a label", hint="write it as NAME=VALUE")
    return name, value


def parse_pid(text: str) -> str:
    """Return the one PID namespace that can be named, `host`: the machine's. Raises UserInputError for another."""
    if text != "host":
        raise UserInputError(f"--pid takes host, not '{text[:200]}'", hint="leave it out: there is no other container")
    return text


def command_words(text: str) -> tuple[str, ...]:
    """Return a command line as a shell would read it. Raises UserInputError."""
    if "\0" in text:
        raise UserInputError(f"the entry point {text[:200]!r} holds a NUL", hint="leave it out")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UserInputError(
            f"the entry point {text[:200]!r} is not a command line: {error}", hint="close every quotation mark"
        ) from error


def kernel_words(text: str) -> tuple[str, ...]:
    """Return the words of a kernel's command line."""
    return tuple(text.split())


#: How a change begins that a user spells out: a kernel word with a value, or a kind before a colon.
_OWN_CHANGE = re.compile(r"(?:word|sysctl|unit|disk|config|kernel):|(?!sysctl\.)[a-z0-9][A-Za-z0-9_.-]{0,120}=")


def tried_parts(text: str) -> tuple[str, ...]:
    """Return the changes of one --try: those between commas, or the one that the user spells out, whose value may hold
    commas."""
    return (text,) if _OWN_CHANGE.match(text) else tuple(text.split(","))


def margins(given: Sequence[str]) -> tuple[Margin, ...]:
    """Return the margins that are named, each once and in their order. Raises UserInputError."""
    names = [name for text in given for name in re.split(r"[+,]", text)]
    known = (NONE, *(margin.value for margin in Margin))
    for name in names:
        if name not in known:
            raise UserInputError(f"no margin {name[:64]!r} is known", hint=f"known: {', '.join(known)}; join them by +")
    if NONE in names and set(names) != {NONE}:
        raise UserInputError("the margin none does not go with another", hint="--margin none, or those to keep")
    return tuple(margin for margin in Margin if margin.value in names)


#: Symbols between commas, none of which has a text as its value.
_LISTED = re.compile(r"(?:[^=,]*(?:=(?:[ymn]|\d{1,20}|0x[0-9A-Fa-f]{1,16}))?(?:,|$))+")


def kept_symbols(given: Sequence[str]) -> tuple[str, ...]:
    """Return symbols as NAME or NAME=VALUE, split at commas where all values are y, m, n or numbers: a text may
    hold a comma. `folders` and `volumes` are what `run -v` needs of a kernel."""
    names = (name for text in given for name in (text.split(",") if _LISTED.fullmatch(text) else [text]) if name)
    return tuple(symbol for name in names for symbol in GROUPS.get(name, (name,)))


def unit_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names and patterns of units. Raises UserInputError for what no unit is called."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9:_.@\\*?\[\]-]{1,255}", name):
            raise UserInputError(f"--mask: no unit is called {name!r}", hint="like ssh.service, or 'ssh*'")
    return tuple(names)


def tried_files(given: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Return paths of a system, each with the content that it is to have, or None. Raises UserInputError."""
    return tuple(_tried_file(text) for text in given)


def _tried_file(text: str) -> tuple[str, str | None]:
    path, sign, name = text.partition("=")
    if not sign:
        raise UserInputError(f"--try-file {text}: no file follows", hint="--try-file /etc/docker/daemon.json=new.json")
    if not name:
        return path, None
    with open_regular(Path(name), "the content of --try-file") as file:
        data = file.read(MOST_FILE_BYTES + 1)
    try:
        if len(data) <= MOST_FILE_BYTES and b"\0" not in data:
            return path, data.decode()
    except UnicodeDecodeError:
        pass
    raise UserInputError(f"--try-file {text}: {name} is not a text of at most {MOST_FILE_BYTES >> 10} KiB")


def named_files(given: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """Return NAME=PATH pairs. Raises UserInputError for another form, and for a name that is given twice."""
    found: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise UserInputError(f"'{text[:100]}' is not NAME=PATH", hint="such as firecracker=/usr/bin/firecracker")
        if name in found:
            raise UserInputError(f"'{name[:64]}' is given twice")
        found[name] = Path(path)
    return tuple(found.items())
