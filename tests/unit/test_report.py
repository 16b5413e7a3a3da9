# SPDX-License-Identifier: Apache-2.0
"""The report of a fit: document, tables and page tell the same story, and hostile names stay text."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.fit_run_data import HOSTILE, fit_run, hostile_run

from vmtailor.analysis.changes.plan_summary import cause_of, counts
from vmtailor.base import pages
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.model.change import Cause, Reason, symbol
from vmtailor.model.fit_run import FitRun, Side
from vmtailor.model.syscalls import Absence, FailedCall
from vmtailor.model.systems.units import UnitChoice, UnitFate, UnitsMode, UnitStanding
from vmtailor.model.trial import Purpose, Trial
from vmtailor.pipeline.systems.unit_masks import change_of
from vmtailor.stages.report import figure_rows, fit_document, ledger_waterfall, pictures, report_page, show
from vmtailor.stages.report.figure_rows import groups

SIDE_KEYS = {
    "symbols_y",
    "symbols_prompted",
    "kernel_bytes",
    "init_instructions",
    "init_instructions_net",
    "ready_instructions",
    "init_virtual_us",
    "ready_virtual_us",
    "device_accesses",
    "device_accesses_net",
    "request_kernel_instructions",
    "min_memory_bytes",
    "memory",
    "init_wall_us",
    "unmeasured",
}


def printed(run: FitRun, width: int = 200) -> str:
    out = io.StringIO()
    show(run, TerminalConsole(file=out, width=width), verbose=True)
    return out.getvalue()


def embedded(html: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found is not None
    document = json.loads(found[1])
    assert isinstance(document, dict)
    return document


class Tags(HTMLParser):
    """Counts elements and collects attributes, as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_document_has_exactly_the_keys_that_are_promised() -> None:
    document = fit_document(fit_run())
    assert list(document) == [
        "schema",
        "bundle",
        "verified",
        "proof",
        "monitors",
        "degraded",
        "absent",
        "repairs",
        "symbols",
        "unexplained",
        "baseline",
        "tailored",
        "margin",
        "lacks",
        "kernel",
        "waterfall",
        "units",
        "tuned",
    ]
    assert document["schema"] == "vmtailor/fit/2"
    assert set(document["symbols"]) == {"demanded", "platform", "policy", "margin", "dependency", "repair", "total_y"}
    assert set(document["baseline"]) == set(document["tailored"]) == SIDE_KEYS
    assert document["repairs"] == 1
    json.dumps(document)


def test_symbols_are_counted_once_with_a_prompt_and_kept() -> None:
    run = fit_run()
    document = fit_document(run)["symbols"]
    total = sum(number for key, number in document.items() if key != "total_y")
    assert total == sum(1 for c in run.plan.symbols if c.setting.chosen and c.value == "y")
    assert document["total_y"] == run.plan.total_y


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        ([Cause.POLICY, Cause.DEMANDED], Cause.DEMANDED),
        ([Cause.DEPENDENCY, Cause.POLICY], Cause.POLICY),
        ([Cause.DEPENDENCY, Cause.REPAIR], Cause.REPAIR),
        ([], None),
    ],
)
def test_a_symbol_with_several_reasons_counts_under_the_foremost(causes: list[Cause], expected: Cause | None) -> None:
    assert cause_of(symbol("X", "y", *(Reason(cause, "r", "t") for cause in causes))) is expected


def test_numbers_and_left_out_symbols_are_not_counted() -> None:
    reason = Reason(Cause.POLICY, "policy:x", "x")
    found = counts(symbol(name, value, reason) for name, value in (("NR_CPUS", "1"), ("MODULES", "n"), ("A", "m")))
    assert found[Cause.POLICY] == 1


def test_no_table_mixes_instructions_and_wall_time() -> None:
    for group in groups(fit_run()):
        words = {"wall" if "start →" in row.title else "exact" for row in group.rows}
        assert len(words) == 1
    assert [g.title for g in groups(fit_run())] == ["Size", "Instructions, virtual time, device accesses", "Wall time"]


