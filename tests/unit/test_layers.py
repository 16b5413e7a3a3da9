# SPDX-License-Identifier: Apache-2.0
"""Merging layers: what a container engine would show, in one flat archive."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import struct
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from tests.fakes.tars import MTIME, device, directory, entry, file, hardlink, layers_of, read_flat, symlink, tar_of

from vmtailor.drivers.image import flat_archive
from vmtailor.drivers.image.documents import shown
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


def left_out(folder: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> tuple[set[str], tuple[str, ...]]:
    """The attributes that are kept of all files, and what is said of the others."""
    out = folder / "flat.tar"
    result = merge(layers_of(folder, [tar_of(*entries)]), out)
    kept = {key for info, _ in read_flat(out).values() for key in info.pax_headers if "xattr" in key}
    return {key.removeprefix("SCHILY.xattr.") for key in kept}, result.left_out


def acl(*entries: tuple[int, int, int], version: int = 2) -> str:
    data = struct.pack("<I", version) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    return data.decode("utf-8", "surrogateescape")


GOOD_ACL = acl((1, 6, 2**32 - 1), (2, 4, 1000), (4, 4, 2**32 - 1), (0x10, 4, 2**32 - 1), (0x20, 0, 2**32 - 1))
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("com.apple.provenance", "\x01\x02"), ("com.apple.quarantine", "x"), ("system.nfs4_acl", "x" * 80),
        ("system.cifs_acl", "x"), ("osx.note", "x"), ("btrfs.compression", "zstd"), ("user.", "x"), ("security.", "x"),
        ("note", "x"), ("", "x"), ("user." + "x" * 251, "x"), ("user.large", "x" * 65_537),
        (ACCESS, acl((1, 6, 0), version=3)), (ACCESS, GOOD_ACL[:-1]), (ACCESS, acl((3, 6, 0))), (DEFAULT, GOOD_ACL),
        ("system.posix_acl_other", GOOD_ACL),
    ],
)  # fmt: skip
def test_attributes_that_linux_has_no_place_for_are_left_out_and_counted(tmp_path: Path, name: str, value: str) -> None:
    headers = {f"SCHILY.xattr.{name}": value, "SCHILY.xattr.user.kept": "y"}
    found = left_out(tmp_path, *(file(f"f{n}", b"x", pax_headers=headers) for n in range(3)))
    assert found == ({"user.kept"}, (f"attribute {shown(name, 60)} of 3 files (Linux has no place for it)",))


def test_attributes_that_linux_has_a_place_for_are_kept(tmp_path: Path) -> None:
    kept = {
        "user.1": "x" * 65_536, "user." + "x" * 250: "", "trusted.a": "b", "security.selinux": "u:object_r:etc_t:s0",
        ACCESS: GOOD_ACL, DEFAULT: GOOD_ACL,
    }  # fmt: skip
    headers = {f"SCHILY.xattr.{name}": value for name, value in kept.items()}
    assert left_out(tmp_path, directory("d", pax_headers=headers)) == (set(kept), ())


def test_what_linux_takes_on_files_and_folders_alone(tmp_path: Path) -> None:
    users, lists = {"SCHILY.xattr.user.a": "b"}, {f"SCHILY.xattr.{ACCESS}": GOOD_ACL}
    link = entry("l", tarfile.SYMTYPE, link="f", mode=0o777, pax_headers={**users, **lists})
    kept, said = left_out(tmp_path, (link, b""), (entry("p", tarfile.FIFOTYPE, pax_headers={**users, **lists}), b""))
    assert kept == {ACCESS} and said == (
        "attribute 'user.a' of 2 files (Linux has no place for it)",
        f"attribute '{ACCESS}' of 1 file (Linux has no place for it)",
    )


def test_odd_names_of_attributes_are_counted_in_bounded_space(tmp_path: Path) -> None:
    odd = {
        "LIBARCHIVE.xattr.user.a%3Db": "aGk=",
        "LIBARCHIVE.xattr.user.%FF": "aGk=",
        "LIBARCHIVE.xattr.user.%00": "aGk=",
    }
    kept, said = left_out(tmp_path, file("f", pax_headers=odd))
    assert not kept and len(said) == 3 and all(text.isascii() for text in said)
    many = [file(f"f{n}", pax_headers={f"SCHILY.xattr.com.apple.{n}": "x"}) for n in range(50)]
    kept, said = left_out(tmp_path, *many)
    assert not kept and len(said) == 21 and said[-1] == "other attributes of 30 files (Linux has no place for it)"


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


def test_the_header_of_a_hard_link_describes_its_file(tmp_path: Path) -> None:
    """containerd makes the link, then sets owner, attributes, mode and time of what it leads to."""
    mine = {"SCHILY.xattr.user.a": "1", "SCHILY.xattr.user.b": "2"}
    data = tar_of(
        file("f", b"x", mode=0o644, pax_headers=mine),
        hardlink("g", "f", mode=0o4750, uid=5, gid=6, pax_headers={"SCHILY.xattr.user.b": "3", "mtime": "7.5"}),
        symlink("l", "f"), hardlink("l2", "l", mode=0o600, uid=8, pax_headers={"SCHILY.xattr.user.c": "4"}),
        device("n", 1, 3), hardlink("n2", "n", mode=0o666, gid=9),
    )  # fmt: skip
    flat = merged(tmp_path, data)
    one = flat["f"][0]
    assert (one.mode, one.uid, one.gid, one.mtime) == (0o4750, 5, 6, 7.5)
    assert {key[-1]: value for key, value in one.pax_headers.items() if "xattr" in key} == {"a": "1", "b": "3"}
    assert (flat["l"][0].mode, flat["l"][0].uid, flat["l"][0].pax_headers) == (0o777, 8, {})
    assert (flat["n"][0].mode, flat["n"][0].gid, flat["n2"][0].linkname) == (0o666, 9, "n")
    # So does one of an upper layer, to all names that the file has.
    flat = merged(tmp_path, tar_of(file("a", b"1"), hardlink("b", "a")), tar_of(hardlink("c", "a", mode=0o600, uid=3)))
    assert (flat["a"][0].mode, flat["a"][0].uid, flat["c"][0].linkname) == (0o600, 3, "a")


def test_the_index_names_files_and_folders_with_access_control_lists(tmp_path: Path) -> None:
    lists = {f"SCHILY.xattr.{ACCESS}": GOOD_ACL}
    out = tmp_path / "flat.tar"
    merge(layers_of(tmp_path, [tar_of(
        directory("d", pax_headers={f"SCHILY.xattr.{DEFAULT}": GOOD_ACL}), file("d/f", b"x", pax_headers=lists),
        file("g", pax_headers={"SCHILY.xattr.user.a": "b"}), file("b", b"y", pax_headers=lists),
    )]), out)  # fmt: skip
    assert flat_archive.read(out).listed == ("/b", "/d", "/d/f")


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


def test_headers_for_all_entries_that_follow_count_for_none(tmp_path: Path) -> None:
    """`git archive` writes one, with a comment. Engines in Go pass over all of them."""
    said = {
        "comment": "8f3a",
        "uid": "7",
        "path": "evil",
        "mtime": "5",
        "SCHILY.xattr.user.a": "b",
        "hdrcharset": "BINARY",
    }
    data = tarfile.TarInfo.create_pax_global_header(said) + tar_of(
        file("a", b"1", pax_headers={"uid": "9"}), file("b", b"2"), file("c" * 150, b"3")
    )
    flat = merged(tmp_path, data)
    assert set(flat) == {".", "a", "b", "c" * 150}
    assert [(flat[name][0].uid, flat[name][0].mtime) for name in "ab"] == [(9, MTIME), (0, MTIME)]
    assert "SCHILY.xattr.user.a" not in flat["b"][0].pax_headers


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
