# SPDX-License-Identifier: Apache-2.0
"""Clocks that go back, jump or start late: what passed is told from what was only written."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import codes, timeline_of, times, unit

from vmtailor.analysis.bootlog import clock_steps
from vmtailor.model.boots.timeline import Timeline


def said(timeline: Timeline, code: str) -> list[str]:
    return [w.text for w in timeline.warnings if w.code == code]


def longest(timeline: Timeline) -> int:
    return max((gap.end_us - gap.start_us for gap in timeline.gaps if gap.silent), default=0)


BRINGUP = (
    "[    0.000000] Linux version 5.10.0-21-cloud-amd64 (gcc) #1 SMP\n"
    "[    0.309824] smp: Bringing up secondary CPUs ...\n"
    "[    0.310585] x86: Booting SMP configuration:\n"
    "[    0.311211] .... node  #0, CPUs:      #1\n"
    "[    0.011346] kvm-clock: cpu 1, msr 1ac801041, secondary cpu clock\n"
    "[    0.312088] MMIO Stale Data CPU bug present and SMT on\n"
    "[    0.313817] smp: Brought up 1 node, 2 CPUs\n"
    "[    0.314377] smpboot: Max logical packages: 1\n"
)


def test_another_processors_stamp_begins_no_silence(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, BRINGUP + "[    0.878387] Run /init as init process\n")
    (bringup,) = [g for g in timeline.gaps if g.kind == "smp-bringup" and not g.silent]
    assert (bringup.start_us, bringup.end_us) == (309_824, 313_817)
    assert not [g for g in timeline.gaps if g.start_us < 309_000 < g.end_us and g.start_us > 0]
    assert "earlier stamp" in said(timeline, "clock-backwards")[0] and "several-boots" not in codes(timeline)


def test_many_processors_and_late_lines_begin_none_either(tmp_path: Path) -> None:
    """Xen: each processor's first line has the clock of its own start; drivers' lines come out of order later."""
    log = "[    0.000000] Linux version 4.14.200 (gcc) #1 SMP\n[    0.050000] smp: Bringing up secondary CPUs ...\n"
    for cpu in range(1, 4):
        log += f"[    0.0{50 + cpu}000]  #{cpu}\n[    0.004000] Disabled fast string operations\n"
    log += "[    0.060000] smp: Brought up 1 node, 4 CPUs\n[    1.500000] Run /init as init process\n"
    log += "[    1.499000] usb 1-1: Product: x\n[    1.501000] hook\n[    1.502000] hook\n"
    timeline = timeline_of(tmp_path, log)
    spans = sorted((g.start_us, g.end_us) for g in timeline.gaps if g.silent)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))
    assert not [span for span in spans if span[1] - span[0] > 40_000 and span[0] >= 50_000 and span[1] <= 60_000]


LATE = (
    "[    0.000000] Linux version 4.4.0-210-generic (gcc) #242 SMP\n"
    "[    0.000000] kvm-clock: using sched offset of 4186004831 cycles\n"
    "[    0.000000] console [ttyS0] enabled\n"
    "[    0.000000] tsc: Detected 1799.997 MHz processor\n"
    "[   36.205086] Calibrating delay loop (skipped) preset value.. 3599.99 BogoMIPS (lpj=7199988)\n"
    "[   36.487880] pid_max: default: 32768 minimum: 301\n"
    "[   82.309505] Freeing unused kernel memory: 1492K\n"
)


def test_a_clock_that_is_set_while_the_kernel_begins_moves_the_origin(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, LATE)
    assert timeline.kernel_us == 82_309_505 - 36_205_086
    assert not [g for g in timeline.gaps if g.start_us < 36_205_086 or g.kind == "delay-loop"]
    assert "36.205086 s" in said(timeline, "clock-starts-late")[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DMI: Microsoft Corporation Virtual Machine", "Run /init as init process"),
        ("Memory: 240M/256M available", "clocksource: Switched to clocksource tsc"),
        ("Console: colour dummy device 80x25", "printk: console [ttyAMA0] enabled"),
    ],
)
def test_a_silence_at_the_start_is_no_late_clock(tmp_path: Path, before: str, after: str) -> None:
    log = f"[    0.000000] Linux version 6.1.0 (gcc)\n[    0.000000] {before}\n[    1.266132] {after}\n"
    timeline = timeline_of(tmp_path, log + "[    3.000000] Run /init as init process\n")
    assert times(timeline)["kernel"][0] == 0 and longest(timeline) >= 1_266_000


def test_a_hosts_uptime_in_a_guests_stamps_is_not_its_boot(tmp_path: Path) -> None:
    """The stamps count since the host was started, 17 days ago; systemd counts from the guest's start."""
    log = (
        "[1514210.100000] Linux version 4.15.0 (gcc) #1\n[1514211.600000] Run /sbin/init as init process\n"
        "[1514213.000000] systemd[1]: Starting Foo...\n[1514214.000000] systemd[1]: Started Foo.\n"
        "[1514215.400000] systemd[1]: Startup finished in 1.500s (kernel) + 3.735s (userspace) = 5.235s.\n"
        "[1514216.498000] host login: \n"
    )
    timeline = timeline_of(tmp_path, log)
    assert timeline.total_us == 5_235_000 and timeline.shown_us is not None and timeline.shown_us < 7_000_000
    assert (unit(timeline, "Foo").start_us, unit(timeline, "Foo").duration_us) == (2_835_000, 1_000_000)
    assert all(spot.share_total is None or spot.share_total <= 1 for spot in timeline.hotspots)
    assert "1514210.165 s" in said(timeline, "clock-starts-late")[0]
    dmesg = "".join(line + "\n" for line in log.splitlines() if "Startup" not in line and "login" not in line)
    beside = timeline_of(tmp_path, dmesg, "Startup finished in 1.500s (kernel) + 3.735s (userspace) = 5.235s\n")
    assert beside.total_us == 5_235_000 and unit(beside, "Foo").start_us == 2_900_000


