# SPDX-License-Identifier: Apache-2.0
"""Networks of instances: a namespace for each, behind a veth pair. The other end is ours, or in a namespace of its own.
All of them lie in the scope's own network, and end with it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.process import run

_STEP_S = 20.0
#: Networks at once, at most: as many as the descriptions of runtimes name.
MOST = 8
_FOLDER = "/run/netns"
#: The ports of iperf3, of netperf's server, and of our server that answers byte by byte.
IPERF, NETSERVER, PING = 5201, 12865, 5007


@dataclass(frozen=True)
class Link:
    """A network of one instance. `path`: its namespace; `inside`, `outside`: addresses of its end and of the other one;
    `peer`: the namespace of the other end; empty where that is ours."""

    path: str
    inside: str
    outside: str
    peer: str = ""


def loopback_up() -> None:
    """Set up the scope's own loopback device, which is down at first."""
    run(["ip", "link", "set", "lo", "up"], timeout_s=_STEP_S)


@contextlib.contextmanager
def link(number: int, *, peer: bool = False, of: int | None = None) -> Iterator[Link]:
    """Hold a namespace `benchN` with one end of a veth pair in it, up and with addresses, until the block is left.
    `peer`: put the other end into a namespace of its own. `of`: a process whose namespace to use; None: make a new
    one."""
    if not 0 <= number < MOST:
        raise ValueError(f"network {number} of {MOST}")
    name, other = f"bench{number}", f"peer{number}"
    inside, outside = f"10.77.{number}.2", f"10.77.{number}.1"
    ip = ["ip", "-n", other] if peer else ["ip"]
    made = [name, *([other] if peer else [])]
    for one in made:
        joined = ["attach", one, str(of)] if one == name and of is not None else ["add", one]
        run(["ip", "netns", *joined], timeout_s=_STEP_S)
    try:
        where = ["netns", other] if peer else []
        device = "vb-out" if peer else f"vb-out{number}"
        ends = ["type", "veth", "peer", "name", "eth0", "netns", name]
        run(["ip", "link", "add", device, *where, *ends], timeout_s=_STEP_S)
        for words in (
            ["ip", "-n", name, "link", "set", "lo", "up"],
            ["ip", "-n", name, "address", "add", f"{inside}/24", "dev", "eth0"],
            ["ip", "-n", name, "link", "set", "eth0", "up"],
            [*ip, "address", "add", f"{outside}/24", "dev", device],
            [*ip, "link", "set", device, "up"],
        ):
            run(words, timeout_s=_STEP_S)
        yield Link(f"{_FOLDER}/{name}", inside, outside, f"{_FOLDER}/{other}" if peer else "")
    finally:
        for one in made:
            run(["ip", "netns", "delete", one], timeout_s=_STEP_S, ok=range(256))
        if not peer:
            run(["ip", "link", "delete", f"vb-out{number}"], timeout_s=_STEP_S, ok=range(256))


def await_listening(process: int, port: int = IPERF, patience_s: float = 10.0) -> None:
    """Wait until a server has a listening socket: its namespace's table has the port in state 0A. Raises HostError when
    it has none in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if any(f":{port:04X} " in line and " 0A " in line for line in _sockets(process)):
            return
        time.sleep(0.005)
    raise HostError(f"no program listens on port {port}", hint="is the port taken?")


def _sockets(process: int) -> Iterator[str]:
    """Yield the lines of its namespace's tables, as far as there are any: a host without IPv6 has one table, and a
    process that has ended has none."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            yield from Path(f"/proc/{process}/net/{table}").read_text().splitlines()
