# SPDX-License-Identifier: Apache-2.0
"""Excerpts of two real boots. Every expected figure was worked out from the files by other means, as the comments
say."""

from __future__ import annotations

import re

from tests.unit.bootlog.reading import DATA, call, codes, probe, times

from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import DurationSource

GRAB = DATA / "grab-boot-data.txt"
CHART = DATA / "bootchart"


def test_grab_boot_data_figures() -> None:
    timeline = analyze([GRAB])
    assert timeline.kernel.version == "6.13.9"  # the "Linux version" line
    assert timeline.kernel.arch == "arm"  # the title of its configuration
    assert timeline.kernel.command_line == "console=ttyS0,115200n8 quiet initcall_debug log_buf_len=10M"
    assert timeline.kernel.clocksource_switch_us == 272_981
    assert timeline.kernel.tick_us == 10_000  # CONFIG_HZ=100; and 996.14 BogoMIPS x 500000 / 4980736 = 100 Hz
    assert timeline.config["LEGACY_PTYS"] == "y"
    assert "AUDIT" not in timeline.config
    # grep -m1 'Run /init'
    assert times(timeline) == {"kernel": (0, 2_339_546), "initrd": (2_339_546, None)}
    assert timeline.kernel_us == 2_339_546
    assert timeline.total_us is None


def test_grab_boot_data_initcalls() -> None:
    timeline = analyze([GRAB])
    # After the switch, by report: `initcall pty_init … returned 0 after 181334 usecs`; stamps .419175 and .600532.
    pty = call(timeline, "pty_init")
    assert (pty.start_us, pty.duration_us, pty.exclusive_us, pty.reported_us) == (419_175, 181_334, 181_334, 181_334)
    assert pty.stamps_us == 600_532 - 419_175
    # Before the switch, by stamps: .141555 to .142115, while it reported 0.
    early = call(timeline, "exynos_mcpm_init")
    assert (early.duration_us, early.reported_us, early.returned) == (560, 0, -19)
    assert early.duration_source == DurationSource.TIME_STAMPS
    # The switch falls inside this one: .272855 to .272991, reported 64.
    assert call(timeline, "clocksource_done_booting").duration_us == 136
    # 473 initcalls in the whole log; the excerpt holds so many that began at or before .272981, and one that lost its
    # first line:
    text = GRAB.read_text()
    begun = re.findall(r"^\[ +0\.(\d{6})\] calling ", text, re.M)
    assert f": {1 + sum(1 for at in begun if int(at) <= 272_981)} initcalls" in next(
        w.text for w in timeline.warnings if w.code == "tick-quantised"
    )


def test_grab_boot_data_probes() -> None:
    timeline = analyze([GRAB])
    # grep -c 'probe of' and, by return value, grep -c 'returned -\?517'
    text = GRAB.read_text()
    assert len(timeline.probes) == text.count("] probe of ")
    assert sum(p.deferred for p in timeline.probes) == len(re.findall(r"probe of \S+ returned -?517 ", text))
    # 34421 reported, ending at 2.169035; what it contains ended elsewhere (tps65217-pmic reaches over its end).
    pmic = probe(timeline, "0-0024")
    assert (pmic.start_us, pmic.duration_us, pmic.exclusive_us) == (2_169_035 - 34_421, 34_421, 34_421)
    # 2.309542 - 0.152582 = 2.156960 lies inside 0-0024, its end does not: it ran beside.
    beside = probe(timeline, "tps65217-pmic")
    assert (beside.start_us, beside.path) == (2_156_960, "beside")
    # The first try of 44e07000.gpio: 28948 µs for nothing, bound at 1.993465.
    (row,) = [d for d in timeline.deferrals if d.device == "44e07000.gpio"]
    assert (row.times, row.spent_us, row.first_us, row.bound_us) == (1, 28_948, 961_758, 1_993_465)
    # 44e09000.serial, second try: 129079 less its two ports, 66 + 38.
    assert probe(timeline, "44e09000.serial", 2).exclusive_us == 129_079 - 66 - 38
    assert {"probe-before-clocksource", "overlapping-probes", "probes-deferred"} & codes(timeline) >= {
        "overlapping-probes",
        "probes-deferred",
    }


def test_grab_boot_data_advice() -> None:
    advice = {r.id: r for r in analyze([GRAB]).advice}
    assert (advice["legacy-ptys"].saving_us, advice["legacy-ptys"].confidence) == (181_334, "high")
    assert advice["delay-loop"].saving_us == 91_108 - 5936  # from 'Calibrating delay loop' to the next line
    assert "initrd-none" not in advice  # no root= and no disk mounted: the initial RAM disk is its root


def test_bootchart_figures() -> None:
    timeline = analyze([CHART])
    assert timeline.kernel.version == "2.6.27-10-generic"
    assert timeline.kernel.arch == "i686"
    # First and last block: 154 and 2785 hundredths of a second.
    assert times(timeline) == {"userspace": (1_540_000, 27_850_000)}
    assert timeline.total_us == 27_560_000  # as the chart: from the first process, 29, to the last sample, 2785
    by_pid = {p.pid: p for p in timeline.processes}
    # cut -d' ' -f1 | sort -u: nine pids were kept
    assert set(by_pid) == {1, 2, 143, 979, 980, 984, 5158, 6702}
    init = by_pid[1]
    # starttime 29; last block 2785; utime 0 + stime 116
    assert (init.name, init.start_us, init.end_us, init.exclusive_us) == ("init", 290_000, 27_850_000, 1_160_000)
    xorg = by_pid[6702]
    assert (xorg.ppid, xorg.start_us, xorg.end_us, xorg.duration_us) == (6699, 27_780_000, 27_850_000, 70_000)
    assert "collector-late" in codes(timeline)
    # It waited for a disk in its only sample, 7 hundredths after it began; no other was seen to.
    assert [(p.name, p.waiting_us) for p in timeline.processes if p.waiting_us] == [("Xorg", 70_000)]
    assert ("Xorg, waiting for disks", 70_000) in {(h.name, h.exclusive_us) for h in timeline.hotspots}


def test_bootchart_samples() -> None:
    timeline = analyze([CHART])
    # cpu 2 0 117 145 → 7 0 134 162: 5 user, 17 system, 17 idle of 39
    first = timeline.samples[0]
    assert (first.at_us, first.user, first.system, first.waiting) == (
        1_750_000,
        round(5 / 39, 4),
        round(17 / 39, 4),
        0.0,
    )
    # cpu 537 0 628 2904 1420 → 537 0 629 2925 1438: 1 system, 21 idle, 18 waiting of 40
    last = timeline.samples[-1]
    assert (last.user, last.system, last.waiting) == (0.0, round(1 / 40, 4), round(18 / 40, 4))
    # sda sectors read 178354 → 179938 in 0.20 s; 16196 → 16324 ms busy
    assert last.disk_read_bps == round((179_938 - 178_354) * 512 / 0.20)
    assert last.disk_busy == round(0.128 / 0.20, 4)
