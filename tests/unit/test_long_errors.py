# SPDX-License-Identifier: Apache-2.0
"""An error fits a screen; what does not is in a file that the error names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base import terminal
from vmtailor.base.cache import kept_errors
from vmtailor.base.errors import GuestError, VmtailorError
from vmtailor.base.text import LINES, WIDTH, excerpt, fits_screen, screen_rows
from vmtailor.cli import main

COMMAND = "/usr/bin/qemu-system-x86_64 " + " ".join(f"-device virtio-{n},id=a{n}" for n in range(80))
EVIDENCE = [
    "the container did not become ready within 120 s",
    *("load step 1 failed", "load step 2 failed"),
    "--- standard error:",
    *(f"[NOTICE] line {n}" for n in range(25)),
    "--- console:",
    *(f"[    {n}.0] words of the kernel" for n in range(25)),
    "--- machine, ended after 780.3 s:",
    COMMAND,
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vmtailor" / "errors"


def test_an_error_fits_a_screen_and_names_the_file_with_the_rest(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main._show(GuestError("the container does not work", hint="mend it", details="\n".join(EVIDENCE)))
    shown = capsys.readouterr().err
    assert sum(screen_rows(line, 120) for line in shown.splitlines()) <= 20
    assert "did not become ready" in shown and "[NOTICE] line 24" in shown and "[    24.0] words" in shown
    assert COMMAND not in shown and shown.splitlines()[-1] == "hint: mend it"
    (path,) = cache.iterdir()
    assert f"all of it: {path}\n" in shown
    assert path.read_text() == "error: the container does not work\n" + "\n".join(EVIDENCE) + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_an_error_that_fits_leaves_no_file(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main._show(VmtailorError("m", details="a\nb"))
    assert not cache.exists() and "all of it" not in capsys.readouterr().err


def test_only_the_last_ones_are_kept(cache: Path) -> None:
    for number in range(kept_errors.MOST + 5):
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        (cache / f"20200101T0000{number:02}-1.txt").write_text("old")
    path = kept_errors.keep("new")
    assert path is not None and len(list(cache.iterdir())) == kept_errors.MOST
    assert path.read_text() == "new"


def test_of_a_very_long_one_the_end_is_kept(cache: Path) -> None:
    path = kept_errors.keep("first" + "x" * 3_999_999 + "é")
    assert path is not None and path.read_text() == "x" * 3_999_999 + "é"


def test_a_link_in_its_place_is_not_followed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr("time.strftime", lambda _: "now")
    (tmp_path / "mine").write_text("mine")
    (cache / f"now-{os.getpid()}.txt").symlink_to(tmp_path / "mine")
    assert kept_errors.keep("new") is None and (tmp_path / "mine").read_text() == "mine"


def test_without_a_cache_the_error_is_shown_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    main._show(GuestError("m", details="\n".join(EVIDENCE)))
    assert "did not become ready" in (shown := capsys.readouterr().err) and "all of it" not in shown


@given(st.lists(st.text(max_size=300) | st.sampled_from(["--- a:", "--- b:", "x"]), max_size=80))
def test_an_excerpt_never_is_longer_than_a_screen(lines: list[str]) -> None:
    found = excerpt(lines)
    assert (
        fits_screen(found) and len(found) <= LINES and all(len(line) <= WIDTH or found is lines for line in found[1:])
    )
    assert all(any(line.startswith(part.removesuffix(" …")) for line in lines) for part in found)


def test_what_failed_keeps_its_beginning_and_a_console_its_end() -> None:
    found = excerpt(["first", *(f"further {n}" for n in range(40)), "--- console:", *(f"line {n}" for n in range(40))])
    assert found[0] == "first" and found[-1] == "line 39" and "--- console:" in found
    assert excerpt([f"line {n}" for n in range(40)])[-1] == "line 39"
    assert terminal.details_fit(VmtailorError("m", details="x\n" * LINES))
    assert not terminal.details_fit(VmtailorError("m", details="x\n" * (LINES + 1)))
