# SPDX-License-Identifier: Apache-2.0
"""Kernels that images share: nobody loses what it asked for, policy is never weakened, and what is paid is told."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.fleet.model import kernel_groups, kernel_wishes
from vmtailor.fleet.model.kernel_groups import AUTO, EACH, KernelSharing, Pays, SharedKernel
from vmtailor.fleet.model.kernel_wishes import KernelWish
from vmtailor.model.change import Cause, Change, Effect, Figure, Reason, symbol
from vmtailor.model.plan import Plan, RootFormat

V = ("6.12", "x86_64", "microvm")


def wish(
    name: str,
    *has: str,
    alike: tuple[str, ...] = V,
    forbidden: tuple[str, ...] = (),
    own: int | None = 1000,
    **prices: int,
) -> KernelWish:
    return KernelWish(name, alike, dict.fromkeys(has, "y"), frozenset(has), frozenset(forbidden), prices, own)


def names(found: KernelSharing) -> list[list[str]]:
    return [[one.image for one in kernel.images] for kernel in found.kernels]


def paid(found: KernelSharing) -> dict[str, int]:
    return {one.image: one.instructions for kernel in found.kernels for one in kernel.images}


A = wish("a", "NET", B=50)
B = wish("b", "NET", "B", C=9)
C = wish("c", "NET", "C", B=5)


def test_each_has_its_own_and_equal_ones_share() -> None:
    found = kernel_groups.share([B, A, wish("d", "NET")], EACH)
    assert names(found) == [["a", "d"], ["b"]]
    assert paid(found) == {"a": 0, "b": 0, "d": 0}


def test_the_cheapest_are_joined_first_and_what_each_pays_is_told() -> None:
    found = kernel_groups.share([A, B, C], 2)
    assert names(found) == [["a", "c"], ["b"]]  # c is not priced by a
    assert found.kernels[0].images == (Pays("a", ("C",), 0, 0.0, 1), Pays("c", (), 0, 0.0, 0))
    one = kernel_groups.share([A, B, C], 1)
    assert names(one) == [["a", "b", "c"]]
    assert paid(one) == {"a": 50, "b": 9, "c": 5}
    assert one.kernels[0].images[0] == Pays("a", ("B", "C"), 50, 0.05, 1)
    assert one.kernels[0].keep_for(A) == ("B=y", "C=y")


def test_auto_joins_while_nobody_pays_much() -> None:
    assert names(kernel_groups.share([A, B, C], AUTO)) == [["a", "c"], ["b"]]
    assert names(kernel_groups.share([A, B, C], AUTO, 0.05)) == [["a", "b", "c"]]
    uncounted = wish("a", "NET", own=None, B=1)
    assert names(kernel_groups.share([uncounted, B], AUTO)) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (wish("a", "NET", forbidden=("DEVMEM",)), wish("b", "DEVMEM"), "DEVMEM: policy or a user"),
        (wish("a", "DEVMEM"), wish("b", "NET", forbidden=("DEVMEM",)), "DEVMEM: policy or a user"),
        (wish("a"), wish("b", alike=("6.1", *V[1:])), "another version"),
        (
            KernelWish("a", V, {"HZ": "100"}, frozenset()),
            KernelWish("b", V, {"HZ": "250"}, frozenset()),
            "HZ: each wants",
        ),
    ],
)
def test_what_cannot_be_shared_stays_apart(one: KernelWish, other: KernelWish, why: str) -> None:
    found = kernel_groups.share([one, other], 1)
    assert names(found) == [["a"], ["b"]]
    ((first, second, said),) = found.apart
    assert (first, second) == ("a", "b")
    assert said.startswith(why)


def test_more_processors_do_for_fewer() -> None:
    few, many = (KernelWish(name, V, {"NR_CPUS": number}, frozenset()) for name, number in (("a", "2"), ("b", "16")))
    (kernel,) = kernel_groups.share([few, many], 1).kernels
    assert kernel.asked == (("NR_CPUS", "16"),)
    assert kernel.keep_for(few) == ("NR_CPUS=16",)
    assert kernel.keep_for(many) == ()


def test_a_wish_is_read_from_a_plan() -> None:
    def out(name: str, cause: Cause | None, saved: int) -> Change:
        reasons = () if cause is None else (Reason(cause, "x:y", "z"),)
        made = symbol(name, "n", *reasons, before="y")
        unit = Effect(Figure.TRACE_INSTRUCTIONS, -saved, -saved, -saved, "instructions")
        return Change(made.id, made.does, made.settings, made.reasons, expected=(unit,))

    changes = (
        symbol("NET", "y", Reason(Cause.DEMANDED, "trace:1", "socket")),
        symbol("NR_CPUS", "2"),
        out("USB", None, 700),
        out("DEVMEM", Cause.POLICY, 0),
        out("IPV6", Cause.USER, 30),
    )
    plan = Plan(
        kernel_version="6.12",
        machine="microvm",
        cpus=2,
        root_format=RootFormat.EROFS,
        fragment=(("NET", "y"), ("NR_CPUS", "2"), ("DEVMEM", "n")),
        changes=changes,
        total_y=1,
        prompted_y=1,
        architecture="x86_64",
    )
    assert kernel_wishes.of_plan("a", plan, 5) == KernelWish(
        "a",
        V,
        {"NET": "y", "NR_CPUS": "2"},
        frozenset({"NET"}),
        frozenset({"DEVMEM", "IPV6"}),
        {"USB": 700, "IPV6": 30},
        5,
    )


@pytest.mark.parametrize("text", ["", "0", "-1", "²", "all", "999999"])
def test_what_is_no_number_of_kernels(text: str) -> None:
    with pytest.raises(UserInputError, match="no number of kernels"):
        kernel_groups.parse_kernels(text)
    assert [kernel_groups.parse_kernels(one) for one in ("each", "auto", "3")] == ["each", "auto", 3]


symbols = st.sampled_from([f"S{number}" for number in range(8)])


@st.composite
def fleets(draw: st.DrawFn) -> list[KernelWish]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        has = draw(st.frozensets(symbols))
        asked = {one: draw(st.sampled_from(["y", "m"])) for one in sorted(draw(st.frozensets(symbols)) & has)}
        forbidden = draw(st.frozensets(symbols, max_size=2)) - has
        prices = {one: draw(st.integers(0, 30)) for one in sorted(draw(st.frozensets(symbols)) - has)}
        own = draw(st.none() | st.integers(1, 3000))
        found.append(KernelWish(f"i{number}", (draw(st.sampled_from("vw")),), asked, has, forbidden, prices, own))
    return found


@given(fleets(), st.just(EACH) | st.just(AUTO) | st.integers(1, 4), st.randoms(use_true_random=False))
def test_whatever_is_shared(wishes: list[KernelWish], kernels: str | int, random: Random) -> None:
    found = kernel_groups.share(wishes, kernels)
    by_name = {one.name: one for one in wishes}
    shared = [one.image for kernel in found.kernels for one in kernel.images]
    assert sorted(shared) == sorted(by_name)  # each image has one kernel
    for kernel in found.kernels:
        members = [by_name[one.image] for one in kernel.images]
        asked = dict(kernel.asked)
        every = frozenset().union(*(one.has for one in members))
        for member, told in zip(members, kernel.images, strict=True):
            assert all(asked[name] in (value, "y") for name, value in member.asked.items())  # nothing asked for is lost
            assert not member.forbidden & (every | asked.keys())  # no policy is weakened
            assert member.alike == members[0].alike
            assert told.symbols == tuple(sorted(every - member.has))
            assert told.instructions == sum(member.prices.get(name, 0) for name in told.symbols)
            assert {**member.asked, **dict(one.split("=") for one in kernel.keep_for(member))} == asked
            if kernels == AUTO and len({(one.has, tuple(sorted(one.asked.items()))) for one in members}) > 1:
                assert told.instructions <= kernel_groups.AUTO_SHARE * (member.own or 0)
    if kernels == EACH:
        assert not any(one.symbols for kernel in found.kernels for one in kernel.images)
    if isinstance(kernels, int) and len(found.kernels) > kernels:
        assert len(found.apart) == len(found.kernels) - 1
        assert all(why for _, _, why in found.apart)
    again = list(wishes)
    random.shuffle(again)
    assert kernel_groups.share(again, kernels) == found
    assert records.from_bytes(KernelSharing, records.to_bytes(found)) == found


@given(fleets())
def test_fewer_kernels_never_cost_less(wishes: list[KernelWish]) -> None:
    costs = [sum(paid(kernel_groups.share(wishes, number)).values()) for number in range(6, 0, -1)]
    assert costs == sorted(costs)


def test_two_hundred_images_take_seconds() -> None:
    every = [f"S{number}" for number in range(600)]
    wishes = []
    for number in range(200):
        has = [one for at, one in enumerate(every) if (at * 7 + number * 13) % 11 < 6]
        prices = {one: (at * 31 + number) % 97 for at, one in enumerate(every) if one not in set(has)}
        wishes.append(
            KernelWish(f"i{number:03}", V, dict.fromkeys(has, "y"), frozenset(has), frozenset(), prices, 10**6)
        )
    before = time.monotonic()
    assert len(kernel_groups.share(wishes, 5).kernels) == 5
    assert time.monotonic() - before < 60
    assert SharedKernel((), (), ()).keep_for(wishes[0]) == ()
