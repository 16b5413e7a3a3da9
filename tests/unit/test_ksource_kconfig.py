# SPDX-License-Identifier: Apache-2.0
"""Kconfig: newer syntax, resolving over allnoconfig, lost symbols, and what dependencies add."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.kernel_tree import SOURCE, read_kconfig

from vmtailor.analysis.ksource.closure import addable, close
from vmtailor.analysis.ksource.kconfig import Kconfig, modernise
from vmtailor.analysis.ksource.reasons import why_set
from vmtailor.base.errors import BuildError


@pytest.fixture(scope="module")
def kconfig() -> Kconfig:
    return read_kconfig()


def test_newer_statements_are_read(kconfig: Kconfig) -> None:
    assert kconfig.known("MODULES") and kconfig.known("OLD_NAME")
    # `depends on PROC_FS if EXPERT`: only where EXPERT is set
    assert kconfig.resolve([("PROC_EXTRA", "y")]).lost == ()
    lost = kconfig.resolve([("EXPERT", "y"), ("PROC_EXTRA", "y")]).lost
    assert [item.name for item in lost] == ["PROC_EXTRA"]
    assert lost[0].blocking == ("EXPERT", "PROC_FS")


def test_modernise_keeps_line_numbers_and_comments() -> None:
    text = "config A\n\tmodules\n\ttransitional\n\tdepends on B # not if C\n\tdepends on B if C\n"
    assert modernise(text).split("\n") == [
        "config A", "\toption modules", "", "\tdepends on B # not if C", "\tdepends on (B) || !(C)", "",
    ]  # fmt: skip


def test_allnoconfig_answers_n_to_all_it_asks(kconfig: Kconfig) -> None:
    empty = kconfig.resolve([])
    # Without EXPERT, prompts are hidden and defaults hold.
    assert {"FUTEX", "EPOLL", "MULTIUSER"} <= empty.enabled
    assert "NET" not in empty.enabled
    expert = kconfig.resolve([("EXPERT", "y")])
    assert "FUTEX" not in expert.enabled and "DEBUG_BASE" in expert.enabled
    assert "HIDDEN_DEFAULT" in expert.enabled


def test_counts_tell_prompted_from_all(kconfig: Kconfig) -> None:
    found = kconfig.resolve([("BUS_A", "y"), ("EXPERT", "y")])
    assert found.total_y == found.prompted_y + 1  # BUS has no prompt
    assert not kconfig.prompted("BUS") and kconfig.prompted("BUS_A")


def test_a_choice_has_its_default_or_what_is_asked_for(kconfig: Kconfig) -> None:
    assert kconfig.resolve([]).values["RATE"] == "250"
    found = kconfig.resolve([("RATE_1000", "y")])
    assert found.values["RATE"] == "1000" and "RATE_250" not in found.enabled
    assert kconfig.resolve([]).values["RATE"] == "250", "a fragment must leave nothing behind"
    both = kconfig.resolve([("RATE_100", "y"), ("RATE_1000", "y")])
    assert [(item.name, item.blocking) for item in both.lost] == [("RATE_100", ("RATE_1000",))]


@pytest.mark.parametrize(
    ("fragment", "name", "text", "blocking"),
    [
        ([("INET", "y")], "INET", "depends on NET", ("NET",)),
        ([("NO_SUCH", "y")], "NO_SUCH", "no such symbol", ()),
        ([("BUS", "y")], "BUS", "no prompt", ("BUS_A", "BUS_B")),
        ([("EXPERT", "y"), ("DEBUG_BASE", "n")], "DEBUG_BASE", "selected by EXPERT", ("EXPERT",)),
        ([("FUTEX", "n")], "FUTEX", "cannot be switched off", ()),
        ([("EXPERT", "y"), ("HIDDEN_DEFAULT", "n")], "HIDDEN_DEFAULT", "cannot be switched off", ()),
        ([("SHADOW", "y")], "SHADOW", "depends on CC_CAN_SHADOW", ("CC_CAN_SHADOW",)),
    ],
)
def test_a_lost_symbol_names_the_dependency(
    kconfig: Kconfig, fragment: list[tuple[str, str]], name: str, text: str, blocking: tuple[str, ...]
) -> None:
    lost = kconfig.resolve(fragment).lost
    assert [item.name for item in lost] == [name]
    assert text in str(lost[0])
    assert lost[0].blocking == blocking


def test_n_for_an_unknown_symbol_is_not_lost(kconfig: Kconfig) -> None:
    assert kconfig.resolve([("NO_SUCH", "n")]).lost == ()


def test_the_compiler_is_asked_through_the_shell_given() -> None:
    asked = []

    def shell(command: str) -> str:
        asked.append(command)
        return "y"

    found = read_kconfig(shell).resolve([("SHADOW", "y")])
    assert found.lost == () and asked == ["check -fshadow"]


def test_the_environment_is_left_alone() -> None:
    before = dict(os.environ)
    read_kconfig()
    assert dict(os.environ) == before


def test_a_tree_that_is_none_is_a_build_error() -> None:
    with pytest.raises(BuildError, match="cannot be read"):
        Kconfig({"srctree": str(SOURCE / "fs")}, lambda command: "")


# ---- closure


def test_dependencies_are_added_with_their_parents(kconfig: Kconfig) -> None:
    found = close(kconfig, [("IPV6", "y")])
    assert found.lost == ()
    parents = {a.name: a.parent for a in found.added}
    assert parents.keys() == {"NET", "INET"} and parents["INET"] == "IPV6"
    assert parents["NET"] in ("INET", "IPV6"), "both stand below `if NET`"
    assert kconfig.resolve(found.fragment).lost == ()


def test_the_cheapest_way_to_a_symbol_without_prompt_is_taken(kconfig: Kconfig) -> None:
    found = close(kconfig, [("DISK", "y")])
    assert [a.name for a in found.added] == ["BUS_A"]  # BUS_B would need NET and INET, too
    other = close(kconfig, [("DISK", "y"), ("BUS_A", "n")])
    assert {a.name for a in other.added} == {"BUS_B", "NET", "INET"}


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [({}, "CLUSTER_FS"), ({"QUOTA": "y"}, "QUOTA"), ({"CLUSTER_FS": "m", "QUOTA": "y"}, "QUOTA")],
)
def test_of_ways_that_cost_the_same_the_baselines_is_taken(
    kconfig: Kconfig, baseline: dict[str, str], expected: str
) -> None:
    assert [one.name for one in close(kconfig, [("QUOTA_CORE", "y")], (), baseline).added] == [expected]


def test_what_cannot_be_had_stays_lost(kconfig: Kconfig) -> None:
    found = close(kconfig, [("INET", "y"), ("NET", "n")])
    assert [item.name for item in found.lost] == ["INET"] and found.added == ()


NAMES = sorted(n for n, s in read_kconfig().symbols.items() if read_kconfig().is_switch(n))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["y", "n"]), max_size=8))
def test_closing_a_closed_fragment_adds_nothing(wanted: dict[str, str]) -> None:
    kconfig = read_kconfig()
    first = close(kconfig, wanted.items())
    second = close(kconfig, first.fragment)
    assert second.added == () and second.lost == first.lost
    assert not {a.name for a in first.added} & {n for n, v in wanted.items() if v == "n"}


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(NAMES), max_size=8))
def test_every_symbol_that_is_set_has_a_reason(wanted: set[str]) -> None:
    kconfig = read_kconfig()
    found = close(kconfig, [(n, "y") for n in sorted(wanted)])
    asked = {name for name, _ in found.fragment}
    for name in kconfig.resolve(found.fragment).enabled - asked:
        assert why_set(kconfig, name) is not None, name


def test_what_would_take_something_away_cannot_be_added(kconfig: Kconfig) -> None:
    fragment = [("EXPERT", "y"), ("RATE_100", "y"), ("EPOLL", "n")]
    names = ["UNIX", "RATE_1000", "EPOLL", "SHADOW", "BUS_A", "IPV6"]
    # Another rate would take this one away, and no compiler here can do SHADOW; off can become on, with what it needs.
    assert addable(kconfig, fragment, names) == ("UNIX", "EPOLL", "BUS_A", "IPV6")
    assert addable(kconfig, fragment, []) == ()


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*NAMES, "RATE_100", "RATE_1000", "HOLE"]), st.sampled_from("ymn"), max_size=8))
def test_what_was_parsed_before_resolves_alike(wanted: dict[str, str]) -> None:
    parsed, restored = read_kconfig(), Kconfig.restored(read_kconfig().to_bytes())
    for resolve in (Kconfig.resolve, Kconfig.resolve_over_defaults):
        assert resolve(parsed, wanted.items()) == resolve(restored, wanted.items())
    assert parsed.lost(wanted.items()) == restored.lost(wanted.items()) == parsed.resolve(wanted.items()).lost


def test_what_was_parsed_before_is_told_alike(kconfig: Kconfig) -> None:
    restored = Kconfig.restored(kconfig.to_bytes())
    assert list(restored.symbols) == list(kconfig.symbols)
    for name in kconfig.symbols:
        for told in (Kconfig.dependency, Kconfig.prompt, Kconfig.places, Kconfig.selectors, Kconfig.is_switch):
            assert told(restored, name) == told(kconfig, name)
    assert restored.to_bytes() == kconfig.to_bytes()


def test_defaults_hold_for_what_a_fragment_leaves_out(kconfig: Kconfig) -> None:
    found = kconfig.resolve_over_defaults([("EXPERT", "y"), ("EPOLL", "n")])
    assert "FUTEX" in found.enabled and "EPOLL" not in found.enabled
    assert "FUTEX" not in kconfig.resolve([("EXPERT", "y")]).enabled, "the next fragment begins with n again"
