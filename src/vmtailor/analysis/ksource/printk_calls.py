# SPDX-License-Identifier: Apache-2.0
"""Messages that a C file of the kernel prints, as templates: literal text, and marks where a value stands.

Textual search, no compiler: the first argument that is a string, of a call that prints."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vmtailor.analysis.printk.templates import CHARACTER, DECIMAL, HEX, TEXT

_ENDING = r"(?:_once|_ratelimited|_rl|_deferred|_on_once)?"
_PLAIN = re.compile(r"(?:printk|WARN|WARN_ONCE|early_printk|xen_raw_printk)" + _ENDING + r"\Z")
_PR = re.compile(r"pr_(?P<level>emerg|alert|crit|err|error|warn|warning|notice|info)" + _ENDING + r"\Z")
_DEVICE = re.compile(
    r"(?:dev|netdev|netif|pci|bt_dev|drm|ibdev|[a-z]{4}_handle|hid|usb)_"
    r"(?P<level>emerg|alert|crit|err|warn|notice|info|err_probe)" + _ENDING + r"\Z"
)
_OTHER = re.compile(
    r"\w*?(?P<level>info|warn|warning|notice|err|error|emerg|crit|alert|msg|printk|print|printf|log)" + _ENDING + r"\Z",
    re.I,
)
#: Calls whose names look like printing and that fill a buffer, a file or an answer, or print on demand alone.
_NO_LOG = re.compile(
    r"(?i)seq_|s[cn]*printf|as?printf|drm_printf|prt_|trace|^MODULE_|dbg|debug|ERR_MSG|ERROR_MSG|iprintf|audit_|bpf_|"
    r"cont\Z|_set_|str|kunit|test|bprintf|perf_|debugfs|sysfs|procfs|vprintk|lpfc_printf|is_err|report_|buf"
)
_CALL = re.compile(r"\b([A-Za-z_]\w*)[ \t]*\(")
_SECOND_PARENTHESIS = re.compile(r"\s*+\(")
_ARGUMENT_TOKEN = re.compile(
    r'(?P<string>"(?:\\.|[^"\\\n])*+"?)|(?P<char>\'(?:\\.|[^\'\\\n])++\'?)|(?P<word>[A-Za-z_]\w*)|(?P<space>\s+)|(?P<sign>.)',
    re.S,
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+((?:\\\n|[^\n])*)", re.M)
_FORMAT = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(pr_fmt|dev_fmt)\([ \t]*(\w+)[ \t]*\)((?:\\\n|[^\n])*)", re.M)
_BODY_START, _BODY_END = re.compile(r"^\{", re.M), re.compile(r"^\}", re.M)
_CONVERSION = re.compile(
    r"%(?:%|[-+ #0]*+(?:\d++|\*)?+(?:\.(?:\d++|\*|))?+(?:hh|h|ll|l|L|q|j|z|Z|t)?"
    r"(?:(?P<d>[diu])|(?P<x>[xXo])|(?P<c>c)|(?P<s>s)|(?P<p>p[A-Za-z]*\d?)|(?P<n>n)))"
)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'", "r": "", "a": "", "0": ""}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.S)
_LONGEST_CALL = 1500
_INITCALL = re.compile(
    r"^[ \t]*(?:module|early|pure|core|postcore|arch|subsys|fs|rootfs|device|late|console|security|postconsole)"
    r"_init(?:call)?(?:_sync)?\(\s*(\w+)\s*\)",
    re.M,
)
_DRIVER_MACRO = re.compile(r"^(?:module|builtin)_(?=\w*driver)\w++\(\s*(\w+)", re.M)
_DRIVER_START = re.compile(r"\bstruct\s+(?:\w*_driver|device_driver)\s+\w++\s*+(?:__\w++\s*+)*+=\s*\{")
_NAME_FIELD = re.compile(r'\.name\s*=\s*(?:\(char \*\)\s*)?(?:"([^"\n]+)"|(\w+))')

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[^\n]*", re.M)
_ARRAY = re.compile(r'\bchar\s+(?:\*\s*(?:const\s+)?(\w+)|(\w+)\s*\[\w*\])\s*+(?:__\w++\s*+)*+=\s*("[^"\n]*")\s*;')

_Tokens = list[tuple[str, str]]
QUIET = frozenset({"info", "notice"})
ERRORS = frozenset({"err", "error", "crit", "alert", "emerg", "err_probe", "warn", "warning"})


@dataclass(frozen=True)
class PrintedMessage:
    """One message. `template` has marks for its values; `floating`: an unknown prefix (driver and device, a file
    system's name) stands before it. `begins`: a function that runs once, when the kernel or a module begins, says it,
    and not as an error. `whole`: the line ends with it. `offset` into the text. `device_error`: an error or a warning
    of a device."""

    template: str
    floating: bool
    begins: bool
    whole: bool
    offset: int
    prefix: str = ""
    device_error: bool = False


def macros(text: str) -> dict[str, str]:
    """Return macros without arguments and constant strings, name → body, of a text without comments."""
    found = {m.group(1): m.group(2).replace("\\\n", " ").strip() for m in _MACRO.finditer(text)}
    return found | {m.group(1) or m.group(2): m.group(3) for m in _ARRAY.finditer(text)}


def formats(text: str) -> list[tuple[int, str, str, str]]:
    """Return definitions of pr_fmt and dev_fmt as (offset, name, parameter, body)."""
    return [
        (m.start(), m.group(1), m.group(2), m.group(3).replace("\\\n", " ").strip()) for m in _FORMAT.finditer(text)
    ]


def initcalls(text: str) -> Iterator[tuple[str, int]]:
    """Yield functions that the kernel calls when it begins, with their offsets."""
    for match in _INITCALL.finditer(text):
        yield match.group(1), match.start()
    for match in _DRIVER_MACRO.finditer(text):
        yield f"{match.group(1)}_init", match.start()


def drivers(text: str, known: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield names of drivers, which stand before their devices' messages."""
    for match in _DRIVER_START.finditer(text):
        end = text.find("\n}", match.end(), match.end() + 4000)
        field = _NAME_FIELD.search(text, match.end(), end if end > 0 else match.end() + 600)
        if field is not None:
            name = field.group(1) or _literal(known.get(field.group(2), ""))
            if name:
                yield name, match.start()


def _literal(body: str) -> str:
    match = re.fullmatch(r'\(?\s*"([^"\n]*)"\s*\)?', body)
    return match.group(1) if match else ""


def _unescaped(literal: str) -> str:
    def one(match: re.Match[str]) -> str:
        found = match.group(1)
        if found[0] == "x" or found[0] in "01234567":
            value = int(found[1:] or "0", 16) if found[0] == "x" else int(found, 8)
            return chr(value) if 32 <= value < 127 else ""
        return _ESCAPES.get(found, found)

    return _ESCAPE.sub(one, literal)


def _joined(tokens: _Tokens, known: Mapping[str, str], names: str, depth: int = 0) -> str | None:
    """Return the format that adjacent strings and macros make; None where it is none. An unknown word is any text.

    `names`: what stands for KBUILD_MODNAME."""
    parts = []
    strings = False
    for kind, text in tokens:
        if kind == "string":
            parts.append(text[1:-1])
            strings = True
        elif kind == "word":
            if text.startswith("KERN_"):
                if text == "KERN_CONT":
                    return None
                continue
            if text == "KBUILD_MODNAME":
                parts.append(names)
                strings = True
                continue
            body = known.get(text)
            inner = _joined(_tokens(body), known, names, depth + 1) if body is not None and depth < 4 else None
            strings = strings or inner is not None
            parts.append("%s" if inner is None else inner)
        elif kind == "space" or (kind == "sign" and text in "()"):
            continue
        else:
            return None
    return "".join(parts) if strings else None


def _tokens(text: str) -> _Tokens:
    return [(m.lastgroup or "", m.group()) for m in _ARGUMENT_TOKEN.finditer(text[:400])]


def _arguments(text: str, start: int) -> list[_Tokens]:
    """Return the arguments of a call as tokens, from the first that has a string on; none where the call has none.

    Some macros take all of them in parentheses of their own: `ACPI_INFO(("ready"))`."""
    inner = _SECOND_PARENTHESIS.match(text, start)
    return (_plain_arguments(text, inner.end()) if inner is not None else []) or _plain_arguments(text, start)


def _plain_arguments(text: str, start: int) -> list[_Tokens]:
    """Return the arguments that begin at `start`, from the first that has a string on; none where none has one.

    Of what the preprocessor may leave out nothing is known: it is any text."""
    depth = 0
    found: list[_Tokens] = []
    tokens: _Tokens = []
    wanted = False
    position = start
    end = min(len(text), start + _LONGEST_CALL)
    while position < end:
        match = _ARGUMENT_TOKEN.match(text, position, end)
        if match is None:
            return []
        position = match.end()
        kind, part = match.lastgroup or "", match.group()
        if kind == "sign" and part == "#" and not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip():
            position = _past_directives(text, match.start(), end)
            tokens.append(("string", '"%s"'))
            continue
        if kind == "sign" and part in "([{":
            depth += 1
        elif kind == "sign" and part in ")]}":
            if depth == 0:
                return [*found, tokens] if wanted else []
            depth -= 1
        elif kind == "sign" and part == ";":
            return []
        elif kind == "sign" and part == "," and depth == 0:
            if wanted:
                found.append(tokens)
            tokens = []
            continue
        elif kind == "string" and depth == 0:
            wanted = True
        tokens.append((kind, part))
    return []


def _past_directives(text: str, start: int, end: int) -> int:
    """Return where the lines end that an `#if` begins, its `#endif` included."""
    depth = 0
    for match in _DIRECTIVE.finditer(text, start, end):
        depth += match.group(1).startswith("if")
        depth -= match.group(1) == "endif"
        if depth <= 0:
            return match.end()
    return end


def _filled(form: str, arguments: list[_Tokens], known: Mapping[str, str]) -> str:
    """Return a format with the strings in place that its arguments are known to be."""
    rest = iter(arguments)

    def fill(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%%"
        argument = next(rest, [])
        words = [(kind, text) for kind, text in argument if kind != "space"]
        if match.group() != "%s" or len(words) != 1:
            return match.group()
        kind, text = words[0]
        literal = text[1:-1] if kind == "string" else _literal(known.get(text, "")) if kind == "word" else ""
        return literal.replace("%", "%%") or match.group()

    return _CONVERSION.sub(fill, form)


def template_of(form: str) -> str:
    """Return the template of a format of printf."""

    def mark(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        kind = match.lastgroup
        return {"d": DECIMAL, "x": HEX, "c": CHARACTER, "n": ""}.get(kind or "", TEXT)

    return _CONVERSION.sub(mark, form)


class _Functions:
    """The bodies of functions in a text, and which of them run once, when the kernel begins."""

    def __init__(self, text: str) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.begins: list[bool] = []
        ends = [m.start() for m in _BODY_END.finditer(text)]
        for match in _BODY_START.finditer(text):
            at = match.start()
            before = max(text.rfind(";", 0, at), text.rfind("}", 0, at), text.rfind("\n\n", 0, at), at - 400, 0)
            place = bisect_right(ends, at)
            self.starts.append(at)
            self.ends.append(ends[place] if place < len(ends) else len(text))
            self.begins.append("__init" in text[before:at])

    def run_once(self, offset: int) -> bool:
        place = bisect_right(self.starts, offset) - 1
        return place >= 0 and offset < self.ends[place] and self.begins[place]


def messages(
    text: str, known: Mapping[str, str], outer: list[tuple[int, str, str, str]], module_names: tuple[str, ...]
) -> Iterator[PrintedMessage]:
    """Yield the messages of a text without comments.

    `known`: macros of the file and its headers. `outer`: definitions of pr_fmt in its headers. `module_names`: what
    KBUILD_MODNAME may stand for."""
    functions = _Functions(text)
    own = formats(text)
    for match in _CALL.finditer(text):
        name = match.group(1)
        plain = _PLAIN.match(name) or name == "panic"
        pr = None if plain else _PR.match(name)
        other = None if plain or pr else (_DEVICE.match(name) or _OTHER.match(name))
        if not (plain or pr or other) or (other and _NO_LOG.search(name)):
            continue
        begins = text.rfind("\n", 0, match.start()) + 1
        if "#" in text[begins : begins + 3].lstrip()[:1]:
            continue
        arguments = _arguments(text, match.end())
        if not arguments:
            continue
        tokens = arguments[0]
        level = (pr or other).group("level").lower() if (pr or other) else _level(tokens)  # type: ignore[union-attr]
        for module in module_names if pr or any(t[1] == "KBUILD_MODNAME" for t in tokens) else module_names[:1]:
            form = _joined(tokens, known, module)
            if form is None:
                break
            form = _filled(form, arguments[1:], known)
            prefix = _prefix(own or outer, match.start(), "pr_fmt", known, module) if pr else ""
            prefix = "Kernel panic - not syncing: " if name == "panic" else prefix
            quiet = name != "panic" and level in (*QUIET, "default", "printk", "print", "msg", "log")
            once = quiet and functions.run_once(match.start())
            lines = _lines(template_of(_unescaped(prefix + form)), bool(other), once, match.start(), prefix)
            yield from (replace(one, device_error=bool(other) and level in ERRORS) for one in lines)


def _level(tokens: _Tokens) -> str:
    for kind, text in tokens:
        if kind == "word" and text.startswith("KERN_"):
            return text[5:].lower()
    return "default"


def _prefix(
    found: list[tuple[int, str, str, str]], offset: int, which: str, known: Mapping[str, str], module: str
) -> str:
    """Return the text that pr_fmt puts before a format."""
    ours = [one for one in found if one[1] == which]
    before = [one for one in ours if one[0] < offset] or ours
    if not before:
        return ""
    _, _, parameter, body = before[-1]
    tokens = _tokens(body)
    for place, (kind, text) in enumerate(tokens):
        if kind == "word" and text == parameter:
            return _joined(tokens[:place], known, module) or ""
    return ""


def _lines(template: str, floating: bool, begins: bool, offset: int, prefix: str) -> Iterator[PrintedMessage]:
    """Yield a template for each line of a message."""
    parts = template.split("\n")
    whole = len(parts) > 1
    first = True
    for number, part in enumerate(parts):
        if part.strip():
            ends = whole and number < len(parts) - 1
            yield PrintedMessage(
                template=part.rstrip(),
                floating=floating and first,
                begins=begins,
                whole=ends,
                offset=offset,
                prefix=prefix,
            )
            first = False
