# SPDX-License-Identifier: Apache-2.0
"""`vmtailor push`: send a bundle to another host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vmtailor.base import figures, output
from vmtailor.base.cache.store import Store
from vmtailor.model.option import Option, Suggests


def push(
    bundles: Annotated[
        tuple[Path, ...],
        Option(name="BUNDLE", type=Path, many=True, help="Send these bundles: one, or one for each processor."),
    ],
    destination: Annotated[
        str,
        Option(
            name="DESTINATION",
            suggests=Suggests.ARTEFACTS,
            help="Send them to docker://HOST/NAME[:TAG], oci:DIR[:TAG] or oci-archive:FILE.",
        ),
    ],
    authfile: Annotated[
        Path | None,
        Option(name="--authfile", type=Path, help="Read the registry's credentials from this file."),
    ] = None,
) -> None:
    """Send a bundle to a registry, or into an OCI layout, and print its reference by digest.

    `vmtailor run` starts it from there. Several bundles, each for another processor, become one index. All files of
    the record go, and nothing that this host has added. Nothing is signed: a digest says which bundle, not whose."""
    from vmtailor.pipeline import bundle_artefact

    pushed = bundle_artefact.push(bundles, destination, authfile, Store())
    output.note(f"{figures.file_bytes(pushed.size_bytes)} as it travels")
    output.say(pushed.reference)
