# SPDX-License-Identifier: Apache-2.0
"""What a system newly says of itself is a loss; what it said before, numbers aside, is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmtailor.analysis.guests.degraded import degraded
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.guest import GuestReport
from vmtailor.model.watched.system_run import SystemRun


def run(units: Sequence[str] = (), warnings: Sequence[str] = (), errors: str = "") -> SystemRun:
    boot = Boot(Outcome.READY, (), 1.0, kernel_warnings=tuple(warnings), failed_units=tuple(units))
    return SystemRun(boot, GuestReport(files=(("errors", errors),)))


def test_a_unit_that_failed_before_is_no_loss_and_another_is() -> None:
    found = degraded(run(["a.service"]), run(["a.service", "b.mount"]))
    assert found == ("unit b.mount failed, which it did not on the baseline",)


def test_a_containers_unit_that_failed_before_by_another_name_is_no_loss() -> None:
    before, after = (run([f"docker-{name * 8}.scope"]) for name in ("0123abcd", "99fe01aa"))
    assert degraded(before, after) == () and len(degraded(run(["docker.service"]), after)) == 1


def test_messages_are_compared_without_their_numbers() -> None:
    before = run(warnings=["sda: 17 errors"], errors="job 4 failed\n")
    after = run(warnings=["sda: 29 errors", "no such thing"], errors="job 9 failed\nno memory limit\n")
    assert degraded(before, after) == (
        "the system logs an error: no memory limit",
        "the kernel complains: no such thing",
    )


def test_what_came_by_both_logs_is_told_once() -> None:
    text = "Failed to mount /x: No such device"
    found = degraded(run(), run(warnings=[f"systemd[1]: {text}"], errors=f"{text}\n"))
    assert found == (f"the kernel complains: systemd[1]: {text}",)


def test_what_a_smaller_machine_is_known_for_is_expected() -> None:
    assert degraded(run(), run(warnings=["clock: slow"]), [re.compile("^clock: ")]) == ()
