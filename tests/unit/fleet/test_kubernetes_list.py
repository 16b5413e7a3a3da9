# SPDX-License-Identifier: Apache-2.0
"""Kubernetes manifests: everything that makes pods, held against Kubernetes' own schemas; probes become exercises."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.fleet.lists import list_exercises, lists, manifest_schema, sizes
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ValueFrom, Variable

HTTP = {"httpGet": {"path": "/ready", "port": "web"}}
PORTS = [{"name": "web", "containerPort": 8080}]


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = [{"name": f"c{number}", "image": "nginx:1.27", **one} for number, one in enumerate(containers)]
    return {"containers": made, **more}


def manifest(kind: str, spec: dict[str, Any], name: str = "web", namespace: str = "") -> dict[str, Any]:
    """Return a manifest of a kind around a pod."""
    version, at = next((version, at) for (version, one), at in manifest_schema.PODS.items() if one == kind)
    inner: dict[str, Any] = {"spec": spec}
    if "template" in at:
        inner = {"metadata": {"labels": {"app": "a"}}, **inner}
    for key in reversed(at):
        inner = {key: inner}
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **inner}
    if namespace:
        whole["metadata"]["namespace"] = namespace
    if kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
        whole["spec"]["selector"] = {"matchLabels": {"app": "a"}}
    if kind == "CronJob":
        whole["spec"]["schedule"] = "0 3 * * *"
    return whole


def read(folder: Path, *documents: Any) -> FleetList:
    path = folder / "all.yaml"
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    return lists.read(path)


def one(folder: Path, container: dict[str, Any], **more: Any) -> FleetEntry:
    (entry,) = read(folder, manifest("Pod", pod(container, **more))).entries
    return entry


def exercise(entry: FleetEntry) -> dict[str, Any]:
    list_exercises.require_sound(entry.exercise, "it")
    return tomllib.loads(entry.exercise)


def dropped(entry: FleetEntry) -> dict[str, str]:
    return {part.key: part.why for part in entry.no_meaning}


@pytest.mark.parametrize("kind", sorted({kind for _, kind in manifest_schema.PODS}))
def test_everything_that_makes_pods_is_read(tmp_path: Path, kind: str) -> None:
    jobs = {"restartPolicy": "Never"} if kind in ("Job", "CronJob") else {}
    (entry,) = read(tmp_path, manifest(kind, pod({}, **jobs))).entries
    assert (entry.name, entry.reference) == ("web", "docker://nginx:1.27")
    if jobs:
        assert exercise(entry) == {"ready": {"kind": "exit"}, "expect": {"exit_code": 0}}


def test_a_container_as_its_manifest_says(tmp_path: Path) -> None:
    entry = one(
        tmp_path,
        {
            "command": ["/bin/web"],
            "args": ["-v"],
            "ports": [*PORTS, {"containerPort": 53, "protocol": "UDP"}],
            "env": [
                {"name": "TOKEN", "value": "hunter2"},
                {
                    "name": "PASSWORD",
                    "valueFrom": {"secretKeyRef": {"name": "db", "key": "password", "optional": True}},
                },
                {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "mode"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "envFrom": [{"prefix": "X_", "secretRef": {"name": "all"}}, {"configMapRef": {"name": "more"}}],
            "resources": {"limits": {"memory": "512Mi", "cpu": "1500m"}, "requests": {"memory": "1Gi"}},
            "securityContext": {"privileged": True, "runAsUser": 5},
            "readinessProbe": {**HTTP, "initialDelaySeconds": 5, "periodSeconds": 20, "failureThreshold": 30},
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080, "httpHeaders": [{"name": "a", "value": "b"}]}},
        },
        terminationGracePeriodSeconds=45,
        nodeSelector={"kubernetes.io/arch": "arm64"},
        volumes=[{"name": "v"}],
    )
    assert (entry.entrypoint, entry.cmd, entry.privileged) == (("/bin/web",), ("-v",), True)
    assert (entry.memory_bytes, entry.cpus, entry.ports, entry.architecture) == (512 << 20, 2, (8080,), "arm64")
    assert entry.environment == (
        Variable("TOKEN", ValueFrom.LIST),
        Variable("PASSWORD", ValueFrom.SECRET, "db, key password", optional=True),
        Variable("MODE", ValueFrom.CONFIG_MAP, "web, key mode"),
        Variable("NODE", ValueFrom.RUNNING, "spec.nodeName"),
        Variable("X_*", ValueFrom.SECRET, "all"),
        Variable("*", ValueFrom.CONFIG_MAP, "more"),
    )
    assert b"hunter2" not in records.to_bytes(entry)
    assert exercise(entry) == {
        "ready": {"kind": "http", "port": 8080, "path": "/ready", "timeout_s": 605.0},
        "load": [{"kind": "http", "port": 8080, "path": "/ready"}, {"kind": "http", "port": 8080, "path": "/live"}],
        "stop": {"timeout_s": 45.0},
    }
    assert set(dropped(entry)) == {
        "volumes",
        "securityContext.runAsUser",
        "ports 53/UDP",
        "livenessProbe.httpGet.httpHeaders",
        "httpGet",  # a range of statuses
    }


TCP = {"kind": "tcp", "port": 8080}


@pytest.mark.parametrize(
    ("container", "ready", "load"),
    [
        ({}, None, []),
        ({"ports": PORTS}, TCP, []),
        ({"ports": [*PORTS, {"containerPort": 9}]}, TCP, [{"kind": "tcp", "port": 9}]),
        ({"readinessProbe": {"tcpSocket": {"port": 8080}}}, TCP, []),
        (
            {"livenessProbe": {"exec": {"command": ["redis-cli", "ping"]}}},
            {"kind": "command", "argv": ["redis-cli", "ping"]},
            [],
        ),
        (
            {"ports": PORTS, "startupProbe": HTTP, "readinessProbe": {"exec": {"command": ["x"]}}},
            {"kind": "command", "argv": ["x"]},
            [{"kind": "http", "port": 8080, "path": "/ready"}],
        ),
        ({"ports": PORTS, "readinessProbe": {"httpGet": {"port": "web", "scheme": "HTTPS"}}}, TCP, []),
        ({"readinessProbe": {"grpc": {"port": 8080}}}, TCP, []),
        ({"ports": PORTS, "readinessProbe": {"httpGet": {"path": "/a b", "port": "web"}}}, TCP, []),
        ({"readinessProbe": {"httpGet": {"port": "no"}}}, None, []),
    ],
)
def test_probes_become_ready_and_a_load(
    tmp_path: Path, container: dict[str, Any], ready: dict[str, Any] | None, load: list[dict[str, Any]]
) -> None:
    entry = one(tmp_path, container)
    if ready is None:
        assert entry.exercise == ""
        return
    said = exercise(entry)
    assert {key: said["ready"][key] for key in ready} == ready
    assert said.get("load", []) == load


@pytest.mark.parametrize(
    ("container", "key", "why"),
    [
        ({"readinessProbe": {"grpc": {"port": 1}}}, "readinessProbe.grpc", "does not speak gRPC"),
        (
            {"readinessProbe": {"httpGet": {"port": 1, "scheme": "HTTPS"}}},
            "readinessProbe.httpGet",
            "does not speak TLS",
        ),
        ({"readinessProbe": {"httpGet": {"port": "no"}}}, "readinessProbe.httpGet", "no port of the container"),
        (
            {"livenessProbe": {"httpGet": {"port": 1, "host": "x"}}},
            "livenessProbe.httpGet.host",
            "the container itself",
        ),
        ({"resources": {"limits": {"memory": "1Ki"}}}, "resources.memory", "from 8M to"),
        ({"resources": {"limits": {"cpu": "900"}}}, "resources.cpu", "at most 64"),
        ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, "resources.nvidia.com/gpu", "no devices"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "volumeMounts", "no volumes"),
        ({"workingDir": "/x"}, "workingDir", "of the image"),
    ],
)
def test_what_has_no_meaning_is_named(tmp_path: Path, container: dict[str, Any], key: str, why: str) -> None:
    assert why in dropped(one(tmp_path, container))[key]


def test_objects_that_make_no_pods_are_named_once_a_kind(tmp_path: Path) -> None:
    others = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}} for kind in ("Service", "Secret", "Service")
    ]
    found = read(tmp_path, *others, manifest("Pod", pod({})))
    assert [part.key for part in found.no_meaning] == ["Secret", "Service"]


def test_objects_of_a_cluster_count_once(tmp_path: Path) -> None:
    """`kubectl get` prints what a cluster added to each object, and the pods that a Deployment made."""
    deployment = manifest("Deployment", pod({}))
    deployment["metadata"] |= {
        "uid": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
    }  # fmt: skip
    deployment["status"] = {"replicas": 1, "readyReplicas": 1}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1", "controller": True}
    made = manifest("Pod", pod({}), "web-7d")
    made["metadata"]["ownerReferences"] = [owner]
    alone = manifest("Pod", pod({}), "alone")
    alone["metadata"]["ownerReferences"] = [{**owner, "uid": "2"}]
    found = read(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [deployment, made, alone]})
    assert [one.name for one in found.entries] == ["web", "alone"]
    assert [(one.key, one.why) for one in found.no_meaning] == [
        ("Pods of others", "the object that made them is in the file, too")
    ]


def test_lists_hold_objects(tmp_path: Path) -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [manifest("Deployment", pod({}), "a")]}
    pods = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "b"}, "spec": pod({})}]}
    assert [entry.name for entry in read(tmp_path, inner, pods).entries] == ["a", "b"]


def test_containers_and_objects_of_one_name_are_set_apart(tmp_path: Path) -> None:
    two = manifest("Pod", pod({}, {"image": "redis"}), "both")
    names = [one.name for one in read(tmp_path, two).entries]
    assert names == ["both-c0", "both-c1"]
    jobs = manifest("Job", pod({}, restartPolicy="Never"))
    assert [one.name for one in read(tmp_path, manifest("Pod", pod({})), jobs).entries] == ["web-pod", "web-job"]
    spaces = [manifest("Pod", pod({}), namespace=name) for name in ("a", "b")]
    assert [one.name for one in read(tmp_path, *spaces).entries] == ["a-web", "b-web"]
    with pytest.raises(
        UserInputError, match="two entries are called web-pod: Pod web, container c0, Pod web, container c0"
    ):
        read(tmp_path, manifest("Pod", pod({})), manifest("Pod", pod({})))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"imagge": "x"}, "spec.containers[0] has a key that is not known, imagge: did you mean image?"),
        ({"image": 3}, "spec.containers[0].image must be string, and is a number"),
        ({"image": None}, "has no image"),
        ({"image": "b@d!"}, "is no image"),
        ({"env": [{"value": "hunter2"}]}, "spec.containers[0].env[0] has no name"),
        ({"env": [{"name": "A", "value": 12345678}]}, "env[0].value must be string, and is a number"),
        ({"ports": [{"containerPort": "http"}]}, "containerPort must be integer, and is a text"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_without_its_values(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserInputError) as caught:
        one(tmp_path, change)
    assert says in caught.value.message
    assert "hunter2" not in str(caught.value) and "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            {"apiVersion": "batch/v1beta1", "kind": "CronJob", "metadata": {"name": "x"}},
            "is of 'batch/v1beta1', not of batch/v1",
        ),
        ({"apiVersion": "../../x", "kind": "Pod"}, "not of v1"),
        ({"kind": "../../../etc/passwd"}, "names no image"),
        ([1], "has no kind"),
    ],
)
@pytest.mark.attack
def test_other_versions_and_odd_kinds_are_refused(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(UserInputError, match=says):
        read(tmp_path, {"kind": "List", "items": [document]} if isinstance(document, dict) else [document])


@pytest.mark.parametrize(
    ("text", "number"),
    [("512Mi", 512 << 20), ("1G", 10**9), ("1e3", 1000), ("1.5Ki", 1536), ("100m", 1 / 10), (4, 4), ("2E", 2 * 10**18)],
)
def test_quantities_are_those_of_kubernetes(text: object, number: float) -> None:
    found = sizes.quantity(text)
    assert found is not None
    assert float(found) == number


@pytest.mark.parametrize("text", ["", "x", "1Mib", "Mi", "1 Mi", "--1", "0x10", True, None, [1], "1e999"])
def test_what_is_no_quantity_is_none(text: object) -> None:
    assert sizes.quantity(text) is None


@pytest.mark.parametrize(
    "container", [{"env": [None]}, {"ports": [None]}, {"command": ["sh", None]}, {"envFrom": [None]}]
)
def test_an_item_that_is_nothing_is_refused_with_its_place(tmp_path: Path, container: dict[str, Any]) -> None:
    with pytest.raises(UserInputError, match=r"containers\[0\]\.\w+\[\d\] "):
        one(tmp_path, container)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text("ab/:{}$", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["httpGet", "port", "path", "exec", "command", "limits", "memory", "name", "value", "valueFrom"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@pytest.mark.attack
@given(
    st.dictionaries(
        st.sampled_from(["image", "env", "ports", "readinessProbe", "resources", "command", "envFrom"]),
        values,
        max_size=4,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_container_is_an_entry_or_is_refused(tmp_path: Path, container: dict[str, Any]) -> None:
    try:
        entry = one(tmp_path, container)
    except UserInputError:
        return
    list_exercises.require_sound(entry.exercise, "it")


def test_two_hundred_objects_take_seconds(tmp_path: Path) -> None:
    documents = [
        manifest("Deployment", pod({"readinessProbe": HTTP, "ports": PORTS}), f"d{number}") for number in range(200)
    ]
    before = time.monotonic()
    assert len(read(tmp_path, *documents).entries) == 200
    assert time.monotonic() - before < 60
