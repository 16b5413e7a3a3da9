# SPDX-License-Identifier: Apache-2.0
"""Init's builtins, under the sanitizers and on this host: tars against Python's tarfile, and hostile ones."""

from __future__ import annotations

import io
import os
import random
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.sanitized import compiled

pytestmark = pytest.mark.contract

#: 1 January 2020.
THEN = 1577836800


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("sanitized-builtin", tmp_path_factory.mktemp("native"))


def run(program: Path, name: str, path: Path | str, data: bytes = b"", follow: bool = False) -> tuple[int, bytes, str]:
    """Exit status, standard output, standard error; a sanitizer's complaint fails the test."""
    words = [str(program), name, str(path), str(int(follow))]
    done = subprocess.run(words, input=data, capture_output=True, timeout=120, check=False)
    said = done.stderr.decode("utf-8", "replace")
    assert done.returncode in (0, 1), said[-3000:]
    assert "Sanitizer" not in said, said[-3000:]
    assert "runtime error" not in said, said[-3000:]
    return done.returncode, done.stdout, said


def opened(data: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(data), mode="r:")


def tar(
    *entries: tuple[str, bytes | str | None], change: Callable[[tarfile.TarInfo], None] | None = None,
    format: int = tarfile.PAX_FORMAT,
) -> bytes:  # fmt: skip
    """An archive: of each entry its name, and a file's content, a link's target, or None for a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, what in entries:
            info = tarfile.TarInfo(name)
            info.uid, info.gid, info.mtime, info.mode = os.geteuid(), os.getegid(), THEN, 0o644
            if what is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(what, str):
                info.type, info.linkname = tarfile.SYMTYPE, what
            else:
                info.size = len(what)
            if change is not None:
                change(info)
            archive.addfile(info, io.BytesIO(what) if isinstance(what, bytes) else None)
    return out.getvalue()


# --- archive ---


def test_a_tree_becomes_a_tar(program: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "empty").mkdir(parents=True)
    names = {"plain": b"text\n", "b" * 100: b"x" * 512, "c" * 101: b"y" * 513, "é\n": b"", "big": os.urandom(200_000)}
    for name, data in names.items():
        (tree / name).write_bytes(data)
    (tree / "plain").chmod(0o4751)
    os.utime(tree / "plain", (THEN, THEN))
    os.utime(tree / "big", (1 << 33, 1 << 33))
    (tree / "link").symlink_to("/nowhere/" + "x" * 200)
    (tree / "z-same").hardlink_to(tree / "plain")
    deep = tree
    for level in range(12):
        deep /= f"{level:020}"
        deep.mkdir()
    (deep / "leaf").write_bytes(b"leaf")
    with (tree / "sparse").open("wb") as file:
        file.truncate(100_000)
        file.seek(50_000)
        file.write(b"here")
    os.mkfifo(tree / "fifo", 0o600)
    status, data, said = run(program, "archive", tree)
    assert (status, said) == (0, "")
    assert len(data) % 512 == 0
    with opened(data) as archive:
        members = {member.name: member for member in archive.getmembers()}
        assert archive.getnames()[0] == "tree"
        assert archive.getnames() == sorted(archive.getnames(), key=lambda name: (name + "/").split("/"))
        for name, content in names.items():
            found = archive.extractfile(f"tree/{name}")
            assert found is not None
            assert found.read() == content
        leaf = archive.extractfile("tree/" + str((deep / "leaf").relative_to(tree)))
        assert leaf is not None
        assert leaf.read() == b"leaf"
        sparse = archive.extractfile("tree/sparse")
        assert sparse is not None
        assert sparse.read() == bytes(50_000) + b"here" + bytes(49_996)
    plain = members["tree/plain"]
    assert (plain.mode, plain.mtime, plain.uid, plain.gid) == (0o4751, THEN, os.geteuid(), os.getegid())
    assert members["tree/big"].mtime == 1 << 33
    assert members["tree/link"].linkname == "/nowhere/" + "x" * 200
    assert (members["tree/z-same"].type, members["tree/z-same"].linkname) == (tarfile.LNKTYPE, "tree/plain")
    assert members["tree/fifo"].isfifo()
    assert members["tree/empty"].isdir()


def test_which_name_the_root_has(program: Path, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"1")
    (tmp_path / "l").symlink_to("d")

    def names(path: str, follow: bool = False) -> list[tuple[str, bytes]]:
        with opened(run(program, "archive", f"{tmp_path}/{path}", follow=follow)[1]) as archive:
            return [(member.name, member.type) for member in archive.getmembers()]

    assert names("d") == names("d/") == names("d//") == [("d", tarfile.DIRTYPE), ("d/f", tarfile.REGTYPE)]
    assert names("d/.") == names("d/./") == names("l/.") == [(".", tarfile.DIRTYPE), ("./f", tarfile.REGTYPE)]
    assert names("d/f") == [("f", tarfile.REGTYPE)]
    assert names("l") == [("l", tarfile.SYMTYPE)]
    assert names("l/") == names("l", follow=True) == [("l", tarfile.DIRTYPE), ("l/f", tarfile.REGTYPE)]
    assert names("l/f") == [("f", tarfile.REGTYPE)]


def test_what_cannot_be_read_is_said(program: Path, tmp_path: Path) -> None:
    status, data, said = run(program, "archive", tmp_path / "none")
    assert (status, said) == (1, "archive: none: No such file or directory\n")
    with opened(data) as archive:
        assert archive.getnames() == []
    assert run(program, "archive", "")[0] == 1
    assert run(program, "archive", "x" * 5000)[0] == 1


def test_a_path_that_is_too_long_does_not_hide_the_rest(program: Path, tmp_path: Path) -> None:
    (tmp_path / "t" / "z").mkdir(parents=True)
    here = os.open(tmp_path / "t", os.O_RDONLY)
    for _ in range(40):
        os.mkdir("a" * 200, dir_fd=here)
        below = os.open("a" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    status, data, said = run(program, "archive", tmp_path / "t")
    assert status == 1
    assert "the path is longer than 4095 bytes" in said
    with opened(data) as archive:
        assert "t/z" in archive.getnames()
    subprocess.run(["rm", "-rf", str(tmp_path / "t")], check=True)


def test_the_kernels_own_files_are_left_out(program: Path) -> None:
    with opened(run(program, "archive", "/proc/sys/kernel/ostype")[1]) as archive:
        assert archive.getnames() == ["ostype"]  # asked for by name; the kernel says that it has no bytes


# --- extract ---


def test_there_and_back(program: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    (source / "d" / "e").mkdir(parents=True)
    (source / "d" / "f").write_bytes(b"data" * 5000)
    (source / "d" / "f").chmod(0o6751)
    (source / ("n" * 200)).write_bytes(b"")
    (source / "d" / "l").symlink_to("../f")
    (source / "same").hardlink_to(source / "d" / "f")
    os.mkfifo(source / "p")
    for path in (source / "d" / "f", source / "d" / "e", source / "d", source):
        os.utime(path, (THEN, THEN))
    target.mkdir()
    status, _, said = run(program, "extract", target, run(program, "archive", source)[1])
    assert (status, said) == (0, "")

    def seen(root: Path) -> dict[str, tuple[object, ...]]:
        return {
            str(path.relative_to(root)): (
                path.lstat().st_mode, path.lstat().st_nlink, path.lstat().st_uid,
                int(path.lstat().st_mtime), path.readlink() if path.is_symlink() else None,
                path.read_bytes() if path.is_file() and not path.is_symlink() else None,
            )
            for path in sorted(root.rglob("*"))
        }  # fmt: skip

    assert seen(target / "s") == seen(source)
    assert int((target / "s").stat().st_mtime) == THEN


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_forms_of_other_programs(program: Path, tmp_path: Path, format: int) -> None:
    name = "/".join(["p" * 50] * (3 if format == tarfile.USTAR_FORMAT else 20)) + "/" + "q" * 90
    assert run(program, "extract", tmp_path, tar((name, b"x"), ("l", "t" * 90), format=format))[0] == 0
    assert (tmp_path / name).read_bytes() == b"x"
    assert str((tmp_path / "l").readlink()) == "t" * 90


def test_names_of_the_destination(program: Path, tmp_path: Path) -> None:
    """As docker cp's: what is there, and what is not, decides."""
    one, folder, inside = tar(("f", b"new")), tar(("d", None), ("d/x", b"1")), tar(("./", None), ("./x", b"2"))
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "to").symlink_to("there")

    def extract(data: bytes, path: str) -> str:
        status, _, said = run(program, "extract", f"{tmp_path}/{path}", data)
        return said if status else ""

    assert extract(one, "there") == extract(one, "there/") == extract(one, "to") == ""
    assert (tmp_path / "there" / "f").read_bytes() == b"new"
    assert extract(one, "fresh") == ""
    assert (tmp_path / "fresh").read_bytes() == b"new"
    assert "there is no such folder" in extract(one, "none/")
    assert "No such file or directory" in extract(one, "none/x")
    assert extract(one, "link") == ""
    assert ((tmp_path / "file").read_bytes(), (tmp_path / "link").is_symlink()) == (b"new", True)
    assert extract(folder, "made") == extract(folder, "made2/") == ""
    assert (tmp_path / "made" / "x").read_bytes() == (tmp_path / "made2" / "x").read_bytes() == b"1"
    assert "a folder cannot take the place of a file" in extract(folder, "file")
    assert extract(folder, "there") == ""
    assert (tmp_path / "there" / "d" / "x").read_bytes() == b"1"
    assert extract(inside, "there") == extract(inside, "filled") == ""
    assert (tmp_path / "there" / "x").read_bytes() == (tmp_path / "filled" / "x").read_bytes() == b"2"
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o700  # its own
    assert "another root" in extract(tar(("a", b""), ("b", b"")), "two")
    assert "only a folder can be laid over" in extract(tar(("d", b"")), "there")
    assert "no folder can replace" in extract(tar(("f", None)), "there")


