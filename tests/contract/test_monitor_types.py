# SPDX-License-Identifier: Apache-2.0
"""What exports tell Firecracker and Cloud Hypervisor, read strictly by the types of clients of their APIs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import exportable

from vmtailor.base.cache.store import Store
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.model.machine import PublishedPort
from vmtailor.pipeline import bundle_export

pytestmark = [pytest.mark.contract, pytest.mark.slow]

DATA = Path(__file__).parents[1] / "data"
SYMBOLS = (
    "VIRTIO_MMIO", "VIRTIO_MMIO_CMDLINE_DEVICES", "X86_MPPARSE", "ACPI", "PCI", "PCI_MSI", "VIRTIO_PCI",
)  # fmt: skip
FULL = ExportWishes(cpus=3, memory_bytes=96 << 20, env=("A=b",), ports=(PublishedPort("0.0.0.0", 8080, 80),))


def source_of(name: str, folder: Path, program: str, version: str, least: int) -> tuple[str, Path]:
    """A compiler, at least 1.`least`, and the program of DATA/`name` to compile. Skips where there is none."""
    compiler = shutil.which(program)
    said = subprocess.run([compiler, version], capture_output=True, text=True, check=True).stdout if compiler else ""
    found = re.search(r"\b(?:go)?1\.([0-9]{1,3})", said)
    if compiler is None or found is None or int(found[1]) < least:
        pytest.skip(f"needs {program} 1.{least}")
    return compiler, Path(shutil.copytree(DATA / name, folder / name))


@pytest.fixture(scope="module")
def firecracker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader of configuration files, with the types of Firecracker's SDK."""
    go, source = source_of("firecracker_types", tmp_path_factory.mktemp("types"), "go", "version", 19)
    build = [go, "build", "-mod=mod", "-buildvcs=false", "-o", "reader", "."]
    subprocess.run(build, cwd=source, check=True, timeout=900)
    return source / "reader"


@pytest.fixture(scope="module")
def cloud_hypervisor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader of bodies of vm.create, with the types that were made from the API's description."""
    cargo, source = source_of("cloud_hypervisor_types", tmp_path_factory.mktemp("types"), "cargo", "--version", 86)
    subprocess.run([cargo, "build", "--quiet"], cwd=source, check=True, timeout=900)
    return source / "target" / "debug" / "cloud-hypervisor-types"


def told(tmp_path: Path, target: str, wishes: ExportWishes, **other: Any) -> Any:
    bundle = exportable(tmp_path / "bundle", *SYMBOLS, **other)
    out = bundle_export.export(bundle, target, tmp_path / "out", wishes, Store(tmp_path / "cache")).folder
    return json.loads((out / ("vm.json" if target == "cloud-hypervisor" else "config.json")).read_text())


def read(reader: Path, document: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([reader], input=json.dumps(document), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("wishes", [ExportWishes(), FULL], ids=["usual", "full"])
@pytest.mark.parametrize("target", ["firecracker", "firecracker:acpi", "firecracker:pci"])
def test_firecrackers_types_know_every_field(
    firecracker: Path, tmp_path: Path, target: str, wishes: ExportWishes
) -> None:
    done = read(firecracker, told(tmp_path, target, wishes))
    assert done.returncode == 0, done.stderr


def test_firecrackers_types_refuse_what_they_do_not_know(firecracker: Path, tmp_path: Path) -> None:
    document = told(tmp_path, "firecracker", ExportWishes())
    for part, field, value in (("drives", "speed", 1), ("machine-config", "vcpu_count", 64)):
        one = document[part][0] if isinstance(document[part], list) else document[part]
        before = dict(one)
        one[field] = value
        assert field in read(firecracker, document).stderr
        one.clear()
        one.update(before)


@pytest.mark.parametrize("wishes", [ExportWishes(), FULL], ids=["usual", "full"])
@pytest.mark.parametrize("network", [True, False])
def test_cloud_hypervisors_types_know_every_field(
    cloud_hypervisor: Path, tmp_path: Path, wishes: ExportWishes, network: bool
) -> None:
    document = told(tmp_path, "cloud-hypervisor", wishes, network=network)
    done = read(cloud_hypervisor, document)
    assert done.returncode == 0, done.stderr
    document["disks"][0]["speed"] = 1
    assert ".0.speed" in read(cloud_hypervisor, document).stderr
