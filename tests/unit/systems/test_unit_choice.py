# SPDX-License-Identifier: Apache-2.0
"""Units of a system: what each needs, which of them nobody wanted, and why the others stay."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.systems import unit_choice, unit_graph
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.exercise import Step, StepKind
from vmtailor.model.systems.units import PROPERTIES, UnitFate, UnitStanding

MOST = 1 << 18


def block(name: str, *, took_us: int | None = 0, **values: str) -> str:
    times = {} if took_us is None else {
        "InactiveExitTimestampMonotonic": "5000", "ActiveEnterTimestampMonotonic": str(5000 + took_us)
    }  # fmt: skip
    found = {
        "Id": name, "Names": name, "LoadState": "loaded", "ActiveState": "active",
        "FragmentPath": f"/lib/systemd/system/{name}", **times, **values,
    }  # fmt: skip
    return "".join(f"{key}={value}\n" for key, value in found.items())


TEXT = "\n".join(
    (
        block("all.target", Wants="engine.socket late.service extra.service time.service", Requires="base.target"),
        block("base.target", Wants="hosts.service"),
        block("engine.service", took_us=300_000, Wants="helper.service", TriggeredBy="engine.socket"),
        block("engine.socket", Listen="/run/engine.sock (Stream)", Requires="base.target"),
        block("helper.service", took_us=20_000),
        block("late.service", took_us=1_500_000, Names="late.service other.service"),
        block("extra.service", took_us=10_000, ActiveState="inactive"),
        block("hosts.service", took_us=40_000, ActiveState="failed", ActiveEnterTimestampMonotonic="0"),
        block("chrony.service"),
        block("never.service", took_us=None, ActiveState="inactive"),
        block("made.mount", FragmentPath="/run/systemd/generator/made.mount"),
        block("gone.service", LoadState="not-found"),
    )
)
READY = SystemReady(SystemReadyKind.UNIT, unit="all.target")
EXERCISE = SystemExercise("x.toml", READY, (Step(StepKind.COMMAND, argv=("true",)),))
KEPT = (unit_choice.Kept("time", ("chrony*",), "clocks"),)


def fates(exercise: SystemExercise = EXERCISE, asked: tuple[str, ...] = ()) -> dict[str, UnitFate]:
    graph = unit_graph.parse(TEXT, MOST)
    return {one.name: one.fate for one in unit_choice.standings(graph, exercise, asked, KEPT)}


def test_a_graph_is_read() -> None:
    graph = unit_graph.parse(TEXT, MOST)
    assert not graph.cut and "gone.service" not in graph.units
    engine, late = graph.units["engine.service"], graph.find("other.service")
    assert engine.start_s == 0.3 and engine.wants == ("helper.service",) and engine.triggered_by == ("engine.socket",)
    assert late is not None and late.name == "late.service"
    assert graph.units["engine.socket"].listens == ("/run/engine.sock",)
    assert graph.units["hosts.service"].start_s is None and graph.units["hosts.service"].started


def test_a_text_that_was_cut_off_loses_its_last_unit_and_says_so() -> None:
    graph = unit_graph.parse(TEXT, len(TEXT))
    assert graph.cut and len(graph.units) == len(unit_graph.parse(TEXT, MOST).units)  # the last one was not loaded
    assert "made.mount" not in unit_graph.parse(TEXT[: TEXT.index("Id=gone")].rstrip(), 10).units


def test_what_nobody_wanted_is_a_candidate_the_slowest_first() -> None:
    found = fates()
    assert [name for name, fate in found.items() if fate is UnitFate.CANDIDATE] == [
        "late.service", "engine.service", "helper.service", "extra.service", "engine.socket", "hosts.service"
    ]  # fmt: skip
    assert found["chrony.service"] is UnitFate.KEPT
    # What did not start, what has no file in the system, and what is no work of its own, is not asked about.
    assert not {"never.service", "made.mount", "all.target"} & found.keys()


@pytest.mark.parametrize("argv", [("systemctl", "restart", "engine.service"), ("sh", "-c", "engine run; true")])
def test_what_the_exercise_names_stays_with_what_it_needs(argv: tuple[str, ...]) -> None:
    found = fates(replace(EXERCISE, load=(Step(StepKind.COMMAND, argv=argv),)))
    wanted = {name for name, fate in found.items() if fate is UnitFate.WANTED}
    assert wanted == {"engine.service", "helper.service", "engine.socket"}


def test_who_is_asked_at_a_socket_stays_and_so_does_whom_it_starts() -> None:
    log = (b'7<a> 1.0 connect(3<UNIX:[1]>, {sa_family=AF_UNIX, sun_path="/var/run/eng', b'ine.sock"}, 23) = 0 <0.1>\n')
    asked = unit_choice.asked_sockets(log)
    assert asked == {"/var/run/engine.sock"}
    found = fates(asked=tuple(asked))
    wanted = {name for name, fate in found.items() if fate is UnitFate.WANTED}
    assert wanted == {"engine.service", "helper.service", "engine.socket"}
    assert unit_choice.asked_sockets([b'1 connect(3, {sun_path=@"abstract"}, 9) = 0']) == {"@abstract"}


def test_why_is_told() -> None:
    graph = unit_graph.parse(TEXT, MOST)
    exercise = replace(EXERCISE, load=(Step(StepKind.COMMAND, argv=("engine", "run")),))
    reasons = {one.name: one.reason for one in unit_choice.standings(graph, exercise, (), KEPT)}
    assert reasons["engine.service"] == "the exercise names engine"
    assert reasons["helper.service"] == "engine.service needs it"
    assert reasons["chrony.service"] == "time: clocks"


def test_the_rows_that_come_with_the_program() -> None:
    rows = unit_choice.load()
    assert all(row.reason and row.names for row in rows)
    patterns = [pattern for row in rows for pattern in row.names]
    for name in ("ssh.service", "dbus.service", "systemd-udevd.service", "apparmor.service", "-.mount", "cron.service"):
        assert any(fnmatchcase(name, pattern) for pattern in patterns), name
    # What is fitted is nobody's list: the examples' own services are not there.
    for name in ("docker.service", "containerd.service", "web.service", "scratch.service"):
        assert not any(fnmatchcase(name, pattern) for pattern in patterns), name


def test_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[[kept]]\nid = "a"\nnames = ["x"]\nreason = "y"\n' * 2)
    with pytest.raises(UserInputError, match="id a"):
        unit_choice.load(tmp_path)


LINES = st.builds(
    lambda key, value: f"{key}={value}", st.sampled_from(PROPERTIES), st.text(max_size=20) | st.integers().map(str)
)


@pytest.mark.attack
@given(st.lists(LINES | st.just("") | st.text(max_size=30)).map("\n".join), st.integers(1, 2000))
def test_whatever_a_system_says_of_its_units_is_read(text: str, most: int) -> None:
    graph = unit_graph.parse(text, most)
    found = unit_choice.standings(graph, EXERCISE, ("/run/x",), KEPT)
    assert {one.name for one in found} <= graph.units.keys()
    assert all(one.start_s is None or one.start_s >= 0 for one in found)


@pytest.mark.attack
@given(st.lists(st.binary(max_size=60)))
def test_whatever_a_log_holds_is_looked_through(chunks: list[bytes]) -> None:
    assert all(isinstance(path, str) for path in unit_choice.asked_sockets(chunks))


def test_a_unit_that_is_named_is_a_candidate_by_any_of_its_names_unless_the_exercise_wants_it() -> None:
    graph = unit_graph.parse(TEXT, MOST)

    def standing(name: str, exercise: SystemExercise, *named: str) -> UnitStanding:
        rows = unit_choice.standings(graph, exercise, (), KEPT, named)
        return next(one for one in rows if one.name == name)

    assert standing("chrony.service", EXERCISE).fate is UnitFate.KEPT
    named = standing("chrony.service", EXERCISE, "chrony*")
    assert (named.fate, named.named) == (UnitFate.CANDIDATE, True)
    other = standing("late.service", EXERCISE, "other.service")  # another name of it
    assert other.named and other.reason == "whoever fitted the system does without it"
    asks = replace(EXERCISE, load=(Step(StepKind.COMMAND, argv=("chrony", "status")),))
    wanted = standing("chrony.service", asks, "chrony*")
    assert (wanted.fate, wanted.named) == (UnitFate.WANTED, True)
    assert unit_choice.unmatched(graph, ("other.service", "all.target", "never*", "x*")) == (
        "all.target",
        "never*",
        "x*",
    )
