# SPDX-License-Identifier: Apache-2.0
"""Facts of a tree: files to conditions, names to places; the tiny tree has one of each case."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kernel_tree import SOURCE, VERSION, read_facts

from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource import names
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kbuild import file_conditions, symbol_of_module
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records


@pytest.fixture(scope="module")
def facts() -> Facts:
    return read_facts()


@pytest.mark.parametrize(
    ("path", "condition"),
    [
        ("init/main.c", "1"),
        ("kernel/time.c", "1"),  # a line continued, with a comment
        ("kernel/futex.c", "FUTEX"),
        ("kernel/timers.c", "POSIX_TIMERS"),  # ifdef
        ("kernel/stubs.c", "!POSIX_TIMERS"),  # else
        ("fs/eventpoll.c", "EPOLL"),
        ("fs/9x.c", "9X_FS"),
        ("fs/parts/super.c", "PARTS_FS"),  # a part of a composite object
        ("fs/parts/lib/tree.c", "PARTS_FS"),  # by addprefix
        ("fs/parts/xattr.c", "PARTS_FS && PARTS_XATTR"),
        ("fs/proc/base.c", "PROC_FS"),
        ("fs/proc/proc_sysctl.c", "PROC_FS && PROC_SYSCTL"),
        ("net/ipv6/af.c", "NET && IPV6"),  # the chain of folders
        ("mm/wide.c", "64BIT"),  # a list in a list
        ("mm/never.c", "1"),  # lib-y
        ("arch/x86/kernel/setup_64.c", "1"),  # a variable inside a name
        ("arch/x86/kernel/glue.c", "IPV6"),  # subst m,y
        ("arch/x86/kernel/expert.c", "EXPERT && EPOLL"),  # ifeq around obj-$(…)
        ("arch/x86/kernel/plain.c", "!EXPERT"),
        ("arch/x86/kernel/bus.c", "BUS_A || BUS_B"),  # ifneq of two
        ("kernel/sched/membarrier.c", "MEMBARRIER"),  # included into another file
        ("include/linux/inline.h", "1"),
        ("no/such/file.c", "1"),
    ],
)
def test_condition_of_a_file(facts: Facts, path: str, condition: str) -> None:
    assert str(facts.file_condition(path)) == condition


@pytest.mark.parametrize(
    ("call", "condition"),
    [
        ("read", "1"),
        ("futex", "FUTEX"),
        ("epoll_create1", "EPOLL"),
        ("setuid", "MULTIUSER"),  # the condition of its lines
        ("clock_gettime", "1"),  # defined twice, one or the other is always there
        ("timer_create", "POSIX_TIMERS"),
        ("membarrier", "MEMBARRIER"),
        ("socket", "NET"),
        ("umount2", "1"),  # another name in the table than in the source
    ],
)
def test_condition_of_a_system_call(facts: Facts, call: str, condition: str) -> None:
    known = facts.syscall(call)
    assert known is not None and str(known[0]) == condition
    assert known[1], "it must say where"


def test_calls_of_another_abi_are_unknown(facts: Facts) -> None:
    assert facts.syscall("execve") is None
    assert facts.syscall("no_such_call") is None


@pytest.mark.parametrize(
    ("kind", "name", "condition"),
    [
        ("family", "INET", "NET && INET"),
        ("family", "INET6", "NET && IPV6"),
        ("family", "UNIX", "NET && UNIX"),
        ("filesystem", "parts", "PARTS_FS"),
        ("proc", "stat", "PROC_FS"),
        ("proc", "self/status", "PROC_FS"),
        ("proc", "self/smaps", "PROC_FS && PROC_EXTRA"),
        ("sysctl", "kernel/threads", "PROC_FS && PROC_SYSCTL"),
        ("sysctl", "kernel/watches", "PROC_FS && PROC_SYSCTL && EPOLL"),
        ("device", "things/one", "DISK"),
    ],
)
def test_condition_of_a_name(facts: Facts, kind: str, name: str, condition: str) -> None:
    assert str(facts.condition(kind, name)) == condition


def test_an_unknown_name_has_no_condition(facts: Facts) -> None:
    assert facts.condition("family", "MOON") is None


def test_facts_are_kept_by_the_identity_of_the_source(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = ksource_facts.load(SOURCE, VERSION, "one", store)
    assert first == read_facts()
    assert ksource_facts.load(tmp_path / "gone", VERSION, "one", store) == first
    assert ksource_facts.load(tmp_path / "gone", VERSION, "two", store).files == {}


def test_facts_of_an_older_schema_are_collected_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(Facts, "SCHEMA", "vmtailor/facts/0")
        ksource_facts.load(SOURCE, VERSION, "one", Store(tmp_path))
    assert ksource_facts.load(SOURCE, VERSION, "one", Store(tmp_path)).files


def test_facts_survive_saving(facts: Facts) -> None:
    assert records.from_bytes(Facts, records.to_bytes(facts)) == facts


def test_the_reader_stays_inside_the_tree() -> None:
    read = ksource_facts.reader(SOURCE)
    assert read("../kernel_tree.py") is None and read("/etc/passwd") is None and read("fs") is None


@given(st.text(alphabet="obj-y+=: $(CONFIG_AB)\n\t\\,ifeqndflsaprx/.#", max_size=300))
def test_any_makefile_can_be_read(text: str) -> None:
    file_conditions({"Kbuild": text, "a/Makefile": text}.get, "x86")


def test_a_makefile_that_includes_itself_ends() -> None:
    tree = {
        "Kbuild": "obj-y += a/\n",
        "a/Makefile": "obj-y += ./ ../a/ b.o\ninclude $(srctree)/a/Makefile\nb-y := b.o c.o\nc-y := b.o\n",
    }
    assert str(file_conditions(tree.get, "x86")["a/c"]) == "1"


@given(st.text(max_size=400))
def test_any_source_can_be_searched(text: str) -> None:
    for finder in names.FINDERS:
        for prefix in finder.hints:
            for _, offset in finder.find(prefix + text):
                assert 0 <= offset <= len(prefix) + len(text)


@pytest.mark.parametrize(
    ("module", "symbol"),
    [
        ("net/unix", "UNIX"),
        ("fs/parts/parts", "PARTS_FS"),  # := instead of +=
        ("drivers/char/thing", "DISK"),
        ("kernel/sys", None),  # always built
        ("nowhere/at/all", None),
    ],
)
def test_the_symbol_that_builds_a_module(module: str, symbol: str | None) -> None:
    assert symbol_of_module(module, ksource_facts.reader(SOURCE)) == symbol


def test_a_module_named_with_dashes_over_several_lines() -> None:
    tree = {"a/Kbuild": "obj-$(CONFIG_X) += one.o \\\n\ttwo-three.o # four.o\n"}
    assert symbol_of_module("a/two_three", tree.get) == "X"
    assert symbol_of_module("a/four", tree.get) is None


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("kernel/mm/transparent_hugepage", "TRANSPARENT_HUGEPAGE"),
        ("kernel/mm/ksm", "TRANSPARENT_HUGEPAGE"),  # a group with a name
        ("devices/system/node", "NUMA"),
        ("bus/node", "NUMA"),
        ("class/things", "NUMA"),
        ("class/made", "NUMA"),
        ("fs/parts", "NUMA"),
    ],
)
def test_folders_of_sys_that_have_a_fixed_place(facts: Facts, name: str, condition: str) -> None:
    assert str(facts.condition("sysfs", name)) == condition


def test_a_folder_below_another_object_has_no_place_that_is_known(facts: Facts) -> None:
    assert not any("below_another" in name for name in facts.names["sysfs"])
