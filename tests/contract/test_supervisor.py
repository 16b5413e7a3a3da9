# SPDX-License-Identifier: Apache-2.0
"""The supervisor of a machine (native/supervise) between a guest that is played (tests/fakes/guest-at-line) and its
caller. tests/unit/test_supervised_run.py has the relay in `run`."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from vmtailor.base.natives import locate
from vmtailor.booting import run_end, run_orders
from vmtailor.booting.run_end import Finish, RunEnd
from vmtailor.drivers.guest import guest_volume

GUEST = Path(__file__).parents[1] / "fakes" / "guest-at-line"
PATIENCE_S = 60.0
Pairs = list[tuple[str, str]]


def orders(code: str, *more: tuple[str, str], last_ms: int = 15000) -> bytes:
    """Orders for a guest that executes this code."""
    argv = [str(locate().launch), "--", sys.executable, str(GUEST), "64", code]
    pairs = [*(("arg", word) for word in argv), ("env", f"PATH={os.environ['PATH']}"), ("memory", "64")]
    return guest_volume.records([*pairs, ("last-ms", str(last_ms)), *more])


@dataclass
class Folder:
    """A place for one supervisor's files. `words`: takes the record of an end that needs words."""

    path: Path
    state: Path = field(init=False)
    runtime: Path = field(init=False)
    lines: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state, self.runtime = self.path / "state", self.path / "runtime"
        self.state.mkdir(mode=0o700)
        (self.state / "machine.json").touch()

    @property
    def explain(self) -> Pairs:
        return [
            ("explain", word) for word in ("/bin/sh", "-c", 'cat <&3 >"$0"; echo worded >&2; exit 125', self.record)
        ]

    @property
    def record(self) -> str:
        return str(self.path / "end")

    def end(self) -> RunEnd:
        return run_end.parse(Path(self.record).read_bytes())

    @property
    def detached(self) -> Pairs:
        return [
            ("detached", "1"),
            ("start-print", "the-id"),
            ("state", str(self.state)),
            ("runtime", str(self.runtime)),
        ]

    def values(self) -> dict[str, str]:
        """The state."""
        parts = (self.state / "state").read_text().split("\0")
        return {key: value for key, _, value in (part.partition(" ") for part in parts)}

    @property
    def alive(self) -> bool:
        with (self.state / "alive").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def wait_ended(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.alive:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    for line in made.lines:
        line.close()
    if (made.state / "state").is_file() and made.alive:
        os.kill(int(made.values()["pid"]), signal.SIGKILL)


def run(text: bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    descriptor = run_orders.in_memory(text)
    try:
        argv = [str(run_orders.program()), str(descriptor)]
        return subprocess.run(
            argv, pass_fds=(descriptor,), input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
        )
    finally:
        os.close(descriptor)


# --- orders


@pytest.mark.attack
@pytest.mark.parametrize(
    "text",
    [
        b"", b"vmtailor 1", b"vmtailor 2\0arg x\0", b"vmtailor 1\0arg\0", b"vmtailor 1\0unknown x\0",
        b"vmtailor 1\0told 3\0arg x\0",
        b"vmtailor 1\0open 1 r 0 0 0 0 0 /x\0", b"vmtailor 1\0open 99999 r 0 0 0 0 0 /x\0", b"vmtailor 1\0",
        b"vmtailor 1\0arg x\0open 70 x 0 0 0 0 0 /x\0", b"vmtailor 1\0arg x\0open 70 r 0 0 -1 0 0 /x\0",
        b"vmtailor 1\0arg x\0grace-ms soon\0", b"vmtailor 1\0arg x\0" + b"program beside\0" * 20,
    ],
)  # fmt: skip
def test_orders_that_are_none_start_nothing(text: bytes) -> None:
    ended = run(text)
    assert ended.returncode == 64 and ended.stderr.startswith(b"supervise: ")


@pytest.mark.attack
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_of_orders_that_others_may_write_is_not_followed(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "orders"
    path.write_bytes(orders("hello(); end(0)"))
    argv = [str(run_orders.program()), "--orders", str(path)]
    path.chmod(0o600)
    assert subprocess.run(argv, check=False, timeout=PATIENCE_S).returncode == 0
    path.chmod(mode)
    assert subprocess.run(argv, check=False, capture_output=True, timeout=PATIENCE_S).returncode == 64


@pytest.mark.attack
@pytest.mark.parametrize("part", range(5))
def test_a_file_that_is_not_what_it_was_is_declined(tmp_path: Path, part: int) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(b"kernel")
    numbers = run_orders.fingerprint(str(file)).split()
    code = "hello(); say(frame('O', os.pread(70, 100, 0))); end(0)"
    assert run(orders(code, ("open", f"70 r {' '.join(numbers)} {file}"))).stdout == b"kernel"
    numbers[part] = str(int(numbers[part]) + 1)
    changed = ("open", f"70 r {' '.join(numbers)} {file}")
    assert run(orders(code, changed)).returncode == 200
    otherwise: Pairs = [("otherwise", word) for word in ("/bin/sh", "-c", "echo anew; exit 9")]
    ended = run(orders(code, changed, *otherwise))
    assert (ended.returncode, ended.stdout) == (9, b"anew\n")


@pytest.mark.attack
def test_a_fifo_in_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert run(orders("hello(); end(0)", ("open", f"70 r 1 1 1 1 1 {tmp_path / 'fifo'}"))).returncode == 200


def test_the_run_volume_has_a_fresh_key_and_the_records(tmp_path: Path) -> None:
    code = "hello(); say(frame('O', key.hex().encode() + b' ' + b'|'.join(records[2:]))); end(0)"
    said = [run(orders(code, ("run", "arg a b"), ("run", "env A=\n1"))).stdout for _ in range(2)]
    assert said[0].endswith(b" arg a b|env A=\n1") and said[0][:32] != said[1][:32]


def test_a_program_gets_its_own_descriptors_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    code = "hello(); say(frame('O', ' '.join(sorted(os.listdir('/proc/self/fd'), key=int)).encode())); end(0)"
    with file.open() as open_by_caller:
        os.set_inheritable(open_by_caller.fileno(), True)
        said = run(orders(code, ("open", f"70 r 0 0 0 0 0 {file}"), ("control", "66"))).stdout.split()
    assert (
        said[:3] == [b"0", b"1", b"2"] and said[-4:] == [b"64", b"65", b"66", b"70"] and len(said) == 8
    )  # and the list's


def test_what_the_caller_had_open_moves_nothing(tmp_path: Path) -> None:
    """Our own ends get high numbers then, which are those of the monitor's descriptors."""
    code = (
        "hello(); links = (os.readlink(f'/proc/self/fd/{n}') for n in (64, 65, 66, 70))\n"
        "say(frame('O', ' '.join(link.partition(':')[0] for link in links).encode())); end(0)"
    )
    file = tmp_path / "file"
    file.touch()
    more: Pairs = [("open", f"70 r 0 0 0 0 0 {file}"), ("control", "66")]
    descriptor = run_orders.in_memory(orders(code, *more))
    crowded = (
        "import os, sys; os.dup2(int(sys.argv[2]), 64); null = os.open('/dev/null', 0)\n"
        "os.set_inheritable(null, True)\nfor number in range(3, 64): os.dup2(null, number)\n"
        "os.execv(sys.argv[1], [sys.argv[1], '64'])"
    )
    try:
        argv = [sys.executable, "-c", crowded, str(run_orders.program()), str(descriptor)]
        ended = subprocess.run(argv, pass_fds=(descriptor,), capture_output=True, timeout=PATIENCE_S, check=False)
    finally:
        os.close(descriptor)
    assert (ended.returncode, ended.stdout.decode()) == (0, f"/memfd /memfd socket {file}"), ended.stderr


def test_a_program_beside_runs_as_long_as_the_machine(tmp_path: Path) -> None:
    mark, launch = tmp_path / "beside", str(locate().launch)
    beside: Pairs = [("program", "beside")]
    beside += [("arg", word) for word in (launch, "--", "/bin/sh", "-c", f"echo $$ >{mark}; exec sleep 600")]
    code = f"hello()\nwhile not (os.path.exists('{mark}') and os.path.getsize('{mark}')): time.sleep(0.01)\nend(0)"
    assert run(orders(code, *beside, ("program", "monitor"))).returncode == 0
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


# --- what a guest says


def test_exit_codes_and_streams() -> None:
    ended = run(orders("hello(); say(frame('O', b'o\\0\\xff'), frame('E', b'e')); end(7)"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, b"o\0\xff", b"e")


def test_a_stream_that_is_not_attached_is_not_there() -> None:
    """And standard input that is not attached neither comes nor ends."""
    code = (
        "hello(); say(frame('O', b'o'), frame('E', b'e')); os.set_blocking(0, False); time.sleep(0.3)\n"
        "try: end(len(os.read(0, 100)))\nexcept BlockingIOError: end(50)"
    )
    given: Pairs = [("interactive", "1"), ("no-stdin", "1")]
    ended = run(orders(code, *given, ("no-stdout", "1")), b"given")
    assert (ended.returncode, ended.stdout, ended.stderr) == (50, b"", b"e")
    ended = run(orders(code, *given, ("no-stderr", "1")), b"given")
    assert (ended.returncode, ended.stdout, ended.stderr) == (50, b"o", b"")


def test_a_monitor_that_sleeps_before_its_guest_has_begun_is_started_once_more(tmp_path: Path) -> None:
    """What was typed meanwhile is not lost."""
    mark = tmp_path / "mark"
    code = (
        f"first = not os.path.exists('{mark}'); open('{mark}', 'a').write(key.hex() + ' ')\n"
        "if first: time.sleep(600)\n"
        "hello(); kind, data = next(frames()); say(frame('O', data)); end(0)"
    )
    ended = run(orders(code, ("interactive", "1")), b"typed")
    assert (ended.returncode, ended.stdout) == (0, b"typed")
    assert re.fullmatch(rb"vmtailor: the monitor slept before its guest had begun, .*\(python.*\n", ended.stderr)
    assert len(set(mark.read_text().split())) == 2  # each start has a key of its own


def test_a_start_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    ended = run(orders("time.sleep(600)", ("start-ms", "4000"), *Folder(tmp_path).explain))
    assert ended.returncode == 125 and ended.stderr == b"worded\n"  # before it was looked at twice
    assert run_end.parse((tmp_path / "end").read_bytes()).finish is Finish.NOT_STARTED


def test_a_monitor_that_does_not_get_the_processor_is_waited_for() -> None:
    code = (
        "if os.fork() == 0:\n time.sleep(2.5); os.kill(os.getppid(), signal.SIGCONT); os._exit(0)\n"
        "os.kill(os.getpid(), signal.SIGSTOP); hello(); end(5)"
    )
    assert run(orders(code, ("start-ms", "500"))).returncode == 5


def test_standard_input_goes_by_credit_and_ends() -> None:
    code = (
        "hello()\nmost = under = 0\nfor kind, data in frames():\n"
        " if kind == 'e': break\n"
        " under += len(data); most = max(most, under); say(frame('O', data))\n"
        " say(frame('C', b'%d' % len(data))); under = 0\n"
        "assert most <= 2048; end(0)"
    )
    data = bytes(range(256)) * 300
    assert run(orders(code, ("interactive", "1")), stdin=data).stdout == data


@pytest.mark.attack
@pytest.mark.parametrize(
    "said",
    [
        "os.urandom(100000)", "b'\\xf5' * 5000", "b'\\xf5\\x54' * 3000", "b'\\xf5\\x54O\\0\\xff\\xff' + bytes(9000)",
        "frame('X', b'3 0 ', bytes(16))", "frame('O', b'forged', os.urandom(16))", "frame('Z', b'unknown')",
        "frame('o', b'')", "frame('y', b'\\x07 1 2')", "frame('C', b'99999999999')", "frame('C', b'-5')",
        "frame('N', b'x')", "frame('D', b'no name')", "frame('D', b'kernel-log\\0' + b'k' * 2000) * 1000",
        "frame('X', b'')", "frame('X', b'not a number')", "frame('O', b'whole')[:-1]",
    ],
)  # fmt: skip
def test_bad_frames_of_a_guest_harm_nothing(said: str) -> None:
    ended = run(orders(f"hello(); say({said}); say(bytes(4096), frame('O', b'right')); end(5)"))
    assert ended.returncode == 5 and ended.stdout.endswith(b"right") and ended.stdout != b"forged"
    assert b"forged" not in ended.stdout


@pytest.mark.attack
def test_after_the_key_was_heard_no_open_frame_counts(folder: Path) -> None:
    code = "hello(); say(frame('F', b'\\0given up', bytes(16)), frame('O', b'on')); end(0)"
    ended = run(orders(code))
    assert (ended.returncode, ended.stdout) == (0, b"on")


@pytest.mark.attack
def test_a_console_without_end_is_bounded(folder: Folder) -> None:
    ended = run(orders("say(b'word ' * 1000000)", *folder.explain))
    end = folder.end()
    assert ended.returncode == 125 and end.finish is Finish.CLOSED and not end.listening
    assert 200_000 < len(end.report.console) <= 262_144


@pytest.mark.attack
def test_a_guest_that_reads_nothing_takes_no_memory(folder: Folder) -> None:
    """It takes standard input over and over, and reads none of it."""
    code = (
        "hello()\nfor _ in range(8000): say(frame('C', b'2048')); time.sleep(0.0001)\n"
        "said = open(f'/proc/{os.getppid()}/status').read()\n"
        "say(frame('O', re.search(r'VmHWM:\\s+(\\d+) kB', said)[1].encode())); end(0)"
    )
    ended = run(orders(code, ("interactive", "1")), stdin=bytes(64 << 20))
    assert ended.returncode == 0 and 0 < int(ended.stdout) < 8 << 10


def test_the_record_of_an_end_that_needs_words(folder: Folder) -> None:
    code = (
        "print('monitor speaks', file=sys.stderr, flush=True); say(b'kernel\\0speaks\\n'); hello()\n"
        "say(frame('N', b'SYMBOL\\0why'), frame('D', b'kernel-log\\0log')); end(127, 0, b'execve(/x): none')"
    )
    run(orders(code, *folder.explain))
    end = folder.end()
    assert (end.finish, end.heard, end.listening, end.said) == (Finish.CLOSED, True, True, "monitor speaks")
    report = end.report
    assert (report.exit_code, report.exit_reason, report.console) == (127, "execve(/x): none", "kernel speaks\n")
    assert [(note.symbol, note.text) for note in report.notes] == [("SYMBOL", "why")]
    assert report.file("kernel-log") == "log"


@pytest.mark.parametrize(
    "said", ["reboot: System halted", "[    1.5] reboot: Power down\r", "[ 1.5] [C1] reboot: Restarting system"]
)
def test_the_last_words_of_a_kernel_that_was_made_to_end(folder: Folder, said: str) -> None:
    run(orders(f"hello(); say({said + chr(10)!r}.encode()); time.sleep(600)", *folder.explain))
    end = folder.end()
    assert end.finish is Finish.FAREWELL and end.farewell == said.rpartition("] ")[2].strip()


@pytest.mark.attack
def test_words_that_only_look_like_the_last_are_none() -> None:
    code = "hello(); say(b'say reboot: System halted\\n', b'reboot: System halted?\\n'); end(3)"
    assert run(orders(code)).returncode == 3


# --- its end


@pytest.mark.attack
def test_a_supervisor_that_is_killed_takes_its_machine_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    descriptor = run_orders.in_memory(
        orders(f"hello(); open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    )
    process = subprocess.Popen([run_orders.program(), str(descriptor)], pass_fds=(descriptor,))
    os.close(descriptor)
    end = time.monotonic() + PATIENCE_S
    while not (mark.is_file() and mark.read_text()):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.kill()
    process.wait()
    while is_running(int(mark.read_text())):
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- in the background


def ask(folder: Folder, verb: str, *pairs: tuple[str, str]) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    folder.lines.append(line)
    line.settimeout(PATIENCE_S)
    line.connect(str(folder.runtime / "control"))
    send(line, "Q", b"".join(f"{key} {value}".encode() + b"\0" for key, value in (("do", verb), *pairs)))
    return line


def send(line: socket.socket, kind: str, payload: bytes = b"") -> None:
    line.sendall(struct.pack("<cI", kind.encode(), len(payload)) + payload)


def frames(line: socket.socket) -> Iterator[tuple[str, bytes]]:
    held = b""
    while True:
        while len(held) >= 5 and len(held) >= 5 + struct.unpack("<I", held[1:5])[0]:
            size = struct.unpack("<I", held[1:5])[0]
            yield chr(held[0]), held[5 : 5 + size]
            held = held[5 + size :]
        data = line.recv(65536)
        if not data:
            assert not held
            return
        held += data


SERVER = "hello(); say(frame('O', b'up\\n'))\nfor kind, data in frames():\n if kind == 's': end(int(data) + 40); break"


def test_a_machine_in_the_background(folder: Folder) -> None:
    ended = run(orders(SERVER, *folder.detached))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"the-id\n", b"")
    values = folder.values()
    assert values["status"] == "running" and folder.alive and int(values["started-ns"]) > 0
    number = int(values["pid"])
    assert os.getsid(number) == number  # a session of its own
    assert (folder.state / "runtime").readlink() == folder.runtime
    assert {Path(f"/proc/{number}/fd/{fd}").readlink() for fd in (0, 1, 2)} == {Path("/dev/null")}
    os.kill(number, signal.SIGHUP)
    kind, payload = next(frames(ask(folder, "state")))
    assert kind == "R" and b"\0status running\0" in payload
    waiting, attached = ask(folder, "wait"), ask(folder, "attach")
    assert list(frames(ask(folder, "stop", ("signal", "2")))) == [("R", b""), ("X", b"42 0 ")]
    assert list(frames(waiting)) == [("X", b"42 0 ")] and list(frames(attached))[-1] == ("X", b"42 0 ")
    folder.wait_ended()
    values = folder.values()
    assert (values["status"], values["exit"]) == ("exited", "42") and values["finished-ns"] >= values["started-ns"]
    assert not folder.runtime.exists()
    (line,) = (folder.state / "log").read_text().splitlines()
    found = json.loads(line)
    assert (found["log"], found["stream"]) == ("up\n", "stdout") and found["time"].endswith("Z")


def test_a_machine_that_awaits_a_client_says_nothing_before(folder: Folder) -> None:
    """It hears all: the first word, standard input that was there before the guest, and the words of its end."""
    code = (
        "hello(); say(frame('O', b'first'))\nfor kind, data in frames():\n"
        " if kind == 'i': say(frame('E', data))\n if kind == 'e': end(126, 0, b'nosuch'); break"
    )
    detached = [pair for pair in folder.detached if pair[0] != "start-print"]
    text = orders(code, *detached, ("awaits", "1"), ("interactive", "1"), *folder.explain)
    descriptor, words = run_orders.in_memory(text), folder.path / "words"
    with words.open("wb") as said:  # which it has until the guest speaks
        starter = subprocess.Popen([run_orders.program(), str(descriptor)], pass_fds=(descriptor,), stdout=said)
    os.close(descriptor)
    assert starter.wait(PATIENCE_S) == 0 and not words.stat().st_size
    assert not (folder.state / "log").stat().st_size
    line = socket.socket(socket.AF_UNIX)
    folder.lines.append(line)
    line.settimeout(PATIENCE_S)
    line.connect(str(folder.runtime / "control"))
    first = b"do attach\0stdin 1\0"
    line.sendall(struct.pack("<cI", b"Q", len(first)) + first + struct.pack("<cI", b"i", 5) + b"typed")
    send(line, "e")
    heard = list(frames(line))
    assert heard == [("O", b"first"), ("E", b"typed"), ("E", b"worded\n"), ("X", b"125 0 ")]
    folder.wait_ended()
    assert folder.values()["error"].strip() == "worded"


def test_between_two_runs_no_signal_is_taken(folder: Folder) -> None:
    assert run(orders("hello(); end(0)", *folder.detached, ("restart", "always"))).returncode == 0
    end = time.monotonic() + PATIENCE_S
    while (folder.values()["status"], int(folder.values()["restarts"]) > 2) != ("restarting", True):
        assert time.monotonic() < end
        time.sleep(0.005)
    ((kind, words),) = frames(ask(folder, "kill", ("signal", "1")))
    assert (kind, words) == ("F", b"the container does not run")
    assert [kind for kind, _ in frames(ask(folder, "stop"))] == ["R", "X"]


def test_a_second_supervisor_of_a_machine_starts_nothing(folder: Folder) -> None:
    assert run(orders(SERVER, *folder.detached)).returncode == 0
    ended = run(orders(SERVER, *folder.detached))
    assert (ended.returncode, ended.stderr) == (125, b"vmtailor: the machine runs already\n")
    list(frames(ask(folder, "stop")))


def test_a_machine_that_was_removed_meanwhile_does_not_start(folder: Folder) -> None:
    """`rm` holds the lock while the record goes; nobody would find what starts behind it."""
    (folder.state / "machine.json").unlink()
    ended = run(orders("raise SystemExit(0)", *folder.detached))
    assert (ended.returncode, ended.stderr) == (125, b"vmtailor: the machine was removed\n")
    assert not (folder.state / "state").exists() and not folder.runtime.exists()


def test_a_start_that_fails_is_told_where_it_was_asked_for(folder: Folder) -> None:
    ended = run(orders("sys.exit(1)", *folder.detached, *folder.explain))
    assert (ended.returncode, ended.stdout, ended.stderr) == (125, b"", b"worded\n")
    values = folder.values()
    assert (values["status"], values["exit"], values["error"]) == ("exited", "125", "worded ")


@pytest.mark.parametrize("policy", ["no", "always"])
def test_a_program_that_cannot_be_executed_is_told_too(folder: Folder, policy: str) -> None:
    """The machine is as it was created, as in docker, and is not tried again."""
    code = "say(frame('H', b'init 1')); end(127, 0, b'execve(nosuch): No such file or directory')"
    explain = [("explain", word) for word in ("/bin/sh", "-c", "echo worded >&2; exit 127")]
    ended = run(orders(code, *folder.detached, *explain, ("restart", policy)))
    assert (ended.returncode, ended.stdout, ended.stderr) == (127, b"", b"worded\n")
    values = folder.values()
    assert (values["status"], values["exit"], values["restarts"]) == ("created", "127", "0")


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [("no", 3, 0), ("on-failure:2", 3, 2), ("on-failure:2", 0, 0), ("on-failure", 0, 0)],
)
def test_a_machine_is_started_again_as_its_policy_says(folder: Folder, policy: str, code: int, restarts: int) -> None:
    text = orders(f"hello(); say(frame('O', key)); end({code})", *folder.detached, ("restart", policy))
    assert run(text).returncode == 0
    folder.wait_ended()
    values = folder.values()
    assert (values["exit"], values["restarts"]) == (str(code), str(restarts))


@pytest.mark.parametrize(("heeds", "status"), [(True, "143"), (False, "137")])
def test_a_guest_with_disks_ends_its_container_itself(folder: Folder, heeds: bool, status: str) -> None:
    """It is given time to write what it holds, and no more than that."""
    heeded = "end(143)" if heeds else "time.sleep(60)"
    code = f"hello()\nfor kind, payload in frames():\n if (kind, payload) == ('s', b'9'): {heeded}; break"
    flush = ("flush-ms", "30000" if heeds else "200")
    assert run(orders(code, *folder.detached, flush, ("restart", "always"))).returncode == 0
    assert [kind for kind, _ in frames(ask(folder, "kill", ("signal", "9")))] == ["R"]
    folder.wait_ended()
    assert (folder.values()["status"], folder.values()["exit"]) == ("exited", status)


def test_the_lock_of_a_disk_ends_with_its_monitor(folder: Folder) -> None:
    """As QEMU locks: on the open file, which the supervisor must not hold beyond a run."""
    disk = folder.path / "disk"
    disk.write_bytes(b"x" * 512)
    code = (
        "import fcntl\nlock = lambda kind: struct.pack('hhqqi', kind, 0, 0, 1, 0)\n"
        "held = fcntl.fcntl(70, fcntl.F_OFD_GETLK, lock(fcntl.F_WRLCK))\n"
        "fcntl.fcntl(71, fcntl.F_OFD_SETLK, lock(fcntl.F_WRLCK))\n"
        "hello(); end(3 if struct.unpack('hhqqi', held)[0] == fcntl.F_UNLCK else 4)"
    )
    files = [("open", f"70 r 0 0 0 0 0 {disk}"), ("open", f"71 rw 0 0 0 0 0 {disk}")]
    assert run(orders(code, *folder.detached, *files, ("restart", "on-failure:2"))).returncode == 0
    folder.wait_ended()
    assert (folder.values()["exit"], folder.values()["restarts"]) == ("3", "2")


def test_a_machine_that_is_started_again_for_ever_can_be_stopped(folder: Folder) -> None:
    assert run(orders("hello(); end(0)", *folder.detached, ("restart", "always"))).returncode == 0
    end = time.monotonic() + PATIENCE_S
    while int(folder.values()["restarts"]) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert [kind for kind, _ in frames(ask(folder, "stop"))] == ["R", "X"]
    folder.wait_ended()
    assert folder.values()["status"] == "exited"


def test_logs_are_rotated_and_hold_any_bytes(folder: Folder) -> None:
    code = (
        "hello(); line = bytes(range(256)).replace(b'\\n', b'') + b'\\n'\n"
        "say(*(frame('O', b'%03d ' % n + line) for n in range(100)), frame('E', b'cut')); end(0)"
    )
    text = orders(code, *folder.detached, ("log-bytes", "20000"), ("log-files", "3"))
    assert run(text).returncode == 0
    folder.wait_ended()
    names = sorted(path.name for path in folder.state.glob("log*"))
    assert names == ["log", "log.1", "log.2"]
    assert all((folder.state / name).stat().st_size <= 20000 for name in names)
    lines = [json.loads(line) for name in reversed(names) for line in (folder.state / name).read_bytes().splitlines()]
    assert lines.pop() | {"time": ""} == {"log": "cut", "stream": "stderr", "time": ""}
    numbers = [int(line["log"][:3]) for line in lines]
    assert numbers == list(range(numbers[0], 100)) and "\x00\x01" in lines[-1]["log"] and "\ufffd" in lines[-1]["log"]


FURTHER = (
    "hello()\norder = b''\nfor kind, data in frames():\n"
    " if kind == 'x':\n"
    "  order += data[1:]\n"
    "  if order.endswith(b'\\0\\0'):\n"
    "   say(*(frame('o', data[:1] + order[at : at + 2000]) for at in range(0, len(order), 2000))); order = b''\n"
    " if kind == 'j': say(frame('p', data), frame('c', data[:1] + b'%d' % (len(data) - 1)))\n"
    " if kind == 'k': say(frame('y', data[:1] + b'6 0 '))\n"
    " if kind == 's': end(0); break"
)


def test_a_further_process(folder: Folder) -> None:
    assert run(orders(FURTHER, *folder.detached, ("builtins", "1"))).returncode == 0
    long = "x" * 5000
    line = ask(folder, "exec", ("arg", "cat"), ("arg", long), ("stdin", "1"))
    heard = frames(line)
    wanted = f"vmtailor 1\0arg cat\0arg {long}\0stdin 1\0\0".encode()
    assert b"".join(next(heard)[1] for _ in range(0, len(wanted), 2000)) == wanted
    data = os.urandom(50_000)
    send(line, "i", data)
    send(line, "e")
    back = list(heard)
    assert back.pop() == ("X", b"6 0 ") and b"".join(payload for kind, payload in back if kind == "E") == data
    archive = frames(ask(folder, "archive", ("path", "/etc")))
    assert next(archive) == ("O", b"vmtailor 1\0builtin archive\0path /etc\0\0")
    list(frames(ask(folder, "stop")))
    assert list(archive) == [("X", b"137 9 ")]


def test_an_init_that_starts_no_further_process_is_not_asked(folder: Folder) -> None:
    assert run(orders(SERVER, *folder.detached)).returncode == 0
    ((kind, words),) = frames(ask(folder, "exec", ("arg", "ls")))
    assert kind == "F" and b"fit the image again" in words
    kind, payload = next(frames(ask(folder, "stats")))
    assert kind == "R" and b"cpu-ns " in payload and b"memory " in payload
    list(frames(ask(folder, "stop")))


@pytest.mark.attack
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"Q",
        b"Q\xff\xff\xff\xff",
        b"i\0\0\0\0",
        b"Q\3\0\0\0do ",
        b"Q\5\0\0\0do x\0",
        b"Q\1\0\0\0\0",
        os.urandom(300),
    ],
)
def test_bad_requests_harm_nothing(folder: Folder, said: bytes) -> None:
    assert run(orders(SERVER, *folder.detached)).returncode == 0
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        line.connect(str(folder.runtime / "control"))
        line.sendall(said)
        line.shutdown(socket.SHUT_WR)
        answered = b""
        try:
            while data := line.recv(1000):
                answered += data
        except ConnectionResetError:
            pass
        assert answered[:1] in (b"", b"F")
    assert [kind for kind, _ in frames(ask(folder, "stop"))] == ["R", "X"]


def test_health_of_a_container(folder: Folder) -> None:
    code = (
        "hello(); checks = 0\nfor kind, data in frames():\n"
        " if kind == 'x': checks += 1; say(frame('y', data[:1] + (b'0 0 ' if checks == 1 else b'1 0 ')))\n"
        " if kind == 's': end(0); break"
    )
    health: Pairs = [("health", "check"), ("health-interval-ms", "50"), ("health-retries", "2")]
    assert run(orders(code, *folder.detached, ("builtins", "1"), *health)).returncode == 0
    end = time.monotonic() + PATIENCE_S
    seen: list[str] = []
    while not seen or seen[-1] != "unhealthy":
        assert time.monotonic() < end
        if not seen or folder.values()["health"] != seen[-1]:
            seen.append(folder.values()["health"])
        time.sleep(0.01)
    assert seen in (["starting", "healthy", "unhealthy"], ["healthy", "unhealthy"])
    list(frames(ask(folder, "stop")))


def test_failed_checks_count_from_the_first_good_one(folder: Folder) -> None:
    """Also within the time in which they do not count; and that time begins with each start."""
    code = (
        "hello(); checks = 0\nfor kind, data in frames():\n"
        " if kind == 'x': checks += 1; say(frame('y', data[:1] + (b'0 0 ' if checks == 2 else b'1 0 ')))\n"
        " if kind == 's': end(0); break"
    )
    health: Pairs = [("health", "check"), ("health-interval-ms", "50"), ("health-retries", "1")]
    health.append(("health-start-ms", "600000"))
    assert run(orders(code, *folder.detached, ("builtins", "1"), *health)).returncode == 0
    end = time.monotonic() + PATIENCE_S
    seen: set[str] = set()
    while "unhealthy" not in seen:
        assert time.monotonic() < end
        seen.add(folder.values()["health"])
        time.sleep(0.005)
    assert seen >= {"healthy"}
    list(frames(ask(folder, "stop")))
