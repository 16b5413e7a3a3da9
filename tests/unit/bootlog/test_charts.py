# SPDX-License-Identifier: Apache-2.0
"""Charts of made-up samples: every figure that follows from them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.bootlog.reading import timeline_of, unit

from vmtailor.analysis.bootlog import bootchart
from vmtailor.analysis.timeline import collector_stream
from vmtailor.model.boots.timeline import UseSample

STAT = b"%d (%s) %s %d 0 0 0 -1 4 5 6 0 0 %d 4 0 0 20 0 1 0 %d 1208320 97"
DISK = b"254 0 %s 1 0 %d 0 1 0 %d 0 0 %d 0"


def test_shares_of_processors_and_speeds_of_disks_are_since_the_sample_before() -> None:
    members = {
        "proc_stat.log": b"100\ncpu 10 0 10 80 0 0 0\n\n150\ncpu 20 10 20 120 20 5 5\n\n"
        b"200\ncpu 20 10 20 120 20 5 5\n\n",
        "proc_diskstats.log": b"101\n" + DISK % (b"vda", 100, 10, 0) + b"\n" + DISK % (b"vda1", 99, 99, 99) + b"\n\n"
        b"151\n" + DISK % (b"vda", 300, 20, 250) + b"\n\n" + b"251\n" + DISK % (b"vda", 300, 20, 5250) + b"\n\n",
    }  # fmt: skip
    observed = bootchart.read("x", members)
    assert observed.samples == [
        # A sample of disks joins that of the processors that is near to it, and stands alone otherwise.
        UseSample(1_500_000, 0.2, 0.2, 0.2, 200 * 512 * 2, 10 * 512 * 2, 0.5),
        UseSample(2_510_000, None, None, None, 0, 0, 1.0),
    ]
    (phase,) = observed.phases
    assert (phase.start_us, phase.end_us) == (1_000_000, 2_510_000)


def test_processes_of_a_chart_have_parents_times_and_waits() -> None:
    members = {
        "header": b"system.uname = Linux 6.1.0 #1 SMP x86_64\nsystem.kernel.options = root=/dev/vda a=b\nno value\n",
        "proc_ps.log": b"100\n" + STAT % (1, b"init", b"S", 0, 3, 1) + b"\ndamaged\n\n"
        b"150\n" + STAT % (1, b"init", b"S", 0, 9, 1) + b"\n" + STAT % (7, b"a) b", b"D", 1, 3, 120) + b"\n\n"
        b"200\n" + STAT % (7, b"a) b", b"D", 1, 5, 120) + b"\n\n",
    }  # fmt: skip
    observed = bootchart.read("x", members)
    rows = {p.name: (p.pid, p.ppid, p.start_us, p.end_us, p.exclusive_us, p.waiting_us) for p in observed.processes}
    assert rows == {
        "init": (1, 0, 10_000, 1_500_000, 130_000, 0),
        "a) b": (7, 1, 1_200_000, 2_000_000, 90_000, 800_000),
    }
    assert (observed.version, observed.arch, observed.command_line) == ("6.1.0", "x86_64", "root=/dev/vda a=b")
    assert [one.code for one in observed.warnings] == ["damaged-lines", "collector-late"]
    assert observed.charted_total_us == 1_990_000


def test_a_collectors_stream_keeps_what_is_whole() -> None:
    number = b"9" * 19
    lines = [
        b"@ 100", b"d " + DISK % (b"vda", 1, 2, 3), b"d " + DISK % (b"vdb", 1, 2, 3), b"d 254 0 vdc", b"i 7 4096 0",
        b"i 8 " + number + b" 0", b"i 9 " + number + b"99 0", b"i 10 x 0", b"@ x",
        b"@ 110", b"d " + DISK % (b"vda", 4, 5, 6), b"@ 120", b"cut",
    ]  # fmt: skip
    members = collector_stream.members(b"\n".join(lines))
    first, second, third = members["proc_diskstats.log"].rstrip(b"\n").split(b"\n\n")
    assert first.split(b"\n") == [b"100", DISK % (b"vda", 1, 2, 3), DISK % (b"vdb", 1, 2, 3)]
    assert second.split(b"\n") == [b"110", DISK % (b"vda", 4, 5, 6), DISK % (b"vdb", 1, 2, 3)]
    assert third.startswith(b"120\n")
    assert members["proc_io.log"].startswith(b"100\n7 4096 0\n8 " + number + b" 0\n\n110\n")


def test_of_two_boots_in_a_dump_the_last_counts(tmp_path: Path) -> None:
    def events(at: float, *names: str) -> list[dict[str, object]]:
        kinds = ("start", "finish")
        return [
            {"name": name, "event_type": kind, "timestamp": at + n + later}
            for n, name in enumerate(names) for later, kind in zip((0.0, 0.5), kinds, strict=True)
        ]  # fmt: skip

    cut = [{"name": "init-local", "event_type": "start", "timestamp": 1_559_317_000.0}]
    both = [*cut, *events(1_559_317_180.0, "init-local", "init-network"), 5, {"name": "x", "timestamp": True}]
    timeline = timeline_of(tmp_path, json.dumps(both))
    assert [(one.name, one.start_us, one.duration_us) for one in timeline.units] == [
        ("cloud-init:init-local", 0, 500_000),
        ("cloud-init:init-network", 1_000_000, 500_000),
    ]
    assert {"several-boots", "damaged-lines"} <= {one.code for one in timeline.warnings}


def test_a_chain_alone_is_placed_behind_the_start_of_user_space(tmp_path: Path) -> None:
    chain = "graphical.target @9.500s\n└─docker.service @8.300s +1.200s\n  └─basic.target @8.200s\n"
    time = "Startup finished in 2.000s (kernel) + 10.000s (userspace) = 12.000s\n"
    timeline = timeline_of(tmp_path, time + chain)
    docker, basic = unit(timeline, "docker.service"), unit(timeline, "basic.target")
    assert (docker.start_us, docker.end_us, docker.duration_us) == (10_300_000, 11_500_000, 1_200_000)
    assert (basic.start_us, basic.duration_us) == (10_200_000, None)
