# SPDX-License-Identifier: Apache-2.0
"""Signals as something to read."""

from __future__ import annotations

import os
import select
import signal

from vmtailor.drivers.host.caught_signals import caught


def test_signals_come_in_their_order_and_interrupt_nothing() -> None:
    sent = [signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGWINCH]
    with caught() as signals:
        heard: list[int] = []
        for number in sent:
            os.kill(os.getpid(), number)
            assert select.select([signals], [], [], 5.0)[0]
            heard += signals.take()
        assert heard == [int(number) for number in sent]
        assert signals.take() == []


def test_what_they_did_before_is_put_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)}
    with caught():
        assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in before} == before


def test_nohup_stays_in_force() -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with caught() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert select.select([signals], [], [], 5.0)[0]
            assert signals.take() == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGHUP, old)


def test_waking_is_no_signal_and_never_blocks() -> None:
    with caught() as signals:
        for _ in range(100_000):
            signals.wake()
        assert select.select([signals], [], [], 0)[0]
        assert signals.take() == []
