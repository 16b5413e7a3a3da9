# SPDX-License-Identifier: Apache-2.0
"""Where a machine's memory goes: the parts add up, whatever kernel and guest say of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.cost import memory_use
from vmtailor.model.boots.boot_cost import MemoryUse

MIB, KIB = 1 << 20, 1 << 10
LOG = """\
[    0.000000] Memory: 245240K/261752K available (6144K kernel code, 814K rwdata, 448K rodata, 700K init, 500K bss, 15456K reserved, 0K cma-reserved)
[    0.100000] Freeing SMP alternatives memory: 36K
[    0.200000] Freeing unused kernel image (initmem) memory: 700K
[    0.210000] Write protecting the kernel read-only data: 8192k
[    0.220000] Freeing unused kernel image (rodata/data gap) memory: 1600K
"""  # noqa: E501
ACCOUNT = """\
MemTotal:         246000 kB
MemFree:          230000 kB
MemAvailable:     231000 kB
Buffers:             400 kB
Cached:             6000 kB
AnonPages:          1200 kB
Slab:               5000 kB
KernelStack:         300 kB
PageTables:          100 kB
Percpu:               60 kB
VmallocUsed:        1000 kB
HugePages_Total:       0
"""


def parts(found: MemoryUse | None) -> dict[str, int]:
    assert found is not None
    assert sum(part.bytes for part in found.parts) == found.machine_bytes
    return {part.name: part.bytes // KIB for part in found.parts}


def test_every_part_is_named_and_they_add_up() -> None:
    found = parts(memory_use.use(256 * MIB, LOG, ACCOUNT))
    kernel, descriptors = 6144 + 814 + 448 + 700 + 500 - (36 + 700 + 1600), 261752 // 4 * 64 // KIB
    assert found == {
        "kernel": kernel,
        "page descriptors": descriptors,
        "reserved": 261752 - 246000 - kernel - descriptors - 1,  # a fraction of a KiB goes with the descriptors
        "kernel's objects": 5460,
        "container": 1200,
        "caches": 6400,
        "other": 16000 - 5460 - 1200 - 6400,
        "free": 230000,
        "firmware": 256 * KIB - 261752,
    }


def test_without_proc_what_is_in_use_is_not_told_apart() -> None:
    found = parts(memory_use.use(256 * MIB, LOG, "MemTotal: 246000 kB\nMemFree: 230000 kB\nBuffers: 400 kB\n"))
    assert found["in use"] == 16000 and "container" not in found


def test_what_says_nothing_gives_nothing() -> None:
    assert memory_use.use(256 * MIB, "a kernel without words", ACCOUNT) is None
    assert memory_use.use(256 * MIB, LOG, "") is None
    assert memory_use.use(256 * MIB, LOG, "MemTotal: lots\n") is None


@given(st.text(), st.text())
def test_any_text_of_a_guest_is_read(log: str, account: str) -> None:
    for one, other in ((log, account), (LOG + log, ACCOUNT + account)):
        found = memory_use.use(256 * MIB, one, other)
        assert found is None or sum(part.bytes for part in found.parts) == 256 * MIB


def test_a_number_without_end_is_no_number() -> None:
    assert memory_use.use(MIB, LOG, f"MemTotal: {'9' * 5000} kB\nMemFree: 1 kB\n") is None
    assert memory_use.use(MIB, f"Memory: {'9' * 5000}K/1K available (1K init)", ACCOUNT) is None


def test_what_is_needed_is_what_is_in_use_without_half_of_the_caches() -> None:
    found = memory_use.use(256 * MIB, LOG, ACCOUNT)
    assert found is not None
    # In use: all but what is free; descriptors for that much alone.
    used = 256 * MIB - (230000 + 3200) * KIB - 261752 // 4 * 64
    assert memory_use.needed(found) == used * 4096 // 4032


def test_less_is_needed_where_less_of_the_caches_is_kept() -> None:
    found = memory_use.use(256 * MIB, LOG, ACCOUNT)
    assert found is not None
    more = (memory_use.needed(found) - memory_use.needed(found, 0.25)) * 4032 // 4096
    assert abs(more - 6400 * KIB // 4) <= 2
