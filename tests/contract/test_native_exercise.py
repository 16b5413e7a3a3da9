# SPDX-License-Identifier: Apache-2.0
"""Init's exercise, compiled with the sanitizers and driven without a machine (native/tests/exercise.c): time, processes
and the serial line are played, the rest is init's own."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.fakes.sanitized import compiled, records_of

from vmtailor.model.boots.workload import Run
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.load import Load, LoadPage

pytestmark = pytest.mark.contract

#: What a client that is content says, and one that is not.
CONTENT = "done=1\\0right=1\\0same=1\\0"
DISCONTENT = "done=1\\0right=0\\0same=1\\0why=status 500, not 200\\0"

ANYTHING = Expect()


def command(*argv: str, repeat: int = 1, expect: Expect = ANYTHING) -> Step:
    return Step(StepKind.COMMAND, argv=argv or ("check",), repeat=repeat, expect=expect)


WEB = Step(StepKind.HTTP, port=80, path="/x", expect=Expect(status=200))
AT_END = Ready(ReadyKind.EXIT, timeout_s=2.0)
HEALTHY = Ready(ReadyKind.COMMAND, command("healthy"), timeout_s=2.0)
#: Until the machine has been found at rest three times.
RESTS = "wait 30"


@dataclass(frozen=True)
class Did:
    """What the exercise did: `(ms since it began, what)`, without the marks in the trace log."""

    lines: tuple[tuple[int, str], ...]
    traced: tuple[str, ...]

    @property
    def what(self) -> list[str]:
        """Without the results."""
        return [text for _, text in self.lines if not text.startswith("result ")]

    @property
    def marks(self) -> list[str]:
        return [text.removeprefix("mark ") for text in self.what if text.startswith("mark ")]

    @property
    def results(self) -> list[dict[str, str]]:
        texts = [text.removeprefix("result ") for _, text in self.lines if text.startswith("result ")]
        return [dict(item.split("=", 1) for item in text.split("|") if item) for text in texts]

    def ms(self, text: str) -> int:
        (at,) = [at for at, said in self.lines if said == text]
        return at


Drive = Callable[..., Did]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("exercise", tmp_path_factory.mktemp("native"))


@pytest.fixture
def drive(program: Path, tmp_path: Path) -> Drive:
    """Let the events happen to an exercise. A sanitizer's complaint fails the test."""

    def run(exercise: Exercise, *events: str, hold: bool = False, pid_one: bool = False) -> Did:
        records = tmp_path / "records"
        records.write_bytes(records_of(Run(exercise=exercise, hold=hold, pid_one=pid_one)))
        feed = "".join(f"{event}\n" for event in events)
        done = subprocess.run([program, records], input=feed, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        lines = [(int(at), text) for at, _, text in (line.partition(" ") for line in done.stdout.splitlines())]
        return Did(
            tuple(line for line in lines if not line[1].startswith("trace ")),
            tuple(text.removeprefix("trace ") for _, text in lines if text.startswith("trace ")),
        )

    return run


def exercise(ready: Ready, *load: Step, stop_timeout_s: float = 10.0) -> Exercise:
    return Exercise("test", ready, load, stop_timeout_s=stop_timeout_s)


# --- ready ---


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (ReadyKind.HTTP, "client until|2000|ready http|.port 80|.repeat 1|.timeout-ms 60000|.method GET|.path /x|"),
        (ReadyKind.TCP, "client until|2000|ready tcp|.port 80|.repeat 1|.timeout-ms 60000|.method GET|.path /x|"),
    ],
)
def test_ready_as_soon_as_the_client_is_content(drive: Drive, kind: ReadyKind, record: str) -> None:
    ready = Ready(kind, replace(WEB, kind=StepKind(kind.value)), timeout_s=2.0)
    did = drive(exercise(ready), "wait 700", f"out {CONTENT}", "exit 0", RESTS)
    assert did.what == [
        f"{record}.status 200",
        "mark ready",
        "mark load",
        "mark load_end",
        "memory",
        "mark stop",
        "signal 15",
    ]
    assert did.ms("mark ready") == 700
    assert did.results == [
        {"step": "-1", "kind": kind.value, "ns": "700000000", "done": "1", "right": "1", "same": "1"}
    ]


