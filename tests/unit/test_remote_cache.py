# SPDX-License-Identifier: Apache-2.0
"""The remote cache: what one host made is found by another with the same tools, whole or not at all; whatever fails
costs a sentence, and the work goes on."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from vmtailor.base import output
from vmtailor.base.cache import packed_folder, remote, remote_cache
from vmtailor.base.cache.packed_folder import PackedFolder, Unpackable
from vmtailor.base.cache.remote_files import RemoteFiles
from vmtailor.base.cache.store import Store, locked, writing
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.kernel import kernel_source

KEY = "0123456789abcdef" * 4
PARTS = {"vmlinux": b"kernel" * 1000, "config": b"CONFIG_X=y\n"}


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(output, "note", found.append)
    return found


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]) -> Iterator[Path]:
    """The folder of a remote cache, for hosts with one fingerprint."""
    monkeypatch.setenv(remote.VARIABLE, str(tmp_path / "remote"))
    monkeypatch.setattr(remote, "_fingerprint_of", [lambda: ("f" * 64, b"{}\n")])
    monkeypatch.setattr(remote, "_current", {})
    monkeypatch.setattr(remote, "_stays_local", [])
    yield tmp_path / "remote"


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process knows of the remote cache, as another one knows nothing."""
    monkeypatch.setattr(remote, "_current", {})


def counted(parts: dict[str, bytes] = PARTS) -> tuple[Callable[[Path], None], list[Path]]:
    """A function that makes a result, and the folders in which it was called."""
    calls: list[Path] = []

    def fill(folder: Path) -> None:
        calls.append(folder)
        writing(parts)(folder)

    return fill, calls


def content(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def never(folder: Path) -> None:
    raise AssertionError("it is made again")


@pytest.mark.parametrize("url", ["folder", "memory"])
def test_what_one_host_made_is_not_made_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str], url: str
) -> None:
    if url == "memory":
        monkeypatch.setenv(remote.VARIABLE, f"memory://{tmp_path.name}")
    fill, calls = counted()
    Store(tmp_path / "one").get("kernel", KEY, fill)
    assert len(calls) == 1
    another_process(monkeypatch)
    found = Store(tmp_path / "two").get("kernel", KEY, never)
    assert content(found) == PARTS
    assert found.stat().st_mode & 0o777 == 0o700
    assert (found / "vmlinux").stat().st_mode & 0o077 == 0
    assert not notes


def test_the_local_cache_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "one")
    store.get("kernel", KEY, counted()[0])
    monkeypatch.setattr(remote_cache.RemoteCache, "fetch", lambda *words: pytest.fail("the remote cache is asked"))
    store.get("kernel", KEY, never)


def test_a_result_is_brought_or_is_said_not_to_be_there(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    assert not two.bring("fit", KEY)
    assert not two.has("fit", KEY)
    one.get("fit", KEY, counted()[0])
    assert two.bring("fit", KEY)
    assert content(two.path("fit", KEY)) == PARTS


def test_a_host_with_other_tools_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path / "one").get("kernel", KEY, counted()[0])
    another_process(monkeypatch)
    monkeypatch.setattr(remote, "_fingerprint_of", [lambda: ("e" * 64, b"{}\n")])
    fill, calls = counted()
    Store(tmp_path / "two").get("kernel", KEY, fill)
    assert len(calls) == 1


@pytest.mark.parametrize("kind", ["locks", "scratch", "errors", "kernel-source", "image", "packages", "changed-disk"])
def test_kinds_of_one_host_stay_there(tmp_path: Path, place: Path, kind: str) -> None:
    Store(tmp_path / "one").get(kind, KEY, counted()[0])
    assert not place.exists()


def test_boots_on_the_wall_clock_are_shared_by_hosts_of_one_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / "one").get("timed", KEY, counted()[0])
    another_process(monkeypatch)
    Store(tmp_path / "two").get("timed", KEY, never)
    monkeypatch.setattr(remote_cache, "_host", lambda: "another")
    assert not Store(tmp_path / "three").bring("timed", KEY)


def test_what_is_made_of_a_local_folder_stays(tmp_path: Path, place: Path, notes: list[str]) -> None:
    remote.keep_local("the source /linux is recognised by modification times")
    remote.keep_local("the source /linux is recognised by modification times")
    Store(tmp_path / "one").get("kernel", KEY, counted()[0])
    assert not place.exists()
    assert notes == ["the remote cache is not used: the source /linux is recognised by modification times"]


