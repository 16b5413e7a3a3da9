# SPDX-License-Identifier: Apache-2.0
"""A client of a server that may not be there yet."""

from __future__ import annotations

import time
import urllib.request


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
