# SPDX-License-Identifier: Apache-2.0
"""New complaints of the kernel are found; old ones, in other numbers, are not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests.kernel_complaints import (
    behind_firmware,
    built_in_modules,
    complaints,
    expected_messages,
    named,
    new_lines,
    shape,
    whole,
)

LOG = """<6>[    0.1] all is well
<4>[    0.2] odd thing 0x12 at 7
<3>without a stamp
<28>[ 0.3][    T1] daemon, level 4
"""


def test_levels_up_to_warning_count() -> None:
    assert complaints(LOG) == ["odd thing 0x12 at 7", "without a stamp", "daemon, level 4"]


def test_what_is_on_the_console_counts() -> None:
    assert complaints("", "[    0.1] PCI: Fatal\n\nKernel panic - not syncing\n") == [
        "PCI: Fatal",
        "Kernel panic - not syncing",
    ]


def test_what_firmware_says_is_no_complaint() -> None:
    console = "OpenSBI v1.1\nBoot HART ID : 0\nBoot HART MEDELEG : 0xf0\n\n[    0.1] PCI: Fatal\n"
    assert complaints("", behind_firmware(console, "Boot HART MEDELEG")) == ["PCI: Fatal"]
    assert behind_firmware(console, "") == console == behind_firmware(console, "Another")


def test_the_same_message_with_other_numbers_is_not_new() -> None:
    assert list(new_lines(["odd thing 0xff at 99"], complaints(LOG))) == []


def test_a_new_message_is_found_once() -> None:
    found = ["unable to open an initial console"] * 2
    assert list(new_lines(found, complaints(LOG))) == found[:1]
    assert list(new_lines(found, [], [re.compile("initial console")])) == []


#: Of a process that was killed for want of memory, as two kernels say it.
KILLED = """<4>[   60.1] dd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
<4>[   60.1] CPU: 0 UID: 0 PID: 812 Comm: dd Not tainted 6.12.117 #1
<4>[   60.1] Hardware name: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 1.16.2 04/01/2014
<4>[   60.1] Call Trace:
<4>[   60.1]  <TASK>
<4>[   60.1]  dump_stack_lvl+0x5d/0x80
<4>[   60.1]  ? __pfx_own_way+0x10/0x10 [ext4]
<4>[   60.1]  </TASK>
<4>[   60.1] RIP: 0010:rep_stos_alternative+0x40/0x80
<4>[   60.1] RSP: 002b:00007ffde07a1a78 EFLAGS: 00000246 ORIG_RAX: 0000000000000000
<4>[   60.1] Code: 07 31 c0 e9 b5 fe ff ff 50 48 8d 3d <48> 3d 00 f0
<4>[   60.1] Code: Unable to access opcode bytes at 0x4e3f03.
<4>[   60.1] RDX: 0000000004000000 RSI: 00007fa21c400000 RDI: 0000000000000000
<4>[   60.1] R10: 00000000000001b6 R11: 0000000000000246 R12: 0000000004000000
<4>[   60.1] RAX: ffffffffffffffda RBX: 0000000000000000 RCX: 00000000004e3f2d
<3>[   60.2] Memory cgroup out of memory: Killed process 812 (dd) total-vm:66708kB, anon-rss:15920kB
"""


def test_a_dump_is_no_complaint_and_what_it_was_dumped_for_is_one() -> None:
    report = ["dd invoked oom-killer", "Memory cgroup out of memory"]
    new = list(new_lines(complaints(KILLED), [], expected_messages()))
    assert [text.split(":")[0] for text in new] == report
    other = KILLED.replace("own_way", "another_way").replace("#1", "#1 Debian").replace("812", "901")
    assert list(new_lines(complaints(KILLED), complaints(other), expected_messages())) == []


def test_what_begins_like_a_dump_still_counts() -> None:
    said = ["WARNING: CPU: 0 PID: 1 at kernel/x.c:12 f+0x1/0x2", "CS: a clock stood still", "RCU: stalled"]
    assert list(new_lines(said, [], expected_messages())) == said


def test_a_kernel_that_keeps_acpi_finds_none_on_the_usual_board() -> None:
    said = "<3>[    0.0] ACPI BIOS Error (bug): A valid RSDP was not found (20240827/tbxfroot-222)\n"
    assert list(new_lines(complaints(said), [], expected_messages())) == []
    other = said.replace("A valid RSDP was not found", "Could not resolve symbol")
    assert len(list(new_lines(complaints(other), [], expected_messages()))) == 1


def test_a_kernel_without_names_dumps_addresses() -> None:
    frames = ["? 0xffffffff8081393f", "0xffffffff81000000", "own_way+0x1/0x2", "? own_way+0x1/0x2 [a_module]"]
    assert list(new_lines(frames, [], expected_messages())) == []
    said = ["at 0xffffffff8081393f", "0xffffffff81000000 is bad"]
    assert list(new_lines(said, [], expected_messages())) == said


def test_names_of_containers_are_made_up() -> None:
    one, other = (f"docker-{name * 8}.scope" for name in ("0123abcd", "99fe01aa"))
    assert shape(one) == shape(other) == "docker-#.scope" and shape("user@1000.service") == "user@1000.service"


@given(st.text(), st.text())
def test_no_text_breaks_it(log: str, console: str) -> None:
    assert list(new_lines(complaints(log, console), complaints(log, console))) == []


def test_the_kernels_words_are_each_there_once_and_in_order() -> None:
    log = "<6>[    0.000000] Linux version 6.12\n<3>[    0.100000] a failed\n"
    console = "[    0.100000] a failed\r\n[    9.000000] reboot: Restarting system\r\n"
    assert whole(log, console).splitlines() == [*log.splitlines(), "[    9.000000] reboot: Restarting system"]
    assert whole("", console) == console
    assert whole("<6>plain\n", "plain\nlast\n") == "<6>plain\nlast\n"


def test_initcalls_of_a_kernel_without_names_are_named_by_its_table() -> None:
    table = SymbolTable.parse("ffffffff81000000 T a_init\nffffffff81000100 T b_init\nffffffff81000200 T end_\n")
    log = (
        "<7>[    0.1] calling  0xffffffff81000100 @ 1\n"
        "<7>[    0.2] initcall 0xffffffff81000100 returned 0 after 3 usecs\n"
        "<7>[    0.3] calling  0x0000000000000005 @ 1\n"
        "<6>[    0.4] found SMP MP-table at 0xffffffff81000000 here\n"
    )
    assert named(log, table).splitlines() == [
        "<7>[    0.1] calling  b_init+0x0/0x0 @ 1",
        "<7>[    0.2] initcall b_init+0x0/0x0 returned 0 after 3 usecs",
        *log.splitlines()[2:],
    ]


def test_what_a_busy_host_makes_a_guest_say_is_expected() -> None:
    busy = ["hrtimer: interrupt took 9559049 ns", "cpu0: Worker [411] processing SEQNUM=1479 is taking a long time"]
    killed = "cpu0: Worker [411] processing SEQNUM=1479 killed"
    assert list(new_lines([*busy, killed], [], expected_messages())) == [killed]


def test_a_module_of_another_kernel_is_refused_and_that_is_expected_where_it_is_built_in() -> None:
    refused = [
        "module virtio_net: .gnu.linkonce.this_module section size must match the kernel's built struct module size",
        "veth: version magic '6.1.0-9-made-up SMP' should be '6.1.0 SMP'",
        "veth: disagrees about version of symbol module_layout",
    ]
    missing = "veth: Unknown symbol rtnl_link_register (err -2)"
    assert list(new_lines([*refused, missing], [], expected_messages({"veth", "virtio_net"}))) == [missing]
    assert list(new_lines([*refused, missing], [], expected_messages({"veth"}))) == [refused[0], missing]
    assert list(new_lines(refused, [], expected_messages())) == refused


def test_a_module_that_is_asked_for_by_name_is_not_there_and_that_is_expected_where_it_is_built_in() -> None:
    asked = "modprobe: FATAL: Module br-netfilter not found in directory /lib/modules/6.12.117"
    other = "modprobe: ERROR: could not insert 'br-netfilter': Operation not permitted"
    assert list(new_lines([asked, other], [], expected_messages({"br_netfilter"}))) == [other]
    assert list(new_lines([asked, other], [], expected_messages({"netfilter", "br"}))) == [asked, other]


def test_modules_that_are_built_in_are_those_with_an_initcall() -> None:
    system_map = (
        "ffffffff82a3b0c4 d __initcall__kmod_overlay__413_1544_ovl_init6\n"
        "ffffffff82a3b0c8 d __initcall__kmod_br_netfilter__722_1322_br_netfilter_init6\n"
        "ffffffff82a3b0cc T ovl_init\n"
    )
    assert built_in_modules(system_map) == {"overlay", "br_netfilter"}


@pytest.mark.lengthy
def test_a_table_of_symbols_that_is_no_kernels_gives_no_endless_expression() -> None:
    made_up = "".join(f"0 d __initcall__kmod_m{number}__1_2_x6\n" for number in range(50_000))
    assert len(built_in_modules(made_up)) == 10_000
    assert built_in_modules(f"0 d __initcall__kmod_{'m' * 1000}__1_2_x6\n") == frozenset()
    assert len(expected_messages(built_in_modules(made_up))) == len(expected_messages({"veth"}))
