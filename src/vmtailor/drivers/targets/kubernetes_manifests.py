# SPDX-License-Identifier: Apache-2.0
"""Manifests of Kubernetes: what its targets share. PyYAML writes them, so that no value can become another's key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.image_reference import image_name
from vmtailor.drivers.targets.target import Export

#: Where images are, in manifests of exports that name no registry.
NOWHERE = "registry.example"


def text(*documents: Mapping[str, Any]) -> str:
    """Return documents as one file of YAML, in the order of their keys."""
    # A part that stands twice would be written once, under a name.
    apart = [json.loads(json.dumps(one)) for one in documents]
    made: str = yaml.safe_dump_all(apart, sort_keys=False, explicit_start=len(apart) > 1, width=4096)
    return made


def image_of(export: Export) -> str:
    """Return where an export's image is pushed to. Raises UserInputError for what is no such place."""
    given = export.wishes.image
    if not given:
        return f"{NOWHERE}/{export.name}:latest"
    named = given.removeprefix("docker://")
    if "/" not in named or "@" in named or not named.isascii() or not image_name(named):
        raise UserInputError(
            f"'{given[:80]}' is no place for an image in a registry", hint="--image REGISTRY/NAME:TAG, without a digest"
        )
    return named if ":" in named.rpartition("/")[2] else f"{named}:latest"


def image_note(export: Export) -> str:
    """Return the note that says where the image is, and how another place is named."""
    image = image_of(export)
    more = "" if export.wishes.image else " That is only an example: export again with `--image REGISTRY/NAME:TAG`."
    return f"- The manifest takes the image from `{image}`.{more}"


def push(export: Export) -> str:
    """Return the command that pushes the layout `image` to its place."""
    return f"skopeo copy oci:image:latest docker://{image_of(export)}"


def quantity(memory_bytes: int) -> str:
    """Return an amount of memory as Kubernetes writes it."""
    mebibytes, rest = divmod(memory_bytes, 1 << 20)
    return f"{mebibytes}Mi" if rest == 0 else str(memory_bytes)


def metadata(export: Export) -> dict[str, Any]:
    """Return the metadata of an object of the export's name."""
    return {"name": export.name, "labels": {"app": export.name}}


def ports(export: Export) -> list[dict[str, Any]]:
    """Return the ports of the guest, as a container's manifest lists them."""
    return [{"containerPort": one.guest_port, "protocol": one.protocol.upper()} for one in export.machine.ports]


def plain_word(word: str) -> bool:
    """Return whether a word of the kernel's is NAME=VALUE in printable ASCII, without blanks and quotes."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}=[!#-&(-~]{0,500}", word) is not None
