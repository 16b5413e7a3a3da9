# SPDX-License-Identifier: Apache-2.0
"""Systems driven by an attendant: their exercise files, what the attendant is told, and how a boot is judged."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vmtailor.analysis.guests import attended_boots
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import locate
from vmtailor.booting.system_boot import with_attendant
from vmtailor.drivers.guest import attendant_volume
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.drivers.guest.wire import OPEN_KEY
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.counters import Blocks, Counters, Stretch, Totals
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.boots.system_exercise import STOP, Saying, SystemExercise, SystemReadyKind
from vmtailor.model.boots.workload import Attended, Patience
from vmtailor.model.exercise import ReadyKind, StepKind
from vmtailor.model.guest import READY_STEP, GuestMark, GuestNote, GuestReport, StepResult
from vmtailor.model.machine import Clock, Disk, Machine
from vmtailor.stages.exercise_file import load_system, parse_system

GOOD = """
ports = [80, 8080]
step_timeout_s = 30
[ready]
kind = "unit"
unit = "multi-user.target"
timeout_s = 200
[[load]]
kind = "command"
argv = ["true"]
[[load]]
kind = "host-command"
argv = ["curl", "http://127.0.0.1:{port:80}/"]
[[says]]
name = "engine"
argv = ["docker", "info"]
[stop]
argv = ["systemctl", "poweroff"]
timeout_s = 60
"""


def parsed(text: str) -> SystemExercise:
    return parse_system(tomllib.loads(text), "x.toml")


def test_a_systems_exercise() -> None:
    found = parsed(GOOD)
    assert (found.ready.kind, found.ready.unit, found.ready.timeout_s) == (
        SystemReadyKind.UNIT,
        "multi-user.target",
        200,
    )
    assert [step.kind for step in found.load] == [StepKind.COMMAND, StepKind.HOST_COMMAND]
    assert (found.ports, found.step_timeout_s, found.stop) == ((80, 8080), 30.0, ("systemctl", "poweroff"))
    assert found.says == (Saying("engine", ("docker", "info"), errors=True),)
    inside = found.inside()
    step = inside.ready.step
    assert step is not None and step.argv == ("systemctl", "is-active", "multi-user.target")
    assert step.expect is not None and step.expect.stdout == "active\n"  # a tool that takes it for a chroot ends with 0
    assert parsed("[ready]\nkind = 'tcp'\nport = 22\n").stop == STOP
    log = parsed("[ready]\nkind = 'log'\npattern = 'up$'\n")
    assert log.inside().ready.kind is ReadyKind.EXIT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ready is missing"), ("[ready]\nkind='exit'", "ready.kind must be one of unit, command, tcp, http, log"),
        ("[ready]\nkind='unit'", "ready.unit must be the name of a unit"),
        ("[ready]\nkind='unit'\nunit='a b.service'", "ready.unit must be"),
        ("[ready]\nkind='unit'\nunit='--now.target; x'", "ready.unit must be"),
        ("[ready]\nkind='log'", "ready.pattern is missing"), ("[ready]\nkind='log'\npattern='('", "is not a regular"),
        ("[ready]\nkind='tcp'", "ready.port is missing"),
        ("[ready]\nkind='tcp'\nport=1\nunit='x'", "ready.unit is not"),
        ("ports=[0]\n[ready]\nkind='tcp'\nport=1", "ports must be a list"),
        ("ports=[true]\n[ready]\nkind='tcp'\nport=1", "ports must be a list"),
        ("[ready]\nkind='tcp'\nport=1\n[stop]\nsignal='TERM'", "stop.signal is not known"),
        ("[ready]\nkind='tcp'\nport=1\n[[load]]\nkind='host-command'\nargv=['{port:5}']", "asks for port 5"),
        ("[ready]\nkind='tcp'\nport=1\n[expect]\nexit_code=0", "expect is not known"),
        ("[ready]\nkind='tcp'\nport=1\n[[says]]\nname='E x'\nargv=['x']", "says[1].name must be a word"),
        ("[ready]\nkind='tcp'\nport=1\n[[says]]\nname='x'", "says[1].argv must be a list"),
        ("[ready]\nkind='tcp'\nport=1\n[[says]]\nname='x'\nargv=['x']\nshell=true", "says[1].shell is not known"),
        ("[ready]\nkind='tcp'\nport=1\n" + 2 * "[[says]]\nname='x'\nargv=['x']\n", "says[2].name is x, as another"),
        ("[ready]\nkind='tcp'\nport=1\n" + 9 * "[[says]]\nname='x'\nargv=['x']\n", "at most 8"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(UserInputError) as wrong:
        parsed(text)
    assert words in wrong.value.message and wrong.value.message.startswith("x.toml: ")


@pytest.mark.parametrize(
    ("example", "unit"),
    [
        ("debian-vm/exercise.toml", "example-ready.service"),
        ("debian-vm/exercise-podman.toml", "example-ready.service"),
        ("small-system/exercise.toml", "multi-user.target"),
    ],
)
def test_a_file_of_an_example_is_read(example: str, unit: str) -> None:
    path = Path(__file__).parents[2] / "examples" / example
    found = load_system(path)
    assert found.ready.unit == unit and found.stop == ("systemctl", "reboot")
    assert not found.host_steps  # so it can be driven on the instruction clock


def test_what_the_attendant_is_told() -> None:
    records = attendant_volume.config_bytes(parsed(GOOD), OPEN_KEY).split(b"\0")
    assert f"key {OPEN_KEY.hex()}".encode() in records and records.count(b".timeout-ms 30000") == 2
    assert [one for one in records if one.startswith(b"arg ")] == [b"arg systemctl", b"arg poweroff"]
    assert b"hold 1" in records and b"step command" in records and b"ready command" in records
    alone = replace(parsed(GOOD), load=(), ports=())
    assert b"hold 1" not in attendant_volume.config_bytes(alone, OPEN_KEY)
    with pytest.raises(UserInputError, match="NUL"):
        attendant_volume.config_bytes(replace(alone, stop=("a\0b",)), OPEN_KEY)


def test_what_the_system_is_asked_of_itself_is_on_the_attendants_disk(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    attendant_volume.write(volume, locate(), SystemRoot("/dev/vda1"), parsed(GOOD), OPEN_KEY)
    told = subprocess.run(["debugfs", "-R", "cat /reports", volume], check=True, capture_output=True).stdout
    records = [one.decode() for one in told.split(b"\0")]
    assert [one for one in records if one.startswith("name ")][-1] == "name says-engine"
    assert records[-5:] == ["name says-engine", "arg docker", "arg info", "errors", ""] and records.count("errors") == 1
    assert records.count("arg --priority=warning") == 1


def test_the_machine_starts_from_the_attendants_disk() -> None:
    words = ("root=UUID=x", "ro", "init=/bin/x", "console=ttyS0", "rootflags=a", "initcall_debug")
    machine = Machine("q35", 1 << 28, kernel="/k", words=words, disks=(Disk("/a"), Disk("/b")))
    driven = with_attendant(machine, Path("/volume"))
    assert driven.words == (
        "root=/dev/vdc", "rootfstype=ext4", "ro", "init=/attendant", "console=ttyS0", "initcall_debug"
    )  # fmt: skip
    assert [disk.path for disk in driven.disks] == ["/a", "/b", "/volume"]


# --- judging ---

FAREWELL = ((9.0, "[    8.1] reboot: Restarting system"),)


def right(step: int) -> StepResult:
    return StepResult(step, "command", 1, 1, True, 5)


def gathered(
    *marks: str, lines: tuple[tuple[float, str], ...] = FAREWELL, code: int | None = 0, **report: object
) -> Gathered:
    told = tuple(GuestMark(name, 0, number * 1000, 0, float(number)) for number, name in enumerate(marks, 1))
    results = report.pop("results", (right(READY_STEP), right(0)))
    ending = Ending.DEADLINE if code is None else Ending.DIED if code else Ending.EXITED
    heard = GuestReport(marks=told, results=results, **report)  # type: ignore[arg-type]
    return Gathered(End(ending, "qemu", "", "", 10.0, code), 0.0, heard, lines=lines)


ALL = ("init", "ready", "load", "load_end", "stop")


def test_a_system_that_did_all_and_shut_down() -> None:
    found = attended_boots.boot_of(gathered(*ALL), parsed(GOOD), "")
    assert found.outcome is Outcome.READY and not found.failures and found.container is not None
    assert found.at("attendant") == 1.0 and found.at("ready") == 2.0 and found.container.requests == 1


@pytest.mark.parametrize(
    ("said", "lost", "outside", "outcome", "words"),
    [
        (gathered("init", results=()), "the kernel panicked: x", (), Outcome.PANIC, "the kernel panicked: x"),
        (gathered(lines=()), "", (), Outcome.STOPPED, "before the system was started"),
        (gathered("init", results=()), "", (), Outcome.STOPPED, "ended by itself before its system was ready"),
        (gathered("init", "stop", results=()), "", (), Outcome.TIMEOUT, "not become ready (unit multi-user.target)"),
        (gathered("init", code=None), "it was not done after 9 s", (), Outcome.TIMEOUT, "not done after 9 s"),
        (gathered(*ALL[:2]), "", (), Outcome.WRONG, "ended by itself during the exercise"),
        (gathered(*ALL, lines=()), "", (), Outcome.WRONG, "it did not shut down"),
        (gathered(*ALL), "", ("from the host, x: status 500",), Outcome.WRONG, "status 500"),
        (gathered(*ALL, results=(right(READY_STEP),)), "", (), Outcome.WRONG, "load step 1 (true) was not done"),
        (gathered(*ALL, code=1), "", (), Outcome.WRONG, "QEMU ended with status 1"),
        (gathered(*ALL, notes=(GuestNote("", "x: the machine was ended without a shutdown"),)), "", (), Outcome.WRONG,
         "without a shutdown"),
        (gathered("init", fatal=GuestNote("", "no memory"), results=()), "", (), Outcome.STOPPED, "gave up: no memory"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said(
    said: Gathered, lost: str, outside: tuple[str, ...], outcome: Outcome, words: str
) -> None:
    found = attended_boots.boot_of(said, parsed(GOOD), lost, outside)
    assert found.outcome is outcome and words in found.problem


def test_a_kernel_without_messages_says_no_farewell() -> None:
    silent = (("no-kernel-log", ""),)
    assert attended_boots.boot_of(gathered(*ALL, lines=(), files=silent), parsed(GOOD), "").outcome is Outcome.READY
    asked = attended_boots.boot_of(gathered(*ALL[:2], lines=(), files=silent), parsed(GOOD), "")
    assert "ended by itself during the exercise" in asked.problem


SYSTEMD = """\
● web.service loaded failed failed A web server
  odd line
