# SPDX-License-Identifier: Apache-2.0
"""What the cache holds, and what of it may go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.program import run_program

from vmtailor.base.cache import entries as cache
from vmtailor.base.cache import users as store_use
from vmtailor.base.cache.entries import CacheEntry, PruneLimits
from vmtailor.base.cache.store import FILLING, Store
from vmtailor.base.files import temporary
from vmtailor.cli import cache as cache_verb

DAY = 86400.0


def filled(store: Store, kind: str, key: str, size: int, days_ago: float) -> Path:
    def fill(folder: Path) -> None:
        (folder / "data").write_bytes(b"x" * size)

    path = store.get(kind, key, fill)
    at = time.time() - days_ago * DAY
    os.utime(path, (at, at))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "vmtailor")
    filled(made, "kernel", "old", 40_000, 90)
    filled(made, "kernel", "new", 40_000, 1)
    filled(made, "trace", "middle", 40_000, 30)
    return made


@pytest.fixture
def beside(store: Store) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses the cache: it says a word once it does, and ends when its input does."""
    code = "import sys; from pathlib import Path; from vmtailor.base.cache.store import Store\n"
    code += "store = Store(Path(sys.argv[1])); store.root; print('here', flush=True)\n"
    code += "for line in sys.stdin: store.has(*line.split()); print('used', flush=True)\n"
    argv = [sys.executable, "-c", code, str(store.root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        yield process
        process.kill()


def names(entries: tuple[CacheEntry, ...]) -> list[str]:
    return [f"{entry.kind}/{entry.name}" for entry in entries]


def test_what_is_there_is_listed_with_its_size_and_last_use(store: Store) -> None:
    found = cache.entries(store)
    assert names(found) == ["kernel/new", "kernel/old", "trace/middle"]
    assert all(40_000 <= entry.size_bytes < 60_000 for entry in found)
    assert [round((time.time() - entry.used_s) / DAY) for entry in found] == [1, 90, 30]


def test_a_result_is_as_large_as_everything_below_it(store: Store) -> None:
    deep = store.path("kernel", "new") / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "data").write_bytes(b"x" * 100_000)
    found = {entry.name: entry.size_bytes for entry in cache.entries(store)}
    assert 140_000 <= found["new"] < 170_000 and found["old"] < 60_000


def test_a_kind_that_is_one_result_was_used_when_its_newest_folder_was(store: Store) -> None:
    (store.folder("ccache") / "a" / "b").mkdir(parents=True)
    for path, days in ((store.root / "ccache" / "a" / "b", 1), (store.root / "ccache" / "a", 5)):
        os.utime(path, (time.time() - days * DAY,) * 2)
    os.utime(store.root / "ccache", (time.time() - 9 * DAY,) * 2)
    (whole,) = (entry for entry in cache.entries(store) if entry.kind == "ccache")
    assert (whole.name, whole.path) == ("ccache", store.root / "ccache")
    assert round((time.time() - whole.used_s) / DAY) == 5


def test_what_a_process_works_with_is_no_result(store: Store) -> None:
    for kind in ("locks", "scratch", "users"):
        store.folder(kind, "inner")
    (store.root / "file").write_text("")
    with temporary.held_folder(store.folder("kernel"), FILLING):
        assert names(cache.entries(store)) == ["kernel/new", "kernel/old", "trace/middle"]
    assert cache.entries(Store(store.root / "nowhere")) == ()


def test_a_cache_that_cannot_be_listed_holds_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(store.root / store_use.USERS)
    assert store_use.others(store.root) == [] and cache.busy_since(store) == (float("inf"), ())

    def refuses(path: object) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(path)

    monkeypatch.setattr(os, "scandir", refuses)
    assert cache.entries(store) == ()


def test_asking_for_a_result_is_a_use(store: Store) -> None:
    assert store.has("kernel", "old")
    assert next(e for e in cache.entries(store) if e.name == "old").used_s > time.time() - 60


def test_a_file_that_was_found_otherwise_is_a_use_of_its_entry(store: Store) -> None:
    store.used(store.path("kernel", "old") / "data", "/etc/passwd", store.root)
    assert next(e for e in cache.entries(store) if e.name == "old").used_s > time.time() - 60


def test_what_is_old_goes(store: Store) -> None:
    there = cache.entries(store)
    gone = cache.remove(store, cache.surplus(there, PruneLimits(age_s=60 * DAY), time.time()))
    assert names(gone) == ["kernel/old"]
    assert names(cache.entries(store)) == ["kernel/new", "trace/middle"]
    assert not list((store.root / "scratch").iterdir())


def test_for_a_size_what_was_used_longest_ago_goes_first(store: Store) -> None:
    there = cache.entries(store)
    assert names(cache.surplus(there, PruneLimits(size_bytes=100_000), time.time())) == ["kernel/old"]
    assert names(cache.surplus(there, PruneLimits(size_bytes=50_000), time.time())) == ["kernel/old", "trace/middle"]
    assert cache.surplus(there, PruneLimits(size_bytes=200_000), time.time()) == ()


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100))),
    st.integers(0, 3000) | st.none(),
    st.integers(0, 120) | st.none(),
)
def test_the_limits_hold_and_no_more_goes_than_must(
    sizes: list[tuple[int, int]], size: int | None, age: int | None
) -> None:
    there = [CacheEntry("k", str(n), Path(), bytes_, 1000.0 - days) for n, (bytes_, days) in enumerate(sizes)]
    gone = cache.surplus(there, PruneLimits(None if age is None else float(age), size), 1000.0)
    left = [entry for entry in there if entry not in gone]
    assert size is None or sum(e.size_bytes for e in left) <= size
    assert age is None or all(e.used_s >= 1000.0 - age for e in left)
    for entry in gone:  # each that went had to: it was too old, or without it there would still be too much
        old = age is not None and entry.used_s < 1000.0 - age
        before = sum(e.size_bytes for e in left) + entry.size_bytes
        later = sum(e.size_bytes for e in gone if e.used_s >= entry.used_s and e is not entry)
        assert old or (size is not None and before + later > size)


