# SPDX-License-Identifier: Apache-2.0
"""Lists from Kubernetes manifests: each container of a pod, and of what makes pods, is an entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.image.documents import shown
from vmtailor.fleet.lists import dropped_keys, exercise_draft, list_exercises, list_text, manifest_schema, probes
from vmtailor.fleet.lists.exercise_draft import ExerciseDraft
from vmtailor.fleet.lists.list_text import ListText
from vmtailor.fleet.lists.manifest_schema import PODS
from vmtailor.fleet.lists.sizes import SizeError, cpus_of, memory_quantity
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm, Meaningless, ValueFrom, Variable
from vmtailor.model import architecture

#: Objects of List kinds in List kinds, at most.
_NESTED = 8
_POD_READ = frozenset({"containers", "restartPolicy", "terminationGracePeriodSeconds", "nodeSelector", "priority"})
_CONTAINER_READ = frozenset(
    {"name", "image", "command", "args", "env", "envFrom", "ports", "resources", "securityContext", "readinessProbe",
     "livenessProbe", "startupProbe"}
)  # fmt: skip
#: Labels of nodes that name their processor.
_ARCH = ("kubernetes.io/arch", "beta.kubernetes.io/arch")


@dataclass(frozen=True)
class _Found:
    """A container in a manifest. `path`: its object, kind, namespace, and place among the containers."""

    entry: FleetEntry
    kind: str
    namespace: str
    where: str


def read(whole: ListText, documents: list[Any]) -> FleetList:
    """Return the list in a file of manifests. Raises UserInputError for a manifest that Kubernetes would refuse, and
    for a container without an image."""
    found: list[_Found] = []
    others: dict[str, str] = {}
    objects = list(_objects(documents, whole.path, 0))
    owners = {uid for one in objects if isinstance(uid := _metadata(one).get("uid"), str)}
    for document in objects:
        named = f"{document.get('kind')} {_name(document)}"
        at = PODS.get((str(document.get("apiVersion")), str(document.get("kind"))))
        if at is None:
            others[_other(document, whole.path)] = "not one of the kinds that make pods"
        elif _is_owned(document, owners):
            others[f"{document['kind']}s of others"] = "the object that made them is in the file, too"
        else:
            manifest_schema.require_valid(document, f"{whole.path}: {named}")
            found += _containers(document, at, whole)
    list_text.require_few(len(found), whole.path)
    entries = tuple(_apart(found))
    places = [(entry.name, one.where) for entry, one in zip(entries, found, strict=True)]
    list_text.require_apart(places, whole.path)
    dropped = tuple(Meaningless(kind, why) for kind, why in sorted(others.items()))
    return FleetList(
        path=whole.path, form=ListForm.KUBERNETES, sha256=whole.sha256, entries=entries, no_meaning=dropped
    )


def values_of(documents: list[Any], entry: str, origin: str) -> dict[str, str]:
    """Return the values of the variables that manifests hold for an entry, by the words that say where it stands. They
    are for its container alone, never for a record, a log or a page."""
    for document in _objects(documents, origin, 0):
        at = PODS.get((str(document.get("apiVersion")), str(document.get("kind"))))
        for container in (_pod(document, at).get("containers") or []) if at is not None else []:
            if _where(document, container) == entry:
                rows = container.get("env") or []
                return {str(row["name"]): str(row["value"]) for row in rows if isinstance(row.get("value"), str)}
    return {}


def _objects(documents: list[Any], origin: str, depth: int) -> Iterator[dict[str, Any]]:
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise UserInputError(
                f"{origin}: document {number} has no kind, so it is no manifest", hint="vmtailor help fleet-list"
            )
        if str(document["kind"]).endswith("List") and isinstance(document.get("items"), list):
            if depth == _NESTED:
                raise UserInputError(f"{origin} has lists in lists in lists", hint="write it flatter")
            kind, version = str(document["kind"]).removesuffix("List"), document.get("apiVersion")
            items = [_typed(one, kind, version) for one in document["items"]]
            yield from _objects(items, origin, depth + 1)
        else:
            yield document


def _typed(item: Any, kind: str, version: Any) -> Any:
    """Return an item of a list; in a PodList and the like it need not say what it is."""
    if isinstance(item, dict) and kind and "kind" not in item:
        return {"apiVersion": version, "kind": kind, **item}
    return item


def _other(document: dict[str, Any], origin: str) -> str:
    """Return the kind of an object that makes no pods. Raises UserInputError for another version of one that does."""
    kind, version = str(document.get("kind")), document.get("apiVersion")
    known = next((one for one, name in PODS if name == kind), None)
    if known is not None:
        raise UserInputError(
            f"{origin}: {kind} {_name(document)} is of {shown(version, 40)}, not of {known}",
            hint="kubectl convert, or write the version that clusters have now",
        )
    if kind == "Kustomization":
        raise UserInputError(f"{origin} is a Kustomization, which is not read", hint="kubectl kustomize DIR > all.yaml")
    return plain(kind)[:60]


def _metadata(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _is_owned(document: dict[str, Any], owners: set[str]) -> bool:
    """Return whether an object was made by another one of the file, as the pods of a Deployment are."""
    references = _metadata(document).get("ownerReferences")
    return any(
        isinstance(one, dict) and one.get("uid") in owners
        for one in (references if isinstance(references, list) else [])
    )


def _name(document: dict[str, Any]) -> str:
    metadata = _metadata(document)
    found = metadata.get("name") or metadata.get("generateName")
    return plain(found)[:80] if isinstance(found, str) else "without a name"


def _pod(document: dict[str, Any], at: tuple[str, ...]) -> dict[str, Any]:
    inner: Any = document
    for key in (*at, "spec"):
        inner = (inner.get(key) if isinstance(inner, dict) else None) or {}
    return inner if isinstance(inner, dict) else {}


def _containers(document: dict[str, Any], at: tuple[str, ...], whole: ListText) -> Iterator[_Found]:
    pod, metadata = _pod(document, at), document.get("metadata") or {}
    containers = pod.get("containers") or []
    base = str(metadata.get("name") or metadata.get("generateName") or "pod").rstrip("-.")
    dropped = list(dropped_keys.of("kubernetes", "pod", pod, _POD_READ))
    for container in containers:
        name = base if len(containers) == 1 else f"{base}-{container.get('name')}"
        entry = _entry(name, container, pod, _where(document, container), whole)
        entry = replace(entry, no_meaning=(*dropped, *entry.no_meaning))
        yield _Found(entry, str(document["kind"]), str(metadata.get("namespace") or ""), entry.exercise_origin)


def _where(document: dict[str, Any], container: dict[str, Any]) -> str:
    namespace = (document.get("metadata") or {}).get("namespace")
    before = f"{plain(str(namespace))}/" if namespace else ""
    return f"{document['kind']} {before}{_name(document)}, container {plain(str(container.get('name')))[:80]}"


def _apart(found: list[_Found]) -> Iterator[FleetEntry]:
    """Yield the entries. Those of one name have their kind behind it, or their namespace before it, where that sets
    them apart."""
    counted = Counter(one.entry.name for one in found)
    spaces = Counter((one.namespace, one.entry.name) for one in found)
    for one in found:
        name = one.entry.name
        if counted[name] > 1:
            name = f"{one.namespace}-{name}" if spaces[one.namespace, name] == 1 and one.namespace else name
            name = f"{name}-{one.kind.lower()}" if spaces[one.namespace, one.entry.name] > 1 else name
        yield replace(one.entry, name=list_text.require_name(name[:100], one.where))


def _entry(name: str, container: dict[str, Any], pod: dict[str, Any], where: str, whole: ListText) -> FleetEntry:
    place = f"{whole.path}: {where}"
    image = container.get("image")
    if not isinstance(image, str) or not image:
        raise UserInputError(f"{place} has no image", hint="name one: a cluster has no other either")
    if "{{" in image:
        raise UserInputError(f"{place} is a template of Helm", hint="helm template CHART > all.yaml fills it in")
    reference = list_text.reference_of(image, whole.folder, place)
    dropped = list(dropped_keys.of("kubernetes", "container", container, _CONTAINER_READ))
    security = container.get("securityContext") or {}
    dropped += dropped_keys.of("kubernetes", "security", security, {"privileged"}, "securityContext.")
    ports = probes.ports_of(container, dropped)
    memory, cpus = _resources(container.get("resources") or {}, dropped)
    exercise = _exercise(container, pod, ports, dropped)
    list_exercises.require_sound(exercise, f"{place}, as an exercise")
    return FleetEntry(
        name=name,
        reference=reference,
        digest=list_text.digest_of(reference),
        exercise=exercise,
        exercise_origin=where,
        architecture=_architecture(pod, dropped),
        memory_bytes=memory,
        cpus=cpus,
        entrypoint=_words(container.get("command")),
        cmd=_words(container.get("args")),
        privileged=security.get("privileged") is True,
        environment=tuple(_variables(container)),
        ports=tuple(dict.fromkeys(ports.values())),
        no_meaning=tuple(dropped),
    )


def _words(value: Any) -> tuple[str, ...] | None:
    return tuple(str(word) for word in value) if value else None


def _exercise(container: dict[str, Any], pod: dict[str, Any], ports: dict[str, int], dropped: list[Meaningless]) -> str:
    if pod.get("restartPolicy") in ("Never", "OnFailure"):
        made = ExerciseDraft(ready={"kind": "exit"}, expect={"exit_code": 0})
    else:
        made = probes.draft(container, ports, dropped)
    grace = pod.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and not isinstance(grace, bool) and grace > 0:
        made.stop["timeout_s"] = min(float(grace), exercise_draft.LONGEST_S)
    return made.text()


def _resources(resources: dict[str, Any], dropped: list[Meaningless]) -> tuple[int | None, int | None]:
    """Return memory and processors: the limits, or else what is asked for."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    dropped += dropped_keys.of("kubernetes", "resources", resources, {"limits", "requests"}, "resources.")
    for key in dict.fromkeys((*limits, *requests)):
        if key not in ("memory", "cpu", "ephemeral-storage"):
            dropped.append(Meaningless(f"resources.{plain(str(key))[:60]}", "a fit has no devices of the host"))
    sizes: list[int | None] = []
    for key, read_ in (("memory", memory_quantity), ("cpu", cpus_of)):
        value = limits.get(key) or requests.get(key)
        try:
            sizes.append(None if value in (None, "", 0, "0") else read_(value))
        except SizeError as error:
            dropped.append(Meaningless(f"resources.{key}", str(error)))
            sizes.append(None)
    return sizes[0], sizes[1]


