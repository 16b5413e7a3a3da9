# SPDX-License-Identifier: Apache-2.0
"""A bundle made by somebody who means harm names no file that is not its own, of no other kind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import trace_record, write_bundle
from tests.fakes.hostile_bundles import respell, start
from tests.fakes.verbs import verify_verb

from vmtailor.analysis.comparison import judged_document, sides
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.cli import fit_record
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.bundle import RECORD, Bundle, BundleFile
from vmtailor.stages.verify import Target

pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("own_cache")]


NAMES = (
    "/etc/passwd", "../../etc/passwd", "..", ".", "", "trace/../vmlinux", "a/b/c", "./vmlinux", "vmlinux\n",
    "vm\0linux", "\x1b[31mvmlinux", ".hidden", "-kernel", "a,b", "trace/", "x" * 200, "vmlinux ",
)  # fmt: skip


@pytest.mark.lengthy
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["kernel", "root", "system_map", "kernel_config", "files"])
def test_a_record_names_files_of_its_own_folder_only(tmp_path: Path, part: str, name: str) -> None:
    write_bundle(tmp_path)
    record = records.load(Bundle, tmp_path / RECORD)
    value: Any = (*record.files, BundleFile(name, 0, "0" * 64)) if part == "files" else name
    records.save(replace(record, **{part: value}), tmp_path / RECORD)
    for read in (bundle_folder.load, bundle_folder.load_container):
        with pytest.raises(UserInputError, match="which is not a plain name") as caught:
            read(tmp_path)
        assert not {"\x1b", "\n", "\0"} & set(caught.value.message)


def put(path: Path, kind: str, other: Path) -> None:
    """Something else in the place of a file."""
    path.unlink()
    if kind == "link":
        path.symlink_to(other)
    elif kind == "dangling":
        path.symlink_to(other.with_name("nothing"))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(str(path))


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "device", "folder", "socket"])
@pytest.mark.parametrize("name", ["vmlinux", "root.erofs", "bundle.json"])
def test_only_regular_files_are_started(tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its digest says: the content behind the link is the right one here."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    folder = write_bundle(Path("b"))
    other = tmp_path / "other"
    other.write_bytes((folder / name).read_bytes())
    put(folder / name, kind, other)
    with pytest.raises(UserInputError, match="not a regular file"):
        start(folder)


def bundles_without_the_file(tmp_path: Path, name: str) -> Iterator[Path]:
    """Bundles in which one file is replaced by something that is no regular file, one bundle a kind."""
    for kind in ("link", "fifo", "folder"):
        folder = write_bundle(tmp_path / kind)
        other = tmp_path / f"other-{kind}"
        other.write_bytes((folder / name).read_bytes())
        put(folder / name, kind, other)
        yield folder


@pytest.mark.parametrize("name", ["exercise.json", "config", "System.map"])
def test_only_regular_files_are_read_by_boot(tmp_path: Path, name: str) -> None:
    for folder in bundles_without_the_file(tmp_path, name):
        with pytest.raises(UserInputError, match="not a regular file"):
            bundle_folder.load_container(folder)


@pytest.mark.parametrize("name", ["exercise.json", "trace/trace.json", "trace/requests.strace"])
def test_only_regular_files_are_read_by_verify(tmp_path: Path, name: str, verified: list[Target]) -> None:
    for folder in bundles_without_the_file(tmp_path, name):
        with pytest.raises(UserInputError, match="not a regular file"):
            verify_verb(folder)
    assert not verified


def test_the_folder_of_the_trace_is_no_link(tmp_path: Path, verified: list[Target]) -> None:
    folder = write_bundle(tmp_path / "bundle")
    (folder / "trace").rename(tmp_path / "elsewhere")
    (folder / "trace").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserInputError, match="cannot be read"):
        verify_verb(folder)
    assert fit_record.TraceLines(folder).quote("trace:requests:1") is None


def test_a_trace_names_a_log_of_its_own(tmp_path: Path, verified: list[Target]) -> None:
    for name in ("../../../etc/passwd", "/etc/passwd", "../vmlinux", "\x1b[31m"):
        write_bundle(tmp_path, trace=trace_record(requests_file=name))
        with pytest.raises(UserInputError, match="lists no ") as caught:
            verify_verb(tmp_path)
        assert "\x1b" not in caught.value.message
        assert fit_record.TraceLines(tmp_path).quote("trace:requests:1") is None
    assert not verified


def test_saved_records_are_files_of_their_own_folder(tmp_path: Path) -> None:
    """`report`, `explain`, `gate` and `compare`."""
    folder = write_bundle(tmp_path / "bundle")
    assert fit_record.load_run(folder) and judged_document.read(folder).metrics and sides.find(folder)
    for kind in ("link", "fifo"):
        other = tmp_path / f"other-{kind}"
        other.write_bytes((write_bundle(folder) / "run.json").read_bytes())
        put(folder / "run.json", kind, other)
        with pytest.raises(UserInputError, match="not a regular file"):
            fit_record.load_run(folder)
        with pytest.raises(UserInputError, match="not a regular file"):
            judged_document.read(folder)
        assert sides.find(folder) is None
        (folder / "run.json").unlink()
    write_bundle(folder)
    run = fit_record.load_run(folder)[0]
    for name in ("../vmlinux", "/etc/passwd", "link"):
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to("/etc/passwd")
        records.save(replace(run, tailored=replace(run.tailored, kernel_file=name)), folder / "run.json")
        (told,) = [text for key, text in judged_document.read(folder).facts if key == "kernel"]
        assert ("sha256:" in told) is (name == "../vmlinux")  # the one beside the record


def test_a_sparse_record_is_not_read_into_memory(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    with (tmp_path / RECORD).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserInputError, match="larger than 256 MiB"):
        bundle_folder.load(tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"schema":"\xff"}', b'{"schema":"vmtailor/bundle/4","x":' + b"[" * 200_000, b"\0" * 64],
)
def test_a_damaged_record_is_wrong_input(tmp_path: Path, data: bytes) -> None:
    (tmp_path / RECORD).write_bytes(data)
    with pytest.raises(UserInputError):
        bundle_folder.load(tmp_path)


def test_a_wrong_value_is_not_obeyed_by_the_terminal(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    respell(tmp_path, '"erofs"', '"\\u001b[31mext4"')
    with pytest.raises(UserInputError, match="is damaged") as caught:
        bundle_folder.load(tmp_path)
    assert "\x1b" not in caught.value.message
