# SPDX-License-Identifier: Apache-2.0
"""The sampler's text, which a guest says and nobody trusts: read in any pieces, bounded, and put into columns."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.watches import rates
from vmtailor.analysis.watches.columns import WatchColumns
from vmtailor.analysis.watches.sample_text import MOST_CONTAINERS, MOST_LINE, MOST_LINES, Sample, SampleReader
from vmtailor.base.files import records
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import (
    MachineWatch,
    WatchedContainer,
    WatchedKind,
    WatchMark,
    WatchSeries,
    figure,
    figures,
)

TEXT = b"""\
sample 1000000000 1796053815910040769
cpu 5 0 7 100 1 0 2 0
cpu0 5 0 7 100 1 0 2 -
kernel 10 20 3 0
load 120 90 1005
memory 1000 500 700 10 20 0 0
disk vda 1 512 2 1024 3000
net eth0 10 1 20 2
named aaaaaaaaaaaa docker httpd
container aaaaaaaaaaaa 30 10 20 0 4096 1 2 3 4 5 6 7 8 9 10 11
note control-groups-1
end
"""
GOOD = 15


def test_a_sample_has_every_figure_that_was_told() -> None:
    reader = SampleReader()
    (one,) = reader.feed(TEXT)
    assert (one.monotonic_ns, one.real_ns, reader.damaged) == (1_000_000_000, 1796053815910040769, 0)
    assert one.values[WatchedKind.MACHINE, "", "cpu_system_us"] == 7
    assert one.values[WatchedKind.MACHINE, "", "load_15_thousandths"] == 1005
    assert one.values[WatchedKind.DISK, "vda", "busy_us"] == 3000
    assert one.values[WatchedKind.CONTAINER, "aaaaaaaaaaaa", "sent_bytes"] == 11
    assert (WatchedKind.PROCESSOR, "0", "cpu_steal_us") not in one.values
    assert reader.containers == {"aaaaaaaaaaaa": WatchedContainer("aaaaaaaaaaaa", "docker", "httpd")}
    assert reader.notes == ["the machine has control groups of version 1, so its containers are not told apart"]


@given(st.lists(st.integers(0, len(TEXT)), max_size=5))
def test_pieces_make_the_same_samples(cuts: list[int]) -> None:
    whole, pieces = SampleReader().feed(TEXT), SampleReader()
    ends = [0, *sorted(cuts), len(TEXT)]
    found = [s for begin, end in pairwise(ends) for s in pieces.feed(TEXT[begin:end])]
    assert found == whole


@given(st.binary(max_size=2000))
def test_any_bytes_are_read(data: bytes) -> None:
    reader = SampleReader()
    for piece in (data, TEXT, data):
        for sample in reader.feed(piece):
            assert all(0 <= value < 2**63 for value in sample.values.values())
    assert len(reader._held) <= MOST_LINE


@pytest.mark.attack
@pytest.mark.parametrize(
    "line",
    [
        b"cpu 1 2 3", b"cpu 1 2 3 4 5 6 7 8 9", b"cpu -1 2 3 4 5 6 7 8", b"cpu \xd9\xa3 2 3 4 5 6 7 8",
        b"cpu 99999999999999999999999 2 3 4 5 6 7 8", b"disk ../../etc 1 2 3 4 5", b"net \x1b[31m 1 2 3 4",
        b"container <b> 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", b"named a b", b"cpu99999 1 2 3 4 5 6 7 8", b"other",
        b"", b"x" * 600,
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_counted_and_passed_over(line: bytes) -> None:
    reader = SampleReader()
    (one,) = reader.feed(TEXT.replace(b"kernel 10 20 3 0", line))
    assert reader.damaged == 1 and (WatchedKind.MACHINE, "", "forks") not in one.values
    assert one.values[WatchedKind.DISK, "vda", "reads"] == 1


@pytest.mark.attack
def test_a_guest_that_says_more_is_believed_so_far() -> None:
    reader = SampleReader()
    many = b"".join(b"disk d%d 1 2 3 4 5\n" % number for number in range(3 * MOST_LINES))
    (one,) = reader.feed(b"sample 1 2\n" + many + b"end\n")
    assert len(one.values) == 5 * MOST_LINES and reader.damaged == 2 * MOST_LINES
    names = b"".join(b"named c%d docker x\n" % number for number in range(900))
    reader.feed(b"sample 2 2\n" + names + b"end\n")
    assert len(reader.containers) == MOST_CONTAINERS
    assert reader.feed(b"y" * 10_000_000 + b"\nend\n") == [] and len(reader._held) == 0
    # A clock that stands or goes back gives no sample.
    assert reader.feed(b"sample 2 9\nend\nsample 1 9\nend\n") == []
    assert [s.monotonic_ns for s in reader.feed(b"sample 3 9\nend\n")] == [3]


def sample(at: int, **values: int) -> Sample:
    return Sample(at, at, {(WatchedKind.MACHINE, "", name): value for name, value in values.items()})


def test_columns_have_a_place_for_every_sample() -> None:
    columns = WatchColumns()
    columns.add(sample(1, forks=5))
    columns.add(sample(2), {(WatchedKind.HOST, "", "cpu_us"): 7})
    columns.add(sample(3, forks=6))
    found = columns.record("x\x1b", Clock.WALL, 1000, marks=(WatchMark("ready", 2),))
    assert found.subject == "x\\x1b" and found.times_ns == (1, 2, 3)
    assert {(s.of, s.figure): s.values for s in found.series} == {
        (WatchedKind.MACHINE, "forks"): (5, None, 6),
        (WatchedKind.HOST, "cpu_us"): (None, 7, None),
    }
    assert records.from_bytes(MachineWatch, records.to_bytes(found)) == found


@given(st.integers(0, 300), st.sampled_from([2, 8, 64]))
def test_samples_are_thinned_and_never_more_than_are_kept(count: int, most: int) -> None:
    columns = WatchColumns(most)
    for at in range(count):
        columns.add(sample(at, forks=at))
    found = columns.record("x", Clock.WALL, 1000)
    assert len(found.times_ns) <= most
    assert found.times_ns == tuple(range(0, count, found.thinned))
    assert all(s.values == found.times_ns for s in found.series)
    assert bool(found.notes) is (found.thinned > 1)


def test_many_series_leave_room_for_fewer_samples() -> None:
    """What a guest says is bounded as a whole: its series times its samples."""
    columns = WatchColumns(most=64, values=100)
    for at in range(200):
        columns.add(sample(at, **{f"figure{number}": at for number in range(25)}))
        assert len(columns) <= 5
    assert columns.thinned > 1 and len(columns.record("x", Clock.WALL, 1000).series) == 25


def series(*values: int | None) -> WatchSeries:
    return WatchSeries(WatchedKind.MACHINE, "", "forks", values)


def test_rates_know_gaps_and_what_begins_again() -> None:
    second = 1_000_000_000
    times = tuple(second * at for at in (0, 1, 2, 3, 5))
    found = rates.rates(series(10, 15, None, 2, 12), times)
    assert found.values == (5.0, None, None, 5.0) and found.resets == 0
    again = rates.rates(series(10, 15, 3, 5, 9), times)
    assert again.values == (5.0, None, 2.0, 2.0) and again.resets == 1
    assert rates.grown(series(10, 15, 3, 5, 9)) == 11 and rates.grown(series(None, 5)) is None
    watch = WatchColumns().record("x", Clock.WALL, 1000)
    assert rates.gaps(watch) == ()
    columns = WatchColumns()
    for at in (1, 2, 6, 7):
        columns.add(sample(second * at))
    assert rates.gaps(columns.record("x", Clock.WALL, 1000)) == ((2 * second, 6 * second),)


def test_every_figure_has_a_name_of_its_own() -> None:
    rows = [row for some in figures().values() for row in some]
    assert len({(row.of, row.name) for row in rows}) == len(rows)
    assert len({(row.metric, row.label) for row in rows}) == len(rows)
    for row in rows:
        assert figure(row.of, row.name) is row
        same = {(other.grows, other.help, other.unit) for other in rows if other.metric == row.metric}
        assert len(same) == 1, row.metric
        assert row.metric.endswith("_seconds") is (row.unit == "microseconds")
        assert row.metric.endswith("_bytes") is (row.unit == "bytes")
