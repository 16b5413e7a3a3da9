# SPDX-License-Identifier: Apache-2.0
"""The exercise's client, driving loads against real servers on this host: good ones, and those that do not answer."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from vmtailor.analysis.guests import load_faults, load_records
from vmtailor.base.natives import locate
from vmtailor.drivers.guest import load_words
from vmtailor.drivers.host import host_client
from vmtailor.model.boots.load_result import LoadResult, LoadStage
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.load import Arrivals, Load, LoadPage, LoadProtocol

pytestmark = pytest.mark.contract

BODY = b"hello world\n" * 40
DIGEST = sha256(BODY).hexdigest()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
PAGE = LoadPage("/", status=200, contains="world", sha256=DIGEST)

Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def served(serve: Serve) -> Iterator[int]:
    """A server of the loopback address, each connection in a thread; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:

        def accept() -> None:
            while True:
                try:
                    line, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answered, args=(line,), daemon=True).start()

        def answered(line: socket.socket) -> None:
            with line, contextlib.suppress(OSError):
                serve(line)

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def requests(line: socket.socket) -> Iterator[bytes]:
    """The requests that come on a connection."""
    held = b""
    while part := line.recv(65536):
        held += part
        while b"\r\n\r\n" in held:
            one, _, held = held.partition(b"\r\n\r\n")
            yield one


def good(line: socket.socket) -> None:
    for request in requests(line):
        line.sendall(ANSWER)
        if b"Connection: close" in request:
            return


@pytest.fixture(scope="module")
def client() -> Path:
    return locate().load_client


def driven(client: Path, port: int, kind: StepKind, load: Load) -> tuple[LoadStage, ...]:
    found, said = told(client, Step(kind, port=port, load=load))
    assert found.whole and f"done={found.asked}" in said
    return found.stages


