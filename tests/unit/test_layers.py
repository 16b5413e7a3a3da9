# SPDX-License-Identifier: Apache-2.0
"""Merging layers: what a container engine would show, in one flat archive."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from tests.fakes.tars import MTIME, device, directory, entry, file, hardlink, layers_of, read_flat, symlink, tar_of

from vmtailor.drivers.image import flat_archive
from vmtailor.drivers.image.layer_reader import _xattrs
from vmtailor.drivers.image.layers import Layer, merge

Flat = dict[str, tuple[tarfile.TarInfo, bytes]]


def merged(folder: Path, *tars: bytes) -> Flat:
    out = folder / "flat.tar"
    result = merge(layers_of(folder, tars), out)
    assert result.sha256 == hashlib.sha256(out.read_bytes()).hexdigest()
    flat = read_flat(out)
    assert result.entries == len(flat) - 1
    seen: set[str] = set()
    for name, (info, _) in flat.items():
        if name != ".":
            assert str(PurePosixPath(name).parent) in seen, f"{name} before its parent"
        if info.islnk():
            assert info.linkname in seen, f"{name} before what it links to"
        seen.add(name)
    return flat


def test_what_an_entry_carries_is_kept(tmp_path: Path) -> None:
    capability = b"\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00".decode(
        "utf-8", "surrogateescape"
    )
    headers = {"SCHILY.xattr.security.capability": capability, "SCHILY.xattr.user.note": "é", "mtime": "1700000000.125"}
    flat = merged(
        tmp_path,
        tar_of(
            directory("./"),
            directory("bin", mode=0o751, uid=3, gid=4),
            file("bin/ping", b"x" * 1000, mode=0o4755, uid=70000, gid=2_000_000_000, pax_headers=headers),
            device("dev/null", 1, 3),
            (entry("run/pipe", tarfile.FIFOTYPE, mode=0o600), b""),
            symlink("sh", "/bin/../bin/ping"),
        ),
    )
    ping, data = flat["bin/ping"]
    assert data == b"x" * 1000
    assert (ping.mode, ping.uid, ping.gid) == (0o4755, 70000, 2_000_000_000)
    assert {key: ping.pax_headers[key] for key in headers} == headers
    assert (flat["bin"][0].mode, flat["bin"][0].uid, flat["bin"][0].gid, flat["bin"][0].mtime) == (0o751, 3, 4, MTIME)
    assert (flat["dev/null"][0].type, flat["dev/null"][0].devmajor, flat["dev/null"][0].devminor) == (b"3", 1, 3)
    assert flat["run/pipe"][0].isfifo()
    assert flat["sh"][0].linkname == "/bin/../bin/ping"
    # Directories that no entry describes belong to root and have a fixed time.
    assert (flat["dev"][0].mode, flat["dev"][0].uid, flat["dev"][0].mtime) == (0o755, 0, 0)


def test_attributes_in_the_other_notation_are_kept_and_marks_of_overlays_are_not(tmp_path: Path) -> None:
    headers = {"LIBARCHIVE.xattr.user.a%20b": "aGk=", "SCHILY.xattr.trusted.overlay.opaque": "y"}
    flat = merged(tmp_path, tar_of(file("f", pax_headers=headers)))
    assert flat["f"][0].pax_headers == {"SCHILY.xattr.user.a b": "hi"}


def test_whiteouts_act_on_lower_layers_only_wherever_they_stand(tmp_path: Path) -> None:
    lower = tar_of(file("a/old"), file("a/stays"), file("b/x"), file("c/x/deep"), file("d", b"5"))
    upper = tar_of(
        file("a/new", b"6"), file(".wh.d"), file("a/.wh.old"), file("b/mine", b"7"), file("b/.wh..wh..opq"),
        file("c/.wh.x"), file("c/x", b"8"), file("d", b"9"), file("nowhere/.wh.x"),
    )  # fmt: skip
    flat = merged(tmp_path, lower, upper)
    assert {name for name in flat if flat[name][0].isreg()} == {"a/stays", "a/new", "b/mine", "c/x", "d"}
    assert (flat["c/x"][1], flat["d"][1]) == (b"8", b"9")
    assert "nowhere" not in flat


def test_an_opaque_directory_in_the_place_of_a_link_hides_nothing_behind_the_link(tmp_path: Path) -> None:
    """`rm app/current && mkdir app/current`: what the link led to is still there."""
    lower = tar_of(
        file("app/releases/1/old"), symlink("app/current", "releases/1"), symlink("lib", "usr/lib"), file("usr/lib/x/y")
    )
    upper = tar_of(
        file("app/current/.wh..wh..opq"), directory("app/current"), file("app/current/new", b"1"),
        file("lib/x/.wh..wh..opq"), directory("lib"), directory("lib/x"), file("lib/x/.wh.y"),
    )  # fmt: skip
    flat = merged(tmp_path, lower, upper)
    assert "app/releases/1/old" in flat and flat["app/current/new"][1] == b"1" and "usr/lib/x/y" in flat
    # Through a link that stays, it hides what is there.
    assert "usr/lib/x/y" not in merged(tmp_path, lower, tar_of(file("lib/x/.wh..wh..opq")))


def test_an_attribute_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an extended attribute is called"):
        list(_xattrs({"SCHILY.xattr.user.\udcff": "v"}))


def test_kinds_replace_each_other(tmp_path: Path) -> None:
    lower = tar_of(file("a/b/c", b"1"), file("f", b"2"), symlink("l", "a"), directory("d"))
    upper = tar_of(
        file("a/b", b"3"), directory("f"), file("f/inside", b"4"), directory("l"), file("l/x", b"5"), symlink("d", "f")
    )
    flat = merged(tmp_path, lower, upper)
    assert flat["a/b"][1] == b"3" and "a/b/c" not in flat
    assert flat["f"][0].isdir() and flat["f/inside"][1] == b"4"
    assert flat["l"][0].isdir() and flat["l/x"][1] == b"5"
    assert flat["d"][0].issym()


def test_a_directory_entry_changes_a_directory_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    flat = merged(tmp_path, tar_of(directory("a", mode=0o700), file("a/f")), tar_of(directory("a", mode=0o755, uid=9)))
    assert (flat["a"][0].mode, flat["a"][0].uid) == (0o755, 9)
    assert "a/f" in flat


def test_hard_links_to_what_is_below_replaced_or_gone(tmp_path: Path) -> None:
    lower = tar_of(file("one", b"1"), file("two", b"2"), file("three", b"3"), hardlink("same", "one"))
    upper = tar_of(
        hardlink("to-two", "two"), file("two", b"new"), hardlink("new", "two"),
        hardlink("to-three", "./three"), file(".wh.three"),
    )  # fmt: skip
    flat = merged(tmp_path, lower, upper)
    assert "three" not in flat
    assert flat["to-three"][1] == b"3" and not flat["to-three"][0].islnk()
    assert flat["to-two"][1] == b"2" and not flat["to-two"][0].islnk()
    pairs = {frozenset((name, info.linkname)) for name, (info, _) in flat.items() if info.islnk()}
    assert pairs == {frozenset(("one", "same")), frozenset(("two", "new"))}
    assert flat["new"][1] == b"new" or flat["two"][1] == b"new"


def test_files_that_aufs_put_aside_are_their_names_in_the_image(tmp_path: Path) -> None:
    lower = tar_of(file("one", b"old"))
    upper = tar_of(
        hardlink("one", "./.wh..wh.plnk/5.6"), directory(".wh..wh.plnk", mode=0o700), directory(".wh..wh.orph"),
        file(".wh..wh.plnk/5.6", b"both", mode=0o640, uid=7), hardlink("d/two", "/.wh..wh.plnk/5.6"),
    )  # fmt: skip
    flat = merged(tmp_path, lower, upper)
    assert set(flat) == {".", "one", "d", "d/two"}
    assert flat["d/two"][1] == b"both" and (flat["d/two"][0].mode, flat["d/two"][0].uid) == (0o640, 7)
    assert flat["one"][0].linkname == "d/two"


def test_a_layer_of_0_bytes_has_nothing(tmp_path: Path) -> None:
    flat = merged(tmp_path, b"", tar_of(file("a", b"1")), b"")
    assert set(flat) == {".", "a"}
    (tmp_path / "packed").write_bytes(gzip.compress(b""))
    nothing = Layer(tmp_path / "packed", "packed", f"sha256:{hashlib.sha256().hexdigest()}")
    assert merge([nothing], tmp_path / "out").entries == 0


def test_names_that_go_up_are_cleaned_before_any_link_is_followed(tmp_path: Path) -> None:
    data = tar_of(
        symlink("l", "a/b"), file("w/a/../b", b"1"), file("l/../c", b"2"), hardlink("d", "x/.././/w/b"),
        file("w/.wh.z/../y", b"3"), file("./w/q/../../e", b"4"),
    )  # fmt: skip
    flat = merged(tmp_path, data)
    assert set(flat) == {".", "l", "w", "w/b", "c", "d", "w/y", "e"}
    assert (flat["c"][1], flat["w/y"][1], flat["e"][1]) == (b"2", b"3", b"4")
    assert flat["w/b"][0].linkname == "d" and flat["d"][1] == b"1"


def test_hard_links_to_links_and_devices(tmp_path: Path) -> None:
    flat = merged(tmp_path, tar_of(symlink("s", "t"), hardlink("s2", "s"), device("n", 1, 3), hardlink("n2", "n")))
    assert (flat["s2"][0].type, flat["s2"][0].linkname) == (tarfile.LNKTYPE, "s")
    assert (flat["n2"][0].type, flat["n2"][0].linkname) == (tarfile.LNKTYPE, "n")


def test_parents_that_are_links_are_followed_inside_the_image(tmp_path: Path) -> None:
    lower = tar_of(directory("usr/lib"), symlink("lib", "usr/lib"), symlink("abs", "/usr"), symlink("up", "../../usr"))
    upper = tar_of(file("lib/a", b"1"), file("abs/lib/b", b"2"), file("up/lib/c", b"3"), hardlink("lib/d", "abs/lib/a"))
    flat = merged(tmp_path, lower, upper)
    assert {name for name in flat if not flat[name][0].isdir()} == {
        "lib", "abs", "up", "usr/lib/a", "usr/lib/b", "usr/lib/c", "usr/lib/d"
    }  # fmt: skip
    flat = merged(tmp_path, lower, upper, tar_of(file("lib/.wh.a")))
    assert "usr/lib/a" not in flat and flat["usr/lib/d"][1] == b"1"


def test_absolute_names_lie_below_the_root(tmp_path: Path) -> None:
    assert merged(tmp_path, tar_of(file("/etc/passwd", b"x"), file("//./b")))["etc/passwd"][1] == b"x"


def test_names_of_any_bytes(tmp_path: Path) -> None:
    raw = b"\xff\xfe".decode("utf-8", "surrogateescape")
    names = ["new\nline", "tab\t", raw, "ä", "long" * 60, "a/" * 100 + "b", " "]
    flat = merged(tmp_path, tar_of(*(file(name, name.encode("utf-8", "surrogateescape")) for name in names)))
    for name in names:
        assert flat[name][1] == name.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("pack", ["none", "gzip", "two-gzips", "bzip2", "xz", "zstd"])
def test_compressions(tmp_path: Path, pack: str) -> None:
    data = tar_of(file("a", b"1" * 100_000), file("b", bytes(range(256)) * 5000))
    packed = {
        "none": lambda: data,
        "gzip": lambda: gzip.compress(data),
        "two-gzips": lambda: gzip.compress(data[:700]) + gzip.compress(data[700:]) + bytes(100),
        "bzip2": lambda: bz2.compress(data),
        "xz": lambda: lzma.compress(data),
        "zstd": lambda: subprocess.run(["zstd", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout,
    }[pack]()
    path = tmp_path / "layer"
    path.write_bytes(packed)
    out = tmp_path / "flat"
    merge([Layer(path, "layer", f"sha256:{hashlib.sha256(data).hexdigest()}")], out)
    assert read_flat(out)["b"][1] == bytes(range(256)) * 5000


def test_sparse_files_are_filled(tmp_path: Path) -> None:
    whole = tmp_path / "sparse"
    with whole.open("wb") as sparse:
        for at in (0, 1 << 20, 3 << 20):
            sparse.seek(at)
            sparse.write(b"data" * 1024)
        sparse.truncate(5 << 20)
    for form in ("gnu", "posix"):
        archive = tmp_path / f"{form}.tar"
        subprocess.run(
            ["tar", "-C", str(tmp_path), "--sparse", f"--format={form}", "-cf", str(archive), "sparse"], check=True
        )
        assert archive.stat().st_size < 1 << 20
        out = tmp_path / "flat"
        merge([Layer(archive, form)], out)
        assert read_flat(out)["sparse"][1] == whole.read_bytes()


def test_the_same_layers_give_the_same_bytes_however_they_are_packed(tmp_path: Path) -> None:
    data = tar_of(file("b", b"1"), file("a/z", b"2"), hardlink("c", "b"), symlink("d", "b"))
    (tmp_path / "x").write_bytes(data)
    (tmp_path / "y").write_bytes(gzip.compress(data))
    results = [merge([Layer(tmp_path / name, name)], tmp_path / f"{name}.flat").sha256 for name in ("x", "y", "x")]
    assert len(set(results)) == 1


def test_a_hard_link_to_a_link_is_a_link_in_the_index(tmp_path: Path) -> None:
    out = tmp_path / "flat.tar"
    layer = tar_of(file("liba.so.1.2", b"\x7fELF"), symlink("liba.so", "liba.so.1.2"), hardlink("liba.so.1", "liba.so"))
    merge(layers_of(tmp_path, [layer]), out)
    found = flat_archive.read(out)
    assert found.content("/liba.so.1") == found.content("/liba.so") == b"\x7fELF"
