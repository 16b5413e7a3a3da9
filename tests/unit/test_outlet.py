# SPDX-License-Identifier: Apache-2.0
"""The way out for a container's output: it never blocks, loses nothing to a slow reader, and has a bound."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator

import pytest

from vmtailor.drivers.host import outlet
from vmtailor.drivers.host.outlet import Outlet


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError as error:
            assert error.errno == errno.EBADF


def test_all_arrives_in_its_order(pipe: tuple[int, int]) -> None:
    out = Outlet(pipe[1])
    for word in (b"one ", b"two ", b"three"):
        out.put(word)
    assert out.wait(5.0) and os.read(pipe[0], 100) == b"one two three"
    assert out.close() == 0


@pytest.mark.attack
def test_a_reader_that_does_not_read_blocks_nobody_and_gets_all_when_it_does(pipe: tuple[int, int]) -> None:
    woken = threading.Event()
    out = Outlet(pipe[1], woken.set)
    data = os.urandom(3 * outlet.FULL_BYTES)
    out.put(data)
    assert out.full and not out.wait(0.01)
    heard = bytearray()
    while len(heard) < len(data):
        heard += os.read(pipe[0], 65536)
    assert heard == data
    assert out.wait(5.0) and woken.wait(5.0) and not out.full
    assert out.close() == 0


@pytest.mark.attack
def test_what_is_queued_has_a_bound(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "MOST_BYTES", 1 << 20)
    out = Outlet(pipe[1])
    for _ in range(20):
        out.put(b"x" * (1 << 18))
    assert out.queued <= 1 << 20
    capacity = 65536  # of the pipe
    assert 20 * (1 << 18) - capacity <= out.close() <= 20 * (1 << 18)
    os.close(pipe[0])  # its thread ends


def test_a_reader_that_is_gone_is_no_error_of_who_writes(pipe: tuple[int, int]) -> None:
    woken = threading.Event()
    out = Outlet(pipe[1], woken.set)
    os.close(pipe[0])
    out.put(b"x")
    assert woken.wait(5.0) and out.failed == errno.EPIPE
    out.put(b"more")
    assert out.wait(0.0) and out.close() == 0


def test_a_full_disk_is_seen() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    woken = threading.Event()
    out = Outlet(full, woken.set)
    out.put(b"x")
    assert woken.wait(5.0) and out.failed == errno.ENOSPC
    out.close()
    os.close(full)


def test_an_end_that_somebody_made_non_blocking(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    out = Outlet(pipe[1])
    data = os.urandom(200_000)
    out.put(data)
    heard = bytearray()
    while len(heard) < len(data):
        heard += os.read(pipe[0], 65536)
    assert heard == data and out.wait(5.0)
    out.close()