def _architecture(pod: dict[str, Any], dropped: list[Meaningless]) -> str:
    wanted = next((value for key in _ARCH if (value := (pod.get("nodeSelector") or {}).get(key))), "")
    row = architecture.of_image(str(wanted)) if wanted else None
    if wanted and row is None:
        dropped.append(Meaningless("nodeSelector", f"no machine is known for {shown(str(wanted), 40)}"))
    return row.name if row is not None else ""


#: Places of values that stand elsewhere, by the key that names them.
_SOURCES = {
    "secretKeyRef": ValueFrom.SECRET, "configMapKeyRef": ValueFrom.CONFIG_MAP, "fileKeyRef": ValueFrom.FILE,
    "fieldRef": ValueFrom.RUNNING, "resourceFieldRef": ValueFrom.RUNNING,
}  # fmt: skip


def _variables(container: dict[str, Any]) -> Iterator[Variable]:
    for row in container.get("env") or []:
        source, place, optional = ValueFrom.LIST, "", False
        for key, inner in (row.get("valueFrom") or {}).items():
            if key in _SOURCES and isinstance(inner, dict):
                source, optional = _SOURCES[key], inner.get("optional") is True
                name = inner.get("name") or inner.get("path") or inner.get("fieldPath") or inner.get("resource")
                place = f"{name}, key {inner['key']}" if "key" in inner else str(name)
        yield Variable(plain(str(row.get("name"))), source, plain(place)[:200], optional)
    for row in container.get("envFrom") or []:
        for key, source in (("secretRef", ValueFrom.SECRET), ("configMapRef", ValueFrom.CONFIG_MAP)):
            inner = row.get(key)
            if isinstance(inner, dict):
                name = f"{row.get('prefix') or ''}*"
                yield Variable(plain(name), source, plain(str(inner.get("name")))[:200], inner.get("optional") is True)
