# SPDX-License-Identifier: Apache-2.0
"""Ready signals: how they are written, and what counts as one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest.ready import LOGIN, ConsoleWatcher, judge, parse_signal, words_for
from vmtailor.model.boots.workload import ReadyBy, ReadySignal


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("login", ReadySignal(ReadyBy.LOGIN)),
        ("ssh", ReadySignal(ReadyBy.SSH, port=22)),
        ("ssh:2222", ReadySignal(ReadyBy.SSH, port=2222)),
        ("tcp:80", ReadySignal(ReadyBy.TCP, port=80)),
        ("http:8080", ReadySignal(ReadyBy.HTTP, port=8080, path="/")),
        ("http:8080/a/b:c", ReadySignal(ReadyBy.HTTP, port=8080, path="/a/b:c")),
        ("log:Started .*: ok", ReadySignal(ReadyBy.LOG, pattern="Started .*: ok")),
        ("event:NIC_RX_FILTER_CHANGED", ReadySignal(ReadyBy.EVENT, event="NIC_RX_FILTER_CHANGED")),
        ("systemd", ReadySignal(ReadyBy.SYSTEMD)),
    ],
)
def test_signals_are_read_and_written_back(text: str, wanted: ReadySignal) -> None:
    assert parse_signal(text) == wanted
    assert parse_signal(str(wanted)) == wanted


@pytest.mark.parametrize(
    "text", ["", "log:", "log:(", "tcp:", "tcp:0", "tcp:65536", "tcp:x", "http:", "event:", "event:a", "login:x", "x"]
)
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(UserInputError):
        parse_signal(text)


def test_only_systemd_needs_words_of_its_own() -> None:
    assert words_for(parse_signal("login")) == ()
    assert "systemd.log_target=kmsg" in words_for(parse_signal("systemd"))


@given(st.integers(1, 7))
def test_a_line_is_seen_however_it_is_cut(size: int) -> None:
    text = "noise\r\n\x1b[32m[  OK  ]\x1b[0m Started docker\r\nmore\r\n"
    watcher = ConsoleWatcher(re.compile(r"\] Started docker"))
    seen = [watcher.console(text[i : i + size]) for i in range(0, len(text), size)]
    assert "[  OK  ] Started docker" in [s for s in seen if s]


def test_a_prompt_is_seen_before_its_line_ends() -> None:
    watcher = ConsoleWatcher(LOGIN)
    assert watcher.console("Debian GNU/Linux 12 vm ttyS0\r\n\r\nvm log") == ""
    assert watcher.console("in: ") == "vm login:"
    assert ConsoleWatcher(LOGIN).console("Last login: Mon\r\n") == ""


def test_answers() -> None:
    ssh, http, tcp = parse_signal("ssh"), parse_signal("http:80"), parse_signal("tcp:80")
    assert judge(ssh, b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n") == "SSH-2.0-OpenSSH_9.2p1 Debian"
    assert judge(ssh, b"Welcome\r\nSSH-2.0-x\r\n") == "SSH-2.0-x"
    assert judge(ssh, b"HTTP/1.0 200 OK") == ""
    assert judge(http, b"HTTP/1.1 204 No") == "HTTP 204"
    assert judge(http, b"HTTP/1.0 503 Not yet") == judge(http, b"HTTP/1.0 404 Not") == ""
    assert judge(tcp, b"") == ""


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_none(data: bytes) -> None:
    for text in ("ssh", "http:80", "tcp:1"):
        assert len(judge(parse_signal(text), data)) < 200
