# SPDX-License-Identifier: Apache-2.0
"""Ordinary logs: no initcall_debug, from boards, servers, journals, mails and the tools of user space."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import DATA, codes, timeline_of, times, unit

from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import Timeline

CORPUS = DATA / "corpus"


def said(timeline: Timeline, code: str) -> str:
    """The text of its one warning of that code."""
    (text,) = [w.text for w in timeline.warnings if w.code == code]
    return text


def test_the_legend_of_a_drawing_is_no_unit() -> None:
    timeline = analyze([CORPUS / "plot-pi4kodi.svg"])
    names = {u.name for u in timeline.units}
    assert not names & {"Activating", "Active", "Deactivating", "Loading unit files", "Generators"}
    assert "systemd-update-utmp-runlevel.service" in names
    # Title: "… (Linux 4.19.118-v7l+ #1311 SMP …) arm " with nothing behind; "graphical.target reached after 6.562s".
    assert (timeline.kernel.version, timeline.kernel.arch, timeline.kernel.hypervisor) == (
        "4.19.118-v7l+",
        "arm",
        None,
    )
    assert times(timeline) == {
        "kernel": (0, 2_637_000),
        "userspace": (2_637_000, 9_242_000),
        "ready": (9_199_000, 9_199_000),
    }


WHOLE = "Startup finished in 1.842s (kernel) + 1.466s (initrd) + 29.230s (userspace) = 32.540s."
ENCODED = "Startup finished in 1.842s (kernel) + 1.466s (initrd) + =\n29.230s (userspace) =3D 32.540s.\n"
WRAPPED = "Startup finished in 1.842s (kernel) + 1.466s (initrd) +\n29.230s (userspace) = 32.540s.\n"


@pytest.mark.parametrize(
    "text",
    [
        (CORPUS / "journal-quoted-printable.txt").read_text(),
        ENCODED,
        "systemd[1]: " + ENCODED,
        "systemd[1]: " + ENCODED.replace("\n", "\r\n"),
        "Jun 26 10:00:01 host systemd[1]: " + ENCODED + "Jun 26 10:00:02 host login[2]: uid=3D0\n",
        # A header of its own "=" signs, and one that says nothing.
        "From: a\nContent-Type: text/plain; charset=utf-8; format=flowed\n\nsystemd[1]: " + ENCODED,
        "Content-Type: x; a=b\nContent-Transfer-Encoding: Quoted-Printable\n\na=b\nsystemd[1]: " + ENCODED,
        WRAPPED,
        "> systemd[1]: " + WRAPPED.replace("\n29", "\n> 29"),
        "[   32.600000] systemd[1]: " + WRAPPED,
        "[   32.600000] systemd[1]: " + WHOLE + "\n",
    ],
)
def test_a_total_that_is_printed_counts(tmp_path: Path, text: str) -> None:
    timeline = timeline_of(tmp_path, text)
    assert timeline.total_us == 32_540_000
    assert times(timeline)["userspace"] == (3_308_000, 32_538_000)
    assert times(timeline)["ready"] == (32_540_000, 32_540_000)
    assert "cut off after their last digit" in said(timeline, "sum-differs")  # 1.842 + 1.466 + 29.230 = 32.538


def test_a_part_that_is_missing_is_said(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, "Startup finished in 1.842s (kernel) + 29.230s (userspace) = 32.540s\n")
    assert timeline.total_us == 32_540_000 and "a part is missing" in said(timeline, "sum-differs")


def test_half_of_systemds_line_is_no_total(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, "systemd[1]: Startup finished in 1.842s (kernel) + 1.466s (initrd) +\n")
    assert (timeline.kernel_us, timeline.total_us) == (1_842_000, None)


COMMAND = "BOOT_IMAGE=/vmlinuz-6.1.0 root=UUID=f6e6e7be-7dbe-455a-b5a1-78f7c49a6542 ro quiet splash"


@pytest.mark.parametrize(
    "text",
    [
        f"[    0.000000] Command line: {COMMAND}\n",
        f"[    0.000000] Command line: {COMMAND}\n".replace(" quiet", " \nquiet"),
        f"[    0.000000] Kernel command line: {COMMAND}\n".replace(" ro", "\nro").replace(" splash", "\nsplash"),
        f"[    0.000000] Command line: {COMMAND}\n".replace("=", "=3D").replace("quiet", "=\nquiet"),
        f"[    0.000000] Command line: {COMMAND}\n".replace("=", "=3D").replace("quiet", "qu=\niet"),
    ],
)
def test_a_command_line_goes_over_soft_breaks(tmp_path: Path, text: str) -> None:
    log = f"[    0.000000] Linux version 6.1.0 (gcc)\n{text}[    1.000000] Run /sbin/init as init process\n"
    assert timeline_of(tmp_path, log).kernel.command_line == COMMAND


def test_what_follows_a_whole_command_line_is_no_part_of_it(tmp_path: Path) -> None:
    log = (
        f"[    0.000000] Linux version 6.1.0 (gcc)\n[    0.000000] Command line: {COMMAND}\n"
        "[    0.000000] Memory: 4096K\nsome console's own words\n[    1.000000] Run /sbin/init as init process\n"
    )
    assert timeline_of(tmp_path, log).kernel.command_line == COMMAND


def test_without_lines_where_calls_begin_no_time_counts_twice(tmp_path: Path) -> None:
    """Filtered to `returned`: what lies before such a line is the initcall's, and only the rest a silence."""
    log = (
        "[    0.000000] Linux version 6.1.0 (gcc)\n"
        "[    0.100000] clocksource: Switched to clocksource tsc\n"
        "[    0.300000] initcall one_init+0x0/0x10 returned 0 after 180000 usecs\n"
        "[    0.700000] initcall two_init+0x0/0x10 returned 0 after 100000 usecs\n"
        "[    0.950000] initcall outer_init+0x0/0x10 returned 0 after 245000 usecs\n"
        "[    1.000000] Run /sbin/init as init process\n"
    )
    timeline = timeline_of(tmp_path, log)
    spots = {(h.kind, re.sub(r".*initcall (\w+)\+.*", r"\1", h.name)): h for h in timeline.hotspots}
    assert spots["initcall", "one_init"].exclusive_us == 180_000
    assert spots["gap", "one_init"].exclusive_us == 400_000 - 100_000  # 0.3 … 0.7, the last 0.1 of it two_init's
    assert spots["gap", "outer_init"].exclusive_us == 50_000
    assert sum(h.exclusive_us for h in timeline.hotspots) <= 1_000_000


