# SPDX-License-Identifier: Apache-2.0
"""`run -v` in real machines: folders, files alone and volumes, who owns what, and what a hostile folder does.

The kernel is compiled for these tests: that of the session, with what they need."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from tests.fakes.program import run_program, started
from tests.system.conftest import with_image

from vmtailor.base.errors import ExitCode

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.attack]

#: Gives the guest's shell its tools.
_TOOLS = "/bin/busybox --install -s /bin; "
KEEPER, WORKER = (Path(__file__).parents[1] / "guests" / name for name in ("keeper", "worker"))
#: Seconds that work on thousands of files may take, emulated and on a busy host.
_WORK_S = 1800.0


@pytest.fixture(scope="module")
def bundle(foldered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shell in a machine that can mount folders and volumes."""
    return with_image(foldered, KEEPER, tmp_path_factory.mktemp("mounts"), network=False)


@pytest.fixture(scope="module")
def worker(foldered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with git and a database."""
    return with_image(foldered, WORKER, tmp_path_factory.mktemp("worker"), network=False)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def run(bundle: Path, tmp_path: Path, mounts: list[str], script: str, timeout_s: float = 600) -> list[str]:
    """The lines that a script in the guest prints."""
    options = [word for mount in mounts for word in ("-v", mount)]
    ended = run_program(tmp_path, "run", *options, bundle, _TOOLS + script, timeout_s=timeout_s)
    assert ended.code == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.usefixtures("state")
def test_folders_and_files_in_a_hostile_neighbourhood(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder, closed = tmp_path / "a b", tmp_path / "closed"
    for one in (folder, closed):
        one.mkdir()
        (one / "file").write_text("inside")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("../secret")
    os.mkfifo(folder / "fifo")
    script = (
        "cd '/m n'; cat file; echo; cat out up ../secret /m*/../../secret 2>&1 | grep -c 'No such file'; "
        "echo made > new; mknod device c 1 3 2>&1; mkdir -p deep/er; mv new deep/er/moved; "
        "echo x 2>&1 > /closed/new; rm /closed/file 2>&1; cat /alone; echo x >> /alone; grep -c virtiofs /proc/mounts"
    )
    mounts = [f"{folder}:/m n", f"{closed}:/closed:ro", f"{closed / 'file'}:/alone:ro"]
    said = run(bundle, tmp_path, mounts, script)
    assert said[0] == "inside" and said[1] == "4" and "Operation not permitted" in said[2]
    assert sum("Read-only file system" in line for line in said) >= 1 and said[-1].endswith("3")
    assert (folder / "deep/er/moved").read_text() == "made\n" and not (folder / "device").exists()
    assert (folder / "deep/er/moved").stat().st_uid == os.geteuid()
    assert [one.name for one in closed.iterdir()] == ["file"] and (closed / "file").read_text() == "inside"


def test_a_volume_begins_as_the_image_and_outlives_the_machine(bundle: Path, tmp_path: Path, state: Path) -> None:
    show = "stat -c '%u %a' /var/kept/first; cat /var/kept/*; ls -A /var/kept | wc -l"
    assert run(bundle, tmp_path, ["kept:/var/kept"], f"{show}; echo second > /var/kept/z") == ["5 4755", "image", "1"]
    assert run(bundle, tmp_path, ["kept:/var/kept"], show) == ["5 4755", "image", "second", "2"]
    assert run(bundle, tmp_path, ["bare:/var/kept:nocopy"], "ls -A /var/kept | wc -l") == ["0"]
    listed = json.loads(run_program(tmp_path, "volume", "ls", "--json", timeout_s=60).stdout)
    assert [(one["Name"], one["InUse"]) for one in listed["volumes"]] == [("bare", False), ("kept", False)]
    assert (state / "vmtailor/volumes/kept/disk.raw").stat().st_blocks * 512 < 64 << 20


@pytest.mark.usefixtures("state")
def test_a_server_that_dies_ends_the_machine_with_a_sentence(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    with started(tmp_path, "run", "-v", f"{folder}:/m", bundle, _TOOLS + "touch /m/up; sleep 600") as program:
        deadline = time.monotonic() + 300
        while not (folder / "up").exists():
            assert time.monotonic() < deadline and program.process.poll() is None, program.stderr
            time.sleep(0.1)
        os.kill(server_of(folder), signal.SIGKILL)
        assert program.process.wait(120) == ExitCode.RUN
    assert f"the file server of {folder} ended (signal 9), and the machine with it" in program.stderr


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A folder with 10,000 files in a hundred folders."""
    made = tmp_path / "many"
    for number in range(100):
        inner = made / f"d{number}"
        inner.mkdir(parents=True)
        for file in range(100):
            (inner / f"f{file}").write_text(f"{number} {file}\n" * (file % 7 + 1))
    return made


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.md5(b"".join(path.read_bytes() for path in files)).hexdigest()


@pytest.mark.usefixtures("state")
def test_ten_thousand_files_are_found_read_and_packed(bundle: Path, tmp_path: Path, many: Path) -> None:
    script = (
        "cd /many; find . -type f | wc -l; tar c . | tar t | wc -l; "
        "find . -type f | LC_ALL=C sort | xargs cat | md5sum; mkdir /many/copy; tar c d7 d8 | tar x -C copy; "
        "rm -r d9; find . | wc -l"
    )
    digest = _digest(many)
    assert run(bundle, tmp_path, [f"{many}:/many"], script, _WORK_S) == ["10000", "10101", f"{digest}  -", "10203"]
    assert not (many / "d9").exists() and _digest(many / "copy/d7") == _digest(many / "d7")


@pytest.mark.usefixtures("state")
def test_git_in_a_folder_of_the_host(worker: Path, tmp_path: Path, many: Path) -> None:
    """Objects go into one pack: with a file each, the server would have 20,000 open, which may be this host's limit."""
    script = (
        "cd /many; git config --global safe.directory '*'; git config --global user.email a@b; "
        "git config --global user.name a; "
        "git init -q . && git -c core.bigFileThreshold=1 add . && git commit -q -m one; "
        "git status --short; "
        "echo x >> d3/f3; rm d4/f4; echo > new; git mv d5/f5 d6/moved; git status --short; git fsck 2>&1 | wc -l; "
        "git log --format=%s; git ls-files | wc -l"
    )
    said = run(worker, tmp_path, [f"{many}:/many"], script, _WORK_S)
    assert said == [" M d3/f3", " D d4/f4", "R  d5/f5 -> d6/moved", "?? new", "0", "one", "10000"]


@pytest.mark.usefixtures("state")
def test_a_database_in_a_folder_of_the_host(worker: Path, tmp_path: Path) -> None:
    """Each commit is a journal that is synced, a file that is synced, and a journal that goes. The kernel has no locks
    of files, so the database takes none."""
    folder = tmp_path / "kept"
    folder.mkdir()
    row = "begin; insert into t values(%d, hex(randomblob(2000))); commit;"
    lines = ["create table t(n integer, x text);", *(row % number for number in range(40))]
    (folder / "sql").write_text("\n".join([*lines, "pragma integrity_check; select count(*), sum(n) from t;"]))
    script = (
        "sqlite3 'file:/kept/db?vfs=unix-none' 'pragma synchronous=full' 'pragma journal_mode=delete' "
        "'.read /kept/sql'; "
        "dd if=/dev/zero of=/kept/synced bs=4k count=64 conv=fsync 2>/dev/null; sync; ls /kept"
    )
    said = run(worker, tmp_path, [f"{folder}:/kept"], script, _WORK_S)
    assert said == ["delete", "ok", "40|780", "db", "sql", "synced"]
    with contextlib.closing(sqlite3.connect(folder / "db")) as database:
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert database.execute("select count(*), sum(n), min(length(x)) from t").fetchone() == (40, 780, 4000)


def server_of(folder: Path) -> int:
    """The process that serves a folder: the child of the watcher that names it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
            children = (entry / "task" / entry.name / "children").read_text().split()
            found = [one for one in children if b"virtiofsd" in Path(f"/proc/{one}/cmdline").read_bytes()]
            if found:
                return int(found[0])
    raise AssertionError("no server")
