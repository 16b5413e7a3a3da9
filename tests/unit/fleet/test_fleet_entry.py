# SPDX-License-Identifier: Apache-2.0
"""Records of lists: they survive a round trip, hold no value of a variable, and pin what a digest pins."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.files import records
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm, Meaningless, ValueFrom, Variable
from vmtailor.model.margin import Margin

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = st.lists(text, max_size=3).map(tuple)
entries = st.builds(
    FleetEntry,
    name=text,
    reference=text,
    exercise=text,
    margins=st.none() | st.lists(st.sampled_from(Margin), max_size=2).map(tuple),
    memory_bytes=st.none() | st.integers(0, 1 << 40),
    entrypoint=st.none() | texts,
    limit_s=st.none() | st.floats(0, 1e6),
    environment=st.lists(st.builds(Variable, text, st.sampled_from(ValueFrom), text), max_size=3).map(tuple),
    no_meaning=st.lists(st.builds(Meaningless, text, text), max_size=3).map(tuple),
)
DIGEST = "sha256:" + "a" * 64


@given(st.lists(entries, max_size=3).map(tuple))
def test_a_list_survives_the_round_trip(found: tuple[FleetEntry, ...]) -> None:
    whole = FleetList("list.toml", ListForm.TOML, "0" * 64, found)
    assert records.from_bytes(FleetList, records.to_bytes(whole)) == whole
    for one in found:
        assert records.from_bytes(FleetEntry, records.to_bytes(one)) == one


def test_a_variable_has_no_room_for_a_value() -> None:
    assert [one.name for one in fields(Variable)] == ["name", "source", "place", "optional"]


def test_a_reference_is_pinned_once() -> None:
    assert FleetEntry("a", "docker://a:1").pinned == "docker://a:1"
    assert FleetEntry("a", "docker://a:1", DIGEST).pinned == f"docker://a:1@{DIGEST}"
    assert FleetEntry("a", f"docker://a@{DIGEST}", DIGEST).pinned == f"docker://a@{DIGEST}"


def test_an_entry_is_found_by_its_name() -> None:
    whole = FleetList("l", ListForm.LINES, "", (FleetEntry("a", "oci:a"), FleetEntry("b", "oci:b")))
    assert whole.named("b") == whole.entries[1]
    assert whole.named("c") is None
