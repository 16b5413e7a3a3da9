# SPDX-License-Identifier: Apache-2.0
"""Manifests of Kubernetes held against its own schemas, which a library carries: no cluster is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import jsonschema
from kubernetes_validate import utils
from referencing import Registry, Resource

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.image.documents import shown
from vmtailor.fleet.lists import near_keys

#: The version of Kubernetes whose schemas are used: the newest that the library has.
VERSION: str = utils.latest_version()
#: Kinds that make pods, each with its `apiVersion`, and where the pod stands in it. The library makes a file's name of
#: both texts, so that nothing else is given to it.
PODS: dict[tuple[str, str], tuple[str, ...]] = {
    ("v1", "Pod"): (),
    ("v1", "PodTemplate"): ("template",),
    ("v1", "ReplicationController"): ("spec", "template"),
    ("apps/v1", "Deployment"): ("spec", "template"),
    ("apps/v1", "ReplicaSet"): ("spec", "template"),
    ("apps/v1", "StatefulSet"): ("spec", "template"),
    ("apps/v1", "DaemonSet"): ("spec", "template"),
    ("batch/v1", "Job"): ("spec", "template"),
    ("batch/v1", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}  # fmt: skip
_HINT = "kubectl apply --dry-run=server -f FILE asks your cluster"


def require_valid(document: dict[str, Any], where: str) -> None:
    """Raise UserInputError for a manifest of a kind in PODS that Kubernetes would refuse. The message names the place
    and never the value, which may be a secret."""
    assert (document.get("apiVersion"), document.get("kind")) in PODS
    error = next(_validator(document["kind"], document["apiVersion"]).iter_errors(document), None)
    if error is not None:
        raise UserInputError(f"{where}: {_place(error.absolute_path)}{_said(error)}", hint=_HINT)
    for path in _nothing(document, ()):
        raise UserInputError(f"{where}: {_place(path)}is an item of a list, and is nothing", hint=_HINT)


def _nothing(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of items of lists that are nothing: schemas allow them, and they have no meaning."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if inner is None and isinstance(value, list):
            yield (*path, key)
        elif isinstance(inner, dict | list):
            yield from _nothing(inner, (*path, key))


@cache
def _validator(kind: str, version: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a kind; the library's own function reads the schema from its file for each object."""
    folder = f"kubernetes-json-schema/v{VERSION}-local-strict"
    schema = utils.schema_contents(f"{folder}/{kind.lower()}-{version.replace('/', '-')}.json", VERSION)
    shared = utils.schema_contents(f"{folder}/_definitions.json", VERSION)
    registry = Resource.from_contents(shared) @ (Resource.from_contents(schema) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


def _place(path: Iterable[str | int]) -> str:
    words = "".join(f"[{one}]" if isinstance(one, int) else f".{plain(str(one))[:60]}" for one in path)
    return words.lstrip(".") + " " if words else ""


def _said(error: jsonschema.ValidationError) -> str:
    rule, asked = error.validator, error.validator_value
    if rule == "additionalProperties" and isinstance(error.instance, dict):
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        return near_keys.unknown(error.instance, known)
    if rule == "required" and isinstance(error.instance, dict):
        missing = [str(one) for one in asked if one not in error.instance]
        return f"has no {' and no '.join(missing)}"
    if rule == "type":
        kinds = [asked] if isinstance(asked, str) else [one for one in asked if one != "null"]
        return f"must be {' or '.join(kinds)}, and is {_kind(error.instance)}"
    return f"breaks the rule {rule} of Kubernetes {VERSION}"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    named = {str: "a text", int: "a number", float: "a number", dict: "a table", list: "a list", type(None): "nothing"}
    return named.get(type(value), shown(type(value).__name__, 20))
