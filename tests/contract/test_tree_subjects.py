# SPDX-License-Identifier: Apache-2.0
"""Systems that are on no disk: a tree, or an image whose entry point is an init, becomes a disk to boot, with the
distribution's kernel where it has none. Nothing of it is executed, and no root is needed."""

from __future__ import annotations

import tarfile
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.systems import RELEASE, put, tree
from tests.fakes.tars import write_layout

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.image.allowance import TooLarge
from vmtailor.model.architecture import named
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.systems.system import SubjectKind, TableKind
from vmtailor.pipeline import image_subject, subject_kind
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import inputs, subjects
from vmtailor.stages.system_files import OpenedSystem

pytestmark = pytest.mark.contract

NONE: Any = SimpleNamespace(name="none")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def options(reference: str, store: Store, **other: Any) -> FitOptions:
    return FitOptions(reference, store.root / "out", store=store, distribution=NONE, **other)


def on_disk(options: FitOptions) -> AbstractContextManager[OpenedSystem]:
    return subjects.on_disk(options, image_subject.fetched(options))


def is_system(options: FitOptions) -> bool:
    return subject_kind.look(options)[0]


def packed(folder: Path, root: Path) -> Path:
    with tarfile.open(folder / "tree.tar", "w") as archive:
        archive.add(root, ".")
    return folder / "tree.tar"


def kernel(folder: Path) -> KernelBaseline:
    """What a distribution has packaged, with one module that depends on another and none of which is a program."""
    for name in ("vmlinuz", "config"):
        put(folder, name, name)
    put(folder, "modules/modules.order", "")
    put(folder, "modules/modules.builtin", "kernel/fs/ext4.ko\n")
    path = {name: str(folder / name) for name in ("vmlinuz", "config", "modules")}
    return KernelBaseline(
        "6.9.1",
        "6.9.1-cloud",
        path["vmlinuz"],
        path["config"],
        "",
        path["modules"],
        "",
        "",
        "",
        "",
        ("linux-image 6.9",),
    )


def test_a_tree_without_a_kernel_gets_the_distributions(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "tree", kernel=False)
    monkeypatch.setattr(packaged_baseline, "provide", lambda *_: kernel(tmp_path / "kernel"))
    archive = packed(tmp_path, root)
    with on_disk(options(f"rootfs:{archive}", store)) as found:
        subject, disk = found.subject, found.disk
        assert subject.kernel == "6.9.1-cloud" and subject.kind is SubjectKind.DISK
        assert subject.reference == f"rootfs:{archive}" and subject.init.path == "/sbin/init"
        assert any("6.9" in note for note in subject.notes)
        assert subject.disk is not None and subject.disk.table is TableKind.NONE
        # /lib leads to usr/lib, and still does.
        assert found.root.resolve("/lib") == "/usr/lib"
        assert found.root.text("/usr/lib/modules/6.9.1-cloud/modules.builtin") == "kernel/fs/ext4.ko\n"
        assert found.root.is_file("/lib/modules/6.9.1-cloud/modules.dep.bin")
        assert found.root.is_file("/usr/lib/systemd/systemd")
        assert disk is not None and disk.size_bytes > 512 << 20
        assert disk.path.stat().st_blocks * 512 < 100 << 20  # room is holes
    with on_disk(options(f"rootfs:{archive}", store)) as again:
        assert again.disk is not None and again.disk.path == disk.path


@pytest.mark.parametrize(("machine", "title"), [(183, "arm64"), (8, "Loongson-3")])
def test_a_system_for_another_processor_is_shown_and_not_fitted(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, machine: int, title: str
) -> None:
    """It is said before anything is fetched for it."""
    root = tree(tmp_path / "tree", machine=machine, kernel=False)
    monkeypatch.setattr(packaged_baseline, "provide", lambda *_: pytest.fail("a kernel was fetched"))
    with subjects.opened(f"rootfs:{root}", store) as found:
        assert title in named(found.subject.architecture).title
    refused = pytest.raises(UserInputError, match=f"is a system for {title}.*on a host of its own kind")
    with refused, on_disk(options(f"rootfs:{root}", store)):
        pass


