# SPDX-License-Identifier: Apache-2.0
"""What init tells of refused calls, compiled with the sanitizers; and what a real strace writes, told and read back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.sanitized import compiled

from vmtailor.analysis.demands.refusals import Told
from vmtailor.base.process import require_tool
from vmtailor.drivers.guest.guest_volume import REFUSED_OPTIONS

pytestmark = pytest.mark.contract

LATER = "57<sh> 123.000001 "
KINDS = 3584


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("refused", tmp_path_factory.mktemp("native"))


def tell(program: Path, lines: bytes) -> bytes:
    """What the host is told. A sanitizer's complaint fails the test."""
    done = subprocess.run([program], input=lines, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-3000:]
    return done.stdout


def told(program: Path, *calls: str) -> list[str]:
    return tell(program, "".join(f"{LATER}{call}\n" for call in calls).encode()).decode().splitlines()


FLOCK = "flock(3</x>, LOCK_EX) = -1 ENOSYS (Function not implemented)"


@pytest.mark.parametrize(
    "call",
    [
        "read(3, 0x7ffd, 8) = -1 EAGAIN (Resource temporarily unavailable)",  # quiet
        'openat(AT_FDCWD</>, "/etc/x", O_RDONLY) = -1 ENOENT (No such file or directory)',
        "flock(3</x>, LOCK_EX) = 0",
        'write(1, " = -1 ENOSYS", 12) = 12 <0.1>',
        "+++ exited with 0 +++", "--- SIGCHLD {si_signo=SIGCHLD} ---", "flock(", "", " = -1",
    ],
)  # fmt: skip
def test_what_says_nothing_of_the_kernel_is_not_told(program: Path, call: str) -> None:
    assert [line for line in told(program, call) if line != "end"] == []


def test_a_kind_is_told_once_and_then_how_often(program: Path) -> None:
    lines = told(program, FLOCK, *[FLOCK.replace("3<", f"{fd}<") for fd in range(4, 103)])
    assert lines == [f"1 1 {LATER}{FLOCK}", "1 2", "1 4", "1 8", "1 16", "1 32", "1 64", "1 100", "end"]


def test_what_was_seen_before_the_container_is_ours(program: Path) -> None:
    early = tell(program, f"57<sh> 99.999999 {FLOCK}\n57 100.000000 {FLOCK}\n".encode())
    assert early.decode().splitlines() == [f"1 1 57 100.000000 {FLOCK}", "end"]


def test_kinds_are_told_apart_by_what_is_asked_for(program: Path) -> None:
    path = 'access("/proc/{}", R_OK) = -1 ENOENT (No such file or directory)'
    same = told(program, path.format("12/status"), path.format("7/status"))
    other = told(program, path.format("12/status"), path.format("12/maps"), FLOCK, FLOCK.replace("EX", "SH"))
    assert len(same) == 3 and [line.split()[0] for line in other] == ["1", "2", "3", "4", "end"]


@pytest.mark.attack
def test_there_is_room_for_so_many(program: Path) -> None:
    paths = (f'access("/proc/{chr(103 + n % 20)}{chr(103 + n // 20 % 20)}{n}", R_OK)' for n in range(9000))
    lines = told(program, *(f"{path} = -1 ENOENT (No)" for path in paths), FLOCK + " " * 2000)
    assert sum(line.count(" access(") for line in lines) == KINDS
    assert lines[-2:] == [f"0 {9001 - KINDS}", "end"]


@pytest.mark.attack
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from([b"\n", LATER.encode(), b" = -1 E", b"ENOSYS", b"57<", b"> ", b"9" * 30 + b".9 ", b"("]),
        max_size=30,
    )
)  # fmt: skip
def test_any_line_can_come(program: Path, parts: list[bytes]) -> None:
    found = Told()
    found.hear(tell(program, b"".join(parts)))
    assert found.whole and found.calls() is not None


def test_what_a_real_tracer_writes(program: Path, tmp_path: Path) -> None:
    """The options are those that the guest's tracer gets; what comes out of all that is a call with its program."""
    log = tmp_path / "log"
    script = "read x < /proc/none; read x < /none; exec 3< /dev/null"
    strace = [require_tool("strace"), *(o for o in REFUSED_OPTIONS if o != "-DDD"), "-o", str(log), "sh", "-c", script]
    subprocess.run(strace, check=False, capture_output=True, timeout=60)
    found = Told()
    found.hear(tell(program, log.read_bytes()))
    calls = {call.path: call for call in found.calls()}
    assert found.whole and "/none" not in calls
    assert (calls["/proc/none"].error, calls["/proc/none"].task, calls["/proc/none"].count) == ("ENOENT", "sh", 1)