HOSTILE = {
    "an absolute name": (tar(("/OUT/new", b"x")), "an absolute name"),
    "up": (tar(("../out/new", b"x")), "a name with '..' in it"),
    "up, later": (tar(("d", None), ("d/../../out/new", b"x")), "a name with '..' in it"),
    "through its own link": (tar(("l", "OUT"), ("l/new", b"x")), "a link or a file stands where a folder must be"),
    "through a link to a link": (
        tar(("a", "."), ("b", "OUT"), ("a/b/new", b"x")), "a link or a file stands where a folder must be",
    ),
    "a link that leads out": (tar(("l", "../out")), "a link that leads out"),
    "a link that leads out, deep": (tar(("d", None), ("d/l", "x/../../../out")), "a link that leads out"),
    "over its own link": (tar(("l", "OUT/kept"), ("l", b"changed")), ""),
    "a folder over its own link": (tar(("l", "OUT"), ("l", None)), "no folder can replace"),
    "through a link that was there": (tar(("old/new", b"x")), "a link or a file stands where a folder must be"),
    "below a file": (tar(("f", b""), ("f/new", b"x")), "a link or a file stands where a folder must be"),
}  # fmt: skip


def as_is(data: bytes, folder: Path) -> bytes:
    """The archive again, with the path of what lies outside in place of OUT."""
    with opened(data) as archive:
        entries: list[tuple[str, bytes | str | None]] = []
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.isreg() else None
            what = file.read() if file is not None else member.linkname if member.issym() else None
            where = str(folder) if isinstance(what, str) else ""
            entries.append((member.name, what.replace("OUT", where) if isinstance(what, str) else what))
    return tar(*((f"/{folder}/new" if name.startswith("/") else name, what) for name, what in entries))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_writes_nothing_outside(program: Path, tmp_path: Path, name: str) -> None:
    data, why = HOSTILE[name]
    out, inside = tmp_path / "out", tmp_path / "in"
    out.mkdir()
    inside.mkdir()
    (out / "kept").write_bytes(b"kept")
    (inside / "old").symlink_to(out)
    status, _, said = run(program, "extract", inside, as_is(data, out))
    assert (status, why in said) == (int(bool(why)), True), said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"kept": b"kept"}


