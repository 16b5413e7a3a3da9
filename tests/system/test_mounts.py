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
from vmtailor.drivers.shares import file_servers

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


@pytest.fixture(params=["virtiofs", "9p"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How folders are mounted: by 9p where the host seems to have no server."""
    if request.param == "9p":
        monkeypatch.setenv(file_servers.PROGRAM_VARIABLE, "/nowhere/virtiofsd")
    return str(request.param)


def run(bundle: Path, tmp_path: Path, mounts: list[str], script: str, timeout_s: float = 600) -> list[str]:
    """The lines that a script in the guest prints."""
    options = [word for mount in mounts for word in ("-v", mount)]
    ended = run_program(tmp_path, "run", *options, bundle, _TOOLS + script, timeout_s=timeout_s)
    assert ended.code == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.usefixtures("state")
def test_folders_and_files_in_a_hostile_neighbourhood(bundle: Path, tmp_path: Path, way: str) -> None:
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
        "echo x 2>&1 > /closed/new; rm /closed/file 2>&1; cat /alone; echo x >> /alone; "
        f"grep -c ' {way} ' /proc/mounts"
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
def test_names_that_lead_up_and_links_that_change_lead_nowhere(bundle: Path, tmp_path: Path, way: str) -> None:
    """The guest swaps a folder for a link and back while it reads below it: the server meets either, and neither leads
    out."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    folder = tmp_path / "shared"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "file").write_text("inside")
    odd = "new\\nline \\033[31m \\377"
    script = (
        f"cd /m; ln -s {tmp_path}/secret link; ln -s ../secret up; mkdir '...' ' '; "
        f"touch \"$(printf '{odd}')\" -- '-rf' 'a:b' 'a\\b'; "
        "(i=0; while [ $i -lt 100 ]; do mv real away; mv link real; mv real link; mv away real; i=$((i+1)); done) & "
        "i=0; while [ $i -lt 200 ]; do cat real/file link/file up/file 2>/dev/null | grep -o secret; i=$((i+1)); done; "
        "wait; cat real/file; echo; ls -A | wc -l; rm -- '-rf'; ln real/file hard; ln up hardlink 2>/dev/null; "
        "mkdir -m 2775 grouped; chmod 4755 hard; stat -c %a grouped hard"
    )
    assert run(bundle, tmp_path, [f"{folder}:/m"], script) == ["inside", "9", "2775", "4755"], way
    assert (tmp_path / "secret" / "file").read_text() == "secret"
    names = {os.fsencode(one.name) for one in folder.iterdir()}
    assert {b"new\nline \x1b[31m \xff", b"a:b", b"a\\b", b"...", b" "} <= names and b"-rf" not in names


@pytest.mark.usefixtures("state")
def test_the_way_is_told_where_it_is_the_second_choice(bundle: Path, tmp_path: Path, way: str) -> None:
    ended = run_program(tmp_path, "run", "-v", f"{tmp_path}:/m:ro", bundle, _TOOLS + "ls /m", timeout_s=600)
    told = "folders are mounted by 9p, for this host has no virtiofsd"
    assert ended.code == 0 and (told in ended.stderr) is (way == "9p"), ended.stderr


@pytest.mark.usefixtures("state")
def test_users_and_modes_are_the_hosts(bundle: Path, tmp_path: Path, way: str) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "closed").write_text("closed")
    (folder / "closed").chmod(0o600)
    script = (
        "cd /kept; touch own; chown 7:8 own; chmod 640 own; stat -c '%u %g %a' own; ln -s nowhere link; readlink link"
    )
    assert run(bundle, tmp_path, [f"{folder}:/kept"], script) == ["7 8 640", "nowhere"], way
    tools = (
        "b=/bin/busybox; cd /kept; echo x > theirs; $b cat closed own 2>&1 | $b grep -c denied; $b stat -c %u theirs"
    )
    ended = run_program(tmp_path, "run", "-u", "1000:1000", "-v", f"{folder}:/kept", bundle, tools, timeout_s=600)
    assert ended.stdout.split() == ["2", "1000"], (way, ended.stderr)
    if os.geteuid() == 0:
        made = [(folder / name).stat() for name in ("own", "theirs")]
        assert [(one.st_uid, one.st_gid) for one in made] == [(7, 8), (1000, 1000)]


@pytest.mark.usefixtures("state")
def test_a_file_that_is_mapped_is_written(worker: Path, tmp_path: Path, way: str) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    assert run(worker, tmp_path, [f"{folder}:/kept"], "/mapped /kept/file text && cat /kept/file") == ["text"], way
    assert (folder / "file").read_text() == "text"


@pytest.mark.usefixtures("state")
def test_ten_thousand_files_are_found_read_and_packed(bundle: Path, tmp_path: Path, many: Path, way: str) -> None:
    script = (
        "cd /many; find . -type f | wc -l; tar c . | tar t | wc -l; "
        "find . -type f | LC_ALL=C sort | xargs cat | md5sum; mkdir /many/copy; tar c d7 d8 | tar x -C copy; "
        "rm -r d9; find . | wc -l"
    )
    digest = _digest(many)
    assert run(bundle, tmp_path, [f"{many}:/many"], script, _WORK_S) == ["10000", "10101", f"{digest}  -", "10203"], way
    assert not (many / "d9").exists() and _digest(many / "copy/d7") == _digest(many / "d7")


@pytest.mark.usefixtures("state")
def test_git_in_a_folder_of_the_host(worker: Path, tmp_path: Path, many: Path, way: str) -> None:
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
    assert said == [" M d3/f3", " D d4/f4", "R  d5/f5 -> d6/moved", "?? new", "0", "one", "10000"], way


@pytest.mark.usefixtures("state")
def test_a_database_in_a_folder_of_the_host(worker: Path, tmp_path: Path, way: str) -> None:
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
    assert said == ["delete", "ok", "40|780", "db", "sql", "synced"], way
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
