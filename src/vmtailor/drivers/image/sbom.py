# SPDX-License-Identifier: Apache-2.0
"""Make the bill of materials of a bundle, in CycloneDX, by the project's own library. Equal bundles give equal bytes:
the serial number is made from the digests, and the time stamp is fixed."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from vmtailor import __version__
from vmtailor.drivers.image.image_packages import InstalledPackage, Inventory

_NAMESPACE = uuid.UUID("3f0b1f6e-5d0b-5c39-9d1b-2a7c6f1d8e40")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class KernelPart:
    """The kernel of a bundle. `origin` says where its source is; digests are hex SHA-256."""

    version: str
    origin: tuple[str, ...]
    sha256: str
    config_sha256: str


@dataclass(frozen=True)
class FilePart:
    """A program or file of our own in the bundle."""

    name: str
    sha256: str


def document(
    *,
    name: str,
    image_reference: str,
    image_digest: str,
    kernel: KernelPart,
    own: Sequence[FilePart],
    inventory: Inventory,
) -> bytes:
    """Return the CycloneDX 1.6 document as JSON, indented, with a line feed at its end."""
    components = [
        _kernel(kernel),
        Component(
            name=image_reference, type=ComponentType.CONTAINER, bom_ref="image", version=image_digest,
            hashes=_hashes(image_digest.removeprefix("sha256:")),
            properties=[Property(name="vmtailor:unread-package-database", value=path) for path in inventory.unread],
        ),
        *(_own(part) for part in own),
        *{_purl(package, inventory): _package(package, inventory) for package in inventory.packages}.values(),
    ]  # fmt: skip
    if inventory.distribution:
        components.append(
            Component(
                name=inventory.distribution,
                type=ComponentType.OPERATING_SYSTEM,
                bom_ref="distribution",
                version=inventory.release or None,
            )
        )
    content = repr((__version__, name, image_reference, image_digest, kernel, tuple(own), inventory))
    tool = Component(name="vmtailor", type=ComponentType.APPLICATION, bom_ref="vmtailor", version=__version__)
    bom = Bom(
        serial_number=uuid.uuid5(_NAMESPACE, hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()),
        components=components,
        metadata=BomMetaData(
            timestamp=_EPOCH,
            tools=ToolRepository(components=[tool]),
            component=Component(name=name, type=ComponentType.FIRMWARE, bom_ref="bundle", version=image_digest),
        ),
    )
    root = bom.metadata.component
    assert root is not None
    bom.register_dependency(root, components)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    return json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=False).encode() + b"\n"


def _hashes(sha256: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)]


def _kernel(kernel: KernelPart) -> Component:
    origins = [Property(name="vmtailor:origin", value=place) for place in kernel.origin]
    return Component(
        name="linux", type=ComponentType.OPERATING_SYSTEM, bom_ref="kernel", version=kernel.version,
        hashes=_hashes(kernel.sha256), purl=PackageURL("generic", None, "linux", kernel.version),
        properties=[*origins, Property(name="vmtailor:config-sha256", value=kernel.config_sha256)],
    )  # fmt: skip


def _own(part: FilePart) -> Component:
    return Component(
        name=part.name, type=ComponentType.FILE, bom_ref=f"own/{part.name}", version=__version__,
        hashes=_hashes(part.sha256),
    )  # fmt: skip


def _purl(package: InstalledPackage, inventory: Inventory) -> PackageURL:
    qualifiers = {}
    if package.architecture:
        qualifiers["arch"] = package.architecture
    if inventory.distribution and inventory.release:
        qualifiers["distro"] = f"{inventory.distribution}-{inventory.release}"
    namespace = inventory.distribution or {"deb": "debian", "apk": "alpine"}[package.system]
    return PackageURL(package.system, namespace, package.name, package.version, qualifiers)


def _package(package: InstalledPackage, inventory: Inventory) -> Component:
    purl = _purl(package, inventory)
    return Component(
        name=package.name, type=ComponentType.LIBRARY, bom_ref=str(purl), version=package.version, purl=purl,
        properties=[Property(name="vmtailor:source-package", value=package.source)] if package.source else None,
    )  # fmt: skip
