# SPDX-License-Identifier: Apache-2.0
"""Recognise what a pasted message says was asked of the kernel: a line of strace, of a kernel's log, of a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtailor.analysis.demands import call_paths
from vmtailor.analysis.demands.strace_log import descriptor_path, split_arguments, unquote
from vmtailor.analysis.explain.lookup import KnownSource, Question, find
from vmtailor.analysis.explain.messages import Error, MessageKind, Messages
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
    `asks`: the requests, likeliest first. `not_kernel`: why no configuration helps; empty when one may. `sure`: False
    where the message names none of the requests, so that they are only what is likeliest meant."""

    kind: str
    says: str = ""
    asks: tuple[Question, ...] = ()
    error: str = ""
    meaning: str = ""
    notes: tuple[str, ...] = ()
    not_kernel: str = ""
    sure: bool = True

    @property
    def doubt(self) -> int:
        """Return how little the message says, from 0 to 4: a request by its name, a reason outside the kernel, a guess,
        an error alone, nothing."""
        if self.asks and self.sure:
            return 0
        if self.not_kernel and self.kind not in ("error", "strace"):
            return 1
        if self.asks and self.kind != "error":
            return 2
        return 3 if self.asks or self.not_kernel else 4


def recognise(message: str, known: KnownSource, messages: Messages) -> Recognised:
    """Understand a message as well as the source and the kinds of messages allow."""
    text = without_escapes(message[: 2 * MOST_CHARACTERS])[:MOST_CHARACTERS]
    text = "\n".join(line[:_MOST_OF_LINE] for line in text.split("\n")[:_MOST_LINES])
    best = Recognised("")
    for reading in _readings(text):
        found = _recognise(reading, known, messages)
        if best.doubt > found.doubt:
            best = found
        if best.doubt <= 1:
            break
    return best


#: From this length on a line may have been cut by a terminal, in the middle of a word.
_CUT_LINE = 60


def _readings(text: str) -> Iterator[str]:
    """Yield a message as it stands, then without the line feeds that a mailer, then those that a terminal put in."""
    yield text
    lines = [line.strip("\r") for line in text.split("\n")]
    if len(lines) > 1:
        yield "\n".join(reversed(lines))  # an answer with its command below it
        yield " ".join(line.strip() for line in lines)[: 2 * _MOST_OF_LINE]
        if any(len(line) >= _CUT_LINE for line in lines[:-1]):
            yield "".join(line + ("" if len(line) >= _CUT_LINE else "\n") for line in lines)[: 2 * _MOST_OF_LINE]


def _recognise(text: str, known: KnownSource, messages: Messages) -> Recognised:
    traced = list(_traced(text, known, messages))
    if traced:
        return min(traced, key=lambda one: bool(one.not_kernel))
    return _Text(text, known, messages).recognised()


class _Text:
    """A text that is no line of strace: the kinds of messages in it, the error, and the names that the source knows."""

    def __init__(self, text: str, known: KnownSource, messages: Messages) -> None:
        self._text = text
        self._known = known
        self._messages = messages
        self._kinds = [(kind, match) for kind in messages.kinds if (match := kind.pattern.search(text))]
        printed = [error for error in messages.errors if error.pattern.search(text)]
        self._error = next((e for e in printed if e.about in ("kernel", "either")), printed[0] if printed else None)
        self._named = tuple(_named(text, known, self._error))
        self._options = tuple(ask for ask in self._named if ask.kind == "symbol")

    def recognised(self) -> Recognised:
        """Return the meaning by the first of these that the text has: a kind of message that decides alone, one that
        asks for something, an error that contradicts it, a name or an error, a reason outside the kernel."""
        elsewhere = [kind for kind, _ in self._kinds if kind.not_kernel]
        plainly = next((kind for kind in elsewhere if kind.whatever), None)
        if plainly is not None:
            return self._outside(plainly)
        found = self._asking() or (self._contradicted() if not elsewhere else None)
        return found or self._by_error(elsewhere[0] if elsewhere else None)

    def _outside(self, kind: MessageKind) -> Recognised:
        name, meaning = _said(self._error)
        return Recognised(kind.id, kind.says, error=name, meaning=meaning, not_kernel=kind.not_kernel)

    def _requests(self, kind: MessageKind, match: re.Match[str]) -> list[Question]:
        return [ask for ask in self._messages.asks(kind.asks, match.groupdict()) if find(ask, self._known)]

    def _asking(self) -> Recognised | None:
        asking = []
        for kind, match in self._kinds:
            contrary = _contrary(kind, self._text, match, self._messages)
            asks = self._requests(kind, match)
            if contrary is not None:
                asks = [ask for ask in asks if contrary.about != "elsewhere" and ask.kind != "call"]
            if asks:
                asking.append((kind, asks, match.span()))
        if not asking:
            return None
        outer = asking[0][2]
        asking.sort(key=lambda one: (not one[0].sure, not one[0].quotes, *_innermost(self._text, one[2], outer)))
        first = asking[0][0]
        asks = [*self._options, *(ask for _, some, _ in asking for ask in some), *self._named]
        name, meaning = _said(self._error)
        return Recognised(
            kind=first.id,
            says=first.says,
            asks=tuple(dict.fromkeys(asks)),
            error=name,
            meaning=meaning,
            notes=(first.note,) if first.note else (),
            sure=first.sure or bool(self._options),
        )

    def _contradicted(self) -> Recognised | None:
        """Return the answer that what a kind of message names is there: its error says so."""
        for kind, match in self._kinds:
            error = _contrary(kind, self._text, match, self._messages)
            if error is not None and not self._options and self._requests(kind, match):
                why = f"{error.name}, so it is there: {error.meaning}"
                return Recognised("errno", error=error.name, meaning=error.meaning, not_kernel=why)
        return None

    def _by_error(self, elsewhere: MessageKind | None) -> Recognised:
        error, (name, meaning) = self._error, _said(self._error)
        if error is not None and error.about != "elsewhere" and (self._named or elsewhere is None):
            asks = tuple(dict.fromkeys([*self._named, *self._messages.asks(error.asks, {})]))
            if asks:
                return Recognised("error", "", asks, error=name, meaning=meaning, sure=bool(self._named))
        if elsewhere is not None:
            return self._outside(elsewhere)
        why = self._why_not(error) if error is not None else ""
        kind = "always" if why and why != meaning else "error" if error is not None or self._named else ""
        return Recognised(kind, "", () if why else self._named, error=name, meaning=meaning, not_kernel=why)

    def _why_not(self, error: Error) -> str:
        """Return the reason outside the kernel's configuration that an error is; empty for none. Some features answer
        EINVAL when they are not compiled in, and so do most mistakes of programs."""
        if error.about != "kernel":
            return error.meaning if error.name != "EINVAL" else ""
        there = _there(self._text, self._known) if error.name in ("ENOSYS", "ENOPROTOOPT") and not self._named else ""
        if not there:
            return ""
        return f"every kernel of this source has {there}: the running one is older, or a filter of system calls refuses"