@pytest.mark.parametrize("target", ["../out/kept", "/etc/passwd", "old/kept", "d/../../out/kept"])
def test_a_hard_link_leads_nowhere_outside(program: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "out" / "kept").write_bytes(b"kept")
    (tmp_path / "in" / "old").symlink_to(tmp_path / "out")

    def hard(info: tarfile.TarInfo) -> None:
        info.type = tarfile.LNKTYPE

    assert run(program, "extract", tmp_path / "in", tar(("h", target), change=hard))[0] == 1
    assert not (tmp_path / "in" / "h").exists()
    assert (tmp_path / "out" / "kept").stat().st_nlink == 1


def test_links_within_the_destination_are_followed(program: Path, tmp_path: Path) -> None:
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    assert run(program, "extract", tmp_path, tar(("bin/tool", b"x")))[0] == 0
    assert (tmp_path / "usr" / "bin" / "tool").read_bytes() == b"x"
    assert (tmp_path / "bin").is_symlink()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the archive ends early"),
        (b"x" * 512, "another checksum"),
        (tar(("f", b"x" * 2000))[:1500], "the archive ends early"),
        (tar(("f", b"x"))[:1024], "the archive ends early"),
        (tar(("c", b""), change=lambda info: setattr(info, "type", b"Z")), "of a kind that is not read"),
        (tar(("f", b""), change=lambda info: setattr(info, "pax_headers", {"GNU.sparse.major": "1"})), "sparse"),
        (tar(("f" * 300, b"")), "File name too long"),
    ],
)
def test_what_is_no_archive_says_so(program: Path, tmp_path: Path, data: bytes, why: str) -> None:
    status, _, said = run(program, "extract", tmp_path, data)
    assert (status, why in said) == (1, True), said