def test_a_source_that_is_a_folder_keeps_a_run_local(tmp_path: Path, place: Path, notes: list[str]) -> None:
    source = tmp_path / "linux"
    source.mkdir()
    (source / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n")
    store = Store(tmp_path / "one")
    kernel_source.provide(store, str(source))
    store.get("kernel", KEY, counted()[0])
    assert not place.exists()
    assert len(notes) == 1
    assert "known by modification times alone" in notes[0]


def test_the_time_that_tools_take_to_answer_is_not_the_remote_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    def slow() -> tuple[str, bytes]:
        time.sleep(0.6)
        return "f" * 64, b"{}\n"

    monkeypatch.setattr(remote_cache, "QUESTION_S", 0.4)
    monkeypatch.setattr(remote, "_fingerprint_of", [])
    remote.use_fingerprint(slow)
    Store(tmp_path / "one").get("kernel", KEY, counted()[0])
    another_process(monkeypatch)
    assert Store(tmp_path / "two").bring("kernel", KEY)
    assert not notes


def test_without_a_remote_cache_nothing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(remote.VARIABLE)
    store = Store(tmp_path / "one")
    with locked(store.folder("locks") / f"kernel-{KEY[:40]}"):
        assert not store.bring("kernel", KEY)
        assert not Store(tmp_path / "one", remote=False).bring("kernel", KEY)


def test_holes_folders_and_rights_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(folder: Path) -> None:
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "program").write_bytes(b"#!")
        (folder / "deep" / "er" / "program").chmod(0o755)
        (folder / "empty").touch()
        with (folder / "disk").open("wb") as file:
            file.truncate(8 << 30)
            for at in (0, 1 << 30, (8 << 30) - 4096):
                file.seek(at)
                file.write(b"content!" * 512)

    one = Store(tmp_path / "one").get("root", KEY, fill)
    another_process(monkeypatch)
    two = Store(tmp_path / "two").get("root", KEY, never)
    assert sorted(str(p.relative_to(one)) for p in one.rglob("*")) == sorted(
        str(p.relative_to(two)) for p in two.rglob("*")
    )
    made = (two / "disk").stat()
    assert made.st_size == 8 << 30
    assert made.st_blocks * 512 < 1 << 20
    with (two / "disk").open("rb") as file:
        file.seek((8 << 30) - 4096)
        assert file.read() == b"content!" * 512
    assert (two / "deep/er/program").stat().st_mode & 0o777 == 0o700
    assert sum(p.stat().st_size for p in (tmp_path / "remote").rglob("*") if p.is_file()) < 100_000


def test_large_content_goes_in_several_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_folder, "PIECE_BYTES", 1 << 16)
    parts = {"a": os.urandom(200_000), "b": os.urandom(3), "c": os.urandom(70_000)}
    Store(tmp_path / "one").get("trace", KEY, counted(parts)[0])
    another_process(monkeypatch)
    assert content(Store(tmp_path / "two").get("trace", KEY, never)) == parts
    assert len(list((tmp_path / "remote" / "blobs").rglob("*"))) >= 5


@pytest.mark.attack
@pytest.mark.parametrize("damage", ["torn", "empty", "other", "gone", "bomb", "list"])
def test_damage_is_refused_made_again_and_mended(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str], damage: str
) -> None:
    Store(tmp_path / "one").get("kernel", KEY, counted()[0])
    (blob,) = [one for one in (place / "blobs").rglob("*") if one.is_file()]
    (listed,) = (place / "results").rglob("*.json")
    whole = blob.read_bytes()
    if damage == "gone":
        blob.unlink()
    elif damage == "list":
        listed.write_bytes(listed.read_bytes()[:-20])
    else:
        packed = zstandard.ZstdCompressor().compress(bytes(1 << 30)) if damage == "bomb" else b""
        other = {"torn": whole[:-3], "empty": b"", "other": bytes(len(whole)), "bomb": packed}[damage]
        blob.write_bytes(other)
    another_process(monkeypatch)
    fill, calls = counted()
    two = Store(tmp_path / "two").get("kernel", KEY, fill)
    assert len(calls) == 1
    assert content(two) == PARTS
    assert len(notes) == 1
    assert "the kernel in" in notes[0]
    assert "is not used" in notes[0]
    another_process(monkeypatch)
    assert content(Store(tmp_path / "three").get("kernel", KEY, never)) == PARTS


