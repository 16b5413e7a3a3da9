# SPDX-License-Identifier: Apache-2.0
"""All suites, by name."""

from __future__ import annotations

from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.suites.efficiency import Efficiency
from vmtailor.bench.suites.instance_memory import InstanceMemory
from vmtailor.bench.suites.isolation import Isolation
from vmtailor.bench.suites.startup import Startup
from vmtailor.bench.suites.suite import Suite
from vmtailor.bench.suites.unixbench import UnixBench

SUITES: dict[SuiteName, Suite] = {
    suite.name: suite for suite in (Startup(), Efficiency(), InstanceMemory(), UnixBench(), Isolation())
}
