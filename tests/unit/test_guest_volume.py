# SPDX-License-Identifier: Apache-2.0
"""What init is told, as bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.drivers.guest.guest_volume import config_bytes, root_entries, run_bytes, signal_number, write_run_volume
from vmtailor.model.boots.workload import Run, Terminal
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import ImageConfig

KEY = bytes(range(16))
CONFIG = ImageConfig(
    architecture="amd64", entrypoint=("/bin/app",), cmd=("-x", "a b\nc"), env=(("A", "1=2"),), working_dir="/srv",
    user="www-data:33", volumes=("/data",), stop_signal="SIGQUIT",
)  # fmt: skip


def records(data: bytes) -> list[str]:
    return data.decode().split("\0")[:-1]


def run_records(run: Run) -> list[str]:
    head, _, rest = run_bytes(run).partition(b"\n")
    return records(rest[: int(head.split()[1])])


def test_the_image_configuration_is_told_whole() -> None:
    assert records(config_bytes(CONFIG, "box")) == [
        "vmtailor 1", "arg /bin/app", "arg -x", "arg a b\nc", "env A=1=2", "volume /data", "cwd /srv",
        "user www-data:33", "hostname box", "stop 3", "pid-one 1",
    ]  # fmt: skip


def test_an_empty_working_directory_is_the_root() -> None:
    assert "cwd /" in records(config_bytes(ImageConfig("amd64", working_dir="")))


def test_a_nul_is_refused() -> None:
    with pytest.raises(UserInputError):
        config_bytes(ImageConfig("amd64", cmd=("a\0user root",)))


@pytest.mark.parametrize(
    ("name", "number"), [("SIGTERM", 15), ("term", 15), ("9", 9), ("SIGRTMIN+3", 37), ("RTMIN", 34), ("64", 64)]
)
def test_stop_signals_as_images_write_them(name: str, number: int) -> None:
    assert signal_number(name) == number


@pytest.mark.parametrize("name", ["", "SIGNOPE", "0", "65", "SIGRTMIN+x", "SIGRTMIN+31", "-1"])
def test_what_is_no_signal_is_refused(name: str) -> None:
    with pytest.raises(UserInputError):
        signal_number(name)


def test_a_plain_run_says_only_its_key() -> None:
    assert run_records(Run(key=KEY)) == ["vmtailor 1", f"key {KEY.hex()}", "stdin 0", "hold 0", "grace-ms 1000"]


def test_the_volume_is_whole_sectors() -> None:
    data = run_bytes(Run(key=KEY, argv=("x" * 700,)))
    assert len(data) % 512 == 0
    assert data.startswith(b"vtrun ")


@pytest.mark.attack
def test_the_key_is_in_the_sector_that_init_overwrites() -> None:
    everything = Run(
        key=KEY, argv=("x" * 700,), env=(("A", "y" * 700),), user="u" * 200, cwd="/" + "w" * 700, privileged=True,
        terminal=Terminal(), tracer=("-f",), network="a/1,b,c",
    )  # fmt: skip
    data = run_bytes(everything)
    assert KEY.hex().encode() in data[:512]
    assert data.count(KEY.hex().encode()) == 1 and KEY not in data


@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize("exercise", [False, True])
def test_privileged_where_run_or_exercise_ask_for_it(run: bool, exercise: bool) -> None:
    asked = Exercise("test", Ready(ReadyKind.EXIT), privileged=exercise)
    said = run_records(Run(key=KEY, exercise=asked, privileged=run))
    # Said only where it is so: an init of an earlier version does not know the word.
    assert said.count("privileged 1") == (run or exercise) and "privileged 0" not in said


def test_keys_differ_from_run_to_run() -> None:
    assert Run().key != Run().key


def test_overrides_and_terminal() -> None:
    said = run_records(
        Run(key=KEY, argv=("sh",), env=(("T", "x"),), user="", cwd="/w", terminal=Terminal(50, 132), network="a/1,b,c")
    )
    assert {"arg sh", "env T=x", "user ", "cwd /w", "terminal 1", "rows 50", "cols 132", "net a/1,b,c"} <= set(said)


def test_an_exercise_becomes_steps() -> None:
    load = (
        Step(StepKind.HTTP, port=80, path="/big", repeat=100, expect=Expect(status=200, sha256="AB" * 32)),
        Step(StepKind.HOST_COMMAND, argv=("ab", "-n", "1")),
        Step(StepKind.COMMAND, argv=("echo", "hi"), expect=Expect(exit_code=0, stdout="hi\n", contains="h")),
    )
    ready = Ready(ReadyKind.TCP, Step(StepKind.HTTP, port=80), timeout_s=1.5)
    said = run_records(Run(key=KEY, exercise=Exercise("test", ready, load, stop_signal="SIGINT", stop_timeout_s=2)))
    begin = said.index("stop-timeout-ms 2000")
    assert said[begin:] == [
        "stop-timeout-ms 2000", "ready-timeout-ms 1500", "ready tcp", ".port 80", ".repeat 1", ".method GET", ".path /",
        "step http", ".port 80", ".repeat 100", ".method GET", ".path /big", ".status 200", f".sha256 {'ab' * 32}",
        "step command", ".port 0", ".repeat 1", ".method GET", ".path /", ".arg echo", ".arg hi", ".exit 0",
        ".sha256 " + hashlib.sha256(b"hi\n").hexdigest(),
        ".contains h", "stop 2",
    ]  # fmt: skip


def test_a_request_cannot_smuggle_a_second_one() -> None:
    step = Step(StepKind.HTTP, port=80, path="/ HTTP/1.1\r\nX: y")
    with pytest.raises(UserInputError):
        run_bytes(Run(key=KEY, exercise=Exercise("test", Ready(ReadyKind.EXIT), (step,))))


def test_the_volume_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    write_run_volume(tmp_path / "run", Run(key=KEY))
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o600


def test_our_entries_are_out_of_the_way_of_users() -> None:
    entries = {entry.path: entry.mode for entry in root_entries(Natives(Path("/nowhere")), b"x")}
    assert entries[".vmtailor/config"] == 0o600
    assert entries[".vmtailor/builtin"] == 0o700
    assert all(path == ".vmtailor" or path.startswith(".vmtailor/") for path in entries)
