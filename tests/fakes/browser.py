# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that opens one page from a file and writes down all that it should not do."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """The page, with its console messages and errors, and every request it made but the one for itself."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def chromium() -> str:
    """The browser's path. A test that needs it fails where it is missing: `make setup-dev` installs it."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "Chromium is not installed: make setup-dev"
    return path


@contextlib.contextmanager
def opened(path: Path, *, width: int = 1280, dark: bool = False) -> Iterator[Opened]:
    """Open a file in a fresh browser and wait until it is loaded."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            page = browser.new_page(
                viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
            )
            found = Opened(page)
            page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
            page.on("request", lambda request: found.requests.append(request.url))
            page.goto(path.as_uri(), wait_until="load", timeout=60_000)
            found.requests.remove(path.as_uri())
            yield found
        finally:
            browser.close()
