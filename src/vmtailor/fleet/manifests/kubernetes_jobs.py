# SPDX-License-Identifier: Apache-2.0
"""A fleet in Kubernetes: two jobs, a service between them, and a policy that lets nobody else in. PyYAML writes them,
so that no value can become another's key."""

from __future__ import annotations

from typing import Any

from vmtailor.drivers.targets.kubernetes_manifests import quantity, text
from vmtailor.fleet.manifests.manifest_wishes import SCHEDULER_CPUS, SCHEDULER_MEMORY, ManifestWishes
from vmtailor.fleet.model.addresses import PORT

#: Folders of a container with its certificates and its cache.
CERTIFICATES, CACHE = "/certificates", "/cache"
#: Files of a key are their owner's alone: vmtailor refuses others. In decimal, as JSON has no other numbers.
_OWNERS = 0o400
_PART = "app.kubernetes.io/component"
_FLEET = "app.kubernetes.io/instance"
#: Seconds for which a job that has ended can be looked at.
_KEPT_S = 86_400
_HEAD = """\
# Not run by those who wrote vmtailor; its form is checked against the schemas of Kubernetes.
# First, with the folder that vmtailor fleet certificates made:
#   for part in scheduler worker; do
#     kubectl create secret generic {name}-$part \\
#       --from-file=DIR/ca.pem --from-file=DIR/$part.pem --from-file=DIR/$part-key.pem
#   done
# Then, from here:
#   kubectl apply -f FILE
#   kubectl port-forward service/{name} {port}
#   vmtailor fleet fit LIST -o OUT --on tls://127.0.0.1:{port} --certificates DIR
"""


def files(wishes: ManifestWishes) -> dict[str, str]:
    """Return the file of a fleet, by its name."""
    documents = (_service(wishes), _policy(wishes), _scheduler(wishes), _workers(wishes))
    return {f"{wishes.name}.yaml": _HEAD.format(name=wishes.name, port=PORT) + text(*documents)}


def _metadata(wishes: ManifestWishes, name: str, part: str = "") -> dict[str, Any]:
    return {"name": name, "labels": _labels(wishes, part)}


def _labels(wishes: ManifestWishes, part: str = "") -> dict[str, str]:
    return {_FLEET: wishes.name, **({_PART: part} if part else {})}


def _service(wishes: ManifestWishes) -> dict[str, Any]:
    ports = [{"name": "tls", "port": PORT, "targetPort": PORT}]
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": _metadata(wishes, wishes.name),
        "spec": {"selector": _labels(wishes, "scheduler"), "ports": ports},
    }  # fmt: skip


def _policy(wishes: ManifestWishes) -> dict[str, Any]:
    """Return a policy: pods of the fleet reach each other, and nobody else reaches them."""
    own = {"podSelector": {"matchLabels": _labels(wishes)}}
    return {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _metadata(wishes, wishes.name),
        "spec": {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]},
    }  # fmt: skip


def _scheduler(wishes: ManifestWishes) -> dict[str, Any]:
    words = wishes.scheduler(f"tls://0.0.0.0:{PORT}", CERTIFICATES)
    container = {
        **_container(wishes, "scheduler", words, SCHEDULER_CPUS, SCHEDULER_MEMORY),
        "ports": [{"name": "tls", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}},
    }
    return _job(wishes, "scheduler", container, [], 1)


def _workers(wishes: ManifestWishes) -> dict[str, Any]:
    words = wishes.worker(f"tls://{wishes.name}:{PORT}", CERTIFICATES)
    container = _container(wishes, "worker", words, wishes.cpus, wishes.memory_bytes)
    container["volumeMounts"].append({"name": "cache", "mountPath": CACHE})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": quantity(wishes.disk_bytes)}}}
    cache = {"name": "cache", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    return _job(wishes, "worker", container, [cache], wishes.workers)


def _container(wishes: ManifestWishes, part: str, words: list[str], cpus: int, memory_bytes: int) -> dict[str, Any]:
    memory = quantity(memory_bytes)
    return {
        "name": part,
        "image": wishes.pulled,
        "args": words,
        "resources": {"requests": {"cpu": str(cpus), "memory": memory}, "limits": {"cpu": str(cpus), "memory": memory}},
        "securityContext": {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumeMounts": [{"name": "certificates", "mountPath": CERTIFICATES, "readOnly": True}],
    }


def _job(
    wishes: ManifestWishes, part: str, container: dict[str, Any], volumes: list[dict[str, Any]], pods: int
) -> dict[str, Any]:
    """Return a job whose pods all run at once, are started again where they fail, and end with the fleet's limit."""
    name = f"{wishes.name}-{part}"
    secret = {"name": "certificates", "secret": {"secretName": name, "defaultMode": _OWNERS}}
    pod = {
        "restartPolicy": "OnFailure", "automountServiceAccountToken": False, "enableServiceLinks": False,
        "containers": [container], "volumes": [secret, *volumes],
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(wishes, name, part),
        "spec": {
            "completions": pods, "parallelism": pods, "backoffLimit": 10 * pods,
            "activeDeadlineSeconds": round(wishes.limit_s), "ttlSecondsAfterFinished": _KEPT_S,
            "template": {"metadata": {"labels": _labels(wishes, part)}, "spec": pod},
        },
    }  # fmt: skip
