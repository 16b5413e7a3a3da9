# SPDX-License-Identifier: Apache-2.0
"""Ordinary logs: no initcall_debug, from boards, servers, journals, mails and the tools of user space."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import DATA, timeline_of, times

from vmtailor.analysis.timeline.analyze import analyze
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
