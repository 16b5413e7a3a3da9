# SPDX-License-Identifier: Apache-2.0
"""The line that ends a step: a tick where what it was to show is so, and only there."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from vmtailor.base.progress import step


def test_a_step_that_was_done_and_failed_has_no_tick(capsys: pytest.CaptureFixture[str]) -> None:
    with step("one"):
        pass
    with step("two") as shown:
        shown.fail()
    with pytest.raises(ValueError, match="three"), step("three"):
        raise ValueError("three")
    lines = [line.partition(" (")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["one …", "✓ one", "two …", "✗ two", "three …"]


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("columns", [120, 80, 40])
def test_a_bar_shows_the_elapsed_time_on_every_terminal(
    columns: int, colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = _Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    with step("compiling the kernel") as shown:
        shown.update(420, 1234, "420 of about 1,234 files, about 3 min left")
        end = time.monotonic() + 30
        while "34%" not in screen.getvalue() and time.monotonic() < end:
            time.sleep(0.02)
    uncoloured = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", uncoloured).splitlines()
    bars = [text for line in frames if "compiling" in (text := line.strip("\r")) and "✓" not in text]
    assert bars and all(len(text) <= columns and re.search(r" \d:\d\d:\d\d", text) for text in bars)
    assert any("34%" in text for text in bars)
    if columns >= 80:
        assert any("about 3 min left" in text for text in bars)
