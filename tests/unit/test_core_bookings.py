# SPDX-License-Identifier: Apache-2.0
"""Processors that are booked, and a lock that a program holds beyond the end of who started it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vmtailor.base import process
from vmtailor.base.cache import core_bookings
from vmtailor.base.cache.core_bookings import CoreBooking, CoreShare
from vmtailor.base.cache.store import locked
from vmtailor.base.files import file_lock


def test_as_many_ones_as_there_are_processors_and_all_is_alone(tmp_path: Path) -> None:
    booking = CoreBooking(tmp_path, 2)
    now, most, alone = [0], [0], [True]
    lock = threading.Lock()

    def work(share: CoreShare) -> None:
        with booking.booked(share):
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.02)
            with lock:
                alone[0] = alone[0] and (share is CoreShare.ONE or now[0] == 1)
                now[0] -= 1

    shares = [CoreShare.ONE, CoreShare.ONE, CoreShare.ALL, CoreShare.ONE, CoreShare.ONE, CoreShare.ALL]
    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == [2]
    assert alone == [True]


def test_without_a_booking_nothing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with core_bookings.booked(CoreShare.ALL), core_bookings.booked(CoreShare.ALL):
        pass
    monkeypatch.setattr(core_bookings, "_booking", [])
    core_bookings.begin(tmp_path, 1)
    with core_bookings.booked(CoreShare.ONE):
        assert file_lock.is_held(tmp_path / "cores-0")
        assert not file_lock.is_held(tmp_path / "cores-gate")
    assert not file_lock.is_held(tmp_path / "cores-0")


def test_what_is_booked_by_a_process_that_dies_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, time\n"
        "from vmtailor.base.cache.core_bookings import CoreBooking, CoreShare\n"
        "with CoreBooking(pathlib.Path(sys.argv[1]), 1).booked(CoreShare.ALL):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    held = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert held.stdout is not None
    assert held.stdout.readline() == b"held\n"
    held.kill()
    held.wait()
    held.stdout.close()
    with CoreBooking(tmp_path, 1).booked(CoreShare.ONE):
        pass


def test_a_compile_that_outlives_us_still_holds_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder.lock"
    with locked(path) as lock:
        left = process.leave(["sleep", "60"], tmp_path / "log", nice=0, pass_fds=(lock,))
    try:
        assert file_lock.is_held(path)
    finally:
        subprocess.run(["kill", str(left)], check=True)
    end = time.monotonic() + 10
    while file_lock.is_held(path):
        assert time.monotonic() < end
        time.sleep(0.01)
