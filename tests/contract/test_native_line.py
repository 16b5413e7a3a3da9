# SPDX-License-Identifier: Apache-2.0
"""Init's end of the serial line, compiled with the sanitizers (native/tests/line.c), and the host's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.fakes.port_wire import MAX_BLOCK, PortDecoder
from tests.fakes.sanitized import compiled

from vmtailor.drivers.guest.guest_text import parse_marks
from vmtailor.drivers.guest.wire import OPEN_KEY, Decoder, Frame

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("line", tmp_path_factory.mktemp("native"))


def written(program: Path, *orders: str) -> list[list[Frame]]:
    """The frames of each write; none is damaged or lost. A sanitizer's complaint fails the test."""
    text = "".join(f"{order}\n" for order in orders).encode()
    done = subprocess.run([program], input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-3000:]
    decoder = Decoder(OPEN_KEY)
    found = []
    for line in done.stdout.split():
        frames, rest = decoder.feed(bytes.fromhex(line.decode()))
        assert rest == b""
        found.append(frames)
    assert (decoder.damaged, decoder.lost) == (0, 0)
    return found


def kinds(writes: list[list[Frame]]) -> list[str]:
    return ["".join(frame.type for frame in frames) for frames in writes]


START = ("hello init 1", "mark init", "wait 6", "note no mqueue", "mark entry")


def test_without_hold_each_frame_is_written_at_once(program: Path) -> None:
    writes = written(program, *START)
    assert kinds(writes) == ["H", "M", "N", "M"]
    assert writes[1][0].payload == b"init 3000000000 1000000000 1767225601000000000"
    assert writes[3][0].payload == b"entry 3018000000 1006000000 1767225601006000000"


def test_what_waits_goes_out_with_what_cannot_wait(program: Path) -> None:
    writes = written(program, "hold", *START, "wait 35", "mark ready", "wait 1", "result step=-1")
    assert kinds(writes) == ["H", "NMR"]
    marks = parse_marks(writes[1][1].payload, 10.0)
    assert [(mark.name, mark.monotonic_ns) for mark in marks] == [
        ("init", 1000000000), ("entry", 1006000000), ("ready", 1041000000),
    ]  # fmt: skip
    assert [mark.host_s for mark in marks] == pytest.approx([9.958, 9.964, 9.999])
    assert marks[2].cycles == 3123000000 and marks[2].realtime_ns == 1767225601041000000


def test_what_the_container_says_does_not_wait_and_goes_first(program: Path) -> None:
    assert kinds(written(program, "hold", *START, "out hello", "flush")) == ["H", "O", "NM"]


@pytest.mark.attack
def test_hello_comes_before_the_container_can_say_anything(program: Path) -> None:
    """It is the first frame with the run's key: until then the host hears frames without one."""
    assert kinds(written(program, "hold", "mark init", "hello init 1", "wait 99")) == ["MH"]


def test_nothing_waits_longer_than_a_tenth_of_a_second(program: Path) -> None:
    later = ("wait 93", "out 1", "wait 1", "out 2", "wait 500", "mark ready", "wait 100")
    writes = written(program, "hold", *START, *later)
    assert kinds(writes) == ["H", "O", "NM", "O", "M"]
    (mark,) = parse_marks(writes[4][0].payload, 10.0)
    assert mark.host_s == pytest.approx(9.9)


def test_a_clock_that_was_set_back_begins_a_frame(program: Path) -> None:
    writes = written(program, "hold", "mark init", "wait 5", "back entry", "wait 1", "mark ready", "flush")
    assert kinds(writes) == ["M", "M"]
    found = [mark for write in writes for mark in parse_marks(write[0].payload, 0.0)]
    assert [(mark.name, mark.realtime_ns) for mark in found] == [
        ("init", 1767225601000000000), ("entry", 5), ("ready", 1767225601006000000),
    ]  # fmt: skip


@pytest.mark.parametrize("length", [0, 1, 100, 900])
def test_there_is_room_for_as_much_as_comes(program: Path, length: int) -> None:
    notes = [f"note {number:03}{'x' * length}" for number in range(60)]
    marks = [f"mark {'m' * 30}{number:02}" for number in range(30)]
    writes = written(program, "hold", *notes, *marks, "file 50000", "flush")
    frames = [frame for write in writes for frame in write]
    assert [frame.payload[1:4] for frame in frames if frame.type == "N"] == [b"%03d" % number for number in range(60)]
    assert sum(len(parse_marks(frame.payload, 0.0)) for frame in frames if frame.type == "M") == 30
    assert sum(len(frame.payload) - 2 for frame in frames if frame.type == "D") == 50000


def on_port(program: Path, *orders: str) -> tuple[list[Frame], list[str]]:
    """The frames that orders make on a port, and what else was printed."""
    text = "".join(f"{order}\n" for order in ("port", *orders)).encode()
    done = subprocess.run([program], input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-3000:]
    decoder, frames, said = PortDecoder(OPEN_KEY), [], []
    for line in done.stdout.decode().split():
        if line in ("full", "room"):
            said.append(line)
        else:
            frames += decoder.feed(bytes.fromhex(line))[0]
    assert (decoder.damaged, decoder.lost) == (0, 0)
    return frames, said


def test_a_port_takes_output_in_blocks_and_all_else_as_the_line_does(program: Path) -> None:
    frames, _ = on_port(program, *START, "flood 70000", "result step=-1", "file 5000")
    assert "".join(frame.type for frame in frames) == "HMNMOOORDDD"
    assert [len(frame.payload) for frame in frames if frame.type == "O"] == [
        MAX_BLOCK,
        MAX_BLOCK,
        70000 - 2 * MAX_BLOCK,
    ]


def test_what_waits_on_a_port_goes_out_with_what_cannot_wait(program: Path) -> None:
    frames, _ = on_port(program, "hold", *START, "wait 35", "mark ready", "wait 1", "result step=-1")
    assert [frame.type for frame in frames] == ["H", "N", "M", "R"]


def test_output_on_a_port_waits_for_the_host(program: Path) -> None:
    orders = ("full", "flood 99000", "flood 99000", "full", "flood 99000", "full", "taken 99000", "full", "result x=1")
    assert on_port(program, *orders)[1] == ["room", "room", "full", "room"]
