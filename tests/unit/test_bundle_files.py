# SPDX-License-Identifier: Apache-2.0
"""A bundle as a fit writes it: every field of its record, every file, and what its bill of materials lists."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fakes.bundle_data import EXERCISE
from tests.fakes.fit_run_data import fit_run

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.image.image_packages import Inventory
from vmtailor.model.bundle import Bundle
from vmtailor.model.exercise import Exercise
from vmtailor.model.fit_run import FitRun
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Machine
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.pipeline import bundle_files
from vmtailor.pipeline.bundle_files import OwnFiles

IMAGE = ImageConfig("arm64", exposed_ports=(Port(81),), user="web")


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, FitRun, Plan]:
    """A bundle with another value in each field, the record of its fit, and its plan."""
    parts = tmp_path / "parts"
    parts.mkdir()
    for name in ("built", "built-config", "table", "baseline-config", "root", "init", "log"):
        (parts / name).write_text(name)
    kernel = KernelFiles(
        release="6.12.9", image=str(parts / "built"), image_bytes=5, zstd_bytes=None, packed_bytes=5,
        config=str(parts / "built-config"), system_map=str(parts / "table"), sha256="ab" * 32, compiler="cc",
        objects_compiled=1, seconds=1.0,
    )  # fmt: skip
    plan = replace(
        fit_run().plan, architecture="arm64", machine="virt", cpus=3, root_format=RootFormat.SQUASHFS, network=True
    )
    run = replace(
        fit_run(), reference="oci:shop", image_digest="sha256:77", image=IMAGE, bundle="/srv/shop",
        sources=(("image", "oci:shop"), ("kernel source", "6.12.9, 5a")),
        exercise=replace(EXERCISE, privileged=True),
    )  # fmt: skip
    subject = SimpleNamespace(
        options=SimpleNamespace(out=Path("/elsewhere/shop"), memory_bytes=96 << 20),
        kernel=SimpleNamespace(version="6.12.9", config=str(parts / "baseline-config"), origin=("linux 6.12.9-1",)),
    )
    fitted = SimpleNamespace(plan=plan, kernel=kernel, machine=Machine("virt", 1, "k", ("root=/dev/vda", "quiet")))
    own = OwnFiles(
        root="root.squashfs", saved={"exercise.json": EXERCISE},
        copied={"root.squashfs": parts / "root", "init": parts / "init"}, traced={"requests.strace": parts / "log"},
        listed={"init": parts / "init", "root.squashfs": parts / "root"}, inventory=Inventory("debian", "12", ()),
    )  # fmt: skip
    folder = tmp_path / "bundle"
    folder.mkdir()
    bundle_files.fill(folder, run, cast("Any", SimpleNamespace(subject=subject)), cast("Any", fitted), own)
    return folder, run, plan


def test_the_record_of_a_bundle_has_what_the_fit_found(made: tuple[Path, FitRun, Plan]) -> None:
    folder, _, _ = made
    found = records.load(Bundle, folder / "bundle.json")
    assert replace(found, files=()) == Bundle(
        name="shop",
        image_reference="oci:shop",
        image_digest="sha256:77",
        image=IMAGE,
        kernel="Image",
        kernel_version="6.12.9",
        kernel_config="config",
        system_map="System.map",
        root="root.squashfs",
        root_format=RootFormat.SQUASHFS,
        machine="virt",
        cpus=3,
        memory_bytes=96 << 20,
        network=True,
        words=("root=/dev/vda", "quiet"),
        sources=(("image", "oci:shop"), ("kernel source", "6.12.9, 5a")),
        privileged=True,
        architecture="arm64",
    )


def test_a_bundle_has_every_file_with_its_digest(made: tuple[Path, FitRun, Plan]) -> None:
    folder, run, plan = made
    content = {
        "Image": "built", "config": "built-config", "System.map": "table", "baseline.config": "baseline-config",
        "root.squashfs": "root", "init": "init", "trace/requests.strace": "log",
    }  # fmt: skip
    assert {name: (folder / name).read_text() for name in content} == content
    assert records.load(FitRun, folder / "run.json") == run and records.load(Plan, folder / "plan.json") == plan
    assert records.load(Exercise, folder / "exercise.json") == EXERCISE
    opened = bundle_folder.load(folder, Store(folder.parent / "cache"))
    listed = {one.name: one.sha256 for one in opened.bundle.files}
    assert listed.keys() == {*content, "run.json", "plan.json", "exercise.json", "sbom.cdx.json"}
    assert all(listed[name] == sha256((folder / name).read_bytes()).hexdigest() for name in listed)
    assert opened.kernel == folder / "Image" and opened.lists("init") and not opened.is_system


def test_the_bill_of_materials_lists_kernel_image_and_own_files(made: tuple[Path, FitRun, Plan]) -> None:
    bill = json.loads((made[0] / "sbom.cdx.json").read_text())
    named = {one["name"]: one for one in bill["components"]}
    assert bill["metadata"]["component"]["name"] == "shop"
    digests = {name: [one["content"] for one in part.get("hashes", ())] for name, part in named.items()}
    assert digests["init"] == [sha256(b"init").hexdigest()] and digests["root.squashfs"] == [
        sha256(b"root").hexdigest()
    ]
    assert named["oci:shop"]["version"] == "sha256:77" and named["debian"]["version"] == "12"
    kernel = next(part for part in named.values() if "ab" * 32 in digests[part["name"]])
    assert kernel["version"] == "6.12.9" and sha256(b"built-config").hexdigest() in json.dumps(kernel)
    assert "linux 6.12.9-1" in json.dumps(kernel)
