# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot`: choose the kind of boot from the options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.cli.boots.boot_bundle import boot_bundle
from vmtailor.cli.boots.boot_machine import boot_machine, boot_system
from vmtailor.cli.boots.boot_requests import boot_requests
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.image import image_reference
from vmtailor.pipeline import bundle_reference
from vmtailor.pipeline.options import BootOptions
from vmtailor.pipeline.systems.subjects import DISK


def boot(asked: BootOptions) -> None:
    """Boot a machine N times, from the start of QEMU to a ready signal, and show where the time goes.

    A guest that panics or never gets ready is a result: it is shown with its console, and the exit code is 5."""
    if asked.exercise is not None and not (asked.subject is not None and bundle_folder.is_bundle(asked.subject)):
        boot_system(asked, asked.exercise)
        return
    if asked.subject is not None and str(asked.subject).startswith(DISK):
        asked = replace(asked, subject=Path(str(asked.subject).removeprefix(DISK)))
    if asked.subject is not None and asked.requests is None:
        asked = replace(asked, subject=bundle_reference.local(asked.subject))
    if asked.subject is not None and not asked.subject.is_file() and not bundle_folder.is_bundle(asked.subject):
        error = image_reference.instead_of_bundle(asked.subject)
        if error is not None:
            raise error
    if asked.subject is not None and bundle_folder.is_bundle(asked.subject):
        boot_bundle(asked, asked.subject)
    elif asked.requests is not None:
        boot_requests(asked, asked.requests)
    else:
        boot_machine(asked)
