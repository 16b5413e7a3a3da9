# SPDX-License-Identifier: Apache-2.0
"""Entries of boot loaders: GRUB's configuration, and entries of the Boot Loader Specification.

GRUB's file is a script. The parts that mkconfig writes are read in order, without running it. Variables that only a run
would set stay as they are written, except those of the environment block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vmtailor.analysis.systems.kernels import version_order
from vmtailor.base.text import shell_words
from vmtailor.model.systems.system import LoaderEntry

#: Lines and entries that are read.
MOST_LINES, MOST_ENTRIES = 20_000, 200
_LINUX = ("linux", "linuxefi", "linux16")
_INITRD = ("initrd", "initrdefi", "initrd16")
_VARIABLE = re.compile(r"\$(?:\{(\w{1,64})\}|(\w{1,64}))")
_SAVED_DEFAULT = re.compile(r'^[ \t]*set default="?\$\{?saved_entry\}?"?[ \t]*$', re.MULTILINE)
_GENERATED_DEFAULT = re.compile(r'^[ \t]*set default="([^"$\n]*)"', re.MULTILINE)


@dataclass
class _Menu:
    """The position of a reader of grub.cfg. `path`: numbers of the submenus, and of the entry in the innermost."""

    entries: list[tuple[str, tuple[str, ...], LoaderEntry]] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0])
    titles: list[str] = field(default_factory=list)


def parse_grub(text: str, source: str, environment: Mapping[str, str], boot_prefix: str = "") -> list[LoaderEntry]:
    """Return the menu entries that start a Linux kernel, the one that starts by itself marked. `environment`: of
    grubenv; `boot_prefix`: what paths are below (`/boot` where that is a partition of its own)."""
    menu, blocks = _Menu(), list[str]()
    current: LoaderEntry | None = None
    for line in text.splitlines()[:MOST_LINES]:
        words = shell_words(line, comments=True)
        if not words or len(menu.entries) >= MOST_ENTRIES:
            continue
        if words[0] in ("menuentry", "submenu") and words[-1].endswith("{") and len(words) > 1:
            blocks.append(words[0])
            if words[0] == "submenu":
                menu.titles.append(words[1])
                menu.counts.append(0)
            else:
                current = LoaderEntry(title=words[1][:200], kernel="", initrd=(), words=(), source=source)
            ids = tuple(words[i + 1] for i, word in enumerate(words[:-1]) if word in ("--id", "$menuentry_id_option"))
            if words[0] == "menuentry" and current is not None:
                names = (words[1], *ids)
                number = ">".join(map(str, menu.counts))
                prefix = ">".join(menu.titles)
                full = tuple(f"{prefix}>{name}" if prefix else name for name in names)
                menu.entries.append((number, (*full, *names), current))
        elif words == ["}"] and blocks:
            kind = blocks.pop()
            if kind == "submenu":
                menu.titles.pop()
                menu.counts.pop()
            if kind in ("submenu", "menuentry"):
                menu.counts[-1] += 1
                current = None
        elif words[-1] == "{":  # of a function, or an if
            blocks.append("")
        elif current is not None and words[0] in (*_LINUX, *_INITRD) and len(words) > 1:
            current = _with(current, words, environment, boot_prefix)
            menu.entries[-1] = (*menu.entries[-1][:2], current)
    return _chosen(menu, environment.get("saved_entry", ""), text)


def _with(entry: LoaderEntry, words: list[str], environment: Mapping[str, str], prefix: str) -> LoaderEntry:
    filled = [word for one in words[1:] for word in (_filled(one, environment).split() or [""])]
    if words[0] in _INITRD:
        return replace(entry, initrd=tuple(_path(word, prefix) for word in filled if word))
    return replace(entry, kernel=_path(filled[0], prefix), words=tuple(filled[1:]))


def _chosen(menu: _Menu, saved: str, text: str) -> list[LoaderEntry]:
    """Return the entry that starts: a saved one, if the configuration asks for it; the last default that is a plain
    word; or the first."""
    plain = next(iter(reversed(_GENERATED_DEFAULT.findall(text))), "0")
    wanted = (saved if _SAVED_DEFAULT.search(text) else "") or plain or "0"
    linux = [(number, names, entry) for number, names, entry in menu.entries if entry.kernel]
    if not linux:
        return []
    hits = [entry for number, names, entry in linux if wanted == number or wanted in names]
    # A number may be of a submenu: its first entry.
    hits = hits or [entry for number, _, entry in linux if number.startswith(f"{wanted}>")]
    first = hits[0] if hits else linux[0][2]
    return [replace(entry, chosen=entry is first) for _, _, entry in linux]


def _filled(word: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda m: environment.get(m[1] or m[2], "" if (m[1] or m[2]) == "root" else m[0]), word)


def _path(word: str, prefix: str) -> str:
    path = re.sub(r"^\([^)]{0,100}\)", "", word)
    return f"{prefix}/{path.lstrip('/')}"


def parse_grubenv(text: str) -> dict[str, str]:
    """Parse GRUB's environment block: lines NAME=VALUE, then padding."""
    if not text.startswith("# GRUB Environment Block"):
        return {}
    pairs = (line.partition("=") for line in text.splitlines()[:MOST_LINES] if not line.startswith("#"))
    return {name: value for name, found, value in pairs if found}


def parse_bls(files: Mapping[str, str], environment: Mapping[str, str], boot_prefix: str = "") -> list[LoaderEntry]:
    """Return entries of the Boot Loader Specification, file name → text; the newest starts by itself."""
    found = []
    for name, text in list(files.items())[:MOST_ENTRIES]:
        keys: dict[str, list[str]] = {}
        for line in text.splitlines()[:MOST_LINES]:
            key, _, value = line.strip().partition(" ")
            if key and not key.startswith("#"):
                keys.setdefault(key, []).extend(_filled(value.strip(), environment).split())
        if not keys.get("linux"):
            continue
        initrds = tuple(_path(word, boot_prefix) for word in keys.get("initrd", ()))
        title = " ".join(keys.get("title", ()))[:200]
        entry = LoaderEntry(
            title=title,
            kernel=_path(keys["linux"][0], boot_prefix),
            initrd=initrds,
            words=tuple(keys.get("options", ())),
            source=name,
        )
        found.append((version_order(" ".join(keys.get("version", [name]))), entry))
    found.sort(key=lambda item: item[0], reverse=True)
    saved = environment.get("saved_entry", "")
    first = next((e for _, e in found if saved and e.source.rpartition("/")[2].removesuffix(".conf") == saved), None)
    first = first or (found[0][1] if found else None)
    return [replace(entry, chosen=entry is first) for _, entry in found]
