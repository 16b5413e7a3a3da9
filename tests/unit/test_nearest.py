# SPDX-License-Identifier: Apache-2.0
"""Repair looks where it hurts: what the error of a call asks for comes before all else that the call could ask for."""

from __future__ import annotations

import pytest
from tests.fakes.kernel_tree import read_tree

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.explain.nearest import Nearest, nearest
from vmtailor.base.files import toml_files
from vmtailor.model.change import symbol
from vmtailor.model.syscalls import FailedCall

TREE = read_tree()
RULES = demand_rules.load()
#: By what they ran, the likeliest first: what is right stands last.
OUT = (
    "PROC_FS", "PROC_EXTRA", "PROC_SYSCTL", "FILE_LOCKING", "EPOLL", "INET", "UNIX", "PARTS_FS", "TRANSPARENT_HUGEPAGE",
    "NUMA",
)  # fmt: skip


def order(*failed: FailedCall, rules: Rules = RULES, out: tuple[str, ...] = OUT) -> Nearest:
    return nearest(failed, [symbol(name, "n", before="y") for name in out], TREE.facts, rules, TREE.kconfig)


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (FailedCall("openat", "/sys/devices/system/node, O_RDONLY|O_DIRECTORY", "ENOENT"), ["NUMA"]),
        (FailedCall("openat", "/sys/devices/system/node/node0/cpulist, O_RDONLY", "ENOENT"), ["NUMA"]),
        (FailedCall("access", "/sys/kernel/mm/transparent_hugepage, R_OK", "ENOENT"), ["TRANSPARENT_HUGEPAGE"]),
        (FailedCall("statx", "/sys/fs/parts, AT_EMPTY_PATH", "ENOENT"), ["NUMA"]),
        (FailedCall("openat", "/sys/kernel/mm/ksm/run, O_RDONLY", "ENOTDIR"), ["TRANSPARENT_HUGEPAGE"]),
        (FailedCall("socket", "AF_UNIX, SOCK_STREAM", "EAFNOSUPPORT"), ["UNIX"]),
        (FailedCall("openat", "/proc/PID/smaps, O_RDONLY", "ENOENT"), ["PROC_FS", "PROC_EXTRA"]),
        (FailedCall("epoll_create1", "EPOLL_CLOEXEC", "ENOSYS"), ["EPOLL"]),
    ],
)
def test_the_error_says_what_is_asked_for(call: FailedCall, asked: list[str]) -> None:
    found = order(call)
    assert list(found.order[: found.asked]) == asked


def test_a_call_of_a_path_asks_for_itself_only_after_the_path() -> None:
    rules = toml_files.read(
        demand_rules.Rules,
        '[[call]]\nid = "opening"\nkind = "flag"\ncalls = ["openat"]\nsymbols = ["EPOLL"]\nreason = "x"\n',
        "test",
    )
    found = order(FailedCall("openat", "/sys/devices/system/node, O_RDONLY", "ENOENT"), rules=rules)
    assert found.order[:2] == ("NUMA", "EPOLL") and found.asked == 1


def test_of_two_rules_the_one_that_covers_more_of_the_path_comes_first() -> None:
    text = ""
    for name, path, wanted in (("wide", "/sys/a", "INET"), ("narrow", "/sys/a/b/*", "UNIX")):
        text += f'[[path]]\nid = "{name}"\npaths = ["{path}"]\nsymbols = ["{wanted}"]\nreason = "x"\n'
    rules = toml_files.read(demand_rules.Rules, text, "test")
    found = order(FailedCall("openat", "/sys/a/b, O_RDONLY", "ENOENT"), rules=rules)
    assert found.order[:2] == ("UNIX", "INET") and found.asked == 2


def test_several_failures_are_asked_for_together() -> None:
    found = order(
        FailedCall("openat", "/sys/devices/system/node, O_RDONLY", "ENOENT"),
        FailedCall("socket", "AF_UNIX, SOCK_STREAM", "EAFNOSUPPORT"),
    )
    assert set(found.order[: found.asked]) == {"NUMA", "UNIX"}


def test_without_a_failing_call_nothing_is_asked_for() -> None:
    assert order() == Nearest(OUT, 0)


@pytest.mark.parametrize(
    ("pattern", "path", "parts"),
    [
        ("/dev/shm/*", "/dev/shm", 3),
        ("/dev/shm/*", "/dev/shm/a/b", 3),
        ("/dev/shm/*", "/dev/shmem", 0),
        ("/dev/ttyS*", "/dev/ttyS0", 2),
        ("/dev/ttyS*", "/dev", 0),
    ],
)
def test_a_folder_whose_content_is_named_counts_itself(pattern: str, path: str, parts: int) -> None:
    rules = toml_files.read(
        demand_rules.Rules, f'[[path]]\nid = "x"\npaths = ["{pattern}"]\nsymbols = ["A"]\nreason = "x"\n', "test"
    )
    assert rules.paths[0].covers(path) == bool(parts) and (rules.paths[0].length(path) > 0) == bool(parts)
