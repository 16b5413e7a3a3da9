# SPDX-License-Identifier: Apache-2.0
"""The six traps seen in real logs: each with a log that falls into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bootlog.reading import call, codes, probe, timeline_of, times

from vmtailor.model.boots.timeline import DurationSource

VERSION = "[    0.000000] Linux version 6.1.0-9 (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP\n"


@pytest.mark.parametrize("tick", [4000, 9765, 10000])
def test_before_the_clocksource_switch_time_stamps_count(tmp_path: Path, tick: int) -> None:
    log = VERSION + (
        "[    0.100000] calling  early_init+0x0/0x10 @ 1\n"
        f"[    0.103141] initcall early_init+0x0/0x10 returned 0 after {tick} usecs\n"
        "[    0.103200] calling  none_init+0x0/0x10 @ 1\n"
        "[    0.103900] initcall none_init+0x0/0x10 returned 0 after 0 usecs\n"
        "[    0.200000] calling  clocksource_done_booting+0x0/0x10 @ 1\n"
        "[    0.200100] clocksource: Switched to clocksource tsc-early\n"
        "[    0.200150] initcall clocksource_done_booting+0x0/0x10 returned 0 after 60 usecs\n"
        "[    0.300000] calling  late_init+0x0/0x10 @ 1\n"
        "[    0.300500] initcall late_init+0x0/0x10 returned 0 after 480 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    early = call(timeline, "early_init")
    assert (early.duration_us, early.reported_us, early.stamps_us) == (3141, tick, 3141)  # both are shown
    assert early.duration_source == DurationSource.TIME_STAMPS
    assert call(timeline, "none_init").duration_us == 700
    assert call(timeline, "clocksource_done_booting").duration_us == 150  # began with the coarse clock
    late = call(timeline, "late_init")
    assert (late.duration_us, late.duration_source) == (480, DurationSource.REPORTED)
    assert "tick-quantised" in codes(timeline)
    # A "usec" of kernels before 5.18 has 1024 ns: 9765 of them are 10 ms.
    assert timeline.kernel.tick_us == {9765: 9766}.get(tick, tick)
    assert timeline.kernel.clocksource == "tsc-early"
    assert timeline.kernel.clocksource_switch_us == 200_100


def test_ticks_are_seen_without_the_switch_line(tmp_path: Path) -> None:
    early = "".join(
        f"[    0.1{n:02d}000] calling  e{n}_init+0x0/0x10 @ 1\n"
        f"[    0.1{n:02d}700] initcall e{n}_init+0x0/0x10 returned 0 after {4000 if n % 5 == 0 else 0} usecs\n"
        for n in range(12)
    )
    late = (
        "[    0.300000] calling  late_init+0x0/0x10 @ 1\n"
        "[    0.300500] initcall late_init+0x0/0x10 returned 0 after 480 usecs\n"
    )
    timeline = timeline_of(tmp_path, VERSION + early + late)
    assert {c.duration_us for c in timeline.initcalls if c.name.startswith("e")} == {700}
    assert call(timeline, "late_init").duration_us == 480
    assert timeline.kernel.tick_us == 4000


def test_a_fine_first_clock_is_believed(tmp_path: Path) -> None:
    log = VERSION + "".join(
        f"[    0.{100 + n}000] calling  e{n}_init+0x0/0x10 @ 1\n[    0.{100 + n}530] initcall "
        f"e{n}_init+0x0/0x10 returned 0 after {517 + n} usecs\n"
        for n in range(5)
    )
    timeline = timeline_of(tmp_path, log + "[    0.200000] clocksource: Switched to clocksource arch_sys_counter\n")
    assert call(timeline, "e3_init").duration_us == 520
    assert "tick-quantised" not in codes(timeline)


def test_after_the_switch_a_slow_console_does_not_count(tmp_path: Path) -> None:
    lines = [VERSION, "[    0.100000] clocksource: Switched to clocksource tsc\n"]
    now = 200_000
    for n in range(20):
        calling = f"calling  c{n}_init+0x0/0x10 @ 1"
        stamp = f"[    {now / 1e6:.6f}] "
        lines.append(f"{stamp}{calling}\n")
        now += 13 * (len(stamp) + len(calling) + 2) + 40  # 13 µs a character, then 40 µs of work
        done = f"initcall c{n}_init+0x0/0x10 returned 0 after 40 usecs"
        stamp = f"[    {now / 1e6:.6f}] "
        lines.append(f"{stamp}{done}\n")
        now += 13 * (len(stamp) + len(done) + 2)
    timeline = timeline_of(tmp_path, "".join(lines))
    first = call(timeline, "c0_init")
    assert (first.duration_us, first.exclusive_us, first.duration_source) == (40, 40, DurationSource.REPORTED)
    assert first.stamps_us is not None
    assert first.stamps_us > 500
    assert timeline.console is not None
    assert timeline.console.us_per_char is not None
    assert 11 < timeline.console.us_per_char < 15
    assert timeline.console.cost_us is not None
    assert 0.8 < timeline.console.cost_us / (now - 200_000) < 1.2
    assert "console-inflated" in codes(timeline)
    assert "console" in [spot.kind for spot in timeline.hotspots]


def test_printing_costs_the_boot_what_is_printed_until_it_ends(tmp_path: Path) -> None:
    lines = [VERSION, "[    0.100000] clocksource: Switched to clocksource tsc\n"]
    for n in range(20):
        at = 0.2 + n / 100
        calling = f"[    {at:.6f}] calling  c{n}_init+0x0/0x10 @ 1\n"
        after = at + (87 * (len(calling) + 1) + 10) / 1e6
        lines += [calling, f"[    {after:.6f}] initcall c{n}_init+0x0/0x10 returned 0 after 10 usecs\n"]
    lines.append("[    0.500000] Run /sbin/init as init process\n[    2.000000] systemd[1]: Startup finished in "
                 "500ms (kernel) + 1.500s (userspace) = 2.000s.\n")  # fmt: skip
    boot = timeline_of(tmp_path, "".join(lines)).console
    later = [f"[{90000 + n / 10:.6f}] IPTABLES drop IN=eth0 OUT= SRC=10.0.0.{n % 250} LEN=60\n" for n in range(3000)]
    timeline = timeline_of(tmp_path, "".join([*lines, *later]))
    assert boot is not None and boot.cost_us is not None and timeline.console is not None
    assert timeline.console.cost_us == pytest.approx(boot.cost_us, rel=0.05) and boot.cost_us < 400_000
    assert timeline.console.characters > 20 * boot.characters  # of all that was logged
    (spot,) = [spot for spot in timeline.hotspots if spot.kind == "console"]
    assert spot.share_kernel is not None and spot.share_total is not None
    assert 0 < spot.share_total < spot.share_kernel < 1


def test_what_programs_said_to_the_journal_was_not_printed(tmp_path: Path) -> None:
    head, kernel = "[    0.000000] box kernel: ", []
    for n in range(20):
        at = 0.2 + n / 100
        calling = f"calling  c{n}_init+0x0/0x10 @ 1"
        after = at + (87 * (len(calling) + 17) + 10) / 1e6
        returned = f"initcall c{n}_init+0x0/0x10 returned 0 after 10 usecs"
        kernel += [f"[    {at:.6f}] box kernel: {calling}\n", f"[    {after:.6f}] box kernel: {returned}\n"]
    begun = [VERSION.replace("[    0.000000] ", head), *kernel]
    run = "[    0.500000] box kernel: Run /sbin/init as init process\n"
    finished = "[    9.000000] box systemd[1]: Startup finished in 500ms (kernel) + 8.5s (userspace) = 9s.\n"
    said = [f"[    {1 + n / 1000:.6f}] box app[99]: request {n} of a long list was answered\n" for n in range(3000)]
    quiet = timeline_of(tmp_path, "".join([*begun, run, finished])).console
    console = timeline_of(tmp_path, "".join([*begun, run, *said, finished])).console
    assert quiet is not None and quiet.cost_us is not None and quiet.cost_us > 100_000
    assert console == quiet


def test_probes_and_initcalls_nest(tmp_path: Path) -> None:
    log = VERSION + (
        "[    0.100000] clocksource: Switched to clocksource tsc\n"
        "[    1.000000] calling  bus_init+0x0/0x10 @ 1\n"
        "[    1.004000] probe of child returned 0 after 1500 usecs\n"
        "[    1.006000] probe of parent returned 0 after 5000 usecs\n"
        "[    1.007000] probe of other returned -517 after 500 usecs\n"
        "[    1.010000] initcall bus_init+0x0/0x10 returned 0 after 9900 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert call(timeline, "bus_init").exclusive_us == 9900 - 5000 - 500
    assert probe(timeline, "parent").exclusive_us == 3500
    assert probe(timeline, "child").exclusive_us == 1500
    assert probe(timeline, "child").start_us == 1_004_000 - 1500
    other = probe(timeline, "other")
    assert other.deferred
    assert [(d.device, d.times, d.spent_us, d.bound_us) for d in timeline.deferrals] == [("other", 1, 500, None)]
    own = [c.exclusive_us or 0 for c in timeline.initcalls] + [p.exclusive_us or 0 for p in timeline.probes]
    assert sum(own) == 9900


def test_a_probe_of_nobody_is_that_of_the_modules_call_that_holds_it(tmp_path: Path) -> None:
    log = VERSION + (
        "[    0.100000] clocksource: Switched to clocksource tsc\n"
        "[    2.000000] calling  snd_hda_init+0x0/0x1000 [snd_hda_intel] @ 240\n"
        "[    3.200000] probe of 0000:00:1b.0 returned 0 after 1190000 usecs\n"
        "[    3.250000] initcall snd_hda_init+0x0/0x1000 [snd_hda_intel] returned 0 after 1249000 usecs\n"
        "[    4.000000] probe of alone returned 0 after 100000 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    inner, alone = probe(timeline, "0000:00:1b.0"), probe(timeline, "alone")
    assert call(timeline, "snd_hda_init").exclusive_us == 1_249_000 - 1_190_000
    assert (inner.exclusive_us, inner.path) == (1_190_000, "beside") and alone.path != "beside"


def test_what_reaches_over_the_end_of_a_call_ran_beside_it(tmp_path: Path) -> None:
    log = VERSION + (
        "[    0.100000] clocksource: Switched to clocksource tsc\n"
        "[    1.000000] calling  bus_init+0x0/0x10 @ 1\n"
        "[    1.010000] initcall bus_init+0x0/0x10 returned 0 after 9900 usecs\n"
        "[    1.030000] probe of slow returned 0 after 25000 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert call(timeline, "bus_init").exclusive_us == 9900
    assert probe(timeline, "slow").path == "beside"
    assert "overlapping-probes" in codes(timeline)


def test_the_caller_field_tells_threads_apart(tmp_path: Path) -> None:
    log = (
        "[    0.000000][    T0] Linux version 6.6.1 (gcc) #1 SMP\n"
        "[    0.100000][    T1] clocksource: Switched to clocksource tsc\n"
        "[    1.000000][    T1] calling  bus_init+0x0/0x10 @ 1\n"
        "[    1.006000][   T25] probe of beside returned 0 after 5000 usecs\n"
        "[    1.007000][    T1] probe of inside returned 0 after 700 usecs\n"
        "[    1.010000][    T1] initcall bus_init+0x0/0x10 returned 0 after 9900 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert call(timeline, "bus_init").exclusive_us == 9200
    assert probe(timeline, "beside").path == "beside"
    assert probe(timeline, "inside").path == "critical"


def test_one_name_runs_twice(tmp_path: Path) -> None:
    log = VERSION + (
        "[    1.342170] calling  msr_init+0x0/0x51 @ 1\n"
        "[    1.342244] initcall msr_init+0x0/0x51 returned 0 after 68 usecs\n"
        "[    1.342458] calling  msr_init+0x0/0xd0 @ 1\n"
        "[    1.342785] initcall msr_init+0x0/0xd0 returned -19 after 315 usecs\n"
        "[    2.000000] calling  msr_init+0x0/0x51 [msr] @ 99\n"
        "[    2.000100] initcall msr_init+0x0/0x51 [msr] returned 0 after 90 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    rows = [(c.module, c.occurrence, c.duration_us, c.returned, c.path) for c in timeline.initcalls]
    assert rows == [(None, 1, 68, 0, "critical"), (None, 2, 315, -19, "critical"), ("msr", 1, 90, 0, "beside")]
    assert [(m.name, m.duration_us) for m in timeline.modules] == [("msr", 90)]


CLEAN = VERSION + (
    "[    0.500000] clocksource: Switched to clocksource tsc\n"
    "[    1.000000] calling  pci_subsys_init+0x0/0x7a @ 1\n"
    "[    1.000950] initcall pci_subsys_init+0x0/0x7a returned 0 after 930 usecs\n"
    "[    1.001000] calling  acpi_event_init+0x0/0x36 @ 1\n"
    "[    1.001250] initcall acpi_event_init+0x0/0x36 returned 0 after 230 usecs\n"
    "[    1.200000] Run /sbin/init as init process\n"
)
DAMAGES = {
    "joined": CLEAN.replace("930 usecs\n", "930 usecs"),
    "quoted": "".join(f"> {line}\n" for line in CLEAN.splitlines()),
    "quoted twice": "".join(f">> {line}\n" for line in CLEAN.splitlines()),
    "wrapped": CLEAN.replace("returned 0 after 930", "returned 0\nafter 930"),
    "quoted and wrapped": "".join(f"> {line}\n" for line in CLEAN.splitlines()).replace(
        "returned 0 after 930", "returned 0 after\n930"
    ),
    "quoted-printable": CLEAN.replace("returned 0 after 930", "returned 0 =\nafter 930").replace(
        "SMP\n", "SMP a=3Db=20\n"
    ),
    "carriage returns": CLEAN.replace("\n", "\r\n"),
    "colours": CLEAN.replace("initcall", "\x1b[32minitcall\x1b[0m"),
    "nul bytes": CLEAN.replace("Run", "\0\0Run"),
    "journal": "".join(f"Mar 06 13:18:{23 + n} kepler kernel: {line}\n" for n, line in enumerate(CLEAN.splitlines())),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_text_is_put_together_again(tmp_path: Path, damage: str) -> None:
    timeline = timeline_of(tmp_path, DAMAGES[damage])
    assert [(c.name, c.start_us, c.duration_us, c.returned) for c in timeline.initcalls] == [
        ("pci_subsys_init", 1_000_000, 930, 0),
        ("acpi_event_init", 1_001_000, 230, 0),
    ]
    assert times(timeline)["kernel"] == (0, 1_200_000)
    assert timeline.kernel.version == "6.1.0-9"


def test_a_journal_without_the_kernels_own_stamps(tmp_path: Path) -> None:
    log = (
        "mar 06 13:18:23 kepler kernel: Linux version 5.11.4 (gcc) #1 SMP\n"
        "mar 06 13:18:23 kepler kernel: calling  acpi_init+0x0/0x33a @ 1\n"
        "mar 06 13:18:23 kepler kernel: initcall acpi_init+0x0/0x33a returned 0 after 30273 usecs\n"
        "mar 06 13:18:24 kepler kernel: Run /init as init process\n"
    )
    timeline = timeline_of(tmp_path, log)
    acpi = call(timeline, "acpi_init")
    # Kernel 5.11 says 1024 ns are a microsecond: 30273 x 1.024 = 30999.6.
    assert (acpi.duration_us, acpi.reported_us, acpi.duration_source) == (31_000, 30_273, DurationSource.CORRECTED)
    assert times(timeline)["kernel"] == (None, None)  # the stamps are those of the journal's reading
    assert {"coarse-clock", "arrival-times"} <= codes(timeline)


def test_no_time_stamps_at_all(tmp_path: Path) -> None:
    log = "\n".join(line.partition("] ")[2] for line in CLEAN.splitlines()) + "\n"
    timeline = timeline_of(tmp_path, log)
    first = call(timeline, "pci_subsys_init")
    assert (first.start_us, first.duration_us, first.reported_us, first.stamps_us) == (None, 930, 930, None)
    assert timeline.phases == ()
    assert "no-time-stamps" in codes(timeline)


def test_a_log_that_ends_in_a_crash(tmp_path: Path) -> None:
    log = VERSION + (
        "[    0.500000] calling  good_init+0x0/0x10 @ 1\n"
        "[    0.500100] initcall good_init+0x0/0x10 returned 0 after 90 usecs\n"
        "[    0.600000] calling  bad_init+0x0/0x10 @ 1\n"
        "[    0.700000] BUG: kernel NULL pointer dereference, address: 0000000000000000\n"
        "[    0.800000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009\n"
    )
    timeline = timeline_of(tmp_path, log)
    bad = call(timeline, "bad_init")
    assert (bad.duration_us, bad.returned, bad.start_us) == (None, None, 600_000)
    assert {"crashed", "unfinished"} <= codes(timeline)
    assert times(timeline)["kernel"] == (0, 800_000)


def test_the_first_lines_are_lost(tmp_path: Path) -> None:
    log = (
        "[    0.912000] initcall cut_init+0x0/0x10 returned 0 after 250 usecs\n"
        "[    0.913000] calling  pty_init+0x0/0x10 @ 1\n"
        "[    0.914000] initcall pty_init+0x0/0x10 returned 0 after 900 usecs\n"
        "[    1.500000] Freeing unused kernel image (initmem) memory: 3072K\n"
    )
    timeline = timeline_of(tmp_path, log)
    cut = call(timeline, "cut_init")
    assert (cut.start_us, cut.duration_us, cut.duration_source) == (912_000 - 250, 250, DurationSource.REPORTED)
    assert times(timeline)["kernel"] == (None, 1_500_000)
    assert timeline.kernel_us is None
    assert {"first-lines-lost", "unmatched-return"} <= codes(timeline)


def test_the_clock_starts_late(tmp_path: Path) -> None:
    log = (
        "[  515.700000] Booting Linux on physical CPU 0x0\n"
        "[  515.700000] Linux version 4.9.88 (arm-linux-gnueabihf-gcc (GCC) 7.3.0) #1 SMP\n"
        "[  517.200000] Freeing unused kernel memory: 1024K\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert times(timeline)["kernel"] == (515_700_000, 517_200_000)
    assert timeline.kernel_us == 1_500_000
    assert "clock-starts-late" in codes(timeline)