def test_a_kernels_clock_that_is_set_back_counts_on(tmp_path: Path) -> None:
    log = "[    0.000000] Linux version 5.4.0 (gcc) #1\n[    0.500000] a\n[    6.000000] b\n"
    log += "".join(f"[    {2 + n / 10:.6f}] step {n}\n" for n in range(12))
    timeline = timeline_of(tmp_path, log + "[    3.500000] Run /sbin/init as init process\n[    5.500000] x login: \n")
    # 6.0 s, and from 2.0 to 5.5 s on the clock that goes on.
    assert (timeline.kernel_us, timeline.total_us) == (7_500_000, 9_500_000)
    assert "from 6.000000 s to 2.000000 s" in said(timeline, "clock-backwards")[0]
    assert "several-boots" not in codes(timeline)


def test_a_trace_that_is_printed_late_sets_no_clock_back(tmp_path: Path) -> None:
    """An Oops, with a line of another processor in it: all of its lines have the moment of the first."""
    trace = [f"[   29.608372] R{n:02}: 0000000000000000 R{n + 1:02}: 0000000000000000\n" for n in range(40)]
    log = "[    0.000000] Linux version 5.4.0 (gcc) #1 SMP\n" + "".join(trace[:20])
    log += "[   31.244487] usb 1-2.4: new high-speed USB device number 5 using ehci-pci\n" + "".join(trace[20:])
    timeline = timeline_of(tmp_path, log + "[   31.300000] a line\n[   40.000000] Run /init as init process\n")
    assert timeline.kernel_us == 40_000_000
    assert [text.partition(" an ")[0] for text in said(timeline, "clock-backwards")] == ["20 lines have"]
    assert not [g for g in timeline.gaps if g.start_us == 29_608_372 and g.end_us == 31_300_000]


STEPPED = (
    "-- Logs begin at Thu 2018-11-29 18:10:06 CET, end at Thu 2018-11-29 18:17:08 CET. --\n"
    "Nov 29 18:10:06 host systemd-journal[205]: Journal started\n"
    "Nov 29 18:10:08 host systemd[1]: Starting Armbian ZRAM config...\n"
    "Nov 29 18:10:11 host systemd[1]: Started Armbian ZRAM config.\n"
    "Nov 29 18:10:27 host ap6212-bluetooth[841]: bcm43xx_init\n"
    "Nov 29 18:13:52 host systemd[1110]: Time has been changed\n"
    "-- The system clock has been changed to REALTIME microseconds after January 1st, 1970.\n"
    "Nov 29 18:14:16 host systemd[1]: Failed to start LSB: Patch firmware for ap6212 adapter.\n"
    "Nov 29 18:14:17 host systemd[1]: Startup finished in 3.168s (kernel) + 53.881s (userspace) = 57.050s.\n"
)


