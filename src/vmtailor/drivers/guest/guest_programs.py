# SPDX-License-Identifier: Apache-2.0
"""The compiled guest programs of a machine's processor."""

from __future__ import annotations

from vmtailor.base import natives
from vmtailor.base.natives import Natives
from vmtailor.model.architecture import named


def of(architecture: str) -> Natives:
    """Return the native parts for machines of an architecture, by its name.

    Raises HostError when the guest programs are not there and cannot be compiled, with what to install."""
    family = named(architecture)
    if family.is_host:
        return natives.locate()
    return natives.for_guests(family.name, f"{family.kernel.cross}gcc", family.kernel.cross_packages)
