# SPDX-License-Identifier: Apache-2.0
"""Peers of network tests: waiting until one listens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from vmtailor.bench.suites.bench_run import TrialFailed

#: The ports of iperf3, of netperf's server, and of ours that answers byte by byte.
IPERF, NETSERVER, PING = 5201, 12865, 5007


def await_listening(process: int, port: int = IPERF, patience_s: float = 10.0) -> None:
    """Wait until a server has a listening socket: its namespace's table has the port in state 0A. Raises TrialFailed
    when it has none in time. (A host without IPv6 has one table, and a process that has ended none.)"""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if any(f":{port:04X} " in line and " 0A " in line for line in _sockets(process)):
            return
        time.sleep(0.005)
    raise TrialFailed(f"nobody listens on port {port}")


def _sockets(process: int) -> Iterator[str]:
    """The lines of its namespace's tables, as far as there are any."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            yield from Path(f"/proc/{process}/net/{table}").read_text().splitlines()
