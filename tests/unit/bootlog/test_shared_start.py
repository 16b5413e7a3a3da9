# SPDX-License-Identifier: Apache-2.0
"""What the kernel reports of initcalls is wrong in two known ways: it keeps one start for all that are under way, and
before 5.18 its microseconds were of 1024 ns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import DATA, call, codes, probe, timeline_of

from vmtailor.analysis.timeline.boot_json import trace_events
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import DurationSource

FIRST = "[    0.000000] Linux version {} (gcc) #1 SMP\n[    0.100000] clocksource: Switched to clocksource tsc\n"
INTERLEAVED = DATA / "corpus" / "initcalls-interleaved.txt"


def test_modules_loaded_in_parallel() -> None:
    timeline = analyze([INTERLEAVED])
    # Lines 15 and 130: 8.082267 … 9.104746. The last `calling` before is line 127, 9.094780: 9949 µs count from there.
    ath11k = call(timeline, "ath11k_pci_init")
    assert (ath11k.start_us, ath11k.end_us, ath11k.reported_us) == (8_082_267, 9_104_746, 9_949)
    assert (ath11k.duration_us, ath11k.duration_source) == (9_949 + 9_094_780 - 8_082_267, DurationSource.CORRECTED)
    # Lines 20, 21, 23: another began 8.098555; 292 µs count from there.
    assert call(timeline, "adc_tm5_driver_init").duration_us == 292 + 8_098_555 - 8_090_527
    # Lines 30, 41, 62: bt_init began at 8.170794, and returned before.
    assert call(timeline, "pm8941_pwrkey_driver_init").duration_us == 59_701 + 8_170_794 - 8_100_124
    # Lines 21 and 25: nothing began in between.
    assert call(timeline, "adc5_driver_init").duration_us == 484
    # Line 103, 8.409880, has no `calling` of its own; its 139386 µs count from line 74, 8.270440: its own are unknown.
    camss = call(timeline, "qcom_camss_driver_init")
    assert (camss.start_us, camss.duration_us, camss.reported_us) == (None, None, 139_386)


def test_page_and_trace_draw_the_same_bar() -> None:
    timeline = analyze([INTERLEAVED])
    start, took = 9_104_746 - 1_022_462, 1_022_462
    (event,) = [e for e in json.loads(trace_events(timeline))["traceEvents"] if e["name"] == "ath11k_pci_init"]
    assert (event["ts"], event["dur"]) == (start, took)
    page = boot_page(timeline, "a boot")
    (bar,) = re.findall(r'\["initcall",\s*"ath11k_pci_init \[ath11k_pci\]",\s*(\d+),\s*(\d+)', page)
    assert (int(bar[0]), int(bar[1])) == (start, took)


def test_a_kernel_with_a_start_for_each_call_is_believed(tmp_path: Path) -> None:
    """Before 4.17 each call had a start of its own."""
    log = FIRST.format("4.9.0") + (
        "[    1.000000] calling  one_init+0x0/0x10 [one] @ 70\n"
        "[    1.200000] calling  two_init+0x0/0x10 [two] @ 71\n"
        "[    1.300000] initcall two_init+0x0/0x10 [two] returned 0 after 97656 usecs\n"
        "[    1.500000] initcall one_init+0x0/0x10 [one] returned 0 after 488281 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert call(timeline, "one_init").duration_us == 500_000  # 488281 x 1.024
    assert call(timeline, "two_init").duration_us == 100_000


def test_a_slow_console_between_the_two_starts(tmp_path: Path) -> None:
    """Each character costs 100 µs. Both moments lie behind their own line, which differ by 20 characters: 2 ms."""
    rows = []
    for n in range(20):  # lines of 50 characters, two more for the line's end
        at = 200_000 + n * 20_000
        rows.append(f"[    0.{at:06}] calling  console_speed_{n:02}+0x0/0x1 @ 1\n".replace("console", "console_"))
        rows.append(f"[    0.{at + len(rows[-1][:-1]) * 100 + 200 + 1000:06}] initcall console__speed_{n:02}+0x0/0x1"
                    " returned 0 after 1000 usecs\n")  # fmt: skip
    log = FIRST.format("6.1.0") + "".join(rows) + (
        "[    1.000000] calling  one_init+0x0/0x10 [one] @ 70\n"
        "[    1.200000] calling  one_init_with_twenty_more+0x0/0x10 [one] @ 71\n"
        "[    1.500000] initcall one_init+0x0/0x10 [one] returned 0 after 290000 usecs\n"
        "[    1.600000] initcall one_init_with_twenty_more+0x0/0x10 [one] returned 0 after 390000 usecs\n"
    )  # fmt: skip
    timeline = timeline_of(tmp_path, log)
    assert timeline.console is not None and timeline.console.us_per_char == pytest.approx(100, rel=0.01)
    longer = len("_with_twenty_more")
    assert call(timeline, "one_init").duration_us == pytest.approx(290_000 + 200_000 + 100 * longer, abs=40)
    assert call(timeline, "one_init_with_twenty_more").duration_us == 390_000


def test_a_lost_beginning_in_a_row_of_calls_keeps_its_report(tmp_path: Path) -> None:
    log = FIRST.format("6.1.0") + (
        "[    1.000000] calling  one_init+0x0/0x10 @ 1\n"
        "[    1.001000] initcall one_init+0x0/0x10 returned 0 after 980 usecs\n"
        "[    1.003000] initcall two_init+0x0/0x10 returned 0 after 1900 usecs\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert call(timeline, "two_init").duration_us == 1_900 and "unmatched-return" in codes(timeline)


OLD = (
    "[    1.000000] calling  one_init+0x0/0x10 @ 1\n"
    "[    1.150000] probe of serial8250 returned 1 after 90000 usecs\n"
    "[    1.200000] initcall one_init+0x0/0x10 returned 0 after {} usecs\n"
)


@pytest.mark.parametrize(
    ("version", "reported", "duration", "source"),
    [
        ("4.19.0", 195_312, 199_999, DurationSource.CORRECTED),
        ("5.17.9-custom", 195_312, 199_999, DurationSource.CORRECTED),
        ("5.18.0-rc1", 199_990, 199_990, DurationSource.REPORTED),
        ("6.12.1", 195_312, 195_312, DurationSource.REPORTED),
        # A vendor's 5.15 with the change of 5.18: x 1.024 it would be longer than its stamps.
        ("5.15.0-vendor", 199_990, 199_990, DurationSource.REPORTED),
    ],
)
def test_microseconds_of_1024_nanoseconds(
    tmp_path: Path, version: str, reported: int, duration: int, source: DurationSource
) -> None:
    timeline = timeline_of(tmp_path, FIRST.format(version) + OLD.format(reported))
    one = call(timeline, "one_init")
    assert (one.duration_us, one.reported_us, one.duration_source) == (duration, reported, source)
    assert probe(timeline, "serial8250").duration_us == 90_000  # probes count microseconds in every version


def test_milliseconds_of_2_6_are_shifted_twice(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Linux version 2.6.27-10 (gcc) #1 SMP\n"
        "[    1.000000] calling  one_init+0x0/0x10\n"
        "[    1.150000] initcall one_init+0x0/0x10 returned 0 after 100 msecs\n"
    )
    assert call(timeline_of(tmp_path, log), "one_init").duration_us == 104_858
