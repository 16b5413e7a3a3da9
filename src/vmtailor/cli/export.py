# SPDX-License-Identifier: Apache-2.0
"""`vmtailor export`: a bundle's machine for other programs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.model.option import Option, Suggests
from vmtailor.model.option_rows import CPUS, MEMORY
from vmtailor.pipeline import bundle_export, bundle_reference, run_ports


def export(
    bundle: Annotated[Path, Option(name="BUNDLE", type=Path, help="Export this bundle.")],
    command: Annotated[
        tuple[str, ...],
        Option(name="COMMAND", many=True, help="Start this in place of the image's own command."),
    ] = (),
    to: Annotated[
        str,
        Option(
            name="--to", metavar="TARGET", suggests=Suggests.TARGETS,
            help="Write it for this target, or this variant of it: NAME or NAME:VARIANT.",
        ),
    ] = "",
    out: Annotated[
        Path | None,
        Option(name="--out", short="-o", type=Path, help="Write the files to this folder. Default: NAME-TARGET."),
    ] = None,
    name: Annotated[str, Option(name="--name", help="Call the machine so. Default: the bundle's name.")] = "",
    memory: Annotated[int | None, MEMORY] = None,
    cpus: Annotated[int | None, CPUS] = None,
    publish: Annotated[
        tuple[str, ...],
        Option(
            name="--publish", short="-p", many=True,
            help="Publish a port where the target can: [ADDRESS:]HOST:GUEST. Repeat it. Default: those that the image "
            "exposes.",
        ),
    ] = (),
    env: Annotated[
        tuple[str, ...],
        Option(name="--env", short="-e", many=True, help="Set a variable of the container: NAME=VALUE. Repeat it."),
    ] = (),
    outbound: Annotated[
        bool,
        Option(name="--outbound", type=bool, help="Let the guest open connections to the world, where a target asks."),
    ] = False,
    tap: Annotated[str, Option(name="--tap", help="Use this TAP device where the target takes one.")] = "tap0",
    address: Annotated[
        str,
        Option(
            name="--address", metavar="ADDRESS/PREFIX,GATEWAY[,DNS]",
            help="Give the guest this address, or `dhcp`. Default: the target's.",
        ),
    ] = "",
    image: Annotated[
        str,
        Option(
            name="--image", metavar="REGISTRY/NAME[:TAG]",
            help="Say in manifests that the image is there, where the target takes one.",
        ),
    ] = "",
    allow_patched: Annotated[
        tuple[str, ...],
        Option(
            name="--allow-patched", many=True, metavar="PATCH",
            help="Export a kernel with this patch of its source, which is unsafe. Repeat it for more.",
        ),
    ] = (),
) -> None:  # fmt: skip
    """Write a bundle's machine as files that start without vmtailor, with a README of two commands.

    A bundle whose kernel lacks what the target needs is refused, with the symbols and the command that adds them."""
    if not to:
        raise bundle_export.no_target()
    wishes = ExportWishes(
        name=name, memory_bytes=memory, cpus=cpus, ports=run_ports.parse_all(publish), outbound=outbound,
        tap=tap, address=address, env=env, command=command, image=image, patches=allow_patched,
    )  # fmt: skip
    done = bundle_export.export(bundle_reference.local(bundle), to, out, wishes, Store())
    output.note(f"wrote {done.folder} for {done.target.row.title}: {', '.join(done.files)}")
    for line in (f"cd {shlex.quote(str(done.folder))}", done.guide.first, done.guide.second):
        output.say(line)
