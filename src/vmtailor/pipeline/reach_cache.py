# SPDX-License-Identifier: Apache-2.0
"""The reach of an image, cached. Each file is cached by its digest, so that a library that many images share is read
once. The whole is cached by the image, the files opened in it, and the kernel's names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.ksource import uapi
from vmtailor.analysis.ksource.facts import Facts, reader
from vmtailor.analysis.reach import contents, file_requests, image_reach
from vmtailor.analysis.reach.contents import Contents
from vmtailor.analysis.reach.file_requests import KernelNames
from vmtailor.base import notation
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.files import records
from vmtailor.drivers.image.flat_archive import FlatArchive
from vmtailor.model.architecture import Architecture
from vmtailor.model.image import Image
from vmtailor.model.reach import Reach
from vmtailor.model.trace import Trace
from vmtailor.pipeline import keys

#: Other names of families that programs use.
_FAMILIES = ("AF_LOCAL", "AF_FILE", "AF_ROUTE")


def names_of(facts: Facts, source: Path, architecture: Architecture) -> KernelNames:
    """Read the names of system calls, constants and socket families in a kernel's source. A tenth of a second."""
    read = reader(source)
    families = frozenset({f"AF_{name}" for name in facts.names.get("family", ())} | set(_FAMILIES))
    protocols = frozenset(facts.names.get("protocol", ()))
    netlink = frozenset(facts.names.get("netlink", ()))
    words = {word for rule in demand_rules.load(architecture=architecture).calls for word in rule.words} | families
    words |= {
        f"{kind}_{name}" for one in protocols for kind, name in zip(("SOCK", "IPPROTO"), one.split("/"), strict=False)
    }
    words |= {f"NETLINK_{name}" for name in netlink} | {"SOL_SOCKET", "IPPROTO_IP", "IPPROTO_IPV6", "IPPROTO_TCP"}
    calls = {call.number: call.name for call in uapi.read_table(read, architecture.calls)}
    return KernelNames(
        calls=calls,
        constants=uapi.constants(read, uapi.headers(source, architecture), words),
        families=families,
        protocols=protocols,
        netlink=netlink,
    )


def opened_in(trace: Trace) -> tuple[str, ...]:
    """Return the files that the container opened or executed."""
    return tuple(sorted({use.path for use in trace.files if use.opened > use.failed}))


def reach_of(
    image: Image, archive: FlatArchive, opened: Iterable[str], kernel: KernelNames, architecture: Architecture,
    store: Store | None = None,
) -> Reach:  # fmt: skip
    """Return the requests that an image could make. `opened`: paths in it that were opened or executed."""
    store = store or Store()
    paths = sorted(set(opened))
    rules = demand_rules.load(architecture=architecture)
    code = keys.code_of(image_reach.__name__)
    wanted = file_requests.wanted(rules, kernel.families)
    how = digest(code, architecture.name, repr(architecture.code), *sorted(wanted.words), *sorted(wanted.functions))
    key = digest(Reach.SCHEMA, how, image.archive_sha256, notation.encoded_json(image.config), *_listed(kernel), *paths)

    def read(path: str) -> Contents:
        if archive.content(path, most=2) == b"#!":
            return contents.read(archive.content(path, most=contents.SCRIPT_BYTES), architecture.code, wanted)
        data = archive.content(path)
        kind = digest(Contents.SCHEMA, how, hashlib.sha256(data).digest())

        def fill(folder: Path) -> None:
            records.save(contents.read(data, architecture.code, wanted), folder / "contents.json")

        return records.load(Contents, store.get("file-contents", kind, fill) / "contents.json")

    def fill(folder: Path) -> None:
        records.save(image_reach.find(archive, paths, image.config, kernel, rules, read), folder / "reach.json")

    return records.load(Reach, store.get("reach", key, fill) / "reach.json")


def _listed(kernel: KernelNames) -> list[str]:
    """Return all that a kernel's source says, in an order of its own."""
    tables = (kernel.calls, kernel.constants)
    sets = (kernel.families, kernel.protocols, kernel.netlink)
    return [*(repr(sorted(table.items())) for table in tables), *(repr(sorted(one)) for one in sets)]
