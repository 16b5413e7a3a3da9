# SPDX-License-Identifier: Apache-2.0
"""Asking until there is an answer: a server that may not be there yet, QEMU for what it tells by itself."""

from __future__ import annotations

import time
import urllib.request

from vmtailor.drivers.qemu.qmp import Qmp


def answered(address: str, within_s: float = 120.0) -> bytes:
    """What a server says as soon as it says something: who is early is turned away."""
    until = time.monotonic() + within_s
    while True:
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                return bytes(answer.read())
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def told(qmp: Qmp, within_s: float = 5.0) -> list[str]:
    """Names of QEMU's events, as soon as there is one."""
    until = time.monotonic() + within_s
    while not (names := qmp.heard()) and time.monotonic() < until:
        qmp.feed()
    return names
