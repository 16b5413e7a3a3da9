# SPDX-License-Identifier: Apache-2.0
"""The instructions of a request under load, and the rate that one processor gives by them."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.model.boots.boot import Boot, Phase

#: The mark at which a client outside of the guest begins to ask.
LOAD_ASKS = "load_asks"


@dataclass(frozen=True)
class RequestCost:
    """Instructions a request, mean over all requests of a boot's load. `kernel`: without the client's, whose kernel
    part is what the kernel executed since the client ran last, interrupts included. `requests`: those that were asked,
    right or not."""

    kernel: float
    user: float
    client_kernel: float
    client_user: float
    requests: int

    @property
    def container(self) -> float:
        return self.kernel + self.user

    @property
    def client(self) -> float:
        return self.client_kernel + self.client_user

    @property
    def whole(self) -> float:
        return self.container + self.client

    @property
    def most(self) -> float:
        """Return the requests a second of one processor that executes an instruction a nanosecond, and nothing else."""
        return 1e9 / self.whole


@dataclass(frozen=True)
class HostRequestCost:
    """Instructions a request that came from the lab over its network, mean over the first load. `client`: of user
    programs of the lab, which are the client and the monitor; `host`: of the lab's kernel for both, network included;
    `kernel` and `user`: of the guest; `exits`: times a request at which the guest was left."""

    kernel: float
    user: float
    host: float
    client: float
    exits: float
    requests: int


def from_host(boot: Boot) -> HostRequestCost | None:
    """Return what a request from the lab cost; None where no load came from there."""
    parts = boot.monitor.parts if boot.monitor is not None else ()
    part = next((one for one in parts if one.begin == LOAD_ASKS), None)
    loads = boot.container.loads if boot.container is not None else ()
    if part is None or not loads or not loads[0].asked:
        return None
    asked = loads[0].asked
    return HostRequestCost(
        kernel=part.guest_kernel / asked, user=part.guest_user / asked, host=part.host_kernel / asked,
        client=part.host_user / asked, exits=part.exits / asked, requests=asked,
    )  # fmt: skip


def of_boot(boot: Boot) -> RequestCost | None:
    """Return the costs of a counted boot's load; None where nothing was counted or asked."""
    phase = next((one for one in boot.phases if one.phase is Phase.LOAD), None)
    asked = boot.container.requests if boot.container is not None else 0
    if phase is None or asked <= 0:
        return None
    return RequestCost(
        kernel=phase.kernel / asked,
        user=phase.user / asked,
        client_kernel=phase.client_kernel / asked,
        client_user=phase.client_user / asked,
        requests=asked,
    )
