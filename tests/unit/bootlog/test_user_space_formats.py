# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - lines of other programs are as long as they are
"""systemd-analyze, bootcharts of both makes, ftrace, cloud-init: and several files joined on one clock."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import DATA, call, codes, timeline_of, times, unit

from vmtailor.analysis.bootlog.milestones import parse_span
from vmtailor.model.boots.timeline import DurationSource

TIME = (
    "Startup finished in 11.035s (firmware) + 1.481s (loader) + 2.093s (kernel) + 1.6s (initrd) + 1min 9.6s "
    "(userspace) = 1min 25.811s\n"
    "graphical.target reached after 1min 9.5s in userspace.\n"
)
BLAME = (
    "1min 1.200s docker.service\n     882ms cloud-init.service\n      64ms systemd-udev-trigger.service\n"
    "       2us dev-hugepages.mount\n"
)
CHAIN = (
    'The time when unit became active or started is printed after the "@" character.\n'
    'The time the unit took to start is printed after the "+" character.\n\n'
    "graphical.target @1min 9.5s\n└─multi-user.target @1min 9.5s\n  └─docker.service @8.300s +1min 1.200s\n"
    "    └─basic.target @8.200s\n"
)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1min 9.6s", 69_600_000),
        ("882ms", 882_000),
        ("2.093s", 2_093_000),
        ("1h 2min", 3_720_000_000),
        ("3us", 3),
        ("1.5ms", 1500),
        ("12", None),
        ("", None),
        ("fast", None),
    ],
)
def test_time_spans(text: str, us: int | None) -> None:
    assert parse_span(text) == us


def test_systemd_analyze_time(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, TIME)
    assert times(timeline) == {
        "firmware": (-12_516_000, -1_481_000),
        "loader": (-1_481_000, 0),
        "kernel": (0, 2_093_000),
        "initrd": (2_093_000, 3_693_000),
        "userspace": (3_693_000, 73_293_000),
        "ready": (73_193_000, 73_193_000),
    }
    assert timeline.total_us == 85_811_000  # "= 1min 25.811s"; its parts are 85.809
    assert timeline.kernel_us == 2_093_000


def test_systemd_analyze_blame(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, BLAME)
    assert [(u.name, u.duration_us, u.start_us) for u in timeline.units] == [
        ("docker.service", 61_200_000, None),
        ("cloud-init.service", 882_000, None),
        ("systemd-udev-trigger.service", 64_000, None),
        ("dev-hugepages.mount", 2, None),
    ]
    assert timeline.files[0].format == "systemd-analyze blame"
    assert {r.id for r in timeline.advice} >= {"slow-units", "cloud-init-none"}


def test_critical_chain_joins_blame_and_time(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, BLAME, CHAIN, TIME)
    docker = unit(timeline, "docker.service")
    assert (docker.start_us, docker.duration_us, docker.critical) == (3_693_000 + 8_300_000, 61_200_000, True)
    assert unit(timeline, "cloud-init.service").critical is False
    alone = timeline_of(tmp_path, CHAIN)
    assert unit(alone, "docker.service").start_us == 8_300_000
    assert "clock-relative" in codes(alone)


def test_plot_json(tmp_path: Path) -> None:
    rows = [
        {
            "name": "a.service",
            "activated": 3_000_000,
            "activating": 1_000_000,
            "time": 2_000_000,
            "deactivated": 0,
            "deactivating": 0,
        },
        {
            "name": "b.service",
            "activated": 4_000_000,
            "activating": 2_500_000,
            "time": 1_500_000,
            "deactivated": None,
            "deactivating": None,
        },
        {
            "name": "never.service",
            "activated": 0,
            "activating": 5_000_000,
            "time": None,
            "deactivated": 0,
            "deactivating": 0,
        },
    ]
    timeline = timeline_of(tmp_path, json.dumps(rows))
    first = unit(timeline, "a.service")
    assert (first.start_us, first.end_us, first.duration_us) == (1_000_000, 3_000_000, 2_000_000)
    # 1.0 … 2.5 alone, then b runs too: 1.5 s of its own; b is alone from 3.0 to 4.0.
    assert (first.exclusive_us, unit(timeline, "b.service").exclusive_us) == (1_500_000, 1_000_000)
    assert (unit(timeline, "never.service").start_us, unit(timeline, "never.service").duration_us) == (5_000_000, None)


def test_plot_svg(tmp_path: Path) -> None:
    svg = (
        '<?xml version="1.0" standalone="no"?>\n<svg width="880px" height="500px" version="1.1" xmlns="http://www.w3.org/2000/svg">\n'
        "<!-- This file is a systemd-analyze SVG file. It is best rendered in a   -->\n"
        '<text x="20" y="50">Startup finished in 1.500s (kernel) + 8.500s (userspace) = 10.000s</text>'
        '<text x="20" y="30">Debian GNU/Linux 12 (bookworm) vm (Linux 6.1.0-9-amd64 #1 SMP Debian 6.1.27-1) x86-64 kvm</text>'
        '<g transform="translate(20.000,100)">\n'
        '  <line class="sec5" x1="0.000" y1="0" x2="0.000" y2="200.000" />\n  <text class="sec" x="0.000" y="-5.000" >0.0s</text>\n'
        '  <text class="sec" x="500.000" y="-5.000" >5.0s</text>\n'
        '  <rect class="kernel" x="0.000" y="0.000" width="150.000" height="19.000" />\n'
        '  <text class="left" x="5.000" y="14.000">kernel</text>\n'
        '<g>\n  <rect class="activating" x="200.000" y="40.000" width="123.400" height="19.000" />\n'
        '  <rect class="active" x="323.400" y="40.000" width="600.000" height="19.000" />\n'
        '  <text class="left" x="205.000" y="54.000">a&amp;b.service (1.234s)</text>\n</g>\n'
        '<g>\n  <rect class="activating" x="210.000" y="60.000" width="0.000" height="19.000" />\n'
        '  <text class="left" x="215.000" y="74.000">x.target</text>\n</g>\n</g></svg>\n'
    )
    timeline = timeline_of(tmp_path, svg)
    one = unit(timeline, "a&b.service")
    assert (one.start_us, one.duration_us, one.duration_source) == (2_000_000, 1_234_000, DurationSource.REPORTED)
    assert unit(timeline, "x.target").start_us == 2_100_000
    assert times(timeline)["kernel"] == (0, 1_500_000)
    assert (timeline.kernel.version, timeline.kernel.arch, timeline.kernel.hypervisor) == (
        "6.1.0-9-amd64",
        "x86_64",
        "kvm",
    )


def tgz(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_a_bootchart_archive_says_what_the_folder_does(tmp_path: Path) -> None:
    chart = DATA / "bootchart"
    packed = tgz({f"bootchart/{f.name}": f.read_bytes() for f in chart.iterdir()})
    timeline = timeline_of(tmp_path, packed)
    assert timeline.total_us == 27_560_000  # as the chart: from the first process, 29, to the last sample, 2785
    assert len(timeline.processes) == 8


def test_bootchart2_with_taskstats_and_accounting(tmp_path: Path) -> None:
    pacct = struct.pack(
        "<BBHIIIIIIfHHHHHHHH16s", 0, 3, 0, 0, 0, 0, 77, 1, 1_700_000_005, 25.0, 3, 2, 0, 0, 0, 0, 0, 0, b"short"
    )
    members = {
        "header": b"version = bootchart2 0.14\nsystem.uname = Linux 3.16.0 #1 SMP Debian x86_64\n",
        "taskstats.log": b"100\n1 0 (systemd) 500000000 0 0\n50 1 (udevd) 10000000 0 0\n\n150\n1 0 (systemd) "
        b"900000000 0 0\n50 1 (udevd) 40000000 0 0\n\n",
        "proc_stat.log": b"100\ncpu  0 0 0 100 0 0 0\nbtime 1700000000\n\n150\ncpu  25 0 0 120 5 0 0\nbtime "
        b"1700000000\n\n",
        "kernel_pacct": pacct,
    }
    timeline = timeline_of(tmp_path, tgz(members))
    rows = {p.name: p for p in timeline.processes}
    assert (rows["systemd"].exclusive_us, rows["udevd"].exclusive_us) == (900_000, 40_000)
    assert (rows["short"].pid, rows["short"].start_us, rows["short"].duration_us, rows["short"].exclusive_us) == (
        77,
        5_000_000,
        250_000,
        50_000,
    )
    assert timeline.files[0].format == "bootchart2"
    assert (timeline.samples[0].user, timeline.samples[0].waiting) == (0.5, 0.1)


def test_systemd_bootchart_svg(tmp_path: Path) -> None:
    svg = (
        '<?xml version="1.0" standalone="no"?>\n<svg width="1600px" height="900px" version="1.1" xmlns="http://www.w3.org/2000/svg">\n'
        "<!-- This file is a bootchart SVG file. It is best rendered in a browser -->\n"
        '<!-- x="100.000000" y="20.000000" -->\n'
        '<text class="t2" x="20" y="50">System: Linux 4.19.0 #1 SMP x86_64</text>\n<text class="t2" x="20" y="95">Boot options: ro quiet</text>\n'
        '<text class="t2" x="20" y="125">Log start time: 1.250s</text>\n<text class="t2" x="20" y="140">Idle time: 8.500s</text>\n'
        "<!-- sshd [345] ppid=1 runtime=123.400ms -->\n"
        '  <rect class="ps" x="200.000" y="20.000" width="350.000" height="20.000" />\n'
        "<!-- tiny [346] ppid=1 runtime=0.100ms -->\n"
    )
    timeline = timeline_of(tmp_path, svg)
    sshd = next(p for p in timeline.processes if p.name == "sshd")
    assert (sshd.pid, sshd.ppid, sshd.start_us, sshd.duration_us, sshd.exclusive_us) == (
        345,
        1,
        3_250_000,
        3_500_000,
        123_400,
    )
    tiny = next(p for p in timeline.processes if p.name == "tiny")
    assert (tiny.start_us, tiny.exclusive_us) == (None, 100)
    assert times(timeline)["userspace"] == (1_250_000, 9_750_000)
    assert (timeline.kernel.version, timeline.kernel.arch, timeline.kernel.command_line) == (
        "4.19.0",
        "x86_64",
        "ro quiet",
    )


def test_ftrace_events(tmp_path: Path) -> None:
    trace = (
        "# tracer: nop\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
        "       swapper/0-1     [000] .....     0.100000: initcall_level: level=early\n"
        "       swapper/0-1     [000] .....     0.100100: initcall_start: func=outer_init+0x0/0x10\n"
        "       swapper/0-1     [000] .....     0.100200: initcall_start: func=inner_init+0x0/0x10\n"
        "       swapper/0-1     [000] .....     0.100300: initcall_finish: func=inner_init+0x0/0x10 ret=-19\n"
        "       swapper/0-1     [000] .....     0.100900: initcall_finish: func=outer_init+0x0/0x10 ret=0\n"
    )
    timeline = timeline_of(tmp_path, trace)
    outer, inner = call(timeline, "outer_init"), call(timeline, "inner_init")
    assert (outer.duration_us, outer.exclusive_us, outer.level, outer.returned) == (800, 700, "early", 0)
    assert (inner.duration_us, inner.returned, inner.duration_source) == (100, -19, DurationSource.TIME_STAMPS)


SHOW = """-- Boot Record 01 --
The total time elapsed since completing an event is printed after the "@" character.
The time the event takes is printed after the "+" character.

