# SPDX-License-Identifier: Apache-2.0
"""What comes again: another boot has two signs, and all else is part of the boot in which it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bootlog.reading import codes, timeline_of, times

from vmtailor.analysis.timeline.boot_timeline import analyze

KERNEL = (
    "[    0.000000] Booting Linux on physical CPU 0x0\n"
    "[    0.000000] Linux version 5.15.0 (oe) #1\n"
    "[    0.000012] sched_clock: 32 bits at 24MHz\n"
    "[    0.100000] devtmpfs: initialized\n"
    "[    1.000000] mmc0: new high speed SDHC card at address aaaa\n"
    "[    2.500000] Run /sbin/init as init process\n"
)
LATER = "[    4.200491] random: dd: uninitialized urandom read (512 bytes read)\n"


def relayed(log: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in log.splitlines())


@pytest.mark.parametrize(
    "again",
    [
        relayed(KERNEL, "Jan  1 00:00:03 buildroot kern.info kernel: "),
        relayed(KERNEL.split("[    0.000012]", maxsplit=1)[0], "Jan  1 00:00:03 buildroot kern.info kernel: "),
        relayed(KERNEL, "<6>Jan  1 00:00:03 board kernel: "),
        relayed(KERNEL * 3, "Mar  6 13:18:05 board kernel: "),
        "root@board:~# dmesg\n" + KERNEL,
        "root@board:~# dmesg | head\n" + "".join(KERNEL.splitlines(keepends=True)[:4]),
    ],
    ids=["klogd", "klogd, its first lines", "with a priority", "of a whole syslog", "dmesg", "dmesg | head"],
)
def test_a_log_that_is_printed_again_is_one_boot(tmp_path: Path, again: str) -> None:
    timeline = timeline_of(tmp_path, "Starting kernel ...\n\n" + KERNEL + "Starting logging: OK\n" + again + LATER)
    assert times(timeline)["kernel"] == (0, 2_500_000) and timeline.shown_us == 4_200_491
    assert "several-boots" not in codes(timeline)


def test_a_copy_with_lines_that_the_console_did_not_show_is_no_boot(tmp_path: Path) -> None:
    more = "".join(f"[    0.20000{at}] clk: parent {at} of uart\n" for at in range(5))
    copy = KERNEL.replace("[    1.000000]", f"{more}[    1.000000]")
    timeline = timeline_of(tmp_path, KERNEL + copy + LATER)
    assert times(timeline)["kernel"] == (0, 2_500_000) and "several-boots" not in codes(timeline)


@pytest.mark.parametrize(
    "smm",
    [
        "coreboot-e6103af7 Mon Sep 12 14:38:59 UTC 2022 smm starting (log level: 8)...\nSMI# #1\n",
        "OpenSBI v1.3\n",
        "NOTICE:  BL2: a message of a debug build\n",
    ],
)
def test_firmware_that_speaks_within_a_kernel_is_no_reset(tmp_path: Path, smm: str) -> None:
    head, tail = KERNEL[: KERNEL.index("[    1.0")], KERNEL[KERNEL.index("[    1.0") :]
    for log in (head + smm + tail, head + smm * 2 + tail, KERNEL + smm):
        timeline = timeline_of(tmp_path, log)
        assert times(timeline)["kernel"] == (0, 2_500_000) and "several-boots" not in codes(timeline)


def test_a_program_that_prints_the_kernels_name_is_no_boot(tmp_path: Path) -> None:
    """`cat /proc/version` on a console: in a log with stamps, and in one without any."""
    named = "Linux version 5.15.0 (oe) #1\n"
    timeline = timeline_of(tmp_path, KERNEL + "init: starting\n" + named + LATER)
    assert times(timeline)["kernel"] == (0, 2_500_000) and "several-boots" not in codes(timeline)
    bare = "".join(line[15:] + "\n" for line in KERNEL.splitlines())
    assert "several-boots" not in codes(timeline_of(tmp_path, bare + named + "login: root\n"))
    assert "several-boots" in codes(timeline_of(tmp_path, bare + "reboot: Restarting system\n" + bare))
    assert "several-boots" in codes(timeline_of(tmp_path, bare + "U-Boot 2021.04 (Jan 01 2022)\n" + bare))


OTHER = KERNEL.replace("[    0.000012]", "[    0.000013]").replace("0.100", "0.140").replace("2.500", "2.800")


@pytest.mark.parametrize(
    ("between", "second"),
    [
        ("", OTHER),
        ("", OTHER.replace("5.15.0", "5.16.0")),
        ("[   17.500000] reboot: Restarting system\n", KERNEL),
        ("[   20.000000] kexec_core: Starting new kernel\n", KERNEL),
        ("U-Boot SPL 2023.01 (Jan 01 2023)\nU-Boot 2023.01 (Jan 01 2023)\nStarting kernel ...\n", KERNEL),
        ("SeaBIOS (version rel-1.16.2)\n", OTHER),
        ("[    3.000000] Kernel panic - not syncing: x\nU-Boot SPL 2021.04 (Jan 01 2022)\n", OTHER),
    ],
    ids=["clock and first line", "another kernel", "reboot", "kexec", "loader", "firmware", "panic"],
)
def test_two_signs_make_another_boot(tmp_path: Path, between: str, second: str) -> None:
    path = tmp_path / "log"
    path.write_text(KERNEL + between + second)
    assert "several-boots" in codes(analyze([path]))
    assert analyze([path], 1).kernel_us == 2_500_000
    assert analyze([path], 2).kernel_us == (2_800_000 if second != KERNEL else 2_500_000)


def test_a_journal_without_stamps_of_the_kernel_has_several_boots(tmp_path: Path) -> None:
    def boot(at: str, kernel: int) -> str:
        return (
            f"Mar 03 {at}:00 vm kernel: Linux version 5.10.0-21-amd64 (debian) #1 SMP\n"
            f"Mar 03 {at}:01 vm systemd-journald[200]: Journal started\n"
            f"Mar 03 {at}:09 vm systemd[1]: Startup finished in {kernel}.500s (kernel) + 8.000s (userspace) = "
            f"{kernel + 8}.500s.\n"
        )

    down = "Mar 03 12:00:05 vm systemd[1]: Reached target Reboot.\n"
    down += "Mar 03 12:00:06 vm systemd-journald[2]: Journal stopped\n"
    mark = "-- Boot 8a3c0b2e4d5f4a5b8c7d6e5f4a3b2c1d --\n"
    for between in (down, mark, down + mark, "-- Reboot --\n"):
        timeline = timeline_of(tmp_path, boot("10:00", 1) + between + boot("12:01", 2))
        assert (timeline.kernel_us, timeline.total_us) == (2_500_000, 10_500_000)
        assert "several-boots" in codes(timeline)


REEXECUTED = (
    "[    0.000000] Linux version 6.1.0 (gcc) #1 SMP\n[    1.266132] Run /init as init process\n"
    "[    2.581371] systemd[1]: Inserted module 'autofs4'\n"
    "[    2.605997] systemd[1]: systemd 247.3-7 running in system mode. (+PAM)\n"
    "[    2.976552] systemd[1]: Started Journal Service.\n"
)


def test_a_service_manager_that_is_executed_anew_ends_nothing(tmp_path: Path) -> None:
    finished = (
        "[   22.063704] cloud-init[1172]: Cloud-init v. 22.4.2 finished at Tue, 03 Jun 2025 17:37:04 +0000. Datasource "
        "DataSourceAzure.  Up 22.05 seconds\n[   26.559922] apt-setup[1142]: Reading package lists...\n"
    )
    anew = "[  645.475092] systemd[1]: systemd 247.3-7 running in system mode. (+PAM)\n"
    for log in (REEXECUTED + finished + anew, REEXECUTED + anew.replace("645", " 12") + finished):
        timeline = timeline_of(tmp_path, log)
        assert times(timeline)["initrd"] == (1_266_132, 2_581_371)
        assert times(timeline)["ready"] == (22_063_704, 22_063_704)
        assert timeline.shown_us == 22_063_704


def test_a_soft_reboot_is_not_the_boot(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Linux version 6.8.0 (gcc) #1 SMP\n[    1.200000] Run /init as init process\n"
        "[    1.300000] systemd[1]: systemd 255 running in system mode (+PAM)\n"
        "[    1.350000] systemd[1]: Running in initrd.\n[    2.000000] systemd[1]: Switching root.\n"
        "[    2.300000] systemd[1]: systemd 255 running in system mode (+PAM)\n"
        "[    5.000000] systemd[1]: Reached target multi-user.target - Multi-User System.\n"
        "[  300.000000] systemd[1]: Soft-rebooting.\n"
        "[  301.000000] systemd[1]: systemd 255 running in system mode (+PAM)\n"
        "[  303.000000] systemd[1]: Reached target multi-user.target - Multi-User System.\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert times(timeline)["initrd"] == (1_200_000, 2_000_000)
    assert times(timeline)["userspace"] == (2_000_000, 5_000_000) and timeline.total_us == 5_000_000


INITRD = (
    "[    0.000000] Linux version 3.10.0 (gcc) #1 SMP\n[    0.922618] Freeing unused kernel memory: 1684k freed\n"
    "[    0.931044] systemd[1]: systemd 219 running in system mode. (+PAM)\n"
    "[    0.946716] systemd[1]: Running in initial RAM disk.\n\n"
    "Welcome to CentOS Linux 7 (Core) dracut-033-463.el7_3.2 (Initramfs)!\n\n"
    "[    0.986239] systemd[1]: Created slice Root.\n"
)


@pytest.mark.parametrize(
    ("sign", "end"),
    [
        ("         Starting Switch Root...\n[    9.680000] a line\n", 9_680_000),
        ("[    9.680000] systemd-journald[105]: Received SIGTERM from PID 1 (systemd).\n", 9_680_000),
        ("\nWelcome to CentOS Linux 7 (Core)!\n\n[    9.900000] a line\n", 9_900_000),
        ("[    9.700000] systemd[1]: Starting Switch Root...\n", 9_700_000),
        ("[    9.950000] systemd[1]: systemd 219 running in system mode. (+PAM)\n", 9_950_000),
    ],
)
def test_signs_of_a_root_that_is_switched_end_the_initial_ram_disk(tmp_path: Path, sign: str, end: int) -> None:
    timeline = timeline_of(tmp_path, INITRD + sign + "[   20.000000] last words\n")
    assert times(timeline)["initrd"] == (922_618, end) and times(timeline)["userspace"][0] == end


def test_recurrences_without_end_are_read_in_time(tmp_path: Path) -> None:
    """Each line goes back: a doubt is not raised for each of them."""
    log = KERNEL + "[    9.000000] x\n[    0.050000] y\n" * 20_000
    assert times(timeline_of(tmp_path, log))["kernel"] == (0, 2_500_000)
