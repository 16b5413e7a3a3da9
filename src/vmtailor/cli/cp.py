# SPDX-License-Identifier: Apache-2.0
"""`vmtailor cp`: files between the host and a named machine."""

from __future__ import annotations

import sys
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host.machine_folders import MachineFolders
from vmtailor.model.option import Option, Suggests
from vmtailor.pipeline import machine_copy
from vmtailor.pipeline.machine_copy import STREAM, CopyWishes


def cp(
    source: Annotated[
        str,
        Option(
            name="SOURCE", suggests=Suggests.COPIES, help="Copy this: NAME:PATH, a path of the host, or - for a tar."
        ),
    ],
    target: Annotated[
        str,
        Option(
            name="TARGET",
            suggests=Suggests.COPIES,
            help="Copy it there: NAME:PATH, a path of the host, or - for a tar.",
        ),
    ],
    owners: Annotated[
        bool, Option(name="--archive", short="-a", type=bool, help="Keep the numbers of users and groups.")
    ] = False,
    follow: Annotated[
        bool, Option(name="--follow-link", short="-L", type=bool, help="Follow a link that is the source.")
    ] = False,
    quiet: Annotated[
        bool, Option(name="--quiet", short="-q", type=bool, help="Do not tell what was left out.")
    ] = False,
) -> None:
    """Copy files out of a named machine that runs, or into it.

    A folder goes into a target that is a folder, under its own name; SOURCE/. copies what is in it. Of what comes out
    of a machine, devices, set-user-ID bits, and links that lead out of the copy are left out."""
    if target == STREAM and sys.stdout.isatty():
        raise UserInputError("a tar is not for a terminal", hint="vmtailor cp NAME:PATH - > FILE.tar")
    told = machine_copy.copy(source, target, CopyWishes(owners=owners, follow=follow), MachineFolders())
    if told and not quiet:
        output.note(told)
