# SPDX-License-Identifier: Apache-2.0
"""Family kernels as artefacts: what is written is read again, and what a stranger wrote is refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.bundle_data import bundle, write_bundle
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.host import bundle_folder, family_kernels
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.host.family_kernels import Family
from vmtailor.drivers.image.artefact import ArtefactKind
from vmtailor.drivers.image.artefact_layout import LayoutWriter
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.plan import Plan
from vmtailor.pipeline import family_artefact, family_build, image_bundle
from vmtailor.pipeline.family_artefact import KIND, fetched
from vmtailor.stages import build, kernel_plan

pytestmark = pytest.mark.usefixtures("own_cache")
attack = pytest.mark.attack


def put(families: list[Family], layout: Path) -> str:
    """Write them into a layout; returns their digest."""
    to = family_artefact.require_place(f"oci:{layout}")
    return family_artefact.put(families, to, Store()).rpartition("@")[2]


def family_of(folder: Path, architecture: str = "x86_64", **record: Any) -> Family:
    """The kernel of a made-up bundle as a family kernel."""
    write_bundle(folder)
    values = {"architecture": architecture, "image_reference": "oci:x", **record}
    if architecture == "arm64":
        (folder / "vmlinux").rename(folder / "Image")
        values |= {"machine": "virt", "kernel": "Image"}
    seal(folder, bundle(**values))
    return image_bundle.of_bundle(bundle_folder.load(folder), Store())


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A layout with kernels of two processors."""
    layout = tmp_path / "layout"
    families = [family_of(tmp_path / "one"), family_of(tmp_path / "other", "arm64")]
    put(families, layout)
    return layout


def test_what_is_written_is_read_again_for_each_processor(both: Path, tmp_path: Path) -> None:
    for architecture, kernel in (("x86_64", "vmlinux"), ("arm64", "Image")):
        other = Store(tmp_path / f"cache-{architecture}")
        found = fetched(f"oci:{both}", architecture, other)
        assert found is not None and found.record.architecture == architecture
        assert (found.folder / kernel).read_text() == "kernel" and found.folder.is_relative_to(other.root)
        assert json.loads((found.folder / "plan.json").read_text())["schema"] == "vmtailor/plan/3"
        assert fetched(f"oci:{both}", architecture, other) == found
    with pytest.raises(UserInputError, match="no part for the processor riscv64"):
        fetched(f"oci:{both}", "riscv64", Store())


def test_the_same_kernels_make_the_same_artefact_with_one_name_and_its_own_types(both: Path, tmp_path: Path) -> None:
    families = [family_of(tmp_path / "one"), family_of(tmp_path / "other", "arm64")]
    digest = put(families, tmp_path / "again")
    assert (tmp_path / "again/index.json").read_text() == (both / "index.json").read_text()
    (top,) = json.loads((both / "index.json").read_text())["manifests"]
    assert top["digest"] == digest
    index = json.loads((both / "blobs/sha256" / digest.removeprefix("sha256:")).read_text())
    assert index["artifactType"] == "application/vnd.vmtailor.family.v1"
    assert [one["platform"] for one in index["manifests"]] == [
        {"architecture": "amd64", "os": "linux"}, {"architecture": "arm64", "os": "linux"},
    ]  # fmt: skip
    found = fetched(f"oci:{both}@{digest}", "x86_64", Store())
    assert found is not None


def test_a_text_that_names_no_artefact() -> None:
    assert fetched("build/family", "x86_64", Store()) is None


def layout_with(folder: Path, config: bytes, files: dict[str, Path], kind: ArtefactKind = KIND) -> Path:
    writer = LayoutWriter(folder, kind)
    blobs = [writer.file(path, name)[0] for name, path in files.items()]
    writer.name(writer.index({"amd64": writer.artefact(config, blobs)}))
    return folder


