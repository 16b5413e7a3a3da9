# SPDX-License-Identifier: Apache-2.0
"""A boot entry beside those that a loader has, as text: for GRUB, with its environment, and for systemd-boot. The old
entry stays the default; the new one is tried, and the old one starts again where that fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import shell_words

#: Bytes of GRUB's environment block, its first line, and what fills it.
BLOCK_BYTES, _BLOCK_HEAD, _FILL = 1024, "# GRUB Environment Block\n", "#"
#: The variable by which GRUB starts an entry once.
NEXT = "next_entry"
#: Boots that systemd-boot gives a new entry before it prefers the others.
TRIES = 3
_BEGIN, _END = "### BEGIN vmtailor ###", "### END vmtailor ###"
_COUNTED = re.compile(r"\d{1,4}(?:-\d{1,4})?")
_LINUX = re.compile(r"[ \t]*linux(?:efi|16)?[ \t]")
_INITRD = re.compile(r"[ \t]*initrd(?:efi|16)?[ \t]")
_DEFAULT = re.compile(r"^[ \t]*default[ \t].*$", re.MULTILINE)


@dataclass(frozen=True)
class NewEntry:
    """An entry to be added. `id`: letters, digits and `-`; `kernel`: the path as the loader sees it; `words`: the
    kernel's command line, each as the kernel is to have it."""

    id: str
    title: str
    version: str
    kernel: str
    words: tuple[str, ...]


def with_grub_entry(text: str, entry: NewEntry, like: str) -> str:
    """Return grub.cfg with an entry at its end, in place of one that we have added before. `like`: the kernel of the
    entry whose lines lead to the file system. The entry starts once, if GRUB can note that it did; it becomes the
    default with `saved_entry`.

    Raises UserInputError where no entry starts `like`."""
    text = _without_ours(text)
    words = " ".join(_grub_word(word) for word in entry.words)
    lines = [f"    linux {entry.kernel} {words}" if _LINUX.match(line) else line for line in _lines_of(text, like)]
    body = "\n".join(line for line in lines if not _INITRD.match(line))
    return f"""{text.rstrip()}
{_BEGIN}
menuentry '{entry.title}' --id '{entry.id}' {{
{body}
}}
if load_env; then
    if [ "${{{NEXT}}}" = '{entry.id}' ]; then
        set {NEXT}=
        if save_env {NEXT}; then
            set default='{entry.id}'
        fi
    elif [ "${{saved_entry}}" = '{entry.id}' ]; then
        set default='{entry.id}'
    fi
fi
{_END}
"""


def _without_ours(text: str) -> str:
    """Return grub.cfg without the lines that we have added before."""
    before, found, rest = text.partition(f"{_BEGIN}\n")
    _, ended, behind = rest.partition(f"{_END}\n")
    return before + behind if found and ended else text


def _lines_of(text: str, kernel: str) -> list[str]:
    """Return the lines within the menu entry that starts a kernel."""
    inside: list[str] | None = None
    for line in text.splitlines():
        words = shell_words(line, comments=True)
        if words and words[0] == "menuentry":
            inside = []
        elif words == ["}"] and inside is not None:
            if any(_LINUX.match(one) and kernel in one.split() for one in inside):
                return inside
            inside = None
        elif inside is not None:
            inside.append(line)
    raise UserInputError(
        f"GRUB's configuration has no menu entry for {kernel}", hint="make its menu anew in the system: update-grub"
    )


def _grub_word(word: str) -> str:
    """Return a word as GRUB's script has it. GRUB puts quotes around a word with spaces itself, and backslashes before
    quotes in it: the kernel takes the first as its own, and not the second."""
    plain = word.replace('"', "") if " " in word else word
    if "'" in plain or "\\" in plain or '"' in plain:
        raise UserInputError(
            f"GRUB cannot hand on quotes and backslashes of the word {word[:100]}",
            hint="boot the disk with the bundle's kernel from outside: vmtailor run",
        )
    return f"'{plain}'"


def with_variable(block: bytes, name: str, value: str) -> bytes:
    """Return GRUB's environment block with a variable. An empty block is begun anew. Raises UserInputError for one that
    is damaged or full."""
    text = block.decode("latin-1") or _BLOCK_HEAD
    if not text.startswith(_BLOCK_HEAD):
        raise UserInputError("GRUB's environment block is damaged", hint="make it anew: grub-editenv FILE create")
    kept = [line for line in text.removeprefix(_BLOCK_HEAD).splitlines() if line and not line.startswith(_FILL)]
    lines = [line for line in kept if not line.startswith(f"{name}=")]
    made = _BLOCK_HEAD + "".join(f"{line}\n" for line in (*lines, f"{name}={value}"))
    if len(made) > BLOCK_BYTES:
        raise UserInputError("GRUB's environment block is full", hint="unset variables: grub-editenv FILE unset NAME")
    return made.ljust(BLOCK_BYTES, _FILL).encode("latin-1")


def bls_name(entry: NewEntry) -> str:
    """Return the name of an entry's file: systemd-boot counts its boots in it."""
    return f"{entry.id}+{TRIES}.conf"


def bls_entry(entry: NewEntry) -> str:
    """Return an entry of the Boot Loader Specification that is sorted before all others while it has boots left."""
    rows = (
        ("title", entry.title), ("sort-key", "0-vmtailor"), ("version", entry.version), ("linux", entry.kernel),
        ("options", " ".join(entry.words)),
    )  # fmt: skip
    return "".join(f"{name} {value}\n" for name, value in rows)


def without_default(text: str) -> str:
    """Return systemd-boot's loader.conf without its default: the entry that is sorted first starts."""
    return _DEFAULT.sub(lambda found: f"#{found[0]}", text)


def is_ours(name: str, ids: Iterable[str]) -> bool:
    """Return whether a file of an entry is one of ours by its id, however its boots are counted."""
    own, counted, boots = name.removesuffix(".conf").partition("+")
    return name.endswith(".conf") and own in ids and (not counted or _COUNTED.fullmatch(boots) is not None)
