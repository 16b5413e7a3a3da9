# SPDX-License-Identifier: Apache-2.0
"""`vmtailor install`: a fitted kernel beside the kernels of a system's disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.model.option import Option


def install(
    bundle: Annotated[Path, Option(name="BUNDLE", type=Path, help="Install the kernel of this bundle of a system.")],
    into: Annotated[
        Path | None,
        Option(name="--into", type=Path, metavar="DISK", help="Read this disk, which stays as it is: raw or qcow2."),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            name="--out", short="-o", former=("--output",), type=Path, metavar="FILE",
            help="Write the new disk to this file.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Write a copy of a system's disk with a bundle's kernel and a boot entry beside the old ones.

    The disk's own loader starts the new entry, and comes back to the old one where that fails. Refused while the disk
    is mounted or a machine runs from it."""
    from vmtailor.base.errors import UserInputError
    from vmtailor.pipeline import bundle_install, bundle_reference

    if into is None or out is None:
        missing = "--into DISK" if into is None else "-o FILE"
        raise UserInputError(f"install needs {missing}", hint="vmtailor install BUNDLE --into DISK -o FILE")
    done = bundle_install.install(bundle_reference.local(bundle), into, out, Store())
    for one in done.written:
        output.note(f"wrote {', '.join(one.files)} in {one.where}")
    output.note(done.fallback)
    if done.keep:
        output.note(f"to keep the new entry, run in the system: {done.keep}")
    output.say(str(done.disk))
