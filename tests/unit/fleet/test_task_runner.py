# SPDX-License-Identifier: Apache-2.0
"""What the process of a task is given, and what is kept of what it says."""

from __future__ import annotations

import sys

import pytest

from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.orders import Job, Order, RunOutcome
from vmtailor.fleet.run import task_runner
from vmtailor.fleet.run.task_runner import Hidden, Needed
from vmtailor.model.fit_part import FitPart

#: A task that says all that it was given, in its answer and in its log.
TELLS = """
import json, sys
given = json.loads(sys.stdin.buffer.read())
told = f'{given["plain"]} {given["secret"]} {given["credentials"]}'
sys.stderr.write(told)
with open(sys.argv[1], "w") as file:
    json.dump({"schema": "vmtailor/fleet-answer/1", "outcome": "failed", "says": told, "hint": told}, file)
"""


@pytest.mark.attack
def test_a_task_is_given_its_variables_and_nothing_that_is_kept_has_a_secret_one() -> None:
    order = Order(Job.FIT, FitPart.TRACE, FleetEntry("web", "docker://web"))
    needed = Needed((Hidden("cookie-99"),), Hidden("login cookie-99"), Hidden('{"MODE": "quiet"}'))
    program = (sys.executable, "-S", "-c", TELLS)
    answer = task_runner.run(order, needed, {"TOKEN": "canary-7"}, program=program)
    assert answer.outcome is RunOutcome.FAILED
    for text in (answer.says, answer.hint, answer.log):
        assert "quiet" in text
        assert "‹secret TOKEN›" in text
        assert "canary-7" not in text and "cookie-99" not in text