def test_a_journal_whose_clock_is_set_has_no_silence_there(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, STEPPED)
    assert timeline.total_us == 57_050_000
    assert longest(timeline) == 24_000_000  # behind the step, which itself is none
    assert all((spot.share_total or 0) <= 1 for spot in timeline.hotspots)
    # 18:14:17 is at 57.05 s, and 205 s are the step's: 18:10:08 is at 13.05 s.
    assert unit(timeline, "Armbian ZRAM config").start_us == 13_050_000
    assert said(timeline, "clock-jumps") == [
        "the log's clock is set forward by 205.000 s after 'bcm43xx_init' ('Time has been changed'): times count on "
        "without that"
    ]


def test_a_board_without_a_clock_of_its_own(tmp_path: Path) -> None:
    """fake-hwclock, then the time of the last shutdown, then a time server: dates without a year, and with one."""
    short = (
        "Feb 14 11:12:02 pi kernel: Linux version 5.10.17-v7l+ (gcc) #1403 SMP\n"
        "Feb 14 11:12:02 pi systemd-journald[113]: Journal started\n"
        "Feb 14 11:12:03 pi systemd[1]: Starting Raise network interfaces...\n"
        "Feb 14 11:12:05 pi systemd-timesyncd[281]: System clock time unset or jumped backwards, restoring from "
        "recorded timestamp: Tue 2020-09-08 18:54:19 CEST\n"
        "Sep 08 18:54:19 pi systemd[1]: Started Network Time Synchronization.\n"
        "Sep 08 18:54:22 pi systemd[1]: Started Raise network interfaces.\n"
        "Sep 08 18:54:27 pi systemd[1]: Startup finished in 3.012s (kernel) + 14.331s (userspace) = 17.343s.\n"
        "Sep 08 20:59:35 pi systemd-timesyncd[281]: Initial synchronization to time server 192.0.2.1:123 (ntp).\n"
        "Sep 08 20:59:36 pi systemd[1]: Starting Daily apt download activities...\n"
        "Sep 08 20:59:42 pi systemd[1]: Started Daily apt download activities.\n"
    )
    timeline = timeline_of(tmp_path, short)
    net = unit(timeline, "Raise network interfaces")
    assert (net.start_us, net.duration_us, timeline.total_us) == (7_343_000, 5_000_000, 17_343_000)
    assert len(said(timeline, "clock-jumps")) == 2 and "another day" in said(timeline, "clock-jumps")[0]
    assert not [spot for spot in timeline.hotspots if "apt" in spot.name]  # it starts when the boot is over
    iso = (
        "1970-01-01T00:00:05+0000 board kernel: Linux version 6.1.55 (gcc) #1 SMP PREEMPT\n"
        "1970-01-01T00:00:06+0000 board systemd-journald[120]: Journal started\n"
        "1970-01-01T00:00:07+0000 board systemd[1]: Starting Load/Save OS Random Seed...\n"
        "2022-04-28T17:42:30+0000 board systemd[1]: System time before build time, advancing clock.\n"
        "2022-04-28T17:42:36+0000 board systemd[1]: Finished Load/Save OS Random Seed.\n"
        "2022-04-28T17:42:38+0000 board systemd[1]: Startup finished in 2.210s (kernel) + 12.035s (userspace) = "
        "14.245s.\n"
    )
    board = timeline_of(tmp_path, iso)
    seed = unit(board, "Load/Save OS Random Seed")
    assert (seed.start_us, seed.duration_us, board.total_us) == (6_245_000, 6_000_000, 14_245_000)


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    log = (
        "Mar 03 10:00:00.000100 vm kernel: Linux version 5.14.0 (gcc) #1 SMP\n"
        "Mar 03 10:00:00.300000 vm systemd-journald[200]: Journal started\n"
        "Mar 03 10:00:03.000000 vm systemd[1]: Starting Slow thing...\n"
        "Mar 03 10:00:08.000000 vm chronyd[700]: System clock wrong by -3600.512345 seconds\n"
        "Mar 03 09:00:07.500000 vm chronyd[700]: System clock was stepped by -3600.512345 seconds\n"
        "Mar 03 09:00:09.000000 vm systemd[1]: Finished Slow thing.\n"
        "Mar 03 09:00:09.200000 vm systemd[1]: Startup finished in 900ms (kernel) + 9.8s (userspace) = 10.7s.\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert unit(timeline, "Slow thing").duration_us == 6_500_000
    assert len(said(timeline, "clock-jumps")) == 1 and "set back by 3600.500 s" in said(timeline, "clock-jumps")[0]


def test_the_kernels_own_stamps_tell_a_clock_that_was_set_without_a_word(tmp_path: Path) -> None:
    log = (
        "2026-01-01T00:00:03+00:00 host kernel: [    0.000000] Linux version 4.19.0 (gcc) #1\n"
        "2026-01-01T00:00:03+00:00 host kernel: [    1.500000] Run /sbin/init as init process\n"
        "2026-01-01T00:00:04+00:00 host systemd[1]: Starting Foo...\n"
        "2026-01-01T00:00:06+00:00 host kernel: [    4.600000] eth0: link up\n"
        "2026-01-01T00:23:14+00:00 host kernel: [    5.700000] a driver\n"
        "2026-01-01T00:23:15+00:00 host systemd[1]: Started Foo.\n"
    )
    timeline = timeline_of(tmp_path, log)
    foo = unit(timeline, "Foo")
    assert foo.start_us is not None and foo.duration_us is not None
    assert abs(foo.duration_us - 4_000_000) < 1_100_000 and longest(timeline) < 5_000_000
    assert "1386.900 s after 'eth0: link up'" in said(timeline, "clock-jumps")[0]


def test_a_long_silence_without_a_word_of_a_clock_stays_one(tmp_path: Path) -> None:
    log = (
        "Nov 29 18:10:06 host systemd-journald[205]: Journal started\n"
        "Nov 29 18:10:08 host systemd[1]: Starting A start job...\n"
        "Nov 29 18:11:38 host systemd[1]: Timed out waiting for device /dev/sdb1.\n"
        "Nov 29 18:11:40 host systemd[1]: Startup finished in 3.000s (kernel) + 97.000s (userspace) = 1min 40.000s.\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert "clock-jumps" not in codes(timeline) and longest(timeline) == 90_000_000


@pytest.mark.parametrize(
    ("message", "us"),
    [
        (b"System clock was stepped by 205.125000 seconds", 205_125_000),
        (b"step time server 192.0.2.1 offset -3599.5 sec", -3_599_500_000),
        (b"time set +12.5 s", 12_500_000),
        (b"ntpd: setting time to 2018-11-29 12:00:00.1 (offset +5.250000s)", 5_250_000),
        (b"set local clock to Mon Nov 29 10:00:00 UTC 2021 (offset 8.000000s)", 8_000_000),
        (b"Clock change detected. Triggering calendar timer.", None),
        (b"Initial clock synchronization to Wed 2023-11-29 09:10:11.123456 UTC.", None),
    ],
)
def test_programs_say_that_they_set_the_clock(message: bytes, us: int | None) -> None:
    assert clock_steps.is_set_there(message) and clock_steps.said_us(message) == us


@pytest.mark.parametrize(
    "message", [b"Started Network Time Synchronization.", b"Reached target System Time Set.", b"clocksource: tsc"]
)
def test_what_only_speaks_of_time_sets_nothing(message: bytes) -> None:
    assert not clock_steps.is_set_there(message)


@pytest.mark.parametrize(
    ("before", "date", "follows"),
    [
        (b"Nov 29", b"Nov 29", None),
        (b"Nov 29", b"Nov 30", True),
        (b"Nov 30", b"Dec  1", True),
        (b"Jan  1", b"Nov 29", False),
        (b"Feb 14", b"Feb 20", False),
        (b"2018-12-31", b"2019-01-01", True),
        (b"1970-01-01", b"2019-01-04", False),
        ("фев 14".encode(), "сен 08".encode(), False),
    ],
)
def test_a_boot_lasts_no_days(before: bytes, date: bytes, follows: bool | None) -> None:
    assert clock_steps.follows(before, date) is follows
