# SPDX-License-Identifier: Apache-2.0
"""Absences that are harmless by nature: reported, and no failures; a path that is needed still is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.kernel_tree import read_facts

from vmtailor.analysis.demands import degradation, demand, demand_rules, harmless_absences
from vmtailor.analysis.demands.demand import Demands
from vmtailor.base.errors import UserInputError
from vmtailor.model.syscalls import FailedCall, SyscallEvent

NODES = FailedCall("openat", "/sys/devices/system/node, O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY", "ENOENT")


@pytest.mark.parametrize(
    ("call", "row"),
    [
        (NODES, "memory-nodes"),
        (FailedCall("openat", "/sys/devices/system/node/node0/cpulist, O_RDONLY", "ENOENT"), "memory-nodes"),
        (FailedCall("openat", "/sys/devices/system/cpu/cpu0/cache/index0/size, O_RDONLY", "ENOENT"), "cpu-topology"),
        (FailedCall("access", "/sys/kernel/mm/transparent_hugepage/enabled, R_OK", "ENOENT"), "huge-page-settings"),
        (FailedCall("openat", "/proc/sys/kernel/ngroups_max, O_RDONLY", "ENOENT"), "number-of-groups"),
        (FailedCall("get_mempolicy", "NULL, NULL, 0, NULL, 0", "ENOSYS"), "memory-policy-asked"),
        (FailedCall("readv", "/proc/PID/attr/current", "EINVAL"), "security-label"),
    ],
)
def test_what_is_harmless_is_reported_with_its_reason(call: FailedCall, row: str) -> None:
    counted, absent = harmless_absences.split([call])
    assert counted == () and [(one.call, one.id) for one in absent] == [(call, row)]
    assert len(absent[0].reason) > 20


@pytest.mark.parametrize(
    "call",
    [
        FailedCall("openat", "/sys/devices/system/cpu/online, O_RDONLY", "ENOENT"),  # how many there are
        FailedCall("openat", "/sys/devices/system/nodes, O_RDONLY", "ENOENT"),
        FailedCall("openat", "/sys/devices/system/node, O_RDONLY", "EACCES"),  # it is there, and refused
        FailedCall("openat", "/proc/meminfo, O_RDONLY", "ENOENT"),
        FailedCall("openat", "/proc/self/status, O_RDONLY", "ENOENT"),
        FailedCall("openat", "/etc/haproxy/haproxy.cfg, O_RDONLY", "ENOENT"),
        FailedCall("rename", "/sys/devices/system/node, /etc/passwd", "ENOENT"),  # one of two
        FailedCall("unlink", "/proc/sys/kernel/ngroups_max", "ENOENT"),  # another call than reading
        FailedCall("mbind", "MPOL_BIND", "ENOSYS"),
        FailedCall("get_mempolicy", "NULL, NULL, 0, NULL, 0", "EINVAL"),
        FailedCall("write", "/proc/PID/attr/current", "EINVAL"),  # a profile is asked for
        FailedCall("read", "/proc/PID/attr/exec", "EINVAL"),
        FailedCall("openat", "/sys/module/apparmor/parameters/enabled, O_RDONLY", "ENOENT"),  # a module that was there
        FailedCall("openat", "", "ENOENT"),
    ],
)
def test_what_a_program_needs_is_a_failure_still(call: FailedCall) -> None:
    assert harmless_absences.split([call]) == ((call,), ())


def event(path: str, error: str = "") -> SyscallEvent:
    words = ("AT_FDCWD</>", f'"{path}"', "O_RDONLY|O_DIRECTORY")
    return SyscallEvent(7, 1, "t", "openat", words, -1 if error else 3, error, 0.0)


def test_a_folder_that_is_gone_is_what_the_log_says_and_no_failure() -> None:
    found = degradation.newly_failing(
        [event("/sys/devices/system/node")], [event("/sys/devices/system/node", "ENOENT")]
    )
    counted, absent = harmless_absences.split(found)
    assert counted == () and len(absent) == 1


@pytest.mark.parametrize(
    ("path", "symbols"),
    [
        ("/sys/devices/system/node", set()),  # would bring NUMA, and SMP with it, for one node
        ("/sys/kernel/mm/transparent_hugepage/enabled", {"SYSFS", "TRANSPARENT_HUGEPAGE"}),  # kept as it was seen
        ("/sys/class/things/1/state", {"SYSFS", "NUMA"}),  # by the source, without a rule of ours
    ],
)
def test_what_says_only_that_nothing_is_there_is_not_demanded(path: str, symbols: set[str]) -> None:
    found = Demands(read_facts(), demand_rules.load(), {"SYSFS", "NUMA", "TRANSPARENT_HUGEPAGE"})
    demand.of_events([event(path)], found)
    assert {name for one in found.result() for name in one.symbols} == symbols


#: Answers other than "not there" that an experiment allows: which one.
EXPERIMENTS = {"security-label": {"EINVAL"}}  # tests/contract/test_security_label.py


def test_every_row_has_a_path_that_is_absolute_and_an_error() -> None:
    for row in harmless_absences.load():
        assert row.errors and all(path.startswith(("/sys/", "/proc/")) for path in row.paths), row.id
        only = EXPERIMENTS.get(row.id) or ({"ENOENT"} if row.paths else {"ENOSYS"})
        assert set(row.errors) <= only, f"{row.id}: another answer than 'not there' needs an experiment"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("[[absence]]", "[[absence]"), "not TOML"),
        (lambda text: text.replace("reason", "raison"), "absence 'a'"),
        (lambda text: text.replace("paths", "# paths"), "neither paths nor calls"),
        (lambda text: text + "colour = 'red'\n", "unknown key colour"),
        (lambda text: text.replace("[[absence]]", "[[absense]]"), "unknown table absense"),
        (lambda text: text + text, "two rows of data/harmless"),
    ],
)
def test_mistakes_in_the_data_are_named(change: Callable[[str], str], message: str, tmp_path: Path) -> None:
    text = '[[absence]]\nid = "a"\npaths = ["/x"]\nerrors = ["ENOENT"]\nreason = "why"\n'
    (tmp_path / "rows.toml").write_text(change(text))
    with pytest.raises(UserInputError, match=message):
        harmless_absences.load(tmp_path)
