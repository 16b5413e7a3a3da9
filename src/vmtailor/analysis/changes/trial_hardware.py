# SPDX-License-Identifier: Apache-2.0
"""Hardware that both machines of a trial have, or that a change takes away (data/hardware.toml)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from vmtailor.base.errors import UserInputError
from vmtailor.model.machine import Machine

FILE = Path(__file__).resolve().parents[2] / "data" / "hardware.toml"
#: Before a name: both machines of the trial are without it.
WITHOUT = "-"
#: The one that a machine may also have as a field of its own.
ENTROPY = "virtio-rng"


@dataclass(frozen=True)
class Hardware:
    """One row. `boards`: the words of QEMU's that give it to a machine of this board."""

    what: str
    boards: Mapping[str, tuple[str, ...]]


@functools.cache
def known() -> Mapping[str, Hardware]:
    """Return all rows by name."""
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8")), dict[str, Hardware])


def is_known(name: str) -> bool:
    """Return whether a name, with or without the sign before it, is one of a row."""
    return name.removeprefix(WITHOUT) in known()


def has(machine: Machine, name: str) -> bool:
    """Return whether a machine has this hardware."""
    words = known()[name].boards.get(machine.board)
    own = name == ENTROPY and machine.entropy
    return own or (words is not None and (not words or _place(machine, words) is not None))


def given(machine: Machine, name: str) -> Machine:
    """Return the machine with this hardware. Raises UserInputError where its board cannot have it."""
    if has(machine, name):
        return machine
    row = known()[name]
    if machine.board not in row.boards:
        raise UserInputError(
            f"the machine {machine.board} cannot have {row.what}", hint=f"these can: {', '.join(row.boards)}"
        )
    return replace(machine, extras=(*machine.extras, *row.boards[machine.board]))


def taken(machine: Machine, name: str) -> Machine:
    """Return the machine without this hardware. Raises UserInputError where its board has it in any case."""
    if not has(machine, name):
        return machine
    words = known()[name].boards.get(machine.board, ())
    place = _place(machine, words) if words else None
    if place is not None:
        machine = replace(machine, extras=(*machine.extras[:place], *machine.extras[place + len(words) :]))
    if name == ENTROPY:
        return replace(machine, entropy=False)
    if place is None:
        raise UserInputError(f"the machine {machine.board} has {known()[name].what} in any case")
    return machine


def equipped(machine: Machine, names: Iterable[str]) -> Machine:
    """Return the machine with the hardware that a trial names, without what has a sign before it."""
    for name in names:
        change = taken if name.startswith(WITHOUT) else given
        machine = change(machine, name.removeprefix(WITHOUT))
    return machine


def words_for(names: Iterable[str]) -> str:
    """Return what the machines of a trial have, and lack, in words; empty where nothing is named."""
    parts = [
        ("without " if name.startswith(WITHOUT) else "with ") + known()[name.removeprefix(WITHOUT)].what
        for name in names
    ]
    return ", ".join(parts)


def _place(machine: Machine, words: tuple[str, ...]) -> int | None:
    size = len(words)
    places = range(len(machine.extras) - size + 1)
    return next((at for at in places if machine.extras[at : at + size] == words), None)