def test_a_loaders_stamps_before_the_kernels_are_one_boot() -> None:
    timeline = analyze([CORPUS / "opi-rv2-bootlog.txt"])
    # Lines 7, `[   0.114] DDR type`, and 117, `[   9.616]    Loading Device Tree`, on the loader's clock.
    assert times(timeline) == {"loader": (-9_502_000, 0), "kernel": (0, None)}
    assert "several-boots" not in codes(timeline)
    assert timeline.kernel.version == "6.6.63-ky"


LOADER = (
    "[0.000000 0.000000] U-Boot SPL 2023.01 (Jan 01 2023)\n"
    "[0.100000 0.100000] [   0.114] DDR type LPDDR4X\n"
    "[1.500000 1.400000] U-Boot 2023.01 (Jan 01 2023)\n"
    "[5.900000 4.400000] Starting kernel ...\n"
)


def test_a_capture_whose_clock_is_reset_keeps_its_loader(tmp_path: Path) -> None:
    """`grabserial -m "Starting kernel"`: the line after that one counts from it."""
    log = LOADER + (
        "[0.200000 0.200000] [    0.000000] Booting Linux on physical CPU 0x0\n"
        "[0.201000 0.001000] [    0.000000] Linux version 5.10.1 (gcc)\n"
        "[1.250000 1.049000] [    1.050000] Run /sbin/init as init process\n"
        "[3.250000 2.000000] buildroot login: \n"
    )
    timeline = timeline_of(tmp_path, log)
    # The kernel's zero is at 5.9 + 0.2; the loader began 6.1 s before it, and handed over 0.2 s before it.
    assert times(timeline) == {
        "loader": (-6_100_000, -200_000),
        "kernel": (0, 1_050_000),
        "userspace": (1_050_000, 3_050_000),
        "ready": (3_050_000, 3_050_000),
    }
    assert timeline.total_us == 9_150_000
    assert "5.900000 s" in said(timeline, "clock-reset")


def test_two_boots_of_a_capture_have_a_loader_each(tmp_path: Path) -> None:
    def boot(at: float) -> str:
        rows = [
            (0, "U-Boot SPL 2023.01 (Jan 01 2023)"),
            (1, "U-Boot 2023.01 (Jan 01 2023)"),
            (2, "Starting kernel ..."),
            (2.5, "[    0.000000] Linux version 5.10.1 (gcc)"),
            (3.5, "[    1.000000] Run /sbin/init as init process"),
            (5.5, "buildroot login: "),
        ]
        return "".join(f"[{at + since:.6f} 0.100000] {text}\n" for since, text in rows)

    log = boot(0) + "[20.000000 14.500000] [   17.500000] reboot: Restarting system\n" + boot(21)
    timeline = timeline_of(tmp_path, log)
    assert "2 boots" in said(timeline, "several-boots")
    assert times(timeline)["loader"] == (-2_500_000, -500_000) and timeline.total_us == 5_500_000


