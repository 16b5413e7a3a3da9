# SPDX-License-Identifier: Apache-2.0
"""Kinds of messages, as data/failures/*.toml has them. A message says what was asked for; the kernel's source says
which symbol answers that (lookup.py).

[[failure]]
id    = "mount-type"                # unique
says  = "mount, kernel"             # whose message it is
match = '''unknown filesystem type '(?P<fs>\\w+)'''   # a regular expression, searched in the whole message
asks  = ["filesystem:{fs}"]         # kind:name, likeliest first; one whose group matched nothing is left out
note  = "…"                         # what a reader should know besides; may be left out
not_kernel = "…"                    # instead of asks: why no kernel configuration helps

[[error]]
name = "ENOSYS"; says = ["function not implemented"]; about = "kernel"; meaning = "…"; asks = [...]

[[disk]]
begins = "vd"                       # how a disk's name in root= begins
module = "virtio_blk"               # what drives it

Kinds of asks are those of lookup.py, and: matches (an iptables rule: its -m and -j), nft (a word of an nftables rule),
mounted (what BusyBox's mount names first), rootdisk, initrd (a compression), sysctl (a key with points)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from vmtailor.analysis.explain.lookup import Question
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.files import toml_files

_ABOUT = ("kernel", "either", "paths", "elsewhere")


@dataclass(frozen=True)
class MessageKind:
    """One kind of message."""

    id: str
    says: str
    match: str
    asks: tuple[str, ...] = ()
    note: str = ""
    not_kernel: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        # However long a line is, a pattern looks no further than this along it: the time stays bounded.
        return re.compile(bounded(self.match, 300))


@dataclass(frozen=True)
class Error:
    """One error of system calls. `about`: one of kernel, either, paths, elsewhere."""

    name: str
    says: tuple[str, ...]
    about: str
    meaning: str
    asks: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        words = "|".join(re.escape(text) for text in sorted(self.says, key=len, reverse=True))
        number = next((text[6:] for text in self.says if text.startswith("errno ")), "")
        code = rf"|\[errno {number}\]|\(os error {number}\)|\(error -{number}\)|code: {number}\b" if number else ""
        return re.compile(rf"\b{self.name}\b|(?:{words})(?![\w]){code}", re.I)


def _check_failure(row: dict[str, Any]) -> None:
    try:
        re.compile(row["match"])
    except re.error as error:
        raise ValueError(str(error)) from error
    if bool(row.get("asks")) == bool(row.get("not_kernel")):
        raise ValueError("give either asks or not_kernel")


def _check_error(row: dict[str, Any]) -> None:
    if row["about"] not in _ABOUT:
        raise ValueError(f"about is one of {', '.join(_ABOUT)}")


@dataclass(frozen=True)
class DiskName:
    """One way in which root= names disks, and the module that drives them."""

    begins: str
    module: str


@dataclass(frozen=True)
class Messages:
    kinds: tuple[MessageKind, ...] = toml_files.table("failure", MessageKind, _check_failure)
    errors: tuple[Error, ...] = toml_files.table("error", Error, _check_error)
    disks: tuple[DiskName, ...] = toml_files.table("disk", DiskName)

    def error(self, name: str) -> Error | None:
        name = {"ENOTSUP": "EOPNOTSUPP", "EWOULDBLOCK": "EAGAIN"}.get(name, name)
        return next((error for error in self.errors if error.name == name), None)

    def asks(self, templates: tuple[str, ...], groups: dict[str, str | None]) -> Iterator[Question]:
        """Return the requests of templates, filled with what a pattern's groups matched."""
        for template in templates:
            kind, _, name = template.partition(":")
            wanted = re.findall(r"\{(\w+)\}", name)
            if all(groups.get(group) for group in wanted):
                filled = re.sub(r"\{(\w+)\}", lambda m: str(groups[m[1]]), name)
                yield from self._expanded(kind, filled)

    def _expanded(self, kind: str, name: str) -> Iterator[Question]:
        if kind == "matches":
            for option, value in re.findall(r"\s-(?:-match|-jump|([mj]))[\s=]+([\w-]+)", name):
                yield Question("target" if option == "j" else "match", value)
        elif kind == "nft":
            word = {"masquerade": "masq", "redirect": "redir", "dnat": "nat", "snat": "nat"}.get(name, name)
            yield Question("expression", word)
        elif kind == "mounted":
            if "/" not in name:
                yield Question("filesystem", {"devtmpfs": "devtmpfs", "none": "tmpfs"}.get(name, name))
        elif kind == "rootdisk":
            disk = name.removeprefix("/dev/")
            yield from (Question("module", one.module) for one in self.disks if disk.startswith(one.begins))
        elif kind == "initrd":
            yield Question("symbol", f"RD_{name.upper()}")
        elif kind == "sysctl":
            yield Question("path", "/proc/sys/" + name.replace(".", "/"))
        else:
            yield Question(kind, name)


def load(folder: Traversable | Path | None = None) -> Messages:
    """Return all kinds that come with the program, or those of `folder`. Raises UserInputError as `toml_files.load`
    does."""
    return toml_files.load(Messages, "failures", folder)
