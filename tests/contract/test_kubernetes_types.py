# SPDX-License-Identifier: Apache-2.0
"""Manifests of exports, read strictly by the types of Kubernetes and KubeVirt themselves, which Go's registry has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.exports import exported

from vmtailor.drivers.targets.target import ExportWishes

pytestmark = [pytest.mark.contract, pytest.mark.slow]
SOURCE = Path(__file__).parents[1] / "data" / "kubernetes_types"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of SOURCE, built with the modules that it names."""
    go = shutil.which("go")
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout if go else ""
    version = re.search(r"go1\.([0-9]{1,3})", said)
    if go is None or version is None or int(version[1]) < 24:
        pytest.skip("needs Go 1.24")
    folder = tmp_path_factory.mktemp("types") / "source"
    shutil.copytree(SOURCE, folder)
    build = [go, "build", "-mod=mod", "-buildvcs=false", "-o", "reader", "."]
    subprocess.run(build, cwd=folder, check=True, timeout=900)
    return folder / "reader"


def read(reader: Path, documents: list[Any]) -> subprocess.CompletedProcess[str]:
    lines = "".join(json.dumps(one) + "\n" for one in documents)
    return subprocess.run([reader], input=lines, capture_output=True, text=True, timeout=60, check=False)


def holds(again: Any, ours: Any) -> bool:
    """Whether what the types write again has all that we wrote, however it spells an amount of nothing."""
    if isinstance(ours, dict):
        return isinstance(again, dict) and all(
            holds(again.get(key, type(value)()), value) for key, value in ours.items()
        )
    if isinstance(ours, list):
        return len(again) == len(ours) and all(holds(*pair) for pair in zip(again, ours, strict=True))
    return bool(again == ours)


@pytest.mark.parametrize("target", ["kata:clh", "kata:qemu", "kubevirt", "urunc"])
@pytest.mark.parametrize("wishes", [ExportWishes(), ExportWishes(memory_bytes=96 << 20, cpus=3)])
def test_the_types_know_every_field(reader: Path, tmp_path: Path, target: str, wishes: ExportWishes) -> None:
    folder = exported(tmp_path, target, wishes).folder
    documents = [one for file in folder.glob("*.yaml") for one in yaml.safe_load_all(file.read_text())]
    done = read(reader, documents)
    assert done.returncode == 0, done.stderr
    for again, ours in zip(done.stdout.splitlines(), documents, strict=True):
        assert holds(json.loads(again), ours), (again, ours)


def test_a_field_that_the_types_lack_is_seen(reader: Path, tmp_path: Path) -> None:
    """Some types read themselves, and drop such a field; others refuse it."""
    (instance, *_) = yaml.safe_load_all((exported(tmp_path, "kubevirt").folder / "vmi.yaml").read_text())
    instance["spec"]["domain"]["firmware"]["kernelBoot"]["container"]["kernel"] = "/boot/vmlinux"
    done = read(reader, [instance])
    assert done.returncode == 0 and not holds(json.loads(done.stdout), instance)
    done = read(reader, [{"apiVersion": "v1", "kind": "Service", "specs": {}}])
    assert done.returncode == 1 and 'unknown field "specs"' in done.stderr