def test_what_a_running_process_used_stays(store: Store, beside: subprocess.Popen[str]) -> None:
    assert beside.stdin is not None and beside.stdout is not None
    beside.stdin.write("kernel old\n")
    beside.stdin.flush()
    assert beside.stdout.readline() == "used\n"
    assert cache.busy_since(store)[1] == (beside.pid,)
    gone = cache.remove(store, cache.entries(store))
    assert names(gone) == ["kernel/new", "trace/middle"]
    assert store.path("kernel", "old").is_dir()


def test_a_process_that_is_gone_keeps_nothing(store: Store, beside: subprocess.Popen[str]) -> None:
    store.has("kernel", "old")
    beside.kill()
    beside.wait()
    assert cache.busy_since(store) == (float("inf"), ())
    assert len(cache.remove(store, cache.entries(store))) == 3


def test_a_process_that_comes_meanwhile_waits(store: Store) -> None:
    code = "import sys; from pathlib import Path; from vmtailor.base.cache.store import Store\n"
    code += "print('begins', flush=True); Store(Path(sys.argv[1])).root; print('uses it', flush=True)\n"
    with store_use.nobody_comes(store.root):
        argv = [sys.executable, "-c", code, str(store.root)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
    assert process.communicate(timeout=60)[0] == "uses it\n"


# --- the verb ---


def test_the_verb_says_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = Store()
    filled(store, "kernel", "one", 3_000_000, 2)
    ended = run_program(tmp_path, "cache")
    assert ended.code == 0, ended.stderr
    assert "compiled kernels" in ended.stdout and "2 days ago" in ended.stdout and str(store.root) in ended.stdout


@pytest.mark.lengthy
def test_the_verb_prunes_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = Store()
    for name, days in (("one", 40), ("two", 2)):
        filled(store, "kernel", name, 3_000_000, days)
    # The test itself uses this cache.
    monkeypatch.setattr(store_use, "_held", {})
    for entry in (store.root / store_use.USERS).iterdir():
        entry.unlink()
    ended = run_program(tmp_path, "cache", "--older-than", "30d", "--dry-run")
    assert "1 result, 3.0" in ended.stdout and "would be removed" in ended.stdout
    assert store.path("kernel", "one").is_dir()
    document = json.loads(run_program(tmp_path, "cache", "--older-than", "30d", "--json").stdout)
    assert [row["name"] for row in document["removed"]] == ["one"]
    assert not store.path("kernel", "one").exists() and store.path("kernel", "two").is_dir()
    assert json.loads(run_program(tmp_path, "cache", "--all", "--json").stdout)["removed"][0]["name"] == "two"


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--older-than", "soon"], "'soon' is not an age"),
        (["--older-than", "9" * 5000 + "d"], "is not an age"),
        (["--max-size", "-5"], "'-5' is not a size"),
        (["--dry-run"], "--older-than, --max-size or --all"),
    ],
)
def test_what_is_no_limit_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], text: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ended = run_program(tmp_path, "cache", *options)
    assert ended.code == 2 and text in ended.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (59, "now"),
        (60, "1 minute ago"),
        (3_599, "59 minutes ago"),
        (3_600, "1 hour ago"),
        (86_399, "23 hours ago"),
        (86_400, "1 day ago"),
        (3 * 86_400, "3 days ago"),
    ],
)
def test_the_age_of_a_result_is_told_in_one_unit(seconds: float, text: str) -> None:
    assert cache_verb._ago(seconds) == text


def test_what_a_killed_process_left_is_counted_and_goes_first(store: Store) -> None:
    """A folder whose process lives is none of it."""
    left = store.root / "trace" / f"{FILLING}dead"
    scratch = store.folder("scratch") / "vmtailor-held-dead"
    for folder in (left, scratch):
        folder.mkdir()
        (folder / "data").write_bytes(b"x" * 50_000)
    with temporary.held_folder(store.folder("kernel"), FILLING):
        there = cache.entries(store)
    unfinished = [entry for entry in there if entry.kind == cache.UNFINISHED]
    assert sorted(entry.name for entry in unfinished) == [f"scratch/{scratch.name}", f"trace/{left.name}"]
    assert all(entry.size_bytes >= 50_000 for entry in unfinished)
    chosen = cache.surplus(there, PruneLimits(age_s=365 * DAY), time.time())
    assert {entry.kind for entry in chosen} == {cache.UNFINISHED}
    cache.remove(store, chosen)
    assert not left.exists() and not scratch.exists() and names(cache.entries(store))
