# SPDX-License-Identifier: Apache-2.0
"""Streams of `run` over the virtio line: every byte, both ends of a stream, readers that are slow or leave."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from tests.fakes.program import assert_nothing_left, descendants, finish, started

pytestmark = pytest.mark.system

#: Some more than all windows, pipes and queues hold.
MANY_BYTES = 6 << 20
PATIENCE_S = 120.0


def test_every_byte_there_and_back(talker: Path, tmp_path: Path) -> None:
    """More than everything on the way holds, both ways at once; the end of the input ends the output."""
    data = bytes(range(256)) * (MANY_BYTES // 256) + b"no end of line"
    given = tmp_path / "given"
    given.write_bytes(data)
    with (
        given.open("rb") as file,
        started(tmp_path / "run", "run", "-i", talker, "copy", stdin=file.fileno()) as running,
    ):
        running.wait_for_program("virtserialport,chardev=line")
        ended = finish(running, PATIENCE_S)
    assert (ended.code, ended.stderr) == (4, "")
    assert hashlib.sha256(running.out.read_bytes()).digest() == hashlib.sha256(data).digest()
    assert_nothing_left(ended)


def test_the_two_outputs_stay_apart(talker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", talker, "say") as running:
        ended = finish(running, PATIENCE_S)
    assert (ended.code, ended.stderr) == (3, "an aside\n")
    assert "aside" not in ended.stdout and "folder /srv\n" in ended.stdout


def test_input_that_comes_later_is_passed_on_at_once(talker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", "-i", talker, "copy", stdin=subprocess.PIPE) as running:
        assert running.process.stdin is not None
        for word in ("one", "two"):
            running.process.stdin.write(word.encode())
            running.process.stdin.flush()
            running.wait_for(word, where=running.out)
        running.process.stdin.close()
        ended = finish(running, PATIENCE_S)
    assert (ended.code, ended.stdout) == (4, "onetwo")


def test_input_that_nobody_takes_keeps_no_signal_waiting(talker: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_bytes(bytes(MANY_BYTES))
    with (
        given.open("rb") as file,
        started(tmp_path / "run", "run", "-i", talker, "wait", stdin=file.fileno()) as running,
    ):
        running.wait_for("waiting", where=running.out)
        running.process.terminate()
        ended = finish(running, PATIENCE_S)
    assert ended.code == 10, ended.stderr  # SIGUSR1, the image's stop signal


def test_a_reader_that_leaves_early(talker: Path, tmp_path: Path) -> None:
    """The container is stopped, and its own status is what counts."""
    reader, writer = os.pipe()
    with started(tmp_path, "run", talker, "flood", stdout=writer) as running:
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as line:
            assert line.read(10) == b"x" * 10
        ended = finish(running, PATIENCE_S)
    assert (ended.code, ended.stderr) == (6, "")
    assert_nothing_left(ended)


def _memory_of_monitor(pid: int) -> int:
    """Bytes in memory of the process of QEMU below one."""
    if b"virtserialport" in Path(f"/proc/{pid}/cmdline").read_bytes():
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) << 10 if found else 0
    return max((_memory_of_monitor(int(word)) for word in _children(pid)), default=0)


def _children(pid: int) -> list[str]:
    return [word for listed in Path(f"/proc/{pid}/task").glob("*/children") for word in listed.read_text().split()]


def test_a_slow_reader_holds_the_container_back(talker: Path, tmp_path: Path) -> None:
    """A small machine that floods its output does not fill up while nobody reads; then all is there, in its order."""
    reader, writer = os.pipe()
    with started(tmp_path, "run", "-m", "32M", talker, "flood", stdout=writer) as running:
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as line:
            assert line.read(1)
            time.sleep(2.0)
            before = _memory_of_monitor(running.process.pid)
            time.sleep(4.0)
            after = _memory_of_monitor(running.process.pid)
            assert before > 0 and after - before < 4 << 20
            got = b"x"
            while len(got) < MANY_BYTES:
                got += line.read(1 << 20)
            running.process.terminate()
            while rest := line.read(1 << 20):
                got += rest
        ended = finish(running, PATIENCE_S)
    assert (ended.code, ended.stderr) == (6, "")
    assert set(got.split(b"\n")[:-1]) == {b"x" * 999}
    assert not descendants(running.process.pid)


@pytest.mark.attack
@pytest.mark.parametrize("more", [(), ("--privileged",)])
def test_nobody_but_init_has_the_port(talker: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    with started(tmp_path, "run", *more, talker, "ports") as running:
        ended = finish(running, PATIENCE_S)
    assert (ended.code, ended.stdout) == (0, "busy\n")
