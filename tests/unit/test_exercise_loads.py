# SPDX-License-Identifier: Apache-2.0
"""Loads: what a file may ask for, what their client is told, and what is made of what it tells."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.guests import load_faults, load_records
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest import guest_volume, load_words
from vmtailor.model.boots.load_result import (
    BUCKETS,
    Latencies,
    LoadResult,
    LoadStage,
    bucket_from,
    bucket_of,
)
from vmtailor.model.exercise import Exercise, Step, StepKind
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.load import Arrivals, Load, LoadPage, LoadProtocol
from vmtailor.stages.exercise_file import parse, parse_system

IMAGE = Image("oci:x", "sha256:0", ImageConfig("amd64"), "/tmp/a.tar", "0", 1, 2)
READY = '[ready]\nkind = "tcp"\nport = 80\n'


def asked(text: str) -> Exercise:
    return parse(tomllib.loads(READY + text), IMAGE, "x.toml")


def latencies(*durations_ns: int) -> Latencies:
    buckets: dict[int, int] = {}
    for one in durations_ns:
        buckets[bucket_of(one)] = buckets.get(bucket_of(one), 0) + 1
    return Latencies(tuple(sorted(buckets.items())), sum(durations_ns), min(durations_ns), max(durations_ns))


# --- files ---


def test_a_load_of_commands_is_read_and_told_and_has_no_port() -> None:
    found = asked(
        """
        [[load]]
        kind = "peak"
        protocol = "command"
        argv = ["redis-cli", "get", "key"]
        at_once = 4
        requests = 100
        expect = { stdout = "value\\n" }
        [[load]]
        kind = "rate"
        protocol = "command"
        argv = ["false"]
        rate = 20
        expect = { exit_code = 1 }
        """
    )
    peak, rate = found.loads
    assert peak.load is not None and rate.load is not None and not peak.port and not rate.port
    assert peak.load.pages == (LoadPage(command=("redis-cli", "get", "key"), status=0, answer="value\n"),)
    assert rate.load.pages == (LoadPage(command=("false",), status=1),) and rate.load.rate == 20
    assert peak.title == "peak of redis-cli get key"
    words = load_words.words(peak, 0)
    assert {"protocol=command", "port=0", "word=redis-cli", "status=0", "answer=value\n"} <= set(words)
    # Init is told that it starts as the container, and one that cannot is known.
    records = dict(guest_volume.exercise_records(replace(found, load=(peak,))))
    assert records["step"] == "commands"
    assert guest_volume.knows_loads(b"\0requests\0commands\0", found)
    assert not guest_volume.knows_loads(b"\0requests\0", found)
    # Where time says nothing, the tracer sees each command: they are steps of their own.
    small = found.unpaced().load
    assert [(one.kind, one.argv, one.load) for one in small] == [
        (StepKind.COMMAND, ("redis-cli", "get", "key"), None), (StepKind.COMMAND, ("false",), None),
    ]  # fmt: skip
    assert [(one.expect.exit_code, one.expect.stdout) for one in small] == [(0, "value\n"), (1, None)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("port = 80", "port"), ("keep_alive = true", "is of connections, and a command has none"),
        ('command = ["true"]', "command"), ('path = "/"', "path"),
    ],
)  # fmt: skip
def test_what_a_load_of_commands_does_not_have_is_refused(line: str, why: str) -> None:
    text = '[[load]]\nkind = "peak"\nprotocol = "command"\nargv = ["true"]\nat_once = 1\nrequests = 1\n'
    asked(text)
    with pytest.raises(UserInputError, match=why):
        asked(text + line)


def test_each_kind_of_load_is_read() -> None:
    found = asked(
        """
        [[load]]
        kind = "peak"
        port = 80
        at_once = 4
        requests = 100
        [load.expect]
        contains = "x"
        [[load]]
        kind = "surf"
        port = 80
        users = 3
        pause_s = [0, 1.5]
        pages = [{ path = "/a" }, { path = "/b", status = 404 }]
        [[load]]
        kind = "rate"
        port = 6379
        protocol = "redis"
        command = ["GET", "key"]
        from = 10
        to = 100
        calls = 5
        arrivals = "random"
        expect = { answer = "value" }
        """
    )
    peak, surf, rate = (step.load for step in found.loads)
    assert peak == Load((LoadPage("/", status=200, contains="x"),), at_once=4, sessions=100)
    pages = (LoadPage("/a", status=200), LoadPage("/b", status=404))
    assert surf == Load(pages, at_once=3, sessions=3, calls=2, keep_alive=True, pause_s=(0.0, 1.5))
    assert rate == Load(
        (LoadPage(command=("GET", "key"), answer="value"),), LoadProtocol.REDIS, at_once=256, calls=5, keep_alive=True,
        rate=10.0, to_rate=100.0, arrivals=Arrivals.RANDOM,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("load", "says"),
    [
        ('kind = "peak"\nport = 80\nrequests = 5', "at_once is missing"),
        ('kind = "peak"\nport = 80\nat_once = 5000\nrequests = 5', "must be a number from 1 to 4096"),
        ('kind = "surf"\nport = 80\nusers = 5', "pages must be 1 to 64 tables"),
        ('kind = "surf"\nport = 80\nusers = 5\npause_s = [2, 1]\npages = [{}]', "the shortest and the longest"),
        ('kind = "rate"\nport = 80', "rate is one rate, or"),
        ('kind = "rate"\nport = 80\nrate = 5\nfrom = 1\nto = 2', "give one of the two"),
        ('kind = "rate"\nport = 80\nfrom = 5\nto = 2', "less than `from`"),
        ('kind = "rate"\nport = 80\nrate = 2000000', "must be a number from 0.01 to 1e+06"),
        ('kind = "rate"\nport = 80\nrate = 2\narrivals = "odd"', "must be one of even, random"),
        ('kind = "rate"\nport = 80\nrate = 2\nprotocol = "smtp"', "must be one of http, redis"),
        ('kind = "rate"\nport = 80\nrate = 2\nprotocol = "redis"', "must be a list of words"),
        ('kind = "rate"\nport = 80\nrate = 2\npath = "x"', "must begin with /"),
        ('kind = "rate"\nport = 80\nrate = nan', "must be a number"),
        ('kind = "peak"\nport = 80\nat_once = 1\nrequests = 5\nrepeat = 3', "repeat is not known here"),
    ],
)
def test_what_no_load_can_be_is_refused_by_its_key(load: str, says: str) -> None:
    with pytest.raises(UserInputError, match=says.replace("[", r"\[").replace("+", r"\+")):
        asked(f"[[load]]\n{load}")


def test_a_system_is_driven_by_no_load() -> None:
    document = {"ready": {"kind": "tcp", "port": 80}, "load": [{"kind": "rate", "port": 80, "rate": 5}]}
    with pytest.raises(UserInputError, match="only containers"):
        parse_system(document, "x.toml")


# --- slower machines ---

RATE = Step(
    StepKind.RATE, port=80, load=Load((LoadPage(),), at_once=256, calls=2, rate=1000.0, to_rate=4000.0, seconds=2.0)
)


def test_a_machine_whose_time_says_nothing_is_asked_the_same_by_few() -> None:
    small = RATE.load.unpaced() if RATE.load else None
    assert small is not None and small.rate is None and small.to_rate is None
    assert (small.sessions, small.at_once, small.pages) == (40, 8, (LoadPage(),))
    assert replace(small, sessions=3).unpaced().sessions == 3


def test_a_slower_machine_is_asked_as_much_in_more_time() -> None:
    slow = RATE.load.patient(8) if RATE.load else None
    assert slow is not None and (slow.rate, slow.to_rate, slow.seconds, slow.timeout_s) == (125.0, 500.0, 16.0, 80.0)


def test_the_clients_words() -> None:
    found = load_words.words(RATE, 3, address="10.0.0.2")
    assert {"rate=1000000", "to=4000000", "step-percent=125", "stage-ns=2000000000", "step=3"} <= set(found)
    assert found[-2:] == ("page=/", "method=GET") and "address=10.0.0.2" in found


# --- histograms ---


@given(st.integers(0, 2**44 - 1))
def test_a_duration_is_in_a_bucket_as_wide_as_a_128th_of_it(duration_ns: int) -> None:
    bucket = bucket_of(duration_ns)
    begin, end = bucket_from(bucket), bucket_from(bucket + 1)
    assert begin <= duration_ns < end and (end - begin) * 128 <= max(128, begin) and bucket < BUCKETS


def test_longer_ones_are_in_the_last() -> None:
    assert bucket_of(2**60) == BUCKETS - 1 == bucket_of(2**44 - 1)


@pytest.mark.parametrize(("count", "told"), [(19, 0), (20, 1), (99, 1), (100, 2), (999, 2), (1000, 3), (10_000, 4)])
def test_a_percentile_is_told_where_ten_answers_took_longer(count: int, told: int) -> None:
    found = latencies(*range(1, count + 1))
    assert [found.at(share) is not None for share in (0.5, 0.9, 0.99, 0.999)] == [at < told for at in range(4)]


@given(st.lists(st.integers(0, 10**10), min_size=20, max_size=200))
def test_a_percentile_is_right_to_a_128th(durations_ns: list[int]) -> None:
    found = latencies(*durations_ns)
    exact = sorted(durations_ns)[-(-len(durations_ns) // 2) - 1]
    median = found.at(0.5)
    assert median is not None and exact <= median <= exact + max(1, exact // 127)
    assert found.count == len(durations_ns)


# --- what the client tells ---

TOLD = """load 2
stage rate=1000000 asked=30 right=20 timeout=9 wrong=1 offered-ns=30000000 took-ns=40000000 held=0 most-ns=7
why status 500, not 200
latency 3:15 7:5
stage rate=500000 asked=20 right=20 offered-ns=40000000 took-ns=40000000 held=1 gave-up=0
latency 3:20
end
"""


def test_what_the_client_tells_is_read() -> None:
    (load,) = load_records.parse(TOLD)
    first, second = load.stages
    assert load.step == 2 and load.whole and load.asked == 50
    assert (first.rate, first.right, first.failures, first.held) == (1000.0, 20, (("timeout", 9), ("wrong", 1)), False)
    assert first.why == "status 500, not 200" and first.achieved == 500.0
    assert second.held and load.knee == (500.0, 1000.0)


@pytest.mark.attack
@given(st.text("load stage=why latency:0123456789\n\x1bend", max_size=300) | st.text(max_size=50))
def test_a_guest_may_tell_anything(text: str) -> None:
    for load in load_records.parse(f"load 0\nstage right=1\n{text}"):
        for stage in load.stages:
            assert stage.right == stage.latencies.count and stage.why.isprintable()


def stage(rate: float | None = None, **values: object) -> LoadStage:
    return replace(LoadStage(rate, 10, 10, took_ns=10**9, held=rate is not None), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ((stage(),), ""),
        ((stage(5.0), stage(9.0, held=False, right=2, failures=(("timeout", 8),))), ""),
        ((), "told nothing"),
        ((stage(right=7, failures=(("refused", 3),), gave_up=True),), r"7 of 10 right \(3 refused, the rest was not"),
        ((stage(20.0, held=False),), "at 20 requests a second, 10 a second were answered"),
        ((stage(5.0), stage(9.0, held=False, failures=(("wrong", 1),), why="status 500")), "1 wrong: status 500"),
    ],
)
def test_the_fault_of_a_load_is_a_sentence(stages: tuple[LoadStage, ...], says: str) -> None:
    found = load_faults.fault(RATE, LoadResult(0, stages))
    assert (found == "") is (says == "")
    if says:
        assert re.search(says, found), found
