# SPDX-License-Identifier: Apache-2.0
"""Image configurations: read whole, in both schemas, and refused when a value is of the wrong type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.drivers.image.documents import BadConfig, read_json
from vmtailor.drivers.image.image_config import diff_ids_of, digests_of, parse, signal_name
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


def test_entry_point_and_command_are_joined() -> None:
    assert config(Entrypoint=["/a", "b c"], Cmd=["d"]).argv == ("/a", "b c", "d")
    assert config(Cmd=["d", ""]).argv == ("d", "")
    assert config(Cmd="echo $HOME").argv == ("/bin/sh", "-c", "echo $HOME")
    assert config(Shell=["/bin/bash", "-ec"], Cmd="x").argv == ("/bin/bash", "-ec", "x")


def test_environment() -> None:
    assert config(Env=["A=1", "B=", "C=x=y", "D", "=E", "A=2"]).env == (("A", "1"), ("B", ""), ("C", "x=y"), ("A", "2"))


def test_ports() -> None:
    found = config(ExposedPorts={"80/tcp": {}, "53/UDP": {}, "8080": {}, "7000-7002/tcp": {}, "80": {}}).exposed_ports
    assert found == (Port(53, "udp"), Port(80), Port(7000), Port(7001), Port(7002), Port(8080))
    for bad in ("0/tcp", "65536", "80/icmp", "a", "", "9-8", "-1"):
        with pytest.raises(BadConfig):
            config(ExposedPorts={bad: {}})


def test_health_checks() -> None:
    assert config(Healthcheck={"Test": ["CMD", "/check", "-x"]}).health_check == HealthCheck(("/check", "-x"))
    shell = config(Healthcheck={"Test": ["CMD-SHELL", "a || b"], "Timeout": 10**9, "StartPeriod": 500_000_000})
    assert shell.health_check == HealthCheck(("/bin/sh", "-c", "a || b"), timeout_s=1.0, start_period_s=0.5)
    nothing: list[Any] = [{"Test": ["NONE"]}, {"Test": []}, {}, {"Interval": 5}]
    for none in nothing:
        assert config(Healthcheck=none).health_check is None
    zero = config(Healthcheck={"Test": ["CMD", "x"], "Interval": 0, "Retries": 0}).health_check
    assert zero == HealthCheck(("x",))
    wrong: list[Any] = [
        {"Test": ["CMD"]}, {"Test": ["CMD-SHELL", "a", "b"]}, {"Test": "x"}, {"Test": ["CMD", 1]}, [],
        {"Test": ["CMD", "x"], "Interval": "5s"}, {"Test": ["CMD", "x"], "Timeout": -1},
        {"Test": ["CMD", "x"], "Retries": "3"},
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
    assert signal_name(text) == name


@pytest.mark.parametrize("text", ["SIGNOTHING", "0", "99", "-9", "SIG", "²", "SIGRTMIN+999"])
def test_no_signals(text: str) -> None:
    with pytest.raises(BadConfig):
        signal_name(text)


@pytest.mark.parametrize(
    "inner",
    [
        {"Env": {}}, {"Env": [1]}, {"Cmd": 5}, {"Entrypoint": ["a\0b"]}, {"User": []}, {"WorkingDir": 1},
        {"Volumes": ["/a"]}, {"ExposedPorts": [80]}, {"Labels": {"a": 1}}, {"Labels": []}, {"User": "\ud800"},
    ],
)  # fmt: skip
def test_values_of_the_wrong_type(inner: dict[str, Any]) -> None:
    with pytest.raises(BadConfig) as caught:
        config(**inner)
    assert next(iter(inner)) in caught.value.message


def test_manifests() -> None:
    good = {"schemaVersion": 2, "config": {"digest": DIGEST}, "layers": [{"digest": DIGEST}]}
    assert digests_of(good) == (DIGEST, (DIGEST,))
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
