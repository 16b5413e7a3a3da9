# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet`: many images on many machines."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.fleet.cli import list_command
from vmtailor.fleet.model import addresses
from vmtailor.fleet.run import certificates as certificate_files
from vmtailor.fleet.run import engine_extra, scheduler
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON


class FleetAction(StrEnum):
    LIST = "list"
    CERTIFICATES = "certificates"
    SCHEDULER = "scheduler"


#: The options that each action takes, beside WHAT.
TAKES: dict[FleetAction, frozenset[str]] = {
    FleetAction.LIST: frozenset({"--json"}),
    FleetAction.CERTIFICATES: frozenset(),
    FleetAction.SCHEDULER: frozenset({"--listen", "--certificates"}),
}


def fleet(
    action: Annotated[
        FleetAction, Option(name="ACTION", type=FleetAction, help="Choose list, certificates or scheduler.")
    ],
    what: Annotated[
        str | None,
        Option(name="WHAT", help="With list, the list of images; with certificates, the folder that they go to."),
    ] = None,
    listen: Annotated[
        str, Option(name="--listen", metavar="ADDRESS", help="Listen here. Default: tls://127.0.0.1:8786.")
    ] = "",
    certificates: Annotated[
        Path | None,
        Option(name="--certificates", type=Path, metavar="DIR", help="Prove who we are by this fleet's certificates."),
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """Fit many images on many machines, and keep their bundles up to date."""
    engine_extra.require()
    given = {"--listen": bool(listen), "--certificates": certificates is not None, "--json": json}
    for name, is_given in given.items():
        if is_given and name not in TAKES[action]:
            raise UserInputError(f"fleet {action} has no {name}", hint="leave it out")
    if action is FleetAction.LIST:
        list_command.show(Path(_required(action, what, "a list of images")), json=json)
    elif action is FleetAction.CERTIFICATES:
        made = certificate_files.make(Path(_required(action, what, "a folder")))
        output.say(
            f"{made.folder}: good until {certificate_files.ends(made.folder):%Y-%m-%d}; keep ca-key.pem to yourself"
        )
    else:
        if what:
            raise UserInputError("fleet scheduler takes no WHAT", hint="--listen says where it listens")
        at = addresses.parse(listen or addresses.Address(addresses.LOOPBACK).text)
        if certificates is None:
            raise UserInputError("fleet scheduler needs --certificates", hint="vmtailor fleet certificates DIR")
        scheduler.serve(at, certificate_files.found(certificates), output.say)


def _required(action: FleetAction, what: str | None, thing: str) -> str:
    if not what:
        raise UserInputError(f"fleet {action} needs {thing}", hint="vmtailor fleet --help")
    return what
