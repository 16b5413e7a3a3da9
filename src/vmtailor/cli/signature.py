# SPDX-License-Identifier: Apache-2.0
"""The command line of a verb, made from the rows of the table of options that its function takes."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from vmtailor.base import output
from vmtailor.model.option import Option, rows_of


@dataclass(frozen=True)
class Parameter:
    """One option of a verb. `field`: the name that its value has in the record, or as a parameter of the function;
    `key`: the name that the library passes it by."""

    row: Option
    field: str
    key: str
    default: Any

    @property
    def names(self) -> tuple[str, ...]:
        """Return its long name; with the name that turns it off, for a flag that is on, or not known to be off."""
        turns_off = self.row.type is bool and self.default is not False
        return (self.row.name, f"--no-{self.row.name[2:]}") if turns_off else (self.row.name,)

    @property
    def is_required(self) -> bool:
        return self.row.is_argument and (self.default is MISSING or self.default == "")

    @property
    def former(self) -> dict[str, str]:
        """Return the keys of its former names."""
        return {f"{self.key}_formerly_{number}": name for number, name in enumerate(self.row.former)}

    @property
    def shown(self) -> Any:
        """Return the default that help shows; None when only the record knows it."""
        simple = isinstance(self.default, bool | int | float | str | Path | Enum)
        return self.default if simple and self.default != "" and self.row.read is None else None

    def take(self, given: dict[str, Any], context: typer.Context | None) -> dict[str, Any]:
        """Return the values given for this option under any of its names, by field; empty when none was given. Raises
        UserInputError."""
        value = given.pop(self.key)
        source = context.get_parameter_source(self.key) if context is not None else None
        if source.name == "DEFAULT" if source is not None else value == self.shown:
            value = None
        for key, name in self.former.items():
            if old := given.pop(key):
                output.note(f"{name} is now called {self.row.name}")
                value = [*(value or ()), *old] if self.row.many else old
        if value is None or (self.row.many and not value):
            return {}
        return {self.field: self.row.value(value)}


def of_verb(verb: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose signature is the verb's command line, and which calls the given function with its
    records. A parameter that is a record of options becomes its options; one annotated with a row becomes that
    option."""
    hints = get_type_hints(function, include_extras=True)
    parts = {name: tuple(_parameters(verb, name, hints[name], p)) for name, p in _signature(function).items()}

    @functools.wraps(function)
    def called(verb_context: typer.Context | None = None, **given: Any) -> Any:
        passed: dict[str, Any] = {}
        for name, parameters in parts.items():
            values = {key: value for one in parameters for key, value in one.take(given, verb_context).items()}
            if is_dataclass(hints[name]):
                passed[name] = getattr(hints[name], "as_asked", hints[name])(**values)
            elif parameters:
                passed |= values
            else:
                passed[name] = given.pop(name)
        return function(**passed)

    keyword_only = inspect.Parameter.KEYWORD_ONLY
    made = [inspect.Parameter("verb_context", keyword_only, default=None, annotation=typer.Context)]
    for name, parameters in parts.items():
        if parameters or is_dataclass(hints[name]):
            made += (one for parameter in parameters for one in _typed(parameter))
        else:
            made.append(_signature(function)[name].replace(kind=keyword_only, annotation=hints[name]))
    vars(called)["__signature__"] = inspect.Signature(made)
    called.__annotations__ = {one.name: one.annotation for one in made}
    return called


def parameters_of(verb: str, function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the options and arguments of a verb in the order of its help. `function`: as it is written."""
    hints = get_type_hints(function, include_extras=True)
    return tuple(
        one for name, declared in _signature(function).items() for one in _parameters(verb, name, hints[name], declared)
    )


def _signature(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def _parameters(verb: str, name: str, hint: Any, declared: inspect.Parameter) -> Iterator[Parameter]:
    if is_dataclass(hint) and isinstance(hint, type):
        for one, row in rows_of(hint):
            if not row.verbs or verb in row.verbs:
                plain = row.name.lstrip("-").replace("-", "_").lower()
                yield Parameter(row, one.name, f"{plain}_" if keyword.iskeyword(plain) else plain, one.default)
    elif get_origin(hint) is Annotated:
        default = MISSING if declared.default is inspect.Parameter.empty else declared.default
        yield from (Parameter(row, name, name, default) for row in get_args(hint) if isinstance(row, Option))


def _typed(one: Parameter) -> Iterator[inspect.Parameter]:
    row = one.row
    kind: Any = GenericAlias(list, row.type) if row.many else row.type
    limits: dict[str, Any] = {"min": row.least, "max": row.most, "metavar": row.metavar or None}
    if row.is_argument:
        info: Any = typer.Argument(help=row.help, show_default=False, **limits)
        required = one.is_required
        yield _parameter(
            one.key, kind if required else kind | None, info, inspect.Parameter.empty if required else None
        )
        return
    names = "/".join(one.names)
    declared = [names, *([row.short] if row.short else [])]
    annotation = kind | None if one.shown is None else kind
    info = typer.Option(*declared, help=row.help, show_default=one.shown is not None, **limits)
    yield _parameter(one.key, annotation, info, one.shown)
    for key, name in one.former.items():
        yield _parameter(key, kind | None, typer.Option(name, hidden=True, **limits), None)


def _parameter(name: str, kind: Any, info: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])
