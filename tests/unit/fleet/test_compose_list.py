# SPDX-License-Identifier: Apache-2.0
"""Resolved Compose files: what becomes of each key, and which files are refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.fleet.lists import dropped_keys, list_exercises, lists
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm, ValueFrom, Variable


def read(folder: Path, *services: dict[str, Any], **more: Any) -> FleetList:
    path = folder / "resolved.yaml"
    named = {f"s{number}": {"image": "nginx:1.27", **one} for number, one in enumerate(services)}
    path.write_text(yaml.safe_dump({"name": "shop", "services": named, **more}, sort_keys=False))
    return lists.read(path)


def one(folder: Path, **service: Any) -> FleetEntry:
    (entry,) = read(folder, service).entries
    return entry


def exercise(entry: FleetEntry) -> dict[str, Any]:
    list_exercises.require_sound(entry.exercise, "it")
    return tomllib.loads(entry.exercise)


def dropped(entry: FleetEntry) -> dict[str, str]:
    return {part.key: part.why for part in entry.no_meaning}


def test_a_service_as_compose_resolves_it(tmp_path: Path) -> None:
    entry = one(
        tmp_path,
        command=["nginx", "-g", "daemon $$off;"],
        entrypoint=None,
        networks={"default": None},
        environment={"A": "1", "TOKEN": "hunter2", "EMPTY": None},
        ports=[
            {"mode": "ingress", "target": 80, "published": "8080", "protocol": "tcp"},
            {"target": 53, "protocol": "udp"},
        ],
        healthcheck={
            "test": ["CMD", "curl", "-f", "http://localhost/health?a=b"],
            "interval": "1m30s",
            "timeout": "10s",
            "retries": 5,
        },
        deploy={"resources": {"limits": {"cpus": 1.5, "memory": "536870912"}}, "replicas": 3},
        stop_signal="SIGQUIT",
        stop_grace_period="1m0s",
        platform="linux/arm64",
        privileged=True,
        secrets=[{"source": "db", "target": "/run/secrets/db"}],
    )
    assert (entry.name, entry.reference, entry.architecture) == ("s0", "docker://nginx:1.27", "arm64")
    assert (entry.cmd, entry.entrypoint, entry.privileged) == (("nginx", "-g", "daemon $off;"), None, True)
    assert (entry.memory_bytes, entry.cpus, entry.ports) == (512 << 20, 2, (80,))
    assert entry.environment == (Variable("A", ValueFrom.LIST), Variable("TOKEN", ValueFrom.LIST))
    assert entry.secrets == ("db",)
    assert b"hunter2" not in records.to_bytes(entry)
    said = exercise(entry)
    assert said["ready"] == {
        "kind": "command",
        "argv": ["curl", "-f", "http://localhost/health?a=b"],
        "timeout_s": 500.0,
    }
    assert said["load"] == [{"kind": "http", "port": 80, "path": "/health?a=b"}]
    assert said["stop"] == {"signal": "SIGQUIT", "timeout_s": 60.0}
    assert dropped(entry) == {"ports 53/udp": "an exercise speaks TCP alone"}


@pytest.mark.parametrize(
    ("service", "ready"),
    [
        ({}, None),
        ({"ports": ["8080:80", "127.0.0.1:443:8443/tcp"]}, {"kind": "tcp", "port": 80}),
        ({"expose": [5432]}, {"kind": "tcp", "port": 5432}),
        ({"ports": [{"target": 80}], "healthcheck": {"disable": True}}, {"kind": "tcp", "port": 80}),
        ({"ports": [{"target": 80}], "healthcheck": {"test": ["NONE"]}}, {"kind": "tcp", "port": 80}),
        (
            {"healthcheck": {"test": "pg_isready -U $$USER"}},
            {"kind": "command", "argv": ["/bin/sh", "-c", "pg_isready -U $USER"]},
        ),
    ],
)
def test_a_container_is_ready_by_its_check_or_else_by_its_ports(
    tmp_path: Path, service: dict[str, Any], ready: dict[str, Any] | None
) -> None:
    entry = one(tmp_path, **service)
    if ready is None:
        assert entry.exercise == ""
        return
    found = exercise(entry)["ready"]
    assert {key: found[key] for key in ready} == ready


@pytest.mark.parametrize(
    ("test", "page"),
    [
        (["CMD-SHELL", "curl -fsS http://127.0.0.1:8080/ || exit 1"], {"port": 8080, "path": "/"}),
        (["CMD", "/usr/bin/wget", "-q", "--spider", "http://localhost:3000/up"], {"port": 3000, "path": "/up"}),
        (["CMD", "curl", "https://localhost/"], None),
        (["CMD", "curl", "http://example.com/"], None),
        (["CMD", "curl", "-X", "POST", "http://localhost/"], None),
        (["CMD", "redis-cli", "ping"], None),
        (["CMD", "curl", "http://localhost:99999999/"], None),
        (["CMD", "curl", "http://localhost/", "http://localhost/2"], None),
    ],
)
def test_a_check_that_asks_for_a_page_is_a_load_too(
    tmp_path: Path, test: list[str], page: dict[str, Any] | None
) -> None:
    load = exercise(one(tmp_path, healthcheck={"test": test})).get("load", [])
    assert load == ([] if page is None else [{"kind": "http", **page}])


@pytest.mark.parametrize(
    ("service", "memory", "cpus"),
    [
        ({"mem_limit": "512m", "cpus": 2}, 512 << 20, 2),
        ({"mem_limit": "1gb", "cpus": "0.1"}, 1 << 30, 1),
        ({"deploy": {"resources": {"reservations": {"memory": "64M", "cpus": "3"}}}}, 64 << 20, 3),
        ({"mem_limit": 0, "cpus": 0}, None, None),
    ],
)
def test_limits_become_memory_and_processors(
    tmp_path: Path, service: dict[str, Any], memory: int | None, cpus: int | None
) -> None:
    entry = one(tmp_path, **service)
    assert (entry.memory_bytes, entry.cpus) == (memory, cpus)


@pytest.mark.parametrize(
    ("service", "key", "why"),
    [
        ({"volumes": [{"type": "bind"}]}, "volumes", "a fit has no folders"),
        ({"mem_limit": "1k"}, "memory", "from 8M to"),
        ({"cpus": 1000}, "cpus", "at most 64"),
        ({"platform": "windows/amd64"}, "platform", "no machine is known"),
        ({"plattform": "x"}, "plattform", "did you mean platform?"),
        ({"networks": {"a": {}, "b": {}}}, "networks", "its own"),
        ({"deploy": {"resources": {"limits": {"pids": 5}}}}, "deploy.resources.limits.pids", "its own processes"),
        ({"stop_signal": "SIGX"}, "stop_signal", "is no signal"),
        ({"user": "app"}, "user", "of the image"),
        ({"stop_grace_period": "x"}, "stop_grace_period", "not a span"),
    ],
)
def test_what_has_no_meaning_is_named(tmp_path: Path, service: dict[str, Any], key: str, why: str) -> None:
    assert why in dropped(one(tmp_path, **service))[key]


def test_files_of_variables_are_named(tmp_path: Path) -> None:
    entry = one(tmp_path, env_file=["a.env", {"path": "b.env", "required": False}])
    assert entry.environment == (
        Variable("*", ValueFrom.FILE, "a.env"),
        Variable("*", ValueFrom.FILE, "b.env", optional=True),
    )


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ({"extends": {"service": "x"}}, "extends another service"),
        ({"image": None, "build": {"context": "."}}, "is built here"),
        ({"image": None}, "has no image"),
        ({"image": "nginx:${TAG}"}, "variable that is not filled in"),
        ({"command": ["a$$$b"]}, "variable that is not filled in"),
        ({"environment": {"A": "$B"}}, "variable that is not"),
        ({"image": "b@d!"}, "is no image"),
        ({"healthcheck": {"test": ["curl"]}}, "begins no check"),
        ({"healthcheck": {"test": ["CMD"]}}, "begins no check"),
        ({"ports": ["x"]}, "is no port"),
        ({"healthcheck": {"test": ["CMD", "x"], "interval": "soon"}}, "a span of time that is none"),
        ({"command": {"a": 1}}, "list of words"),
        ({"deploy": [1]}, "must be a table"),
    ],
)
def test_what_is_not_resolved_or_makes_no_sense_is_refused(tmp_path: Path, service: dict[str, Any], says: str) -> None:
    with pytest.raises(UserInputError, match=says.replace("$", r"\$")) as caught:
        one(tmp_path, **service)
    assert "s0" in caught.value.message
    if "not filled in" in says or "extends" in says:
        assert "docker compose config" in caught.value.hint


def test_dollar_signs_that_are_written_twice_are_no_variables(tmp_path: Path) -> None:
    entry = one(tmp_path, command=["a$$b", "$$$$HOME", "5$ each", "$"])
    assert entry.cmd == ("a$b", "$$HOME", "5$ each", "$")


def test_other_files_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="includes other files") as caught:
        read(tmp_path, {}, include=["other.yaml"])
    assert "docker compose config" in caught.value.hint


def test_a_service_of_a_provider_makes_no_container(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"services": {"db": {"provider": {"type": "x"}}, "web": {"image": "nginx"}}}))
    found = lists.read(path)
    assert found.form is ListForm.COMPOSE
    assert [entry.name for entry in found.entries] == ["web"]


def test_every_row_of_keys_without_meaning_says_why() -> None:
    for table in ("compose", "kubernetes"):
        for rows in dropped_keys._rows(table).values():
            assert all(isinstance(why, str) and why and not why.endswith(".") for why in rows.values())


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 70000)
    | st.sampled_from(["x", "80", "CMD", "$", "1m", "512m", "", "linux/arm64"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["test", "target", "limits", "memory", "resources", "source", "path", "protocol"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
keys = st.sampled_from(
    [
        "image",
        "command",
        "entrypoint",
        "environment",
        "ports",
        "expose",
        "healthcheck",
        "deploy",
        "secrets",
        "env_file",
        "platform",
        "networks",
        "mem_limit",
        "cpus",
        "stop_signal",
        "stop_grace_period",
        "volumes",
        "build",
    ]
)


@pytest.mark.attack
@given(st.dictionaries(keys, values, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_service_is_an_entry_or_is_refused(tmp_path: Path, service: dict[str, Any]) -> None:
    try:
        entry = one(tmp_path, **service)
    except UserInputError:
        return
    list_exercises.require_sound(entry.exercise, "it")
