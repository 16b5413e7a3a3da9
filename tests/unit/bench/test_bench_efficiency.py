# SPDX-License-Identifier: Apache-2.0
"""What of an instance counts for a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from vmtailor.bench.model.instance import BENCH
from vmtailor.bench.runtimes.networks import Link
from vmtailor.bench.runtimes.stopwatch import TimedCommand
from vmtailor.bench.suites import efficiency

LINK = Link("/run/netns/bench0", "10.77.0.2", "10.77.0.1", "/run/netns/peer0")


def test_the_start_and_end_of_an_instance_are_not_in_what_a_byte_costs() -> None:
    used, commands = [0.0], []

    def run(runtime: str, command: Sequence[str], *, network: str, **_: object) -> TimedCommand:
        assert (runtime, network) == ("docker", LINK.path)
        commands.append(list(command))
        used[0] += 0.4 if command == [BENCH, "null"] else 2.4
        return TimedCommand((), None, 0.0, 0, " ".join(command).encode(), b"")

    cgroups = SimpleNamespace(cpu_s=lambda: used[0])
    fake: Any = SimpleNamespace(run=run, cgroups=cgroups)
    found, cost_s = efficiency._with_cpu(fake, "docker", ["iperf3"], LINK)
    assert commands == [[BENCH, "null"], ["iperf3"]] and found.stdout == b"iperf3"
    assert round(cost_s, 9) == 2.0
