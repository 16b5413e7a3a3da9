# SPDX-License-Identifier: Apache-2.0
"""`vmtailor ps`: list named machines."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.cli.tables import column_lines, machine_rows
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.model.kept_machine import MachineState
from vmtailor.model.option import Option
from vmtailor.model.option_rows import FORMAT, NO_TRUNC

_STATUSES = ("created", "running", "restarting", "exited", "dead")
_HEALTH = ("starting", "healthy", "unhealthy", "none")
_SHOWN = 60


def _filters(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return filters as KEY=VALUE pairs. Raises UserInputError."""
    found = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key not in _TESTS:
            raise UserInputError(
                f"--filter: '{text[:_SHOWN]}' is not a filter", hint=f"{', '.join(_TESTS)}; such as status=running"
            )
        known = {"status": _STATUSES, "health": _HEALTH}.get(key, (value,))
        if value not in known:
            raise UserInputError(f"--filter: no {key} is '{value[:_SHOWN]}'", hint=f"one of {', '.join(known)}")
        found.append((key, value))
    return tuple(found)


def _is_named(folder: MachineFolder, value: str) -> bool:
    # As in docker, a part of the name; patterns of one's own would have to be bounded.
    return re.sub(r"^\^?/?|\$$", "", value) in folder.record.name


def _is_labelled(folder: MachineFolder, value: str) -> bool:
    key, equals, wanted = value.partition("=")
    labels = dict(folder.record.labels)
    return key in labels and (not equals or labels[key] == wanted)


_TESTS: dict[str, Callable[[MachineFolder, MachineState, str], bool]] = {
    "id": lambda folder, _, value: folder.record.id.startswith(value),
    "name": lambda folder, _, value: _is_named(folder, value),
    "label": lambda folder, _, value: _is_labelled(folder, value),
    "status": lambda _, state, value: machine_rows.status_word(state) == value,
    "health": lambda _, state, value: state.health == value,
    "exited": lambda _, state, value: not state.running and value == str(state.exit_code),
    "ancestor": lambda folder, _, value: value in (folder.record.image, folder.record.image_digest),
}


def _passes(folder: MachineFolder, state: MachineState, filters: Sequence[tuple[str, str]]) -> bool:
    """Return whether a machine is wanted: of several filters with one key, one is enough; labels count all."""
    by_key: dict[str, list[bool]] = {}
    for key, value in filters:
        by_key.setdefault(key, []).append(_TESTS[key](folder, state, value))
    return all(all(found) if key == "label" else any(found) for key, found in by_key.items())


def ps(
    all_: Annotated[
        bool, Option(name="--all", short="-a", type=bool, help="List machines that do not run, too.")
    ] = False,
    quiet: Annotated[bool, Option(name="--quiet", short="-q", type=bool, help="Print identifiers alone.")] = False,
    filter_: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            name="--filter", short="-f", many=True, read=_filters, metavar="KEY=VALUE",
            suggests=("name=", "id=", "label=", "status=", "health=", "exited=", "ancestor="),
            help="List those that match: name, id, label, status, health, exited, ancestor. Repeat it for more.",
        ),
    ] = (),
    no_trunc: Annotated[bool, NO_TRUNC] = False,
    size: Annotated[
        bool, Option(name="--size", short="-s", type=bool, help="Show what the files that it wrote take of this disk.")
    ] = False,
    format_: Annotated[str, FORMAT] = "table",
) -> None:  # fmt: skip
    """List named machines: those that run, or all.

    A machine is named when it was started by `run -d`, or with `run --name`. One whose supervisor was killed is shown
    as exited with 137."""
    now_ns = time.time_ns()
    asked_status = any(key in ("status", "exited") for key, _ in filter_)
    rows = []
    for folder in MachineFolders().every():
        state = folder.state()
        if (all_ or asked_status or state.running) and _passes(folder, state, filter_):
            rows.append(machine_rows.row(folder, state, now_ns, whole=no_trunc))
    if quiet:
        for row in rows:
            output.say(row["ID"])
        return
    column_lines.show(rows, (*machine_rows.COLUMNS, *(("Size",) if size else ())), format_)
