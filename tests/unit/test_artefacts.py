# SPDX-License-Identifier: Apache-2.0
"""Artefacts in OCI layouts: what is written is read again, and what a stranger wrote is refused with the reason."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image import artefact, artefact_layout, artefact_source
from vmtailor.drivers.image.allowance import ImageLimits
from vmtailor.drivers.image.artefact import PACKED, TITLE, Artefact, ArtefactBlob, ArtefactKind, digest_of
from vmtailor.drivers.image.artefact_layout import BlobFolder, LayoutWriter
from vmtailor.drivers.image.skopeo import Access

KIND = ArtefactKind("sample", "a sample")
ACCESS = Access(None, "amd64")
LIMITS = ImageLimits.of_size(1 << 20)
TEXT = b"a line that is said again\n" * 1000
NOISE = hashlib.shake_256(b"noise").digest(5000)

attack = pytest.mark.attack


def files_of(folder: Path) -> dict[str, bytes]:
    return {"text": TEXT, "noise": NOISE, "trace/empty": b"", "holes": bytes(300_000)}


def written(folder: Path, tmp_path: Path, config: bytes = b'{"a":1}') -> tuple[LayoutWriter, ArtefactBlob]:
    writer = LayoutWriter(folder, KIND)
    blobs = []
    for name, data in files_of(tmp_path).items():
        path = tmp_path / f"source-{name.replace('/', '-')}"
        path.write_bytes(data)
        blob, raw = writer.file(path, name)
        assert raw == hashlib.sha256(data).hexdigest()
        blobs.append(blob)
    return writer, writer.artefact(config, blobs, {"b": "c"})


def found_at(text: str, tmp_path: Path, access: Access = ACCESS) -> tuple[Artefact, BlobFolder]:
    where = artefact_source.place(text)
    assert where is not None
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    found = artefact_source.find(where, access, scratch, LIMITS)
    wanted = artefact_source.read(found, KIND, access, LIMITS)
    return wanted, artefact_source.fetch(found, wanted, access, scratch, LIMITS)


def test_a_layout_is_read_as_it_was_written(tmp_path: Path) -> None:
    writer, top = written(tmp_path / "layout", tmp_path)
    writer.name(top, "one")
    wanted, blobs = found_at(f"oci:{tmp_path}/layout:one", tmp_path)
    assert wanted.digest == top.digest and dict(wanted.annotations) == {"b": "c"}
    assert blobs.document(wanted.config.digest) == b'{"a":1}'
    packed = {one.title: one.packed for one in wanted.files}
    assert packed == {"text": True, "noise": False, "trace/empty": False, "holes": True}
    for one in wanted.files:
        target = tmp_path / "out"
        raw = blobs.write(one, target, 300_000)
        data = files_of(tmp_path)[one.title]
        assert target.read_bytes() == data and raw == hashlib.sha256(data).hexdigest()
        target.unlink()


def test_zeros_become_holes(tmp_path: Path) -> None:
    writer, top = written(tmp_path / "layout", tmp_path)
    writer.name(top)
    wanted, blobs = found_at(f"oci:{tmp_path}/layout", tmp_path)
    (holes,) = (one for one in wanted.files if one.title == "holes")
    assert holes.size_bytes < 200
    blobs.write(holes, tmp_path / "out", 300_000)
    assert (tmp_path / "out").stat().st_blocks == 0


def test_the_same_files_give_the_same_digest(tmp_path: Path) -> None:
    (_, one), (_, other) = (written(tmp_path / name, tmp_path) for name in ("one", "other"))
    assert one == other


def test_an_archive_is_read_as_its_layout(tmp_path: Path) -> None:
    writer, top = written(tmp_path / "layout", tmp_path)
    writer.name(top)
    for name in ("one.tar", "two.tar"):
        artefact_layout.write_archive(writer.folder, tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    wanted, blobs = found_at(f"oci-archive:{tmp_path}/one.tar", tmp_path)
    assert wanted.digest == top.digest
    noise = wanted.files[1]
    blobs.write(noise, tmp_path / "out", 5000)
    assert (tmp_path / "out").read_bytes() == NOISE


def test_an_index_gives_the_part_of_the_processor(tmp_path: Path) -> None:
    writer, one = written(tmp_path / "layout", tmp_path, b'{"a":1}')
    _, two = written(tmp_path / "layout", tmp_path, b'{"a":2}')
    writer.name(writer.index({"amd64": one, "arm64": two}))
    assert found_at(f"oci:{tmp_path}/layout", tmp_path)[0].digest == one.digest
    assert found_at(f"oci:{tmp_path}/layout", tmp_path, Access(None, "arm64"))[0].digest == two.digest
    with pytest.raises(UserInputError, match="no part for the processor riscv64; it has 'amd64, arm64'"):
        found_at(f"oci:{tmp_path}/layout", tmp_path, Access(None, "riscv64"))


def test_a_layout_has_several_tags_and_one_can_be_replaced(tmp_path: Path) -> None:
    writer, one = written(tmp_path / "layout", tmp_path, b'{"a":1}')
    writer.name(one, "x")
    again, two = written(tmp_path / "layout", tmp_path, b'{"a":2}')
    again.name(two, "y")
    assert found_at(f"oci:{tmp_path}/layout:x", tmp_path)[0].digest == one.digest
    assert found_at(f"oci:{tmp_path}/layout@{one.digest}", tmp_path)[0].digest == one.digest
    with pytest.raises(UserInputError, match="several entries"):
        found_at(f"oci:{tmp_path}/layout", tmp_path)
    again.name(two, "x")
    assert found_at(f"oci:{tmp_path}/layout:x", tmp_path)[0].digest == two.digest
    with pytest.raises(UserInputError, match="no entry of the tag 'z'"):
        found_at(f"oci:{tmp_path}/layout:z", tmp_path)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    with pytest.raises(UserInputError, match="no OCI layout"):
        LayoutWriter(tmp_path / "mine", KIND)
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["file"]


@pytest.mark.parametrize("text", ["bundle", "rootfs:x", "docker-daemon:x", "/a/b", "disk:x", "C:x"])
def test_other_references_are_no_places(text: str) -> None:
    assert artefact_source.place(text) is None


def test_places() -> None:
    digest = "sha256:" + "a" * 64
    one = artefact_source.place(f"docker://h:5000/x/y:1@{digest}")
    assert one is not None and one.digest == digest and one.pinned(digest) == f"docker://h:5000/x/y@{digest}"
    for wrong in ("docker://h/x@sha256:12", "oci:x@sha256:zz", "oci:", "oci-archive:"):
        with pytest.raises(UserInputError):
            artefact_source.place(wrong)


# ---- what a stranger may send

BLOB = "sha256:" + "a" * 64
FILE = {"mediaType": KIND.file_type, "digest": BLOB, "size": 10, "annotations": {TITLE: "file"}}
GOOD: dict[str, Any] = {
    "schemaVersion": 2,
    "artifactType": KIND.type,
    "config": {"mediaType": KIND.config_type, "digest": BLOB, "size": 5},
    "layers": [FILE],
}


def manifest(document: dict[str, Any], most: int = 1 << 20) -> Artefact:
    return artefact.read_manifest(json.dumps(document).encode(), KIND, "oci:x", most)


def named(title: Any) -> dict[str, Any]:
    return {**GOOD, "layers": [{**FILE, "annotations": {TITLE: title}}]}


def filed(**more: Any) -> dict[str, Any]:
    return {**GOOD, "layers": [{**FILE, **more}]}


@attack
@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({**GOOD, "artifactType": "application/vnd.other"}, "of the type 'application/vnd.other', not a sample"),
        ({**GOOD, "artifactType": None}, "is an image, not a sample"),
        ({**GOOD, "artifacttype": KIND.type}, "twice"),
        ({**GOOD, "manifests": []}, "an index at once"),
        ({"artifactType": KIND.type, "manifests": []}, "an index within its index"),
        ({**GOOD, "config": None}, "no configuration"),
        ({**GOOD, "config": {**GOOD["config"], "mediaType": "application/json"}}, "configuration of the type"),
        ({**GOOD, "config": {**GOOD["config"], "size": 9 << 20}}, "configuration of more than 8 MiB"),
        ({**GOOD, "layers": None}, "no list of files"),
        ({**GOOD, "layers": [1]}, "no list of files"),
        ({**GOOD, "layers": [FILE, FILE]}, "the file file twice"),
        ({**GOOD, "layers": [{**FILE, "annotations": {TITLE: str(n)}} for n in range(1001)]}, "1001 files; at most"),
        (filed(mediaType="application/vnd.oci.image.layer.v1.tar"), "a file of the type"),
        (filed(mediaType=None), "a file of the type ''"),
        (filed(digest="sha512:" + "a" * 128), "no SHA-256"),
        (filed(digest="sha256:../../etc/passwd"), "no SHA-256"),
        (filed(digest=7), "no SHA-256"),
        (filed(size=-1), "as the size"),
        (filed(size=True), "as the size"),
        (filed(size=1e3), "as the size"),
        (filed(size=2**63), "as the size"),
        (filed(size=2 << 20), "at most 1M are taken"),
        (filed(urls=["http://192.0.2.1/"]), "fetched from elsewhere"),
        (filed(annotations=[]), "no plain name"),
        *((named(title), "no plain name") for title in (
            "", "../x", "/etc/passwd", "a/b/c", "a//b", ".hidden", "a\n", "a\x1b[2J", "a\\b", "x" * 200, "é", 1, None)),
    ],
)  # fmt: skip
def test_hostile_manifests(document: dict[str, Any], says: str) -> None:
    assert manifest(GOOD).files[0].title == "file"
    with pytest.raises(UserInputError) as caught:
        manifest(document)
    assert says in caught.value.message and caught.value.hint


@attack
def test_a_manifest_with_100_000_files() -> None:
    with pytest.raises(UserInputError, match=r"larger than|100000 files; at most 1000"):
        manifest({**GOOD, "layers": [{"digest": BLOB}] * 100_000})


def part(processor: Any, **more: Any) -> dict[str, Any]:
    platform = {"os": "linux", "architecture": processor}
    return {"mediaType": artefact.MANIFEST, "digest": BLOB, "size": 5, "platform": platform, **more}


@attack
@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([], "no part for the processor amd64; it has 'none'"),
        ([part("arm64")], "it has 'arm64'"),
        ([part("amd64"), part("x86_64")], "2 parts for the processor amd64"),
        ([part("amd64", mediaType=artefact.INDEX)], "an index within its index"),
        ([part("amd64", platform=None)], "which processor each part is for"),
        ([part("amd64", platform={"os": "windows", "architecture": "amd64"})], "which processor"),
        ([part(["amd64"])], "which processor"),
        ([part("amd64", digest="x")], "no SHA-256"),
        ([part("arm64")] * 65, "65 processors; at most 64"),
        ({}, "no list of processors"),
    ],
)
def test_hostile_indices(parts: Any, says: str) -> None:
    index = json.dumps({"artifactType": KIND.type, "manifests": parts}).encode()
    with pytest.raises(UserInputError) as caught:
        artefact.choose(index, KIND, "oci:x", "amd64")
    assert says in caught.value.message


def in_folder(tmp_path: Path, data: bytes, packed: bool = False, **more: Any) -> tuple[BlobFolder, ArtefactBlob]:
    folder = tmp_path / "blobs"
    folder.mkdir(exist_ok=True)
    digest = digest_of(data)
    (folder / digest.removeprefix("sha256:")).write_bytes(data)
    blob = ArtefactBlob(KIND.file_type + PACKED * packed, digest, more.get("size", len(data)), "file")
    return BlobFolder(folder, "oci:x", ours=bool(more.get("ours"))), blob


@attack
@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"x" + data[1:], lambda data: b""],
)
def test_blobs_that_were_cut_short_or_changed(tmp_path: Path, ours: bool, change: Callable[[bytes], bytes]) -> None:
    folder, blob = in_folder(tmp_path, NOISE, ours=ours)
    (folder.folder / blob.hex).write_bytes(change(NOISE))
    with pytest.raises(UserInputError, match="cut short"):
        folder.write(blob, tmp_path / "out", 1 << 20)
    with pytest.raises(UserInputError, match="cut short"):
        folder.document(blob.digest)


@attack
def test_a_blob_whose_announced_size_is_not_its_own(tmp_path: Path) -> None:
    for size in (0, len(NOISE) - 1, len(NOISE) + 1):
        folder, blob = in_folder(tmp_path, NOISE, size=size)
        with pytest.raises(UserInputError, match="cut short"):
            folder.write(blob, tmp_path / f"out{size}", 1 << 20)


@attack
def test_a_blob_unpacks_to_no_more_than_its_record_says(tmp_path: Path) -> None:
    packed = zstandard.ZstdCompressor(level=19).compress(bytes(256 << 20))
    assert len(packed) < 100_000
    folder, blob = in_folder(tmp_path, packed, packed=True)
    with pytest.raises(UserInputError, match="more in its file file than the 1000 bytes"):
        folder.write(blob, tmp_path / "out", 1000)
    assert (tmp_path / "out").stat().st_blocks * 512 < 1 << 20
    for ours in (False, True):
        folder, blob = in_folder(tmp_path, NOISE, ours=ours)
        with pytest.raises(UserInputError, match="more in its file"):
            folder.write(blob, tmp_path / f"out{ours}", 10)


@attack
@pytest.mark.parametrize("data", [b"", b"no zstd", zstandard.compress(TEXT)[:-20] + b"x" * 20])
def test_a_damaged_stream_of_zstd(tmp_path: Path, data: bytes) -> None:
    folder, blob = in_folder(tmp_path, data, packed=True)
    try:
        raw = folder.write(blob, tmp_path / "out", 1 << 20)
    except UserInputError as error:
        assert "zstd cannot unpack" in error.message
    else:
        assert raw != hashlib.sha256(TEXT).hexdigest()


@attack
def test_a_stream_that_asks_for_much_memory(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=30)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = packed.compress(NOISE) + packed.flush()
    folder, blob = in_folder(tmp_path, data, packed=True)
    with pytest.raises(UserInputError, match="zstd cannot unpack"):
        folder.write(blob, tmp_path / "out", 1 << 20)


@attack
def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    folder, blob = in_folder(tmp_path, NOISE)
    path = folder.folder / blob.hex
    path.unlink()
    outside = tmp_path / "outside"
    outside.write_bytes(NOISE)
    makes: list[Callable[[], None]] = [lambda: os.mkfifo(path), lambda: path.symlink_to(outside), path.mkdir]
    for make in makes:
        make()
        with pytest.raises(UserInputError, match="something else than a file"):
            folder.write(blob, tmp_path / "out", 1 << 20)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    with pytest.raises(UserInputError, match="lacks its blob"):
        folder.document(blob.digest)
    assert not (tmp_path / "out").exists()


@attack
def test_folders_of_a_layout_are_no_links(tmp_path: Path) -> None:
    writer, top = written(tmp_path / "layout", tmp_path)
    writer.name(top)
    (tmp_path / "layout" / "blobs").rename(tmp_path / "elsewhere")
    (tmp_path / "layout" / "blobs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserInputError, match="no folder blobs"):
        found_at(f"oci:{tmp_path}/layout", tmp_path)


@attack
@pytest.mark.parametrize(
    "index", [b"", b"[]", b"{", b"{}", b'{"manifests": 1}', b'{"manifests": [1]}', b'{"manifests": []}',
              b'{"manifests": [{}]}', b'{"manifests": [{"digest": "sha256:../x"}]}', b"[" * 100_000]
)  # fmt: skip
def test_hostile_layouts(tmp_path: Path, index: bytes) -> None:
    written(tmp_path / "layout", tmp_path)
    (tmp_path / "layout" / "index.json").write_bytes(index)
    with pytest.raises(UserInputError):
        found_at(f"oci:{tmp_path}/layout", tmp_path)


@attack
def test_a_pinned_digest_is_never_believed(tmp_path: Path) -> None:
    writer, top = written(tmp_path / "layout", tmp_path)
    writer.name(top)
    path = tmp_path / "layout" / "blobs" / "sha256" / top.hex
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserInputError, match="cut short"):
        found_at(f"oci:{tmp_path}/layout@{top.digest}", tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["manifests", "layers", "config", "digest", "size", "mediaType", "annotations", TITLE,
                         "platform", "os", "architecture", "urls", "artifactType"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_any_document_is_read_or_refused(document: Any) -> None:
    data = json.dumps({**document, "artifactType": KIND.type} if isinstance(document, dict) else document).encode()
    for read in (
        lambda: artefact.read_manifest(data, KIND, "oci:x", 1000),
        lambda: artefact.choose(data, KIND, "oci:x", "amd64"),
    ):
        try:
            read()
        except UserInputError:
            continue
