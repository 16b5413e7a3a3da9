# SPDX-License-Identifier: Apache-2.0
"""`vmtailor volume`: named volumes, as `docker volume` has them."""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import Annotated, Any

from vmtailor.base import figures, output
from vmtailor.base.errors import AnswerNo, UserInputError, VmtailorError
from vmtailor.base.terminal import Column, Table, TerminalConsole, box
from vmtailor.drivers.shares import volumes
from vmtailor.drivers.shares.volumes import USUAL_BYTES, VolumeState
from vmtailor.model.option import Option, Suggests
from vmtailor.model.option_rows import JSON
from vmtailor.model.option_values import parse_volume_size

VOLUME_SCHEMA = "vmtailor/volumes/1"


class VolumeAction(StrEnum):
    LS = "ls"
    CREATE = "create"
    INSPECT = "inspect"
    RM = "rm"


def volume(
    action: Annotated[
        VolumeAction, Option(name="ACTION", type=VolumeAction, help="Choose ls, create, inspect or rm, as in docker.")
    ],
    names: Annotated[
        tuple[str, ...], Option(name="NAME", many=True, suggests=Suggests.VOLUMES, help="Name these volumes.")
    ] = (),
    size: Annotated[
        int | None,
        Option(
            name="--size", read=parse_volume_size,
            help="Make a volume that may hold this much, such as 500M (16G). It takes space as it is written.",
        ),
    ] = None,
    labels: Annotated[
        tuple[str, ...], Option(name="--label", many=True, metavar="NAME=VALUE", help="Label the volume. Repeat it.")
    ] = (),
    force: Annotated[
        bool, Option(name="--force", type=bool, help="Skip volumes that do not exist.")
    ] = False,
    quiet: Annotated[bool, Option(name="--quiet", short="-q", type=bool, help="Print names alone.")] = False,
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """List, make, show or remove named volumes, which `run -v NAME:PATH` mounts.

    A volume is a disk with a file system of its own, kept until it is removed. One machine at a time may use it."""
    if action is not VolumeAction.CREATE and (size is not None or labels):
        raise UserInputError("--size and --label go with create", hint="leave them out")
    if action is VolumeAction.LS:
        _list(names, quiet, json)
    elif action is VolumeAction.CREATE:
        _create(names, USUAL_BYTES if size is None else size, labels)
    elif not names:
        raise UserInputError(f"volume {action} needs a name", hint="vmtailor volume ls names all volumes")
    elif action is VolumeAction.INSPECT:
        output.document([_row(volumes.state(name)) for name in names])
    else:
        _remove(names, force)


def _list(names: tuple[str, ...], quiet: bool, json: bool) -> None:
    if names:
        raise UserInputError("volume ls takes no name", hint="vmtailor volume inspect NAME")
    found = [volumes.state(name) for name in volumes.names()]
    if json:
        output.document({"schema": VOLUME_SCHEMA, "volumes": [_row(one) for one in found]})
    elif quiet:
        for one in found:
            output.say(one.volume.name)
    else:
        right = (Column("may hold", justify="right"), Column("takes", justify="right"))
        table = Table("name", "made", *right, "in use", box=box.SIMPLE_HEAD)
        for one in found:
            sizes = (figures.file_bytes(one.volume.size_bytes), figures.file_bytes(one.taken_bytes))
            table.add_row(one.volume.name, one.volume.created, *sizes, "yes" if one.in_use else "")
        TerminalConsole().print(table)


def _row(one: VolumeState) -> dict[str, Any]:
    return {
        "Name": one.volume.name,
        "Driver": "local",
        "Scope": "local",
        "CreatedAt": one.volume.created,
        "Labels": dict(one.volume.labels),
        "Mountpoint": str(one.path),
        "Size": one.volume.size_bytes,
        "Taken": one.taken_bytes,
        "InUse": one.in_use,
    }


def _create(names: tuple[str, ...], size_bytes: int, labels: tuple[str, ...]) -> None:
    if len(names) > 1:
        raise UserInputError("volume create takes one name", hint="repeat the command")
    pairs = tuple((name, value) for name, _, value in (label.partition("=") for label in labels))
    if any(not name for name, _ in pairs):
        raise UserInputError("a label has no name", hint="write it as NAME=VALUE")
    name = names[0] if names else secrets.token_hex(32)
    volumes.create(name, size_bytes, pairs)
    output.say(name)


def _remove(names: tuple[str, ...], force: bool) -> None:
    wrong: list[VmtailorError] = []
    for name in names:
        if force and name not in volumes.names():
            continue
        try:
            volumes.remove(name)
        except (AnswerNo, UserInputError) as error:
            wrong.append(error)
        else:
            output.say(name)
    if wrong:
        raise AnswerNo("; ".join(error.message for error in wrong), hint=wrong[0].hint)