def test_a_loaders_own_clock_without_the_kernels_first_lines(tmp_path: Path) -> None:
    """`quiet`: the kernel's first line on the console is a late one."""
    log = (
        "U-Boot SPL 2023.01 (Jan 01 2023)\n[   0.114] DDR\n[   0.400] spl\nU-Boot 2023.01\n[   0.700] hello\n"
        "Starting kernel ...\n[    2.512345] Freeing unused kernel memory: 1024K\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert (timeline.phases[0].name, timeline.phases[0].start_us) == ("loader", 114_000 - 700_000)
    assert "several-boots" not in codes(timeline)


@pytest.mark.parametrize("log", [LOADER, "U-Boot SPL 2023.01\n[   0.114] DDR\n[   0.400] spl\n"])
def test_a_loader_alone_is_no_kernel(tmp_path: Path, log: str) -> None:
    timeline = timeline_of(tmp_path, log)
    assert [(p.name, p.end_us) for p in timeline.phases] == [("loader", None)]
    assert timeline.kernel_us is None and timeline.total_us is None and "phase-open" in codes(timeline)


def test_whole_seconds_resolve_no_small_thing() -> None:
    timeline = analyze([CORPUS / "k3-dmesg.txt"])
    # 10:17:44 the first line, :51 `Run /init`, :52 systemd.
    assert times(timeline) == {"kernel": (0, 7_000_000), "initrd": (7_000_000, None), "userspace": (8_000_000, None)}
    assert "not resolved" in timeline.phases[1].source
    assert timeline.kernel_us == 7_000_000 and timeline.total_us is None
    assert timeline.hotspots == () and timeline.kernel.clocksource_switch_us is None
    assert all(u.duration_us is None for u in timeline.units)


def test_a_kernel_within_one_second_has_no_length(tmp_path: Path) -> None:
    log = (
        "[Fri Mar  6 13:18:05 2026] Linux version 6.1.0 (gcc)\n"
        "[Fri Mar  6 13:18:05 2026] Run /sbin/init as init process\n"
        "[Fri Mar  6 13:18:15 2026] systemd[1]: Starting D-Bus...\n"
        "[Fri Mar  6 13:18:16 2026] systemd[1]: Started D-Bus.\n"
        "[Fri Mar  6 13:18:25 2026] systemd[1]: Reached target Multi-User System.\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert times(timeline) == {"kernel": (0, None), "userspace": (0, 20_000_000), "ready": (20_000_000, 20_000_000)}
    assert (timeline.kernel_us, timeline.total_us) == (None, 20_000_000)
    assert [(h.kind, h.exclusive_us) for h in timeline.hotspots if h.kind != "gap"] == []
    assert [(u.name, u.start_us, u.duration_us) for u in timeline.units] == [("D-Bus", 10_000_000, None)]


def test_seconds_beside_the_kernels_own_stamps(tmp_path: Path) -> None:
    """A journal: the kernel's lines are exact, those of systemd are known to the second."""
    log = (
        "Mar 06 13:18:05 box kernel: [    0.000000] Linux version 6.1.0 (gcc)\n"
        "Mar 06 13:18:05 box kernel: [    1.200000] Run /sbin/init as init process\n"
        "Mar 06 13:18:06 box systemd[1]: Reached target Multi-User System.\n"
        "Mar 06 13:18:06 box kernel: [    1.700000] a driver\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert times(timeline)["kernel"] == (0, 1_200_000)
    assert times(timeline)["userspace"] == (1_200_000, None)
    assert "clock-backwards" not in codes(timeline)


def test_lost_first_lines_make_no_kernel_of_nothing(tmp_path: Path) -> None:
    log = (
        "[    3.200000] Run /sbin/init as init process\n[    9.000000] systemd[1]: Reached target Multi-User System.\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert times(timeline) == {
        "kernel": (None, 3_200_000),
        "userspace": (3_200_000, 9_000_000),
        "ready": (9_000_000, 9_000_000),
    }
    assert (timeline.kernel_us, timeline.total_us) == (None, None)
    assert "begins at 3.200000 s" in said(timeline, "first-lines-lost")


def test_a_kernel_alone_is_no_whole_boot(tmp_path: Path) -> None:
    log = "[    0.000000] Linux version 6.1.0 (gcc)\n[    1.200000] Kernel panic - not syncing: VFS: Unable to mount\n"
    timeline = timeline_of(tmp_path, log)
    assert (timeline.kernel_us, timeline.total_us) == (1_200_000, None)


def test_what_cloud_init_ran_lies_in_its_stage() -> None:
    timeline = analyze([CORPUS / "cloud-init-analyze.txt"])
    stage = unit(timeline, "cloud-init:modules-config")
    # Lines 6 to 12: the first at 3.322, 2.013 s in all, of which 1 + 1299 + 52 + 478 + 114 ms are in the lines between.
    assert (stage.start_us, stage.duration_us, stage.exclusive_us) == (3_322_000, 2_013_000, 2_013_000 - 1_944_000)
    locale = unit(timeline, "cloud-init:modules-config/config-locale ran successfully")
    assert (locale.start_us, locale.end_us, locale.exclusive_us) == (3_326_000, 4_625_000, 1_299_000)
    for one in timeline.units:
        around = unit(timeline, one.name.partition("/")[0])
        assert around.start_us is not None and one.start_us is not None
        assert around.start_us <= one.start_us and (one.end_us or 0) <= (around.end_us or 0)


SHOW = (
    "-- Boot Record 01 --\nStarting stage: init-local\n|`->no cache found @00.00600s +00.00200s\n"
    "Finished stage: (init-local) 00.50000 seconds\n\n"
    "Starting stage: modules-config\n|`->config-locale ran successfully @03.32600s +01.29900s\n"
    "Finished stage: (modules-config) 02.01300 seconds\n\nTotal Time: 2.51300 seconds\n\n1 boot records analyzed\n"
)
BLAME = (
    "-- Boot Record 01 --\n     01.29900s (modules-config/config-locale)\n     00.00200s (init-local/check-cache)\n\n"
    "1 boot records analyzed\n"
)


def test_several_outputs_of_one_boot_are_one(tmp_path: Path) -> None:
    show = timeline_of(tmp_path, SHOW)
    assert [(u.name, u.start_us, u.duration_us, u.exclusive_us) for u in show.units] == [
        ("cloud-init:init-local", 0, 500_000, 498_000),  # the first stage: the times count from its start
        ("cloud-init:init-local/no cache found", 6_000, 2_000, 2_000),
        ("cloud-init:modules-config", 3_326_000, 2_013_000, 714_000),
        ("cloud-init:modules-config/config-locale ran successfully", 3_326_000, 1_299_000, 1_299_000),
    ]
    for texts in ((SHOW, BLAME), (BLAME, SHOW), (SHOW + BLAME,), (BLAME + SHOW,)):
        both = timeline_of(tmp_path, *texts)
        assert both.units == show.units and "several-boots" not in codes(both)
    again = timeline_of(tmp_path, SHOW.replace("Record 01", "Record 02").replace("1.299", "1.111") + BLAME)
    assert "2 boot records" in said(again, "several-boots")


def test_a_journals_wall_clock_does_not_time_what_came_before_it(tmp_path: Path) -> None:
    """journalctl -o short-precise: the kernel's 10 s were read in 0.1 s, when the journal began."""
    log = (
        "Nov 23 02:00:40.000000 vm kernel: Linux version 6.12.1 (gcc)\n"
        "Nov 23 02:00:40.100000 vm kernel: Run /sbin/init as init process\n"
        "Nov 23 02:00:40.200000 vm systemd[1]: Starting a.service - A...\n"
        "Nov 23 02:00:40.300000 vm systemd-journald[143]: Journal started\n"
        "Nov 23 02:00:41.000000 vm systemd[1]: Finished a.service - A.\n"
        "Nov 23 02:00:42.000000 vm systemd[1]: Starting b.service - B...\n"
        "Nov 23 02:00:44.500000 vm systemd[1]: Finished b.service - B.\n"
        "Nov 23 02:00:50.000000 vm systemd[1]: "
    )
    timeline = timeline_of(tmp_path, log + "Startup finished in 10s (kernel) + 15s (userspace) = 25s.\n")
    assert times(timeline)["kernel"] == (0, 10_000_000) and timeline.total_us == 25_000_000
    # 02:00:50 is 25 s on the kernel's clock: b began at 17 s. Of a only the end is known.
    assert [(u.name, u.start_us, u.duration_us) for u in timeline.units] == [("b.service", 17_000_000, 2_500_000)]
    without = timeline_of(tmp_path, log + "Listening on a socket.\n")
    assert times(without) == {"kernel": (None, None)} and without.units == [] and without.hotspots == ()
    assert without.kernel_us is None and without.total_us is None and "arrival-times" in codes(without)


def test_lines_from_before_the_clock_ran_do_not_place_the_others(tmp_path: Path) -> None:
    """The kernel stamps 0 until its clock runs, here for 0.9 s of the capture's."""
    log = (
        "[0.000001 0.000001] [    0.000000] Linux version 6.12.1 (gcc)\n"
        "[2.100000 0.017712] [    1.200000] clocksource: Switched to clocksource tsc\n"
        "[4.110000 0.012277] [    3.200000] Run /sbin/init as init process\n"
        "[6.900000 0.000007] small login: \n"
        "[7.800000 0.003362] [    6.900000] reboot: Power down\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert times(timeline)["ready"] == (6_000_000, 6_000_000) and "clock-backwards" not in codes(timeline)
