# SPDX-License-Identifier: Apache-2.0
"""The boot page in a real browser: zoom, search, table to bar and back; no error, no request, and quick with 5,000
items."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.fakes.browser import Opened, opened
from tests.unit.bootlog.reading import DATA

from vmtailor.analysis.comparison.boot_differences import compare_boots
from vmtailor.analysis.comparison.comparison_page import compare_page
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import Timeline

pytestmark = pytest.mark.contract


def until(page: Page, condition: str) -> None:
    """Wait for a condition. The page's policy forbids the browser's own way of polling, which evaluates strings."""
    deadline = time.monotonic() + 10
    while not page.evaluate(condition):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within 10 s: {condition}")
        page.wait_for_timeout(20)


def chart(page: Page, name: str) -> str:
    return str(page.evaluate(f"document.getElementById('gantt').dataset.{name} || ''"))


def written(folder: Path, timeline: Timeline) -> Path:
    path = folder / "boot.html"
    path.write_text(boot_page(timeline, "boot"))
    return path


def clean(found: Opened) -> None:
    assert found.complaints == []
    assert found.requests == []


def many(count: int) -> str:
    now, lines = (
        200_000,
        ["[    0.000000] Linux version 6.1.0 (gcc) #1", "[    0.100000] clocksource: Switched to clocksource tsc"],
    )
    for n in range(count):
        us = 20 + n * 7919 % 1000
        lines.append(f"[{now / 1e6:12.6f}] calling  item_{n}_init+0x0/0x10 @ 1")
        now += us
        lines.append(f"[{now / 1e6:12.6f}] initcall item_{n}_init+0x0/0x10 returned 0 after {us} usecs")
        now += 10
    return "\n".join([*lines, f"[{now / 1e6:12.6f}] Run /sbin/init as init process"]) + "\n"


RANGE = "document.getElementById('gantt').dataset.to - document.getElementById('gantt').dataset.from"
CHOSEN = "document.getElementById('gantt').dataset.chosen"
HITS = "document.getElementById('gantt').dataset.hits"


def test_zoom_search_and_links(tmp_path: Path) -> None:
    with opened(written(tmp_path, analyze([DATA / "grab-boot-data.txt"]))) as found:
        page = found.page
        whole = int(chart(page, "to")) - int(chart(page, "from"))
        page.click("#zoom-in")
        until(page, f"{RANGE} < {whole * 0.6}")
        page.focus("#gantt")
        page.keyboard.press("+")
        until(page, f"{RANGE} < {whole * 0.3}")
        page.click("#zoom-all")
        until(page, f"{RANGE} == {whole}")

        page.fill("#find", "serial")
        until(page, f"{HITS} > 0")
        assert "found" in page.inner_text("#span")
        page.fill("#find", "no such thing")
        until(page, f"{HITS} == '0'")
        page.fill("#find", "")

        # From the table to the bar, which is then in the middle of the chart.
        page.get_by_role("button", name="pty_init", exact=True).click()
        until(page, f"{CHOSEN} == 'pty_init'")
        start, end = int(chart(page, "from")), int(chart(page, "to"))
        assert start < 419_175  # where it begins
        assert end > 600_532  # and ends
        assert end - start < whole / 2

        # From the bar to the table.
        box = page.locator("#gantt").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 30)
        until(page, "document.querySelector('#spots input').value == 'pty_init'")
        assert "pty_init" in page.locator("#spots tbody tr").first.inner_text()

        # From the icicle to the bar: its widest box is the longest call.
        page.locator("#icicle").click(position={"x": 30, "y": 28})
        until(page, f"{CHOSEN} == 'deferred_probe_initcall'")
        clean(found)


@pytest.mark.parametrize("width", [1200, 400])
def test_the_lines_of_the_kernel_are_searched_and_sorted(tmp_path: Path, width: int) -> None:
    with opened(written(tmp_path, analyze([DATA / "microvm-probes.txt"])), width=width) as found:
        page = found.page
        assert page.evaluate("document.documentElement.scrollWidth") == width
        rows = page.locator("#kernel-lines tbody tr")
        assert rows.count() == 13
        if width > 640:  # a narrow page has no heads
            page.locator("#kernel-lines th button", has_text="Option").click()
            until(page, "document.querySelector('#kernel-lines tbody').innerText.includes('Bridge')")
            assert "BRIDGE_NETFILTER" in rows.first.inner_text()
            assert "Run /init" in rows.last.inner_text()  # what has no option comes last
        page.fill("#kernel-lines input", "md_autodetect")
        until(page, "document.querySelectorAll('#kernel-lines tbody tr').length == 3")
        command = page.locator("#unused td", has_text="--try BRIDGE_NETFILTER=n").bounding_box()
        assert command is not None
        assert command["x"] + command["width"] <= width  # it is read without moving the table
        clean(found)


def test_dark_and_light(tmp_path: Path) -> None:
    colours = []
    for dark in (False, True):
        with opened(written(tmp_path, analyze([DATA / "bootchart"])), dark=dark) as found:
            colours.append(found.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert len(found.page.locator("#gantt").screenshot()) > 2000
            clean(found)
    assert colours[0] != colours[1]


def test_five_thousand_items_in_two_seconds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(many(5000))
    path = written(tmp_path, analyze([log]))
    took_s = []
    for _ in range(3):  # what else the host does only adds to it
        with opened(path) as found:
            page = found.page
            assert chart(page, "bars") == "5002"  # and two silences
            load_ms = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
            started = time.monotonic()
            page.fill("#find", "item_4999")
            until(page, f"{HITS} == '1'")
            took_s.append(load_ms / 1000 + time.monotonic() - started)
            clean(found)
    assert min(took_s) < 2.0, took_s


def test_the_comparison_page(tmp_path: Path) -> None:
    timeline = analyze([DATA / "grab-boot-data.txt"])
    path = tmp_path / "compare.html"
    path.write_text(compare_page(compare_boots([timeline], [timeline], ("one", "two"))))
    with opened(path) as found:
        assert found.page.locator("#items tbody tr").count() > 10
        found.page.fill("#items input", "pty_init")
        assert found.page.locator("#items tbody tr").count() == 1
        clean(found)
