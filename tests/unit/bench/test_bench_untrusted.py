# SPDX-License-Identifier: Apache-2.0
"""Images of strangers in `bench`: what their programs print, and as whom the harness runs them itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from vmtailor.bench.analysis import instance_report
from vmtailor.bench.runtimes.networks import Link
from vmtailor.bench.runtimes.stopwatch import TimedCommand
from vmtailor.bench.suites import efficiency, unixbench
from vmtailor.bench.suites.bench_run import TrialFailed, number, said_object

pytestmark = pytest.mark.attack


def printed(text: bytes) -> TimedCommand:
    return TimedCommand((), None, 0.0, 0, text, b"")


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"a": "\xff"}', b'{"a": ' + b"[" * 5000, b"[1]", b'{"a": 1} {"a": 2}'], ids=range(6)
)
def test_what_an_instance_prints_ends_no_run(text: bytes) -> None:
    with pytest.raises(TrialFailed, match="did not print its figures"):
        said_object(printed(text))
    assert instance_report.parse(text) is None


@pytest.mark.parametrize("value", ["1" + "0" * 400, "true", '"1"', "[1]", "null", "1e400"])
def test_a_figure_is_a_number_that_there_is(value: str) -> None:
    with pytest.raises(TrialFailed):
        number(said_object(printed(b'{"a": {"b": %s}}' % value.encode())), "a", "b")
    assert number({"a": [3]}, "a", 0) == 3.0


class Began(Exception):
    """What was begun."""


def begun(words: list[str], **_: object) -> NoReturn:
    raise Began(words)


def test_only_nobody_runs_the_images_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def network(*_: object, **__: object) -> Iterator[Link]:
        yield Link("/run/netns/bench0", "10.77.0.2", "10.77.0.1", "/run/netns/peer0")

    run: Any = SimpleNamespace(
        folder=Path("/scope"),
        quick=True,
        job=SimpleNamespace(unixbench_source=""),
        runtimes={"x": SimpleNamespace(network=network)},
    )
    monkeypatch.setattr(efficiency, "spawn", begun)
    monkeypatch.setattr(unixbench, "timed", begun)
    for call in (lambda: efficiency._latency(run, "x"), lambda: unixbench.UnixBench().facts(run)):
        with pytest.raises(Began) as found:
            call()
        words = found.value.args[0]
        assert words[1] == "-u" and words[words.index("-r") + 1] == "/scope/tree"
        assert words[words.index("-r") + 2].startswith("/bench/")  # of the image, and so within its root