def test_what_a_load_told_of_itself_is_sent_once_the_load_is_over(drive: Drive) -> None:
    load = Load((LoadPage("/x", status=200),), at_once=2, sessions=3, timeout_s=1.0, limit_s=9.0)
    step = Step(StepKind.PEAK, port=80, load=load)
    told = "load 0\\nstage right=3\\nend\\n"
    did = drive(
        exercise(HEALTHY, step, step), "exit 0", RESTS,
        f"out {told}", "out \\0done=3\\0", "out right=3\\0same=1\\0", "exit 0",
        f"out {told}\\0done=1\\0right=0\\0why=refused\\0", "exit 1",
    )  # fmt: skip
    words = "protocol=http|at-once=2|calls=1|keep=0|keep-between=0|timeout-ns=1000000000|limit-ns=9000000000"
    more = "pause-least-ns=0|pause-most-ns=0|seed=1|sessions=3|port=80|step={}|page=/x|method=GET|status=200"
    assert did.what == [
        "command healthy",
        "mark ready",
        "mark load",
        *(f"client {words}|{more.format(number)}" for number in (0, 1)),
        "mark load_end",
        f"file load {told}{told}",
        "memory",
        "mark stop",
        "signal 15",
    ]
    judged = [(one["kind"], one["done"], one["right"]) for one in did.results[1:]]
    assert judged == [("load", "3", "3"), ("load", "1", "0")]


def test_a_client_that_dies_during_a_load_leaves_what_it_had_told(drive: Drive) -> None:
    step = Step(StepKind.PEAK, port=80, load=Load((LoadPage("/x"),), sessions=3))
    did = drive(exercise(HEALTHY, step), "exit 0", RESTS, "out load 0\\nstage right=1\\n", "die 9")
    assert "file load load 0\\nstage right=1\\n" in did.what and "mark stop" in did.what
    assert did.results[-1]["why"] == "the client failed (is /.vmtailor/client there?)"


def test_a_client_that_never_ends_a_load_is_killed(drive: Drive) -> None:
    step = Step(StepKind.PEAK, port=80, load=Load((LoadPage("/x"),), sessions=3, limit_s=9.0))
    did = drive(exercise(HEALTHY, step), "exit 0", RESTS, "wait 13000", "wait 2000", "die 9")
    assert "kill job" in did.what
    assert did.results[-1]["why"] == "the client did not end in time"


def test_ready_when_a_command_succeeds_which_is_tried_again_after_a_twentieth_of_the_time(drive: Drive) -> None:
    did = drive(exercise(HEALTHY), "exit 1", "wait 10", "wait 600", "exit 1", "wait 29", "wait 2", "exit 0")
    assert did.lines[:4] == (
        (0, "command healthy"),
        (10, "command healthy"),
        (640, "command healthy"),
        (641, "mark ready"),
    )
    assert [(result["done"], result["right"]) for result in did.results] == [("1", "1")]


def test_ready_when_the_program_has_ended(drive: Drive) -> None:
    did = drive(exercise(AT_END), "wait 1500", "entry 0", "wait 10000")
    assert did.lines == ((1500, "mark ready"), (1500, "memory"))


def test_without_a_load_the_stop_waits_for_rest(drive: Drive) -> None:
    """A server's sockets may answer before it has its handlers for signals."""
    did = drive(exercise(HEALTHY), "busy 9", "exit 0", "wait 5000")
    assert (did.ms("mark ready"), did.ms("mark stop")) == (0, 120)


def test_without_a_load_a_program_that_ends_by_itself_has_failed(drive: Drive) -> None:
    did = drive(exercise(HEALTHY), "exit 0", "wait 10", "entry 0", "wait 5000")
    assert (did.results[-1]["step"], did.results[-1]["why"]) == (
        "-1",
        "the entry point ended by itself once it was ready",
    )
    assert did.marks == ["ready"]


@pytest.mark.parametrize(("looks", "begins_ms"), [(0, 30), (1, 40), (2, 50), (150, 1530), (9999, 2000)], ids=str)
def test_the_load_waits_for_rest_but_not_for_ever(drive: Drive, looks: int, begins_ms: int) -> None:
    did = drive(exercise(HEALTHY, command()), f"busy {looks}", "exit 0", "wait 5000")
    assert (did.ms("mark ready"), did.ms("mark load")) == (0, begins_ms)


