# SPDX-License-Identifier: Apache-2.0
"""Margins: what each keeps, which is chosen where nothing is said, what a kernel lacks, and what a proof is worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.kernel_tree import read_tree
from tests.unit.test_plan import BASELINE, BOOK, CALLS, IMAGE

from vmtailor.analysis.changes import plan_summary, symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Catalogue, Situation
from vmtailor.analysis.cost.attribution import SymbolCost
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import answers
from vmtailor.analysis.reach import reach_symbols
from vmtailor.analysis.reach.reach_symbols import Reached, of_reach
from vmtailor.base.errors import UserInputError
from vmtailor.model import option_values
from vmtailor.model.change import Cause, Reason, symbol
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.exercise import Exercise, Proof, Ready, ReadyKind, Step, StepKind
from vmtailor.model.margin import Margin, label
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.model.reach import Ask, Nearness, Reach, ReachedFile
from vmtailor.pipeline import image_subject, margin_cost, reduction
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages.kernel_plan import Wishes, find_demands, make_plan

TREE = read_tree()
BOTH = (Margin.REACHABLE, Margin.SERVER)
SERVER = """
[[entry]]
id = "threads"
reason = "locks"
symbols = { FUTEX = "y", EPOLL = "y" }
[[entry]]
id = "elsewhere"
reason = "this tree has it not"
symbols = { NO_SUCH_SYMBOL = "y" }
"""


def asks(path: str, nearness: Nearness, *calls: str) -> ReachedFile:
    return ReachedFile(
        path, nearness, tuple(Ask(EvidenceKind.SYSCALL, call, call, by=f"imports {call}") for call in calls)
    )


REACH = Reach((
    asks("/usr/bin/python3", Nearness.OPENED, "membarrier", "read"),
    asks("/usr/lib/timers.so", Nearness.LED_TO, "timer_create", "membarrier"),
    asks("/usr/bin/su", Nearness.IN_IMAGE, "setuid", "timer_create"),
))  # fmt: skip
REACHED = of_reach(REACH, TREE.facts, demand_rules.load(), BASELINE)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Catalogue(tuple(symbol_catalogue.parse(SERVER, Cause.MARGIN, "server")))
    monkeypatch.setattr(
        symbol_catalogue, "of_margin", lambda margin: book if margin is Margin.SERVER else Catalogue(())
    )


def plan(*margins: Margin, drop: tuple[str, ...] = (), reached: tuple[Reached, ...] = REACHED) -> Plan:
    demands = find_demands(IMAGE, Exercise("x", Ready(ReadyKind.EXIT)), CALLS, TREE, BASELINE)
    wishes = Wishes(margins=margins, drop=drop)
    return make_plan(IMAGE, demands, TREE, BASELINE, wishes, catalogue=BOOK, reached=reached)


def kept(found: Plan) -> set[str]:
    return {one.id for one in found.symbols if one.is_kept}


def test_none_is_the_plan_of_what_was_demanded() -> None:
    assert plan() == plan(reached=())
    assert not any(reason.cause is Cause.MARGIN for one in plan().symbols for reason in one.reasons)


def test_reachable_keeps_what_is_near_and_not_what_merely_lies_there() -> None:
    found = plan(Margin.REACHABLE)
    assert kept(found) - kept(plan()) == {"MEMBARRIER", "POSIX_TIMERS"}
    one = found.symbol("MEMBARRIER")
    assert one is not None and plan_summary.cause_of(one) is Cause.MARGIN
    assert one.reasons == (Reason(Cause.MARGIN, "image:/usr/bin/python3", "python3 imports membarrier"),)
    assert found.margins == (Margin.REACHABLE,) and found.unexplained == ()


def test_server_keeps_its_list_as_far_as_the_tree_has_it(server: None) -> None:
    found = plan(Margin.SERVER)
    assert kept(found) - kept(plan()) == {"FUTEX"}
    assert [r.reference for r in found.symbol("FUTEX").reasons] == ["margin:threads"]  # type: ignore[union-attr]
    epoll = found.symbol("EPOLL")
    assert epoll is not None and plan_summary.cause_of(epoll) is Cause.DEMANDED  # what is demanded is no margin
    assert kept(plan(*BOTH)) == kept(found) | kept(plan(Margin.REACHABLE))


def test_what_the_user_drops_no_margin_brings_back(server: None) -> None:
    assert not {"FUTEX", "MEMBARRIER"} & kept(plan(*BOTH, drop=("FUTEX", "MEMBARRIER")))


def test_a_margin_that_cannot_be_had_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """SHADOW needs what this compiler has not."""
    text = '[[entry]]\nid = "x"\nreason = "r"\nsymbols = { SHADOW = "y" }\n'
    book = Catalogue(tuple(symbol_catalogue.parse(text, Cause.MARGIN, "server")))
    monkeypatch.setattr(symbol_catalogue, "of_margin", lambda margin: book)
    found = plan(Margin.SERVER)
    assert "SHADOW" not in kept(found) and any("SHADOW" in sentence for sentence in found.given_up)


def test_thorough_effort_leaves_margins_alone(server: None) -> None:
    found = plan(*BOTH)
    assert not {"FUTEX", "MEMBARRIER", "EPOLL"} & set(reduction.removable(found))
    assert "EPOLL" in reduction.removable(plan())


# ---- the list of ours

ROW = 'id = "a"\nreason = "r"\nsymbols = { X = "y" }'


def test_the_margin_server_is_well_formed_and_only_adds() -> None:
    entries = symbol_catalogue.of_margin(Margin.SERVER).entries
    assert entries and all(entry.reference.startswith("margin:server/") for entry in entries)
    names = [name for entry in entries for name, value in entry.symbols if value == "y"]
    assert len(names) == len(set(names)) == sum(len(entry.symbols) for entry in entries)
    # What hung, or failed first, in an image of Python that nobody had exercised.
    assert {"FILE_LOCKING", "POSIX_TIMERS", "ADVISE_SYSCALLS", "BINFMT_SCRIPT", "PROC_FS", "SYSVIPC"} <= set(names)


def test_the_first_process_is_kept_with_any_margin() -> None:
    for margin in Margin:
        names = {name for entry in symbol_catalogue.of_margin(margin).entries for name, _ in entry.symbols}
        assert {"NAMESPACES", "PID_NS"} <= names


def test_platform_and_policy_hold_nothing_of_a_margin() -> None:
    assert not any(entry.cause is Cause.MARGIN for entry in symbol_catalogue.load().entries)


def test_machines_that_differ_in_network_only_get_one_kernel() -> None:
    """Images with and without ports are of one family: the device's driver is in the margin."""
    symbols = {
        network: {
            name
            for book in (symbol_catalogue.load(), symbol_catalogue.of_margin(Margin.SERVER))
            for entry in book.chosen(Situation("microvm", RootFormat.EROFS, "6.12.117", network=network, terminal=True))
            for name, _ in entry.symbols
        }
        for network in (False, True)
    }
    assert symbols[False] == symbols[True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('id = "a"\nreason = "r"\nsymbols = { X = "n" }', "takes symbols away"),
        ('id = "a"\nreason = "r"\nwords = ["quiet"]', "has words"),
        (f"{ROW}\n[[entry]]\n{ROW}", "two"),
    ],
)
def test_a_margin_that_is_more_than_a_list_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "margins").mkdir()
    (tmp_path / "margins" / "server.toml").write_text(f"[[entry]]\n{text}\n")
    with pytest.raises(UserInputError, match=words):
        symbol_catalogue.of_margin(Margin.SERVER, tmp_path)


