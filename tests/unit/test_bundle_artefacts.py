# SPDX-License-Identifier: Apache-2.0
"""Bundles that travel: what was pushed is pulled again, whole; what a stranger pushed is refused with the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import write_bundle
from tests.fakes.hostile_bundles import own_cache
from tests.fakes.registry import folder_registry

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.cli import quick_start, run
from vmtailor.cli.push import push as push_verb
from vmtailor.cli.refit import refit
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.image import skopeo
from vmtailor.drivers.image.artefact import ArtefactBlob, ArtefactKind
from vmtailor.drivers.image.artefact_layout import LayoutWriter
from vmtailor.model import architecture
from vmtailor.model.bundle import RECORD, Bundle, BundleFile
from vmtailor.model.image import ImageConfig
from vmtailor.pipeline import bundle_artefact
from vmtailor.pipeline.bundle_artefact import KIND
from vmtailor.pipeline.bundle_reference import local
from vmtailor.pipeline.image_run_options import ImageRunOptions, RunSubject
from vmtailor.pipeline.machine_run import RunOptions
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.pull_options import PullOptions, PullWhen
from vmtailor.pipeline.run_subject import subject_of
from vmtailor.pipeline.second_fit import RefitRequest
from vmtailor.stages import image_fetch

__all__ = ["own_cache"]
NAME = "docker://127.0.0.1:5000/made/up"
attack = pytest.mark.attack


@pytest.fixture
def bundle(tmp_path: Path, own_cache: Store) -> Path:
    assert own_cache.root.is_dir()
    return write_bundle(tmp_path / "bundle")


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    """A made-up bundle for another processor."""
    return write_bundle(tmp_path / "arm", architecture="arm64", machine="virt", image=ImageConfig("arm64"))


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return folder_registry(tmp_path, monkeypatch)


def push(*bundles: Path, to: str) -> str:
    return bundle_artefact.push(bundles, to, None, Store()).reference


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def started(bundle: str, **options: Any) -> RunSubject:
    return subject_of(RunOptions(Path(bundle), **options), ImageRunOptions())


def is_host(name: str) -> bool:
    return architecture.of_host().name == name


# ---- what travels


@pytest.mark.parametrize("place", ["oci:{}/layout", "oci:{}/layout:1.0", "oci-archive:{}/file.tar", NAME, f"{NAME}:2"])
def test_a_bundle_comes_as_it_went(
    place: str, bundle: Path, registry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not registry.exists()
    pinned = push(bundle, to=place.format(tmp_path))
    (bundle / "report.html").write_text("made on this host")
    (bundle / "monitors.json").write_text("{}")
    again = push(bundle, to=f"oci:{tmp_path}/again")
    assert again.partition("@")[2] == pinned.partition("@")[2], "nothing that a host adds travels"
    capsys.readouterr()
    came = local(Path(place.format(tmp_path)))
    assert f"bundle {pinned}\n" in capsys.readouterr().err
    sent = files_of(bundle)
    assert files_of(came) == {name: data for name, data in sent.items() if name not in ("report.html", "monitors.json")}
    assert bundle_folder.load(came).bundle == bundle_folder.load(bundle).bundle
    assert local(Path(pinned)) == came


def test_a_bundle_with_an_empty_file_and_a_large_one(bundle: Path, tmp_path: Path) -> None:
    with (bundle / "root.erofs").open("wb") as root:
        root.truncate(40 << 20)
    bundle_folder.seal(bundle, bundle_folder.load(bundle).bundle)
    assert (bundle / "init").stat().st_size == 0
    push(bundle, to=f"oci:{tmp_path}/layout")
    assert sum(path.stat().st_size for path in (tmp_path / "layout").rglob("*")) < 1 << 20
    came = local(Path(f"oci:{tmp_path}/layout"))
    assert (came / "root.erofs").stat().st_size == 40 << 20 and (came / "root.erofs").stat().st_blocks == 0


def test_a_registry_is_asked_once_for_a_tag_unless_it_is_to_be_asked_always(
    bundle: Path, arm: Path, registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = push(bundle, to=f"{NAME}:1")
    came = local(Path(f"{NAME}:1"))
    calls = (registry / "calls").read_text()
    assert local(Path(f"{NAME}:1")) == came
    assert (registry / "calls").read_text() == calls and capsys.readouterr().err.count(f"bundle {first}\n") == 2
    second = push(arm, to=f"{NAME}:1")
    assert local(Path(f"{NAME}:1")) == came and first != second
    assert local(Path(f"{NAME}:1"), PullOptions(when=PullWhen.NEVER)) == came
    moved = local(Path(f"{NAME}:1"), PullOptions(when=PullWhen.ALWAYS))
    assert moved != came and bundle_folder.load(moved).bundle.architecture == "arm64"
    assert local(Path(f"{NAME}:1")) == moved
    assert local(Path(first)) == came  # a digest stays what it was
    calls = (registry / "calls").read_text()
    assert local(Path(first), PullOptions(when=PullWhen.ALWAYS)) == came
    assert (registry / "calls").read_text() == calls


def test_what_was_never_pulled_is_not_asked_for(registry: Path, own_cache: Store) -> None:
    assert own_cache.root.is_dir()
    with pytest.raises(UserInputError, match="is no bundle in the cache"):
        local(Path(NAME), PullOptions(when=PullWhen.NEVER))
    assert not registry.exists()


def test_one_index_for_several_processors(bundle: Path, arm: Path, registry: Path, tmp_path: Path) -> None:
    mine = bundle_folder.load(bundle).bundle.architecture
    for place in (f"{NAME}:3", f"oci:{tmp_path}/layout"):
        pinned = push(bundle, arm, to=place)
        if is_host(mine):
            assert bundle_folder.load(local(Path(place))).bundle.architecture == mine
        for name in (mine, "arm64"):
            for reference in (place, *((pinned,) if place.startswith("oci") else ())):
                came = local(Path(reference), PullOptions(architecture=name))
                assert bundle_folder.load(came).bundle.architecture == name
        with pytest.raises(UserInputError, match="no part for the processor riscv64"):
            local(Path(place), PullOptions(architecture="riscv64"))
    assert "--all --preserve-digests" in (registry / "calls").read_text()


def test_a_bundle_of_another_processor_than_asked_for(bundle: Path, tmp_path: Path) -> None:
    push(bundle, to=f"oci:{tmp_path}/layout")
    with pytest.raises(UserInputError, match=r"is for x86_64, not for arm64"):
        local(Path(f"oci:{tmp_path}/layout"), PullOptions(architecture="arm64"))
    with pytest.raises(UserInputError, match="vax"):
        local(Path(f"oci:{tmp_path}/layout"), PullOptions(architecture="vax"))


def test_folders_and_images_stay_what_they_are(bundle: Path, tmp_path: Path, registry: Path) -> None:
    for path in (bundle, tmp_path / "nothing", Path("rootfs:x"), Path("nginx:1.27")):
        assert local(path) == path
    assert not registry.exists()
    with pytest.raises(UserInputError, match="nothing of it is pulled"):
        local(bundle, PullOptions(when=PullWhen.ALWAYS))


def test_credentials_and_sizes_are_options(bundle: Path, registry: Path, tmp_path: Path) -> None:
    credentials = tmp_path / "auth.json"
    credentials.write_text("{}")
    pushed = bundle_artefact.push([bundle], NAME, credentials, Store())
    assert f"--dest-authfile={credentials}" in (registry / "calls").read_text() and pushed.size_bytes > 1000
    local(Path(NAME), PullOptions(authfile=credentials))
    calls = (registry / "calls").read_text()
    assert f"--src-authfile={credentials}" in calls and f" --authfile={credentials}" in calls
    os.mkfifo(tmp_path / "pipe")
    for act in (
        lambda: bundle_artefact.push([bundle], NAME, tmp_path / "pipe", Store()),
        lambda: local(Path(NAME), PullOptions(authfile=tmp_path / "pipe")),
    ):
        with pytest.raises(UserInputError, match="it is a named pipe"):
            act()


def test_the_verb_prints_the_reference_alone(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], registry: Path
) -> None:
    assert not registry.exists()
    push_verb((bundle,), NAME)
    said = capsys.readouterr()
    assert said.out.startswith(f"{NAME}@sha256:") and said.out.count("\n") == 1
    assert "as it travels" in said.err


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("somewhere", "no place for a bundle"),
        ("docker-daemon:x", "no place for a bundle"),
        ("containers-storage:x", "no place for a bundle"),
        (f"{NAME}@sha256:{'a' * 64}", "pinned by a digest"),
        ("oci-archive:{}/there.tar", "exists already"),
        ("oci:{}/bundle", "no OCI layout"),
        ("docker:x", "two slashes"),
    ],
)
def test_places_that_are_refused(to: str, says: str, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "there.tar").write_text("mine")
    with pytest.raises(UserInputError, match=says):
        push(bundle, to=to.format(tmp_path))
    assert (tmp_path / "there.tar").read_text() == "mine"


def test_bundles_that_are_not_pushed(bundle: Path, arm: Path, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="for the same processor"):
        push(bundle, bundle, to=f"oci:{tmp_path}/layout")
    (arm / "vmlinux").write_text("another")
    with pytest.raises(UserInputError, match="not the file that the bundle was made with"):
        push(arm, to=f"oci:{tmp_path}/layout")
    assert not (tmp_path / "layout" / "index.json").exists()
    with pytest.raises(UserInputError, match="is not a bundle"):
        push(tmp_path / "nothing", to=f"oci:{tmp_path}/layout")


def test_run_takes_a_reference_and_tells_what_its_next_start_depends_on(
    bundle: Path, registry: Path, own_cache: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not registry.exists()
    pinned = push(bundle, to=NAME)
    push(bundle, to=f"oci:{tmp_path}/layout")
    found = started(NAME)
    assert found.of_cache and found.pulled is not None and found.bundle == found.pulled.folder
    (memory,) = (own_cache.root / "bundle-references").iterdir()
    assert found.pulled.said == f"bundle {pinned}" and found.pulled.depends == (memory,)
    of_layout = started(f"oci:{tmp_path}/layout")
    assert of_layout.pulled is not None and of_layout.pulled.depends == (tmp_path / "layout" / "index.json",)
    kept = quick_start.plain(["run", NAME])
    monkeypatch.setattr(quick_start, "missed", kept)
    assert run._tell(found.pulled) and kept is not None
    assert (kept.said, kept.entry) == (f"bundle {pinned}", str(found.bundle)) and kept.files == (str(memory),)
    assert not run._tell(started(str(bundle)).pulled)


def test_nothing_is_kept_beside_a_bundle_in_the_cache(bundle: Path, tmp_path: Path) -> None:
    push(bundle, to=f"oci:{tmp_path}/layout")
    with pytest.raises(UserInputError, match="--keep-state writes") as caught:
        started(f"oci:{tmp_path}/layout", keep_state=True)
    assert caught.value.hint.startswith("cp -r --sparse=always ")
    for given in (Path(f"oci:{tmp_path}/layout"), local(Path(f"oci:{tmp_path}/layout"))):
        with pytest.raises(UserInputError, match="the new bundle cannot be beside it"):
            refit(RefitRequest(given), FitOptions())


def test_a_bundle_is_no_image(bundle: Path, registry: Path, tmp_path: Path) -> None:
    assert not registry.exists()
    for place in (NAME, f"oci:{tmp_path}/layout"):
        push(bundle, to=place)
        with pytest.raises(UserInputError, match="is no image"):
            image_fetch.fetch(place, Store())


# ---- what is never believed


def refused(text: str, says: str, wanted: PullOptions | None = None) -> None:
    """Require that a reference is refused with a sentence, and that nothing of it stays in the cache."""
    with pytest.raises(UserInputError) as caught:
        local(Path(text), wanted)
    assert says in caught.value.message and caught.value.hint, caught.value.message
    folder = Store().root / "bundle"
    assert not folder.exists() or not list(folder.iterdir())


@attack
@pytest.mark.parametrize(
    ("mode", "says"), [("cut-manifest", "is not JSON"), ("cut-blob", "cut short"), ("flood", "sends more than")]
)
def test_a_copier_that_was_cut_short_or_has_no_end(
    mode: str, says: str, bundle: Path, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not registry.exists()
    pinned = push(bundle, to=NAME)
    monkeypatch.setattr(skopeo, "LOOK_S", 0.01)
    monkeypatch.setenv("FAKE_SKOPEO", mode)
    refused(NAME, says)
    refused(pinned, "cut short" if mode == "cut-manifest" else says)
    monkeypatch.delenv("FAKE_SKOPEO")
    assert local(Path(NAME)).is_dir()


@attack
def test_a_registry_that_has_something_else_after_a_push(
    bundle: Path, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not registry.exists()
    monkeypatch.setenv("FAKE_SKOPEO", "cut-manifest")
    with pytest.raises(HostError, match="answers with something else"):
        push(bundle, to=NAME)


def layout_with(
    folder: Path,
    source: Path,
    change: Callable[[Bundle], Bundle | bytes] = lambda record: record,
    files: Callable[[list[ArtefactBlob]], list[ArtefactBlob]] = lambda blobs: blobs,
    kind: ArtefactKind = KIND,
) -> str:
    """Write an artefact of a bundle with a changed record, and other files; returns its reference."""
    record = bundle_folder.load(source).bundle
    writer = LayoutWriter(folder, kind)
    blobs = [writer.file(source / one.name, one.name)[0] for one in record.files]
    made = change(record)
    data = made if isinstance(made, bytes) else records.to_bytes(made)
    writer.name(writer.artefact(data, files(blobs)))
    return f"oci:{folder}"


def listing(*more: BundleFile) -> Callable[[Bundle], Bundle]:
    return lambda record: replace(record, files=(*record.files, *more))


def with_first(**other: Any) -> Callable[[Bundle], Bundle]:
    def changed(record: Bundle) -> Bundle:
        return replace(record, files=(replace(record.files[0], **other), *record.files[1:]))

    return changed


@attack
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: b"{}", "the record of oci:"),
        (lambda _: b"\xff" * 1000, "the record of oci:"),
        (lambda record: replace(record, kernel="../../etc/passwd"), "not a plain name"),
        (lambda record: replace(record, cpus=1000), "1000 CPUs"),
        (listing(BundleFile("more", 1, "0" * 64)), "lacks the file more of its record"),
        (listing(BundleFile("trace", 0, "0" * 64)), "lacks the file trace"),
        (with_first(name="other"), "lacks the file other"),
        (with_first(bytes=1 << 50), "at most"),
        (with_first(bytes=1), "more in its file"),
        (with_first(bytes=100_000), "does not know"),
        (with_first(sha256="0" * 64), "does not know"),
        (lambda record: replace(record, files=(*record.files, record.files[0])), "listed twice"),
        (lambda record: replace(record, root="nothing"), "lacks its file nothing"),
    ],
)
def test_hostile_records(change: Callable[[Bundle], Bundle | bytes], says: str, bundle: Path, tmp_path: Path) -> None:
    refused(layout_with(tmp_path / "layout", bundle, change), says)


@attack
@pytest.mark.parametrize("name", [RECORD, "report.html", "monitors.json", "state.raw", "trace"])
def test_files_that_no_bundle_sends(name: str, bundle: Path, tmp_path: Path) -> None:
    """Each is listed, and sent: only its name is not one that travels."""
    (tmp_path / "file").write_bytes(b"x")
    sha256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    writer = LayoutWriter(tmp_path / "layout", KIND)
    more, _ = writer.file(tmp_path / "file", name)
    reference = layout_with(
        tmp_path / "layout", bundle, listing(BundleFile(name, 1, sha256)), lambda blobs: [*blobs, more]
    )
    refused(reference, "as a file and as a folder" if name == "trace" else "which no bundle sends")


@attack
def test_a_file_that_is_not_listed(bundle: Path, tmp_path: Path) -> None:
    more = ArtefactBlob(KIND.file_type, "sha256:" + "a" * 64, 5, "more")
    refused(
        layout_with(tmp_path / "layout", bundle, files=lambda blobs: [*blobs, more]),
        "has the file more, which its record does not list",
    )


@attack
def test_an_index_whose_part_is_for_another_processor(bundle: Path, tmp_path: Path) -> None:
    writer = LayoutWriter(tmp_path / "layout", KIND)
    record = bundle_folder.load(bundle)
    blobs = [writer.file(bundle / one.name, one.name)[0] for one in record.bundle.files]
    writer.name(writer.index({"arm64": writer.artefact(record.record_bytes, blobs)}))
    refused(f"oci:{tmp_path}/layout", "in the place of one for arm64", PullOptions(architecture="arm64"))


@attack
def test_artefacts_of_another_type(bundle: Path, tmp_path: Path) -> None:
    reference = layout_with(tmp_path / "layout", bundle, kind=ArtefactKind("other", "another"))
    refused(reference, "is an artefact of the type 'application/vnd.vmtailor.other.v1', not a bundle")


def test_an_image_stays_an_image_whatever_type_it_says(tmp_path: Path, own_cache: Store) -> None:
    assert own_cache.root.is_dir()
    writer = LayoutWriter(tmp_path / "layout", KIND)
    for kind in ("", "application/vnd.anything"):
        document: dict[str, Any] = {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            **({"artifactType": kind} if kind else {}),
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:" + "a" * 64},
            "layers": [],
        }
        writer.name(writer._added(document))
        path = Path(f"oci:{tmp_path}/layout")
        assert local(path) == path


@attack
def test_more_than_the_limit_is_refused_before_it_is_fetched(bundle: Path, registry: Path) -> None:
    (bundle / "root.erofs").write_bytes(os.urandom(3 << 20))
    bundle_folder.seal(bundle, bundle_folder.load(bundle).bundle)
    push(bundle, to=NAME)
    before = (registry / "calls").read_text()
    refused(NAME, "at most 2M are taken", PullOptions(max_bytes=2 << 20))
    assert "dir:" not in (registry / "calls").read_text().removeprefix(before)
    assert local(Path(NAME), PullOptions(max_bytes=32 << 20)).is_dir()


@attack
def test_what_unpacks_to_more_than_the_limit_is_refused(bundle: Path, tmp_path: Path) -> None:
    with (bundle / "root.erofs").open("wb") as root:
        root.truncate(40 << 20)
    bundle_folder.seal(bundle, bundle_folder.load(bundle).bundle)
    push(bundle, to=f"oci:{tmp_path}/layout")
    refused(f"oci:{tmp_path}/layout", "at most 32M are taken", PullOptions(max_bytes=32 << 20))


@attack
def test_a_memory_of_references_that_was_damaged_is_not_believed(
    bundle: Path, registry: Path, own_cache: Store
) -> None:
    assert not registry.exists()
    push(bundle, to=NAME)
    came = local(Path(NAME))
    (memory,) = (own_cache.root / "bundle-references").iterdir()
    for content in ("", "{", json.dumps({"schema": "vmtailor/pulled-reference/1", "top": "x", "manifest": "../.."})):
        memory.write_text(content)
        assert local(Path(NAME)) == came
