# SPDX-License-Identifier: Apache-2.0
"""Images of exports, by the real skopeo: in a registry, in the forms of other programs, and back."""

from __future__ import annotations

import json
import shlex
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.fakes import urunc_rules
from tests.fakes.exports import exported
from tests.fakes.registry import registry

from vmtailor.base.process import require_tool, run
from vmtailor.drivers.targets.target import ExportWishes

__all__ = ["registry"]
pytestmark = pytest.mark.contract


def copy(source: str, destination: str, *options: str) -> None:
    run([require_tool("skopeo"), "copy", "--quiet", *options, source, destination], timeout_s=60)


def read_back(folder: Path) -> tuple[dict[str, str], dict[str, tarfile.TarInfo], dict[str, bytes]]:
    """The annotations, entries and contents of an image that skopeo wrote as `dir:`."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    entries, contents = {}, {}
    for layer in manifest["layers"]:
        with tarfile.open(folder / layer["digest"].removeprefix("sha256:")) as archive:
            for one in archive:
                entries[one.name] = one
                if (file := archive.extractfile(one)) is not None:
                    contents[one.name] = file.read()
    return manifest.get("annotations", {}), entries, contents


def test_annotations_go_through_a_registry_and_the_file_through_dockers_archives(registry: str, tmp_path: Path) -> None:
    image = f"{registry}/team/web:1"
    out = exported(tmp_path, "urunc", ExportWishes(image=image)).folder
    copy(f"oci:{out}/image:latest", f"docker://{image}", "--dest-tls-verify=false")
    copy(f"docker://{image}", f"dir:{tmp_path}/came", "--src-tls-verify=false")
    told, entries, contents = read_back(tmp_path / "came")
    assert urunc_rules.faults(told) == [] and told["com.urunc.unikernel.hypervisor"] == "qemu"
    assert contents["boot/vmlinux"] == b"kernel" and contents["boot/root.img"] == b"root" * 128
    assert {(one.uid, one.gid) for one in entries.values()} == {(0, 0)}

    copy(f"oci:{out}/image:latest", f"docker-archive:{tmp_path}/docker.tar:web:1")
    copy(f"docker-archive:{tmp_path}/docker.tar", f"oci:{tmp_path}/again:latest")
    copy(f"oci:{tmp_path}/again:latest", f"dir:{tmp_path}/plain")
    lost, _, kept = read_back(tmp_path / "plain")
    assert lost == {}  # as Docker does it
    assert urunc_rules.decoded(kept["urunc.json"]) == told


def test_kubevirts_image_has_kernel_and_disks_that_its_qemu_can_read(registry: str, tmp_path: Path) -> None:
    image = f"{registry}/team/machine:1"
    out = exported(tmp_path, "kubevirt", ExportWishes(image=image, env=("A=1",))).folder
    copy(f"oci:{out}/image:latest", f"docker://{image}", "--dest-tls-verify=false")
    copy(f"docker://{image}", f"dir:{tmp_path}/came", "--src-tls-verify=false")
    _, entries, contents = read_back(tmp_path / "came")
    assert {(one.uid, one.gid) for one in entries.values()} == {(107, 107)}
    assert set(contents) == {"boot/vmlinux", "disk/root.img", "disk/run.img"}
    assert entries["disk/run.img"].mode == 0o600 and b"env A=1\0" in contents["disk/run.img"]
    assert len(contents["disk/run.img"]) % 512 == 0


def test_the_readmes_tar_of_a_layout_is_an_archive_of_the_image(tmp_path: Path) -> None:
    done = exported(tmp_path, "urunc", ExportWishes(name="web"))
    command, bar, load = done.guide.first.partition(" | ")
    assert bar and load == "sudo nerdctl load"
    archive = tmp_path / "archive.tar"
    with archive.open("wb") as file:
        subprocess.run(shlex.split(command), cwd=done.folder, stdout=file, check=True, timeout=60)
    copy(f"oci-archive:{archive}:latest", f"dir:{tmp_path}/came")
    assert urunc_rules.faults(read_back(tmp_path / "came")[0]) == []
    entry = json.loads((done.folder / "image" / "index.json").read_bytes())["manifests"][0]
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/web:latest"
