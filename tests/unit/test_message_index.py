# SPDX-License-Identifier: Apache-2.0
"""The index of the kernel's messages: templates, look-up, and the options that a log does not use."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.ksource.printk_calls import template_of
from vmtailor.analysis.printk.message_index import SECTION, MessageIndex, Origin
from vmtailor.analysis.printk.templates import CHARACTER, DECIMAL, ENDS, HEX, TEXT, matches, row_of

D, X, S, C = DECIMAL, HEX, TEXT, CHARACTER


@pytest.mark.parametrize(
    ("template", "line", "is_one"),
    [
        (f"loaded {D} of {D}{ENDS}", "loaded 3 of -4", True),
        (f"loaded {D} of {D}{ENDS}", "loaded 3 of 4 more", False),
        (f"loaded {D} of {D}", "loaded 3 of 4 more", True),
        (f"loaded {D}{ENDS}", "loaded x", False),
        (f"at 0x{X}-0x{X}: {S}{ENDS}", "at 0x00ff-0xFFaa: usable", True),
        (f"at {X}{ENDS}", "at 0xdeadbeef", True),
        (f"at {X}{ENDS}", "at nothing", False),
        (f"{S}: registered {S}{ENDS}", "a: b: registered c", True),
        (f"{S} of {S} of {D}{ENDS}", "x of y of z of 12", True),
        (f"{S} of {S} of {D}{ENDS}", "x of y of z", False),
        (f"drive {C}: ready{ENDS}", "drive Z: ready", True),
        (f"drive {C}: ready{ENDS}", "drive ZZ: ready", False),
        (f"size {D}{S}B{ENDS}", "size   16kB", True),
        (f"Btrfs loaded{S}", "Btrfs loaded, zoned=no", True),
        (f"Btrfs loaded{S}", "Btrfs loaded", True),
    ],
)
def test_a_line_is_one_of_a_template(template: str, line: str, is_one: bool) -> None:
    assert matches(template, line) is is_one
    assert matches(template, f"prefix {line}", len("prefix ")) is is_one


def test_rows_begin_with_what_is_looked_up() -> None:
    assert row_of("md: autorun ...", False, True) == f"^md: autorun ...{ENDS}".encode()
    assert row_of("  new device found\tat", True, False) == b"~new device found at"
    assert (
        row_of(f"Run {S} as init process", False, True)
        == f"*as init process\x05^Run {S} as init process{ENDS}".encode()
    )
    assert row_of(f"{S}: {D} {S}", False, True) is None  # too general
    assert row_of("up", True, True) is None  # it may be anyone's
    assert row_of("rcu: \tone  of two", False, True) == f"^rcu: one of two{ENDS}".encode()  # as consoles print it
    assert row_of(f"{S}kB {D} ab{D}cd{D}ef", False, True) is None  # nothing to look up


@given(st.text(alphabet="ab :\x01\x02\x03\x04", min_size=1, max_size=12), st.text(alphabet="ab :12", max_size=30))
def test_matching_never_fails_and_a_template_with_its_marks_filled_matches(template: str, line: str) -> None:
    matches(template, line)
    filled = template.replace(D, "12").replace(X, "1a").replace(S, "x y").replace(C, "q")
    if not any(pair in template for pair in (D + D, D + X, X + D, X + X, D + " ", X + "a", X + "b", C, S)):
        assert matches(template + ENDS, filled)


def test_time_is_in_proportion_to_the_line() -> None:
    took = []
    for length in (4_000, 16_000):
        line, template = "a" * length, S.join(["aab"] * 20) + ENDS
        begun = time.process_time()
        for _ in range(20):
            matches(template, line)
        took.append(time.process_time() - begun)
    assert took[1] < 16 * took[0] + 0.05


PLACES = [
    ("net/tun.c", "TUN", ""), ("drivers/one/one.c", "ONE", "d"), ("drivers/one/two.c", "TWO", "d"),
    ("init/main.c", "", ""), ("drivers/pci/probe.c", "PCI", ""), ("drivers/usb/core/hub.c", "USB", "d"),
    ("fs/old.c", "OLD", ""), ("fs/new.c", "NEW", ""), ("arch/riscv/mm/init.c", "DEBUG_VM", ""),
]  # fmt: skip


def index_of(*messages: tuple[str, bool, int, str]) -> MessageIndex:
    """Return an index of (format, floating, place, mask and flag)."""
    rows = [row_of(template_of(form), floating, True) for form, floating, _, _ in messages]
    assert None not in rows
    lines = sorted(
        row + f"\t{place} {facts}".encode() for row, (_, _, place, facts) in zip(rows, messages, strict=True) if row
    )
    return MessageIndex(
        SECTION.join([
            b"6.1.9\n6.12.9",
            "\n".join("\t".join(place).rstrip("\t") if place[1] else f"{place[0]}\t" for place in PLACES).encode(),
            b"ONE\tt\tTWO\tPCI\nPCI\tb\t\t",
            b"one_init\t1\nboth_init\t1 2",
            b"one\t1\ntwo-port\t2\nshared\t1 2\nhub\t5",
            b"net_tun\t0",
            b"pci\t4",
            b"tun: \t0\nshared: \t1 2",
            b"\n".join(lines),
        ])
    )  # fmt: skip


INDEX = index_of(
    ("tun: Universal driver, %s", False, 0, "3i"),
    ("link is up at %d Mbit", True, 1, "3"), ("link is up at %d Mbit", True, 2, "3"),
    ("found a bridge window %s", True, 1, "3"), ("USB hub found here", True, 5, "3"),
    ("mounted the file system", False, 6, "1"), ("mounted the file system", False, 7, "2"),
    ("Run %s as init process", False, 3, "3"), ("enabling the bus device", True, 4, "3"), ("probed", True, 1, "3"),
    ("main: console [%s] is enabled now", False, 3, "3"), ("clocks and memory are set to %d and %d.", False, 3, "3"),
    ("one: the whole card is registered as %s now", False, 1, "3"), ("%s: no parent is known of %s", False, 4, "3"),
    ("rcu: \tevents are being traced", False, 3, "3"), ("range %x is available for devices", False, 3, "3"),
    ("deferred work on this port begins", True, 2, "3"), ("OLD: first message", False, 6, "3"),
    ("OLD: second", False, 6, "3"),
    ("NOTICE: first message", False, 6, "3"), ("NOTICE: second", False, 6, "3"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "origin"),
    [
        ("tun: Universal driver, 1.6", Origin("net/tun.c", ("TUN",), True)),
        ("tun: anything else", Origin("net/tun.c", ("TUN",))),  # only one option has the prefix
        ("shared: anything else", None),
        ("one 0000:00:01.0: link is up at 10 Mbit", Origin("drivers/one/one.c", ("ONE",))),
        ("two-port two-port.0: link is up at 10 Mbit", Origin("drivers/one/two.c", ("TWO",))),
        ("vendor 1: link is up at 10 Mbit", None),  # two have the same words
        ("two-port two.0: found a bridge window [a]", Origin("drivers/one/two.c", ("TWO",))),  # its driver's name
        ("two-port two.0: enabling the bus device", Origin("drivers/pci/probe.c", ("PCI",))),  # the bus's core
        ("two-port two.0: USB hub found here", Origin("drivers/usb/core/hub.c", ("USB",))),
        ("pci 0000:00:01.0: reg 0x10: [io  0x1]", Origin("drivers/pci/probe.c", ("PCI",))),
        ("found a bridge window [mem 0]", None),  # no driver prints it without its name
        ("Run /init as init process", Origin("init/main.c", ())),
        ("Run", None), ("", None), ("Run /init as init", None),
        ("systemd[1]: one 1: link is up at 10 Mbit", None),
        ("init[7]: tun: Universal driver, 1.6", None),
        ("one 0000:00:01.0: probed", Origin("drivers/one/one.c", ("ONE",))),  # few letters, behind its driver's name
        ("vendor 0000:00:01.0: probed", None),
        ("rcu:     events are being traced", Origin("init/main.c", ())),  # blanks for a tab
        ("/soc/a@1: no parent is known of /soc/b@2", Origin("drivers/pci/probe.c", ("PCI",))),  # begins with a name
    ],
)  # fmt: skip
def test_a_line_has_one_origin_or_none(line: str, origin: Origin | None) -> None:
    assert INDEX.origin(line) == origin


@pytest.mark.parametrize(
    ("line", "origin"),
    [
        ("console [tty0] is enabled now", Origin("init/main.c", ())),  # an older kernel had no prefix
        ("init: main: console [tty0] is enabled now", Origin("init/main.c", ())),  # another one has two
        ("main: range 0x7f is available for devices", Origin("init/main.c", ())),  # an older kernel had one
        ("program: range 0x7f is available for devices", None),  # anyone may say so
        ("the whole card is registered as tty0 now", None),  # no driver says so without its name
        ("clocks and memory are set to 3 and 4, at last", Origin("init/main.c", ())),  # the end differs
        ("clocks and memory", None),
        ("two-port 1-1: deferred work on this port ends", Origin("drivers/one/two.c", ("TWO",))),
        ("vendor 1-1: deferred work on this port ends", None),
        ("OLD: third", Origin("fs/old.c", ("OLD",))),  # all messages that begin so are of one option, which is named so
        ("NOTICE: third", None),  # all messages that begin so are of one option, and anyone may begin so
        ("tar: deferred work: no parent is known", None),
        ("RTNETLINK answers: USB hub found here", None),  # a program's words before it are no device
    ],
)  # fmt: skip
def test_a_message_that_changed_between_kernels_has_its_origin(line: str, origin: Origin | None) -> None:
    assert INDEX.origin(line) == origin


def test_a_file_of_another_architecture_printed_nothing() -> None:
    there = index_of(("memory layout of the kernel", False, 8, "3"))
    line = "memory layout of the kernel"
    assert there.origin(line, "6.12", "riscv64") == there.origin(line) == Origin("arch/riscv/mm/init.c", ("DEBUG_VM",))
    assert there.origin(line, "6.12", "arm") is None


def test_the_nearest_kernel_is_asked_first() -> None:
    line = "mounted the file system"
    assert INDEX.origin(line, "6.12.1") == INDEX.origin(line) == Origin("fs/new.c", ("NEW",))
    assert INDEX.origin(line, "6.6") == INDEX.origin(line, "3.10.0-514") == Origin("fs/old.c", ("OLD",))


def test_an_initcall_and_an_option_are_known_by_name() -> None:
    assert INDEX.of_initcall("one_init") == Origin("drivers/one/one.c", ("ONE",))
    assert INDEX.of_initcall("both_init") is INDEX.of_initcall("absent") is None
    assert (INDEX.kind("ONE"), INDEX.selected_by("ONE"), INDEX.depends_on("ONE")) == ("t", ("TWO",), ("PCI",))
    assert (INDEX.kind("ABSENT"), INDEX.selected_by("ABSENT")) == ("h", ())


@given(st.text(max_size=80))
def test_any_line_may_be_asked(line: str) -> None:
    INDEX.origin(line)
