# SPDX-License-Identifier: Apache-2.0
"""Layers that end where the content of their last file ends, as umoci writes them: whole, and read as such."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.tars import directory, file, read_flat, tar_of

from vmtailor.drivers.image.layers import DamagedLayer, Layer, merge


def unpadded(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar without end blocks, and without the zeros after its last file."""
    return tar_of(*entries)[: -1024 - (-len(entries[-1][1]) % 512) or None]


def merged(folder: Path, data: bytes, *, checked: bool = True) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    path = folder / "layer"
    path.write_bytes(data)
    content = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    diff_id = f"sha256:{hashlib.sha256(content).hexdigest()}" if checked else ""
    merge([Layer(path, "sha256:abc", diff_id)], folder / "flat.tar")
    return read_flat(folder / "flat.tar")


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("size", [0, 1, 5, 511, 512, 513, 1000, 300_000])
def test_a_last_file_without_its_padding_is_read(tmp_path: Path, size: int, checked: bool) -> None:
    data = unpadded(directory("d"), file("d/f", b"first"), file("last", b"x" * size))
    assert len(data) % 512 == size % 512
    assert merged(tmp_path, data, checked=checked)["last"][1] == b"x" * size
    assert merged(tmp_path, gzip.compress(data), checked=checked)["d/f"][1] == b"first"


def test_padding_that_is_cut_in_its_middle(tmp_path: Path) -> None:
    data = unpadded(file("last", b"x" * 100))
    for zeros in (1, 200, 411):
        assert merged(tmp_path, data + bytes(zeros))["last"][1] == b"x" * 100


@pytest.mark.attack
def test_content_that_is_cut_is_still_refused(tmp_path: Path) -> None:
    data = unpadded(file("first", b"1" * 700), file("last", b"x" * 1000))
    for cut in (1, 100, 489, 999, 1000, 1001, 1300, 1500):
        with pytest.raises(DamagedLayer):
            merged(tmp_path, data[:-cut], checked=False)


def test_a_sparse_file_at_the_end(tmp_path: Path) -> None:
    claims = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "5000", "GNU.sparse.name": "s"}
    content = b"1\n4000\n7\n".ljust(512, b"\0") + b"content"
    data = unpadded(file("first", b"1"), file("s", content, pax_headers=claims))
    assert merged(tmp_path, data)["s"][1] == bytes(4000) + b"content" + bytes(993)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(0, 2000), min_size=1, max_size=4), st.integers(0, 4000))
def test_any_cut_is_read_whole_or_refused(tmp_path: Path, sizes: list[int], cut: int) -> None:
    """What is read is a beginning of the layer: the first files, each with all of its content."""
    entries = [file(f"f{n}", bytes([n + 1]) * size) for n, size in enumerate(sizes)]
    data = tar_of(*entries)
    try:
        found = merged(tmp_path, data[: max(0, len(data) - cut)], checked=False)
    except DamagedLayer:
        return
    names = [name for name in found if name != "."]
    assert names == [f"f{n}" for n in range(len(names))]
    assert all(found[name][1] == entries[n][1] for n, name in enumerate(names))


def test_the_tar_of_this_library_agrees(tmp_path: Path) -> None:
    """What we read is what is in it by the rules: the same archive, padded, gives the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("f")
        info.size = 77
        archive.addfile(info, io.BytesIO(b"y" * 77))
    whole = out.getvalue()
    assert merged(tmp_path, whole)["f"][1] == merged(tmp_path, whole[: 512 + 77])["f"][1]