@pytest.mark.attack
def test_nothing_of_a_damaged_result_stays(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    monkeypatch.setattr(packed_folder, "PIECE_BYTES", 1 << 12)
    Store(tmp_path / "one").get("trace", KEY, _two_files)
    (listed,) = (place / "results").rglob("*.json")
    last = records.from_bytes(PackedFolder, listed.read_bytes()).pieces[-1].sha256
    (place / "blobs" / last[:2] / last).unlink()
    another_process(monkeypatch)
    two = Store(tmp_path / "two").get("trace", KEY, counted({"mine": b"mine"})[0])
    assert content(two) == {"mine": b"mine"}
    assert len(notes) == 1


def _two_files(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "first").write_bytes(os.urandom(9000))
    (folder / "second").write_bytes(os.urandom(9000))


def _packed(folder: Path, data: bytes) -> tuple[PackedFolder, bytes]:
    folder.mkdir()
    (folder / "file").write_bytes(data)
    sent: list[bytes] = []
    return packed_folder.pack(folder, "kernel", KEY, lambda piece, packed: sent.append(packed)), sent[0]


@pytest.mark.attack
def test_a_piece_of_another_digest_is_refused(tmp_path: Path) -> None:
    packed, _ = _packed(tmp_path / "one", os.urandom(5000))
    _, other = _packed(tmp_path / "two", os.urandom(5000))
    assert len(other) == packed.pieces[0].packed_bytes
    (tmp_path / "out").mkdir()
    with pytest.raises(Unpackable, match="is damaged"):
        packed_folder.unpack(packed, tmp_path / "out", lambda piece: other)


@pytest.mark.attack
def test_a_piece_that_unpacks_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    packed, _ = _packed(tmp_path / "one", b"small")
    bomb = zstandard.ZstdCompressor().compress(bytes(256 << 20))
    piece = replace(packed.pieces[0], sha256=hashlib.sha256(bomb).hexdigest(), packed_bytes=len(bomb))
    forged = replace(packed, pieces=(piece,))
    packed_folder.check(forged, "kernel", KEY)
    (tmp_path / "out").mkdir()
    with pytest.raises(Unpackable, match="another length"):
        packed_folder.unpack(forged, tmp_path / "out", lambda piece: bomb)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("folders", "name"),
    [(("..",), "../file"), ((".",), "./file"), (("a", "a/.."), "a/../file"), (("",), "/file"), (("file",), "file"),
     ((), "a" * 256), ((), "a\0b"), (("b/c", "b"), "file")],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, folders: tuple[str, ...], name: str) -> None:
    packed, _ = _packed(tmp_path / "one", b"content")
    forged = replace(packed, folders=folders, files=(replace(packed.files[0], name=name),))
    with pytest.raises(Unpackable):
        packed_folder.check(forged, "kernel", KEY)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"config"', '"../config"'),
        ('"config"', '"/etc/config"'),
        ('"config"', '"a/config"'),
        ('"config"', '"vmlinux"'),
        ('"config"', '".."'),
        ('"size_bytes": 11', '"size_bytes": -1'),
        ('"size_bytes": 11', f'"size_bytes": {1 << 50}'),
        ('"content_bytes": 6011', f'"content_bytes": {1 << 40}'),
        ('"content_bytes": 6011', '"content_bytes": 6012'),
        ('"kind": "kernel"', '"kind": "root"'),
        (KEY[:40], "1" * 40),
    ],
)
def test_a_list_that_is_no_list_is_refused(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str], old: str, new: str
) -> None:
    Store(tmp_path / "one").get("kernel", KEY, counted()[0])
    (listed,) = (place / "results").rglob("*.json")
    text = listed.read_text()
    assert old in text
    listed.write_text(text.replace(old, new, 1))
    another_process(monkeypatch)
    assert not Store(tmp_path / "two").bring("kernel", KEY)
    assert len(notes) == 1
    assert not list(tmp_path.rglob("config*")) or not (tmp_path / "two/kernel" / KEY[:40]).exists()


def test_a_link_in_a_result_keeps_it_here(tmp_path: Path, place: Path, notes: list[str]) -> None:
    Store(tmp_path / "one").get("kernel", KEY, lambda folder: (folder / "link").symlink_to("/etc/passwd"))
    assert not list(place.rglob("*.json"))
    assert "link is neither a file nor a folder" in notes[0]


@pytest.mark.parametrize("url", ["folder", "memory"])
def test_of_eight_writers_of_a_list_one_wins(tmp_path: Path, url: str) -> None:
    files = RemoteFiles(str(tmp_path / "x") if url == "folder" else f"memory://{tmp_path.name}")
    gate = threading.Barrier(8)

    def write(number: int) -> bool:
        gate.wait(30)
        return files.create("results/list.json", b"%d" % number * 1000)

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, is_first in enumerate(pool.map(write, range(8))) if is_first]
    assert len(won) == 1
    assert files.read("results/list.json", 1 << 20) == b"%d" % won[0] * 1000
    assert files.names("results") == ["list.json"]


def _upload(root: Path, number: int, ready: Any) -> None:
    ready.wait()
    Store(root / f"host{number}").get("kernel", KEY, writing({"vmlinux": b"%d" % number * 100_000}))


