# SPDX-License-Identifier: Apache-2.0
"""Milestones from a console with host times, modes and figures of repeated boots, and the collector's stream."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.bootlog import bootchart
from vmtailor.analysis.statistics import boot_statistics
from vmtailor.analysis.timeline import bootmarks, collector_stream
from vmtailor.model.change import Verdict

CONSOLE = [
    (1.9, "[    0.000000] Linux version 6.12.117+deb12-cloud-amd64"),  # printed when the console was there
    (1.9, "[    0.500000] Command line: console=ttyS0"),
    (2.52, "[    1.500000] Run /init as init process"),
    (3.02, "[    2.000000] EXT4-fs (vda): mounted filesystem 0000 ro with ordered data mode"),
    (4.02, "[    3.000000] systemd[1]: systemd 252.39-1 running in system mode (+PAM)"),
    (6.0, "vm login: [    7.000000] kvm_amd: Nested Virtualization enabled"),
]


def test_milestones_are_placed_by_the_kernel_clock_joined_to_the_hosts() -> None:
    lines = bootmarks.lines_of(CONSOLE)
    assert bootmarks.kernel_zero(lines) == pytest.approx(-1.0)  # the line behind the prompt is the earliest seen
    found = {m.name: m for m in bootmarks.milestones(lines[:-1])}
    assert found["kernel"].wall_s == pytest.approx(1.02)
    assert found["initrd"].wall_s == pytest.approx(2.52)
    assert found["root mounted"].virtual_ns == 2_000_000_000
    assert found["init"].wall_s == pytest.approx(4.02)
    assert found["login"].wall_s == 6.0


def test_a_message_behind_a_prompt_is_a_line_of_its_own() -> None:
    lines = bootmarks.lines_of(CONSOLE[-1:])
    assert [(line.guest_s, line.text) for line in lines] == [
        (None, "vm login: "),
        (7.0, "kvm_amd: Nested Virtualization enabled"),
    ]


def test_own_milestones_and_no_stamps() -> None:
    lines = bootmarks.lines_of([(0.5, "hello"), (0.7, "\x1b[1mdocker is up\x1b[0m")])
    found = bootmarks.milestones(lines, (("docker", re.compile("docker is up")),))
    assert [(m.name, m.wall_s, m.virtual_ns) for m in found] == [("docker", 0.7, None)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "[ 1.000000] Kernel panic - not syncing: Attempted to kill init!",
            "the kernel panicked: Attempted to kill init!",
        ),
        ("(initramfs) ", "the initial RAM disk gave up and opened a shell"),
        ("You are in emergency mode. After logging in, type", "systemd went into emergency mode"),
        ("[ 1.000000] all is well", ""),
    ],
)
def test_dead_ends(line: str, why: str) -> None:
    assert bootmarks.dead_end(line) == why


@given(st.lists(st.tuples(st.floats(0, 100), st.text(max_size=60)), max_size=20))
def test_any_console_gives_milestones(timed: list[tuple[float, str]]) -> None:
    lines = bootmarks.lines_of(timed)
    assert len(lines) >= len(timed)
    for mark in bootmarks.milestones(lines):
        assert mark.wall_s is not None
    assert bootmarks.grabserial(timed).count("\n") >= len(timed)


def test_two_modes_are_two() -> None:
    found = boot_statistics.find_modes([5.0, 5.1, 5.05, 6.2, 6.3, 6.25, 5.07, 6.21])
    assert [(m.count, round(m.median, 2)) for m in found] == [(4, 5.06), (4, 6.23)]
    summary = boot_statistics.summarise([5.0, 5.1, 5.05, 6.2, 6.3, 6.25, 5.07, 6.21])
    assert summary is not None and summary.two_modes


def test_one_mode_an_outlier_and_too_few_are_not_two() -> None:
    assert len(boot_statistics.find_modes([5.0, 5.1, 5.05, 5.2, 5.3, 5.25, 5.07, 9.9])) == 1
    assert len(boot_statistics.find_modes([5.0, 6.0, 5.0, 6.0])) == 1
    assert len(boot_statistics.find_modes([1.0] * 10)) == 1
    tight = [5.0, 5.001, 5.002, 5.003]
    assert len(boot_statistics.find_modes([*tight, *(one * 1.03 for one in tight)])) == 2
    assert len(boot_statistics.find_modes([*tight, *(one * 1.01 for one in tight)])) == 1  # of no interest
    assert boot_statistics.find_modes([]) == ()
    draw = random.Random(1)
    wrong = sum(len(boot_statistics.find_modes([draw.gauss(10, 1) for _ in range(10)])) == 2 for _ in range(60))
    assert wrong <= 6


def test_verdicts() -> None:
    slow, fast = [10.0, 10.1, 10.2, 9.9, 10.0], [8.0, 8.2, 8.1, 8.0, 8.3]
    assert boot_statistics.judge(slow, fast, exact=False) is Verdict.BETTER
    assert boot_statistics.judge(fast, slow, exact=False) is Verdict.WORSE
    assert boot_statistics.judge([10.0, 12.0, 11.0], [9.8, 11.9, 11.2], exact=False) is Verdict.UNDECIDED
    assert boot_statistics.judge(slow, slow, exact=False) is Verdict.SAME
    assert boot_statistics.judge(slow[:2], fast[:2], exact=False) is Verdict.UNDECIDED
    assert boot_statistics.judge([1000.0], [900.0], exact=True) is Verdict.BETTER
    assert boot_statistics.judge([1000.0], [999.5], exact=True) is Verdict.SAME
    assert boot_statistics.judge([1000.0, 1100.0], [950.0], exact=True) is Verdict.UNDECIDED
    assert boot_statistics.judge([], fast, exact=True) is Verdict.UNDECIDED


STAT = b"%d (%s) S %d 0 0 0 -1 4 5 6 0 0 %d 4 0 0 20 0 1 0 %d 1208320 97"


def test_the_stream_becomes_a_bootchart_that_is_read() -> None:
    stream = b"\n".join(
        [
            b"@ 100", b"c cpu 1 0 1 5 0 0 0 0 0 0", b"p " + STAT % (1, b"init", 0, 3, 1),
            b"p " + STAT % (7, b"a) b", 1, 3, 50), b"i 7 4096 0", b"damaged \xff",
            b"@ 110", b"c cpu 5 0 1 5 0 0 0 0 0 0", b"p " + STAT % (1, b"init", 0, 9, 1), b"x 7", b"",
        ]
    )  # fmt: skip
    members = collector_stream.members(stream, [("title", "a\nb")])
    assert members["header"] == b"title = a b\n"
    first, second = members["proc_ps.log"].split(b"\n\n")[:2]
    assert b"(a) b)" in first and b"(a) b)" not in second and b"(init)" in second
    assert members["proc_io.log"].startswith(b"100\n7 4096 0\n")
    observed = bootchart.read("x", members)
    assert {p.name for p in observed.processes} == {"init", "a) b"}


@given(st.binary(max_size=400), st.integers(0, 3))
def test_any_stream_gives_members(data: bytes, samples: int) -> None:
    stream = b"".join(b"@ %d\n" % (i * 10) + data + b"\n" for i in range(samples)) + data
    members = collector_stream.members(stream)
    assert members == {} or set(members) >= {"header", "proc_ps.log"}
    bootchart.read("x", members)
