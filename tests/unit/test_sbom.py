# SPDX-License-Identifier: Apache-2.0
"""The bill of materials: what is in it, that it is the same each time, and that a hostile image cannot break it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.tars import file, symlink, tar_of

from vmtailor.drivers.image import image_packages
from vmtailor.drivers.image.image_packages import (
    InstalledPackage,
    Inventory,
    apk_packages,
    dpkg_packages,
    os_release,
    read_inventory,
)
from vmtailor.drivers.image.sbom import FilePart, KernelPart, document

STATUS = b"""Package: libc6
Status: install ok installed
Source: glibc (2.36)
Architecture: amd64
Version: 2.36-9
Description: C library
 Version: 666 is in the description

Package: gone
Status: deinstall ok config-files
Version: 1

Package: noversion
Status: install ok installed
"""
APK = b"C:Q1abc=\nP:musl\nV:1.2.4-r2\nA:x86_64\no:musl\n\nP:busybox\nV:1.36\n"
KERNEL = KernelPart("6.12.117", ("linux-source-6.12 6.12.117-1",), "b" * 64, "c" * 64)


def inventory(folder: Path, *entries: Any) -> Inventory:
    path = folder / "flat.tar"
    path.write_bytes(tar_of(*entries))
    return read_inventory(path)


def bom(found: Inventory, **more: Any) -> Any:
    values: dict[str, Any] = {
        "name": "web", "image_reference": "oci:web", "image_digest": "sha256:" + "a" * 64, "kernel": KERNEL,
        "own": [FilePart("init", "d" * 64)], "inventory": found, **more,
    }  # fmt: skip
    data = document(**values)
    assert data == document(**values)
    return json.loads(data)


def test_packages_of_debian(tmp_path: Path) -> None:
    found = inventory(
        tmp_path,
        file("etc/os-release", b'ID="debian"\nVERSION_ID="12"\nPRETTY_NAME=x\n'),
        file("var/lib/dpkg/status", STATUS),
        file("var/lib/dpkg/status.d/base", b"Package: base\nVersion: 2\nArchitecture: all\n"),
        file("var/lib/dpkg/status.d/base.md5sums", b"Package: no\nVersion: 2\n"),
    )
    assert found == Inventory(
        "debian",
        "12",
        (InstalledPackage("deb", "base", "2", "all"), InstalledPackage("deb", "libc6", "2.36-9", "amd64", "glibc")),
    )
    components = {item["name"]: item for item in bom(found)["components"]}
    assert components["libc6"]["purl"] == "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12"
    assert (components["linux"]["version"], components["linux"]["hashes"][0]["content"]) == ("6.12.117", "b" * 64)
    properties = {item["name"]: item["value"] for item in components["linux"]["properties"]}
    assert properties == {"vmtailor:origin": "linux-source-6.12 6.12.117-1", "vmtailor:config-sha256": "c" * 64}
    assert components["oci:web"]["version"] == "sha256:" + "a" * 64
    assert components["init"]["hashes"] == [{"alg": "SHA-256", "content": "d" * 64}]
    assert components["debian"]["version"] == "12"


def test_packages_of_alpine(tmp_path: Path) -> None:
    found = inventory(tmp_path, file("lib/apk/db/installed", APK), file("usr/lib/os-release", b"ID=alpine\n"))
    assert found.packages == (
        InstalledPackage("apk", "busybox", "1.36"),
        InstalledPackage("apk", "musl", "1.2.4-r2", "x86_64", "musl"),
    )
    assert "pkg:apk/alpine/musl@1.2.4-r2?arch=x86_64" in {item.get("purl") for item in bom(found)["components"]}


def test_databases_that_are_not_understood_are_named(tmp_path: Path) -> None:
    found = inventory(tmp_path, file("var/lib/rpm/rpmdb.sqlite", b"SQLite"))
    assert found.unread == ("var/lib/rpm/rpmdb.sqlite",)
    image = next(item for item in bom(found)["components"] if item["bom-ref"] == "image")
    assert image["properties"] == [{"name": "vmtailor:unread-package-database", "value": "var/lib/rpm/rpmdb.sqlite"}]


def test_no_packages_at_all(tmp_path: Path) -> None:
    found = inventory(tmp_path, file("hello"), symlink("etc/os-release", "/proc/self/mem"))
    assert found == Inventory("", "", ())
    assert len(bom(found)["components"]) == 3


def test_another_content_has_another_serial_number(tmp_path: Path) -> None:
    empty = Inventory("", "", ())
    serial = bom(empty)["serialNumber"]
    assert serial == bom(empty)["serialNumber"]
    assert serial != bom(empty, image_digest="sha256:" + "b" * 64)["serialNumber"]
    assert serial != bom(empty, own=[])["serialNumber"]


def test_hostile_databases_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_packages, "PACKAGES_MAX", 10)
    many = b"".join(b"Package: p%d\nVersion: 1\n\n" % n for n in range(50))
    found = inventory(tmp_path, file("var/lib/dpkg/status", many), file("var/lib/dpkg/status.d/x", many[200:]))
    assert len(found.packages) == 10 and "packages" in found.unread[0]
    monkeypatch.setattr(image_packages, "DATABASE_BYTES", 100)
    assert inventory(tmp_path, file("var/lib/dpkg/status", many)).unread == ("var/lib/dpkg/status",)


WORD = st.text() | st.text("aZ09+.:~_^-/@#?%&= \u00e9", max_size=6)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(WORD, WORD, WORD, WORD)), WORD, WORD)
def test_whatever_an_image_says_the_document_stands(rows: list[tuple[str, ...]], name: str, release: str) -> None:
    text = "\n\n".join(f"Package: {a}\nVersion: {b}\nArchitecture: {c}\nSource: {d}" for a, b, c, d in rows)
    names = os_release(f"ID={name}\nVERSION_ID={release}\n")
    deb, apk = list(dpkg_packages(text)), list(apk_packages(text.replace("Package: ", "P:").replace("Version: ", "V:")))
    found = Inventory(names.get("ID", ""), names.get("VERSION_ID", ""), tuple(sorted({*deb, *apk})))
    references = [item["bom-ref"] for item in bom(found)["components"]]
    assert len(references) == len(set(references))
