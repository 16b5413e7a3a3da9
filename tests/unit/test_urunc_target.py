# SPDX-License-Identifier: Apache-2.0
"""Images for urunc: their annotations obey its rules, and nothing of a bundle becomes more than one word."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes import urunc_rules
from tests.fakes.bundle_data import bundle
from tests.fakes.exports import exported, made_bundle

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.pipeline.bundle_export import export


def image_of(out: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, bytes]]:
    """Manifest, configuration and files of the layout `image`."""

    def blob(descriptor: dict[str, Any]) -> Path:
        return out / "image" / "blobs" / str(descriptor["digest"]).replace(":", "/")

    manifest = json.loads(blob(json.loads((out / "image" / "index.json").read_text())["manifests"][0]).read_bytes())
    files = {}
    with tarfile.open(blob(manifest["layers"][0])) as layer:
        for one in layer:
            if one.isfile():
                files[one.name] = layer.extractfile(one).read()  # type: ignore[union-attr]
    return manifest, json.loads(blob(manifest["config"]).read_bytes()), files


@pytest.mark.parametrize("hypervisor", ["qemu", "firecracker"])
def test_annotations_obey_uruncs_rules_and_the_file_has_the_same(tmp_path: Path, hypervisor: str) -> None:
    done = exported(tmp_path, f"urunc:{hypervisor}")
    manifest, config, files = image_of(done.folder)
    told = manifest["annotations"]
    assert urunc_rules.faults(told) == [] and told["com.urunc.unikernel.hypervisor"] == hypervisor
    assert urunc_rules.decoded(files["urunc.json"]) == told
    for path in ("binary", "block"):
        assert files[told[f"com.urunc.unikernel.{path}"].lstrip("/")]
    assert config["config"]["Entrypoint"] == ["/.vmtailor/init"] and config["architecture"] == "amd64"


def test_the_rules_find_what_urunc_refuses() -> None:
    told = {"unikernelType": "linux", "hypervisor": "qemu", "binary": "/k", "block": "/r", "blkMntPoint": "/"}
    fine = {f"com.urunc.unikernel.{name}": value for name, value in told.items()}
    assert urunc_rules.faults(fine) == []
    for name, value in {
        "binary": "/k,x", "block": "/", "initrd": "../x", "hypervisor": "kvm", "unikernelType": "", "cmdline": "x",
        "mountRootfs": "yes", "blkMntPoint": "/a/",
    }.items():  # fmt: skip
        assert urunc_rules.faults({**fine, f"com.urunc.unikernel.{name}": value}), name


def test_words_of_the_machine_are_variables_and_urunc_makes_a_command_line_of_them(tmp_path: Path) -> None:
    words = ("root=/dev/vda", "ro", "rootfstype=erofs", "init=/.vmtailor/init", "console=ttyS0", "quiet", "panic=-1",
             "reboot=t", "nokaslr")  # fmt: skip
    done = exported(tmp_path, "urunc", words=words)
    _, config, _ = image_of(done.folder)
    env = config["config"]["Env"]
    assert env == ["rootfstype=erofs", "loglevel=4", "reboot=t", "VT_CONSOLE=plain", "VT_NET=kernel-word-ip"]
    line = urunc_rules.command_line(config["config"]["Entrypoint"], env, "10.4.0.2", "10.4.0.1", "255.255.255.0")
    assert line == (
        "panic=-1 console=ttyS0 root=/dev/vda rw ip=10.4.0.2::10.4.0.1:255.255.255.0:urunc:eth0:off rootfstype=erofs "
        "loglevel=4 reboot=t VT_CONSOLE=plain VT_NET=kernel-word-ip init=/.vmtailor/init -- "
    )
    assert "left out: `nokaslr`" in "\n".join(done.guide.notes)


def test_a_machine_without_a_network_waits_for_no_address(tmp_path: Path) -> None:
    _, config, _ = image_of(exported(tmp_path, "urunc", network=False).folder)
    assert not any(one.startswith("VT_NET=") for one in config["config"]["Env"])


def test_words_that_are_no_single_variable_are_left_out(tmp_path: Path) -> None:
    hostile = ("no-value", "=x", "9=x", "a'b=x", "x='y'", 'x="y"', "x=$(y)", "x=%s", "x=${y},]]>")
    done = exported(tmp_path, "urunc", words=("root=/dev/vda", *hostile))
    _, config, _ = image_of(done.folder)
    assert config["config"]["Env"] == ["x=$(y)", "x=%s", "x=${y},]]>", "VT_CONSOLE=plain", "VT_NET=kernel-word-ip"]
    with pytest.raises(UserInputError):
        exported(tmp_path / "other", "urunc", words=("a=b init=/bin/sh",))


def test_the_pod_names_the_runtime_the_image_and_the_memory(tmp_path: Path) -> None:
    done = exported(tmp_path, "urunc", ExportWishes(name="web", image="ghcr.io/x/web:1"))
    runtime, pod = yaml.safe_load_all((done.folder / "pod.yaml").read_text())
    assert runtime["handler"] == "urunc" == pod["spec"]["runtimeClassName"]
    assert pod["spec"]["enableServiceLinks"] is False
    (container,) = pod["spec"]["containers"]
    assert container == {
        "name": "web", "image": "ghcr.io/x/web:1", "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"limits": {"memory": "64Mi"}},
    }  # fmt: skip
    assert "skopeo copy oci:image:latest docker://ghcr.io/x/web:1" in "\n".join(done.guide.notes)


@pytest.mark.parametrize("image", ["x", "a b/c", "a/b@sha256:00", "$(x)/y", "a/b\n", "-a/b", "a/`b`", "é/b", "a/b:c:d"])
def test_what_is_no_place_in_a_registry_is_refused(tmp_path: Path, image: str) -> None:
    with pytest.raises(UserInputError, match="no place for an image"):
        exported(tmp_path, "urunc", ExportWishes(image=image))


@pytest.mark.parametrize(
    "wishes", [ExportWishes(env=("A=1",)), ExportWishes(command=("x",)), ExportWishes(address="10.0.0.2/24,10.0.0.1")]
)
def test_wishes_that_urunc_cannot_have_are_refused(tmp_path: Path, wishes: ExportWishes) -> None:
    with pytest.raises(UserInputError, match="urunc cannot start this bundle"):
        exported(tmp_path, "urunc", wishes)


def test_an_init_that_cannot_take_its_address_is_refused_for_machines_with_a_network(tmp_path: Path) -> None:
    made = made_bundle(tmp_path / "bundle", "urunc")
    (made / "init").write_bytes(b"\0VT_CONSOLE\0")
    seal(made, bundle())
    with pytest.raises(UserInputError, match="cannot take an address"):
        export(made, "urunc", tmp_path / "out", ExportWishes(), Store(tmp_path / "cache"))
    seal(made, bundle(network=False))
    assert export(made, "urunc", tmp_path / "out", ExportWishes(), Store(tmp_path / "cache")).files


def test_the_same_bundle_gives_the_same_image(tmp_path: Path) -> None:
    made = made_bundle(tmp_path / "bundle", "urunc")
    first, second = (
        export(made, "urunc", tmp_path / name, ExportWishes(name="web"), Store(tmp_path / "cache")).folder
        for name in ("one", "two")
    )
    assert (first / "image" / "index.json").read_bytes() == (second / "image" / "index.json").read_bytes()
    layer = next(one for one in (first / "image" / "blobs" / "sha256").iterdir() if one.read_bytes()[:2] == b"\x1f\x8b")
    assert layer.read_bytes()[4:8] == bytes(4)  # gzip's time