# --- not ready ---


@pytest.mark.parametrize(
    ("ready", "events", "why"),
    [
        (HEALTHY, ["wait 2001", "die 9"], "it did not become ready in time"),
        (AT_END, ["wait 2001"], "it did not end in time"),
        (
            Ready(ReadyKind.HTTP, WEB, timeout_s=2.0),
            ["wait 2000", f"out {DISCONTENT}", "exit 1"],
            "status 500, not 200",
        ),
    ],
)
def test_never_ready(drive: Drive, ready: Ready, events: list[str], why: str) -> None:
    did = drive(exercise(ready, command()), *events)
    assert did.marks == ["stop"]  # neither ready nor a load
    assert did.ms("note |not ready within 2000 ms") == did.ms("signal 15") == 2000
    assert [(result["step"], result["right"], result["why"]) for result in did.results] == [("-1", "0", why)]


#: What init says once of a machine that takes three times as long.
THREE_TIMES = "note |what takes a second elsewhere takes 3.00 s here: limits of time are longer"


@pytest.mark.parametrize(
    ("ready", "late"),
    [
        (HEALTHY, ["wait 2500", "exit 0"]),
        (HEALTHY, ["wait 2500", "exit 1", "wait 1500", "exit 0"]),
        (AT_END, ["wait 5990", "entry 0"]),
        (
            Ready(ReadyKind.HTTP, WEB, timeout_s=2.0),
            ["wait 2000", f"out {DISCONTENT}", "exit 1", "wait 900", f"out {CONTENT}", "exit 0"],
        ),
    ],
)
def test_a_slow_machine_has_longer_to_get_ready(drive: Drive, ready: Ready, late: list[str]) -> None:
    did = drive(exercise(ready), "slow 300", *late)
    assert did.what.count(THREE_TIMES) == 1
    assert "ready" in did.marks


def test_a_slow_machine_is_not_waited_for_for_ever(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command()), "slow 300", "wait 6001", "die 9")
    assert did.marks == ["stop"]
    assert did.ms("note |not ready within 2000 ms, made 6000 ms since this machine is slow") == 6000


def test_on_a_slow_machine_steps_and_the_stop_have_longer_too(drive: Drive) -> None:
    slow = command(expect=Expect(exit_code=0))
    steps = (slow, slow, Step(StepKind.HTTP, port=80))
    did = drive(
        exercise(HEALTHY, *steps, stop_timeout_s=2.0),
        "exit 0", RESTS, "slow 250", "wait 149000", "exit 0", "wait 150001", "die 9", "exit 0", "wait 4999", "wait 2",
    )  # fmt: skip
    assert [(result["step"], result["right"]) for result in did.results[1:]][:2] == [("0", "1"), ("1", "0")]
    asked = "client count|150000|step http|.port 80|.repeat 1|.timeout-ms 150000"
    assert any(text.startswith(asked) for text in did.what)
    assert did.ms("signal 9") - did.ms("signal 15") == 5000


def test_a_ready_command_that_fails_to_the_end_says_its_last_words(drive: Drive) -> None:
    did = drive(exercise(HEALTHY), "exit 1", "wait 1990", "err no such file\\n", "exit 1", "wait 100")
    (result,) = did.results
    assert result["why"] == "exit status 1, not 0: no such file"
    assert did.marks == ["stop"]


def test_a_ready_client_that_says_nothing_is_given_five_seconds_more_then_killed(drive: Drive) -> None:
    did = drive(exercise(Ready(ReadyKind.HTTP, WEB, timeout_s=2.0)), "wait 60000", "die 9")
    assert did.ms("kill job") == 7000
    assert [result["why"] for result in did.results] == ["it did not become ready in time"]
    assert did.marks == ["stop"]


def test_a_ready_client_that_dies(drive: Drive) -> None:
    did = drive(exercise(Ready(ReadyKind.HTTP, WEB, timeout_s=2.0)), "wait 100", "die 11")
    assert [result["why"] for result in did.results] == ["the client failed (is /.vmtailor/client there?)"]
    assert did.marks == ["stop"]


def test_a_program_that_ends_before_it_is_ready(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command()), "wait 100", "entry 3", "die 9", "wait 9999")
    assert did.what == ["command healthy", "kill job and its session"]
    assert [(result["step"], result["why"]) for result in did.results] == [
        ("-1", "the entry point ended before it was ready")
    ]