# ---- which is chosen


HTTP, TCP = Step(StepKind.HTTP, 80), Step(StepKind.TCP, 80)
WAITS = Ready(ReadyKind.TCP, TCP)


@pytest.mark.parametrize(
    ("exercise", "proof", "margins"),
    [
        (Exercise("web.toml", WAITS, (HTTP,)), Proof.LOAD, (Margin.REACHABLE,)),
        (Exercise("web.toml", WAITS, (TCP,)), Proof.STARTED, BOTH),
        (Exercise("web.toml", WAITS), Proof.STARTED, BOTH),
        (Exercise("hello.toml", Ready(ReadyKind.EXIT)), Proof.ENDED, (Margin.REACHABLE,)),
        (Exercise("run-to-end", Ready(ReadyKind.EXIT)), Proof.ENDED, BOTH),
        (Exercise("ports", WAITS, (TCP,)), Proof.DERIVED, BOTH),
        (Exercise("healthcheck", WAITS, (Step(StepKind.COMMAND, argv=("true",)),)), Proof.DERIVED, BOTH),
    ],
)
def test_the_default_joins_server_where_nobody_showed_the_work(
    exercise: Exercise, proof: Proof, margins: tuple[Margin, ...], tmp_path: Path
) -> None:
    assert exercise.proof is proof
    assert image_subject.with_margins(FitOptions("oci:x", tmp_path), exercise).margins == margins
    asked = FitOptions("oci:x", tmp_path, margins=())
    assert image_subject.with_margins(asked, exercise).margins == ()


