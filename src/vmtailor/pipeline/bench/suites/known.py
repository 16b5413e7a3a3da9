# SPDX-License-Identifier: Apache-2.0
"""The suites there are, by name."""

from __future__ import annotations

from vmtailor.model.bench.results import SuiteName
from vmtailor.pipeline.bench.suites.efficiency import Efficiency
from vmtailor.pipeline.bench.suites.isolation import Isolation
from vmtailor.pipeline.bench.suites.memory import Memory
from vmtailor.pipeline.bench.suites.startup import Startup
from vmtailor.pipeline.bench.suites.suite import Suite
from vmtailor.pipeline.bench.suites.unixbench import UnixBench

SUITES: dict[SuiteName, Suite] = {
    suite.name: suite for suite in (Startup(), Efficiency(), Memory(), UnixBench(), Isolation())
}
