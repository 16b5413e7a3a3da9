# SPDX-License-Identifier: Apache-2.0
"""Recognise what a pasted message says was asked of the kernel: a line of strace, of a kernel's log, of a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtailor.analysis.demands import call_paths
from vmtailor.analysis.demands.strace_log import descriptor_path, split_arguments, unquote
from vmtailor.analysis.explain.lookup import KnownSource, Question, find
from vmtailor.analysis.explain.messages import Error, Messages
from vmtailor.analysis.ksource.expr import TRUE, UNKNOWN
from vmtailor.base.text import without_escapes
from vmtailor.model.syscalls import SyscallEvent

#: Characters of a message that are looked at.
MOST_CHARACTERS = 8_000
_MOST_LINES = 200
_MOST_OF_LINE = 1500

_STRACE = re.compile(r"(?:^|[\s\]])([a-z_]\w+)\(")
_RETURNED = re.compile(r"\)\s*=\s*+(?:-1\s+)?(E[A-Z0-9]+)\b")
_QUOTED = re.compile(r'(?<!\\)"(?:\\.|[^"\\])*+"', re.S)
_PSEUDO = re.compile(r"(?<![\w.])/(?:proc|sys|dev)/[\w./:+@-]*[\w+]")
_WORD = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
#: A constant in the arguments of a call, which have nothing else in capitals.
_ARGUMENT = re.compile(r"\b[A-Z][A-Z0-9_]{3,}\b")
_NAME = re.compile(r"\b[a-z_][a-z0-9_]{3,}\b")
_SYMBOL = re.compile(r"\bCONFIG_([A-Z0-9][A-Za-z0-9_]*)\b")
#: Calls whose names are also English words: they count if nothing else is named.
_PLAIN_WORDS = frozenset({
    "socket", "bind", "listen", "accept", "connect", "send", "recv", "shutdown", "access", "sync", "pause", "alarm",
})  # fmt: skip


@dataclass(frozen=True)
class Recognised:
    """The meaning of a message. `kind`: the id of its kind, or `strace`, `error`; empty when it was not understood.
    `asks`: the requests, likeliest first. `not_kernel`: why no configuration helps; empty when one may."""

    kind: str
    says: str = ""
    asks: tuple[Question, ...] = ()
    error: str = ""
    meaning: str = ""
    notes: tuple[str, ...] = ()
    not_kernel: str = ""


def recognise(message: str, known: KnownSource, messages: Messages) -> Recognised:
    """Understand a message as well as the source and the kinds of messages allow."""
    text = without_escapes(message[: 2 * MOST_CHARACTERS])[:MOST_CHARACTERS]
    text = "\n".join(line[:_MOST_OF_LINE] for line in text.split("\n")[:_MOST_LINES])
    traced = list(_traced(text, known, messages))
    if traced:
        return min(traced, key=lambda one: bool(one.not_kernel))
    kinds = [(kind, match) for kind in messages.kinds if (match := kind.pattern.search(text))]
    asking = [(kind, list(messages.asks(kind.asks, match.groupdict()))) for kind, match in kinds if kind.asks]
    asking = [(kind, asks) for kind, asks in asking if any(find(ask, known) for ask in asks)]
    error = next((e for e in messages.errors if e.about in ("kernel", "either") and e.pattern.search(text)), None)
    error = error or next((e for e in messages.errors if e.pattern.search(text)), None)
    named = tuple(_named(text, known, error))
    name, meaning = _said(error)
    if asking:
        asks = dict.fromkeys(
            [*(a for a in named if a.kind == "symbol"), *(a for _, some in asking for a in some), *named]
        )
        first = asking[0][0]
        notes = (first.note,) if first.note else ()
        return Recognised(first.id, first.says, tuple(asks), error=name, meaning=meaning, notes=notes)
    elsewhere = next((kind for kind, _ in kinds if kind.not_kernel), None)
    if error is not None and error.about in ("kernel", "either", "paths"):
        asks = dict.fromkeys([*named, *messages.asks(error.asks, {})]) if not (elsewhere and not named) else {}
        if asks:
            return Recognised("error", "", tuple(asks), error=name, meaning=meaning)
    if elsewhere is not None:
        return Recognised(elsewhere.id, elsewhere.says, error=name, meaning=meaning, not_kernel=elsewhere.not_kernel)
    if error is not None and error.about != "kernel":
        return Recognised("error", error=name, meaning=meaning, not_kernel=meaning)
    return Recognised("error" if error or named else "", "", named, error=name, meaning=meaning)


def _said(error: Error | None) -> tuple[str, str]:
    return (error.name, error.meaning) if error is not None else ("", "")


# ---- strace


def _traced(text: str, known: KnownSource, messages: Messages) -> Iterator[Recognised]:
    """Yield lines of strace that tell of a call that failed."""
    for line in text.splitlines()[:_MOST_LINES]:
        begun = _STRACE.search(line)
        returned = list(_RETURNED.finditer(line, begun.end())) if begun else []
        if begun is None or not returned:
            continue
        call, name = begun[1], returned[-1][1]
        if call not in known.facts.table and not find(Question("call", call), known):
            continue
        args, _ = split_arguments(line[begun.end() : returned[-1].start()] + ")")
        error = messages.error(name)
        asks = tuple(dict.fromkeys(_asked_by(call, args, name, known)))
        deciding = [ask for ask in asks if _decides(ask, known)]
        said, meaning = _said(error) if error is not None else (name, "")
        elsewhere = error is not None and error.about == "elsewhere" and not any(a.kind == "word" for a in deciding)
        only_paths = error is not None and error.about == "paths" and not any(a.kind != "call" for a in deciding)
        if not deciding or elsewhere or only_paths:
            why = error.meaning if error is not None else "the call is always there, and so is what it asks for"
            if error is not None and error.about == "kernel" and not deciding:
                why = "every kernel of this tree has the call; the answer came from what it was asked about"
            yield Recognised("strace", "strace", error=said, meaning=meaning, not_kernel=why)
        else:
            yield Recognised("strace", "strace", asks, error=said, meaning=meaning)


def _decides(ask: Question, known: KnownSource) -> bool:
    """Return whether some configuration lacks the thing that is asked for."""
    return any(one.condition not in (TRUE, UNKNOWN) for one in find(ask, known))


def _asked_by(call: str, args: Sequence[str], error: str, known: KnownSource) -> Iterator[Question]:
    """Return the things that a call asks for by name, the most specific first."""
    joined = ", ".join(args)
    if error == "ENOSYS":
        yield Question("call", call)
    strings = [unquote(part) for part in _QUOTED.findall(joined)]
    yield from _by_strings(call, args, error, strings)
    event = SyscallEvent(line=0, pid=0, task="", name=call, args=tuple(args), result=-1, error=error, seconds=0.0)
    behind = descriptor_path(args[0]) if args else ""
    paths = [path for path in (*call_paths.paths(event), behind) if path.startswith(("/proc/", "/sys/", "/dev/"))]
    yield from (Question("path", path) for path in paths if path != behind)
    if call not in ("socket", "socketpair"):
        yield from _words(call, _QUOTED.sub("", joined), known)
    yield from (Question("path", path) for path in paths if path == behind)
    if error in ("EOPNOTSUPP", "EINVAL") and call.removeprefix("f").removeprefix("l") in ("setxattr", "getxattr"):
        yield from (Question("symbol", name) for name in ("TMPFS_XATTR", "EROFS_FS_XATTR", "SQUASHFS_XATTR"))
    yield Question("call", call)


def _by_strings(call: str, args: Sequence[str], error: str, strings: Sequence[str]) -> Iterator[Question]:
    """Return the things that a call asks for by its kind and by the strings in its arguments."""
    joined = ", ".join(args)
    if call in ("socket", "socketpair"):
        yield from _socket(args, error)
    elif call in ("mount", "fsopen"):
        yield from (Question("filesystem", s) for s in strings if "/" not in s and s)
    elif call in ("execve", "execveat") and error == "ENOEXEC":
        yield from (Question("source", "fs/binfmt_script.c"), Question("symbol", "IA32_EMULATION"))
    elif call in ("setsockopt", "getsockopt"):
        kind = {"TCP_ULP": "ulp", "TCP_CONGESTION": "congestion"}
        yield from (Question(kind[w], s) for w in _WORD.findall(joined) if w in kind for s in strings)
    elif "sa_family=AF_ALG" in joined:
        yield from (Question("algorithm", s) for s in strings if s not in ("hash", "skcipher", "aead", "rng"))
    elif call in ("init_module", "finit_module"):
        yield Question("symbol", "MODULES")


def _words(call: str, text: str, known: KnownSource) -> Iterator[Question]:
    for word in _ARGUMENT.findall(text):
        if word.startswith(("AF_", "PF_")):
            yield Question("family", word[3:])
        elif find(Question("word", word, call), known):
            yield Question("word", word, call)


def _socket(args: Sequence[str], error: str) -> Iterator[Question]:
    family = args[0].removeprefix("AF_").removeprefix("PF_") if args else ""
    rest = " ".join(args[2:])
    protocol = re.search(r"(?:IPPROTO_|NETLINK_)?(\w+)", rest)
    named = []
    if protocol is not None and family == "NETLINK":
        named = [Question("netlink", protocol[1])]
    elif protocol is not None and protocol[1] not in ("0", "IP"):
        named = [Question("protocol", protocol[1])]
    whole = [Question("family", family)] if family else []
    yield from (*whole, *named) if error == "EAFNOSUPPORT" else (*named, *whole)


# ---- any other text


def _named(text: str, known: KnownSource, error: Error | None) -> Iterator[Question]:
    """Yield names in a message that the source knows: symbols, paths, words, families, calls."""
    for name in _SYMBOL.findall(text):
        if known.kconfig is None or known.kconfig.known(name):
            yield Question("symbol", name)
    words = []
    for word in dict.fromkeys(_WORD.findall(text)):
        if word.startswith(("AF_", "PF_")):
            words.append(Question("family", word[3:]))
        elif word.startswith("NETLINK_"):
            words.append(Question("netlink", word[8:]))
        elif word.startswith("IPPROTO_"):
            words.append(Question("protocol", word[8:]))
        else:
            words.append(Question("word", word))
    found = [Question("call", name) for name in dict.fromkeys(_NAME.findall(text)) if name in known.facts.table]
    calls = [ask for ask in found if ask.name not in _PLAIN_WORDS]
    plain = [ask for ask in found if ask.name in _PLAIN_WORDS]
    paths = (
        [Question("path", path) for path in dict.fromkeys(_PSEUDO.findall(text))]
        if error is None or error.name in _OF_PATHS
        else []
    )
    first = error is not None and error.name == "ENOSYS"
    order = [*calls, *words, *paths] if first else [*paths, *words, *calls]
    deciding = [ask for ask in order if _decides(ask, known)]
    if error is not None and error.about == "paths":
        deciding = [ask for ask in deciding if ask.kind == "path"]
    yield from deciding or ([ask for ask in plain if _decides(ask, known)] if first else [])


_OF_PATHS = ("ENOENT", "ENODEV", "ENXIO", "ENOTTY", "EOPNOTSUPP", "EINVAL", "ENOSYS")
