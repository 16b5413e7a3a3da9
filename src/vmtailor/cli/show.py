# SPDX-License-Identifier: Apache-2.0
"""`vmtailor show`: show the parts of a system with an init of its own, without starting it."""

from __future__ import annotations

from typing import Annotated

from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.tables.subject_view import show as show_subject
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON, PARTITION
from vmtailor.pipeline.systems import subjects


def show(
    subject: Annotated[
        str,
        Option(
            name="SUBJECT",
            help="Show disk:FILE (raw or qcow2), rootfs:DIR, rootfs:ARCHIVE (a tar), an image whose entry point is an "
            "init, or a path.",
        ),
    ],
    partition: Annotated[int | None, PARTITION] = None,
    init: Annotated[
        str,
        Option(name="--init-path", former=("--init",), help="Take this for its init, where it is in no usual place."),
    ] = "",
    all_: Annotated[
        bool, Option(name="--all", type=bool, help="Show every unit and loader entry, not only the first ones.")
    ] = False,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Show what a system with an init of its own consists of: kernels, loader, mounts, init and units.

    Nothing is started, mounted or written, and root is not needed. A system that cannot be fitted is refused with the
    reason: an unknown or encrypted file system, one that was not shut down, another processor, no kernel."""
    with subjects.opened(subject, Store(), partition=partition, init=init) as found:
        read = found.subject
    if json:
        output.json_bytes([records.to_bytes(read)])
    else:
        show_subject(read, TerminalConsole(), everything=all_)