def told(client: Path, step: Step) -> tuple[LoadResult, list[str]]:
    done = subprocess.run([client, *load_words.words(step, 0)], capture_output=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    record, _, said = done.stdout.decode().partition("\0")
    (found,) = load_records.parse(record)
    return found, said.split("\0")


def peak(requests: int = 200, **more: object) -> Load:
    return replace(Load((PAGE,), at_once=8, sessions=requests), **more)  # type: ignore[arg-type]


def test_each_request_of_a_peak_is_answered_on_a_connection_of_its_own(client: Path) -> None:
    with served(good) as port:
        (stage,) = driven(client, port, StepKind.PEAK, peak())
    assert (stage.asked, stage.right, stage.failures, stage.connections) == (200, 200, (), 200)
    times = stage.latencies
    assert 0 < times.least_ns <= (times.at(0.5) or 0) <= times.most_ns <= stage.took_ns
    assert times.at(0.9) is not None and times.at(0.99) is None


def test_connections_that_are_kept_serve_all_requests(client: Path) -> None:
    with served(good) as port:
        (stage,) = driven(client, port, StepKind.PEAK, peak(keep_alive=True))
    assert (stage.right, stage.connections) == (200, 8)


def test_a_kept_connection_that_the_server_closes_is_opened_again(client: Path) -> None:
    def few(line: socket.socket) -> None:
        for count, _ in enumerate(requests(line), 1):
            line.sendall(ANSWER)
            if count == 5:
                return

    with served(few) as port:
        (stage,) = driven(client, port, StepKind.PEAK, peak(keep_alive=True))
    assert stage.right == stage.asked == 200 and stage.failures == ()


def test_answers_that_are_not_like_the_first_right_one_are_wrong(client: Path) -> None:
    others = iter([ANSWER, ANSWER.replace(b"hello", b"HELLO", 1), ANSWER[:-1] + b"\r"])

    def other(line: socket.socket) -> None:
        next(requests(line))
        line.sendall(next(others, ANSWER))

    with served(other) as port:
        (stage,) = driven(client, port, StepKind.PEAK, peak(20, at_once=1))
    assert (stage.right, stage.failures) == (18, (("wrong", 2),))
    assert stage.why == f"{len(BODY)} bytes that are not those of the first right answer"


def test_users_read_their_pages_in_turn_and_pause(client: Path) -> None:
    seen: list[bytes] = []

    def note(line: socket.socket) -> None:
        for request in requests(line):
            seen.append(request.split(b" ")[1])
            line.sendall(ANSWER if seen[-1] != b"/none" else b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")

    pages = (PAGE, LoadPage("/none", status=404), LoadPage("/x", status=200))
    load = Load(pages, at_once=4, sessions=6, calls=3, keep_alive=True, pause_s=(0.05, 0.1))
    with served(note) as port:
        (stage,) = driven(client, port, StepKind.SURF, load)
    assert (stage.right, stage.asked, stage.connections) == (18, 18, 6)
    assert seen.count(b"/none") == 6 and stage.took_ns > 2 * 2 * 50e6


@pytest.mark.parametrize("arrivals", Arrivals)
def test_an_open_loop_asks_at_its_rate(client: Path, arrivals: Arrivals) -> None:
    load = Load((PAGE,), at_once=64, rate=100.0, seconds=1.0, arrivals=arrivals)
    with served(good) as port:
        (stage,) = driven(client, port, StepKind.RATE, load)
    assert stage.rate == 100.0 and stage.asked == stage.right == 100 and stage.offered_ns == 10**9
    assert 0.5e9 < stage.took_ns < 3e9


def test_a_wait_of_the_server_is_in_the_latency_of_all_that_were_to_begin(client: Path) -> None:
    """One that measures from the moment of sending would find a single slow answer. Half of the requests begin while
    the server waits: for the median among them next to nothing is left of that, for the upper quartile half of it."""
    first = threading.Lock()

    def slow_once(line: socket.socket) -> None:
        for _ in requests(line):
            if first.acquire(blocking=False):
                time.sleep(0.5)
            line.sendall(ANSWER)

    with served(slow_once) as port:
        (stage,) = driven(client, port, StepKind.RATE, Load((PAGE,), at_once=1, rate=100.0, seconds=1.0))
    assert stage.right == 100
    assert (stage.latencies.at(0.75) or 0) > 150e6 and stage.latest_ns > 300e6


def test_a_sweep_goes_on_until_a_rate_is_not_held(client: Path) -> None:
    turn = threading.Lock()

    def slow(line: socket.socket) -> None:
        for _ in requests(line):
            with turn:
                time.sleep(0.01)
            line.sendall(ANSWER)

    load = Load((PAGE,), at_once=32, rate=20.0, to_rate=1000.0, seconds=0.5, step=2.0)
    with served(slow) as port:
        found, _ = told(client, Step(StepKind.RATE, port=port, load=load))
    assert found.knee is not None and found.stages[0].held
    assert found.knee[0] < 110 and load_faults.fault(Step(StepKind.RATE, load=load), found) == ""


def test_a_server_of_redis(client: Path) -> None:
    values = {
        b"text": b"$5\r\nvalue\r\n",
        b"list": b"*2\r\n$1\r\na\r\n*1\r\n:7\r\n",
        b"none": b"$-1\r\n",
        b"bad": b"-ERR no\r\n",
    }

    def serve(line: socket.socket) -> None:
        while request := line.recv(65536):
            for byte in values[request.split(b"\r\n")[-2]]:  # in pieces
                line.sendall(bytes([byte]))

    for key, answer in (("text", "value"), ("list", "a7"), ("none", "")):
        page = LoadPage(command=("GET", key), answer=answer)
        with served(serve) as port:
            load = Load((page,), LoadProtocol.REDIS, at_once=2, sessions=20, keep_alive=True)
            (stage,) = driven(client, port, StepKind.PEAK, load)
        assert (stage.right, stage.connections) == (20, 2)
    with served(serve) as port:
        load = Load((LoadPage(command=("GET", "bad")),), LoadProtocol.REDIS, sessions=3)
        (stage,) = driven(client, port, StepKind.PEAK, load)
    assert stage.failures == (("wrong", 3),) and "answered with an error" in stage.why


def test_a_small_load_comes_from_the_host_through_a_published_port() -> None:
    load = Load((PAGE,), at_once=64, rate=5000.0, to_rate=9000.0, seconds=3.0)
    driven_so = Exercise("x", Ready(ReadyKind.TCP, Step(StepKind.TCP, port=80)), (Step(StepKind.RATE, 80, load=load),))
    with served(good) as port:
        assert host_client.ports_asked(driven_so) == {80}
        assert host_client.wrong_answers(driven_so, {80: port}) == []
    wrong = replace(load, pages=(LoadPage("/", status=204),))
    driven_so = replace(driven_so, load=(Step(StepKind.RATE, 80, load=wrong),))
    with served(good) as port:
        (sentence,) = host_client.wrong_answers(driven_so, {80: port})
    assert sentence == "from the host, rate of GET /, port 80: 0 of 40 right: status 200, not 204"


# --- servers that do not answer, or answer anything ---


def silent(line: socket.socket) -> None:
    while line.recv(65536):
        pass


def dies_midway(line: socket.socket) -> None:
    next(requests(line))
    line.sendall(ANSWER[:-20])


def resets(line: socket.socket) -> None:
    next(requests(line))
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def endless_header(line: socket.socket) -> None:
    next(requests(line))
    line.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        line.sendall(b"x" * 65536)


def no_http(line: socket.socket) -> None:
    next(requests(line))
    line.sendall(b"220 ready\r\n")


def other_body(line: socket.socket) -> None:
    next(requests(line))
    line.sendall(ANSWER.replace(b"hello", b"HELLO"))


def trickles(line: socket.socket) -> None:
    next(requests(line))
    for byte in ANSWER:
        line.sendall(bytes([byte]))
        time.sleep(0.05)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("serve", "failure"),
    [
        (silent, "timeout"),
        (trickles, "timeout"),
        (dies_midway, "reset"),
        (resets, "reset"),
        (endless_header, "wrong"),
        (no_http, "wrong"),
        (other_body, "wrong"),
    ],
)
def test_a_server_that_does_not_answer_right_is_not_waited_for(client: Path, serve: Serve, failure: str) -> None:
    with served(serve) as port:
        (stage,) = driven(client, port, StepKind.PEAK, peak(12, at_once=4, timeout_s=0.3))
    assert stage.right == 0 and stage.failures == ((failure, 12),) and stage.took_ns < 20e9


def test_a_load_without_any_answer_is_given_up(client: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        found, said = told(client, Step(StepKind.PEAK, port=port, load=peak(100_000)))
    (stage,) = found.stages
    assert stage.gave_up and 100 <= stage.asked < 200 and dict(stage.failures)["refused"] >= 100
    assert "right=0" in said and "why=refused" in said
    sentence = load_faults.fault(Step(StepKind.PEAK, load=peak()), found)
    assert sentence.startswith(f"0 of {stage.asked} right (") and "the rest was not asked" in sentence


def test_the_limit_of_a_load_ends_it(client: Path) -> None:
    with served(silent) as port:
        (stage,) = driven(client, port, StepKind.PEAK, peak(50, timeout_s=60.0, limit_s=0.4))
    assert stage.gave_up and 0.3e9 < stage.took_ns < 20e9


def test_a_rate_that_nobody_can_give_is_no_hang(client: Path) -> None:
    load = Load((PAGE,), at_once=4, rate=1_000_000.0, seconds=0.05, timeout_s=0.5, limit_s=20.0)
    with served(good) as port:
        (stage,) = driven(client, port, StepKind.RATE, load)
    assert stage.asked == 50_000 and not stage.held and dict(stage.failures)["unsent"] > 0


@pytest.mark.parametrize("words", [["page=/"], ["port=80", "page=/"], ["x"], ["port=99999"], ["sessions=1", "word=x"]])
def test_words_that_are_no_load_are_refused(client: Path, words: list[str]) -> None:
    done = subprocess.run([client, *words], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.startswith(b"load-client: ")


# --- commands ---


def commands(client: Path, *argv: str, kind: StepKind = StepKind.PEAK, **more: object) -> tuple[LoadResult, list[str]]:
    """Run a load of a command on this host."""
    page = LoadPage(command=argv, status=0)
    load = Load((replace(page, **more),), LoadProtocol.COMMAND, at_once=4, sessions=40)  # type: ignore[arg-type]
    return told(client, Step(kind, load=load))


def test_commands_are_run_at_once_and_judged_by_status_and_output(client: Path) -> None:
    found, said = commands(client, "echo", "hi", answer="hi\n")
    (stage,) = found.stages
    assert (stage.right, stage.failed, stage.connections) == (40, 0, 40) and "right=40" in said
    # More than a pipe holds, on both streams, and a process that stays behind with the output open.
    text = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; sleep 20 & exit 0"
    digest = sha256(bytes(300_000)).hexdigest()
    found, _ = commands(client, "sh", "-c", text, sha256=digest)
    assert found.stages[0].right == 40 and found.stages[0].latencies.most_ns < 10e9


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("no-such-program", "x"), "no-such-program: No such file or directory"),
        (("/etc/passwd",), "/etc/passwd: Permission denied"),
        (("sh", "-c", "echo never mind; echo no table >&2; exit 3"), "exit status 3, not 0: no table"),
        (("sh", "-c", "kill -9 $$"), "exit status 137, not 0"),
    ],
)
def test_a_command_that_fails_or_is_absent_is_a_sentence(client: Path, argv: tuple[str, ...], why: str) -> None:
    found, said = commands(client, *argv)
    (stage,) = found.stages
    assert stage.right == 0 and f"why={why}" in said
    step = Step(StepKind.PEAK, load=Load((LoadPage(command=argv),), LoadProtocol.COMMAND))
    sentence = load_faults.fault(step, found)
    assert sentence.startswith("0 of 40 right (40 ") and sentence.endswith(f": {why}")
    assert "\n" not in sentence


def test_a_command_that_does_not_end_is_killed_with_its_children(client: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    load = Load(
        (LoadPage(command=("sh", "-c", f"(sleep 2; touch {mark}) & wait"), status=0),), LoadProtocol.COMMAND,
        at_once=2, sessions=2, timeout_s=0.3,
    )  # fmt: skip
    (stage,) = told(client, Step(StepKind.PEAK, load=load))[0].stages
    assert dict(stage.failures) == {"timeout": 2}
    time.sleep(2.5)
    assert not mark.exists()


def test_commands_come_at_a_rate(client: Path) -> None:
    load = Load((LoadPage(command=("true",), status=0),), LoadProtocol.COMMAND, at_once=8, rate=50.0, seconds=0.4)
    (stage,) = told(client, Step(StepKind.RATE, load=load))[0].stages
    assert (stage.asked, stage.right, stage.offered_ns) == (20, 20, 400_000_000)
