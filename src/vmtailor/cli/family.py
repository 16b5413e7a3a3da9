# SPDX-License-Identifier: Apache-2.0
"""`vmtailor family`: kernels on which any image starts."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from vmtailor.base import figures, output
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import Column, Table, TerminalConsole, box
from vmtailor.drivers.host import bundle_folder, family_kernels
from vmtailor.drivers.host.family_kernels import Family
from vmtailor.drivers.image import image_reference
from vmtailor.model import architecture
from vmtailor.model.option import Option, Suggests
from vmtailor.model.option_rows import CPUS, DROP, JSON, KEEP, KERNEL, OUT
from vmtailor.pipeline import family_artefact, family_build, image_bundle, image_run
from vmtailor.pipeline.family_build import FamilyWishes

FAMILY_SCHEMA = "vmtailor/families/1"


class FamilyAction(StrEnum):
    BUILD = "build"
    LS = "ls"
    SHOW = "show"


def family(
    action: Annotated[
        FamilyAction, Option(name="ACTION", type=FamilyAction, help="Choose build, ls or show.")
    ],
    names: Annotated[
        tuple[str, ...],
        Option(
            name="NAME", many=True, suggests=Suggests.ARTEFACTS,
            help="With build, take the kernels of these bundles, and compile nothing; with show, show these: oci:DIR, "
            "docker://NAME, or a bundle's folder.",
        ),
    ] = (),
    arch: Annotated[
        tuple[str, ...],
        Option(
            name="--arch", many=True, commas=True, suggests=architecture.names(),
            help=f"Make or show the kernel for this processor ({', '.join(architecture.names())}; this host's). "
            "Repeat it, or join names by commas.",
        ),
    ] = (),
    out: Annotated[
        Path | None,
        replace(
            OUT, metavar="REFERENCE", suggests=Suggests.ARTEFACTS,
            help="Write the kernels there: oci:DIR, or docker://NAME.",
        ),
    ] = None,
    keep: Annotated[tuple[str, ...], KEEP] = (),
    drop: Annotated[tuple[str, ...], DROP] = (),
    cpus: Annotated[int, CPUS] = 1,
    kernel: Annotated[str | None, KERNEL] = None,
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """Make a family kernel, which starts any image without a fit, or show those in the cache.

    It has what the margin `server` keeps, and what `run -v` needs. It is compiled once, in some minutes, and kept in
    the cache, where `run IMAGE` finds it; --out also writes it to where other hosts can get it."""
    if action is not FamilyAction.BUILD and (out or keep or drop or kernel or cpus != 1):
        raise UserInputError(f"family {action} makes no kernel, and takes none of its options", hint="leave them out")
    store = Store()
    if action is FamilyAction.BUILD:
        if names and (arch or keep or drop or kernel or cpus != 1):
            raise UserInputError("a bundle's kernel is taken as it is", hint="leave --arch and the like out, or NAME")
        wishes = FamilyWishes(keep=keep, drop=drop, cpus=cpus, kernel=kernel, store=store)
        _build(names, arch, "" if out is None else image_reference.text_of(out), wishes, json=json)
    elif action is FamilyAction.SHOW:
        if not names:
            raise UserInputError("family show needs a name", hint="vmtailor family ls lists those in the cache")
        _document([_named(name, arch, store) for name in names])
    else:
        _list(names, arch, store, json=json)


def _build(names: tuple[str, ...], arch: tuple[str, ...], out: str, wishes: FamilyWishes, *, json: bool) -> None:
    to = family_artefact.require_place(out) if out else None
    processors = arch or (architecture.of_host().name,)
    rows = [architecture.named(one).name for one in processors]  # before anything long begins
    if names:
        made = [image_bundle.of_bundle(bundle_folder.load_container(Path(name)), wishes.store) for name in names]
    else:
        made = [family_build.made(one, wishes) for one in rows]
    if len({one.record.architecture for one in made}) != len(made):
        raise UserInputError("two kernels are for the same processor", hint="name one for each")
    reference = family_artefact.put(made, to, wishes.store) if to is not None else ""
    if json:
        _document(made, reference.rpartition("@")[2])
        return
    for one in made:
        output.say(f"{one.record.architecture}: {_size(one)}, Linux {one.record.kernel_version}")
    output.say(reference or "in the cache: vmtailor run IMAGE finds it")


def _named(name: str, arch: tuple[str, ...], store: Store) -> Family:
    return image_run.named_family(name, arch[0] if arch else architecture.of_host().name, store)


def _list(names: tuple[str, ...], arch: tuple[str, ...], store: Store, *, json: bool) -> None:
    if names:
        raise UserInputError("family ls takes no name", hint="vmtailor family show NAME")
    found = [one for one in family_kernels.every(store) if not arch or one.record.architecture in arch]
    if json:
        _document(found)
        return
    numbers = (Column("size", justify="right"), Column("CPUs", justify="right"))
    table = Table("kernel", "processor", "Linux", *numbers, "made for", box=box.SIMPLE_HEAD)
    for one in found:
        said = one.record
        columns = (said.architecture, said.kernel_version, _size(one), str(said.cpus))
        table.add_row(one.key[:12], *columns, said.made_for or "any image")
    TerminalConsole().print(table)


def _size(one: Family) -> str:
    return figures.file_bytes(next(file.bytes for file in one.record.files if file.name == one.record.kernel))


def _document(found: list[Family], digest: str = "") -> None:
    kernels: list[dict[str, Any]] = [
        {"key": one.key, "folder": str(one.folder), **json_text.loads(records.to_bytes(one.record))} for one in found
    ]
    output.document({"schema": FAMILY_SCHEMA, **({"digest": digest} if digest else {}), "kernels": kernels})