def test_a_tree_with_a_kernel_keeps_it(tmp_path: Path, store: Store) -> None:
    root = tree(tmp_path / "tree")
    with on_disk(options(f"rootfs:{root}", store)) as found:
        assert found.subject.kernel == RELEASE and found.subject.notes == ()


def layout(folder: Path, root: Path, **config: Any) -> str:
    return f"oci:{write_layout(folder, [packed(folder.parent, root).read_bytes()], config)}"


def test_an_image_whose_entry_point_is_an_init(tmp_path: Path, store: Store) -> None:
    root = tree(tmp_path / "tree")
    reference = layout(
        tmp_path / "layout", root, Entrypoint=["/usr/lib/systemd/systemd", "--log-level=info"], Env=["container=docker"]
    )
    assert is_system(FitOptions(reference, tmp_path, store=store))
    with on_disk(options(reference, store)) as found:
        assert found.subject.init.path == "/usr/lib/systemd/systemd"
        assert any("arguments, environment" in note for note in found.subject.notes)


@pytest.mark.parametrize(
    ("entry", "system"),
    [
        (["/sbin/init"], True),
        (["/usr/bin/prog"], False),
        (["/lib/systemd/systemd"], True),
        (["/nowhere"], False),
        ([], False),
    ],
)
def test_what_counts_as_a_system(tmp_path: Path, store: Store, entry: list[str], system: bool) -> None:
    root = tree(tmp_path / "tree")
    put(root, "usr/bin/prog", b"\x7fELF")
    reference = layout(tmp_path / "layout", root, Entrypoint=entry)
    assert is_system(FitOptions(reference, tmp_path, store=store)) is system
    assert not is_system(FitOptions(reference, tmp_path, store=store, entrypoint=("/sbin/init",)))


def test_a_tree_is_a_system_where_nobody_names_a_program_of_it(tmp_path: Path, store: Store) -> None:
    reference = f"rootfs:{tree(tmp_path / 'tree', kernel=False)}"
    assert is_system(FitOptions(reference, tmp_path, store=store))
    assert not is_system(FitOptions(reference, tmp_path, store=store, entrypoint=("/usr/bin/x",)))
    (tmp_path / "empty" / "bin").mkdir(parents=True)
    assert not is_system(FitOptions(f"rootfs:{tmp_path / 'empty'}", tmp_path, store=store))
    assert not is_system(FitOptions("docker-archive:-", tmp_path, store=store))


def test_a_tree_needs_an_exercise_and_has_no_partitions(tmp_path: Path, store: Store) -> None:
    reference = f"rootfs:{tree(tmp_path / 'tree')}"
    with pytest.raises(UserInputError, match="needs an exercise that says what it is for") as error:
        inputs.refuse_for_images(FitOptions(reference, tmp_path, store=store))
    assert "--entrypoint" in (error.value.hint or "")
    given = FitOptions(reference, tmp_path, tmp_path / "x.toml", max_image_bytes=1 << 30, authfile=tmp_path)
    inputs.refuse_for_images(given)
    with (
        pytest.raises(UserInputError, match="--partition is for disks"),
        on_disk(options(reference, store, partition=1)),
    ):
        pass


def test_a_system_in_an_image_is_fetched_as_the_user_says(tmp_path: Path, store: Store) -> None:
    reference = layout(tmp_path / "layout", tree(tmp_path / "tree"), Entrypoint=["/sbin/init"])
    small = options(reference, store, max_image_bytes=1000)
    with pytest.raises(TooLarge, match="unpacks to more than"):
        is_system(small)
    missing = options(reference, store, authfile=tmp_path / "nowhere")
    with pytest.raises(UserInputError, match="nowhere"):
        is_system(missing)
