# SPDX-License-Identifier: Apache-2.0
"""What a system newly says of itself is a loss; what it said before, numbers aside, is none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.guests import system_messages
from vmtailor.analysis.guests.system_losses import degraded
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.guest import GuestReport
from vmtailor.model.watched.system_run import SystemRun


def run(
    units: Sequence[str] = (),
    warnings: Sequence[str] = (),
    errors: str = "",
    failures: tuple[str, ...] = (),
    **files: str,
) -> SystemRun:
    boot = Boot(Outcome.READY, (), 1.0, kernel_warnings=tuple(warnings), failed_units=tuple(units), failures=failures)
    more = tuple((name.replace("_", "-"), text) for name, text in files.items())
    return SystemRun(boot, GuestReport(files=(("errors", errors), *more)))


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


def test_a_warning_newly_in_the_systems_log_is_a_loss_and_is_told_once() -> None:
    before = logged("slow disk 3\n")
    after = logged("slow disk 7\nno firewall of units\nbroken\n", errors="broken\n", warnings=["a[1]: no sound"])
    assert degraded(before, after) == (
        "the system logs an error: broken",
        "the system logs a warning: no firewall of units",
        "the kernel complains: a[1]: no sound",
    )
    # One that was recorded before warnings were asked for tells nothing of them.
    assert degraded(run(errors="broken\n"), after) == ("the kernel complains: a[1]: no sound",)
    # What the kernel's own log had on the baseline is known, though it comes by the system's log now.
    assert degraded(logged("", warnings=["a[1]: no sound"]), logged("no sound\n")) == ()


def logged(log: str, errors: str = "", warnings: Sequence[str] = ()) -> SystemRun:
    found = run(warnings=warnings, errors=errors)
    return replace(found, report=replace(found.report, files=(*found.report.files, ("warnings", log))))


INFO = " Kernel Version: 6.12.117+deb12-cloud-amd64\n Containers: 3\n Cgroup Version: 2\n"


def test_a_warning_newly_said_when_the_system_is_asked_of_itself_is_a_loss() -> None:
    before = run(says_engine=f"{INFO}WARNING: IPv4 forwarding is disabled\n")
    assert degraded(before, before) == ()
    smaller = INFO.replace("6.12.117+deb12-cloud-amd64", "6.12.117").replace("3", "4")
    after = run(says_engine=f"{smaller}WARNING: IPv4 forwarding is disabled\nWARNING: No memory limit support\n")
    assert degraded(before, after) == ("engine says: WARNING: No memory limit support",)
    other = run(says_engine=f"{INFO}WARNING: IPv6 forwarding is disabled\n")
    assert degraded(before, other) == ("engine says: WARNING: IPv6 forwarding is disabled",)


def test_an_engine_that_is_not_asked_any_more_is_a_loss_unless_more_is_wrong() -> None:
    before = run(says_engine=INFO)
    assert degraded(before, run()) == ("engine says nothing any more: its program is not found",)
    assert degraded(before, run(failures=("it did not become ready",))) == ()
    assert degraded(run(), run(says_engine="WARNING: x\n")) == ()  # nobody asked for it


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            'time="2026-01-01T00:00:09.113Z" level=warning msg="no veth1a2b3c4 in 17ms" id=0123456789ab',
            'time="2026-01-01T00:00:31.4Z" level=warning msg="no vethff04e99 in 1.5s" id=99aa88bb77cc',
        ),
        ("job 3c9a7d5e-0000-4000-8000-1234567890ab, pid 12", "job 11111111-2222-3333-4444-555555555555, pid 9"),
        ("/lib/modules/6.1.0-49-cloud-amd64/modules.dep: none", "/lib/modules/6.1.176/modules.dep: none"),
    ],
)  # fmt: skip
def test_what_differs_from_boot_to_boot_is_no_difference(one: str, other: str) -> None:
    assert system_messages.shape(one) == system_messages.shape(other)


@pytest.mark.parametrize(("one", "other"), [("ip6tables", "iptables"), ("cgroup2", "cgroup"), ("IPv6", "IPv4")])
def test_names_that_end_in_a_digit_differ(one: str, other: str) -> None:
    assert system_messages.shape(f"no {one}") != system_messages.shape(f"no {other}")


@pytest.mark.parametrize(
    ("line", "complains"),
    [
        ("WARNING: No swap limit support", True),
        ('time="x" level=warning msg="x"', True),
        ('time="x" level=error msg="x"', True),
        ('{"level":"info","msg":"skip it, since it failed"}', False),
        ('time="x" level=info msg="unable to use x"', False),
        ("Your kernel does not support memory limits. Limitation discarded.", True),
        ("Couldn't write '1' to 'net/x', ignoring: No such file or directory", True),
        ("Cgroup Driver: systemd", False),
        ("Storage Driver: overlay2", False),
        ("Started a server", False),
        ("Supports d_type: true", False),
    ],
)
def test_what_looks_like_a_warning(line: str, complains: bool) -> None:
    assert system_messages.complains(line) is complains


def test_what_an_engine_complains_of_is_told_by_its_name() -> None:
    assert system_messages.complaints(run(says_engine=f"{INFO}WARNING: x\n", step_errors="error\n").report) == [
        "engine says: WARNING: x"
    ]


def test_a_step_that_newly_says_something_on_its_standard_error_is_a_loss() -> None:
    before = run(step_errors="step 0\nslow 3\n\n")
    after = run(step_errors="step 0\nslow 9\n\nstep 4\nno limit: discarded\n\nstep 5\nno limit: discarded\n")
    assert degraded(before, after) == ("load step 5 says on its standard error: no limit: discarded",)
    assert degraded(after, before) == ()


texts = st.text(st.sampled_from("step 0123abf\n:=\x1b[WARNINGerror level=info"), max_size=80)


@given(texts, texts, texts)
def test_a_system_is_never_worse_than_itself(log: str, engine: str, steps: str) -> None:
    one = run(errors=log, says_engine=engine, step_errors=steps)
    assert degraded(one, one) == ()


def test_a_line_without_an_end_takes_no_time() -> None:
    """A guest may send one: what looks ahead in it would go over it again from each of its places."""
    report = GuestReport(files=(("says-engine", "a" * (256 << 10)),))
    (line,) = system_messages.lines(report, "says-engine")
    assert len(line) == system_messages.MOST_CHARACTERS and system_messages.shape(line) == line
