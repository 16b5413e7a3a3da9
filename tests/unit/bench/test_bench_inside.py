# SPDX-License-Identifier: Apache-2.0
"""What an instance says of itself: is the row what it says?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.bench.analysis import instance_report
from vmtailor.bench.analysis.phrases import isolation_row
from vmtailor.bench.model.results import Isolated, RuntimeIdentity

STATUS = "Name:\tbench\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t0\nSeccomp:\t2\n"
HERE: dict[str, Any] = {
    "schema": instance_report.SCHEMA, "kernel": "6.1.0", "version": "#1", "program_sha256": "ab", "status": STATUS,
    **{f"ns_{name}": f"{name}:[1]" for name in instance_report.NAMESPACES},
}  # fmt: skip


def identity(seen: dict[str, Any], *, own_kernel: bool = False, chroot: bool = False) -> RuntimeIdentity:
    return instance_report.identity("one", "1.0", seen, HERE, "ab", own_kernel=own_kernel, chroot=chroot)


def test_a_container_is_what_it_says() -> None:
    found = identity({**HERE, "ns_pid": "pid:[2]", "memory_limit": "268435456\n", "cpu_quota": "max 100000\n"})
    assert found.problem == "" and not found.own_kernel
    assert dict(found.namespaces)["pid"] is Isolated.OWN and dict(found.namespaces)["net"] is Isolated.SHARED
    assert (found.memory_limited, found.cpu_limited, found.pids_limited) == (True, False, None)
    assert found.capabilities == 14 and found.seccomp == "filter" and found.no_new_privileges is False


def test_a_row_that_turned_out_native_is_a_failure() -> None:
    assert "turned out native" in identity(HERE).problem
    assert identity(HERE, chroot=True).problem == ""


def test_native_that_is_isolated_is_none() -> None:
    assert "native is isolated" in identity({**HERE, "ns_net": "net:[9]"}, chroot=True).problem


def test_a_kernel_of_its_own_must_be_another() -> None:
    assert "runs on the host's" in identity({**HERE, "ns_pid": "pid:[2]"}, own_kernel=True).problem
    found = identity({**HERE, "kernel": "4.4.0"}, own_kernel=True)
    assert found.problem == "" and all(kind is Isolated.OWN for _, kind in found.namespaces)


def test_another_program_is_a_failure() -> None:
    assert "another program" in identity({**HERE, "ns_pid": "pid:[2]", "program_sha256": "cd"}).problem


def test_a_program_that_cannot_be_told_is_a_failure_of_its_own() -> None:
    found = identity({**HERE, "ns_pid": "pid:[2]", "program_sha256": ""})
    assert found.problem == "it cannot tell which program ran: it has no /proc"


@pytest.mark.parametrize(
    ("text", "limited"),
    [("max\n", False), ("-1\n", False), ("9223372036854771712\n", False), ("100000 100000", True), ("", None)],
)
def test_limits_of_either_version(text: str, limited: bool | None) -> None:
    assert identity({**HERE, "memory_limit": text}).memory_limited is limited


@given(st.dictionaries(st.sampled_from([*HERE, "memory_limit"]), st.text() | st.integers() | st.none()))
def test_whatever_an_instance_says_is_read(said: dict[str, Any]) -> None:
    found = identity({**HERE, **said})
    row = isolation_row(found)
    assert all(cell.isprintable() for cell in row)


@given(st.binary())
def test_what_is_no_report_is_none(data: bytes) -> None:
    assert instance_report.parse(data) is None


def test_a_report_is_read() -> None:
    assert instance_report.parse(msgspec.json.encode(HERE)) == HERE
