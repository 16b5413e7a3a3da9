# SPDX-License-Identifier: Apache-2.0
"""A list of any form, told by its content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.fleet.lists import compose_list, kubernetes_list, line_list, list_text, toml_list, yaml_text
from vmtailor.fleet.lists.list_text import ListText
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm

#: Lines that only one form has; the first that is found decides.
_SIGNS = re.compile(
    r"^(?:"
    r"(?P<toml>[ \t]{0,20}\[{1,2}[A-Za-z0-9_. -]{1,80}\]|[ \t]{0,20}[A-Za-z_][A-Za-z0-9_.-]{0,80}[ \t]{0,20}=)"
    r"|(?P<yaml>(?:- )?[\"']?[A-Za-z][A-Za-z0-9_.-]{0,80}[\"']?[ \t]{0,20}:(?:[ \t\r]|$)|---|%YAML|\{)"
    r")",
    re.MULTILINE,
)
#: Signs of a template of Helm, which no manifest has.
_HELM = re.compile(
    r"\{\{-?[ \t]{0,20}(?:\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|include |template |define )"
)
_HELM_ACTION = re.compile(r"\{\{-?[ \t]{0,20}(?:if|range|with|end|else|toYaml|tpl|\$|\.|/\*)")


def read(path: Path) -> FleetList:
    """Return a list of any form. Raises UserInputError: it cannot be read, or something in it makes no sense."""
    whole = list_text.read(path)
    match form_of(whole):
        case ListForm.TOML:
            return toml_list.read(whole)
        case ListForm.LINES:
            return line_list.read(whole)
        case _:
            documents = _documents(whole)
            if _is_compose(documents):
                return compose_list.read(whole, documents)
            return kubernetes_list.read(whole, documents)


def values_of(found: FleetList, entry: FleetEntry) -> dict[str, str]:
    """Return the values of the variables that a list's own file holds for an entry. They are for its container alone,
    never for a record, a log or a page. Raises UserInputError where the file is not what it was when it was read."""
    whole = list_text.read(Path(found.path))
    if whole.sha256 != found.sha256:
        raise UserInputError(f"{found.path} has changed since it was read", hint="give the command again")
    match found.form:
        case ListForm.LINES:
            return {}
        case ListForm.TOML:
            return toml_list.values_of(whole, found.entries.index(entry))
        case ListForm.COMPOSE:
            return compose_list.values_of(_documents(whole), entry.name)
        case ListForm.KUBERNETES:
            return kubernetes_list.values_of(_documents(whole), entry.exercise_origin, found.path)


def form_of(whole: ListText) -> ListForm:
    """Return the form of a list by its content; a YAML file counts as manifests until its documents are read. Where
    nothing tells, the ending of the file's name does."""
    if match := _SIGNS.search(whole.text):
        return ListForm.TOML if match["toml"] else ListForm.KUBERNETES
    ending = Path(whole.path).suffix.lower()
    return {".toml": ListForm.TOML, ".yaml": ListForm.KUBERNETES, ".yml": ListForm.KUBERNETES}.get(
        ending, ListForm.LINES
    )


def _documents(whole: ListText) -> list[Any]:
    helm = UserInputError(f"{whole.path} is a template of Helm", hint="helm template CHART > all.yaml fills it in")
    if _HELM.search(whole.text):
        raise helm
    try:
        return yaml_text.documents(whole.text, whole.path)
    except UserInputError:
        if _HELM_ACTION.search(whole.text):
            raise helm from None
        raise


def _is_compose(documents: list[Any]) -> bool:
    return any(
        isinstance(one, dict) and "kind" not in one and ("services" in one or "include" in one) for one in documents
    )
