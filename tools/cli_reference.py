# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/cli.md from the program itself; with --check only say whether it is up to date."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from vmtailor.cli.exit_texts import EXITS, RUN_EXITS
from vmtailor.cli.main import app
from vmtailor.cli.verbs import VERBS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"

HEAD = """<!-- Written by tools/cli_reference.py from the program itself: change the program, then run `make docs`. -->
# Command line

`vmtailor VERB --help` says the same as this page. Every verb that prints a result takes `--json`: one document on
standard output, its `schema` first; progress and errors go to standard error.

## Output

A verb that makes or checks a machine ends with its verdict (`✓` proven, `!` with a doubt, `✗` not), at most four
figures, and the commands that come next. This fits a terminal of 80×24. Each command is whole: a long one goes on after
a backslash. `--verbose` prints every table first.

On a terminal, progress shows how far a step is, and how long it has taken. Elsewhere, a step prints a line when it
begins and when it ends, and one each minute between. A verb that needs what another vmtailor is making waits for it.
After a second, and then once a minute, it says which process makes it, since when, and how far that is.
"""


def main(arguments: list[str]) -> int:
    """Write the page, or check it. Returns the exit status."""
    wanted = page()
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == wanted:
            return 0
        print(f"{PAGE} is not what the program says; run: make docs", file=sys.stderr)
        return 1
    if arguments:
        print("usage: cli_reference.py [--check]", file=sys.stderr)
        return 2
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(wanted)
    return 0


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD, "## Exit codes\n", "| code | meaning |", "| --- | --- |"]
    parts += [f"| {int(code)} | {text} |" for code, text in EXITS.items()]
    parts += ["\n" + RUN_EXITS + "\n"]
    if app.registered_callback is not None and app.registered_callback.callback is not None:
        parts += ["## vmtailor\n", *_tables(_parameters(app.registered_callback.callback))]
    for path, callback in sorted(commands(), key=lambda item: item[0]):
        found = _parameters(callback)
        parts += [
            f"## vmtailor {path}\n",
            f"{_plain(callback.__doc__)}\n",
            f"    {_usage(path, found)}\n",
            *_tables(found),
        ]
    return "\n".join(parts).rstrip() + "\n"


def commands() -> list[tuple[str, Callable[..., Any]]]:
    """Every verb and its function."""
    return [(verb.name, verb.function()) for verb in VERBS]


def _parameters(callback: Callable[..., Any]) -> list[Parameter]:
    hints = get_type_hints(callback, include_extras=True)
    found = []
    for name, parameter in inspect.signature(callback).parameters.items():
        default = parameter.default
        kind, *extras = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        info = next((x for x in (*extras, default) if isinstance(x, OptionInfo | ArgumentInfo)), None)
        if info is None:
            continue
        if isinstance(default, OptionInfo | ArgumentInfo):
            default = default.default
        if not info.hidden:
            found.append(Parameter(name, kind, info, default))
    return found


@dataclass(frozen=True)
class Parameter:
    """One parameter of a verb, as its function declares it."""

    name: str
    kind: Any
    info: OptionInfo | ArgumentInfo
    default: Any

    @property
    def is_argument(self) -> bool:
        return isinstance(self.info, ArgumentInfo)

    @property
    def types(self) -> tuple[Any, ...]:
        """The type without None and without the list around it."""
        inner = [t for t in (get_args(self.kind) or (self.kind,)) if t is not type(None)]
        return tuple(x for t in inner for x in (get_args(t) or (t,)) if x is not ...)

    @property
    def is_many(self) -> bool:
        return any(get_origin(t) in (list, tuple) for t in (self.kind, *get_args(self.kind)))

    @property
    def word(self) -> str:
        return (self.info.metavar or self.name.upper()).strip("[].")

    @property
    def names(self) -> str:
        # In Annotated[...] the first name stands where a default would: Option("--json").
        first = [self.info.default] if isinstance(self.info.default, str) and self.info.default[:1] == "-" else []
        declared = [*first, *(self.info.param_decls or ())]
        if not declared:
            plain = self.name.replace("_", "-").rstrip("-")
            declared = [f"--{plain}/--no-{plain}" if self.types == (bool,) else f"--{plain}"]
        names = sorted(
            (n for d in declared if d.startswith("-") for n in d.split("/")), key=lambda n: len(n.lstrip("-")) > 1
        )
        text = ", ".join(f"`{name}`" for name in names)
        if self.types == (bool,):
            return text
        if all(isinstance(t, type) and issubclass(t, Enum) for t in self.types):
            return f"{text} " + " or ".join(f"`{choice.value}`" for t in self.types for choice in t)
        word = self.info.metavar or self.types[0].__name__.replace("str", "text").upper()
        return f"{text} {_cell(word)}"

    @property
    def shown_default(self) -> str:
        if self.default in (None, False, inspect.Parameter.empty, ..., (), []):
            return ""
        return f"`{'on' if self.default is True else getattr(self.default, 'value', self.default)}`"


def _usage(path: str, found: list[Parameter]) -> str:
    words = ["vmtailor", path]
    if any(not p.is_argument for p in found):
        words.append("[OPTIONS]")
    for parameter in found:
        if parameter.is_argument:
            word = parameter.word + ("..." if parameter.is_many else "")
            words.append(word if parameter.default in (inspect.Parameter.empty, ...) else f"[{word}]")
    return " ".join(words)


def _tables(found: list[Parameter]) -> list[str]:
    lines: list[str] = []
    arguments = [p for p in found if p.is_argument]
    options = [p for p in found if not p.is_argument]
    if arguments:
        lines += ["| argument | meaning | default |", "| --- | --- | --- |"]
        lines += [f"| `{_cell(p.word)}` | {_cell(p.info.help)} | {p.shown_default} |" for p in arguments] + [""]
    if options:
        lines += ["| option | meaning | default |", "| --- | --- | --- |"]
        lines += [f"| {p.names} | {_cell(p.info.help)} | {p.shown_default} |" for p in options] + [""]
    return lines


def _plain(text: str | None) -> str:
    return inspect.cleandoc(text or "")


def _cell(text: str | None) -> str:
    return " ".join(_plain(text).replace("|", "\\|").split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
