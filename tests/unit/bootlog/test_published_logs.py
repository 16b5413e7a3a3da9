# SPDX-License-Identifier: Apache-2.0
"""Lines of logs that earlier work printed: printed differences, a container host's silences, and the remedies of what
such kernels waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bootlog.reading import DATA, timeline_of

from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import Remedy, Timeline

HOST = DATA.parent / "profiles" / "vmware.log"
OLD = (
    "[    0.000000] Linux version 4.19.91-18.x86_64 (x@y) (gcc version 8.3.1) #1 SMP\n"
    "[    0.000000] Hypervisor detected: KVM\n"
)


def named(timeline: Timeline) -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in timeline.advice if remedy.applies}


def test_a_container_hosts_longest_silence_comes_first_and_its_boot_goes_on_to_the_bridge() -> None:
    timeline = analyze([HOST])
    first = timeline.hotspots[0]
    assert (first.name, first.exclusive_us) == (
        "until loop devices are set up, as container engines do", 32_371_510 - 18_526_926,
    )  # fmt: skip
    assert first.options == ()  # the line before is another driver's
    assert timeline.shown_end_us == 47_715_360


def test_a_printed_difference_is_believed_where_lines_were_left_out() -> None:
    gaps = {gap.after.partition(" ")[0]: gap for gap in analyze([HOST]).gaps}
    left_out = gaps["ip6_tables:"]
    assert (left_out.start_us, left_out.end_us, left_out.before) == (16_483_706 - 4_850_277, 16_483_706, "")
    assert left_out.name.startswith("before: ip6_tables")
    assert [gap.end_us - gap.start_us for gap in analyze([HOST]).gaps if "docker0" in gap.after] == [1_090_887]


def test_a_difference_of_zero_tells_nothing(tmp_path: Path) -> None:
    head = "[0.000000 < 0.000000 >] Linux version 4.10.11 (gcc) #1 SMP\n[0.100000 < 0.000000 >] one\n"
    timeline = timeline_of(tmp_path, head + "[2.100000 < 0.000000 >] two\n[2.100500 < 0.000500 >] three\n")
    assert [(gap.before, gap.start_us, gap.end_us) for gap in timeline.gaps if gap.after == "two"] == [
        ("one", 100_000, 2_100_000)
    ]


@pytest.mark.parametrize(("seconds", "shown"), [(14.0, True), (61.0, False)])
def test_what_an_engine_sets_up_much_later_is_none_of_the_boots(tmp_path: Path, seconds: float, shown: bool) -> None:
    timeline = timeline_of(
        tmp_path,
        OLD + "[    1.000000] Freeing unused kernel memory: 1608K\n[    1.100000] systemd[1]: systemd 239 running in "
        f"system mode.\n[    9.000000] e1000: NIC Link is Up\n[{9 + seconds:12.6f}] loop: module loaded\n",
    )
    assert (timeline.shown_end_us == int((9 + seconds) * 1e6)) is shown


def test_loop_devices_of_the_kernel_itself_are_no_engines(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path,
        OLD + "[    0.500000] brd: module loaded\n[    0.900000] loop: module loaded\n"
        "[    1.000000] Freeing unused kernel memory: 1608K\n",
    )
    assert [gap.kind for gap in timeline.gaps if gap.after == "loop: module loaded"] == [""]


CLOCK = "[    0.687494] rtc_cmos 00:00: setting system clock to 2020-03-03 15:09:38 UTC (1583248178)\n"


@pytest.mark.parametrize(
    ("before", "freed", "saving"),
    [
        (CLOCK, "Freeing unused kernel image memory: 1836K", 915_315 - 687_494),
        (CLOCK, "Freeing unused kernel image (initmem) memory: 1836K", None),
        ("[    0.687494] md: Waiting for all devices\n", "Freeing unused kernel image memory: 1836K", None),
    ],
)
def test_a_wait_before_the_initial_memory_is_freed(tmp_path: Path, before: str, freed: str, saving: int | None) -> None:
    timeline = timeline_of(tmp_path, f"{OLD}{before}[    0.915315] {freed}\n")
    remedy = named(timeline).get("initmem-freeing")
    assert (remedy.saving_us if remedy else None) == saving
    assert any(spot.advice == ("initmem-freeing",) for spot in timeline.hotspots) == (saving is not None)


@pytest.mark.parametrize(
    ("version", "took_us", "saving"),
    [("4.19.91", 92_388, 92_388), ("5.6.0", 92_388, None), ("4.19.91", 9_000, None)],
)
def test_tables_of_the_unwinder_that_are_sorted_in_each_boot(
    tmp_path: Path, version: str, took_us: int, saving: int | None
) -> None:
    timeline = timeline_of(
        tmp_path,
        f"{OLD.replace('4.19.91', version)}[    0.087330] clocksource: refined-jiffies: mask: 0xffffffff max_cycles: "
        f"0xffffffff\n[{0.08733 + took_us / 1e6:12.6f}] random: get_random_bytes called from start_kernel+0x8b/0x563 "
        "with crng_init=0\n",
    )
    remedy = named(timeline).get("orc-sort")
    assert (remedy.saving_us if remedy else None) == saving


def test_a_policy_that_is_only_permissive_has_its_remedy_with_what_it_took() -> None:
    assert named(analyze([HOST]))["lsm"].saving_us == 201_013 + 30_100


@pytest.mark.parametrize(
    "line",
    [
        "[    2.900000] audit: type=1404 audit(1494493040.100:2): enforcing=1 old_enforcing=0 auid=4294967295",
        '[    9.900000] audit: type=1400 audit(1494493049.1:9): apparmor="STATUS" operation="profile_load"',
    ],
)
def test_a_policy_that_is_enforced_is_left_alone(tmp_path: Path, line: str) -> None:
    assert {"lsm", "audit"} <= set(named(timeline_of(tmp_path, _plain())))
    assert not {"lsm", "audit"} & set(named(timeline_of(tmp_path, f"{_plain()}{line}\n")))


def _plain() -> str:
    """Return the host's log without its printed differences."""
    lines = HOST.read_text().splitlines()
    return "".join(f"[{line[1:].partition(' ')[0]:>12}]{line.partition(']')[2]}\n" for line in lines)
