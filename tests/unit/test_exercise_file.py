# SPDX-License-Identifier: Apache-2.0
"""Exercise files: what they mean, and one clear message for each mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import HealthCheck, Image, ImageConfig, Port
from vmtailor.stages.exercise_file import PORTS_MAX, derive, load, parse, parse_system

EXAMPLES = Path(__file__).parents[2] / "examples"


def image(**config: Any) -> Image:
    return Image("oci:x", "sha256:0", ImageConfig("amd64", **config), "/archive", "0", 1, 1)


TCP = '[[load]]\nkind = "tcp"\nport = 1'
CHECKED = image(health_check=HealthCheck(("/check",)), exposed_ports=(Port(80),))


def exercise(text: str, of: Image = CHECKED) -> Exercise:
    return parse(tomllib.loads(text), of, "test.toml")


def test_everything_said() -> None:
    found = exercise(
        """
        [ready]
        kind = "http"
        port = 8080
        path = "/ready?x=1"
        status = 204
        timeout_s = 30
        [[load]]
        kind = "http"
        port = 8080
        method = "HEAD"
        path = "/a"
        repeat = 100
        [load.expect]
        status = 404
        contains = "x"
        sha256 = "%s"
        [[load]]
        kind = "command"
        argv = ["prog", "a b"]
        expect = { exit_code = 1, stdout = "out\\n", contains = "o" }
        [[load]]
        kind = "host-command"
        argv = ["curl", "http://127.0.0.1:{port:8080}/"]
        [[load]]
        kind = "tcp"
        port = 9
        [stop]
        signal = "int"
        timeout_s = 2.5
        """
        % ("ab" * 32),
        image(exposed_ports=(Port(8080),)),
    )
    assert found == Exercise(
        "test.toml",
        Ready(ReadyKind.HTTP, Step(StepKind.HTTP, 8080, path="/ready?x=1", expect=Expect(status=204)), 30.0),
        (
            Step(StepKind.HTTP, 8080, "HEAD", "/a", repeat=100, expect=Expect(404, contains="x", sha256="ab" * 32)),
            Step(StepKind.COMMAND, argv=("prog", "a b"), expect=Expect(exit_code=1, stdout="out\n", contains="o")),
            Step(StepKind.HOST_COMMAND, argv=("curl", "http://127.0.0.1:{port:8080}/"), expect=Expect(exit_code=0)),
            Step(StepKind.TCP, 9),
        ),
        stop_signal="SIGINT",
        stop_timeout_s=2.5,
    )
    assert records.from_bytes(Exercise, records.to_bytes(found)) == found


HOST_COMMAND = '[[load]]\nkind = "host-command"\nargv = ["curl", "http://127.0.0.1:{port:%d}/"]'


def test_a_command_on_the_host_needs_a_port_that_leads_in() -> None:
    assert exercise(HOST_COMMAND % 80).load
    with pytest.raises(UserInputError, match=r"load\[1\] is a command on the host, but the image exposes no TCP port"):
        exercise('[ready]\nkind = "command"\nargv = ["x"]\n' + HOST_COMMAND % 8080, image())
    with pytest.raises(UserInputError, match=r"load\[1\].argv asks for port 81, which the image does not expose"):
        exercise(HOST_COMMAND % 81)


def test_what_is_right_when_nothing_is_said() -> None:
    found = exercise('[[load]]\nkind = "http"\nport = 80\n[[load]]\nkind = "command"\nargv = ["x"]')
    assert [step.expect for step in found.load] == [Expect(status=200), Expect(exit_code=0)]
    # Without [ready] it is derived from the image.
    assert found.ready == derive(CHECKED).ready


def test_a_program_that_runs_to_its_end() -> None:
    found = exercise('[ready]\nkind = "exit"\n[expect]\nexit_code = 3\nstdout = "hi\\n"')
    assert found.ready == Ready(ReadyKind.EXIT) and found.expect == Expect(exit_code=3, stdout="hi\n")


def test_the_health_check_of_the_image() -> None:
    found = exercise('[ready]\nkind = "healthcheck"\ntimeout_s = 5')
    assert found.ready == Ready(
        ReadyKind.COMMAND, Step(StepKind.COMMAND, argv=("/check",), expect=Expect(exit_code=0)), 5.0
    )
    with pytest.raises(UserInputError, match="has none"):
        exercise('[ready]\nkind = "healthcheck"', image())


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[ready]\nkind = "http"', "ready.port"),
        ("[ready]", "ready.kind"),
        ('[ready]\nkind = "soon"', "ready.kind"),
        ('[ready]\nkind = "tcp"\nport = 0', "ready.port"),
        ('[ready]\nkind = "tcp"\nport = 70000', "ready.port"),
        ('[ready]\nkind = "tcp"\nport = "80"', "ready.port"),
        ('[ready]\nkind = "tcp"\nport = true', "ready.port"),
        ('[ready]\nkind = "tcp"\nport = 80\ntimeout_s = 0', "ready.timeout_s"),
        ('[ready]\nkind = "tcp"\nport = 80\ntimeout_s = nan', "ready.timeout_s"),
        ('[ready]\nkind = "tcp"\nport = 80\npath = "/"', "ready.path"),
        ('[ready]\nkind = "command"', "ready.argv"),
        ('[ready]\nkind = "command"\nargv = "a b"', "ready.argv"),
        ('[ready]\nkind = "command"\nargv = []', "ready.argv"),
        ('[ready]\nkind = "command"\nargv = [""]', "ready.argv"),
        ('[ready]\nkind = "http"\nport = 1\npath = "x"', "ready.path"),
        ('[ready]\nkind = "http"\nport = 1\npath = "/a b"', "ready.path"),
        ('[ready]\nkind = "http"\nport = 1\npath = "/\\r\\nHost: x"', "ready.path"),
        ('[ready]\nkind = "http"\nport = 1\nmethod = "GET /"', "ready.method"),
        ('ready = 5', "ready"),
        ('[load]\nkind = "http"', "load"),
        ('[[load]]\nkind = "wait"', "load[1].kind"),
        ('[[load]]\nkind = "http"\nport = 1\nrepeat = 0', "load[1].repeat"),
        (f'{TCP}\n{TCP}\nexpect = {{ status = 200 }}', "load[2].expect.status"),
        ('[[load]]\nkind = "http"\nport = 1\n[load.expect]\nstatus = 1000', "load[1].expect.status"),
        ('[[load]]\nkind = "http"\nport = 1\n[load.expect]\nsha256 = "AB"', "load[1].expect.sha256"),
        ('[[load]]\nkind = "http"\nport = 1\n[load.expect]\nexit_code = 0', "load[1].expect.exit_code"),
        ('[[load]]\nkind = "command"\nargv = ["x"]\n[load.expect]\nstatus = 200', "load[1].expect.status"),
        ('[[load]]\nkind = "command"\nargv = ["a\\u0000"]', "load[1].argv"),
        ('[stop]\nsignal = "SIGNONSENSE"', "stop.signal"),
        ('[stop]\nsignal = 9', "stop.signal"),
        ("[stop]\ntimeout_s = -1", "stop.timeout_s"),
        ("[expect]\nstatus = 200", "expect.status"),
        ("[redy]\nkind = 1", "redy"),
        ('[ready]\nkind = "exit"\n[[load]]\nkind = "tcp"\nport = 1', "load"),
    ],
)  # fmt: skip
def test_mistakes(text: str, place: str) -> None:
    with pytest.raises(UserInputError) as caught:
        exercise(text)
    assert caught.value.message.startswith(f"test.toml: {place} "), caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ('[redy]\nkind = "exit"', "redy", "ready"),
        ('[[laod]]\nkind = "tcp"', "laod", "load"),
        ('[ready]\nknid = "tcp"\nport = 80', "ready.knid", "kind"),
        ('[ready]\nkind = "tcp"\nprot = 80', "ready.prot", "port"),
        ('[ready]\nkind = "http"\nport = 80\ntimeout = 9', "ready.timeout", "timeout_s"),
        ('[ready]\nkind = "command"\nargs = ["x"]', "ready.args", "argv"),
        ('[[load]]\nkind = "http"\nport = 80\nrepeats = 9', "load[1].repeats", "repeat"),
        ('[[load]]\nkind = "http"\nport = 80\n[load.expect]\ncontain = "x"', "load[1].expect.contain", "contains"),
        ('[stop]\nsignals = "SIGTERM"', "stop.signals", "signal"),
    ],
)
def test_a_misspelt_key_has_the_one_that_was_meant(text: str, key: str, meant: str) -> None:
    with pytest.raises(UserInputError) as caught:
        exercise(text)
    assert caught.value.message == f"test.toml: {key} is not known here"
    assert caught.value.hint == f"did you mean {meant}? vmtailor help exercise shows all keys"


def test_a_misspelt_key_of_a_system() -> None:
    for text, words in (("[redy]", "redy"), ('[ready]\nkind = "unit"\nunti = "x.target"', "ready.unti")):
        with pytest.raises(UserInputError, match=f"{words} is not known here"):
            parse_system(tomllib.loads(text), "system.toml")


def test_files_that_are_no_toml(tmp_path: Path) -> None:
    for data in (b"[", b"\xff", b"a = " + b"[" * 5000):
        (tmp_path / "bad.toml").write_bytes(data)
        with pytest.raises(UserInputError, match=r"bad\.toml"):
            load(tmp_path / "bad.toml", CHECKED)
    with pytest.raises(UserInputError, match="cannot be read"):
        load(tmp_path / "absent.toml", CHECKED)
    with pytest.raises(UserInputError, match="cannot be read"):
        load(tmp_path, CHECKED)


def test_derived_from_the_image() -> None:
    check = Step(StepKind.COMMAND, argv=("/check",), expect=Expect(exit_code=0))
    assert derive(CHECKED) == Exercise("healthcheck", Ready(ReadyKind.COMMAND, check), (check,))
    ports = derive(image(exposed_ports=(Port(53, "udp"), Port(80), Port(443))))
    assert ports == Exercise("ports", Ready(ReadyKind.TCP, Step(StepKind.TCP, 80)), (Step(StepKind.TCP, 443),))
    many = derive(image(exposed_ports=tuple(Port(n) for n in range(1000, 3000))))
    assert len(many.load) == PORTS_MAX - 1
    assert derive(image(exposed_ports=(Port(53, "udp"),))) == Exercise("run-to-end", Ready(ReadyKind.EXIT))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/image.toml")), ids=lambda path: path.parent.name)
def test_the_examples(path: Path) -> None:
    found = load(path.with_name("exercise.toml"), CHECKED)
    assert found.ready.kind == ReadyKind.EXIT or sum(step.repeat for step in found.load) > 10


LEAVES = st.integers() | st.text() | st.booleans() | st.floats()
KEYS = st.sampled_from(["kind", "port", "argv", "repeat", "timeout_s", "signal", "expect"])
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=6)


@given(st.dictionaries(st.sampled_from(["ready", "load", "expect", "stop"]), VALUES))
def test_anything_is_understood_or_refused(document: dict[str, Any]) -> None:
    try:
        found = parse(document, CHECKED, "x")
    except UserInputError:
        return
    assert records.from_bytes(Exercise, records.to_bytes(found)) == found
