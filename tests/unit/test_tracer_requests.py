# SPDX-License-Identifier: Apache-2.0
"""What the tracer makes the kernel ask for is told from what the container asks for."""

from __future__ import annotations

import pytest

from vmtailor.analysis.demands.container_calls import own_requests
from vmtailor.model.syscalls import SyscallEvent

ASKED = (
    "net-pf-16-proto-4",
    "net-pf-16-proto-4-type-16",
    "net-pf-16-proto-4-type-2-6",
    "net-pf-16-proto-12",
    "net-pf-17",
)


def opened(protocol: str) -> SyscallEvent:
    return SyscallEvent(1, 1, "t", "socket", ("AF_NETLINK", "SOCK_RAW|SOCK_CLOEXEC", protocol), 3, "", 0.0)


def test_socket_diagnosis_is_the_tracers() -> None:
    assert own_requests(ASKED, [opened("NETLINK_ROUTE")]) == ("net-pf-16-proto-12", "net-pf-17")


@pytest.mark.parametrize("protocol", ["NETLINK_SOCK_DIAG", "NETLINK_INET_DIAG"])
def test_socket_diagnosis_of_the_container_counts(protocol: str) -> None:
    assert own_requests(ASKED, [opened(protocol)]) == ASKED
