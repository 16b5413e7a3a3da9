# SPDX-License-Identifier: Apache-2.0
"""Layers that mean harm, or are broken: one clear error, nothing written but the archive, memory and time bounded."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.tars import directory, entry, file, hardlink, layers_of, read_flat, symlink, tar_of

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.image.allowance import DEFAULT_BYTES, DEPTH, RESERVE_BYTES, SMALL_BYTES, ImageLimits, TooLarge
from vmtailor.drivers.image.decompress import chunks_of
from vmtailor.drivers.image.layers import DamagedLayer, Layer, merge, uncompress

pytestmark = pytest.mark.attack

GOOD = tar_of(
    directory("d"), file("d/f", b"content" * 300, pax_headers={"SCHILY.xattr.user.x": "y"}), symlink("l", "d/f"),
    hardlink("h", "d/f"), file("x" * 150, b"long name"),
)  # fmt: skip


def refused(folder: Path, data: bytes, match: str, limits: ImageLimits | None = None) -> UserInputError:
    path = folder / "layer"
    path.write_bytes(data)
    inside = set(folder.iterdir())
    with pytest.raises(DamagedLayer if limits is None else (DamagedLayer, TooLarge), match=match) as caught:
        merge([Layer(path, "sha256:abc")], folder / "flat.tar", limits)
    assert "sha256:abc" in caught.value.message
    assert caught.value.hint
    assert set(folder.iterdir()) <= inside | {folder / "flat.tar"}
    return caught.value


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/../evil", "a/../..", "..", "./../../etc/passwd"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    refused(tmp_path, tar_of(file(name, b"x")), "leads out")
    refused(tmp_path, tar_of(file("good"), hardlink("link", name)), "leads out")


def test_links_that_lead_out_are_kept_as_text_and_never_followed_on_the_host(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("host")
    inside = tmp_path / "inside"
    inside.mkdir()
    data = tar_of(
        symlink("abs", str(outside)), file("abs/written", b"1"),
        symlink("rel", "../" * 30 + str(outside)), file("rel/also", b"2"), file("abs/.wh.secret"),
    )  # fmt: skip
    merge(layers_of(inside, [data]), inside / "flat.tar")
    flat = read_flat(inside / "flat.tar")
    place = str(outside).lstrip("/")
    assert flat["abs"][0].issym() and flat["rel"][0].issym()
    assert flat[f"{place}/written"][1] == b"1" and flat[f"{place}/also"][1] == b"2"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    refused(inside, tar_of(symlink("abs", str(outside)), hardlink("got", "abs/secret")), "not there")


def test_links_in_circles(tmp_path: Path) -> None:
    refused(tmp_path, tar_of(symlink("a", "b"), symlink("b", "a"), file("a/f")), "circles")
    refused(tmp_path, tar_of(symlink("a", "a/a/a"), file("a/f")), "circles")


def test_links_that_multiply_the_work(tmp_path: Path) -> None:
    chain = [symlink(f"l{n}", "/".join([f"l{n + 1}", ".."] * 100)) for n in range(10)]
    refused(tmp_path, tar_of(*chain, *(file(f"l0/{n}") for n in range(10))), "circles")


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    refused(tmp_path, tar_of(file("n", pax_headers={"path": "a\0b"})), "can have")
    refused(tmp_path, tar_of(file("a" * 256)), "can have")
    refused(tmp_path, tar_of(file("a/" * 3000)), "can have")
    refused(tmp_path, tar_of(symlink("a", "")), "symbolic link")


def test_hard_links_to_nothing_and_to_directories(tmp_path: Path) -> None:
    refused(tmp_path, tar_of(hardlink("a", "nothing")), "not there")
    refused(tmp_path, tar_of(directory("d"), hardlink("a", "d")), "directory")
    refused(tmp_path, tar_of(file("f"), hardlink("a", "/")), "not there")


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", "a/.wh..."])
def test_whiteouts_of_nothing(tmp_path: Path, name: str) -> None:
    refused(tmp_path, tar_of(directory("a"), file(name)), "whiteout")


def test_a_root_that_is_no_directory(tmp_path: Path) -> None:
    refused(tmp_path, tar_of(symlink("./", "/etc")), "root")
    refused(tmp_path, tar_of(file("a/..", b"x")), "root")


def test_files_of_aufs_are_reached_by_links_alone(tmp_path: Path) -> None:
    aside = file(".wh..wh.plnk/1.2", b"x")
    refused(tmp_path, tar_of(aside, hardlink("a", ".wh..wh.plnk/3.4")), "not there")
    refused(tmp_path, tar_of(directory(".wh..wh.plnk"), hardlink("a", ".wh..wh.plnk")), "not there")
    # Those of another layer are gone.
    stack = layers_of(tmp_path, [tar_of(aside), tar_of(hardlink("a", ".wh..wh.plnk/1.2"))])
    with pytest.raises(DamagedLayer, match="not there"):
        merge(stack, tmp_path / "flat.tar")


def test_unknown_types_and_impossible_numbers(tmp_path: Path) -> None:
    refused(tmp_path, tar_of((entry("s", b"Z"), b"")), "unknown type")
    refused(tmp_path, tar_of(file("f", uid=2**32)), "user or group")
    refused(tmp_path, tar_of(file("f", pax_headers={"uid": "-5"})), "user or group")
    refused(tmp_path, tar_of(file("f"), hardlink("g", "f", pax_headers={"gid": "-5"})), "user or group")
    refused(tmp_path, tar_of((entry("d", tarfile.BLKTYPE, devmajor=5000), b"")), "device")


@pytest.mark.parametrize("time", ["inf", "nan", "-1", "1e300", "9" * 40, "1.5", "4294967296.5"])
def test_impossible_times_are_cut(tmp_path: Path, time: str) -> None:
    merge(layers_of(tmp_path, [tar_of(file("f", pax_headers={"mtime": time}))]), tmp_path / "flat")
    assert 0 <= read_flat(tmp_path / "flat")["f"][0].mtime <= 2**32 - 1


def test_duplicates_the_last_one_counts(tmp_path: Path) -> None:
    data = tar_of(*(file("same", str(n).encode()) for n in range(1000)))
    merge(layers_of(tmp_path, [data]), tmp_path / "flat")
    assert read_flat(tmp_path / "flat")["same"][1] == b"999"


def test_truncated_layers(tmp_path: Path) -> None:
    for cut in (100, 700, 1600, len(GOOD) - 2000):
        refused(tmp_path, GOOD[:cut], "damaged")
    packed = gzip.compress(GOOD)
    for cut in (5, 50, len(packed) - 1):
        refused(tmp_path, packed[:cut], "damaged")
    packed = subprocess.run(["zstd", "-c"], input=GOOD, stdout=subprocess.PIPE, check=True).stdout
    refused(tmp_path, packed[:-5], "damaged")
    refused(tmp_path, gzip.compress(b"")[:-3], "damaged")


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    data = bytearray(tar_of(file("a", b"1"), file("b", b"2"), file("c", b"3")))
    data[1024 + 5] ^= 1
    refused(tmp_path, bytes(data), "makes no sense")


def test_content_with_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "layer"
    path.write_bytes(GOOD)
    with pytest.raises(DamagedLayer, match="digest"):
        merge([Layer(path, "layer", "sha256:" + "0" * 64)], tmp_path / "flat")


def test_more_than_the_limits(tmp_path: Path) -> None:
    many = tar_of(*(file(f"f{n}") for n in range(101)))
    refused(tmp_path, many, "more than 100 entries", ImageLimits(entries=100))
    refused(tmp_path, tar_of(file("f", b"x" * 5000)), "more than 4000 bytes", ImageLimits(unpacked_bytes=4000))
    refused(tmp_path, tar_of(file("a" * 200), file("b" * 200)), "names", ImageLimits(metadata_bytes=300))
    # A size that is only claimed, as a sparse file or not, counts all the same.
    refused(tmp_path, tar_of((entry("f", size=1 << 60), b"")), "more than", ImageLimits())
    claims = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": str(1 << 60),
        "GNU.sparse.name": "f",
    }
    refused(
        tmp_path, tar_of((entry("f", size=512, pax_headers=claims), b"0\n" + bytes(510))), "more than", ImageLimits()
    )


def test_a_decompression_bomb_ends_at_the_limit(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(64 << 20), 9)
    refused(tmp_path, bomb, "more than", ImageLimits(unpacked_bytes=1 << 20))
    inside = gzip.compress(GOOD[:-1024] + tar_of(file("zeros", bytes(32 << 20))), 9)
    refused(tmp_path, inside, "more than", ImageLimits(unpacked_bytes=1 << 20))
    # Zeros after the end of the archive count as well.
    refused(tmp_path, gzip.compress(GOOD + bytes(32 << 20)), "more than", ImageLimits(unpacked_bytes=1 << 20))


def test_absurd_headers_do_not_fill_memory(tmp_path: Path) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        huge = entry("././@LongLink", kind, size=1 << 33).tobuf(tarfile.GNU_FORMAT) + bytes(8 << 20)
        refused(tmp_path, gzip.compress(huge), "too large")
    endless = entry("p", tarfile.XHDTYPE, size=0).tobuf(tarfile.USTAR_FORMAT) * 5000
    refused(tmp_path, endless, "damaged")


def test_the_limit_is_of_all_layers_together_and_says_how_to_raise_it(tmp_path: Path) -> None:
    stack = layers_of(tmp_path, [tar_of(file("a", bytes(600 << 10))), tar_of(file("b", bytes(600 << 10)))])
    with pytest.raises(TooLarge, match="more than 1M; the limit for an image is 1M") as caught:
        merge(stack, tmp_path / "flat", ImageLimits(unpacked_bytes=1 << 20))
    assert "--max-image-size 2M" in caught.value.hint
    assert not (tmp_path / "flat").exists()
    assert merge(stack, tmp_path / "flat", ImageLimits(unpacked_bytes=2 << 20)).unpacked_bytes == 1200 << 10


def test_an_image_is_stopped_while_it_streams_not_when_it_is_whole(tmp_path: Path) -> None:
    """Whatever is behind 64 KB, no more than the limit is ever taken out of it."""
    bomb = tmp_path / "layer"
    with gzip.open(bomb, "wb", 9) as out:
        for _ in range(64):
            out.write(bytes(1 << 20))
    taken = 0

    def counted(path: Path) -> Iterator[bytes]:
        nonlocal taken
        for piece in chunks_of(path):
            taken += len(piece)
            yield piece

    with pytest.MonkeyPatch.context() as patch, pytest.raises(TooLarge):
        patch.setattr("vmtailor.drivers.image.layer_reader.chunks_of", counted)
        uncompress(bomb, tmp_path / "out", ImageLimits(unpacked_bytes=2 << 20))
    assert taken <= 3 << 20
    assert (tmp_path / "out").stat().st_size <= 2 << 20


@pytest.mark.parametrize("free", ["little", "much"])
def test_the_default_limit_fits_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: str) -> None:
    class Usage:
        free = 0

    Usage.free = (DEFAULT_BYTES * 2) - (1 if free == "little" else 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    found = ImageLimits.for_disk(tmp_path)
    assert found.unpacked_bytes == (SMALL_BYTES if free == "little" else DEFAULT_BYTES)
    assert found.entries == found.unpacked_bytes // 4096


def test_writing_stops_before_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = RESERVE_BYTES - 1

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    packed = tmp_path / "layer"
    packed.write_bytes(gzip.compress(bytes(32 << 20), 1))
    with pytest.raises(HostError, match="no space is left"):
        uncompress(packed, tmp_path / "out", ImageLimits())
    assert (tmp_path / "out").stat().st_size < 20 << 20


def test_folders_within_folders_have_an_end(tmp_path: Path) -> None:
    merge(layers_of(tmp_path, [tar_of(directory("d/" * DEPTH))]), tmp_path / "flat.tar")
    refused(tmp_path, tar_of(directory("d/" * (DEPTH + 1))), "deep")
    refused(tmp_path, tar_of(file("d/" * 2000)), "deep")
    links = tar_of(directory("d/" * 300), symlink("l", "d/" * 300), file("l/" + "e/" * (DEPTH - 200) + "f"))
    refused(tmp_path, links, "deep")


@pytest.mark.parametrize("number", ["1" + "0" * 30, "9" * 5000, "nan", "inf", "1e3", "", "-" + "9" * 30, "\u0661"])
@pytest.mark.parametrize("key", ["uid", "gid", "size"])
def test_headers_with_numbers_that_are_none(tmp_path: Path, key: str, number: str) -> None:
    """Read leniently, the owner would be root, and the content nothing."""
    refused(tmp_path, tar_of(file("f", b"x", pax_headers={key: number})), "f", ImageLimits())


def test_a_full_disk_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 100

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(HostError, match="left"):
        merge(layers_of(tmp_path, [GOOD]), tmp_path / "flat")


@pytest.mark.lengthy
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
def test_any_damage_gives_an_archive_or_one_error(tmp_path: Path, flips: list[tuple[int, int]], repair: bool) -> None:
    data = bytearray(GOOD)
    for at, value in flips:
        data[at] = value
        if repair:  # a right checksum lets the damage through to what reads the fields
            start = at - at % 512
            header = data[start : start + 512]
            header[148:156] = b" " * 8
            data[start + 148 : start + 156] = b"%06o\0 " % sum(header)
    path = tmp_path / "layer"
    path.write_bytes(data)
    try:
        merge([Layer(path, "fuzzed")], tmp_path / "flat", ImageLimits(unpacked_bytes=1 << 24))
    except (DamagedLayer, TooLarge):
        return
    read_flat(tmp_path / "flat")


_MANY = """
import re, sys
from pathlib import Path
from vmtailor.drivers.image.layers import Layer, merge
merged = merge([Layer(Path(sys.argv[1]), "many")], Path(sys.argv[2]))
# Not ru_maxrss: a process inherits the peak of the one that it was forked from.
print(merged.entries, re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.lengthy
def test_many_entries_take_bounded_memory(tmp_path: Path) -> None:
    count = 40_000
    with gzip.open(tmp_path / "layer", "wb", 1) as out:
        for n in range(count):
            out.write(entry(f"dir{n % 1000}/sub/file-with-some-name-{n}").tobuf(tarfile.PAX_FORMAT))
        out.write(bytes(1024))
    command = [sys.executable, "-c", _MANY, str(tmp_path / "layer"), str(tmp_path / "flat")]
    entries, kilobytes = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.split()
    assert int(entries) == count + 2000
    # A million of them would stay below 1.5 GB.
    assert int(kilobytes) * 1024 < (100 << 20) + count * 1400
