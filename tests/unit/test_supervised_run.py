# SPDX-License-Identifier: Apache-2.0
"""`run` between a guest that speaks (tests/fakes/qemu-guest) and a caller: output that nobody reads, signals, machines
that end in odd ways."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.fakes.supervised import run
from tests.unit.test_running import options

from vmtailor.base.errors import GuestError, HostError
from vmtailor.base.files import records
from vmtailor.booting import run_orders
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.qemu import qemu_program
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.pipeline.machine_run import RunOptions

FAKE = Path(__file__).parents[1] / "fakes" / "qemu-guest"


@pytest.fixture(autouse=True)
def fake_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))


@contextlib.contextmanager
def standing_for(descriptor: int, other: int) -> Iterator[None]:
    """Our standard stream is another file for a while."""
    saved = os.dup(descriptor)
    os.dup2(other, descriptor)
    try:
        yield
    finally:
        os.dup2(saved, descriptor)
        os.close(saved)


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str
    seconds: float


def run_it(folder: Path, given: RunOptions, stdout: int | None = None, stderr: int | None = None) -> Said:
    """Run a bundle with its output in files, or where it should go."""
    out, err = folder / "stdout", folder / "stderr"
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        out_file, err_file = stack.enter_context(out.open("wb")), stack.enter_context(err.open("wb"))
        stack.enter_context(standing_for(1, out_file.fileno() if stdout is None else stdout))
        stack.enter_context(standing_for(2, err_file.fileno() if stderr is None else stderr))
        code = run(given)
    return Said(code, out.read_text("latin-1"), err.read_text(), time.monotonic() - began)


def test_both_streams_and_the_status(tmp_path: Path) -> None:
    said = run_it(tmp_path, options(tmp_path, "talk"))
    assert (said.code, said.out, said.err) == (3, "out\n", "err\n")


@pytest.mark.lengthy
@pytest.mark.attack
def test_a_full_pipe_does_not_keep_a_container_from_being_stopped(tmp_path: Path) -> None:
    """The guest hears the stop signal although nobody reads what it says; after the grace period, that is dropped."""
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer):
        said = run_it(tmp_path, replace(options(tmp_path, "flood"), stop_timeout_s=4.0), stdout=writer)
    assert said.code == 7
    assert "bytes of output were dropped: nobody read them" in said.err
    assert said.seconds < 60


@pytest.mark.lengthy
@pytest.mark.attack
def test_a_full_pipe_and_a_container_that_heeds_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer):
        said = run_it(tmp_path, replace(options(tmp_path, "stubborn"), stop_timeout_s=1.0), stdout=writer)
    assert said.code == 128 + signal.SIGKILL
    assert "nobody read them" in said.err


@pytest.mark.lengthy
@pytest.mark.attack
def test_both_streams_are_one_full_pipe(tmp_path: Path) -> None:
    """Even our own word about it has no reader; and standard error leads nowhere from then on."""
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer):
        given = replace(options(tmp_path, "flood"), stop_timeout_s=4.0)
        assert run_it(tmp_path, given, stdout=writer, stderr=writer).code == 7


@pytest.mark.attack
def test_a_reader_that_leaves_stops_the_container(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer):
        said = run_it(tmp_path, options(tmp_path, "leave"), stdout=writer)
    assert (said.code, said.err) == (9, "")


def test_output_that_a_full_disk_lost_is_an_error(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(full, "wb", closefd=True):
        assert run_it(tmp_path, options(tmp_path, "talk"), stdout=full).code == 3  # the container's own comes first
        with pytest.raises(HostError, match=r"standard output could not be written: no space"):
            run_it(tmp_path, options(tmp_path, "signals"), stdout=full)


def test_signals_are_passed_on_with_their_numbers(tmp_path: Path) -> None:
    said = run_it(tmp_path, options(tmp_path, "signals"))
    assert (said.code, said.out) == (0, "same")


def test_a_hang_up_is_the_stop_signal(tmp_path: Path) -> None:
    assert run_it(tmp_path, replace(options(tmp_path, "hup"), stop_signal="SIGUSR2")).code == signal.SIGUSR2


@pytest.mark.attack
@pytest.mark.parametrize(("what", "words"), [("halt", "System halted"), ("reset", "Restarting system")])
def test_a_container_that_ends_the_machine(tmp_path: Path, what: str, words: str) -> None:
    with pytest.raises(GuestError, match="the container ended the machine") as caught:
        run_it(tmp_path, options(tmp_path, what))
    assert words in caught.value.message and caught.value.hint


def test_an_unknown_user_is_126(tmp_path: Path) -> None:
    said = run_it(tmp_path, options(tmp_path, "user"))
    assert said.code == 126
    assert said.err == "vmtailor: the container could not be started: user 'who': no such user in /etc/passwd\n"


def test_a_machine_that_stays_when_all_is_said_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_orders, "LAST_S", 0.2)
    said = run_it(tmp_path, options(tmp_path, "last"))
    assert (said.code, said.err) == (4, "")


def test_a_container_killed_for_lack_of_memory(tmp_path: Path) -> None:
    said = run_it(tmp_path, options(tmp_path, "hungry"))
    assert said.code == 137
    assert "64 MiB of memory were used up" in said.err and "'hog'" in said.err and "--memory" in said.err


@pytest.mark.attack
def test_closed_standard_streams_get_no_file_of_ours(tmp_path: Path) -> None:
    """What is closed would be the next number that the serial line gets, and the container's output go there."""
    saved = [os.dup(number) for number in (0, 1, 2)]
    try:
        for number in (0, 1, 2):
            os.close(number)
        code = run(options(tmp_path, "talk"))
    finally:
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)
            os.close(descriptor)
    assert code == 3


def on_port(given: RunOptions) -> RunOptions:
    """The same bundle with a kernel and an init that have a virtio line, in a machine that has room for it."""
    folder = given.bundle
    for name, data in (("config", b"CONFIG_VIRTIO_CONSOLE=y\n"), ("init", b"\0virtio-line\0")):
        (folder / name).write_bytes(data)
    seal(folder, records.load(Bundle, folder / RECORD))
    return replace(given, memory_bytes=128 << 20)


def test_both_streams_and_the_status_on_a_port(tmp_path: Path) -> None:
    said = run_it(tmp_path, on_port(options(tmp_path, "talk")))
    assert (said.code, said.out, said.err) == (3, "out\n", "err\n")


def test_a_stream_through_a_port_and_back(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    given = tmp_path / "given"
    given.write_bytes(data)
    with given.open("rb") as file, standing_for(0, file.fileno()):
        run_it(tmp_path, replace(on_port(options(tmp_path, "copy")), interactive=True))
    assert (tmp_path / "stdout").read_bytes() == data


@pytest.mark.attack
def test_a_reader_that_leaves_stops_a_container_on_a_port(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer):
        said = run_it(tmp_path, on_port(options(tmp_path, "leave")), stdout=writer)
    assert (said.code, said.err) == (9, "")
