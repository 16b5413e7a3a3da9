# SPDX-License-Identifier: Apache-2.0
"""The plan: the smallest configuration, a reason for every symbol, and what is said when something cannot be had."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.kernel_tree import read_tree

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Catalogue
from vmtailor.analysis.cost.attribution import SymbolCost
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.demands.demand import Demand
from vmtailor.analysis.explain.explanation import explain, triggers, would_add
from vmtailor.analysis.explain.nearest import nearest, subsystem
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.base.files import records
from vmtailor.model.change import Cause, Change, Figure, Reason, symbol
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import FailedCall, SyscallEvent
from vmtailor.stages.kernel_plan import Wishes, find_demands, make_plan

TREE = read_tree()
RULES = demand_rules.load()
PLATFORM = """
[[entry]]
id = "base"
reason = "the machine"
symbols = { 64BIT = "y", EXPERT = "y", DISK = "y" }
words = ["quiet"]
[[entry]]
id = "network"
reason = "the device"
symbols = { NET = "y" }
when = { network = true }
"""
POLICY = """
[[entry]]
id = "rate"
reason = "fewer ticks"
symbols = { RATE_100 = "y" }
[[entry]]
id = "shadow"
reason = "protection where the compiler has it"
symbols = { SHADOW = "y" }
if_possible = true
"""
BOOK = Catalogue(
    tuple(symbol_catalogue.parse(PLATFORM, Cause.PLATFORM, "platform"))
    + tuple(symbol_catalogue.parse(POLICY, Cause.POLICY, "policy"))
)
BASELINE = {n: "y" for n in TREE.kconfig.symbols if TREE.kconfig.is_switch(n)}
IMAGE = ImageConfig("amd64")
DEFAULT = Wishes()
CALLS = (
    SyscallEvent(3, 1, "t", "epoll_create1", ("0",), 3, "", 0.0),
    SyscallEvent(4, 1, "t", "socket", ("AF_INET6", "SOCK_STREAM", "IPPROTO_TCP"), 4, "", 0.0),
    SyscallEvent(5, 1, "t", "timer_create", ("0",), -1, "ENOSYS", 0.0),
)


def plan(
    events: tuple[SyscallEvent, ...] = CALLS,
    wishes: Wishes = DEFAULT,
    image: ImageConfig = IMAGE,
    *,
    tried: tuple[Change, ...] = (),
    book: Catalogue = BOOK,
    ran: dict[str, SymbolCost] | None = None,
) -> Plan:
    exercise = Exercise("test", Ready(ReadyKind.EXIT))
    demands = find_demands(image, exercise, events, TREE, BASELINE)
    return make_plan(image, demands, TREE, BASELINE, wishes, tried=tried, catalogue=book, ran=ran)


def enabled(found: Plan) -> set[str]:
    return {c.id for c in found.symbols if c.is_kept}


def reasons(found: Plan, name: str) -> set[str]:
    one = found.symbol(name)
    assert one is not None
    return {r.reference for r in one.reasons}


def test_what_is_demanded_is_there_and_nothing_else() -> None:
    found = plan()
    assert enabled(found) == {
        "64BIT", "EXPERT", "DEBUG_BASE", "DISK", "BUS", "BUS_A", "RATE_100", "EPOLL", "NET", "INET", "IPV6", "CRC",
        "HIDDEN_DEFAULT",
    }  # fmt: skip
    assert found.total_y == 13 and found.prompted_y == 11
    assert found.unexplained == ()


@pytest.mark.parametrize(
    ("name", "references"),
    [
        ("64BIT", {"platform:base"}),
        ("RATE_100", {"policy:rate"}),
        ("EPOLL", {"trace:requests:3"}),
        ("IPV6", {"trace:requests:4"}),
        ("INET", {"symbol:IPV6"}),  # it depends on it
        ("BUS_A", {"symbol:DISK"}),  # the cheapest way to what DISK depends on
        ("CRC", {"symbol:IPV6"}),  # selected
        ("DEBUG_BASE", {"symbol:EXPERT"}),
    ],
)
def test_each_symbol_has_its_reason(name: str, references: set[str]) -> None:
    assert reasons(plan(), name) == references


def test_direct_reasons_resolve() -> None:
    found = plan(image=ImageConfig("amd64", exposed_ports=(Port(80),)))
    lines = {f"trace:requests:{e.line}" for e in CALLS}
    for one in found.symbols:
        for reason in one.reasons:
            kind = reason.reference.partition(":")[0]
            assert reason.text
            if kind in ("platform", "policy"):
                assert reason.reference in {entry.reference for entry in BOOK.entries}
            elif kind == "trace":
                assert reason.reference in lines
            elif kind == "symbol":
                assert found.symbol(reason.reference.partition(":")[2]) is not None
            else:
                assert kind in ("kconfig", "image")


def test_the_fragment_holds_only_what_can_be_chosen() -> None:
    found = plan()
    assert all(TREE.kconfig.prompted(name) for name, _ in found.fragment)
    assert TREE.kconfig.resolve(found.fragment).enabled == enabled(found)


def test_a_demand_of_the_image_counts_without_a_trace() -> None:
    found = plan((), image=ImageConfig("amd64", user="web", exposed_ports=(Port(80),)))
    assert {"MULTIUSER", "NET", "INET"} <= enabled(found)
    assert reasons(found, "MULTIUSER") == {"image:user"} and found.network
    assert reasons(found, "NET") == {"platform:network", "image:ports"}


def test_policy_that_cannot_be_followed_is_given_up_and_said() -> None:
    found = plan()
    assert len(found.given_up) == 1
    assert (
        "SHADOW" in found.given_up[0] and "CC_CAN_SHADOW" in found.given_up[0] and "policy:shadow" in found.given_up[0]
    )


def test_a_symbol_that_must_be_there_and_cannot_is_an_error_that_names_the_dependency() -> None:
    must = Catalogue(tuple(symbol_catalogue.parse(PLATFORM.replace("DISK", "SHADOW"), Cause.PLATFORM, "platform")))
    with pytest.raises(BuildError, match="SHADOW") as caught:
        plan(book=must)
    assert "CC_CAN_SHADOW" in caught.value.details


def test_what_no_build_has_the_tools_for_is_given_up_where_only_a_trace_asks_for_it() -> None:
    seen = Evidence(EvidenceKind.PSEUDO_FILE, "/sys/kernel/btf/vmlinux", Strength.DEMANDED, "requests:9")
    asked = Demand(seen, ("TYPE_INFO",), "the system uses /sys/kernel/btf/vmlinux")
    demands = find_demands(IMAGE, Exercise("test", Ready(ReadyKind.EXIT)), CALLS, TREE, BASELINE)
    demands._found[seen.kind, seen.key] = asked
    found = make_plan(IMAGE, demands, TREE, BASELINE, DEFAULT, catalogue=BOOK)
    assert "TYPE_INFO" not in enabled(found)
    (said,) = [text for text in found.given_up if "TYPE_INFO" in text]
    assert "PAHOLE_VERSION" in said and "btf/vmlinux" in said
    with pytest.raises(BuildError, match="TYPE_INFO"):
        make_plan(IMAGE, demands, TREE, BASELINE, replace(DEFAULT, keep=("TYPE_INFO",)), catalogue=BOOK)


def test_the_user_keeps_and_drops() -> None:
    found = plan(wishes=Wishes(keep=("UNIX", "RATE_1000"), drop=("EPOLL",)))
    assert "UNIX" in enabled(found) and reasons(found, "UNIX") == {"user:keep"}
    assert "EPOLL" not in enabled(found) and reasons(found, "EPOLL") == {"user:drop"}
    assert found.unexplained == ()
    kept, dropped = found.symbol("UNIX"), found.symbol("EPOLL")
    assert kept is not None and kept.reasons == (Reason(Cause.POLICY, "user:keep", "the user keeps it"),)
    assert dropped is not None and dropped.reasons == (Reason(Cause.POLICY, "user:drop", "the user drops it"),)
    assert records.to_bytes(plan(wishes=Wishes(keep=("CONFIG_UNIX=y", "RATE_1000"), drop=("CONFIG_EPOLL",)))) == (
        records.to_bytes(found)
    )
    with pytest.raises(UserInputError, match="NO_SUCH"):
        plan(wishes=Wishes(keep=("NO_SUCH",)))


def test_what_depends_on_a_dropped_symbol_falls_with_it() -> None:
    found = plan(wishes=Wishes(drop=("NET",)))
    assert not {"NET", "INET", "IPV6"} & enabled(found)
    assert any(text.startswith("IPV6") and "NET" in text for text in found.given_up)
    assert found.unexplained == ()


@pytest.mark.parametrize("written", ["UNIX", "CONFIG_UNIX"])
def test_what_is_dropped_excuses_no_other_loss(written: str) -> None:
    must = Catalogue(tuple(symbol_catalogue.parse(PLATFORM.replace("DISK", "SHADOW"), Cause.PLATFORM, "platform")))
    with pytest.raises(BuildError, match="SHADOW"):
        plan(book=must, wishes=Wishes(drop=(written,)))


def test_policy_gives_way_to_what_the_user_keeps() -> None:
    found = plan(wishes=Wishes(keep=("RATE_1000",)))
    assert "RATE_1000" in enabled(found) and "RATE_100" not in enabled(found)
    assert any(text.startswith("RATE_100") and "policy:rate" in text for text in found.given_up)
    must = Catalogue(tuple(symbol_catalogue.parse(PLATFORM.replace("DISK", "RATE_100"), Cause.PLATFORM, "platform")))
    with pytest.raises(BuildError, match="RATE_100"):
        plan(book=must, wishes=Wishes(keep=("RATE_1000",)))


def test_what_something_selects_cannot_be_dropped() -> None:
    found = plan(wishes=Wishes(drop=("DEBUG_BASE",)))
    assert "DEBUG_BASE" in enabled(found)
    assert any("selected by EXPERT" in text for text in found.given_up)


def test_what_is_switched_off_by_the_catalogue_comes_back_on_demand() -> None:
    off = "[[entry]]\nid='off'\nreason='rarely needed'\nsymbols={EPOLL='n', UNIX='n', DISK='n'}"
    book = Catalogue((*BOOK.entries, *symbol_catalogue.parse(off, Cause.POLICY, "policy")))
    found = plan(book=book)
    assert {"EPOLL", "DISK"} <= enabled(found) and "UNIX" not in enabled(found)
    assert reasons(found, "EPOLL") == {"trace:requests:3"} and reasons(found, "UNIX") == {"policy:off"}


def test_repair_brings_back() -> None:
    found = plan(tried=(symbol("UNIX", "y", Reason(Cause.REPAIR, "repair:trial:2", "connect failed")),))
    one = found.symbol("UNIX")
    assert one is not None and one.value == "y" and one.reasons[0].cause is Cause.REPAIR
    assert reasons(found, "UNIX") == {"repair:trial:2"}


def test_what_a_trial_showed_to_be_unneeded_goes() -> None:
    why = Reason(Cause.REPAIR, "repair:trial:3", "the exercise passes without it")
    found = plan(tried=(symbol("EPOLL", "n", why),))
    assert "EPOLL" not in enabled(found) and reasons(found, "EPOLL") == {"repair:trial:3"}
    assert found.unexplained == () and "EPOLL" in {row.id for row in found.left_out}
    with pytest.raises(BuildError, match="IPV6"):  # it is still asked for, and needs INET
        plan(tried=(symbol("INET", "n", why),))


def test_what_ran_most_is_left_out_first() -> None:
    ran = {"UNIX": SymbolCost(50), "FUTEX": SymbolCost(900), "EPOLL": SymbolCost(5)}
    found = plan(ran=ran)
    names = [row.id for row in found.left_out]
    assert names[:2] == ["FUTEX", "UNIX"] and "EPOLL" not in names and "BUS" not in names
    assert set(names) == {n for n in BASELINE if TREE.kconfig.prompted(n)} - enabled(found)


def test_what_is_left_out_knows_what_stood_there_and_what_it_is_expected_to_save() -> None:
    cost = SymbolCost(900, to_init_net=700)
    found = plan(ran={"FUTEX": cost, "HIDDEN_DEFAULT": SymbolCost(5)})
    one = next(row for row in found.left_out if row.id == "FUTEX")
    assert (one.setting.before, one.value, one.reasons) == (BASELINE["FUTEX"], "n", ())
    assert (one.saves(Figure.TRACE_INSTRUCTIONS), one.saves(Figure.INIT_INSTRUCTIONS_NET)) == (900, 700)
    assert one.back.setting.value == BASELINE["FUTEX"] and one.back.back.settings == one.settings
    assert "HIDDEN_DEFAULT" not in {row.id for row in found.gone}  # it is kept


def test_one_symbol_is_one_change() -> None:
    """Also one that is switched off for a reason and was in the baseline."""
    off = "[[entry]]\nid='off'\nreason='rarely needed'\nsymbols={UNIX='n'}"
    book = Catalogue((*BOOK.entries, *symbol_catalogue.parse(off, Cause.POLICY, "policy")))
    found = plan(book=book, ran={"UNIX": SymbolCost(50)})
    (one,) = [change for change in found.changes if change.id == "UNIX"]
    assert one in found.symbols and one in found.left_out and one.saves(Figure.TRACE_INSTRUCTIONS) == 50


def test_the_command_line_has_reasons() -> None:
    assert [(w.id, w.reasons[0].reference) for w in plan().words] == [("quiet", "platform:base")]


def test_a_plan_survives_saving() -> None:
    found = plan()
    assert records.from_bytes(Plan, records.to_bytes(found)) == found


def test_the_same_inputs_give_the_same_plan() -> None:
    plan((), Wishes(keep=("UNIX", "PARTS_XATTR")))
    assert records.to_bytes(plan()) == records.to_bytes(plan())


CHOOSABLE = sorted(n for n in BASELINE if TREE.kconfig.prompted(n) and n != "SHADOW")


@settings(max_examples=50, deadline=None)
@given(st.sets(st.sampled_from(CHOOSABLE), max_size=5), st.sets(st.sampled_from(CHOOSABLE), max_size=3))
def test_any_wish_gives_an_explained_plan(keep: set[str], drop: set[str]) -> None:
    try:
        found = plan(wishes=Wishes(keep=tuple(sorted(keep - drop)), drop=tuple(sorted(drop))))
    except BuildError as error:
        assert error.details and error.hint  # two members of one choice, say
        return
    assert found.unexplained == ()
    told = " ".join(found.given_up)
    assert all(name in enabled(found) or name in told for name in keep - drop)
    assert all(name not in enabled(found) or name in told for name in drop)


# ---- explaining


def test_explain_a_symbol_that_is_in() -> None:
    found = explain("CONFIG_NET", plan(), TREE.facts, TREE.kconfig, RULES)
    assert found.known and found.prompt == "Networking" and found.would_add == ()


def test_explain_a_symbol_that_is_out() -> None:
    found = explain("PARTS_XATTR", plan(), TREE.facts, TREE.kconfig, RULES)
    assert found.dependency == "PARTS_FS"
    assert found.would_add == ("PARTS_XATTR", "PARTS_FS")
    assert not explain("NO_SUCH", plan(), TREE.facts, TREE.kconfig, RULES).known
    assert would_add("SHADOW", plan(), TREE.kconfig) == ()


@pytest.mark.parametrize(
    ("name", "trigger"),
    [
        ("FUTEX", "system call futex"),
        ("UNIX", "socket AF_UNIX"),
        ("PARTS_FS", "mount of parts"),
        ("PROC_EXTRA", "/proc/self/smaps"),
        ("DISK", "/dev/things/one"),
        (
            "FILE_LOCKING",
            "fcntl F_SETLK F_SETLKW F_GETLK F_SETLK64 F_SETLKW64 F_GETLK64 F_OFD_SETLK F_OFD_SETLKW F_OFD_GETLK "
            "F_SETLEASE F_GETLEASE",
        ),
    ],
)
def test_what_would_bring_a_symbol_in(name: str, trigger: str) -> None:
    assert trigger in triggers(name, TREE.facts, RULES)


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (FailedCall("timer_create", "", "ENOSYS"), "POSIX_TIMERS"),
        (FailedCall("socket", "AF_UNIX, SOCK_STREAM", "EAFNOSUPPORT"), "UNIX"),
        (FailedCall("fcntl", "F_SETLK", "EINVAL"), "FILE_LOCKING"),
        (FailedCall("openat", "/proc/PID/smaps, O_RDONLY", "ENOENT"), "PROC_EXTRA"),
        (FailedCall("mount", "parts", "ENODEV"), "PARTS_FS"),
    ],
)
def test_repair_looks_at_the_nearest_first(call: FailedCall, first: str) -> None:
    left_out = plan().left_out
    ordered = nearest([call], left_out, TREE.facts, RULES, TREE.kconfig).order
    assert first in ordered[:2] and set(ordered) == {row.id for row in left_out}


def test_repair_goes_from_the_call_to_its_folder_to_its_subsystem() -> None:
    rows = [symbol(name, "n", before="y") for name in ("FUTEX", "IPV6", "INET", "UNIX")]
    failed = FailedCall("socket", "AF_UNIX, SOCK_STREAM", "EAFNOSUPPORT", 1)
    ordered = nearest([failed], rows, TREE.facts, RULES, TREE.kconfig).order
    # AF_UNIX itself; then net/, where it is defined, beside INET; then net/ipv6, the same subsystem; then the rest.
    assert ordered == ("UNIX", "INET", "IPV6", "FUTEX")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("fs/proc/base.c", "fs"),
        ("drivers/char/mem.c", "drivers/char"),
        ("arch/x86/kernel/ldt.c", "arch/x86"),
        ("Kbuild", ""),
    ],
)
def test_subsystem_of_a_source_file(path: str, expected: str) -> None:
    assert subsystem(path) == expected


def test_without_a_failing_call_what_ran_comes_first() -> None:
    found = plan(ran={"UNIX": SymbolCost(50)})
    assert nearest([], found.left_out, TREE.facts, RULES, TREE.kconfig).order[0] == "UNIX"
