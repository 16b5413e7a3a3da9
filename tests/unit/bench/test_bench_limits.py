# SPDX-License-Identifier: Apache-2.0
"""Limits with their values, from inside or from the group above; and what each instance says while it is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from vmtailor.bench.analysis import instance_report
from vmtailor.bench.analysis.instance_report import parted, with_limits, witness
from vmtailor.bench.analysis.phrases import ISOLATION, isolation_row, limits_words, records_of
from vmtailor.bench.model.results import BenchHost, BenchTrial, HostRun, RuntimeIdentity, SuiteName, Witness

STATUS = "CapEff:\t00000000a80425fb\nNoNewPrivs:\t0\nSeccomp:\t2\n"
HERE: dict[str, Any] = {
    "schema": instance_report.SCHEMA, "kernel": "6.1.0", "version": "#1", "program_sha256": "ab", "status": STATUS,
    **{f"ns_{name}": f"{name}:[1]" for name in instance_report.NAMESPACES},
}  # fmt: skip
INSIDE = {**HERE, "ns_pid": "pid:[2]"}
V1 = {"memory_limit": "268435456\n", "cpu_quota": "50000\n", "cpu_period": "100000\n", "pids_limit": "256\n"}
V2 = {"memory_limit": "268435456\n", "cpu_quota": "50000 100000\n", "pids_limit": "256\n"}
NONE = {"memory_limit": "9223372036854771712\n", "cpu_quota": "-1\n", "cpu_period": "100000\n", "pids_limit": "max\n"}


def row(seen: dict[str, Any], above: dict[str, str]) -> RuntimeIdentity:
    found = instance_report.identity("one", "1.0", seen, HERE, "ab", own_kernel=False, chroot=False)
    return with_limits(found, seen, above)


@pytest.mark.parametrize("texts", [V1, V2])
def test_limits_have_values_of_either_version(texts: dict[str, str]) -> None:
    found = row({**INSIDE, **texts}, {})
    assert (found.memory_bytes, found.cpus, found.pids) == (256 << 20, 0.5, 256) and found.limits_above == ()
    assert limits_words(found) == "memory 256.0 MiB, CPU 0.5, pids 256"


@pytest.mark.parametrize("seen", [{}, NONE])
@pytest.mark.parametrize("above", [V1, V2])
def test_what_shows_nothing_inside_is_read_from_the_group_above(seen: dict[str, str], above: dict[str, str]) -> None:
    found = row({**INSIDE, **seen}, above)
    assert (found.memory_bytes, found.cpus, found.pids) == (256 << 20, 0.5, 256)
    assert found.limits_above == ("memory", "CPU", "pids")
    assert not (found.memory_limited or found.cpu_limited or found.pids_limited)  # that it sees none stays true
    assert limits_words(found).endswith("on the group above: memory 256.0 MiB, CPU 0.5, pids 256")


def test_of_a_limit_inside_and_one_above_the_lower_one_holds() -> None:
    scope = {"memory_limit": str(16 << 30), "cpu_quota": "-1", "pids_limit": "64"}
    found = row({**INSIDE, **scope}, V1)
    assert (found.memory_bytes, found.cpus, found.pids) == (256 << 20, 0.5, 64)
    assert limits_words(found) == "pids 64; not seen inside, on the group above: memory 256.0 MiB, CPU 0.5"


def test_where_there_is_no_limit_none_is_told() -> None:
    assert limits_words(row({**INSIDE, **NONE}, NONE)) == "none"
    assert limits_words(row(INSIDE, {})) == "not shown inside: memory, CPU, pids"
    hostile = {"memory_limit": "\x1b[2J", "cpu_quota": "1 0", "pids_limit": "9" * 40}
    found = row({**INSIDE, **hostile}, {})
    assert (found.memory_bytes, found.cpus, found.pids) == (None, None, None)


def said(seen: dict[str, Any], of: RuntimeIdentity) -> tuple[Witness | None, str]:
    return witness(of, msgspec.json.encode(seen), HERE, "ab", own_kernel=False, chroot=False)


def test_every_instance_has_to_be_what_its_row_is() -> None:
    known = row(INSIDE, {})
    found, problem = said({**INSIDE, "ns_pid": "pid:[7]"}, known)
    assert problem == "" and found is not None and found.own == ("pid",) and found.seccomp == "filter"
    assert "turned out native" in said(HERE, known)[1]
    assert "another program" in said({**INSIDE, "program_sha256": "cd"}, known)[1]
    assert "runs otherwise" in said({**INSIDE, "ns_net": "net:[9]"}, known)[1]
    assert witness(known, b"no report", HERE, "ab", own_kernel=False, chroot=False) == (
        None,
        "the instance did not report what it is",
    )


def test_an_instance_is_in_the_network_that_was_made_for_it() -> None:
    container, native = (
        row(INSIDE, {}),
        instance_report.identity("n", "", HERE, HERE, "ab", own_kernel=False, chroot=True),
    )
    placed = {"ns_net": "net:[5]"}

    def within(seen: dict[str, Any], of: RuntimeIdentity) -> tuple[Witness | None, str]:
        chroot = of is native
        return witness(
            of, msgspec.json.encode(seen), HERE, "ab", own_kernel=False, chroot=chroot, network=True
        )  # fmt: skip

    assert within({**INSIDE, **placed}, container)[1] == "" == within({**HERE, **placed}, native)[1]
    found, problem = within({**HERE, **placed}, native)
    assert found is not None and found.own == ("net",) and not problem
    assert "not in the network" in within(INSIDE, container)[1]
    assert "not in the network" in within(HERE, native)[1]
    assert "isolated: pid" in within({**INSIDE, **placed}, native)[1]
    assert "runs otherwise" in within({**INSIDE, **placed, "ns_uts": "uts:[8]"}, container)[1]


def test_a_report_ends_where_its_program_begins() -> None:
    report = msgspec.json.format(msgspec.json.encode(INSIDE), indent=1) + b"\n"
    assert parted(report + b'{\n"rate": 1\n}\n') == (report, b'{\n"rate": 1\n}\n')
    assert parted(report[:-2]) == (report[:-2], b"")
    assert parted(b"no such program\n") == (b"", b"no such program\n")


def test_the_table_says_how_many_records_there_are() -> None:
    one, problem = said(INSIDE, row(INSIDE, {}))
    assert one is not None and not problem
    trials = [
        BenchTrial(SuiteName.STARTUP, "report", "one", 1, "warm", n, 0.0, 1.0, witnesses=(one,)) for n in range(3)
    ]
    host = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
    run = HostRun(host, "sha256:0", True, 1, (), (row(INSIDE, {}),), (*trials, replace(trials[0], witnesses=())))
    cells = dict(zip(ISOLATION, isolation_row(run.identities[0], records_of(run)["one"]), strict=True))
    assert cells["records"] == "4"  # and the one that was asked under limits