def test_only_load_is_called_verified() -> None:
    assert {proof for proof in Proof if "verified" in proof.headline} == {Proof.LOAD}
    assert Proof.DERIVED.headline == Proof.STARTED.headline == "started; no load seen"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["none"], ()),
        (["server"], (Margin.SERVER,)),
        (["server+reachable"], BOTH),
        (["reachable,server"], BOTH),
        (["server", "reachable"], BOTH),
        (["server", "server"], (Margin.SERVER,)),
    ],
)
def test_margins_are_read(given: list[str], found: tuple[Margin, ...]) -> None:
    assert option_values.margins(given) == found


@pytest.mark.parametrize("given", [["all"], [""], ["none+server"], ["none", "reachable"], ["server+"]])
def test_other_margins_are_refused(given: list[str]) -> None:
    with pytest.raises(UserInputError):
        option_values.margins(given)


def test_labels_read_back() -> None:
    for margins in ((), (Margin.REACHABLE,), (Margin.SERVER,), BOTH):
        assert option_values.margins([label(margins)]) == margins


# ---- what is lacked, and counted


def test_lacks_are_ranked_by_nearness_with_their_price() -> None:
    found = reach_symbols.lacks(REACHED, kept(plan()), {"POSIX_TIMERS": SymbolCost(900, (), 300)})
    assert [(one.symbol, one.nearness, one.to_init) for one in found] == [
        ("MEMBARRIER", Nearness.OPENED, None),
        ("POSIX_TIMERS", Nearness.LED_TO, 300),
        ("MULTIUSER", Nearness.IN_IMAGE, None),
    ]
    first, second, _ = found
    assert first.keys == ("membarrier",) and first.files == ("/usr/bin/python3", "/usr/lib/timers.so")
    assert second.files == ("/usr/lib/timers.so", "/usr/bin/su") and second.text == "timers.so imports timer_create"


def test_what_a_margin_keeps_is_not_lacked() -> None:
    found = reach_symbols.lacks(REACHED, kept(plan(Margin.REACHABLE)), {})
    assert [one.symbol for one in found] == ["MULTIUSER"]


def test_lacks_are_bounded() -> None:
    files = tuple(asks(f"/bin/{n}", Nearness.IN_IMAGE, "membarrier") for n in range(50))
    (found,) = reach_symbols.lacks(of_reach(Reach(files), TREE.facts, demand_rules.load(), BASELINE), set(), {})
    assert len(found.files) == reach_symbols.MOST_FILES and found.more_files == 50 - reach_symbols.MOST_FILES


def test_system_calls_are_counted_from_the_facts() -> None:
    none, all_of_them = margin_cost.calls(TREE.facts, {}), margin_cost.calls(TREE.facts, BASELINE)
    assert none < all_of_them == len(TREE.facts.table)
    without = {name: value for name, value in BASELINE.items() if name != "MEMBARRIER"}
    assert margin_cost.calls(TREE.facts, without) == all_of_them - 1


def test_explain_says_that_a_margin_keeps_it() -> None:
    reason = Reason(Cause.MARGIN, "margin:server/threads", "locks of threads")
    run = fit_run()
    changed = replace(run, plan=replace(run.plan, changes=(*run.plan.changes, symbol("MEMBARRIER", "y", reason))))
    found = answers.answer(changed, "MEMBARRIER", symbol_catalogue.load(), demand_rules.load())
    assert found is not None and "margin" in found.summary and found.reasons == (reason,)