def _innermost(text: str, span: tuple[int, int], first: tuple[int, int]) -> tuple[int, int]:
    """Return a key that sorts matches: of those that share a line with the first, what is said last is the cause."""
    within = "\n" not in text[min(span[0], first[0]) : max(span[1], first[1])]
    return (0, -span[0]) if within else (1, 0)


#: Errors that a kernel may give for a call that is not compiled in.
_NO_CALL = ("ENOSYS", "EOPNOTSUPP")


def _contrary(kind: MessageKind, text: str, match: re.Match[str], messages: Messages) -> Error | None:
    """Return the error in the lines of a match that says that what they name is there; None where there is none."""
    begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    lines = text[begin : end if end >= 0 else len(text)]
    found = [error for error in messages.errors if error.pattern.search(lines)]
    if kind.whatever or any(error.about == "kernel" for error in found):
        return None
    return next((error for error in found if error.name != "ENOENT"), None)


def _there(text: str, known: KnownSource) -> str:
    """Return the first call or word in a text that every kernel of a source has; empty where there is none."""
    words = [w for w in _WORD.findall(text) if not w.startswith(("AF_", "PF_", "NETLINK_", "IPPROTO_"))]
    asks = [Question("call", name) for name in _NAME.findall(text) if name not in _PLAIN_WORDS]
    for ask in (*asks, *(Question("word", word) for word in words)):
        found = find(ask, known)
        if found and found[0].condition == TRUE:
            return str(ask)
    return ""


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
        if name != "ENOSYS":
            own = [one.condition for one in find(Question("call", call), known)]
            asks = tuple(ask for ask in asks if [one.condition for one in find(ask, known)][:1] != own[:1])
        deciding = [ask for ask in asks if _decides(ask, known)]
        said, meaning = _said(error) if error is not None else (name, "")
        # Without file locks the kernel refuses them with EACCES.
        elsewhere = error is not None and error.about == "elsewhere" and (call, name) != ("fcntl", "EACCES")
        only_paths = error is not None and error.about == "paths" and not any(a.kind != "call" for a in deciding)
        if not deciding or elsewhere or only_paths:
            why = error.meaning if error is not None else "the call is there, and so is what it asks for"
            if error is not None and error.name == "EINVAL":
                why = f"the kernel has {call}, and takes one of its arguments for wrong"
            if name == "ENOSYS":
                why = f"every kernel of this source has {call}: the running one is older, or a filter refuses the call"
            elif error is not None and error.about == "kernel" and not deciding:
                why = "every kernel of this source has the call; the answer came from what it was asked about"
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


#: Kinds of algorithms that AF_ALG has, each of a module of its own.
_ALGORITHMS = ("hash", "skcipher", "aead", "rng")


def _by_strings(call: str, args: Sequence[str], error: str, strings: Sequence[str]) -> Iterator[Question]:
    """Return the things that a call asks for by its kind and by the strings in its arguments."""
    joined = ", ".join(args)
    if call in ("socket", "socketpair"):
        yield from _socket(args, error)
    elif call in ("mount", "fsopen"):
        yield from (Question("filesystem", s) for s in strings if "/" not in s and s and error == "ENODEV")
    elif call in ("execve", "execveat") and error == "ENOEXEC":
        yield from (Question("source", "fs/binfmt_script.c"), Question("symbol", "IA32_EMULATION"))
    elif call in ("setsockopt", "getsockopt"):
        kind = {"TCP_ULP": "ulp", "TCP_CONGESTION": "congestion"}
        yield from (Question(kind[w], s) for w in _WORD.findall(joined) if w in kind for s in strings)
    elif "sa_family=AF_ALG" in joined:
        yield from (Question("algorithm", s) for s in strings if s not in _ALGORITHMS)
        yield from (Question("module", f"algif-{s}") for s in strings if s in _ALGORITHMS)
    elif call in ("init_module", "finit_module"):
        yield from (Question("symbol", "MODULES") for _ in range(error == "ENOSYS"))


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
    missing = error is None or error.name in _NO_CALL
    written = dict.fromkeys(_NAME.findall(text)) if missing else {}
    found = [Question("call", name) for name in written if name in known.facts.table]
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
