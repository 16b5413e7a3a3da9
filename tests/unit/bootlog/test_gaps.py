# SPDX-License-Identifier: Apache-2.0
"""Silences in all phases: what stood around them, what they were, and where a boot ends that the log goes on after."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.bootlog.reading import timeline_of

from vmtailor.analysis.bootlog.silences import gap_kinds
from vmtailor.analysis.timeline.boot_json import from_json, json_chunks
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.model.boots.timeline import GapSpan, Timeline

HEAD = "[    0.000000] Linux version 6.12.1 (gcc) #1 SMP\n[    0.000000] Kernel command line: quiet\n"


def gaps(timeline: Timeline) -> dict[str, GapSpan]:
    return {gap.title or gap.before: gap for gap in timeline.gaps}


def test_a_silence_in_each_phase_with_what_stood_around_it(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path,
        HEAD + "[    0.100000] first word\n[    0.400000] second word\n[    1.000000] Run /init as init process\n"
        "[    1.000500] hook begins\n[    3.000000] hook is over\n"
        "[    4.000000] systemd[1]: systemd 255 running in system mode (+PAM)\n"
        "[    4.100000] third word\n[    9.000000] fourth word\n[   10.000000] host login: \n",
    )
    found = gaps(timeline)
    one = found["first word"]
    assert (one.start_us, one.end_us, one.before, one.after) == (100_000, 400_000, "first word", "second word")
    assert (one.phase, one.path, one.kind, one.own_us) == ("kernel", "critical", "", 300_000)
    assert (found["hook begins"].phase, found["hook begins"].path) == ("initrd", "critical")
    # In user space the kernel's silence alone does not tell that the boot waited.
    assert (found["third word"].phase, found["third word"].path) == ("userspace", "unknown")
    assert [(s.name, s.exclusive_us) for s in timeline.hotspots[:2]] == [
        ("after: third word", 4_900_000), ("after: hook begins", 1_999_500),
    ]  # fmt: skip


CASES = [
    ("mtk-pcie-gen3 11280000.pcie:      MEM 0x0020200000..0x0027ffffff -> 0x0020200000",
     "mtk-pcie-gen3 11280000.pcie: PCIe link down, current LTSSM state: detect.quiet (0x1)", "pcie-link"),
    ("rockchip-pcie f8000000.pcie: host bridge", "pcie f8000000.pcie: PCIe link training gen1 timeout!", "pcie-link"),
    ("dw-pcie 3800000.pcie: iATU: unroll T, 8 ob", "dw-pcie 3800000.pcie: Phy link never came up", "pcie-link"),
    ("raid6: sse2x4   gen()  1537 MB/s", "raid6: sse2x4   xor()  1159 MB/s", "raid6"),
    ("xor: measuring software checksum speed", "   prefetch64-sse  :  3618.000 MB/sec", "xor"),
    ("alg: self-tests for sha1-ssse3 (sha1) passed", "alg: self-tests for crc32 (crc32) passed", "crypto-tests"),
    ("Running ring buffer tests...", "finished", "tracer-tests"),
    ("Testing tracer function: PASSED", "Testing tracer irqsoff: PASSED", "tracer-tests"),
    ("imx-sdma 30e1.dma: Falling back to sysfs fallback for: imx/sdma.bin", "something else", "firmware-load"),
    ("r8169: Direct firmware load for rtl_nic/a.fw failed with error -2", "something else", ""),
    ("usbcore: registered new interface driver usb-storage", "something else", ""),
    ("something", "tsc: Refined TSC clocksource calibration: 2893.299 MHz", ""),
    ("something", "platform sfp1: deferred probe pending: (reason unknown)", ""),
    ("Sending DHCP requests ..", "IP-Config: Got DHCP answer from 10.0.0.1", "dhcp"),
    ("systemd[1]: Set hostname to <a>.", "random: crng init done", "random"),
    ("Checking root file system...", "/dev/sda1: clean, 1234/5678 files", "fsck"),
    ("anything", "systemd[1]: Timed out waiting for device /dev/disk/by-uuid/1-2.", "device-timeout"),
    ("anything", "systemd[1]: dev-sdb1.device: Job dev-sdb1.device/start timed out.", "device-timeout"),
    ("ubi0: attaching mtd1", "ubi0: scanning is finished", "ubi-attach"),
    ("printk: console [tty0] enabled", "printk: console [ttyS0] enabled", "console-backlog"),
    ("Hit any key to stop autoboot:  3", "switch to partitions #0, OK", "u-boot-delay"),
    ("anything", "i2c i2c-2: controller timed out", "bus-timeout"),
    ("Waiting for root device /dev/mmcblk0p2...", "mmc0: new high speed SDHC card at address aaaa", "root-wait"),
    ("usb 1-1: new high-speed USB device number 2 using xhci_hcd", "hub 1-1:1.0: USB hub found", "usb"),
    ("ata1: SATA max UDMA/133 abar", "ata1: SATA link down (SStatus 0 SControl 300)", "ata"),
    ("one message", "another message", ""),
    ("systemd[1]: Started Some Service.", "EXT4-fs (sda1): re-mounted. Opts: errors=remount-ro", ""),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "kind"), CASES)
def test_a_message_of_a_known_kind_names_it(tmp_path: Path, before: str, after: str, kind: str) -> None:
    fitting = next((one for one in gap_kinds() if one.fits(before, after)), None)
    assert (fitting.id if fitting else "") == kind
    timeline = timeline_of(
        tmp_path, HEAD + f"[    1.000000] {before}\n[    2.500000] {after}\n[    3.000000] Run /init as init process\n"
    )
    assert [gap.kind for gap in timeline.gaps if gap.start_us == 1_000_000 and gap.silent] == [kind]


def test_silences_of_one_kind_are_one_hot_spot(tmp_path: Path) -> None:
    lines = "".join(f"[    {1 + n / 10:.6f}] alg: self-tests for a{n} (a{n}) passed\n" for n in range(1, 9))
    timeline = timeline_of(tmp_path, HEAD + lines + "[    2.000000] Run /init as init process\n")
    (spot,) = [s for s in timeline.hotspots if s.name == "self-tests of the crypto manager"]
    assert (spot.times, spot.exclusive_us) == (8, 1_100_000 + 7 * 100_000)


def test_a_stretch_has_messages_in_it_and_gives_its_tests_to_themselves(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path,
        HEAD + "[    1.000000] Waiting for root device /dev/sda1...\n[    1.500000] some driver\n"
        "[    2.000000] alg: self-tests for aes (aes) passed\n[    3.000000] sd 0:0:0:0: [sda] Attached SCSI disk\n"
        "[    3.200000] VFS: Mounted root (ext4 filesystem) on device 8:1.\n"
        "[    4.000000] Run /sbin/init as init process\n",
    )
    (stretch,) = [gap for gap in timeline.gaps if not gap.silent]
    assert (stretch.kind, stretch.start_us, stretch.end_us, stretch.path) == (
        "root-wait",
        1_000_000,
        3_200_000,
        "critical",
    )
    own = {s.name: s.exclusive_us for s in timeline.hotspots}
    assert own["self-tests of the crypto manager"] == 500_000
    assert own["waiting for the root device"] < 2_200_000 - 500_000 + 1
    assert sum(own.values()) <= 4_000_000  # no moment counts twice


def test_what_initcalls_account_for_is_no_silence(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path,
        HEAD + "[    1.000000] calling  slow_init+0x0/0x10 @ 1\n"
        "[    1.900000] initcall slow_init+0x0/0x10 returned 0 after 899000 usecs\n"
        "[    2.000000] Run /init as init process\n",
    )
    assert not [s for s in timeline.hotspots if s.kind == "gap" and (s.start_us or 0) == 1_000_000]


def test_a_late_event_does_not_make_the_boot_longer(tmp_path: Path) -> None:
    log = (
        HEAD + "[    2.000000] Run /sbin/init as init process\n[    4.000000] a daemon\n[    6.000000] another\n"
        "[  400.000000] usb 1-1: new high-speed USB device number 9 using xhci_hcd\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert (timeline.total_us, timeline.shown_us, timeline.shown_end_us) == (None, 6_000_000, 6_000_000)
    assert timeline.last_us == 400_000_000
    assert not [gap for gap in timeline.gaps if gap.start_us >= 6_000_000]
    page = boot_page(timeline, "late")
    assert "A boot of at least 6" in page and "The log goes on to 400" in page and "or more" in page


def test_a_long_wait_that_a_message_explains_is_part_of_the_boot(tmp_path: Path) -> None:
    log = (
        HEAD + "[    2.000000] Run /sbin/init as init process\n[    4.000000] a daemon\n"
        "[   94.000000] systemd[1]: Timed out waiting for device /dev/disk/by-uuid/12-34.\n[   95.000000] more\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert timeline.shown_us == 95_000_000
    assert {r.id: r.saving_us for r in timeline.advice}["device-timeout"] == 90_000_000


def test_a_boot_with_an_end_has_a_headline_with_its_total(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path, HEAD + "[    2.000000] Run /sbin/init as init process\n[    5.000000] host login: \n"
    )
    assert (timeline.total_us, timeline.shown_us) == (5_000_000, 5_000_000)
    assert "A boot of 5.00" in boot_page(timeline, "x") and "at least" not in boot_page(timeline, "x")


def test_the_record_survives(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, HEAD + "[    1.000000] a\n[    2.000000] Run /init as init process\n")
    assert from_json(b"".join(json_chunks(timeline)), "x") == timeline
    assert msgspec.json.decode(b"".join(json_chunks(timeline)))["schema"] == "vmtailor/timeline/3"


def test_what_a_machine_waits_for_once_it_is_up_is_no_part_of_its_boot(tmp_path: Path) -> None:
    log = HEAD + (
        "[    1.000000] Run /sbin/init as init process\n[    8.000000] snd_card: ready\n"
        "[86400.000000] usb 1-2: new high-speed USB device number 5 using xhci_hcd\n"
    )
    summed = "Startup finished in 1.000s (kernel) + 11.000s (userspace) = 12.000s\n"
    timeline = timeline_of(tmp_path, log, summed)
    last = max(timeline.gaps, key=lambda gap: gap.end_us)
    assert (last.start_us, last.end_us, last.after, last.kind) == (8_000_000, 12_000_000, "", "")
    assert all(spot.share_total is None or spot.share_total <= 1 for spot in timeline.hotspots)
    assert not any("USB" in spot.name for spot in timeline.hotspots)
