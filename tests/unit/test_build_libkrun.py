# SPDX-License-Identifier: Apache-2.0
"""The tool that builds libkrun, with programs in the place of Rust's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.fakes.tools import load_tool

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError

build_libkrun = load_tool("build_libkrun")

CARGO = """[ "$1" = --version ] && { echo 'cargo 1.95.0 (x)'; exit; }
echo "$@" >> "$XDG_CACHE_HOME/asked"
[ -s Cargo.lock ] && [ -s lib.rs ] && mkdir -p "$7/release" && echo built > "$7/release/libkrun.so"
"""


def played(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


def test_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    played(tmp_path, monkeypatch, cargo=CARGO, rustc="echo 'rustc 1.95.0 (x)'")
    for _ in range(2):
        assert build_libkrun.main(["--out", str(tmp_path / "out")]) == 0
    name = f"libkrun.so.{build_libkrun.version()}"
    assert capsys.readouterr().out == f"{tmp_path}/out/{name}\n" * 2
    assert (tmp_path / "out" / "libkrun.so.1").read_text() == "built\n"
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.startswith("build --release --locked --package libkrun --target-dir ")
    played(tmp_path, monkeypatch, rustc="echo 'rustc 1.96.0 (x)'")
    build_libkrun.library(Store())
    assert len((tmp_path / "asked").read_text().splitlines()) == 2


def test_an_older_rust_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, monkeypatch, cargo="echo 'cargo 1.63.0'", rustc="echo 'rustc 1.63.0'")
    with pytest.raises(
        HostError, match=r"libkrun needs cargo 1\.85 or newer, and this one is: cargo 1\.63\.0"
    ) as caught:
        build_libkrun.compiler()
    assert caught.value.hint == "apt-get install rustc-web cargo-web"
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(HostError, match="the program 'cargo' is not installed"):
        build_libkrun.compiler()


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = "[ \"$1\" = --version ] && { echo 'cargo 1.95.0'; exit; }; exit 101"
    played(tmp_path, monkeypatch, cargo=fails, rustc="echo 'rustc 1.95.0'")
    store = Store(tmp_path / "cache")
    with pytest.raises(HostError, match="cargo could not build libkrun"):
        build_libkrun.library(store)
    assert [path.name for path in (store.root / "libkrun").iterdir()] == []


def test_all_that_it_is_made_of_is_pinned() -> None:
    lock = (build_libkrun.SOURCE / "Cargo.lock").read_text()
    assert f'name = "libkrun"\nversion = "{build_libkrun.version()}"\n' in lock
    assert lock.count("checksum = ") == lock.count("[[package]]") - 1  # all but our own, which has no code
