# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet list`: what a list says, entry by entry, and what of it has no meaning."""

from __future__ import annotations

import tomllib
from pathlib import Path

from vmtailor.base import notation, output
from vmtailor.base.files import records
from vmtailor.base.text import plural
from vmtailor.fleet.lists import lists
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm, ValueFrom, Variable
from vmtailor.model.margin import label

_FORMS = {
    ListForm.TOML: "a list in TOML", ListForm.LINES: "a reference a line", ListForm.COMPOSE: "a resolved Compose file",
    ListForm.KUBERNETES: "Kubernetes manifests",
}  # fmt: skip
_BY_IMAGE = "as its image says"
#: Steps, and names of entries, that one line shows.
_MOST = 3


def show(path: Path, *, json: bool) -> None:
    """Print a list. Raises UserInputError for one that makes no sense."""
    found = lists.read(path)
    if json:
        output.document(notation.decoded_json(records.to_bytes(found)))
        return
    output.say(f"{found.path}: {_FORMS[found.form]}, {plural(len(found.entries), 'image')}")
    for one in found.entries:
        for line in _said(one):
            output.say(line)
    for line in _left_out(found):
        output.say(line)


def _said(entry: FleetEntry) -> list[str]:
    """Return the lines of an entry, the first with its name."""
    ready, load = driven(entry)
    memory = [] if entry.memory_bytes is None else [notation.size_text(entry.memory_bytes)]
    cpus = [] if entry.cpus is None else [plural(entry.cpus, "CPU")]
    machine = [one for one in (entry.architecture, entry.machine, *memory, *cpus) if one]
    parts = {
        "ready": ready,
        "load": load,
        "machine": ", ".join(machine),
        "margins": "" if entry.margins is None else label(entry.margins),
        "limit": "" if entry.limit_s is None else f"{entry.limit_s:g} s",
        "environment": ", ".join(_variable(one) for one in entry.environment),
        "secrets": ", ".join(entry.secrets),
    }
    return [f"{entry.name}: {entry.pinned}", *(f"  {key}: {text}" for key, text in parts.items() if text)]


def driven(entry: FleetEntry) -> tuple[str, str]:
    """Return when an entry's container counts as ready, and its load, in a few words; empty for no load."""
    if not entry.exercise:
        return _BY_IMAGE, ""
    document = tomllib.loads(entry.exercise)
    ready, load = document.get("ready", {}), document.get("load", [])
    kinds = ", ".join(_step(step) for step in load[:_MOST])
    more = f" and {len(load) - _MOST} more" if len(load) > _MOST else ""
    return _step(ready) if ready else _BY_IMAGE, f"{kinds}{more}"


def _step(step: dict[str, object]) -> str:
    kind, port = str(step.get("kind", "")), f" :{step['port']}" if "port" in step else ""
    argv = step.get("argv")
    words = " " + " ".join(str(word) for word in argv)[:40] if isinstance(argv, list) else ""
    return f"{kind}{port}{step.get('path', '')}{words}"


def _variable(one: Variable) -> str:
    if one.source is ValueFrom.LIST:
        return one.name
    if one.source is ValueFrom.RUNNING:
        return f"{one.name} ({one.place}, known once it runs)"
    return f"{one.name} ({one.source.value} {one.place})" if one.place else f"{one.name} ({one.source.value})"


def _left_out(found: FleetList) -> list[str]:
    """Return what has no meaning for a fit, a line for each key, with the entries that have it."""
    named: dict[tuple[str, str], list[str]] = {}
    for one in found.entries:
        for part in one.no_meaning:
            named.setdefault((part.key, part.why), []).append(one.name)
    lines = [f"  {part.key}: {part.why}" for part in found.no_meaning]
    for (key, why), names in named.items():
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        lines.append(f"  {key}: {why} ({', '.join(names[:_MOST])}{more})")
    return ["Without meaning for a fit:", *lines] if lines else []