# --- the load ---


def test_what_a_step_says_on_its_standard_error_is_sent_though_it_is_right(drive: Drive) -> None:
    load = (command("one", repeat=2), command("quiet"), command("two"))
    said = ("err no limit\\n", "exit 0", "err again\\n", "exit 0", "exit 0", f"err {'x' * 2000}", "exit 0")
    did = drive(exercise(HEALTHY, *load), "err not yet\\n", "exit 1", "wait 600", "exit 0", RESTS, *said)
    files = [text for text in did.what if text.startswith("file ")]
    assert files[0] == "file step-errors step 0\\nno limit\\nagain\\n\\n"
    assert [text[:30] for text in files[1:]] == ["file step-errors step 2\\n" + "x" * (30 - 25)] and len(
        files[1]
    ) < 1100
    assert all(result["right"] == result["done"] for result in did.results)


def test_steps_are_done_one_after_the_other_each_as_often_as_it_says(drive: Drive) -> None:
    load = (command("one", repeat=3), replace(WEB, repeat=7), command("two"))
    did = drive(exercise(HEALTHY, *load), "exit 0", RESTS, *["exit 0"] * 3, f"out {CONTENT}", "exit 0", "exit 0")
    assert did.what == [
        "command healthy", "mark ready", "mark load", "command one", "command one", "command one",
        "client count|420000|step http|.port 80|.repeat 7|.timeout-ms 60000|.method GET|.path /x|.status 200",
        "command two", "mark load_end", "memory", "mark stop", "signal 15",
    ]  # fmt: skip
    assert [(result["step"], result["done"], result["right"]) for result in did.results] == [
        ("-1", "1", "1"), ("0", "3", "3"), ("1", "1", "1"), ("2", "1", "1"),
    ]  # fmt: skip
    assert did.traced == tuple(did.marks) == ("ready", "load", "load_end", "stop")


@pytest.mark.parametrize(
    ("expect", "says", "ends", "why"),
    [
        (Expect(exit_code=0), "", "exit 3", "exit status 3, not 0"),
        (Expect(exit_code=3), "", "exit 0", "exit status 0, not 3"),
        (Expect(exit_code=0), "", "die 11", "exit status 139, not 0"),
        (Expect(contains="needle"), "out needl\nout nough", "exit 0", "does not contain 'needle'"),
        (
            Expect(sha256="0" * 64),
            "out x",
            "exit 0",
            f"1 bytes with SHA-256 {hashlib.sha256(b'x').hexdigest()[:12]}…, not {'0' * 12}…",
        ),
        (Expect(exit_code=0), "err first\nerr last words\\n", "exit 1", "exit status 1, not 0: last words"),
        (Expect(contains="aab"), "out aa\nout ab", "exit 0", None),
        (Expect(exit_code=3, contains="needle"), "out a nee\nout dle", "exit 3", None),
        (Expect(stdout="all of it\n"), "out all \nout of it\\n", "exit 9", None),
        (Expect(), "err whatever", "exit 9", None),
    ],
)
def test_each_answer_of_a_command_is_judged(
    drive: Drive, expect: Expect, says: str, ends: str, why: str | None
) -> None:
    did = drive(exercise(HEALTHY, command(expect=expect)), "exit 0", RESTS, *says.splitlines(), ends)
    _, result = did.results
    assert (result["right"], result.get("why")) == ("0" if why else "1", why)
    assert did.marks == ["ready", "load", "load_end", "stop"]  # whatever it said, the exercise goes on


def test_of_several_wrong_answers_the_first_is_told_and_all_are_counted(drive: Drive) -> None:
    step = command(repeat=4, expect=Expect(contains="good"))
    answers = [event for text in ("good", "bad", "worse", "good") for event in (f"out {text}", "exit 0")]
    did = drive(exercise(HEALTHY, step), "exit 0", RESTS, *answers)
    _, result = did.results
    assert [result[key] for key in ("done", "right", "same", "wrong.head", "first.head")] == [
        "4",
        "2",
        "0",
        "bad",
        "good",
    ]