#: Only root gives files away and makes devices.
OWNER, NODE = (3_000_000, tarfile.CHRTYPE) if os.geteuid() == 0 else (os.geteuid(), tarfile.FIFOTYPE)


def test_owners_and_nodes(program: Path, tmp_path: Path) -> None:
    def change(info: tarfile.TarInfo) -> None:
        info.uid, info.mode = OWNER, 0o4755
        if info.name == "node":
            info.type, info.devmajor, info.devminor = NODE, 1, 3

    assert run(program, "extract", tmp_path, tar(("node", b""), ("f", b"x"), ("d", None), change=change))[0] == 0
    for name in ("node", "f", "d"):
        found = (tmp_path / name).stat()
        mode = 0o755 if name == "node" else 0o4755
        assert (found.st_uid, found.st_mode & 0o777, found.st_mode & mode) == (OWNER, 0o755, mode), name
    with opened(run(program, "archive", tmp_path)[1]) as archive:
        member = archive.getmember(f"{tmp_path.name}/node")
        device = (1, 3) if NODE == tarfile.CHRTYPE else (0, 0)
        assert (member.type, (member.devmajor, member.devminor), member.uid) == (NODE, device, OWNER)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_archives(program: Path, tmp_path: Path, seed: int) -> None:
    """Whatever it is made of: nothing outside, and no sanitizer complains."""
    chance = random.Random(seed)
    seeds = [as_is(data, tmp_path / "out") for data, _ in HOSTILE.values()]
    seeds += [tar(("n" * 300, b"x" * 700), ("d/" * 90 + "f", b"y"), ("l" * 120, "t" * 300))]
    (tmp_path / "out").mkdir()
    for turn in range(60):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(data) - 512)
            data[at] = chance.choice((0, 0x2F, 0x2E, 0x80, 0xFF, chance.randrange(256)))
        for block in range(0, len(data) - 511, 512):  # so that it gets behind the checksum
            if data[block + 257 : block + 262] == b"ustar":
                data[block + 148 : block + 156] = b" " * 8
                data[block + 148 : block + 156] = b"%06o\0 " % sum(data[block : block + 512])
        inside = tmp_path / f"in{turn}"
        inside.mkdir()
        run(program, "extract", inside, bytes(data))
        assert list((tmp_path / "out").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"out", *(f"in{turn}" for turn in range(60))}


# --- stats ---


def records(data: bytes) -> list[str]:
    head, *rest, last = data.decode("utf-8", "replace").split("\0")
    assert (head, last) == ("vmtailor 1", "")
    return rest


def test_stats(program: Path) -> None:
    found = {
        key: int(value) for key, _, value in (line.partition(" ") for line in records(run(program, "stats", "")[1]))
    }
    assert found["memory-total"] == found["memory-used"] + found["memory-available"]
    assert found["processes"] > 0
    assert found["uptime-ms"] > 0


def test_processes(program: Path) -> None:
    lines = [line.split(" ", 7) for line in records(run(program, "top", "")[1])]
    own = next(line for line in lines if line[1] == str(os.getpid()))
    assert own[0] == "process"
    assert own[3] == str(os.geteuid())
    assert int(own[6]) > 1 << 20
    command = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
    assert own[7] and command.startswith(own[7])
    threads = Path("/proc/2/comm")  # where the kernel's own are to be seen, they are its children
    if threads.exists() and threads.read_text() == "kthreadd\n":
        assert not [line for line in lines if "2" in line[1:3]]


def test_a_session_that_began_outside(program: Path) -> None:
    """Session 0 is what a PID namespace shows of a session from outside, as it is for a container's first program."""
    apart = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespaces for this user")
    script = '"$0" top "" 0; "$0" stats "" 0; :'
    told = subprocess.run([*apart, "sh", "-c", script, str(program)], capture_output=True, timeout=120, check=True)
    processes, _, counted = told.stdout.partition(b"\0vmtailor 1\0")
    first = processes.decode().split("\0")[1].split(" ", 7)
    assert first[:3] == ["process", "1", "0"]
    assert first[7].startswith("sh -c")
    assert b"\0processes 1\0" in counted