def test_unlike_accelerators_are_said_in_the_table() -> None:
    run = fit_run()
    other = dataclasses.replace(run.tailored, wall_conditions=(("accelerator", "kvm"),))
    text = printed(dataclasses.replace(run, tailored=other))
    assert "not comparable" in text


def test_terminal_says_what_happened_and_what_to_do_next() -> None:
    text = printed(fit_run())
    for part in (
        "✓ verified with load",
        "26.9\u202fM",
        "÷\u202f46.3",
        "APIC timer calibration",
        "vmtailor explain out EPOLL",
        "out/report.html",
        "-p 8080:80",
        "port 443",
        "+INOTIFY_USER",
        "[exercise-narrow]",
    ):
        assert part in text
    assert "✗ not verified" in printed(fit_run(verified=False))


@pytest.mark.attack
def test_terminal_obeys_no_escape_sequence_and_no_markup() -> None:
    text = printed(fit_run(reference="oci:\x1b[2Jx[bold]y", bundle="\x1b]0;title\x07"))
    assert "\x1b" not in text and "\x07" not in text
    assert "[bold]y" in text


def test_a_figure_that_is_missing_becomes_a_dash() -> None:
    run = fit_run()
    side = dataclasses.replace(
        run.tailored,
        init_instructions=None,
        init_instructions_net=None,
        min_memory_bytes=None,
        phases=(),
        init_wall_us=None,
        ready_wall_us=None,
        subsystems=(),
        initcalls=(),
        symbol_costs=(),
        functions=(),
    )
    run = dataclasses.replace(run, tailored=side)
    assert "–" in printed(run)
    assert "there is no picture" in report_page.page(run)
    assert fit_document(run)["tailored"]["init_instructions"] is None


def test_page_holds_the_document_and_every_symbol() -> None:
    run = fit_run()
    data = embedded(report_page.page(run))
    assert data["fit"] == fit_document(run)
    symbols = data["symbols"]
    assert isinstance(symbols, list) and len(symbols) == len(run.plan.symbols)


def test_the_page_of_a_system_needs_no_image() -> None:
    run = records.load(FitRun, Path(__file__).parents[1] / "data/saved/system/run.json")
    assert run.image is None and f"amd64 on {run.plan.machine}, kernel" in report_page.page(run)


def test_page_names_no_address_outside_itself() -> None:
    parser = Tags()
    parser.feed(report_page.page(fit_run()))
    links = [value for name, value in parser.attributes if name in ("src", "href", "action", "srcset")]
    assert all(value is not None and (value.startswith("#") or value == "data:,") for value in links)
    assert not [name for name, _ in parser.attributes if name == "style" or name.startswith("on")]


@pytest.mark.attack
def test_hostile_names_add_no_element_to_the_page() -> None:
    parser = Tags()
    html = report_page.page(hostile_run())
    parser.feed(html)
    assert "window.hacked=1</script>" not in html
    assert parser.tags.count("script") == 2 and "img" not in parser.tags
    data = embedded(html)
    calls = data["calls"]
    assert isinstance(calls, list) and calls[0]["task"] == HOSTILE


@pytest.mark.attack
@given(st.text())
def test_embedded_data_cannot_leave_its_element(text: str) -> None:
    raw = str(pages.embedded({"x": text}))
    assert not set(raw) & set("<>&\u2028\u2029")
    assert json.loads(raw) == {"x": text}


def test_record_survives_a_round_trip() -> None:
    run = fit_run()
    assert records.from_bytes(FitRun, records.to_bytes(run)) == run


def test_a_record_of_an_older_format_says_what_to_do() -> None:
    with pytest.raises(UserInputError, match="vmtailor/fit-run/1") as caught:
        records.from_bytes(FitRun, b'{"schema": "vmtailor/fit-run/1", "ledger": []}')
    assert "again" in caught.value.hint


