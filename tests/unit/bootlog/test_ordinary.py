# SPDX-License-Identifier: Apache-2.0
"""Ordinary logs: no initcall_debug, from boards, servers, journals, mails and the tools of user space."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bootlog.reading import DATA, codes, timeline_of, times, unit

from vmtailor.analysis.timeline.analyze import analyze
from vmtailor.model.boots.timeline import Timeline

CORPUS = DATA / "corpus"


def said(timeline: Timeline, code: str) -> str:
    """The text of its one warning of that code."""
    (text,) = [w.text for w in timeline.warnings if w.code == code]
    return text


def test_the_legend_of_a_drawing_is_no_unit() -> None:
    timeline = analyze([CORPUS / "plot-pi4kodi.svg"])
    names = {u.name for u in timeline.units}
    assert not names & {"Activating", "Active", "Deactivating", "Loading unit files", "Generators"}
    assert "systemd-update-utmp-runlevel.service" in names
    # Title: "… (Linux 4.19.118-v7l+ #1311 SMP …) arm " with nothing behind; "graphical.target reached after 6.562s".
    assert (timeline.kernel.version, timeline.kernel.arch, timeline.kernel.hypervisor) == (
        "4.19.118-v7l+",
        "arm",
        None,
    )
    assert times(timeline) == {
        "kernel": (0, 2_637_000),
        "userspace": (2_637_000, 9_242_000),
        "ready": (9_199_000, 9_199_000),
    }