dev-ttyS0.device masked failed failed
fine.service loaded active running Fine
"""


def test_units_that_failed_are_what_systemd_lists() -> None:
    after = gathered(*ALL, files=(("failed-units", SYSTEMD),))
    assert attended_boots.failed_units(after.report) == ("web.service", "dev-ttyS0.device")
    assert attended_boots.boot_of(after, parsed(GOOD), "").failed_units == ("web.service", "dev-ttyS0.device")
    assert attended_boots.failed_units(GuestReport()) == ()


def test_a_boot_that_shall_only_get_ready_is_right_once_it_is() -> None:
    found = attended_boots.boot_of(gathered("init", "ready", code=None), parsed(GOOD), "", shut_down=False)
    assert found.outcome is Outcome.READY and not found.failures
    never = attended_boots.boot_of(
        gathered("init", code=None), parsed(GOOD), "it was not done after 5 s", shut_down=False
    )
    assert never.outcome is Outcome.TIMEOUT and never.failures == ("it was not done after 5 s",)


def test_where_it_was_counted_init_is_the_systems_own() -> None:
    """Marks of the plugin have instructions since reset; the guest's own words, virtual time."""
    none = np.zeros(0, np.uint64)

    def stretch(begin: str, end: str, executed: int) -> Stretch:
        return Stretch(begin, end, Totals(kernel=executed), (), (), none.astype(np.uint32), none, none)

    stretches = (
        stretch("reset", "kernel", 100), stretch("kernel", "init", 700), stretch("init", "ready", 900),
        stretch("ready", "", 950),
    )  # fmt: skip
    words = none.astype(np.uint32)
    blocks = Blocks(none, words, words, none.astype(bool), none.astype(np.uint16), words, none.astype(np.uint8))
    counted = replace(gathered("init", "ready"), counters=Counters(True, True, True, blocks, stretches, ()))
    found = attended_boots.boot_of(counted, parsed(GOOD), "", shut_down=False)
    marks = {one.name: one for one in found.milestones}
    assert (marks["kernel"].executed, marks["kernel"].virtual_ns) == (100, 100)
    assert marks["init"].executed == 700 and marks["ready"].executed == 900
    assert found.instructions == 600 and [one.phase for one in found.phases][:3] == ["firmware", "kernel", "init"]


def test_patience_is_of_processor_time_where_nobody_waits(tmp_path: Path) -> None:
    work = Attended(parsed(GOOD), tmp_path / "volume", OPEN_KEY, 100.0)
    assert work.unhurried(Clock.WALL) == work
    patient = work.unhurried(Clock.INSTRUCTIONS, Patience.after(10.0))
    assert patient.timeout_s > work.timeout_s and patient.patience.all_s == 90.0
    assert patient.patience.still_s < patient.timeout_s
