# SPDX-License-Identifier: Apache-2.0
"""Every shape of a kernel log, with the same two facts in each: an initcall of 480 µs, and init after 1.2 s."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import call, codes, timeline_of, times

from vmtailor.model.boots.timeline import DurationSource

MESSAGES = [
    (0, "Linux version 6.1.0-9-amd64 (gcc-12) #1 SMP PREEMPT_DYNAMIC Debian"),
    (0, "Command line: BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet"),
    (500_000, "clocksource: Switched to clocksource tsc-early"),
    (1_000_000, "calling  pci_subsys_init+0x0/0x7a @ 1"),
    (1_000_500, "initcall pci_subsys_init+0x0/0x7a returned 0 after 480 usecs"),
    (1_000_600, "virtio_blk virtio1: [vda] 4194304 512-byte logical blocks (2.15 GB/2.00 GiB)"),
    (1_200_000, "Run /sbin/init as init process"),
]


def sec(us: int) -> str:
    return f"{us / 1e6:12.6f}"


def lines(form: str) -> str:
    out, last = [], 0
    for us, text in MESSAGES:
        out.append(
            form.format(stamp=sec(us), delta=sec(us - last), text=text, us=us, sec=us // 1_000_000, frac=us % 1_000_000)
        )
        last = us
    return "\n".join(out) + "\n"


FORMATS = {
    "plain": "[{stamp}] {text}",
    "level": "<6>[{stamp}] {text}",
    "caller": "[{stamp}][    T1] {text}",
    "level and caller": "<6>[{stamp}][    T1] {text}",
    "dmesg -d": "[{stamp} < {delta}>] {text}",
    "show_delta": "[{stamp} < {delta} >] {text}",
    "dmesg -x": "kern  :info  : [{stamp}] {text}",
    "kmsg": "6,339,{us},-;{text}",
    "journal short-monotonic": "[{stamp}] debian kernel: {text}",
    "journal short": "Mar 06 13:18:0{sec} debian kernel: {text}",
    "journal short-precise": "Mar 06 13:18:0{sec}.{frac:06d} debian kernel: {text}",
    "journal short-iso": "2026-03-06T13:18:0{sec}+0100 debian kernel: {text}",
    "journal short-iso-precise": "2026-03-06T13:18:0{sec}.{frac:06d}+01:00 debian kernel: {text}",
    "journal short-full": "Fri 2026-03-06 13:18:0{sec} CET debian kernel: {text}",
    "journal short-unix": "177282108{sec}.{frac:06d} debian kernel: {text}",
    "syslog": "Mar  6 13:18:0{sec} debian kernel: [{stamp}] {text}",
    "dmesg -T": "[Fri Mar  6 13:18:0{sec} 2026] {text}",
    "dmesg iso": "2026-03-06T13:18:0{sec},{frac:06d}+01:00 {text}",
    "grabserial": "[{sec}.{frac:06d} 0.000100] [{stamp}] {text}",
    "grabserial -T": "[13:18:0{sec}.{frac:06d} 0.000100] [{stamp}] {text}",
    "ts": "Mar 06 13:18:0{sec} [{stamp}] {text}",
    "minicom": "[2026-03-06 13:18:0{sec}.{frac:06d}] [{stamp}] {text}",
    "any prefix": "[info] [{stamp}] {text}",
    "one space": "console> [{stamp}] {text}",
    "mail-quoted level": "> <6>[{stamp}] {text}",
    "processor in the stamp": "[{stamp}@1] {text}",
    "processor behind a comma": "<6>[{stamp},1] {text}",
    "task in brackets": "<6>[{stamp}]  (1)[1:swapper/0]{text}",
    "task with its processor": "<6>[{stamp}] [1:      swapper/0:    1] {text}",
    "container log": "2026-03-06T13:18:0{sec}.{frac:06d}000Z stdout F [{stamp}] {text}",
    "LAVA": '- {{"dt": "2026-03-06T13:18:0{sec}.{frac:06d}", "lvl": "target", "msg": "[{stamp}] {text}"}}',
}
#: On the wall clock a journal stamps what the kernel said before it ran with the time at which it read it.
ARRIVALS = {name for name in FORMATS if name.startswith("journal") and name != "journal short-monotonic"}
COARSE = {"journal short", "journal short-iso", "journal short-full", "dmesg -T"}


@pytest.mark.parametrize("name", FORMATS)
def test_every_shape_says_the_same(tmp_path: Path, name: str) -> None:
    timeline = timeline_of(tmp_path, lines(FORMATS[name]))
    found = call(timeline, "pci_subsys_init")
    assert (found.duration_us, found.reported_us, found.returned, found.duration_source) == (
        480,
        480,
        0,
        DurationSource.REPORTED,
    )
    assert timeline.kernel.version == "6.1.0-9-amd64"
    assert timeline.kernel.arch == "x86_64"
    assert timeline.kernel.command_line == "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet"
    assert timeline.kernel.clocksource == "tsc-early"
    # 1.2 s between whole seconds may be anything below 2.2.
    expected = (0, None if name in COARSE else 1_200_000) if name not in ARRIVALS else (None, None)
    assert times(timeline)["kernel"] == expected
    assert ("coarse-clock" in codes(timeline)) == (name in COARSE)
    assert ("arrival-times" in codes(timeline)) == (name in ARRIVALS)
    if name not in COARSE | ARRIVALS:
        assert (found.start_us, found.end_us, found.stamps_us) == (1_000_000, 1_000_500, 500)


def test_a_line_of_another_program_does_not_hide_the_shape(tmp_path: Path) -> None:
    first = "Mar  6 13:18:00 debian syslogd 1.5.0#2: restart.\n"
    timeline = timeline_of(tmp_path, first + lines(FORMATS["syslog"]))
    assert times(timeline)["kernel"] == (0, 1_200_000)


def test_a_journal_that_has_systemds_last_line_is_read_whole(tmp_path: Path) -> None:
    last = "Mar 06 13:18:05 debian systemd[1]: Startup finished in 1.200s (kernel) + 2.000s (userspace) = 3.200s.\n"
    timeline = timeline_of(tmp_path, lines(FORMATS["journal short"]) + last)
    assert timeline.kernel.version == "6.1.0-9-amd64"
    assert times(timeline)["userspace"] == (1_200_000, 3_200_000)
    assert call(timeline, "pci_subsys_init").reported_us == 480


def test_dmesg_json(tmp_path: Path) -> None:
    document = {"dmesg": [{"pri": 6, "time": us / 1e6, "msg": text} for us, text in MESSAGES]}
    timeline = timeline_of(tmp_path, json.dumps(document, indent=3))
    assert call(timeline, "pci_subsys_init").duration_us == 480
    assert times(timeline)["kernel"] == (0, 1_200_000)


def test_journal_json(tmp_path: Path) -> None:
    rows = [
        json.dumps(
            {
                "_TRANSPORT": "kernel",
                "SYSLOG_IDENTIFIER": "kernel",
                "MESSAGE": text,
                "_SOURCE_MONOTONIC_TIMESTAMP": str(us),
            }
        )
        for us, text in MESSAGES
    ]
    timeline = timeline_of(tmp_path, "\n".join(rows))
    assert call(timeline, "pci_subsys_init").duration_us == 480
    assert timeline.files[0].format == "kernel log, journal (JSON)"


def test_relative_stamps(tmp_path: Path) -> None:
    out, last = ["[Mar 6 13:18] Linux version 6.1.0-9-amd64 (gcc-12) #1"], 0
    for us, text in MESSAGES[2:]:
        out.append(f"[  +{(us - last) / 1e6:.6f}] {text}")
        last = us
    timeline = timeline_of(tmp_path, "\n".join(out) + "\n")
    assert call(timeline, "pci_subsys_init").duration_us == 480
    assert times(timeline)["kernel"] == (0, 1_200_000)


def test_a_minute_in_place_of_a_difference_is_said(tmp_path: Path) -> None:
    log = (
        "[Mar 6 13:18] Linux version 6.6.1 (gcc) #1\n[  +0.500000] foo: bar\n[  +0.400000] foo: more\n"
        "[  +0.100000] Run /sbin/init as init process\n"
    )
    assert "clock-jumps" not in codes(timeline_of(tmp_path, log))
    assert "clock-jumps" in codes(timeline_of(tmp_path, log + "[Mar 6 13:19] systemd[1]: Reached target multi-user\n"))


def test_a_compressed_log(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, gzip.compress(lines(FORMATS["plain"]).encode()))
    assert call(timeline, "pci_subsys_init").duration_us == 480


def test_a_serial_capture_shows_firmware_and_loader(tmp_path: Path) -> None:
    log = (
        "[0.000001 0.000001] \n"
        "[0.100000 0.099999] U-Boot SPL 2023.01 (Jan 01 2023)\n"
        "[0.600000 0.500000] U-Boot 2023.01 (Jan 01 2023)\n"
        "[2.600000 2.000000] Hit any key to stop autoboot:  0\n"
        "[3.000000 0.400000] Starting kernel ...\n"
        "[5.500000 2.500000] [    0.000000] Booting Linux on physical CPU 0x0\n"
        "[5.500001 0.000001] [    0.000000] Linux version 6.1.20 (arm-linux-gnueabihf-gcc) #1\n"
        "[5.600000 0.099999] [    2.000000] Run /sbin/init as init process\n"
        "[9.600000 4.000000] buildroot login: \n"
    )
    timeline = timeline_of(tmp_path, log)
    # The last stamped line came with the least delay: the kernel's zero is at 3.6 s of the capture.
    assert times(timeline) == {
        "firmware": (-3_599_999, -3_500_000),
        "loader": (-3_500_000, -600_000),
        "kernel": (0, 2_000_000),
        "userspace": (2_000_000, 6_000_000),
        "ready": (6_000_000, 6_000_000),
    }
    assert timeline.kernel.arch == "arm"


def test_old_kernels(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Linux version 2.6.27 (gcc) #1\n"
        "[    0.200000] calling  pci_init+0x0/0x30\n"
        "[    0.253000] initcall pci_init+0x0/0x30 returned 0 after 52 msecs\n"
        "[    0.300000] calling  0xc03e6b20: acpi_init+0x0/0x30()\n"
        "[    0.310000] initcall 0xc03e6b20: acpi_init+0x0/0x30() returned 0.\n"
        "[    0.400000] Freeing unused kernel memory: 244k freed\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert call(timeline, "pci_init").reported_us == 52_000
    assert call(timeline, "acpi_init").duration_us == 10_000
    assert times(timeline)["kernel"] == (0, 400_000)


def test_levels_async_calls_and_old_probes(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Linux version 6.9.1 (gcc) #1\n"
        "[    0.100000] clocksource: Switched to clocksource tsc\n"
        "[    0.200000] entering initcall level: fs\n"
        "[    0.200100] calling  inet_init+0x0/0x30 @ 1\n"
        "[    0.201100] initcall inet_init+0x0/0x30 returned 0 after 990 usecs\n"
        "[    0.300000] calling  2_async_port_probe+0x0/0x60 @ 57\n"
        "[    0.400000] initcall 2_async_port_probe+0x0/0x60 returned 0 after 99990 usecs\n"
        "[    0.500000] probe of ata1 returned 1 after 400 usecs\n"
        "[    0.600000] Run /sbin/init as init process\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert call(timeline, "inet_init").level == "fs"
    beside = call(timeline, "async_port_probe")
    assert (beside.asynchronous, beside.path, beside.task) == (True, "beside", 57)
    assert timeline.probes[0].returned == 1


def test_the_last_of_several_boots(tmp_path: Path) -> None:
    first = lines(FORMATS["plain"]).replace("6.1.0-9-amd64", "5.10.1")
    timeline = timeline_of(tmp_path, first + lines(FORMATS["plain"]))
    assert timeline.kernel.version == "6.1.0-9-amd64"
    assert len(timeline.initcalls) == 1
    assert "several-boots" in codes(timeline)


def test_systemd_in_the_log_ends_the_boot(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Linux version 6.1.0 (gcc) #1\n"
        "[    1.481000] Run /init as init process\n"
        "[    1.500000] systemd[1]: systemd 252.39-1~deb12u1 running in system mode (+PAM +AUDIT)\n"
        "[    1.500100] systemd[1]: Detected virtualization kvm.\n"
        "[    1.500200] systemd[1]: Detected architecture x86-64.\n"
        "[    1.500300] systemd[1]: Running in initrd.\n"
        "[    3.000000] systemd[1]: Switching root.\n"
        "[    3.200000] systemd[1]: systemd 252.39-1~deb12u1 running in system mode (+PAM +AUDIT)\n"
        "[    4.000000] systemd[1]: Starting systemd-udevd.service - Rule-based Manager for Device Events and "
        "Files...\n"
        "[    4.250000] systemd[1]: Started systemd-udevd.service - Rule-based Manager for Device Events and Files.\n"
    )
    open_end = timeline_of(tmp_path, log)
    assert times(open_end) == {
        "kernel": (0, 1_481_000),
        "initrd": (1_481_000, 3_000_000),
        "userspace": (3_000_000, None),
    }
    assert "phase-open" in codes(open_end)
    assert (open_end.kernel.hypervisor, open_end.kernel.arch) == ("kvm", "x86_64")
    (udev,) = open_end.units
    assert (udev.name, udev.start_us, udev.duration_us) == ("systemd-udevd.service", 4_000_000, 250_000)
    whole = timeline_of(
        tmp_path,
        log + "[    9.600000] systemd[1]: Startup finished in 1.481s (kernel) + 1.600s (initrd) + 6.510s "
        "(userspace) = 9.591s.\n",
    )
    assert times(whole) == {
        "kernel": (0, 1_481_000),
        "initrd": (1_481_000, 3_081_000),
        "userspace": (3_081_000, 9_591_000),
        "ready": (9_591_000, 9_591_000),
    }
    assert whole.total_us == 9_591_000
