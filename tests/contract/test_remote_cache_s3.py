# SPDX-License-Identifier: Apache-2.0
"""The remote cache on an object store that speaks S3: a server of its own on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vmtailor.base import output
from vmtailor.base.cache import remote
from vmtailor.base.cache.remote_files import RemoteFiles
from vmtailor.base.cache.store import Store, writing

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")

KEY = "0123456789abcdef" * 4
PARTS = {"vmlinux": b"kernel" * 1000, "config": b"CONFIG_X=y\n"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket, which the environment names as the remote cache."""
    import s3fs

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    name = f"cache-{abs(hash(tmp_path))}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    monkeypatch.setenv(remote.VARIABLE, f"s3://{name}/shared")
    monkeypatch.setattr(remote, "_fingerprint_of", [lambda: ("f" * 64, b"{}\n")])
    monkeypatch.setattr(remote, "_current", {})
    monkeypatch.setattr(remote, "_stays_local", [])
    return f"s3://{name}/shared"


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(output, "note", found.append)
    return found


def never(folder: Path) -> None:
    raise AssertionError("it is made again")


def content(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def test_files_are_there_whole_and_one_writer_of_a_new_file_wins(bucket: str) -> None:
    files = RemoteFiles(bucket)
    assert files.read("a/b", 10) is None
    assert files.size("a/b") is None
    assert files.names("a") == []
    assert files.create("a/b", b"first")
    assert not files.create("a/b", b"second")
    assert files.read("a/b", 10) == b"first"
    assert files.read("a/b", 3) == b"firs"
    files.put("a/c", b"")
    files.put("a/b", b"third!")
    assert files.size("a/b") == 6
    assert files.names("a") == ["b", "c"]


def test_a_result_travels(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]) -> None:
    Store(tmp_path / "one").get("kernel", KEY, writing(PARTS))
    monkeypatch.setattr(remote, "_current", {})
    two = Store(tmp_path / "two")
    assert not two.bring("kernel", KEY[1:] + "0")
    assert content(two.get("kernel", KEY, never)) == PARTS
    assert not notes


def test_a_torn_piece_is_refused_and_mended(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    Store(tmp_path / "one").get("kernel", KEY, writing(PARTS))
    files = RemoteFiles(bucket)
    (start,) = files.names("blobs")
    (blob,) = files.names(f"blobs/{start}")
    whole = files.read(f"blobs/{start}/{blob}", 1 << 20) or b""
    files.put(f"blobs/{start}/{blob}", whole[:-5])
    monkeypatch.setattr(remote, "_current", {})
    assert content(Store(tmp_path / "two").get("kernel", KEY, writing(PARTS))) == PARTS
    assert len(notes) == 1
    monkeypatch.setattr(remote, "_current", {})
    assert content(Store(tmp_path / "three").get("kernel", KEY, never)) == PARTS


def test_of_eight_writers_of_a_list_one_wins(bucket: str) -> None:
    gate = threading.Barrier(8)

    def write(number: int) -> bool:
        files = RemoteFiles(bucket)
        gate.wait(30)
        return files.create("results/list.json", b"%d" % number * 1000)

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, is_first in enumerate(pool.map(write, range(8))) if is_first]
    assert len(won) == 1
    assert RemoteFiles(bucket).read("results/list.json", 1 << 20) == b"%d" % won[0] * 1000


def test_a_bucket_that_is_not_there_costs_one_sentence_each_way(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    monkeypatch.setenv(remote.VARIABLE, "s3://no-such-bucket-here/x")
    store = Store(tmp_path / "one")
    for key in (KEY, KEY[1:] + "0"):
        assert content(store.get("kernel", key, writing(PARTS))) == PARTS
    assert 1 <= len(notes) <= 2