def test_waterfall_ends_where_the_tailored_machine_is() -> None:
    found = ledger_waterfall.of(fit_run())
    assert found is not None
    bars = ledger_waterfall.bars(found)
    assert bars[0].kind == bars[-1].kind == "total"
    assert bars[-1].width == pytest.approx(100 * 26_902_130 / 1_244_990_804)
    assert all(bar.x >= 0 and bar.x + bar.width <= 100.001 for bar in bars)
    before_last = bars[-2]
    assert before_last.x == pytest.approx(bars[-1].width)  # where the last step ends, the tailored machine begins


def test_waterfall_adds_up() -> None:
    """Rows to what was measured, symbols and the remainder to the same, and the parts to the remainder."""
    run = fit_run()
    found = ledger_waterfall.of(run)
    assert found is not None
    assert found.measured == found.end - found.start == 26_902_130 - 1_244_990_804
    assert found.expected + found.remainder == found.measured
    assert sum(cost for row in found.rows for _, cost in row.symbols) == found.expected
    assert sum(part.after - part.before for part in found.parts) == found.remainder
    assert found.before_kernel == -728_186_280  # before kernel entry: in no row


@pytest.mark.parametrize("most", range(1, 8))
def test_what_a_short_waterfall_leaves_out_is_one_row(most: int) -> None:
    found = ledger_waterfall.of(fit_run())
    assert found is not None
    rows = ledger_waterfall.shortened(found.rows, most)
    assert len(rows) <= most + 1
    assert sum(row.measured for row in rows) == found.measured and sum(row.expected for row in rows) == found.expected
    assert {name for row in rows for name, _ in row.symbols} == {n for row in found.rows for n, _ in row.symbols}


def test_no_row_of_the_waterfall_is_without_figures() -> None:
    html = report_page.page(fit_run())
    section = html[html.index('id="changes"') : html.index('id="costs"')]
    assert "not alone" not in section and "undecided" not in section
    assert "CRYPTO_MANAGER_EXTRA_TESTS" in section and "What the remainder is" in section
    assert "code that is always built" in section
    text = printed(fit_run())
    assert "in all" in text and "the remainder: code that is always built" in text
    document = fit_document(fit_run())["waterfall"]
    assert document["measured"] == document["expected"] + document["remainder"]
    assert document["subsystems"][0]["symbols"] == {"CRYPTO_MANAGER_EXTRA_TESTS": -612_000_000}


def test_without_figures_there_is_no_waterfall() -> None:
    assert ledger_waterfall.of(fit_run(ledger=())) is None
    assert 'id="changes"' not in report_page.page(fit_run(ledger=()))


def test_cost_lists_keep_the_whole() -> None:
    for found in report_page.cost_lists(fit_run()):
        for side in (0, 1):
            assert sum(row.costs[side] or 0 for row in found.rows) <= max(found.totals[side], 1) * 2
            assert all(0 <= row.shares[side] <= 100 for row in found.rows)
    subsystem = report_page.cost_lists(fit_run())[0]
    assert sum(row.costs[0] or 0 for row in subsystem.rows) == subsystem.totals[0]


def test_long_cost_lists_end_in_a_sum_of_the_rest() -> None:
    run = fit_run()
    many = dataclasses.replace(run.baseline, subsystems=tuple((f"d{i}", 1000 - i) for i in range(40)))
    rows = report_page.cost_lists(dataclasses.replace(run, baseline=many))[0].rows
    assert len(rows) == report_page.MOST_ROWS + 1
    assert sum(row.costs[0] or 0 for row in rows) == sum(1000 - i for i in range(40))


def test_timeline_fills_the_width_and_enlarges_the_smaller_boot() -> None:
    run = fit_run()
    picture = pictures.boot_picture(run.baseline, run.tailored)
    assert picture is not None and picture.zoomed is not None
    assert picture.bars[0].width == pytest.approx(100)
    assert picture.zoomed.width == pytest.approx(100)
    for bar in (*picture.bars, picture.zoomed):
        assert sum(s.width for s in bar.phases) == pytest.approx(bar.width)
        assert sum(s.width for s in bar.owners) == pytest.approx(bar.width)
        assert 3 <= len(bar.ticks) <= 12


