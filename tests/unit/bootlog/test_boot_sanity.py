# SPDX-License-Identifier: Apache-2.0
"""Figures of one boot that exclude each other are warned of and not shown; reasons say what was looked for."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.unit.bootlog.reading import timeline_of, times

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.silences import gap_kinds
from vmtailor.analysis.timeline import sanity
from vmtailor.analysis.timeline.hotspots import rank
from vmtailor.model.boots.timeline import GapSpan, PhaseSpan, Timeline, UnitSpan
from vmtailor.model.boots.timeline import Path as BootPath


def contradictions(timeline: Timeline) -> list[str]:
    return [w.text for w in timeline.warnings if w.code == "contradiction"]


HEAD = "[    0.000000] Linux version 6.1.0 (gcc) #1 SMP\n[    1.500000] Run /sbin/init as init process\n"
FINISHED = "[    5.240000] systemd[1]: Startup finished in 1.500s (kernel) + 3.735s (userspace) = 5.235s.\n"


def test_a_login_prompt_of_much_later_is_not_the_boots(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, HEAD + FINISHED + "[1514216.498000] host login: \n")
    assert timeline.total_us == 5_235_000 and timeline.shown_us == 5_235_000 and "ready" not in times(timeline)
    (text,) = contradictions(timeline)
    assert "1514216.498 s" in text and "5.235 s" in text
    soon = timeline_of(tmp_path, HEAD + FINISHED + "[    6.900000] host login: \n")
    assert times(soon)["ready"] == (6_900_000, 6_900_000) and contradictions(soon) == []


def test_units_that_would_start_before_the_boot_have_no_start(tmp_path: Path) -> None:
    observed = Observed("x", units=[
        UnitSpan("a.service", -189_000_000, -188_000_000, 1_000_000, None, "time-stamps"),
        UnitSpan("b.service", 2_000_000, 3_000_000, 1_000_000, None, "time-stamps"),
    ])  # fmt: skip
    sanity.checked_units(observed, [PhaseSpan("kernel", 0, 1_500_000, "x")])
    assert [(u.name, u.start_us, u.duration_us) for u in observed.units] == [
        ("a.service", None, 1_000_000), ("b.service", 2_000_000, 1_000_000),
    ]  # fmt: skip
    assert "-189.000 s" in observed.warnings[0].text and "0.000 s" in observed.warnings[0].text


def test_a_phase_does_not_end_before_it_begins() -> None:
    observed = Observed("x")
    (phase,) = sanity.checked_phases(observed, [PhaseSpan("initrd", 5_000_000, 3_000_000, "x")])
    assert phase.end_us is None
    assert "3.000 s" in observed.warnings[0].text and "5.000 s" in observed.warnings[0].text


def test_ready_lies_not_before_user_space() -> None:
    observed = Observed("x")
    phases = [PhaseSpan("userspace", 5_000_000, None, "x"), PhaseSpan("ready", 3_000_000, 3_000_000, "a mark")]
    assert [p.name for p in sanity.checked_phases(observed, phases)] == ["userspace"]
    assert "3.000 s" in observed.warnings[0].text and "5.000 s" in observed.warnings[0].text


def test_silences_that_overlap_are_on_no_path() -> None:
    observed = Observed("x")
    gaps = [
        GapSpan(100_000, 900_000, "a", "b", "kernel", path=BootPath.CRITICAL, own_us=800_000),
        GapSpan(300_000, 950_000, "c", "d", "kernel", path=BootPath.CRITICAL, own_us=650_000),
    ]
    kept = sanity.checked_gaps(observed, [PhaseSpan("kernel", 0, 1_000_000, "x")], gaps)
    assert {gap.path for gap in kept} == {"unknown"}
    assert "1.450 s" in observed.warnings[0].text and "1.000 s" in observed.warnings[0].text
    assert sanity.checked_gaps(observed, [PhaseSpan("kernel", 0, 1_000_000, "x")], gaps[:1]) == gaps[:1]


def test_no_hot_spot_is_longer_than_the_boot(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, HEAD + FINISHED)
    (gap, *_) = timeline.gaps
    wrong = msgspec.structs.replace(gap, start_us=0, end_us=205_000_000, own_us=205_000_000, phase="userspace")
    ranked = rank(msgspec.structs.replace(timeline, gaps=(wrong,)))
    assert ranked.hotspots == ()
    assert "205.000 s" in contradictions(ranked)[0] and "5.235 s" in contradictions(ranked)[0]


def test_a_silence_that_outlasts_the_kernel_counts_in_it_as_far_as_it_goes(tmp_path: Path) -> None:
    """Stamps of two processors: init is run before the silence of the other's lines ends."""
    log = (
        "[    0.000000] Linux version 6.10.0 (gcc) #1\n[    0.009194] ACPI: HPET\n[    5.817961] elan_i2c: x\n"
        "[    5.542537] Freeing unused kernel image (initmem) memory: 2096K\n[    5.561832] Run /init as init process\n"
        "[    6.100000] more\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert timeline.kernel_us == 5_561_832
    assert all((spot.share_kernel or 0) <= 1 for spot in timeline.hotspots) and timeline.hotspots[0].share_kernel


def plot(*rows: tuple[str, int, int]) -> str:
    return json.dumps([
        {"name": name, "activating": at, "activated": at + took, "time": took, "deactivating": 0, "deactivated": 0}
        for name, at, took in rows
    ])  # fmt: skip


UNITS = [(f"u{n}.service", 3_000_000 + n * 500_000, 500_000) for n in range(10)]  # up to 8.0 s
TIME = "Startup finished in 2.000s (kernel) + 58.000s (userspace) = 1min\n"


def test_stretches_in_which_no_unit_starts_are_hot_spots(tmp_path: Path) -> None:
    rows = [
        *UNITS,
        ("session-1.scope", 9_000_000, 0),
        ("network-online.target", 38_221_820, 0),
        ("multi-user.target", 38_300_000, 0),
    ]
    timeline = timeline_of(tmp_path, plot(*rows), TIME)
    spot = timeline.hotspots[0]
    assert (spot.name, spot.start_us, spot.exclusive_us, spot.path) == (
        "no unit was starting, then network-online.target", 8_000_000, 30_221_820, "critical",
    )  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        [
            ("wait-online.service", 8_000_000, 30_000_000),
            ("network-online.target", 38_100_000, 0),
        ],  # a unit is starting
        [("late.timer", 90_000_000, 0)],  # the boot is over
        [("next.service", 8_900_000, 1_000_000)],  # too short
    ],
)
def test_what_is_no_hole_between_units(tmp_path: Path, more: list[tuple[str, int, int]]) -> None:
    timeline = timeline_of(tmp_path, plot(*UNITS, *more), TIME)
    assert not [gap for gap in timeline.gaps if gap.kind == "no-unit-starting"]


