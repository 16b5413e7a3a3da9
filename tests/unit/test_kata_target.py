# SPDX-License-Identifier: Apache-2.0
"""A kernel for Kata Containers: its drop-in, the pod that asks for it, and the symbols that Kata's kernels have."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.exports import exported

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.targets import targets
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.pipeline.bundle_export import Exported

FRAGMENTS = tomllib.loads((Path(__file__).parents[1] / "data" / "kata" / "fragments.toml").read_text())
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "export-to-kata.md").read_text()
#: Keys of Kata 3's tables [hypervisor.qemu] and [hypervisor.clh] that concern a kernel, with their types.
KEYS = {"kernel": str, "kernel_params": str, "enable_annotations": list}


def pod_of(done: Exported) -> dict[str, Any]:
    _, pod = yaml.safe_load_all((done.folder / "pod.yaml").read_text())
    found: dict[str, Any] = pod
    return found


@pytest.mark.parametrize("variant", ["qemu", "clh"])
def test_the_drop_in_has_keys_that_kata_knows_and_lets_pods_name_a_kernel(tmp_path: Path, variant: str) -> None:
    done = exported(tmp_path, f"kata:{variant}", ExportWishes(name="web"))
    drop_in = tomllib.loads((done.folder / "50-web.toml").read_text())
    assert list(drop_in) == ["hypervisor"] and list(drop_in["hypervisor"]) == [variant]
    for key, value in drop_in["hypervisor"][variant].items():
        assert isinstance(value, KEYS[key])
    pod = pod_of(done)
    assert pod["spec"]["runtimeClassName"] == f"kata-{variant}"
    (name,) = (one.removeprefix("io.katacontainers.config.hypervisor.") for one in pod["metadata"]["annotations"])
    assert name in drop_in["hypervisor"][variant]["enable_annotations"]


def test_what_is_commented_out_is_sound_too(tmp_path: Path) -> None:
    text = (exported(tmp_path, "kata", ExportWishes(name="web")).folder / "50-web.toml").read_text()
    found = tomllib.loads(text.replace("# kernel =", "kernel ="))
    assert found["hypervisor"]["qemu"]["kernel"] == "/opt/vmtailor/web/vmlinux"


def test_the_kernel_is_installed_where_the_pod_looks_for_it(tmp_path: Path) -> None:
    done = exported(tmp_path, "kata", ExportWishes(name="web"))
    (kernel,) = pod_of(done)["metadata"]["annotations"].values()
    assert f"install -D -m 644 vmlinux {kernel} &&" in done.guide.first
    assert set(done.files) == {"vmlinux", "50-web.toml", "pod.yaml", "README.md"}


@pytest.mark.parametrize(
    ("reference", "wished", "image"),
    [
        ("docker://nginx:1.27", "", "nginx:1.27"),
        ("docker://nginx:1.27", "ghcr.io/x/y:1", "ghcr.io/x/y:1"),
        ("oci:build/images/nginx", "", "registry.example/made-up:latest"),
        ("docker://x: y\n- z", "", "registry.example/made-up:latest"),
    ],
)
def test_the_pod_takes_the_containers_own_image(tmp_path: Path, reference: str, wished: str, image: str) -> None:
    done = exported(tmp_path, "kata", ExportWishes(image=wished), image_reference=reference)
    assert pod_of(done)["spec"]["containers"][0]["image"] == image


def test_the_users_wishes_are_the_pods(tmp_path: Path) -> None:
    wishes = ExportWishes(env=("A=$(B) $C", "D=: {no}"), command=("-x", "$(y)"), memory_bytes=256 << 20, cpus=2)
    (container,) = pod_of(exported(tmp_path, "kata", wishes))["spec"]["containers"]
    assert container["env"] == [{"name": "A", "value": "$$(B) $$C"}, {"name": "D", "value": ": {no}"}]
    assert container["args"] == ["-x", "$$(y)"]
    assert container["resources"] == {"limits": {"memory": "256Mi", "cpu": "2"}}


@pytest.mark.parametrize(
    ("wishes", "record"), [(ExportWishes(address="10.0.0.2/24,10.0.0.1"), {}), (ExportWishes(), {"privileged": True})]
)
def test_what_kata_cannot_have_is_refused(tmp_path: Path, wishes: ExportWishes, record: dict[str, Any]) -> None:
    with pytest.raises(UserInputError, match="Kata Containers cannot start this bundle"):
        exported(tmp_path, "kata", wishes, **record)


def test_what_agent_and_runtime_cannot_do_without_is_needed() -> None:
    needed = {name for _, need in targets.needed(["kata"], "x86_64") for name in need.symbols}
    assert needed >= {
        "VIRTIO_VSOCKETS", "VIRTIO_FS", "MEMORY_HOTPLUG", "BLK_DEV_PMEM", "EXT4_FS", "SECCOMP_FILTER", "CGROUPS",
        "PID_NS", "VIRTIO_CONSOLE", "SCSI_VIRTIO", "HOTPLUG_PCI", "OVERLAY_FS",
    }  # fmt: skip


def test_what_is_needed_is_in_katas_own_kernels() -> None:
    needed = {name for _, need in targets.needed(["kata"], "x86_64") for name in need.symbols}
    named = {name for one in FRAGMENTS["fragment"] for name in one["symbols"]}
    others = set(FRAGMENTS["by_default"]) | set(FRAGMENTS["elsewhere"])
    assert needed - named == others and not others & named
    assert f"needs {len(needed)} symbols: {len(needed & named)} are in" in PAGE
    assert f"{len(FRAGMENTS['fragment'])} fragments" in PAGE and f"{len(named - needed)} further symbols" in PAGE