Starting stage: init-local
|`->no cache found @00.01700s +00.00200s
|`->found local data from DataSourceNoCloud @00.01900s +00.54600s
Finished stage: (init-local) 00.87700 seconds

Total Time: 0.87700 seconds

1 boot records analyzed
"""


def test_cloud_init_show_and_blame(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, SHOW)
    assert unit(timeline, "cloud-init:init-local").duration_us == 877_000
    found = unit(timeline, "cloud-init:init-local/found local data from DataSourceNoCloud")
    assert (found.start_us, found.duration_us) == (19_000, 546_000)
    blame = timeline_of(
        tmp_path,
        "-- Boot Record 01 --\n     00.80300s (modules-config/config-grub-dpkg)\n     00.64300s "
        "(init-network/config-resizefs)\n",
    )
    assert unit(blame, "cloud-init:modules-config/config-grub-dpkg").duration_us == 803_000


def test_cloud_init_dump_is_put_on_the_kernels_clock(tmp_path: Path) -> None:
    dump = [
        {
            "name": "init-local",
            "event_type": "start",
            "timestamp": 1_559_317_180.0,
            "description": "x",
            "origin": "cloudinit",
        },
        {
            "name": "init-local",
            "event_type": "finish",
            "timestamp": 1_559_317_180.5,
            "description": "x",
            "origin": "cloudinit",
        },
    ]
    alone = timeline_of(tmp_path, json.dumps(dump))
    assert (unit(alone, "cloud-init:init-local").start_us, unit(alone, "cloud-init:init-local").duration_us) == (
        0,
        500_000,
    )
    assert "clock-relative" in codes(alone)
    boot = (
        "-- Most Recent Boot Record --\n    Kernel Started at: 2019-05-31 15:39:34.500000\n"
        "    Kernel ended boot at: 2019-05-31 15:39:36.200000\n    Kernel time to boot (seconds): 1.7\n    "
        "Cloud-init start: 2019-05-31 15:39:40\n"
    )
    joined = timeline_of(tmp_path, boot, json.dumps(dump))
    assert times(joined)["kernel"] == (0, 1_700_000)
    assert unit(joined, "cloud-init:init-local").start_us == 5_500_000


PLOT = [
    {"name": "a.service", "activated": 4_800_000, "activating": 2_000_000, "time": 2_800_000, "deactivated": 0},
    {"name": "cloud-init-local.service", "activated": 5_900_000, "activating": 4_900_000, "time": 1_000_000,
     "deactivated": 0},
]  # fmt: skip


def test_stages_are_placed_where_their_service_began_and_take_nothing_from_units(tmp_path: Path) -> None:
    plot = json.dumps(PLOT)
    alone, joined = timeline_of(tmp_path, TIME, plot), timeline_of(tmp_path, TIME, plot, SHOW)
    assert unit(joined, "cloud-init:init-local").start_us == 4_900_000 and "clock-relative" not in codes(joined)
    for name in ("a.service", "cloud-init-local.service"):
        assert unit(joined, name).exclusive_us == unit(alone, name).exclusive_us
    saved = [next(r for r in one.advice if r.id == "cloud-init-none").saving_us for one in (alone, joined)]
    assert saved[0] == saved[1] and saved[0]  # once
    unplaced = timeline_of(tmp_path, TIME, SHOW)
    assert "clock-relative" in codes(unplaced)


def test_events_of_a_dump_nest_by_their_names(tmp_path: Path) -> None:
    dump = [
        {"name": name, "event_type": kind, "timestamp": 1_559_317_180.0 + at, "origin": "cloudinit"}
        for name, kind, at in (
            ("init-local", "start", 0.0), ("init-local/search-NoCloud", "start", 0.1),
            ("init-local/search-NoCloud", "finish", 0.7), ("init-local", "finish", 1.0),
        )
    ]  # fmt: skip
    timeline = timeline_of(tmp_path, json.dumps(dump))
    inner, whole = unit(timeline, "cloud-init:init-local/search-NoCloud"), unit(timeline, "cloud-init:init-local")
    assert inner.exclusive_us == pytest.approx(600_000, abs=2) and whole.exclusive_us == pytest.approx(400_000, abs=2)


def test_what_cloud_init_takes_for_the_kernels_end_does_not_replace_a_logs_phases(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Linux version 6.1.0 (gcc) #1\n[    1.200000] Run /init as init process\n"
        "[    4.200000] systemd[1]: Switching root.\n[   12.000000] systemd[1]: Reached target multi-user.target\n"
    )
    boot = (
        "-- Most Recent Boot Record --\n    Kernel Started at: 2019-05-31 15:39:34.500000\n"
        "    Kernel ended boot at: 2019-05-31 15:39:38.700000\n    Kernel time to boot (seconds): 4.2\n"
        "    Cloud-init start: 2019-05-31 15:39:40\n"
    )
    alone, joined = timeline_of(tmp_path, log), timeline_of(tmp_path, log, boot)
    assert times(joined) == times(alone) and joined.kernel_us == 1_200_000
    assert times(timeline_of(tmp_path, boot))["kernel"] == (0, 4_200_000)


def test_a_log_and_systemd_time_are_joined(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Linux version 6.1.0 (gcc) #1\n[    0.500000] clocksource: Switched to clocksource tsc\n"
        "[    1.000000] calling  a_init+0x0/0x10 @ 1\n[    1.010000] initcall a_init+0x0/0x10 returned 0 after "
        "9900 usecs\n"
        "[    2.090000] Run /init as init process\n"
    )
    timeline = timeline_of(tmp_path, TIME, log, BLAME)
    assert times(timeline)["kernel"] == (0, 2_093_000)
    spot = next(h for h in timeline.hotspots if h.name == "a_init")
    assert spot.share_kernel == round(9900 / 2_093_000, 6)
    assert spot.share_total == round(9900 / (timeline.total_us or 1), 6)
    assert len(timeline.files) == 3


def test_two_kernels_are_not_one_boot(tmp_path: Path) -> None:
    one = "[    0.000000] Linux version 6.1.0 (gcc) #1\n[    1.000000] Run /init as init process\n"
    timeline = timeline_of(tmp_path, one, one.replace("6.1.0", "6.6.0"))
    assert "different-boots" in codes(timeline)


def test_a_log_and_its_configuration(tmp_path: Path) -> None:
    log = "[    0.000000] Linux version 6.1.0-9-amd64 (gcc) #1\n[    1.000000] Run /init as init process\n"
    config = "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 6.1.0 Kernel Configuration\n#\nCONFIG_HZ=250\n# CONFIG_AUDIT is not set\n"
    timeline = timeline_of(tmp_path, log, config)
    assert (timeline.kernel.version, timeline.kernel.arch) == ("6.1.0-9-amd64", "x86_64")
    assert timeline.config == {"HZ": "250"}
    assert "different-boots" not in codes(timeline)
