# SPDX-License-Identifier: Apache-2.0
"""Starting outside programs: statuses, deadlines, nothing left behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from vmtailor.base.disk_full import DiskFull
from vmtailor.base.errors import HostError
from vmtailor.base.process import CommandFailed, Meanwhile, OutputTooLong, require_tool, run, spawn


def test_output_and_status_are_returned() -> None:
    finished = run([sys.executable, "-c", "print('yes'); raise SystemExit(3)"], timeout_s=20, ok=(3,))
    assert (finished.returncode, finished.text) == (3, "yes\n")


def test_an_unwanted_status_carries_the_words_of_the_program() -> None:
    with pytest.raises(CommandFailed) as caught:
        run([sys.executable, "-c", "import sys; sys.exit('no such thing')"], timeout_s=20)
    assert "no such thing" in caught.value.details


def test_a_missing_program_is_a_host_error() -> None:
    with pytest.raises(HostError, match="not installed"):
        run(["vmtailor-no-such-program"], timeout_s=5)
    with pytest.raises(HostError, match="not installed"):
        require_tool("vmtailor-no-such-program")


def test_a_folder_that_is_gone_is_no_missing_program(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=f"the folder {tmp_path}/gone is gone"):
        run(["true"], timeout_s=5, cwd=tmp_path / "gone")
    with pytest.raises(HostError, match="not installed"):
        run(["vmtailor-no-such-program"], timeout_s=5, cwd=tmp_path)


@pytest.mark.lengthy
def test_the_deadline_ends_the_program_and_what_it_started() -> None:
    code = "import subprocess,sys,time; p=subprocess.Popen(['sleep','60']); print(p.pid,flush=True); time.sleep(60)"
    seen: list[str] = []
    started = time.monotonic()
    with pytest.raises(HostError, match="did not end"):
        run([sys.executable, "-c", code], timeout_s=2, on_line=seen.append)
    assert time.monotonic() - started < 20
    assert _gone(int(seen[0]))


def test_leaving_the_block_ends_the_program() -> None:
    with spawn(["sleep", "60"]) as process:
        pid = process.pid
    assert _gone(pid)


def test_no_shell_looks_at_the_arguments() -> None:
    assert run(["printf", "%s", "$(id) ; `id`"], timeout_s=5).text == "$(id) ; `id`"


def test_lines_arrive_one_by_one_and_whole() -> None:
    seen: list[str] = []
    finished = run([sys.executable, "-c", "print('a'*70000); print('b')"], timeout_s=20, on_line=seen.append)
    assert [len(line) for line in seen] == [70000, 1]
    assert finished.text.count("\n") == 2


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # dead, and its new parent has not looked yet
            return True
        os.sched_yield()
    return False


def weight(process: str) -> int:
    """The nice value of a process's session; that of the process itself where the kernel weighs no sessions."""
    group = Path(f"/proc/{process}/autogroup")
    return int(group.read_text().split()[-1]) if group.exists() else os.getpriority(os.PRIO_PROCESS, int(process))


def test_a_program_of_a_thread_that_yields_does_so_in_its_own_session() -> None:
    seen: list[int] = []

    def start() -> None:
        own = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + 5)
        with spawn(["sleep", "60"]) as process:
            seen.append(weight(str(process.pid)))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with spawn(["sleep", "60"]) as process:
        seen.append(weight(str(process.pid)))
    assert seen == [min(19, before + 5), before]  # 19 is the most that there is


def test_long_output_is_whole_and_on_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    code = "import sys; sys.stdout.write('o'*3000001); sys.stderr.write('e'*2000001); sys.exit(1)"
    finished = run([sys.executable, "-c", code], timeout_s=60, ok=(1,))
    assert finished.stdout == b"o" * 3000001 and finished.stderr == b"e" * 2000001


def test_what_a_program_reads_and_prints_at_once_does_not_block() -> None:
    data = os.urandom(1 << 20) * 4
    assert run(["cat"], timeout_s=60, stdin_bytes=data).stdout == data
    assert run(["true"], timeout_s=60, stdin_bytes=data).stdout == b""


@pytest.mark.attack
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_prints_without_end_is_ended_and_said(stream: str) -> None:
    code = f"import sys\nwhile True: sys.{stream}.write('x'*65536)"
    with pytest.raises(OutputTooLong, match=r"printed more than 1\.00\sMB, and was ended") as caught:
        run([sys.executable, "-c", code], timeout_s=60, most_bytes=1_000_000, name="the lister")
    assert caught.value.message.startswith("the lister ") and caught.value.finished.stdout == b""


def test_output_of_just_the_limit_is_allowed() -> None:
    assert len(run(["head", "-c", "70000", "/dev/zero"], timeout_s=60, most_bytes=70000).stdout) == 70000
    with pytest.raises(OutputTooLong):
        run(["head", "-c", "70001", "/dev/zero"], timeout_s=60, most_bytes=70000)


def test_what_a_program_left_behind_is_not_waited_for() -> None:
    started = time.monotonic()
    finished = run(["sh", "-c", "sleep 60 & printf all"], timeout_s=50)
    assert finished.text == "all" and time.monotonic() - started < 20


@pytest.mark.parametrize("ok", [(0,), (0, 1), range(256)])
def test_a_program_that_fails_for_want_of_space_is_never_believed(ok: Sequence[int]) -> None:
    code = "import sys; print('half'); sys.exit('cannot write: No space left on device')"
    with pytest.raises(DiskFull, match="no space is left for the lister") as caught:
        run([sys.executable, "-c", code], timeout_s=20, ok=ok, name="the lister")
    assert "TMPDIR" in caught.value.hint and "cannot write" in caught.value.details


def test_words_about_space_of_a_program_that_did_well_are_words() -> None:
    assert run(["printf", "no space left\n"], timeout_s=20).text == "no space left\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_look_that_is_taken_meanwhile_may_end_the_program(quiet: bool) -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            raise HostError("enough")

    started = time.monotonic()
    argv = ["sh", "-c", "exec >&- 2>&-; sleep 60" if quiet else "sleep 60"]
    with pytest.raises(HostError, match="enough"):
        run(argv, timeout_s=50, meanwhile=Meanwhile(0.01, look))
    assert looks == [0, 1, 2] and time.monotonic() - started < 20
