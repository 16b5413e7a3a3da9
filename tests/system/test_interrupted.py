# SPDX-License-Identifier: Apache-2.0
"""Fits that cannot succeed, and fits that are interrupted, where real machines are needed to see it: one clear message,
its exit code, nothing left behind, and what was finished is found again."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.program import (
    Ended,
    Started,
    assert_clear,
    assert_nothing_left,
    finish,
    interrupt,
    run_program,
    small_disk,
    started,
)
from tests.system.conftest import EXAMPLES, Fitted

from vmtailor.base.cache.store import Store, cache_root
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.model.architecture import presumed

pytestmark = pytest.mark.system

EXERCISE = EXAMPLES / "hello" / "exercise.toml"


@pytest.fixture(scope="module")
def version() -> str:
    """Upstream version of the packaged baseline, which is in the cache afterwards."""
    return packaged_baseline.provide(selection.of_host(), presumed(), Store()).version


@pytest.fixture
def no_scratch_left() -> Iterator[None]:
    """No new folder stays in the cache's scratch space, whose processes have all ended."""
    scratch = cache_root() / "scratch"
    before = set(unheld(scratch))
    yield
    assert set(unheld(scratch)) - before == set()


def unheld(folder: Path) -> list[str]:
    """Folders in it that no process that lives holds: other tests fill the same cache."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # it is in use
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(path.name)
            finally:
                os.close(lock)
    return found


def test_a_source_that_does_not_match_the_baseline(hello_layout: Path, version: str, tmp_path: Path) -> None:
    tree = tmp_path / "linux-5.4.1"
    tree.mkdir()
    (tree / "Makefile").write_text("VERSION = 5\nPATCHLEVEL = 4\nSUBLEVEL = 1\n")
    ended = run_program(tmp_path, "fit", f"oci:{hello_layout}", "--source", tree, "-o", tmp_path / "bundle")
    assert_clear(ended, 2, "5.4.1", version)
    (tree / "Makefile").write_text("all:\n")
    ended = run_program(tmp_path, "fit", f"oci:{hello_layout}", "--source", tree, "-o", tmp_path / "bundle")
    assert_clear(ended, 2, "not a kernel source")
    ended = run_program(tmp_path, "fit", f"oci:{hello_layout}", "--kernel", "1.2.3", "-o", tmp_path / "bundle")
    assert ended.code in (2, 3) and ended.stderr.count("error:") == 1 and "1.2.3" in ended.stderr, ended.stderr
    assert not (tmp_path / "bundle").exists()


@pytest.mark.usefixtures("no_scratch_left")
def test_an_exercise_that_never_becomes_ready(hello_layout: Path, version: str, tmp_path: Path) -> None:
    del version
    exercise = tmp_path / "exercise.toml"
    exercise.write_text('[ready]\nkind = "tcp"\nport = 9\ntimeout_s = 2\n')
    ended = run_program(
        tmp_path, "fit", f"oci:{hello_layout}", "-x", exercise, "-o", tmp_path / "bundle", timeout_s=600
    )
    assert_clear(ended, 5, "does not work on the baseline", "did not become ready within 2 s", "Hello from a machine")
    assert not (tmp_path / "bundle").exists()


def stopped_at(folder: Path, ready: Callable[[Started], None], *arguments: str | Path, **env: str) -> Ended:
    """Interrupt a fit when `ready` returns."""
    with started(folder, *arguments, env=env) as running:
        ready(running)
        interrupt(running)
        ended = finish(running, 30.0)
    assert ended.code == 130, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("interrupted:"), ended.stderr
    assert "Traceback" not in ended.stderr and "error:" not in ended.stderr
    assert_nothing_left(ended)
    return ended


@pytest.mark.usefixtures("no_scratch_left")
def test_interrupted_while_the_baseline_boots(hello_layout: Path, version: str, tmp_path: Path) -> None:
    """In the first boot and in the second; another memory size makes sure that neither is in the cache."""
    del version
    memory = f"{300 + os.getpid() % 100}M"
    arguments = ("trace", f"oci:{hello_layout}", "-x", EXERCISE, "--memory", memory)

    def booting(running: Started) -> None:
        running.wait_for("trace: every system call")
        running.wait_for_program("qemu-system")

    stopped_at(tmp_path, booting, *arguments)
    assert not [name for name in unheld(cache_root() / "trace") if name.startswith(".")]


@pytest.mark.usefixtures("no_scratch_left")
def test_interrupted_while_it_is_measured_and_taken_up_again(lighttpd: Fitted, tmp_path: Path) -> None:
    """Everything but the measurement is found in the cache; so many boots nobody has measured before."""
    boots = str(20 + os.getpid() % 81)
    arguments = [*lighttpd.arguments[:-1], boots, "-o", str(tmp_path / "bundle")]

    def measuring(running: Started) -> None:
        running.wait_for("measure:", 300.0)
        running.wait_for_program("qemu-system")

    ended = stopped_at(tmp_path, measuring, *arguments)
    assert "trace:" not in ended.stderr and "compiling" not in ended.stderr
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("size", ["1500k", "4m"])
def test_a_full_disk_when_the_image_is_there(hello_layout: Path, version: str, tmp_path: Path, size: str) -> None:
    """The baseline is in the cache; the volumes that a machine needs do not fit beside it any more."""
    del version
    with small_disk(tmp_path / "small", size) as small:
        cache = small / "vmtailor"
        cache.mkdir()
        for kept in cache_root().iterdir():
            if kept.name.startswith(("baselines", "kernel-", "kconfig", "facts", "packages")):
                (cache / kept.name).symlink_to(kept)
        ended = run_program(
            tmp_path, "trace", f"oci:{hello_layout}", "-x", EXERCISE, env={"XDG_CACHE_HOME": str(small)}
        )
        assert_clear(ended, 3, "no space is left")
        assert [path for path in cache.rglob(".filling*") if not path.is_symlink()] == []


@contextlib.contextmanager
def hanging(folder: Path, name: str) -> Iterator[str]:
    """A PATH on which one program never ends, and heeds no signal."""
    folder.mkdir()
    program = folder / name
    program.write_text("#!/bin/sh\ntrap '' INT TERM\nwhile :; do sleep 1000; done\n")
    program.chmod(0o755)
    yield f"{folder}:{os.environ['PATH']}"


@pytest.mark.usefixtures("no_scratch_left")
def test_interrupted_while_the_kernel_is_built(lighttpd: Fitted, tmp_path: Path) -> None:
    """A symbol more makes another kernel."""
    with hanging(tmp_path / "tools", "make") as path:

        def building(running: Started) -> None:
            running.wait_for_program("make", 300.0)

        stopped_at(
            tmp_path, building, *lighttpd.arguments, "--keep", "IKCONFIG", "-o", str(tmp_path / "bundle"), PATH=path
        )
    assert not (tmp_path / "bundle").exists()


def test_interrupted_in_a_machine_that_runs(lighttpd: Fitted, tmp_path: Path) -> None:
    """`verify` boots machines, too."""

    def booting(running: Started) -> None:
        running.wait_for_program("qemu-system")

    stopped_at(tmp_path, booting, "verify", lighttpd.bundle)