@given(st.integers(1, 10**13))
def test_an_axis_has_a_few_round_ticks(scale: int) -> None:
    ticks = pictures._ticks(scale)
    assert 2 <= len(ticks) <= 13
    assert all(0 <= x <= 100.0001 for x, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("oci:images/lighttpd", "lighttpd"),
        ("docker://localhost:5000/library/nginx:1.25", "nginx:1.25"),
        ("oci:lighttpd", "lighttpd"),
        ("/srv/root", "root"),
        ("docker-archive:x.tar", "x.tar"),
        ("/", "/"),
    ],
)
def test_short_name(reference: str, name: str) -> None:
    assert report_page.subject_name(fit_run(reference=reference)) == name


def side_without(run: FitRun, **gone: Any) -> FitRun:
    return dataclasses.replace(run, tailored=dataclasses.replace(run.tailored, **gone))


@pytest.mark.parametrize(
    ("gone", "figure", "reason"),
    [
        ({"boots": 0, "min_memory_bytes": None}, "min_memory_bytes", "the tailored machine is not verified"),
        ({"min_memory_bytes": None}, "min_memory_bytes", "no boot with less memory"),
        ({"request_kernel_instructions": None}, "request_kernel_instructions", "no request inside the guest"),
        ({"ready_instructions": None}, "ready_instructions", "runs to its end"),
        ({"memory": None}, "memory", "could not be read"),
        ({"device_accesses": None}, "device_accesses", "plugin"),
        ({"init_wall_us": None}, "init_wall_us", "no counted boot"),
    ],
)
def test_a_figure_that_is_null_says_why_in_one_line(gone: dict[str, Any], figure: str, reason: str) -> None:
    run = side_without(fit_run(), **gone)
    side = fit_document(run)["tailored"]
    assert side[figure] is None and reason in side["unmeasured"][figure]
    assert "\n" not in side["unmeasured"][figure] and len(side["unmeasured"][figure]) < 110


def test_every_figure_of_the_document_that_is_null_has_its_reason() -> None:
    names = {field.name for field in dataclasses.fields(Side) if "None" in str(field.type)}
    empty = side_without(fit_run(), boots=0, **dict.fromkeys(names))
    for run in (fit_run(), empty):
        for side in (fit_document(run)["baseline"], fit_document(run)["tailored"]):
            assert {name for name, value in side.items() if value is None} <= side["unmeasured"].keys()
    assert names == set(figure_rows.FIGURES)


def test_terminal_and_page_say_why_and_what_is_harmlessly_absent() -> None:
    call = FailedCall("openat", "/sys/devices/system/node, O_RDONLY", "ENOENT", 1)
    absent = (Absence(call, "memory-nodes", "one node"),)
    run = dataclasses.replace(side_without(fit_run(), boots=0, min_memory_bytes=None), absent=absent)
    for text in (" ".join(printed(run).split()), report_page.page(run)):
        assert "not measured: the tailored machine is not verified" in text
        assert "/sys/devices/system/node" in text and "one node" in text
    assert fit_document(run)["absent"][0]["id"] == "memory-nodes"


def test_units_and_trials_of_them_are_shown() -> None:
    rows = (
        UnitStanding("late.service", UnitFate.MASKED, "nobody wanted it", 1.5),
        UnitStanding("other.socket", UnitFate.MASKED, "nobody wanted it"),
    )
    trial = Trial(9, Purpose.UNNEEDED, (change_of(rows),), True, (), 0.0, 1.0)
    run = dataclasses.replace(fit_run(), units=UnitChoice(UnitsMode.TRIM, rows), trials=(trial,))
    document = fit_document(run)["units"]
    assert document["mode"] == "trim" and document["whole"]
    assert document["units"][0] == {
        "name": "late.service", "fate": "masked", "reason": "nobody wanted it", "start_s": 1.5
    }  # fmt: skip
    assert "−late.service, other.socket" in report_page.page(run)
