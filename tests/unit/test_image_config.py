# SPDX-License-Identifier: Apache-2.0
"""Image configurations: read whole, in both schemas, and refused when a value is of the wrong type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.drivers.image import image_config
from vmtailor.drivers.image.documents import BadConfig, read_json
from vmtailor.drivers.image.image_config import diff_ids_of, digests_of, parse
from vmtailor.model.image import HealthCheck, ImageConfig, Port

DIGEST = "sha256:" + "a" * 64


def config(**inner: Any) -> ImageConfig:
    return parse({"architecture": "amd64", "os": "linux", "config": inner})


def test_nothing_said() -> None:
    assert parse({"architecture": "amd64"}) == ImageConfig(architecture="amd64")
    assert (
        config(Env=None, Cmd=None, ExposedPorts=None, Healthcheck=None, StopSignal="", WorkingDir="").stop_signal
        == "SIGTERM"
    )


def test_every_field_is_read() -> None:
    inner = {
        "Entrypoint": ["/a"], "Cmd": ["b"], "Env": ["A=1"], "WorkingDir": "/w", "User": "web:1",
        "Labels": {"z": "1", "a": "2"},
        "ExposedPorts": {"80/udp": {}}, "Volumes": {"/v": {}, "/b": {}}, "StopSignal": "SIGINT", "Shell": ["/s"],
        "Healthcheck": {
            "Test": ["CMD-SHELL", "x"], "Interval": 2_000_000_000, "Timeout": 3_000_000_000,
            "StartPeriod": 4_000_000_000, "Retries": 5,
        },
    }  # fmt: skip
    assert parse({"architecture": "arm64", "os": "plan9", "config": inner}) == ImageConfig(
        architecture="arm64", os="plan9", entrypoint=("/a",), cmd=("b",), env=(("A", "1"),), working_dir="/w",
        user="web:1", exposed_ports=(Port(80, "udp"),), volumes=("/b", "/v"), stop_signal="SIGINT",
        health_check=HealthCheck(("/s", "x"), interval_s=2.0, timeout_s=3.0, start_period_s=4.0, retries=5),
        labels=(("a", "2"), ("z", "1")),
    )  # fmt: skip


@pytest.mark.parametrize("inner", ["x", ["Env"], 5, True])
def test_a_configuration_that_is_no_object(inner: Any) -> None:
    with pytest.raises(BadConfig, match="is not an object"):
        parse({"config": inner})


def test_the_longest_words_that_a_program_can_be_given() -> None:
    longest = "x" * 131_071
    assert config(Cmd=[longest]).cmd == (longest,) and config(WorkingDir=longest).working_dir == longest
    for bad in ({"Cmd": [f"{longest}x"]}, {"User": f"{longest}x"}, {"Cmd": "é" * 65_536}):
        with pytest.raises(BadConfig, match="more than 131071"):
            config(**bad)
    many = ["x" * 65_535] * 16  # each with its NUL
    assert config(Cmd=many).cmd == tuple(many)
    with pytest.raises(BadConfig, match="longer than 1048576"):
        config(Cmd=[*many, ""])


def test_numbers_at_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    check = {"Test": ["CMD", "x"]}
    most = config(Healthcheck={**check, "Retries": 2**31 - 1, "Interval": 2**63 - 1}).health_check
    assert most is not None and most.retries == 2**31 - 1 and most.interval_s == (2**63 - 1) / 1e9
    for bad in ({"Retries": 2**63}, {"Retries": True}, {"Interval": 2**63}, {"Interval": True}, {"Timeout": 1.5}):
        with pytest.raises(BadConfig):
            config(Healthcheck={**check, **bad})
    for retries, counted in ((2**31, 2**31 - 1), (2**63 - 1, 2**31 - 1), (-1, 3)):
        found = config(Healthcheck={**check, "Retries": retries}).health_check
        assert found is not None and found.retries == counted
    assert config(User="4294967294:4294967294").user == "4294967294:4294967294"
    for user in ("4294967295", "1:4294967295", "99999999999"):
        with pytest.raises(BadConfig, match="users and groups"):
            config(User=user)
    monkeypatch.setattr(image_config, "PORTS", 6)
    assert len(config(ExposedPorts={"1-3": {}, "2-3/udp": {}, "3/sctp": {}}).exposed_ports) == 6
    with pytest.raises(BadConfig, match="more than 6 ports"):
        config(ExposedPorts={"1-3": {}, "1-3/tcp": {}, "3/sctp": {}})


def test_a_manifest_has_as_many_layers_as_an_image_may() -> None:
    manifest = {"schemaVersion": 2, "config": {"digest": DIGEST}, "layers": [{"digest": DIGEST}] * 1000}
    assert len(digests_of(manifest)[1]) == 1000
    with pytest.raises(BadConfig, match="1001 layers"):
        digests_of({**manifest, "layers": [*manifest["layers"], {"digest": DIGEST}]})  # type: ignore[misc]


def test_entry_point_and_command_are_joined() -> None:
    assert config(Entrypoint=["/a", "b c"], Cmd=["d"]).argv == ("/a", "b c", "d")
    assert config(Cmd=["d", ""]).argv == ("d", "")
    assert config(Cmd="echo $HOME").argv == ("/bin/sh", "-c", "echo $HOME")
    assert config(Shell=["/bin/bash", "-ec"], Cmd="x").argv == ("/bin/bash", "-ec", "x")


def remarks_of(**inner: Any) -> tuple[ImageConfig, list[str]]:
    remarks: list[str] = []
    return parse({"architecture": "amd64", "config": inner}, remarks), remarks


def test_environment() -> None:
    found, remarks = remarks_of(Env=["A=1", "B=", "C=x=y", "D", "=E", "A=2", None])
    assert found.env == (("A", "1"), ("B", ""), ("C", "x=y"), ("A", "2"))
    assert remarks == ["Env 'D', '=', '' (no variable)"]


def test_volumes() -> None:
    found, remarks = remarks_of(Volumes={"/b": {}, "": {}, "a": None})
    assert found.volumes == ("/b", "a") and remarks == ["Volumes '' (no path)"]
    assert remarks_of(Volumes=None) == (config(), [])
    with pytest.raises(BadConfig, match="Volumes is longer"):
        config(Volumes={"x" * (1 << 20): {}})


def test_an_entry_point_of_one_empty_word_is_none() -> None:
    assert config(Entrypoint=[""], Cmd=["d"]).argv == ("d",) and config(Entrypoint=[None], Cmd=["d"]).argv == ("d",)
    assert config(Entrypoint=["", "x"], Cmd=["d"]).argv == ("", "x", "d")


@pytest.mark.parametrize("name", ["amd64", "x86_64", "X86_64", "x86-64", "AMD64"])
def test_processors_by_other_names(name: str) -> None:
    assert parse({"architecture": name}).architecture == "amd64"
    assert [parse({"architecture": other}).architecture for other in ("aarch64", "mips64el", "mips64", "Z80")] == [
        "arm64", "mips64le", "mips64", "Z80"
    ]  # fmt: skip
    assert parse({}).architecture == "" and parse({"architecture": None}).architecture == ""


def test_keys_in_any_case_but_once() -> None:
    found = parse({"Architecture": "arm64", "CONFIG": {"cmd": ["x"], "workingdir": "/w"}})
    assert (found.architecture, found.cmd, found.working_dir) == ("arm64", ("x",), "/w")
    assert diff_ids_of({"RootFS": {"Diff_IDs": [DIGEST]}}, 1) == (DIGEST,)
    twice: list[dict[str, Any]] = [{"Cmd": ["x"], "cmd": ["y"]}, {"Healthcheck": {"Test": [], "TEST": []}}]
    for bad in twice:
        with pytest.raises(BadConfig, match="twice"):
            config(**bad)


def test_ports() -> None:
    found = config(ExposedPorts={"80/tcp": {}, "53/UDP": {}, "8080": {}, "7000-7002/tcp": {}, "80": {}}).exposed_ports
    assert found == (Port(53, "udp"), Port(80), Port(7000), Port(7001), Port(7002), Port(8080))
    for odd in ("0/tcp", "65536", "80/icmp", "a", "", "9-8", "-1", "0-5", "80/tcp/udp", "²"):
        some, remarks = remarks_of(ExposedPorts={odd: {}, "80": {}})
        assert some.exposed_ports == (Port(80),) and remarks == [f"ExposedPorts {odd!r} (no port)"]


def test_health_checks() -> None:
    assert config(Healthcheck={"Test": ["CMD", "/check", "-x"]}).health_check == HealthCheck(("/check", "-x"))
    shell = config(Healthcheck={"Test": ["CMD-SHELL", "a || b"], "Timeout": 10**9, "StartPeriod": 500_000_000})
    assert shell.health_check == HealthCheck(("/bin/sh", "-c", "a || b"), timeout_s=1.0, start_period_s=0.5)
    nothing: list[Any] = [{"Test": ["NONE"]}, {"Test": []}, {}, {"Interval": 5}]
    for none in nothing:
        assert config(Healthcheck=none).health_check is None
    zero = config(Healthcheck={"Test": ["CMD", "x"], "Interval": 0, "Retries": 0}).health_check
    assert zero == HealthCheck(("x",))
    words = config(Healthcheck={"Test": ["CMD-SHELL", "a", "b"]}, Shell=["/s", "-c"]).health_check
    assert words == HealthCheck(("/s", "-c", "a", "b"))
    for odd in (["CMD"], ["CMD-SHELL"], ["CMD", ""], ["CMD", None, "x"], ["curl", "-f", "x"], ["cmd", "x"], [""]):
        found, remarks = remarks_of(Healthcheck={"Test": odd})
        assert found.health_check is None and len(remarks) == 1 and remarks[0].startswith("Healthcheck "), odd
    found, remarks = remarks_of(Healthcheck={"Test": ["CMD", "x"], "Timeout": -1, "Interval": -(2**63)})
    assert found.health_check == HealthCheck(("x",)) and len(remarks) == 2
    wrong: list[Any] = [
        {"Test": "x"}, {"Test": ["CMD", 1]}, [], {"Test": ["CMD", "x"], "Interval": "5s"},
        {"Test": ["CMD", "x"], "Retries": "3"}, {"Test": ["NONE"], "Interval": "5s"},
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(BadConfig):
            config(Healthcheck=bad)


@pytest.mark.parametrize(
    ("text", "name"),
    [("SIGTERM", "SIGTERM"), ("term", "SIGTERM"), ("15", "SIGTERM"), ("3", "SIGQUIT"), ("SIGRTMIN+3", "SIGRTMIN+3"),
     ("rtmax-1", "SIGRTMAX-1"), (" SIGWINCH ", "SIGWINCH")],
)  # fmt: skip
def test_signals(text: str, name: str) -> None:
    assert remarks_of(StopSignal=text) == (config(StopSignal=name), [])
    assert config(StopSignal=text).stop_signal == name


@pytest.mark.parametrize("text", ["SIGNOTHING", "0", "99", "-9", "SIG", "²", "SIGRTMIN+999"])
def test_no_signals(text: str) -> None:
    found, remarks = remarks_of(StopSignal=text)
    assert found.stop_signal == "SIGTERM" and remarks == [f"StopSignal {text!r} (no signal: SIGTERM is sent)"]


@pytest.mark.parametrize(
    "inner",
    [
        {"Env": {}}, {"Env": [1]}, {"Cmd": 5}, {"Entrypoint": ["a\0b"]}, {"User": []}, {"WorkingDir": 1},
        {"Volumes": ["/a"]}, {"ExposedPorts": [80]}, {"Labels": {"a": 1}}, {"Labels": []}, {"User": "\ud800"},
        {"Labels": {"a": False}}, {"Cmd": [None, 0]},
    ],
)  # fmt: skip
def test_values_of_the_wrong_type(inner: dict[str, Any]) -> None:
    with pytest.raises(BadConfig) as caught:
        config(**inner)
    assert next(iter(inner)) in caught.value.message


def test_manifests() -> None:
    good = {"schemaVersion": 2, "config": {"digest": DIGEST}, "layers": [{"digest": DIGEST}]}
    assert digests_of(good) == (DIGEST, (DIGEST,))
    assert digests_of({key: value for key, value in good.items() if key != "schemaVersion"}) == digests_of(good)
    wrong: list[Any] = [
        {}, {"manifests": []}, {**good, "schemaVersion": 1}, {**good, "layers": {}}, {**good, "config": None},
        {**good, "layers": [{"digest": "sha256:../../etc/passwd"}]}, {**good, "layers": ["x"]},
        {**good, "config": {"digest": DIGEST.upper()}}, {**good, "layers": [{"digest": 5}]},
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(BadConfig):
            digests_of(bad)


def test_content_digests() -> None:
    assert diff_ids_of({"rootfs": {"diff_ids": [DIGEST]}}, 1) == (DIGEST,)
    wrong: list[Any] = [{}, {"rootfs": []}, {"rootfs": {"diff_ids": []}}, {"rootfs": {"diff_ids": ["md5:1"]}}]
    for bad in wrong:
        with pytest.raises(BadConfig):
            diff_ids_of(bad, 1)


def test_documents(tmp_path: Path) -> None:
    path = tmp_path / "document"
    for bad in (b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"):
        path.write_bytes(bad)
        with pytest.raises(BadConfig):
            read_json(path)
    with pytest.raises(BadConfig, match="missing"):
        read_json(tmp_path / "absent")
    with path.open("wb") as file:
        file.truncate(9 << 20)
    with pytest.raises(BadConfig, match="larger"):
        read_json(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["Env", "Cmd", "Entrypoint", "ExposedPorts", "Healthcheck", "StopSignal", "User", "Volumes", "Labels", "Shell"]
)


@given(st.dictionaries(KEYS, JSON), JSON)
def test_anything_is_read_or_refused(inner: dict[str, Any], architecture: Any) -> None:
    try:
        found = parse(json.loads(json.dumps({"architecture": architecture, "config": inner})))
    except BadConfig:
        return
    assert isinstance(found.architecture, str) and all(isinstance(word, str) for word in found.argv)
