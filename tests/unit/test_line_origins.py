# SPDX-License-Identifier: Apache-2.0
"""The options behind the lines and hot spots of a log, and those that nothing in it uses, with the index that ships."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path

import pytest

from vmtailor.analysis.printk.message_index import index
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import Timeline

DATA = Path(__file__).parents[1] / "data/boot"


def boot_of(folder: Path, *lines: str, config: str = "") -> Timeline:
    """Return the timeline of a log of these lines, a hundredth of a second apart."""
    log = folder / "log.txt"
    log.write_text("".join(f"[    0.{10 * n:03}000] {line}\n" for n, line in enumerate(lines, 10)))
    if config:
        (folder / ".config").write_text(f"# Linux/x86 6.12.1 Kernel Configuration\n{config}")
    return analyze([log, folder / ".config"] if config else [log])


def test_each_line_of_a_micro_vm_names_its_option_and_how_to_try_without() -> None:
    boot = analyze([DATA / "microvm-probes.txt"])
    options = [line.options for line in boot.lines]
    assert options == [
        ("IP_VS",), ("IP_VS",), ("NET_9P",), ("BTRFS_FS",), ("MD_AUTODETECT",), ("MD_AUTODETECT",), ("MD_AUTODETECT",),
        ("GNSS",), ("VLAN_8021Q",), ("BRIDGE_NETFILTER",), ("VFIO",), ("TUN",), (),
    ]  # fmt: skip
    assert {one.option: one.command for one in boot.unused} == {
        name: f"vmtailor boot BUNDLE --try {name}=n"
        for name in (
            "IP_VS", "NET_9P", "BTRFS_FS", "MD_AUTODETECT", "GNSS", "VLAN_8021Q", "BRIDGE_NETFILTER", "VFIO", "TUN",
        )
    }  # fmt: skip
    spots = {spot.name.removeprefix("after: ")[:4]: spot.options for spot in boot.hotspots}
    assert spots["tun:"] == ("TUN",) and spots["Btrf"] == ("BTRFS_FS",) and spots["md: "] == ("MD_AUTODETECT",)
    assert "vmtailor boot BUNDLE --try BTRFS_FS=n" in boot_page(boot, "x")


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("loop: module loaded", "BLK_DEV_LOOP"),
        ("fuse: init (API version 7.41)", "FUSE_FS"),
        ("sctp: Hash tables configured (bind 1024/1024)", "IP_SCTP"),
        ("usbcore: registered new interface driver usbfs", "USB"),
        ("e1000e: Intel(R) PRO/1000 Network Driver", "E1000E"),
        ("PPP generic driver version 2.4.2", "PPP"),
        ("Initializing XFRM netlink socket", "XFRM_USER"),
        ("gre: GRE over IPv4 demultiplexor driver", "NET_IPGRE_DEMUX"),
        ("i8042: PNP: No PS/2 controller found.", "SERIO_I8042"),
        ("virtio_blk virtio0: 1/0/0 default/read/poll queues", "VIRTIO_BLK"),
        ("EXT4-fs (vda): mounted filesystem 0f-1a ro with ordered data mode. Quota mode: none.", "EXT4_FS"),
        ("SELinux:  Initializing.", "SECURITY_SELINUX"),
        ("raid6: avx2x4   gen() 23456 MB/s", "RAID6_PQ"),
    ],
)
def test_lines_of_other_logs_name_their_options(line: str, option: str) -> None:
    origin = index().origin(line, "6.12.8")
    assert origin is not None and origin.options == (option,)


@pytest.mark.parametrize(
    "line",
    [
        "systemd[1]: Mounted /sys/kernel/debug.", "dracut-initqueue[301]: Timeout", "registered", "probe", "", "    ",
        "osal_write32:48: [w] reg: 0x18, val: 0x0", "foo bar: failed", "Welcome to Debian GNU/Linux 12 (bookworm)!",
        "vendor_drv 0000:01:00.0: probe done", "[  OK  ] Started cron.service",
        "mount: /dev/vda: can't read superblock",
    ],
)  # fmt: skip
def test_lines_of_programs_and_unknown_drivers_have_no_option(line: str) -> None:
    origin = index().origin(line, "6.12.8")
    assert origin is None


def unused(boot: Timeline) -> list[str]:
    return [one.option for one in boot.unused]


def test_what_another_line_shows_at_work_is_not_listed(tmp_path: Path) -> None:
    said = ("Btrfs loaded, zoned=no, fsverity=no", "loop: module loaded", "fuse: init (API version 7.41)")
    assert unused(boot_of(tmp_path, *said)) == ["BTRFS_FS", "BLK_DEV_LOOP", "FUSE_FS"]
    for line, left in (
        ("BTRFS info (device vda2): using free space tree", ["BLK_DEV_LOOP", "FUSE_FS"]),
        ("Kernel command line: root=/dev/vda rootfstype=btrfs", ["BLK_DEV_LOOP", "FUSE_FS"]),
        ("loop0: detected capacity change from 0 to 8", ["BTRFS_FS", "FUSE_FS"]),
        ("systemd[1]: Mounting sys-fs-fuse-connections.mount", ["BTRFS_FS", "BLK_DEV_LOOP"]),
    ):
        assert unused(boot_of(tmp_path, *said, line)) == left, line


def test_a_configuration_beside_the_log_is_believed(tmp_path: Path) -> None:
    said = ("Btrfs loaded, zoned=no, fsverity=no", "raid6: skipped pq benchmark and selected avx2x4")
    boot = boot_of(tmp_path, *said, config="CONFIG_BTRFS_FS=m\nCONFIG_RAID6_PQ=y\n")
    assert "BTRFS_FS" not in unused(boot)  # a module that someone loaded


def test_an_option_that_another_selects_says_so(tmp_path: Path) -> None:
    said = ("pps_core: LinuxPPS API ver. 1 registered", "PTP clock support registered")
    boot = boot_of(tmp_path, *said)
    assert {one.option: one.held_by for one in boot.unused} == {"PPS": ("PTP_1588_CLOCK",), "PTP_1588_CLOCK": ()}
    assert unused(boot_of(tmp_path, *said, "ptp ptp0: new virtual clock ptp1")) == []  # what selects it is at work


def test_the_index_is_quick_and_small() -> None:
    assert len(resources.files("vmtailor").joinpath("data", "messages", "kernel.xz").read_bytes()) < 2_000_000
    lines = [row.split("\t")[-1] for row in (DATA / "kernel_lines.tsv").read_text().splitlines() if row[:1] != "#"]
    index().origin("warm up")
    begun = time.process_time()
    for line in lines:
        index().origin(line)
    assert (time.process_time() - begun) / len(lines) < 0.002  # seconds a line


def test_lines_that_were_judged_by_hand_have_the_right_option() -> None:
    """Each row: version, the options that are right (`-`: every kernel has it; `?`: none can be known), the line."""
    rows = [row.split("\t", 2) for row in (DATA / "kernel_lines.tsv").read_text().splitlines() if row[:1] != "#"]
    assert len(rows) == 200
    named = wrong = 0
    for version, right, line in rows:
        origin = index().origin(line, version or None)
        if origin is not None:
            named += 1
            wrong += ("|".join(origin.options) or "-") not in right.split(",")
    assert named >= 0.8 * len(rows)
    assert wrong <= 0.05 * named
