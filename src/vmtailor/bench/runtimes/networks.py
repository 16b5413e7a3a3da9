# SPDX-License-Identifier: Apache-2.0
"""Networks of instances: a namespace for each, behind a veth pair; the other end is ours, or in a namespace of its own.
All of them lie in the scope's own network, and end with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from vmtailor.base.process import run

_STEP_S = 20.0
#: How many there can be at once: as many as the descriptions of runtimes name.
MOST = 8
_FOLDER = "/run/netns"


@dataclass(frozen=True)
class Link:
    """`path`: the instance's namespace; `inside`, `outside`: addresses of its end and of the other one; `peer`: the
    namespace of the other end, empty where that is ours."""

    path: str
    inside: str
    outside: str
    peer: str = ""


def loopback_up() -> None:
    """The scope's own loopback device, which is there and down at first."""
    run(["ip", "link", "set", "lo", "up"], timeout_s=_STEP_S)


@contextlib.contextmanager
def link(number: int, *, peer: bool = False, of: int | None = None) -> Iterator[Link]:
    """A namespace `benchN` with one end of a veth pair in it, up and with addresses, until the block is left. `peer`:
    the other end is in a namespace of its own. `of`: a process whose namespace it is; without, it is a new one."""
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
        run(
            ["ip", "link", "add", "vb-out", *where, "type", "veth", "peer", "name", "eth0", "netns", name]
            if peer
            else ["ip", "link", "add", f"vb-out{number}", "type", "veth", "peer", "name", "eth0", "netns", name],
            timeout_s=_STEP_S,
        )
        device = "vb-out" if peer else f"vb-out{number}"
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
