# SPDX-License-Identifier: Apache-2.0
"""Which changes can be tried on a bundle, and how each is made on its machine."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.changes.advice_catalogue import Entry, catalogue, in_range
from vmtailor.base.errors import UserInputError
from vmtailor.booting.bundle import kernel_of
from vmtailor.model.machine import Machine
from vmtailor.stages.boot import recipes
from vmtailor.stages.boot.recipes import Counts, Recipe

#: Behind the id of an entry of the catalogue: its change of the configuration, not that of the command line.
CONFIGURATION = "/configuration"
#: Gives the kernel with other values of these symbols.
Rebuild = Callable[[Mapping[str, str]], Path]
_SYMBOL = re.compile(r"(?:CONFIG_)?([A-Z0-9][A-Za-z0-9_]*)=([^\s+]+)")


def choose(wanted: Sequence[str], kernel_version: str) -> tuple[Recipe, ...]:
    """What is to be tried: `SYMBOL=VALUE`, `ID/configuration`, or ids as for any machine; `all` for every one that
    needs no other kernel. Raises UserInputError for one that is not there."""
    chosen: dict[str, Recipe] = {}
    for name in wanted:
        found = _chosen(name, kernel_version)
        chosen.update((recipe.id, recipe) for recipe in found)
    return tuple(chosen.values())


def _chosen(name: str, kernel_version: str) -> tuple[Recipe, ...]:
    if match := _SYMBOL.fullmatch(name):
        return (_configured(f"{match[1]}={match[2]}", "", ((match[1], match[2]),)),)
    if "+" in name:
        return (recipes.joined(name, functools.partial(choose, kernel_version=kernel_version)),)
    if name == "all":
        return tuple(recipe for recipe in recipes.recipes() if not obstacle(recipe))
    if name in {key for recipe in recipes.recipes() for key in (recipe.id, recipe.advice)}:
        return recipes.choose((name,))
    entry = next((one for one in catalogue() if one.id == name.removesuffix(CONFIGURATION)), None)
    values = _configuration(entry, kernel_version) if entry is not None else ()
    if entry is None or not values:
        configured = [one.id + CONFIGURATION for one in catalogue() if _configuration(one, kernel_version)]
        there = [recipe.id for recipe in recipes.recipes() if not obstacle(recipe)]
        raise UserInputError(
            f"no change {name!r} can be tried on a bundle",
            hint=f"there are: {', '.join(there)}; with another kernel, {', '.join(configured)}, or any SYMBOL=VALUE",
        )
    return (_configured(entry.id + CONFIGURATION, entry.id, values),)


def _configured(name: str, advice: str, values: tuple[tuple[str, str], ...]) -> Recipe:
    text = ", ".join(f"{symbol}={value}" for symbol, value in values)
    off = [symbol for symbol, value in values if value == "n"]
    return Recipe(name, advice, f"the kernel compiled with {text}", config=values, counts=Counts(symbols=tuple(off)))


def _configuration(entry: Entry, kernel_version: str) -> tuple[tuple[str, str], ...]:
    """Symbols and values of an entry's first change of the configuration that says them and nothing else."""
    for step in entry.changes:
        if step.kind == "configuration" and in_range(kernel_version, step.from_version, step.until_version):
            found = [_SYMBOL.fullmatch(part.strip()) for part in step.what.split(",")]
            if all(found):
                return tuple((match[1], match[2]) for match in found if match)
    return ()


def obstacle(recipe: Recipe) -> str:
    """Why a change cannot be made on any bundle's machine; "" where it can."""
    if recipe.mask:
        return "a container's machine has no units"
    if recipe.initrd:
        return "a container's machine has no initial RAM disk"
    if recipe.qemu or recipe.machine:
        return "a container's machine takes no further options of QEMU"
    return ""


def change(wanted: Sequence[Recipe], vm: Machine, rebuild: Rebuild) -> Machine:
    """The machine with changes made, its kernel compiled again where they ask for it. Raises UserInputError for what
    cannot be made."""
    wanted = recipes.single(wanted)
    for recipe in wanted:
        if why := obstacle(recipe):
            raise UserInputError(why)
        if recipe.kind is not None and recipe.kind is not vm.kind:
            raise UserInputError(
                f"this kernel was made for {vm.kind}: fit the image again with --machine {recipe.kind}"
            )
    changed = recipes.merge((replace(recipe, config=()) for recipe in wanted), vm, Path(), Path())
    values = {symbol: value for recipe in wanted for symbol, value in recipe.config}
    if values:
        changed = replace(changed, kernel=str(rebuild(values)))
    kernel_of(changed)
    return changed
