# SPDX-License-Identifier: Apache-2.0
"""The line that ends a step: a tick where what it was to show is so, and only there."""

from __future__ import annotations

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
