# SPDX-License-Identifier: Apache-2.0
"""What a fit stands on: the baseline's initial RAM disk is made for one very kernel."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.natives import Natives
from vmtailor.model.architecture import named
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.kernel import KernelBaseline
from vmtailor.pipeline.image_subject import baseline_of, exercise_of, settled
from vmtailor.pipeline.options import FitOptions


def kernel(folder: Path, content: bytes) -> KernelBaseline:
    """A release that has its overlayfs as a module, with this content in its module and configuration."""
    module = folder / "modules/kernel/fs/overlay.ko"
    module.parent.mkdir(parents=True)
    module.write_bytes(content)
    (folder / "vmlinuz").write_bytes(b"what is built in is the same")
    (folder / "config").write_bytes(content)
    return KernelBaseline(
        "6.12.1",
        "6.12.1",
        str(folder / "vmlinuz"),
        str(folder / "config"),
        "",
        str(folder / "modules"),
        "",
        "",
        "",
        "",
        ("compiled",),
    )


def test_kernels_of_one_release_with_other_configurations_have_disks_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "stage1").write_bytes(b"stage 1")
    image = Image("oci:x", "", ImageConfig("amd64"), "", "", 0, 0)
    options = settled(FitOptions("oci:x", tmp_path / "out", store=Store(tmp_path / "cache")), image)
    kernels = {name: kernel(tmp_path / name, name.encode()) for name in ("one", "two")}

    def disk(name: str) -> Path:
        machine = baseline_of(
            options, named(options.architecture), kernels[name], Natives(tmp_path), tmp_path / "root.erofs"
        )
        assert machine.initrd is not None
        return Path(machine.initrd)

    assert disk("one") == disk("one") != disk("two")
    assert b"one" in disk("one").read_bytes() and b"two" in disk("two").read_bytes()


def test_an_exercise_is_privileged_only_where_the_user_says_so(tmp_path: Path) -> None:
    image = Image("oci:x", "", ImageConfig("amd64"), "", "", 0, 0)
    written = tmp_path / "exercise.toml"
    written.write_text('[ready]\nkind = "exit"\n')
    for file in (None, written):
        for asked in (False, True):
            options = FitOptions("oci:x", tmp_path, exercise_file=file, privileged=asked)
            assert exercise_of(options, image).privileged is asked
