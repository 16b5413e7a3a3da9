# SPDX-License-Identifier: Apache-2.0
"""What of a bundle is started is what it was made with, whoever may write to it meanwhile."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.bundle_data import write_bundle
from tests.fakes.hostile_bundles import respell, start
from tests.fakes.verbs import verify_verb

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import durable, plain_files, records
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.drivers.host import bundle_folder, digest_cache
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.pipeline import bundle_files
from vmtailor.stages.verify import Target

pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("own_cache")]


def test_a_changed_byte_is_refused_by_the_files_name(tmp_path: Path, verified: list[Target]) -> None:
    for name in ("vmlinux", "root.erofs", "exercise.json", "trace/trace.json", "trace/requests.strace"):
        folder = write_bundle(tmp_path / name.replace("/", "-"))
        verify_verb(folder)
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        with pytest.raises(UserInputError, match=f"{name} is not the file that the bundle was made with"):
            verify_verb(folder)
    for name in ("System.map", "config", "init", "exercise.json", "plan.json", "vmlinux", "root.erofs"):
        folder = write_bundle(tmp_path / f"boot-{name}")
        data = bytearray((folder / name).read_bytes() or b"?")
        data[-1] ^= 1
        (folder / name).write_bytes(data)
        with pytest.raises(UserInputError, match=f"{name} is not the file"):
            loaded = bundle_folder.load_container(folder)
            _ = loaded.kernel, loaded.root, loaded.symbols, loaded.config, loaded.init_marks
            loaded.data("plan.json")


def test_a_file_that_the_record_does_not_list_is_not_used(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    (tmp_path / "other").write_bytes(b"x")
    records.save(replace(records.load(Bundle, tmp_path / RECORD), kernel="other"), tmp_path / RECORD)
    with pytest.raises(UserInputError, match="lists no other: vmtailor fit writes it"):
        bundle_folder.load(tmp_path)


def test_a_bundle_of_before_there_were_digests_is_to_be_made_again(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    respell(tmp_path, Bundle.SCHEMA, "vmtailor/bundle/1")
    with pytest.raises(UserInputError, match="vmtailor/bundle/1") as caught:
        bundle_folder.load(tmp_path)
    assert caught.value.hint == "fit the image again"


def test_a_digest_is_remembered_and_a_time_that_was_set_back_deceives_nobody(
    tmp_path: Path, own_cache: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest_cache, "SETTLED_S", -1e9)  # as if it had lain there for long
    write_bundle(tmp_path)
    start(tmp_path)
    memos = sorted((own_cache.root / "content").iterdir())
    assert len(memos) == 2
    before = (tmp_path / "vmlinux").stat()
    reading = []
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: reading.append(1))
    start(tmp_path)  # nothing is read again
    assert not reading
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.root.parent))
    (tmp_path / "vmlinux").write_bytes(b"kerneL")
    os.utime(tmp_path / "vmlinux", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (tmp_path / "vmlinux").stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    with pytest.raises(UserInputError, match="vmlinux is not the file"):
        start(tmp_path)


def test_a_file_that_was_just_changed_is_not_remembered(tmp_path: Path, own_cache: Store) -> None:
    start(write_bundle(tmp_path))
    assert not (own_cache.root / "content").exists()


def test_where_others_can_write_the_checked_bytes_are_what_is_started(tmp_path: Path, own_cache: Store) -> None:
    folder = write_bundle(tmp_path / "shared")
    folder.chmod(0o777)
    machine = machine_of(bundle_folder.load(folder), Chosen())
    assert machine.kernel is not None
    for path in (machine.kernel, machine.disks[0].path):
        assert Path(path).is_relative_to(own_cache.root) and plain_files.ours_alone(Path(path).parent, "file")
    # Exchanged after the check: what was checked is still there.
    (folder / "vmlinux").write_bytes(b"hostil")
    assert Path(machine.kernel).read_bytes() == b"kernel"
    folder.chmod(0o755)
    write_bundle(folder)
    (folder / "vmlinux").chmod(0o664)
    (folder / "vmlinux").write_bytes(b"hostil")
    for _ in range(2):  # whether the right bytes are in the cache already, or not
        with pytest.raises(UserInputError, match="vmlinux is not the file"):
            start(folder)
        shutil.rmtree(own_cache.root / "bundle-files", ignore_errors=True)


def test_a_file_exchanged_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Store) -> None:
    folder = write_bundle(tmp_path / "shared")
    folder.chmod(0o777)
    right = {one.name: one.sha256 for one in records.load(Bundle, folder / RECORD).files}
    monkeypatch.setattr(digest_cache, "sha256_of", lambda file, store: right["vmlinux"])  # it was right a moment ago
    (folder / "vmlinux").write_bytes(b"hostil")
    with pytest.raises(UserInputError, match="vmlinux is not the file"):
        start(folder)
    assert not list((own_cache.root / "bundle-files").iterdir())


def test_rights_above_a_file_count(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "up" / "b")
    assert plain_files.ours_alone(folder, "vmlinux") and plain_files.ours_alone(folder, "trace/trace.json")
    (tmp_path / "up").chmod(0o777)
    assert not plain_files.ours_alone(folder, "vmlinux")
    (tmp_path / "up").chmod(0o777 | stat.S_ISVTX)
    assert plain_files.ours_alone(folder, "vmlinux")
    (folder / "trace").chmod(0o775)
    assert not plain_files.ours_alone(folder, "trace/trace.json") and plain_files.ours_alone(folder, "vmlinux")


def test_a_fits_bundle_is_for_its_owner_to_change_whatever_the_umask(tmp_path: Path) -> None:
    from tests.fakes.fit_run_data import fit_run

    made = write_bundle(tmp_path / "made")
    for path in (made, *made.rglob("*")):
        path.chmod(path.stat().st_mode | 0o022)
    bundle_files.place(made, tmp_path / "out", fit_run().command)
    start(tmp_path / "out")
    assert plain_files.ours_alone(tmp_path / "out", "trace/trace.json")
    found = records.load(Bundle, tmp_path / "out" / RECORD)
    there = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert {one.name for one in found.files} == there - {RECORD, "report.html"}
    files = bundle_folder.load(tmp_path / "out")
    assert all(files.data(one.name) is not None for one in found.files)


@pytest.mark.parametrize("there", ["state.raw", "notes.txt"])
def test_what_came_to_its_place_during_a_fit_is_not_thrown_away(tmp_path: Path, there: str) -> None:
    from tests.fakes.fit_run_data import fit_run

    made, out = write_bundle(tmp_path / "made"), tmp_path / "out"
    if there == "state.raw":
        write_bundle(out)
    else:
        out.mkdir()
    (out / there).write_text("hours of work")
    with pytest.raises(UserInputError, match=r"keeps what its system wrote|is not a bundle"):
        bundle_files.place(made, out, fit_run().command)
    assert (out / there).read_text() == "hours of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "out"]


def test_a_link_to_a_bundle_gives_way_to_the_new_one(tmp_path: Path) -> None:
    from tests.fakes.fit_run_data import fit_run

    made, old, out = write_bundle(tmp_path / "made"), write_bundle(tmp_path / "old"), tmp_path / "out"
    out.symlink_to(old)
    bundle_files.place(made, out, fit_run().command)
    assert (old / "bundle.json").is_file() and (out / "bundle.json").is_file() and not out.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "old", "out"]


def test_an_exchange_that_is_interrupted_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "out", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path == new:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        patched.setattr(durable, "_exchanged", lambda *_: False)  # as on a file system that has no such step
        with pytest.raises(KeyboardInterrupt):
            durable.exchange(new, old)
    assert (old / "name").read_text() == "out"
    for exchanged in (durable._exchanged, lambda *_: False):
        monkeypatch.setattr(durable, "_exchanged", exchanged)
        before = ((old / "name").read_text(), (new / "name").read_text())
        durable.exchange(new, old)
        assert ((new / "name").read_text(), (old / "name").read_text()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "out"]


def test_a_disk_that_is_full_while_a_bundle_is_copied_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fakes.fit_run_data import fit_run

    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(HostError, match="no space is left"):
        bundle_files.place(write_bundle(tmp_path / "made"), tmp_path / "out", fit_run().command)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
