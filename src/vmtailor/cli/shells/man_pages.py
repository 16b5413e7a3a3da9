# SPDX-License-Identifier: Apache-2.0
"""Manual pages in the language of man(7): one of the program, and one for each verb, made from the table of options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from vmtailor import __version__
from vmtailor.base.errors import ExitCode
from vmtailor.cli.exit_texts import EXITS, RUN_EXITS
from vmtailor.cli.shells.words import PROGRAM_FLAGS, value_of
from vmtailor.cli.signature import Parameter
from vmtailor.cli.verbs import GROUPS, VERBS, Verb, named

#: Folder of the pages below /usr, /usr/local or a virtual environment.
PLACE = "share/man/man1"
_ABOUT = "make the Linux virtual machine that fits an image or a system disk"
_DESCRIPTION = """vmtailor takes a container image or a system disk, traces what it needs of a kernel, builds the kernel
that has just that, proves the result by an exercise, and measures what it costs. The result is a bundle: a folder
that `vmtailor run` starts as `docker run` starts a container.

`vmtailor help` lists the pages of documentation, and `vmtailor help PAGE` prints one."""
_ENVIRONMENT = {
    "XDG_CACHE_HOME": "The cache is in the folder vmtailor below it. Default: ~/.cache.",
    "XDG_STATE_HOME": "Named machines and volumes are in the folder vmtailor below it. Default: ~/.local/state.",
    "XDG_RUNTIME_DIR": "Sockets of machines that run are in the folder vmtailor below it. Default: /run/user/UID.",
    "TMPDIR": "Work folders are made here. Default: /tmp.",
    "PAGER": "`vmtailor help PAGE` shows a page with it on a terminal. Default: less.",
}
#: Verbs whose exit status is a container's.
_OF_CONTAINERS = ("run", "exec")


def pages(date: str) -> Mapping[str, str]:
    """Return the text of every page by its file name. Loads all verbs. `date`: YYYY-MM-DD, of the release."""
    of_verbs = {f"vmtailor-{verb.name}.1": verb_page(verb, date) for verb in VERBS}
    return {"vmtailor.1": program_page(date), **of_verbs}


def program_page(date: str) -> str:
    """Return the page of the program, which lists the verbs in groups."""
    lines = [
        *_title("vmtailor", _ABOUT, date),
        ".SH SYNOPSIS",
        "\\fBvmtailor\\fR [\\fIOPTIONS\\fR] \\fIVERB\\fR [\\fIARGS\\fR]...",
    ]
    lines += [
        ".SH DESCRIPTION",
        *_text(_DESCRIPTION),
        ".SH VERBS",
        "Each verb has a page of its own, such as",
        *_pages(["run"], "."),
    ]
    for head, rows in GROUPS:
        lines.append(f".SS {_plain(head)}")
        verbs = [verb for names, _ in rows for name in names.split(", ") if (verb := named(name)) is not None]
        for verb in verbs:
            lines += [".TP", f"\\fB{_plain(verb.name)}\\fR", *_text(verb.help)]
    lines.append(".SH OPTIONS")
    for flag in PROGRAM_FLAGS:
        lines += [".TP", ", ".join(f"\\fB{_plain(name)}\\fR" for name in flag.names), *_text(flag.says)]
    lines += _exits((code, text) for code, text in EXITS.items())
    lines += [".SH ENVIRONMENT"]
    for name, says in _ENVIRONMENT.items():
        lines += [".TP", f"\\fB{name}\\fR", *_text(says)]
    return _page([*lines, ".SH SEE ALSO", *_pages([verb.name for verb in VERBS], "")])


def verb_page(verb: Verb, date: str) -> str:
    """Return the page of a verb. Loads it."""
    parameters = verb.parameters()
    arguments = [one for one in parameters if one.row.is_argument]
    options = [one for one in parameters if not one.row.is_argument]
    says = inspect.cleandoc(verb.function().__doc__ or "")
    brief = verb.help[0].lower() + verb.help[1:].rstrip(".")
    words = ["\\fBvmtailor " + _plain(verb.name) + "\\fR", *(["[\\fIOPTIONS\\fR]"] if options else [])]
    lines = [*_title(f"vmtailor-{verb.name}", brief, date), ".SH SYNOPSIS", " ".join([*words, *map(_shown, arguments)])]
    lines += [".SH DESCRIPTION", *_text(says)]
    if arguments:
        lines += [
            ".SH ARGUMENTS",
            *(
                line
                for one in arguments
                for line in _described(f"\\fI{_plain(one.row.metavar or one.row.name)}\\fR", one)
            ),
        ]
    lines += [".SH OPTIONS", *(line for one in options for line in _described(_names(one), one))]
    helps = ", ".join(f"\\fB{_plain(name)}\\fR" for name in verb.help_names)
    lines += [".TP", helps, "Show help and exit."]
    if verb.name in _OF_CONTAINERS:
        lines += [
            ".SH EXIT STATUS",
            *_text(re.sub(r"\[([^][]*)\]\([^()]*\) has", r"`vmtailor help run-and-docker-run` has", RUN_EXITS)),
        ]
    else:
        lines += _exits((code, text) for code, text in EXITS.items() if code is not ExitCode.RUN)
    return _page([*lines, ".SH SEE ALSO", *_pages(["", *_beside(verb)], "")])


def _beside(verb: Verb) -> list[str]:
    """Return the other verbs of a verb's group."""
    groups = ([name for names, _ in rows for name in names.split(", ")] for _, rows in GROUPS)
    return [name for names in groups if verb.name in names for name in names if name != verb.name]


