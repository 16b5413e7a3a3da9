# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics text of a watched machine, as the parser of Prometheus' own library reads it."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Point

from vmtailor.analysis.watches import open_metrics
from vmtailor.analysis.watches.columns import WatchColumns
from vmtailor.analysis.watches.sample_text import Sample
from vmtailor.base.text import plain
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import MachineWatch, WatchedContainer, WatchedKind, figures

#: Names from outside, which are text all the same.
HOSTILE = 'x"} 1\n# EOF\n\\{é'
SECOND = 1_000_000_000


def watched(clock: Clock = Clock.WALL) -> MachineWatch:
    """Every figure of every kind, twice."""
    columns = WatchColumns()
    for number in (1, 2):
        values = {}
        for rows in figures().values():
            for place, row in enumerate(rows):
                name = "" if row.of in (WatchedKind.MACHINE, WatchedKind.HOST) else "eth0"
                values[row.of, name, row.name] = number * 1_500_000 + place
        # The time of day was set back in between: what is stamped goes on all the same.
        columns.add(Sample(number * SECOND, 1_700_000_000 * SECOND - number * 5 * SECOND, values))
    return columns.record(HOSTILE, clock, 1000, containers=(WatchedContainer("eth0", "docker", HOSTILE),))


def points(text: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        assert family.documentation
        for point in family.samples:
            found.setdefault(point.name, []).append(point)
    return found


def test_the_parser_of_prometheus_reads_every_figure() -> None:
    text = open_metrics.text(watched())
    found = points(text)
    rows = [row for some in figures().values() for row in some]
    assert set(found) == {
        *(f"{row.metric}{'_total' if row.grows else ''}" for row in rows), "vmtailor_container_info",
    }  # fmt: skip
    assert sum(map(len, found.values())) == 2 * len(rows) + 1
    assert text.endswith("# EOF\n") and text.count("\n# EOF") == 1
    cpu = found["vmtailor_container_cpu_seconds_total"]
    assert [(point.value, point.labels) for point in cpu] == [
        (value, {"machine": plain(HOSTILE), "container": "eth0"}) for value in (1.5, 3.0)
    ]
    user = [p.value for p in found["vmtailor_machine_cpu_seconds_total"] if p.labels["mode"] == "user"]
    assert user == [1.5, 3.0]
    load = [p.value for p in found["vmtailor_machine_load_average"] if p.labels["minutes"] == "5"]
    assert load == [1500.001, 3000.001]
    assert found["vmtailor_container_info"][0].labels["command"] == HOSTILE


def test_stamps_go_on() -> None:
    wall, own = ["1699999989.000000000", "1699999990.000000000"], ["1.000000000", "2.000000000"]
    for clock, stamps in ((Clock.WALL, wall), (Clock.INSTRUCTIONS, own)):
        for some in points(open_metrics.text(watched(clock))).values():
            if some[0].timestamp is not None:
                assert [str(p.timestamp) for p in some][:2] == stamps


def test_nothing_watched_is_text_without_figures() -> None:
    assert open_metrics.text(WatchColumns().record("x", Clock.WALL, 1000)) == "# EOF\n"
