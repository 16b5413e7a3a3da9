# SPDX-License-Identifier: Apache-2.0
"""Relative paths of a trace: from the folder in which their process works."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.demands import container_calls, file_uses
from vmtailor.analysis.demands.call_paths import paths

BEGIN = """\
1 1700000000.1 execve("/.vmtailor/init", ["/.vmtailor/init"], 0x1) = 0 <0.1>
1 1700000000.2 chdir("/srv/my\\"app") = 0 <0.1>
1 1700000000.3 execve("./run.sh", ["./run.sh"], 0x1) = 0 <0.1>
"""


def paths_of(log: str) -> list[tuple[str, ...]]:
    return [paths(event) for event in container_calls.read((BEGIN + log).encode(), ()).events if paths(event)]


def test_from_what_init_was_told() -> None:
    assert paths_of("") == [('/srv/my"app/run.sh',)]


def test_from_where_a_process_went_and_its_children() -> None:
    assert paths_of(
        """\
1 1700000000.4 open("conf/a", O_RDONLY) = 3 <0.1>
1 1700000000.5 chdir("..") = 0 <0.1>
1 1700000000.6 clone(child_stack=NULL, flags=SIGCHLD) = 7 <0.1>
7 1700000000.7 execve("bin/tool", ["bin/tool"], 0x1) = 0 <0.1>
7 1700000000.8 fchdir(4</var/lib>) = 0 <0.1>
7 1700000000.9 open("state", O_RDONLY) = 3 <0.1>
1 1700000001.0 open("state", O_RDONLY) = 3 <0.1>
"""
    )[1:] == [('/srv/my"app/conf/a',), ("/srv",), ("/srv/bin/tool",), ("/var/lib/state",), ("/srv/state",)]


def test_where_it_is_not_known_they_stay_as_they_are() -> None:
    """Of a process that nobody was seen to begin; and of calls that failed, which are compared as they were made."""
    log = """\
9 1700000000.4 execve("tool", ["tool"], 0x1) = 0 <0.1>
9 1700000000.5 openat(AT_FDCWD</tmp>, "x", O_RDONLY) = 3 <0.1>
9 1700000000.6 open("y", O_RDONLY) = 3 <0.1>
9 1700000000.7 open("y", O_RDONLY) = -1 ENOENT (No such file or directory) <0.1>
9 1700000000.8 fchdir(4<pipe:[3]>) = 0 <0.1>
9 1700000000.9 open("y", O_RDONLY) = 3 <0.1>
"""
    assert paths_of(log)[1:] == [("tool",), ("/tmp/x",), ("/tmp/y",), ("y",), ("y",)]


def test_such_a_program_counts_as_opened() -> None:
    uses = file_uses.of_events(container_calls.read(BEGIN.encode(), ()).events)
    assert [use.path for use in uses] == ['/srv/my"app/run.sh']


@given(st.lists(st.sampled_from(["chdir", "fchdir", "execve", "fork", "open"])), st.text(alphabet='/."<>\\\\ab4'))
def test_nothing_that_a_guest_writes_is_an_error(calls: list[str], text: str) -> None:
    lines = (f"{number % 3} 1700000000.{number} {call}({text}) = {number} <0.1>" for number, call in enumerate(calls))
    container_calls.read("\n".join(lines).encode("utf-8", "replace"), ())


def test_numbers_without_end_are_passed_over() -> None:
    long = "9" * 5000
    log = f'{long} 1700000000.4 open("a", 0) = 3 <0.1>\n1 1700000000.4 open("b", 0) = {long} <0.1>\n'
    assert paths_of(log)[1:] == []


def test_folders_do_not_add_up_without_end() -> None:
    log = "".join(f'1 1700000000.{n} chdir("{"a" * 1000}") = 0 <0.1>\n' for n in range(4, 14))
    log += '1 1700000000.9 open("b", 0) = 3 <0.1>\n'
    assert paths_of(log)[-1] == ("b",)
    assert max(len(path) for found in paths_of(log) for path in found) < 6000
