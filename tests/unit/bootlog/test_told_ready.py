# SPDX-License-Identifier: Apache-2.0
"""A boot that ends where its user says: at a message, or when a unit is up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bootlog.reading import DATA

from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.timeline import Timeline

LOG = (
    "[    0.000000] Linux version 6.12.1 (gcc) #1 SMP\n[    0.000000] Kernel command line: quiet\n"
    "[    2.000000] Run /sbin/init as init process\n[    4.000000] systemd[1]: systemd 255 running in system mode\n"
    "[    5.000000] a daemon\n[   25.000000] another daemon\n"
    "[   26.000000] systemd[1]: Started docker.service - Docker Application Container Engine.\n"
    "[   30.000000] systemd[1]: Startup finished in 2.000s (kernel) + 28.000s (userspace) = 30.000s.\n"
    "[   90.000000] late\n"
)


def ended(folder: Path, ready: str | None, text: str = LOG) -> Timeline:
    """The timeline of a log whose boot ends at `ready`."""
    path = folder / "boot.txt"
    path.write_text(text)
    return analyze([path], ready=ready)


@pytest.mark.parametrize(
    ("ready", "end_us"),
    [("another d.emon", 25_000_000), ("docker.service", 26_000_000), ("^late$", 90_000_000), (None, 30_000_000)],
)
def test_the_boot_ends_where_it_is_said(tmp_path: Path, ready: str | None, end_us: int) -> None:
    timeline = ended(tmp_path, ready)
    assert (timeline.total_us, timeline.shown_end_us, timeline.phases[-1].end_us) == (end_us,) * 3
    assert not [warning for warning in timeline.warnings if warning.code == "phase-open"]
    assert [phase.end_us for phase in timeline.phases if phase.name == "userspace"] == [end_us]
    assert ("--ready" in timeline.phases[-1].source) is (ready is not None)


def test_silences_of_more_than_ten_seconds_are_shown_up_to_there(tmp_path: Path) -> None:
    log = LOG.replace(
        "[   30.000000] systemd[1]: Startup finished in 2.000s (kernel) + 28.000s (userspace) = 30.000s.\n", ""
    )
    cut, whole = ended(tmp_path, None, log), ended(tmp_path, "docker.service", log)
    assert (cut.shown_end_us, [gap.before for gap in cut.gaps if gap.start_us >= 5_000_000]) == (5_000_000, [])
    assert (whole.hotspots[0].name, whole.hotspots[0].exclusive_us) == ("after: a daemon", 20_000_000)
    assert whole.shown_end_us == 26_000_000
    assert "phase-open" in {warning.code for warning in cut.warnings}
    assert "phase-open" not in {warning.code for warning in whole.warnings}


def test_what_comes_later_is_no_part_of_it(tmp_path: Path) -> None:
    timeline = ended(tmp_path, "Kernel command line|Run /sbin")
    assert [phase.name for phase in timeline.phases] == ["ready"]
    assert [phase.name for phase in ended(tmp_path, "Run /sbin").phases] == ["kernel", "ready"]


def test_units_of_a_chart_are_named(tmp_path: Path) -> None:
    timeline = analyze([DATA / "corpus" / "plot-pi4kodi.svg"])
    unit = next(unit for unit in timeline.units if unit.name.endswith(".service") and unit.end_us)
    assert analyze([DATA / "corpus" / "plot-pi4kodi.svg"], ready=unit.name).shown_end_us == unit.end_us


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        ("nothing like it", "no message fits"),
        ("ssh.service", "no file says when this unit was up"),
        ("(", "no regular expression"),
        ("x*", "fits every message"),
        ("", "fits every message"),
        ("unstamped words", "have no time"),
    ],
)
def test_what_is_not_there_is_refused_with_the_next_step(tmp_path: Path, ready: str, said: str) -> None:
    with pytest.raises(UserInputError, match=said) as refused:
        ended(tmp_path, ready, LOG + "unstamped words\n")
    assert refused.value.hint
