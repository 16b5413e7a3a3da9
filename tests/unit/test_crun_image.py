# SPDX-License-Identifier: Apache-2.0
"""Images for crun's handler krun: their files, the words of their kernel, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.fakes import exports
from tests.fakes.bundle_data import bundle
from tests.unit.test_urunc_target import image_of

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline.bundle_export import Exported, export

TARGET = "libkrun:crun"


def exported(folder: Path, wishes: ExportWishes | None = None, **record: object) -> Exported:
    return exports.exported(folder, TARGET, wishes, **record)


def test_the_folder_is_the_root_and_the_kernel_is_told_where_the_root_file_is(tmp_path: Path) -> None:
    done = exported(tmp_path, words=("root=/dev/vda", "ro", "rootfstype=erofs", "init=/x", "console=ttyS0", "quiet"))
    _, config, files = image_of(done.folder)
    told = json.loads(files[".krun_vm.json"])
    assert set(files) == {"vmlinux", "root.erofs", ".vmtailor/init", ".krun_vm.json"}
    assert told["kernel_path"] == "/vmlinux" and told["kernel_format"] == 1 and told["ram_mib"] > 128
    assert told["kernel_cmdline"].split()[:7] == [
        "root=/dev/root", "rootfstype=virtiofs", "ro", "init=/.vmtailor/init", "VT_ROOTFILE=/root.erofs",
        "console=hvc0", "quiet",
    ]  # fmt: skip
    assert config["config"]["Entrypoint"] == ["/.vmtailor/init"]


def test_less_memory_than_crun_takes_is_raised(tmp_path: Path) -> None:
    done = exported(tmp_path, ExportWishes(memory_bytes=64 << 20))
    assert json.loads(image_of(done.folder)[2][".krun_vm.json"])["ram_mib"] == 129


def test_readmes_say_what_each_variant_needs_and_how_its_server_is_asked(tmp_path: Path) -> None:
    image = (exported(tmp_path / "image", network=True).folder / "README.md").read_text()
    assert "`krun`" in image and "compiler" not in image
    done = exports.exported(tmp_path / "program", "libkrun", network=True)
    program = (done.folder / "README.md").read_text()
    assert "compiler" in program and "podman" not in program and "`curl http://172.16.0.2:80/`" in program
    assert done.guide.first.startswith("sudo ip tuntap add tap0 ") and "172.16.0.1/30 dev tap0" in done.guide.first
    assert done.guide.second == "make && ./start"


@pytest.mark.attack
def test_hostile_words_and_names_stay_words(tmp_path: Path) -> None:
    hostile = ('a"b', "$(id)", "`id`", "${HOME}", "%s", "a,b", "\\", "'", "]]>")
    done = exported(tmp_path, words=hostile, name='x"; rm -rf /; $(id)', image_reference="a`b`\n```\n# c")
    told = json.loads(image_of(done.folder)[2][".krun_vm.json"])
    assert set(told) == {"cpus", "ram_mib", "kernel_path", "kernel_format", "kernel_cmdline"}
    assert tuple(told["kernel_cmdline"].split()[5 : 5 + len(hostile)]) == hostile
    assert shlex.split(done.guide.second)[-1] == "localhost/x-rm--rf-id:latest"


@pytest.mark.parametrize("wishes", [ExportWishes(env=("A=b",)), ExportWishes(command=("sh",))])
def test_what_needs_a_second_disk_is_refused(wishes: ExportWishes, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="gives it no disk"):
        exported(tmp_path, wishes)


def test_a_root_that_is_no_erofs_and_an_older_init_are_refused(tmp_path: Path) -> None:
    made = exports.made_bundle(tmp_path / "bundle", TARGET)
    store = Store(tmp_path / "cache")
    seal(made, bundle(root_format=RootFormat.EXT4))
    with pytest.raises(UserInputError, match="erofs alone can"):
        export(made, TARGET, tmp_path / "out", ExportWishes(), store)
    (made / "init").write_bytes(b"\0VT_CONSOLE\0")
    seal(made, bundle())
    with pytest.raises(UserInputError, match="older than this export"):
        export(made, TARGET, tmp_path / "out", ExportWishes(), store)
