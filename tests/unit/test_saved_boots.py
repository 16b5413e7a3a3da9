# SPDX-License-Identifier: Apache-2.0
"""What `boot` saved can be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.fakes.boot_data import series_boot

from vmtailor.analysis.comparison.sides import load_side, saved_boots
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.files import records
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.series import BootSeries, Variant
from vmtailor.model.boots.workload import ReadyBy, ReadySignal

LOG = "[    0.000000] Linux version 6.12.1 (x)\n[    1.000000] Run /sbin/init as init process\n"


def test_folders_variants_and_single_boots(tmp_path: Path) -> None:
    boots = []
    for name, number, outcome in (("base", 1, "ready"), ("base", 2, "timeout"), ("small", 1, "ready")):
        boots.append(series_boot(name, number, Outcome(outcome)))
        (tmp_path / f"{name}-{number}").mkdir()
        (tmp_path / f"{name}-{number}" / "console.log").write_text(LOG)
        (tmp_path / f"{name}-{number}" / "console.times.log").write_text(LOG)
    variants = tuple(Variant(name, USUAL, "") for name in ("base", "small"))
    ready = ReadySignal(ReadyBy.LOGIN)
    records.save(BootSeries("1", "vm", ready, 1.0, variants, tuple(boots)), tmp_path / "boots.json")
    assert saved_boots(tmp_path) == [[tmp_path / "base-1" / "console.log"]]
    assert saved_boots(tmp_path / "small") == [[tmp_path / "small-1" / "console.log"]]
    assert saved_boots(tmp_path / "base-1") == [[tmp_path / "base-1" / "console.log"]]
    assert saved_boots(tmp_path / "base-1" / "console.log") == []
    assert [t.kernel.version for t in load_side([tmp_path / "small"]).timelines] == ["6.12.1"]


def test_a_record_leads_to_no_other_folder(tmp_path: Path) -> None:
    """It may be a stranger's."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "console.log").write_text(LOG)
    theirs = tmp_path / "theirs"
    (theirs / "link-1").mkdir(parents=True)
    (theirs / "link-1" / "console.log").symlink_to(mine / "console.log")
    boots = [replace(series_boot("base", n, Outcome.READY), folder=f) for n, f in ((1, "../mine"), (2, str(mine)))]
    boots.append(series_boot("link", 1, Outcome.READY))
    variants = tuple(Variant(name, USUAL, "") for name in ("base", "link"))
    record = BootSeries("1", "vm", ReadySignal(ReadyBy.LOGIN), 1.0, variants, tuple(boots))
    records.save(record, theirs / "boots.json")
    assert saved_boots(theirs) == saved_boots(theirs / "link") == []
    assert load_side([theirs]).timelines == []
