# SPDX-License-Identifier: Apache-2.0
"""`journalctl -o export`, as systemd documents it: plain fields, binary fields, entries cut off and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bootlog.reading import call, timeline_of, times, unit

from vmtailor.analysis.bootlog import journal
from vmtailor.analysis.bootlog.formats import is_export
from vmtailor.analysis.bootlog.log_lines import Content
from vmtailor.analysis.timeline.boot_timeline import analyze


def field(name: str, value: bytes) -> bytes:
    """One field, in the binary form where it has to be."""
    plain = all(byte >= 32 or byte == 9 for byte in value)
    if plain:
        return name.encode() + b"=" + value + b"\n"
    return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def entry(at_us: int, message: bytes, transport: str = "kernel", ident: str = "kernel", pid: str = "") -> bytes:
    fields = [
        (
            "__CURSOR",
            b"s=739a;i=4ece7;b=6c7c6013a26343b29e964691ff25d04c;m=4fc72436e;t=4c508a72423d9;x=d3e5",
        ),
        ("__REALTIME_TIMESTAMP", b"1342540861416409"),
        ("__MONOTONIC_TIMESTAMP", b"%d" % (at_us + 9_000_000)),
        ("_BOOT_ID", b"6c7c6013a26343b29e964691ff25d04c"),
        ("_TRANSPORT", transport.encode()),
        ("SYSLOG_IDENTIFIER", ident.encode()),
        *([("_PID", pid.encode())] if pid else []),
        ("_SOURCE_MONOTONIC_TIMESTAMP", b"%d" % at_us),
        ("MESSAGE", message),
    ]
    return b"".join(field(name, value) for name, value in fields) + b"\n"


BOOT = [
    entry(0, b"Linux version 6.1.0-9-amd64 (gcc-12) #1"),
    entry(100_000, b"calling  pci_subsys_init+0x0/0x130 @ 1"),
    entry(100_500, b"initcall pci_subsys_init+0x0/0x130 returned 0 after 480 usecs"),
    entry(1_200_000, b"Run /init as init process"),
    entry(1_500_000, b"Starting docker.service - Docker", "journal", "systemd", "1"),
    entry(1_600_000, b"a program\nwith\x01 two lines", "stdout", "prog", "77"),
    entry(3_500_000, b"Started docker.service - Docker", "journal", "systemd", "1"),
]


def test_an_export_is_a_boot_log(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, b"".join(BOOT))
    assert timeline.files[0].format == "kernel log, journal (export)"
    assert call(timeline, "pci_subsys_init").duration_us == 480
    assert times(timeline)["kernel"] == (0, 1_200_000)
    assert (unit(timeline, "docker.service").start_us, unit(timeline, "docker.service").duration_us) == (
        1_500_000,
        2_000_000,
    )


#: What the service manager said before the journal ran: through the kernel, in its own name.
EARLY = [
    entry(0, b"Linux version 6.1.0-9-amd64 (gcc-12) #1"),
    entry(2_000_000, b"Freeing unused kernel image memory: 2048K"),
    entry(2_100_000, b"systemd 252 running in system mode (+PAM)", ident="systemd", pid="1"),
    entry(2_150_000, b"Detected virtualization kvm.", ident="systemd", pid="1"),
    entry(2_200_000, b"Running in initrd.", ident="systemd", pid="1"),
    entry(3_000_000, b"Switching root.", ident="systemd", pid="1"),
    entry(5_000_000, b"Reached target multi-user.target - Multi-User System.", "journal", "systemd", "1"),
]


@pytest.mark.parametrize("pid", [b"_PID=1", b"SYSLOG_PID=1"])
def test_what_was_said_before_the_journal_ran_is_the_service_managers(tmp_path: Path, pid: bytes) -> None:
    timeline = timeline_of(tmp_path, b"".join(EARLY).replace(b"_PID=1", pid))
    assert times(timeline)["initrd"] == (2_000_000, 3_000_000) and times(timeline)["userspace"][0] == 3_000_000
    assert timeline.machine is not None and timeline.machine.hypervisor == "kvm"


def test_of_several_boots_in_a_journal_the_one_that_is_asked_for_is_read(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    later = [entry(0, b"Linux version 6.1.0-9-amd64 (gcc-12) #1"), entry(2_000_000, b"Run /init as init process")]
    file.write_bytes(b"".join([BOOT[0], BOOT[3], *later]))
    as_json = tmp_path / "journal.json"
    rows = [
        {"MESSAGE": text, "__MONOTONIC_TIMESTAMP": str(at), "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}
        for at, text in (
            (0, "Linux version 6.1.0 (gcc) #1"), (1_200_000, "Run /init as init process"),
            (0, "Linux version 6.1.0 (gcc) #1"), (2_000_000, "Run /init as init process"),
        )
    ]  # fmt: skip
    as_json.write_text("\n".join(map(json.dumps, rows)))
    for path in (file, as_json):
        assert [analyze([path], boot).kernel_us for boot in (1, 2, 0)] == [1_200_000, 2_000_000, 2_000_000]


def test_a_binary_value_may_hold_what_looks_like_an_entry() -> None:
    trap = b"\n\n__CURSOR=x\nMESSAGE=no\n"
    found = list(journal.entries(entry(5, trap) + entry(6, b"next")))
    assert [one["MESSAGE"] for one in found] == [trap.decode(), "next"]


@pytest.mark.parametrize("cut", [1, 40, 200, 300])
def test_a_capture_that_is_cut_off_is_read_as_far_as_it_goes(cut: int) -> None:
    data = BOOT[0] + BOOT[5][: -min(cut, len(BOOT[5]) - 1)]
    assert next(journal.entries(data))["MESSAGE"].startswith("Linux version")  # type: ignore[attr-defined]


def test_other_files_are_none() -> None:
    for other in (b"", b"__CURSOR=x\n", b"A=1\nB=2\n", b"CONFIG_X=y\n", b'{"__CURSOR": "x"}', b"=\n=\n"):
        assert not is_export(Content("file", iter([other])))


@given(st.lists(st.tuples(st.integers(0, 10**9), st.binary(max_size=60)), min_size=1, max_size=8))
def test_what_was_written_is_read(rows: list[tuple[int, bytes]]) -> None:
    data = b"".join(entry(at, message) for at, message in rows)
    assert is_export(Content("file", iter([data])))
    found = [(one["_SOURCE_MONOTONIC_TIMESTAMP"], one["MESSAGE"]) for one in journal.entries(data)]
    assert found == [(str(at), message.decode("utf-8", "replace")) for at, message in rows]


@given(st.integers(0, 2000), st.binary(max_size=20))
def test_damage_is_no_exception(at: int, junk: bytes) -> None:
    data = b"".join(BOOT)
    journal.export_as_log(data[:at] + junk + data[at + len(junk) :])
