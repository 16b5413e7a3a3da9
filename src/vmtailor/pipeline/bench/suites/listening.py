# SPDX-License-Identifier: Apache-2.0
"""Peers of network tests: waiting until one listens."""

from __future__ import annotations

import time

from vmtailor.pipeline.bench.bench_run import TrialFailed

#: The ports of iperf3, of netperf's server, and of ours that answers byte by byte.
IPERF, NETSERVER, PING = 5201, 12865, 5007


def await_listening(process: int, port: int = IPERF, patience_s: float = 10.0) -> None:
    """Wait until a server has a listening socket: its namespace's table has the port in state 0A."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{process}/net/{table}") as file:  # noqa: PTH123  # read at once, may be gone
                if any(f":{port:04X} " in line and " 0A " in line for line in file):
                    return
        time.sleep(0.005)
    raise TrialFailed(f"nobody listens on port {port}")