def test_the_words_of_a_command_that_went_well_are_not_laid_to_the_next(drive: Drive) -> None:
    step = command(repeat=2, expect=Expect(exit_code=0))
    did = drive(exercise(HEALTHY, step), "exit 0", RESTS, "err all is well", "exit 0", "exit 1")
    assert did.results[1]["why"] == "exit status 1, not 0"


def test_a_step_may_be_a_connection_alone(drive: Drive) -> None:
    port = Step(StepKind.TCP, port=443)
    did = drive(exercise(HEALTHY, port), "exit 0", RESTS, f"out {CONTENT}", "exit 0", RESTS)
    (asked,) = [text for text in did.what if text.startswith("client")]
    assert asked.startswith("client count|") and "|step tcp|.port 443|" in asked
    assert [(result["step"], result["kind"], result["right"]) for result in did.results][1:] == [("0", "tcp", "1")]


def test_the_clients_own_verdict_is_passed_on(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, WEB, command("next")), "exit 0", RESTS, f"out {DISCONTENT}", "exit 1")
    assert did.results[1]["why"] == "status 500, not 200"
    assert did.what[-1] == "command next"


@pytest.mark.parametrize("events", [["die 11"], ["exit 127"], ["exit 0"], [f"out {CONTENT}", "exit 2"]])
def test_a_client_that_dies_or_says_nothing_has_failed(drive: Drive, events: list[str]) -> None:
    did = drive(exercise(HEALTHY, WEB, command("next")), "exit 0", RESTS, *events)
    assert did.results[1]["why"] == "the client failed (is /.vmtailor/client there?)"
    assert did.what[-1] == "command next"


@pytest.mark.attack
def test_a_client_that_says_far_too_much_is_cut(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, WEB), "exit 0", RESTS, *[f"out {'why=' + 'x' * 3000}"] * 3, "exit 1")
    assert len(did.results[1]["why"]) < 2048
    assert did.marks[-1] == "stop"


@pytest.mark.attack
def test_a_command_that_does_not_end_is_killed_with_all_it_started_and_not_repeated(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command("sleep", repeat=9), command("next")), "exit 0", RESTS, "wait 90000", "die 9")
    assert did.ms("kill job and its session") == 30 + 60000
    assert did.results[1]["why"] == "the command did not end in time"
    assert did.what[-3:] == ["command sleep", "kill job and its session", "command next"]


@pytest.mark.attack
def test_a_process_that_a_command_leaves_behind_keeps_nobody_waiting(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command("daemon"), command("next")), "exit 0", RESTS, "out up", "leave 0")
    assert (did.results[1]["right"], did.results[1]["first.head"]) == ("1", "up")
    assert did.what[-1] == "command next"


def test_an_orphan_of_the_container_is_nobodys_job(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command("one")), "orphan", "exit 0", RESTS, "orphan")
    assert did.what == ["command healthy", "mark ready", "mark load", "command one"]


@pytest.mark.parametrize(
    ("events", "step", "kills"),
    [
        ([], "0", []),  # while the machine comes to rest
        ([RESTS], "0", ["kill job and its session"]),
        ([RESTS, "exit 0"], "1", ["kill job"]),  # the second step's, a client
    ],
)
def test_a_program_that_ends_during_the_load(drive: Drive, events: list[str], step: str, kills: list[str]) -> None:
    did = drive(exercise(HEALTHY, command("one"), WEB), "exit 0", *events, "entry 1", "die 9", "wait 99999")
    assert (did.results[-1]["step"], did.results[-1]["why"]) == (step, "the entry point ended during the load")
    assert [text for text in did.what if text.startswith("kill")] == kills
    assert "stop" not in did.marks


@pytest.mark.attack
def test_a_container_that_leaves_no_room_for_a_process_fails_the_steps_and_is_stopped(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command("one"), WEB), "exit 0", "full", RESTS)
    assert [result["why"] for result in did.results[1:]] == ["it could not be started"] * 2
    assert did.marks == ["ready", "load", "load_end", "stop"]