def test_of_eight_writers_one_counts_and_all_have_a_result(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(8)
    workers = [context.Process(target=_upload, args=(tmp_path, number, ready)) for number in range(8)]
    for one in workers:
        one.start()
    for one in workers:
        one.join(60)
    assert [one.exitcode for one in workers] == [0] * 8
    assert len(list((place / "results").rglob("*.json"))) == 1
    assert not list(place.rglob(".part-*"))
    another_process(monkeypatch)
    found = Store(tmp_path / "ninth").get("kernel", KEY, never)
    assert content(found)["vmlinux"] in {b"%d" % number * 100_000 for number in range(8)}


def _upload_slowly(root: Path, told: Any) -> None:
    class Slow(RemoteFiles):
        def create(self, name: str, data: bytes) -> bool:
            if name.startswith("results/"):
                told.set()
                time.sleep(60)
            return super().create(name, data)

    vars(remote_cache)["RemoteFiles"] = Slow
    Store(root / "one").get("kernel", KEY, writing(PARTS))


def test_of_an_upload_that_was_killed_nothing_is_seen(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    context = multiprocessing.get_context("fork")
    told = context.Event()
    worker = context.Process(target=_upload_slowly, args=(tmp_path, told))
    worker.start()
    assert told.wait(30)
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join(30)
    assert [one for one in (place / "blobs").rglob("*") if one.is_file()]
    assert not Store(tmp_path / "two").bring("kernel", KEY)
    fill, calls = counted()
    Store(tmp_path / "two").get("kernel", KEY, fill)
    assert len(calls) == 1
    another_process(monkeypatch)
    assert content(Store(tmp_path / "three").get("kernel", KEY, never)) == PARTS
    assert not notes
    assert content(Store(tmp_path / "one").get("kernel", KEY, never)) == PARTS  # it was whole before the upload


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_remote_cache_that_takes_nothing_costs_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str], number: int
) -> None:
    def refused(self: RemoteFiles, name: str, data: bytes) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(RemoteFiles, "put", refused)
    store = Store(tmp_path / "one")
    for key in (KEY, KEY[1:] + "0"):
        assert content(store.get("kernel", key, counted()[0])) == PARTS
    (said,) = notes
    assert os.strerror(number).lower() in said
    assert said.startswith("! nothing is uploaded to the remote cache ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_is_read_only_costs_one_sentence(tmp_path: Path, place: Path, notes: list[str]) -> None:
    place.mkdir()
    place.chmod(0o500)
    Store(tmp_path / "one").get("kernel", KEY, counted()[0])
    assert len(notes) == 1


def test_a_remote_cache_that_is_no_folder_costs_one_sentence_each_way(
    tmp_path: Path, place: Path, notes: list[str]
) -> None:
    place.write_text("a file")
    store = Store(tmp_path / "one")
    for key in (KEY, KEY[1:] + "0"):
        assert content(store.get("kernel", key, counted()[0])) == PARTS
    assert len(notes) == 2


def test_a_remote_cache_that_does_not_answer_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    monkeypatch.setattr(remote_cache, "QUESTION_S", 0.2)
    monkeypatch.setattr(RemoteFiles, "read", lambda self, name, most: time.sleep(5))
    began = time.monotonic()
    for key in (KEY, KEY[1:] + "0"):
        Store(tmp_path / "one").get("kernel", key, counted()[0])
    assert time.monotonic() - began < 4
    assert len(notes) == 1
    assert "no answer within" in notes[0]


def test_urls_that_cannot_be_a_cache_are_refused_without_their_passwords(notes: list[str]) -> None:
    with pytest.raises(UserInputError, match=r"^ftp://host/x cannot hold"):
        RemoteFiles("ftp://me:secret@host/x")
    for url in ("nothing-known://x", "simplecache::s3://x", "github://x"):
        with pytest.raises(UserInputError, match="cannot hold"):
            RemoteFiles(url)


def test_an_url_that_cannot_be_one_costs_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    monkeypatch.setenv(remote.VARIABLE, "nothing-known://x")
    Store(tmp_path / "one").get("kernel", KEY, counted()[0])
    assert len(notes) == 2
    assert all("nothing-known://x" in one for one in notes)


def test_two_packed_folders_of_the_same_files_are_the_same(tmp_path: Path) -> None:
    sent: list[bytes] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        writing(PARTS)(tmp_path / name)
    found = [
        packed_folder.pack(tmp_path / name, "kernel", KEY[:40], lambda piece, data: sent.append(data))
        for name in ("one", "two")
    ]
    assert found[0] == found[1]
    assert sent[0] == sent[1]