def _shown(argument: Parameter) -> str:
    word = f"\\fI{_plain(argument.row.metavar or argument.row.name)}\\fR" + ("..." if argument.row.many else "")
    return word if argument.is_required else f"[{word}]"


def _described(head: str, one: Parameter) -> Iterator[str]:
    yield ".TP"
    yield head
    yield from _text(one.row.help)
    if one.shown not in (None, False):
        yield f"Default: {_plain('on' if one.shown is True else str(getattr(one.shown, 'value', one.shown)))}."


def _names(one: Parameter) -> str:
    row = one.row
    names = [*([row.short] if row.short else []), *one.names]
    text = ", ".join(f"\\fB{_plain(name)}\\fR" for name in names)
    if row.type is bool:
        return text
    choices = value_of(row).words if isinstance(row.type, type) and issubclass(row.type, Enum) else ()
    kind = str(row.type.__name__).replace("str", "text").upper()
    value = "|".join(choices) or row.metavar or kind
    return f"{text} \\fI{_plain(value)}\\fR"


def _title(name: str, says: str, date: str) -> list[str]:
    return [
        f'.TH {name.upper()} 1 {date} "vmtailor {__version__}" "vmtailor"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(says)}",
    ]


def _exits(codes: Iterable[tuple[ExitCode, str]]) -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code, text in codes:
        yield ".TP"
        yield f"\\fB{int(code)}\\fR"
        yield from _text(text[0].upper() + text[1:] + ".")


def _pages(verbs: Iterable[str], end: str) -> Iterator[str]:
    """Return references to the pages of verbs; an empty name is the program's."""
    names = [f"vmtailor-{verb}" if verb else "vmtailor" for verb in verbs]
    for place, name in enumerate(names, 1):
        yield f".BR {_plain(name)} (1){end if place == len(names) else ','}"


def _text(text: str) -> Iterator[str]:
    """Return paragraphs as lines, a sentence each; words between backticks are bold."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        for sentence in re.split(r"(?<=[.:;])\s+(?=[A-Z`])", " ".join(paragraph.split())):
            parts = sentence.split("`")
            yield _line(
                "".join(f"\\fB{_plain(part)}\\fR" if place % 2 else _plain(part) for place, part in enumerate(parts))
            )


def _plain(text: str) -> str:
    """Return text with the characters escaped that the typesetter would change."""
    for character, name in (
        ("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti"), ("…", "\\&..."),
    ):  # fmt: skip
        text = text.replace(character, name)
    return text


def _line(text: str) -> str:
    return f"\\&{text}" if text[:1] in (".", "'") else text


def _page(lines: Iterable[str]) -> str:
    head = ['.\\" SPDX-License-Identifier: Apache-2.0', '.\\" Written from the table of options: change the program.']
    return "\n".join([*head, *lines]) + "\n"