#: Messages with which something begins, or which end nothing: the silence before them is not theirs.
BEGINNINGS = [
    'audit: type=1400 audit(1722142715.625:2): apparmor="STATUS" operation="profile_load" profile="unconfined"',
    "Calibrating delay loop (skipped) preset value.. 3599.99 BogoMIPS (lpj=7199988)",
    "Calibrating delay loop... 48.00 BogoMIPS (lpj=240000)",
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "Freeing unused kernel memory: 1492K",
    "On node 0 totalpages: 131072",
    "IP-Config: Entered.",
    "systemd-fsck[105]: fsck from util-linux 2.36",
    "Testing tracer nop: ",
    "waiting for device /dev/sda1 to appear",
    "BTRFS info (device sda1): using crc32c (crc32c-intel) checksum algorithm",
]


@pytest.mark.parametrize("message", BEGINNINGS)
def test_a_silence_belongs_to_what_comes_before_it(message: str) -> None:
    assert next((kind.id for kind in gap_kinds() if kind.fits("anything at all", message)), "") == ""


def test_profiles_that_are_loaded_one_by_one_are_a_policy(tmp_path: Path) -> None:
    profile = 'audit: type=1400 audit(1.0:2): apparmor="STATUS" operation="profile_load" name="x"'
    assert next(kind.id for kind in gap_kinds() if kind.fits(profile, profile)) == "policy-load"
    assert not [kind for kind in gap_kinds() if kind.fits(profile, "vmbr0: port 1(eno1) entered blocking state")]


@pytest.mark.parametrize("end", ["XFS (sda2): Ending clean mount", "XFS (dm-0): Ending recovery (logdev: internal)"])
def test_an_xfs_that_is_mounted_is_not_checked(end: str) -> None:
    found = next(kind.id for kind in gap_kinds() if kind.fits("XFS (sda2): Mounting V5 Filesystem", end))
    assert found == "mount-root"


def test_a_reason_names_what_was_looked_for(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, "U-Boot SPL 2023.01\n[   0.114] DDR\n<7>%0.5 an unknown shape of line\n")
    (text,) = [w.text for w in timeline.warnings if w.code == "phase-open"]
    assert "'Linux version'" in text and "3 lines were read" in text
    open_end = timeline_of(tmp_path, "[    0.000000] Linux version 6.1.0 (gcc)\n[    1.000000] x\n")
    (text,) = [w.text for w in open_end.warnings if w.code == "kernel-end-unknown"]
    assert "'Run … as init process'" in text and "'Freeing unused kernel'" in text


def test_a_login_prompt_without_a_stamp_is_said_to_come_after_the_last_that_has_one(tmp_path: Path) -> None:
    log = HEAD + "[    4.200491] random: dd: uninitialized urandom read\nWelcome to Buildroot\nbuildroot login:\n"
    timeline = timeline_of(tmp_path, log + "[   20.000000] eth0: link up\n")
    assert "ready" not in times(timeline) and timeline.total_us is None
    (text,) = [w.text for w in timeline.warnings if w.code == "phase-open"]
    assert text.endswith("a login prompt without a stamp comes after 4.200491 s")


def test_the_journal_of_a_container_has_user_space_alone(tmp_path: Path) -> None:
    log = (
        "Nov 29 10:00:00 ct systemd-journald[40]: Journal started\n"
        "Nov 29 10:00:01 ct systemd[1]: Starting Network Service...\n"
        "Nov 29 10:00:04 ct systemd[1]: Started Network Service.\n"
        "Nov 29 10:00:05 ct systemd[210]: Startup finished in 97ms.\n"
        "Nov 29 10:00:05 ct systemd[1]: Startup finished in 5.891s.\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert times(timeline) == {"userspace": (0, 5_891_000), "ready": (5_891_000, 5_891_000)}
    assert timeline.total_us == 5_891_000 and timeline.kernel_us is None
