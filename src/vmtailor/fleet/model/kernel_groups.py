# SPDX-License-Identifier: Apache-2.0
"""Images grouped by the kernels that they can share: what each pays above a kernel of its own stands against the
number of kernels.

Two groups are joined where that costs least, until there are as few kernels as asked, or until somebody would pay too
much. The result does not depend on the order of the images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import is_number
from vmtailor.fleet.model.kernel_wishes import KernelWish, joined

EACH, AUTO = "each", "auto"
#: What an image may pay above its own kernel with `auto`, of its own kernel's instructions to init.
AUTO_SHARE = 0.01


@dataclass(frozen=True)
class Pays:
    """The price of a shared kernel for an image. `symbols`: those above its own. `instructions`: what its trace ran of
    them. `share`: these as a part of its own kernel's instructions to init; None where they were not counted.
    `unpriced`: how many of the symbols its trace never ran."""

    image: str
    symbols: tuple[str, ...]
    instructions: int
    share: float | None
    unpriced: int


@dataclass(frozen=True)
class SharedKernel:
    """One kernel, and the images that it is for. `asked`: its symbols with values, the input of its configuration.
    `forbidden`: symbols that policy, or a user, wants out of it."""

    images: tuple[Pays, ...]
    asked: tuple[tuple[str, str], ...]
    forbidden: tuple[str, ...]

    def keep_for(self, wish: KernelWish) -> tuple[str, ...]:
        """Return what `--keep` gets for an image of this kernel, so that its plan is this one: NAME=VALUE."""
        return tuple(f"{name}={value}" for name, value in self.asked if wish.asked.get(name) != value)


# vmtailor/kernel-sharing/1: first.
@dataclass(frozen=True)
class KernelSharing:
    """The kernels of a fleet. `apart`: where there are more than were asked for, why each cannot be shared with the one
    before it: the first image of both, and the reason."""

    SCHEMA: ClassVar[str] = "vmtailor/kernel-sharing/1"

    kernels: tuple[SharedKernel, ...]
    apart: tuple[tuple[str, str, str], ...] = ()


def parse_kernels(text: str) -> str | int:
    """Return `each`, `auto` or a number of kernels. Raises UserInputError."""
    if text in (EACH, AUTO):
        return text
    if is_number(text) and len(text) < 6 and int(text) > 0:
        return int(text)
    raise UserInputError(f"'{text[:40]}' is no number of kernels", hint="--kernels each, auto, or a number such as 3")


@dataclass
class _Group:
    """Images of one kernel. `debts`: for a symbol that some of them do not have, what all of them would pay for it."""

    wishes: list[KernelWish]
    asked: dict[str, str]
    has: frozenset[str]
    forbidden: frozenset[str]
    debts: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return min(wish.name for wish in self.wishes)


def share(wishes: Sequence[KernelWish], kernels: str | int, most: float = AUTO_SHARE) -> KernelSharing:
    """Return the kernels that images are given. `kernels`: `each`, a number, or `auto`, where nobody pays more than the
    part `most` of its own kernel. Images whose wishes are equal share one in any case."""
    groups = _alike(sorted(wishes, key=lambda wish: wish.name))
    costs = {} if kernels == EACH else _costs(groups)
    wanted = kernels if isinstance(kernels, int) else 1
    while costs and len(groups) > wanted:
        _, pair = min((cost, names) for names, cost in costs.items())
        made = _join(groups[pair[0]], groups[pair[1]])
        if kernels == AUTO and not all(_affordable(wish, made.has, most) for wish in made.wishes):
            del costs[pair]
            continue
        groups = {name: group for name, group in groups.items() if name not in pair} | {made.name: made}
        costs = {names: value for names, value in costs.items() if not set(names) & set(pair)}
        costs |= _costs_with(made, (group for group in groups.values() if group is not made))
    short = isinstance(kernels, int) and len(groups) > kernels
    return KernelSharing(
        kernels=tuple(_shown(groups[name]) for name in sorted(groups)),
        apart=tuple(_apart(groups)) if short else (),
    )


def _alike(wishes: Iterable[KernelWish]) -> dict[str, _Group]:
    """Return groups of equal wishes, by the first name in each."""
    found: dict[object, _Group] = {}
    for wish in wishes:
        key = (wish.alike, frozenset(wish.asked.items()), wish.has, wish.forbidden)
        if key in found:
            found[key].wishes.append(wish)
            _owe(found[key].debts, wish)
        else:
            found[key] = _Group([wish], dict(wish.asked), wish.has, wish.forbidden)
            _owe(found[key].debts, wish)
    return {group.name: group for group in found.values()}


def _owe(debts: dict[str, int], wish: KernelWish) -> None:
    for symbol, price in wish.prices.items():
        debts[symbol] = debts.get(symbol, 0) + price


def _why_apart(one: _Group, other: _Group) -> str:
    """Return why two groups cannot share a kernel; empty where they can."""
    if one.wishes[0].alike != other.wishes[0].alike:
        return "another version, processor, machine, or other flags"
    for group, against in ((one, other), (other, one)):
        kept_out = sorted(group.forbidden & (against.has | against.asked.keys()))
        if kept_out:
            return f"{kept_out[0]}: policy or a user wants it out for one, and the other has it"
    try:
        joined(one.asked, other.asked)
    except KeyError as error:
        return f"{error.args[0]}: each wants another value"
    return ""


def _costs(groups: dict[str, _Group]) -> dict[tuple[str, str], int]:
    names = sorted(groups)
    found: dict[tuple[str, str], int] = {}
    for number, name in enumerate(names):
        found |= _costs_with(groups[name], (groups[other] for other in names[number + 1 :]))
    return found


def _costs_with(group: _Group, others: Iterable[_Group]) -> dict[tuple[str, str], int]:
    """Return what joining a group with each of the others costs; those with which it cannot are left out."""
    return {
        (min(group.name, other.name), max(group.name, other.name)): _cost(group, other)
        for other in others
        if not _why_apart(group, other)
    }


def _cost(one: _Group, other: _Group) -> int:
    more = (one.debts.get(symbol, 0) for symbol in other.has - one.has)
    return sum(more) + sum(other.debts.get(symbol, 0) for symbol in one.has - other.has)


def _join(one: _Group, other: _Group) -> _Group:
    first, second = sorted((one, other), key=lambda group: group.name)
    debts = dict(first.debts)
    for symbol, price in second.debts.items():
        debts[symbol] = debts.get(symbol, 0) + price
    return _Group(
        wishes=sorted([*first.wishes, *second.wishes], key=lambda wish: wish.name),
        asked=joined(first.asked, second.asked),
        has=first.has | second.has,
        forbidden=first.forbidden | second.forbidden,
        debts=debts,
    )


def _affordable(wish: KernelWish, has: frozenset[str], most: float) -> bool:
    """Return whether an image pays little enough. One whose own kernel was not counted shares what costs it nothing."""
    paid = sum(wish.prices.get(symbol, 0) for symbol in has - wish.has)
    return paid <= most * (wish.own or 0)


def _shown(group: _Group) -> SharedKernel:
    return SharedKernel(
        images=tuple(_pays(wish, group.has) for wish in group.wishes),
        asked=tuple(sorted(group.asked.items())),
        forbidden=tuple(sorted(group.forbidden)),
    )


def _pays(wish: KernelWish, has: frozenset[str]) -> Pays:
    above = tuple(sorted(has - wish.has))
    paid = sum(wish.prices.get(symbol, 0) for symbol in above)
    return Pays(
        image=wish.name,
        symbols=above,
        instructions=paid,
        share=None if not wish.own else paid / wish.own,
        unpriced=sum(symbol not in wish.prices for symbol in above),
    )


def _apart(groups: dict[str, _Group]) -> Iterable[tuple[str, str, str]]:
    """Yield for each kernel but the first why it is not shared with the one before it: by now no two can be."""
    names = sorted(groups)
    for before, name in pairwise(names):
        yield before, name, _why_apart(groups[before], groups[name])
