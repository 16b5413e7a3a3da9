# SPDX-License-Identifier: Apache-2.0
"""krun-start with a libkrun that starts nothing (tests/fakes/krun)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vmtailor.base import natives
from vmtailor.base.process import run

pytestmark = pytest.mark.contract

SOURCE = Path(__file__).parents[1] / "fakes" / "krun" / "libkrun.c"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the library."""
    made = tmp_path_factory.mktemp("krun")
    run(["cc", "-shared", "-fPIC", "-o", str(made / "libkrun.so.1"), str(SOURCE)], timeout_s=60)
    return made


def start(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    argv = [str(natives.locate().krun_start), *words]
    env = {"LD_LIBRARY_PATH": str(folder), **more}
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
    )


MACHINE = ("kernel", "/k", "memory", "64")


def test_a_machine_is_described_word_by_word(folder: Path) -> None:
    more = ("cpus", "2", "format", "0", "words", "quiet ro", "disk", "/a", "written", "/b", "disk", "/c")
    done = start(folder, *MACHINE, *more, "tap", "tap0", "52:54:00:0a:0b:ff", "disk", "/d", "without", "pic")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "no init of 7", "no console of 7", "no socket of 7",
        "disk a /a read of 7", "disk b /b written of 7", "disk c /c read of 7",
        "tap tap0 5254000a0bff 0 0 of 7", "disk d /d read of 7", "no pic of 7",
        "2 cpus, 64 MiB of 7", "kernel /k 0 alone |quiet ro| of 7", "serial 0 1 of 7", "start 7",
    ]  # fmt: skip


def test_the_version_is_the_librarys_file(folder: Path) -> None:
    assert start(folder, "--version").stdout == f"{(folder / 'libkrun.so.1').resolve()}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("memory", "64"), "machine: it has no kernel or no memory"),
        (("kernel", "/k"), "machine: it has no kernel or no memory"),
        ((*MACHINE, "cpus"), "cpus: a value is missing"),
        ((*MACHINE, "cpus", "256"), "cpus: no such number"),
        ((*MACHINE, "cpus", "-1"), "cpus: no such number"),
        ((*MACHINE, "cpus", "2x"), "cpus: no such number"),
        ((*MACHINE, "memory", "99999999999999999999999"), "memory: no such number"),
        ((*MACHINE, "tap", "tap0"), "tap: no such word"),
        ((*MACHINE, "tap", "tap0", "52:54"), "tap: no name and MAC address"),
        ((*MACHINE, "tap", "x" * 16, "52:54:00:0a:0b:ff"), "tap: no name and MAC address"),
        ((*MACHINE, *("disk", "/a") * 27), "/a: too many disks"),
        ((*MACHINE, "without", "song"), "song: nothing that can be left out"),
        ((*MACHINE, "sing", "song"), "sing: no such word"),
    ],
)
def test_a_wrong_word_is_named(folder: Path, words: tuple[str, ...], says: str) -> None:
    done = start(folder, *words)
    assert (done.returncode, done.stderr) == (71, f"krun-start: {says}\n")
    assert "start" not in done.stdout


def test_a_call_that_fails_is_named(folder: Path) -> None:
    done = start(folder, *MACHINE, KRUN_FAILS="1")
    assert (done.returncode, done.stderr) == (71, "krun-start: krun_start_enter: Permission denied\n")


def test_a_library_that_lacks_a_function_or_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "libkrun.so.1"
    run(["cc", "-shared", "-fPIC", "-Dkrun_add_disk=other", "-o", str(old), str(SOURCE)], timeout_s=60)
    done = start(tmp_path, *MACHINE, "disk", "/a")
    assert (done.returncode, done.stderr) == (71, "krun-start: this libkrun lacks a function: krun_add_disk\n")
    old.write_text("no library")
    done = start(tmp_path, *MACHINE)
    assert done.returncode == 71 and done.stderr.startswith("krun-start: libkrun is not there: ")