def _blobs(layout: Path) -> list[Path]:
    """The blobs, the largest last."""
    return sorted((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)


@attack
def test_one_of_another_type_and_an_image_are_refused(both: Path, tmp_path: Path) -> None:
    family = family_of(tmp_path / "own")
    files = {one.name: family.folder / one.name for one in family.record.files}
    other = layout_with(tmp_path / "bundle", records.to_bytes(family.record), files, ArtefactKind("bundle", "a bundle"))
    with pytest.raises(UserInputError, match=r"is an artefact of the type .*bundle\.v1', not a family kernel"):
        fetched(f"oci:{other}", "x86_64", Store())
    (both / "index.json").write_text('{"schemaVersion":2,"manifests":[]}')
    with pytest.raises(UserInputError, match="has no entry"):
        fetched(f"oci:{both}", "x86_64", Store())


@attack
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(b"\0" + path.read_bytes()[1:]),
        lambda path: path.unlink(),
    ],
    ids=["cut short", "longer", "changed", "missing"],
)
def test_a_damaged_blob_is_refused_whichever_it_is(damage: Callable[[Path], object], tmp_path: Path) -> None:
    family = family_of(tmp_path / "own")
    for number in range(7):  # index, manifest, configuration, four files
        layout = tmp_path / f"layout-{number}"
        put([family], layout)
        damage(_blobs(layout)[number])
        with pytest.raises(UserInputError) as error:
            fetched(f"oci:{layout}", "x86_64", Store(tmp_path / f"cache-{number}"))
        assert error.value.message and error.value.hint
        kept = tmp_path / f"cache-{number}" / family_kernels.KIND
        assert not kept.exists() or not [path for path in kept.iterdir() if not path.name.startswith(".")]


