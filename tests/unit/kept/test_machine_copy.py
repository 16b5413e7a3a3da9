# SPDX-License-Identifier: Apache-2.0
"""`cp` by docker's rules, against a guest that is a folder of this host."""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
from pathlib import Path

import pytest
from tests.fakes.started import Start
from tests.fakes.supervisor import Caller, Handler, Pairs, Supervisor, running
from tests.fakes.tars import directory, file, tar_of

from vmtailor.drivers.host.guest_archive import packed


def guest(root: Path) -> dict[str, Handler]:
    """A guest whose root is a folder."""

    def at(pairs: Pairs) -> Path:
        return root / dict(pairs)["path"].lstrip("/")

    def archive(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        path = at(pairs)
        if not os.path.lexists(path):
            caller.send("E", f"archive: {path.name}: No such file or directory\n".encode())
            caller.send("O", bytes(1024))
            caller.send("X", b"1 0 ")
            return
        for part in packed(path, posixpath.basename(dict(pairs)["path"].rstrip("/")) or "."):
            for start in range(0, len(part), 60000):
                caller.send("O", part[start : start + 60000])
        caller.send("X", b"0 0 ")

    def extract(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        path = at(pairs)
        data = b"".join(caller.stdin())
        if not path.is_dir():
            caller.send("X", b"1 0 Not a directory")
            return
        with tarfile.open(fileobj=io.BytesIO(data)) as members:
            members.extractall(path, filter="fully_trusted")
        caller.send("X", b"0 0 ")

    return {"archive": archive, "extract": extract}


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A guest's root and a folder of the host, each with a file, a folder and links."""
    root, host = tmp_path / "guest", tmp_path / "host"
    for top in (root, host):
        (top / "d").mkdir(parents=True)
        (top / "d" / "in").write_text(f"{top.name}-in")
        (top / "f").write_text(top.name)
        (top / "to-f").symlink_to("f")
        (top / "to-d").symlink_to("d")
        (top / "there").mkdir()
        (top / "file").write_text("old")
    monkeypatch.chdir(host)
    return root, host


#: Source, target, the files that come of it at the other end; None: refused.
CASES = [
    ("f", "new", {"new": "f"}),
    ("f", "there", {"there/f": "f"}),
    ("f", "there/", {"there/f": "f"}),
    ("f", "there/g", {"there/g": "f"}),
    ("f", "file", {"file": "f"}),
    ("f", "to-d", {"d/f": "f"}),
    ("f", "nowhere/", None),
    ("f", "nowhere/g", None),
    ("f", "file/", None),
    ("f/", "new", None),
    ("d", "new", {"new/in": "in"}),
    ("d", "new/", {"new/in": "in"}),
    ("d/", "there", {"there/d/in": "in"}),
    ("d", "there", {"there/d/in": "in"}),
    ("d/.", "there", {"there/in": "in"}),
    ("d/.", "new", {"new/in": "in"}),
    ("d", "file", None),
    ("d/.", "file", None),
    ("d", "nowhere/new", None),
    ("nothing", "new", None),
    ("f/.", "new", None),
]


def content(top: Path, names: dict[str, str], other: str) -> dict[str, str]:
    return {name: (top / name).read_text().replace(f"{other}-", "").replace(other, "f") for name in names}


@pytest.mark.parametrize(("source", "target", "comes"), CASES)
@pytest.mark.parametrize("out", [True, False])
def test_where_a_copy_goes(
    call: Start, ends: tuple[Path, Path], source: str, target: str, comes: dict[str, str] | None, out: bool
) -> None:
    root, host = ends
    with running("web", handlers=guest(root)):
        words = (f"web:/{source}", target) if out else (source, f"web:/{target}")
        code, printed, err = call("cp", *words)
    to, other = (host, "guest") if out else (root, "host")
    if comes is None:
        assert code in (1, 2) and printed == "" and err.startswith("error: "), err
        assert (to / "file").read_text() == "old" and not (to / "new").exists()
    else:
        assert (code, printed, err) == (0, "", "")
        assert content(to, comes, other) == comes


def test_links_are_copied_or_followed(call: Start, ends: tuple[Path, Path]) -> None:
    root, host = ends
    with running("web", handlers=guest(root)):
        assert call("cp", "web:/to-f", "there/link")[0] == 0
        assert call("cp", "-L", "web:to-d", "followed")[0] == 0
        assert call("cp", "to-f", "web:/there/link")[0] == 0
        assert call("cp", "-L", "to-f", "web:/there/file")[0] == 0
    assert (host / "there" / "link").readlink() == Path("f") and (host / "followed" / "in").read_text() == "guest-in"
    assert (root / "there" / "link").readlink() == Path("f") and (root / "there" / "file").read_text() == "host"


def test_a_stream_is_a_tar_both_ways(call: Start, ends: tuple[Path, Path]) -> None:
    root, _ = ends
    with running("web", handlers=guest(root)):
        code, out, err = call("cp", "web:/d", "-")
        assert (code, err) == (0, "")
        with tarfile.open(fileobj=io.BytesIO(out.encode("latin-1"))) as archive:
            assert archive.getnames() == ["d", "d/in"]
        data = tar_of(directory("x"), file("x/y", b"z" * 200_000))
        assert call("cp", "-", "web:/there", stdin=data) == (0, "", "")
        assert (root / "there" / "x" / "y").read_bytes() == b"z" * 200_000
        for where in ("web:/file", "web:/nowhere"):
            code, _, err = call("cp", "-", where, stdin=data)
            assert code == 1 and "a stream needs a folder" in err


def test_what_is_no_copy(call: Start, ends: tuple[Path, Path]) -> None:
    root, _ = ends
    with running("web", handlers=guest(root)):
        assert call("cp", "web:/f", "web:/g")[0] == 2
        assert call("cp", "f", "g")[0] == 2
        assert call("cp", "./web:x", "g")[0] == 2
        code, _, err = call("cp", "nobody:/f", "g")
        assert code == 1 and "no machine is called 'nobody'" in err
        code, _, err = call("cp", "web:/\x1b[2J", "g")
        assert code == 1 and "\x1b" not in err and "No such file" in err


@pytest.mark.attack
@pytest.mark.parametrize(
    "data",
    [
        b"", b"x" * 2000, tar_of(directory("d"), file("../../evil", b"x")), tar_of(directory("d"), file("/evil", b"x")),
        tar_of(directory("d"), file("d/f", b"x" * 5000))[:3000], tar_of(file("other/f", b"x")),
    ],
)  # fmt: skip
def test_a_hostile_guest_writes_nothing_outside(call: Start, ends: tuple[Path, Path], data: bytes) -> None:
    _, host = ends

    def hostile(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        for at in range(0, len(data), 1000):
            caller.send("O", data[at : at + 1000])
        caller.send("X", b"0 0 ")

    before = sorted(path for path in host.parent.rglob("*") if "there" not in path.parts)
    with running("web", handlers={"archive": hostile}):
        code, out, err = call("cp", "web:/d", "there")
        assert code == 5 and out == "" and "damaged or hostile" in err
    assert sorted(path for path in host.parent.rglob("*") if "there" not in path.parts) == before


@pytest.mark.attack
def test_a_guest_whose_links_go_round(call: Start, ends: tuple[Path, Path]) -> None:
    root, _ = ends
    (root / "round").symlink_to("round")
    with running("web", handlers=guest(root)):
        for words in (("-L", "web:/round", "x"), ("f", "web:/round")):
            code, _, err = call("cp", *words)
            assert code == 1 and "too many links" in err


def test_what_was_left_out_is_told(call: Start, ends: tuple[Path, Path]) -> None:
    root, host = ends
    (root / "d" / "l").symlink_to("/etc")
    with running("web", handlers=guest(root)):
        assert call("cp", "web:/d", "new") == (0, "", "left out: 1 \xc3\x97 link that leads out of the copy\n")
        assert call("cp", "-q", "web:/d", "new2") == (0, "", "")
    assert (host / "new" / "in").exists() and not os.path.lexists(host / "new" / "l")


def test_a_guest_that_ends_in_the_middle(call: Start, ends: tuple[Path, Path]) -> None:
    def gone(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        caller.send("O", tar_of(directory("d"))[:512])

    with running("web", handlers={"archive": gone, "extract": gone}):
        code, _, err = call("cp", "web:/d", "new")
        assert code == 3 and "ended in the middle of a copy" in err
