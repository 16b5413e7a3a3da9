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
sure  = false                       # the message names none of its asks: they are only the likeliest
whatever = true                     # the text decides against the error in it; a not_kernel, against any asks too

[[error]]
name = "ENOSYS"; says = ["function not implemented"]; about = "kernel"; meaning = "…"; asks = [...]

[[disk]]
begins = "vd"                       # how a disk's name in root= begins
module = "virtio_blk"               # what drives it

Kinds of asks are those of lookup.py, and: matches (an iptables rule: its -m and -j), nftrule (a rule, behind the
columns that nft names or not), ipset (a type of sets), encap (of a route), namespace (as /proc/PID/ns names it), option
(a symbol in any case), mounted (what BusyBox's mount names first), rootdisk, initrd (a compression), sysctl (a key with
points)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
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
    sure: bool = True
    whatever: bool = False

    @property
    def quotes(self) -> bool:
        """Return whether its requests are read off the message: they go before what a kind of message stands for."""
        return any("{" in ask for ask in self.asks)

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
        if kind == "rootdisk":
            disk = name.removeprefix("/dev/")
            yield from (Question("module", one.module) for one in self.disks if disk.startswith(one.begins))
        elif kind in _EXPANDED:
            yield from _EXPANDED[kind](name)
        else:
            yield Question(kind, name)


def _matches(command: str) -> Iterator[Question]:
    for option, value in re.findall(r"\s-(?:-match|-jump|([mj]))[\s=]+([\w-]+)", command):
        yield Question("target" if option == "j" else "match", value)


def _mounted(name: str) -> Iterator[Question]:
    if "/" not in name:
        yield Question("filesystem", {"none": "tmpfs"}.get(name, name))


#: Statements of nftables rules whose expression has another name.
_STATEMENTS = {
    "masquerade": "masq", "redirect": "redir", "dnat": "nat", "snat": "nat", "jhash": "hash", "symhash": "hash",
    "flow": "flow_offload", "ipsec": "xfrm",
}  # fmt: skip
_EXPRESSIONS = frozenset({
    "numgen", "fib", "reject", "log", "limit", "ct", "queue", "tproxy", "socket", "osf", "synproxy", "quota", "dup",
    "fwd", "tunnel", "connlimit", *_STATEMENTS,
})  # fmt: skip


def _of_rule(text: str) -> Iterator[Question]:
    """Return the requests of an nftables rule, `FROM-TO RULE` or `RULE`: first those in the columns FROM to TO, which
    nft prints for what was refused."""
    columns = re.match(r"(\d{1,6})-(\d{1,6}) ", text)
    rule = text[columns.end() :] if columns else text
    words = [(m.start() + 1, m.group()) for m in re.finditer(r"[a-z]+", rule)]
    first, last = (int(columns[1]), int(columns[2])) if columns else (0, 0)
    words.sort(key=lambda word: not first <= word[0] <= last)
    if (chain := re.search(r"\btype (nat|route|filter) hook", rule)) is not None:
        yield Question("module", f"nft_chain_{chain[1]}")
    for _, word in words:
        if word in _EXPRESSIONS:
            yield Question("expression", _STATEMENTS.get(word, word))
    if (family := re.match(r"(?:add|create) (?:table|chain) (inet|netdev|bridge|arp|ip6|ip)\b", rule)) is not None:
        yield Question("symbol", "NF_TABLES_" + {"ip": "IPV4", "ip6": "IPV6"}.get(family[1], family[1].upper()))


#: Kinds of asks that a template has, and lookup.py has not.
_EXPANDED: dict[str, Callable[[str], Iterable[Question]]] = {
    "matches": _matches,
    "nftrule": _of_rule,
    "mounted": _mounted,
    "ipset": lambda name: [Question("module", "ip_set_" + name.replace(":", "_").replace(",", ""))],
    "encap": lambda name: [Question("encapsulation", name.upper())],
    "namespace": lambda name: [Question("word", f"CLONE_NEW{'NS' if name.lower() == 'mnt' else name.upper()}")],
    "option": lambda name: [Question("symbol", name.upper())],
    "initrd": lambda name: [Question("symbol", f"RD_{name.upper()}")],
    "sysctl": lambda name: [Question("path", "/proc/sys/" + name.replace(".", "/"))],
}


def load(folder: Traversable | Path | None = None) -> Messages:
    """Return all kinds that come with the program, or those of `folder`. Raises UserInputError as `toml_files.load`
    does."""
    return toml_files.load(Messages, "failures", folder)