@attack
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: record.update(architecture="arm64", machine="virt"), "lists"),
        (lambda record: record.update(words=["a b"]), "no word of a kernel command line"),
        (lambda record: record["files"].pop(), "has other files than its record lists"),
        (lambda record: record["files"][0].update(bytes=5), "is damaged"),
        (lambda record: record["files"][0].update(sha256="0" * 64), "is damaged"),
        (lambda record: record.update(schema="vmtailor/bundle/3"), "has schema 'vmtailor/bundle/3'"),
    ],
)
def test_a_record_that_does_not_fit_its_files(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    family = family_of(tmp_path / "own")
    files = {one.name: family.folder / one.name for one in family.record.files}
    record = json.loads(records.to_bytes(family.record))
    change(record)
    layout = layout_with(tmp_path / "layout", json.dumps(record).encode(), files)
    with pytest.raises(UserInputError) as error:
        fetched(f"oci:{layout}", "x86_64", Store(tmp_path / "cache"))
    assert said in error.value.message


@attack
@pytest.mark.parametrize(
    "config", [b"", b"[" * 100_000, b'{"a":' * 50_000, b"[1]", b"\xff", b'"' + b"x" * (2 << 20) + b'"'],
    ids=["empty", "lists in lists", "tables in tables", "a list", "no text", "long"],
)  # fmt: skip
def test_hostile_json_is_refused(config: bytes, tmp_path: Path) -> None:
    layout = layout_with(tmp_path / "layout", config, {})
    with pytest.raises(UserInputError):
        fetched(f"oci:{layout}", "x86_64", Store())


@attack
def test_a_kernel_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = family_of(tmp_path / "own")
    monkeypatch.setattr(family_artefact, "MOST_FILE_BYTES", 1 << 20)
    files = {one.name: family.folder / one.name for one in family.record.files}
    files["vmlinux"] = tmp_path / "zeros"
    files["vmlinux"].write_bytes(bytes(2 << 20))
    layout = layout_with(tmp_path / "layout", records.to_bytes(family.record), files)
    with pytest.raises(UserInputError, match="has more in its file vmlinux"):
        fetched(f"oci:{layout}", "x86_64", Store(tmp_path / "cache"))


def test_the_verb_takes_a_bundles_kernel_and_shows_it(tmp_path: Path, start: Start) -> None:
    one = write_bundle(tmp_path / "one")
    seal(one, bundle(architecture="x86_64", image_reference="oci:x"))
    out = f"oci:{tmp_path}/made"
    code, said, _ = start("family", "build", one, "-o", out)
    assert (
        code == 0 and said.splitlines()[0].startswith("x86_64: ") and said.splitlines()[1].startswith(f"{out}@sha256:")
    )
    code, said, _ = start("family", "show", out)
    (kernel,) = json.loads(said)["kernels"]
    assert code == 0 and kernel["made_for"] == "oci:x" and kernel["schema"] == "vmtailor/family/1"
    code, said, _ = start("family", "ls", "--json")
    assert code == 0 and json.loads(said) == {"schema": "vmtailor/families/1", "kernels": []}, (
        "its margin is not server"
    )
    for words, message in {
        ("ls", "x"): "takes no name", ("show",): "needs a name", ("ls", "--cpus", "2"): "makes no kernel",
        ("build", "-o", "x"): "is no place", ("build", "-o", f"oci:x@sha256:{'0' * 64}"): "is pinned by a digest",
        ("build", "--arch", "vax"): "no architecture 'vax'",
        ("build", str(one), "--cpus", "2"): "is taken as it is", ("build", str(one), str(one)): "the same processor",
        ("show", str(tmp_path)): "is no family kernel",
    }.items():  # fmt: skip
        code, _, err = start("family", *words)
        assert code == 2 and message in err, (words, err)


class _Package:
    """A packaged kernel whose source and configuration are there."""

    version, packages, source_package = "6.12.7", ("linux-image 6.12.7-1",), "linux 6.12.7-1"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "config").write_text("CONFIG_NET=y\n")

    def image(self, store: Store) -> Path:
        return self._folder

    def source(self, store: Store) -> SourceTree:
        return SourceTree(self._folder, "5a" * 32)


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelFiles:
    """A kernel that is compiled from a plan, which is made from the packaged kernel's configuration."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    for name in ("vmlinux", "config", "System.map"):
        (folder / name).write_text(f"the {name}")
    files = KernelFiles(
        release="6.12.7", image=str(folder / "vmlinux"), image_bytes=11, zstd_bytes=None, packed_bytes=9,
        config=str(folder / "config"), system_map=str(folder / "System.map"), sha256="", compiler="gcc 14",
        objects_compiled=1, seconds=1.0,
    )  # fmt: skip
    plan = replace(fit_run().plan, architecture="x86_64", margins=family_build.MARGINS, network=True)
    monkeypatch.setattr(family_build, "require_tools", lambda row: None)
    monkeypatch.setattr(packaged_baseline, "select", lambda *_: _Package(tmp_path))
    monkeypatch.setattr(kernel_plan, "read_tree", lambda *_, **__: SimpleNamespace(facts=_Facts()))
    monkeypatch.setattr(family_build, "planned", lambda tree, config, wishes: plan if config == {"NET": "y"} else None)
    monkeypatch.setattr(build, "build_kernel", lambda *_, **__: files)
    return files


class _Facts:
    def compiled(self, values: dict[str, str]) -> tuple[str, ...]:
        return ()


@pytest.mark.usefixtures("compiled")
def test_a_kernel_that_was_built_is_what_images_start_on(tmp_path: Path, start: Start) -> None:
    out = f"oci:{tmp_path}/made"
    code, said, _ = start("family", "build", "--arch", "x86_64", "-o", out, "--json")
    assert code == 0
    document = json.loads(said)
    found = family_kernels.newest(Store(), "x86_64")
    assert found is not None and found.phrase == "family kernel" and found.key == document["kernels"][0]["key"]
    record = found.record
    assert record.made_for == "" and record.network and record.sources[1] == ("compiler", "gcc 14")
    assert "root=/dev/vda" in record.words and "init=/.vmtailor/init" in record.words
    assert (found.folder / "vmlinux").read_text() == "the vmlinux"
    assert records.load(Plan, found.folder / "plan.json").margins == family_build.MARGINS
    assert fetched(f"{out}@{document['digest']}", "x86_64", Store(tmp_path / "elsewhere")) is not None
    assert json.loads(start("family", "ls", "--arch", "arm64", "--json")[1])["kernels"] == []
    code, said, _ = start("family", "ls")
    assert code == 0 and found.key[:8] in said and "any image" in said
    assert start("family", "build")[1].splitlines()[-1] == "in the cache: vmtailor run IMAGE finds it"