@pytest.mark.attack
def test_a_ready_check_for_which_there_is_no_room_ends_in_time(drive: Drive) -> None:
    did = drive(exercise(HEALTHY), "exit 1", "full", "wait 2000")
    assert [result["why"] for result in did.results] == ["it did not become ready in time"]
    assert did.ms("mark stop") == 2000


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (["die 9", "entry 0"], "the entry point ended before it was ready"),
        (["exit 0", RESTS, "die 9", "entry 1"], "the entry point ended during the load"),
        (["exit 0", RESTS, "exit 0", "die 9", "wait 10", "entry 1"], "the entry point ended during the load"),
    ],
)
def test_what_is_killed_with_its_namespace_is_not_blamed(drive: Drive, events: list[str], why: str) -> None:
    did = drive(exercise(HEALTHY, command("one"), WEB), *events, "wait 2000", pid_one=True)
    assert did.results[-1]["why"] == why
    assert did.lines[-1][0] <= 40  # nothing is judged or begun a second later


def test_a_command_that_is_killed_alone_is_judged_a_second_later(drive: Drive) -> None:
    step = command("one", expect=Expect(exit_code=0))
    did = drive(exercise(HEALTHY, step), "exit 0", RESTS, "die 9", "wait 999", "wait 2", pid_one=True)
    assert did.results[-1]["right"] == "0" and did.results[-1]["why"].startswith("exit status 137, not 0")
    assert did.ms("mark load_end") == 1030


def test_without_a_namespace_a_killed_command_is_judged_at_once(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command("one", expect=Expect(exit_code=0))), "exit 0", RESTS, "die 9", "wait 1")
    assert did.ms("mark load_end") == 30


def test_a_command_that_is_killed_for_its_time_is_judged_at_once(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command("one")), "exit 0", RESTS, "wait 90000", "die 9", "wait 1", pid_one=True)
    assert did.results[-1]["why"] == "the command did not end in time"
    assert did.ms("mark load_end") == 30 + 90000


# --- the stop ---


def test_a_stop_that_is_not_heard_is_followed_by_a_kill(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, stop_timeout_s=3.0), "exit 0", RESTS, "wait 2999", "wait 2", "wait 99999")
    assert did.lines[-2:] == ((3030, "note |still running 3000 ms after signal 15: killed"), (3030, "signal 9"))


def test_a_first_process_that_cannot_hear_the_stop_is_killed_at_once(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, stop_timeout_s=3.0), "deaf", "exit 0", RESTS, "wait 99999")
    note = "note |signal 15 has no effect on PID 1, which does not handle it: killed"
    assert did.lines[-3:] == ((30, "signal 15"), (30, note), (30, "signal 9"))


def test_one_that_is_never_ready_and_cannot_hear_is_killed_at_once(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, stop_timeout_s=3.0), "deaf", "exit 1", "wait 999999")
    assert did.what[-1] == "signal 9"
    assert did.lines[-1][0] - did.ms("mark stop") == 0


def test_a_program_that_ends_when_told_is_left_alone(drive: Drive) -> None:
    did = drive(exercise(HEALTHY), "exit 0", "wait 500", "entry 0", "wait 99999")
    assert did.what[-2:] == ["mark stop", "signal 15"]
    assert len(did.results) == 1


def test_after_its_load_it_holds_until_the_host_has_done_its_part(drive: Drive) -> None:
    events = ["exit 0", RESTS, "go", "exit 0", "wait 99999", "go", "go"]
    did = drive(exercise(HEALTHY, command("one")), *events, hold=True)
    assert did.marks == ["ready", "load", "load_end", "stop"]  # the first go came too early, the last too late
    assert (did.ms("mark load_end"), did.ms("mark stop")) == (30, 30 + 99999)
    assert did.ms("flush") == 30  # or the host would wait for what waits


def test_a_program_that_ends_while_the_host_works_has_failed(drive: Drive) -> None:
    did = drive(exercise(HEALTHY, command("one")), "exit 0", RESTS, "exit 0", "entry 0", hold=True)
    assert did.results[-1]["why"] == "the entry point ended during the load"


def test_where_nothing_is_asked_inside_the_host_says_when_it_is_ready(drive: Drive) -> None:
    """A system with an init of its own that is ready by a line of its console."""
    did = drive(exercise(AT_END, command("one")), "wait 100", "go", RESTS, "exit 0", "wait 10", "go", hold=True)
    assert did.marks == ["ready", "load", "load_end", "stop"] and did.ms("mark ready") == 100
    never = drive(exercise(AT_END, command("one")), "wait 3000", hold=True)
    assert "ready" not in never.marks and "stop" in never.marks
