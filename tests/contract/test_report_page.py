# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser: quiet, searchable, asking nothing of a network, running nothing of an image."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.browser import opened
from tests.fakes.fit_run_data import HOSTILE, fit_run, hostile_run

from vmtailor.stages.report import write_page

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_page(fit_run(), path)
    return path


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False)])
def test_page_is_quiet_and_fits_the_screen(report: Path, width: int, dark: bool) -> None:
    with opened(report, width=width, dark=dark) as browser:
        assert browser.complaints == [] and browser.requests == []
        assert browser.page.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.page.locator("h1").inner_text().startswith("lighttpd fits in a kernel")
        bars = browser.page.locator("svg.boot")
        assert bars.count() == 3
        drawn = browser.page.evaluate(
            "[...document.querySelectorAll('#boot-1-t')].map(t => t.parentNode.getBoundingClientRect().width)"
        )
        assert drawn[0] > 200


def test_search_chips_and_sorting(report: Path) -> None:
    with opened(report) as browser:
        table = browser.page.locator("#symbol-table")
        rows = table.locator("tbody tr")
        table.get_by_role("searchbox").fill("CONFIG_EPOLL")
        assert rows.count() == 1 and "epoll_create1" in rows.first.inner_text()
        table.get_by_role("searchbox").fill("no such thing")
        assert "Nothing matches" in rows.first.inner_text()
        table.get_by_role("searchbox").fill("")
        table.locator("button.chip.c-repair").click()
        assert rows.count() == 1 and "INOTIFY_USER" in rows.first.inner_text()
        left_out = browser.page.locator("#left-out-table")
        assert "CRYPTO_MANAGER_EXTRA_TESTS" in left_out.locator("tbody tr").first.inner_text()
        left_out.get_by_role("button", name="Symbol", exact=True).click()
        assert "ACPI" in left_out.locator("tbody tr").first.inner_text()
        calls = browser.page.locator("#call-table")
        calls.get_by_role("button", name="sh 1").click()
        assert calls.locator("tbody tr").count() == 1 and "wait4" in calls.inner_text()
        assert browser.complaints == []


def test_tabs_and_theme_by_keyboard(report: Path) -> None:
    with opened(report) as browser:
        page = browser.page
        page.locator("#tab-subsystem").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#panel-initcall").is_visible() and not page.locator("#panel-subsystem").is_visible()
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").click()
        page.locator("#theme").click()
        assert page.locator("#theme").inner_text() == "Theme: dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert browser.complaints == []


@pytest.mark.attack
def test_hostile_names_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    write_page(hostile_run(), path)
    with opened(path) as browser:
        assert browser.complaints == [] and browser.requests == []
        assert browser.page.evaluate("window.hacked === undefined")
        assert browser.page.locator("main img, main script, main iframe").count() == 0
        assert HOSTILE.split("\u2028")[0] in browser.page.locator("#call-table").inner_text()
        browser.page.locator("#left-out-table tbody tr td").nth(1).hover()


@pytest.mark.attack
def test_the_policy_stops_what_escaping_would_have_let_through(report: Path, tmp_path: Path) -> None:
    path = tmp_path / "injected.html"
    injected = '<script>window.hacked=1</script><img src="http://127.0.0.1:9/x" onerror="window.hacked=2"></main>'
    path.write_text(report.read_text().replace("</main>", injected))
    with opened(path) as browser:
        assert browser.page.evaluate("window.hacked === undefined")
        refused = [text for text in browser.complaints if "Content Security Policy" in text]
        assert any("script-src" in text for text in refused)
        assert any("img-src" in text and "127.0.0.1:9" in text for text in refused)


def test_page_prints_unfolded(report: Path) -> None:
    with opened(report) as browser:
        assert len(browser.page.pdf(format="A4")) > 20_000
        browser.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert browser.page.locator("#symbol-table tbody tr").count() == len(fit_run().plan.symbols)
