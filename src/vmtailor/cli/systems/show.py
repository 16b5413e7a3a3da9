# SPDX-License-Identifier: Apache-2.0
"""`vmtailor show`: what a system with an init of its own consists of, without starting it."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.tables.subject_view import show as show_subject
from vmtailor.pipeline.systems import subjects


def show(
    subject: Annotated[
        str,
        typer.Argument(
            help="disk:FILE (raw or qcow2), rootfs:DIR, rootfs:ARCHIVE (a tar), an image whose entry point is an init, "
            "or a path."
        ),
    ],
    partition: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="The disk's partition that has the system, where several have one.",
            show_default=False,
        ),
    ] = None,
    init: Annotated[
        str, typer.Option(help="The init inside, where it is none of the usual places.", show_default=False)
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="Every unit and loader entry, not only the first ones.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what a system with an init of its own consists of: kernels, loader, mounts, init and units.

    Nothing of it is started, mounted or written, and no root is needed. What no machine could be fitted from (an
    unknown or encrypted file system, one that was not shut down, another processor, no kernel) is refused by name."""
    with subjects.opened(subject, Store(), partition=partition, init=init) as found:
        read = found.subject
    if json:
        output.json_bytes([records.to_bytes(read)])
    else:
        show_subject(read, TerminalConsole(), everything=all_)
