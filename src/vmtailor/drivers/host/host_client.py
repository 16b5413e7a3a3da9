# SPDX-License-Identifier: Apache-2.0
"""The exercise's clients on the host: HTTP requests and commands against published ports on the loopback address."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import socket
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace

from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.natives import locate
from vmtailor.base.process import run
from vmtailor.base.text import plain
from vmtailor.base.wrong_answers import EXPECTED, began, quoted, unlike
from vmtailor.drivers.guest import load_words
from vmtailor.drivers.guest.guest_text import parse_result
from vmtailor.model.exercise import HOST_PORT, LOADS, Exercise, Expect, Step, StepKind
from vmtailor.model.load import Load

TIMEOUT_S = 60.0
#: A guest that does not listen refuses within this time, also on a busy host.
STAYS_OPEN_S = 3.0
#: Bytes of an answer that are read at the most.
MOST_BYTES = 64 << 20
#: Bytes of a wrong answer whose beginning is shown.
HEAD_BYTES = 4096


def free_port() -> int:
    """Return a TCP port of the loopback address that is free just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ports_asked(exercise: Exercise) -> set[int]:
    """Return the guest's ports that an exercise asks from the host."""
    found = {step.port for step in exercise.load if step.port and step.kind in (StepKind.HTTP, StepKind.TCP, *LOADS)}
    return found | {int(port) for step in exercise.load for word in step.argv for port in HOST_PORT.findall(word)}


def wrong_answers(exercise: Exercise, where: Mapping[int, int], listening: Collection[int] = ()) -> list[str]:
    """Ask once what each step of the load asks (of a load of many requests, a few at once), through the published ports
    (`where`: guest port → host port). Behind a port that no step asks, but on which the container listens
    (`listening`), somebody must be there. Returns what is wrong, in sentences."""
    found = []
    asked = set()
    for step in exercise.load:
        try:
            if step.kind is StepKind.HOST_COMMAND:
                found += _command(step, where)
            elif step.load is not None and step.port in where:
                asked.add(step.port)
                found += _load(step, step.load.unpaced(), where[step.port])
            elif step.kind in (StepKind.HTTP, StepKind.TCP) and step.port in where:
                asked.add(step.port)
                host = where[step.port]
                found += _http(step, host) if step.kind is StepKind.HTTP else _tcp(step.port, host)
        except (OSError, http.client.HTTPException, VmtailorError) as error:
            found.append(f"from the host, {step.title} is not answered: {error}")
    for guest, host in where.items():
        if guest not in asked and guest in listening:
            try:
                found += _tcp(guest, host)
            except OSError as error:
                found.append(f"from the host, port {guest} takes no connection: {error}")
    return found


def _tcp(guest: int, host: int) -> list[str]:
    """QEMU takes each connection itself, and closes it when nobody listens in the guest. So one that stays open, or
    brings something, has reached the container."""
    with socket.create_connection(("127.0.0.1", host), TIMEOUT_S) as connection:
        connection.settimeout(STAYS_OPEN_S)
        try:
            if connection.recv(1):
                return []
        except TimeoutError:
            return []
    return [f"from the host, a connection to port {guest} is closed at once: nobody listens behind it"]


def _http(step: Step, port: int) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.connect()
    # The time is for all of it: who sends a byte now and then is not waited for.
    late = threading.Event()
    cut = threading.Timer(TIMEOUT_S, _cut, (connection.sock, late))
    cut.daemon = True
    cut.start()
    try:
        connection.request(step.method, step.path)
        answer = connection.getresponse()
        body = answer.read(MOST_BYTES)
    finally:
        cut.cancel()
        connection.close()
    if late.is_set():
        return [f"from the host, {step.title} is not answered within {TIMEOUT_S:.0f} s"]
    if answer.length and len(body) < MOST_BYTES:  # what is left of it
        return [f"from the host, {step.title}: the answer ends {answer.length} bytes early"]
    return _judge(step, body, status=answer.status)


def _load(step: Step, load: Load, port: int) -> list[str]:
    """Drive a small load from this host by the guest's own client."""
    words = load_words.words(replace(step, load=load, port=port), 0)
    finished = run([str(locate().load_client), *words], timeout_s=load.limit_s + TIMEOUT_S, ok=(0, 1))
    result = parse_result(finished.stdout.partition(b"\0")[2])
    why = f": {plain(result.why)}" if result.why else ""
    return [] if result.ok else [f"from the host, {step.title}: {result.right} of {result.done} right{why}"]


def _cut(line: socket.socket, late: threading.Event) -> None:
    late.set()  # before anybody sees the end
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _command(step: Step, where: Mapping[int, int]) -> list[str]:
    def port(match: re.Match[str]) -> str:
        if int(match[1]) not in where:
            raise UserInputError(f"port {match[1]} is not published")
        return str(where[int(match[1])])

    argv = [HOST_PORT.sub(port, word) for word in step.argv]
    finished = run(argv, timeout_s=TIMEOUT_S, ok=range(256))
    return _judge(step, finished.stdout, exit_code=finished.returncode)


def _judge(step: Step, body: bytes, *, status: int | None = None, exit_code: int | None = None) -> list[str]:
    expect: Expect = step.expect
    what = "output" if step.kind is StepKind.HOST_COMMAND else "body"
    wrong = []
    if expect.status is not None and status is not None and status != expect.status:
        wrong.append(f"status {status}, expected {expect.status}")
    if exit_code is not None and exit_code != (expect.exit_code or 0):
        wrong.append(f"exit code {exit_code}, expected {expect.exit_code or 0}")
    if expect.sha256 is not None and (digest := hashlib.sha256(body).hexdigest()) != expect.sha256.lower():
        wrong.append(f"the {what} has SHA-256 {digest[:12]}…, expected {expect.sha256[:12]}…")
    if expect.contains is not None and expect.contains.encode() not in body:
        wrong.append(f"expected the {what} to contain {quoted(expect.contains, EXPECTED)}")
    if expect.stdout is not None and body != expect.stdout.encode():
        wrong.append(unlike(what, expect.stdout, body.decode("utf-8", "replace")))
    elif wrong:
        wrong.append(began(what, body[:HEAD_BYTES].decode("utf-8", "replace")))
    return [f"from the host, {step.title}: {'; '.join(wrong)}"] if wrong else []
