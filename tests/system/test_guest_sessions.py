# SPDX-License-Identifier: Apache-2.0
"""Further processes in a container that runs, on the packaged kernel."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import pytest
from tests.fakes.further import Builtin, FurtherProcess, Order
from tests.fakes.talking_session import TalkingSession
from tests.system.test_guest import BOOT_S, KEY, Bench, boot, heard, make_bench, sh

from vmtailor.model.boots.workload import Run, Terminal
from vmtailor.model.guest import GuestReport

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("sessions"))


def container(bench: Bench, act: Callable[[TalkingSession], None], script: str = "", user: str = "root") -> GuestReport:
    """One boot of a container that waits for SIGTERM while `act` starts further processes."""

    def run(session: TalkingSession) -> None:
        assert session.run(BOOT_S, heard("up\n"))
        act(session)
        session.send_signal(15)

    waits = f"trap 'exit 0' TERM; {script}echo up; while true; do sleep 0.2; done"
    return boot(bench, Run(key=KEY, argv=sh(waits), env=(("RUN", "1"),), user=user, pid_one=True), run)


def finished(session: TalkingSession, *processes: FurtherProcess) -> None:
    """Wait for the end of processes."""
    assert session.run(BOOT_S, lambda _: all(process.ended for process in processes))


def ran(session: TalkingSession, order: Order) -> tuple[int | None, str, str]:
    process = session.further.start(order)
    finished(session, process)
    return process.exit_code, process.stdout.decode(), process.stderr.decode()


def test_a_further_process_is_of_the_container(bench: Bench) -> None:
    def act(session: TalkingSession) -> None:
        code, out, err = ran(session, Order(sh("id; pwd; env; ls -d /proc/1; echo bad >&2; exit 7"), (("E", "x y"),)))
        lines = out.splitlines()
        assert (code, err) == (7, "bad\n")
        assert "uid=0(root) gid=0(root)" in lines
        assert {"/new/dir", "A=b c", "RUN=1", "E=x y", "HOME=/root", "/proc/1"} <= set(lines)
        assert not [line for line in lines if line.startswith("TERM=")]
        code, out, _ = ran(session, Order(sh("id; env; pwd"), user="www-data", cwd="/srv"))
        assert "uid=33(www-data) gid=33(www-data) groups=33(www-data),44(extra)" in out
        assert {"HOME=/srv", "/srv"} <= set(out.splitlines())
        # As far as it goes, it sees and may do what the container does.
        assert ran(session, Order(sh("mount -t tmpfs none /tmp 2>/dev/null || echo may not")))[1] == "may not\n"

    report = container(bench, act)
    assert (report.exit_code, report.notes, report.damaged) == (0, (), 0)


def test_streams_terminals_and_signals(bench: Bench) -> None:
    def act(session: TalkingSession) -> None:
        data = bytes(range(256)) * 40
        cat = session.further.start(Order(("cat",), stdin=True))
        cat.send_stdin(data)
        cat.end_stdin()
        finished(session, cat)
        assert bytes(cat.stdout) == data
        # Five at once with a megabyte each, and a flood that nobody reads.
        flood = session.further.start(Order(sh("while true; do echo flood; done")), held=True)
        each = [session.further.start(Order(("head", "-c", "1048576", "/dev/zero"))) for _ in range(5)]
        finished(session, *each)
        assert [len(process.stdout) for process in each] == [1 << 20] * 5
        assert not flood.ended
        flood.send_signal(9)
        flood.release()
        terminal = session.further.start(
            Order(sh("stty size; tty; read x; stty size; exit 5"), stdin=True, terminal=Terminal(30, 100))
        )
        assert session.run(BOOT_S, lambda _: b"/dev/pts/" in terminal.stdout)
        terminal.resize(41, 132)
        terminal.send_stdin(b"go on\n")
        finished(session, flood, terminal)
        assert (flood.exit_code, flood.by_signal) == (137, 9)
        lines = terminal.stdout.decode().split("\r\n")
        assert (lines[0], lines[3], terminal.exit_code) == ("30 100", "41 132", 5)
        # It outlives its streams; what cannot be executed says why, in Docker's numbers.
        assert ran(session, Order(sh("exec >&- 2>&-; sleep 1; exit 4"))) == (4, "", "")
        for order, code, why in (
            (Order(("nope",)), 127, "execve(nope): No such file or directory"),
            (Order(("/etc/passwd",)), 126, "execve(/etc/passwd): Permission denied"),
            (Order(("id",), user="nobody"), 126, "no such user in /etc/passwd"),
            (Order(("id",), cwd="/none"), 126, "chdir(/none): No such file or directory"),
        ):
            process = session.further.start(order)
            finished(session, process)
            assert (process.exit_code, process.why) == (code, why)
        left = session.further.start(Order(("sleep", "1000")))
        assert session.run(0.5) is False
        session.send_signal(15)
        finished(session, left)
        assert (left.exit_code, left.by_signal) == (137, 9)

    report = container(bench, act)
    assert (report.exit_code, report.notes, report.damaged) == (0, (), 0)


def test_tars_both_ways_and_what_is_used(bench: Bench) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, content, target in (
            ("d", tarfile.DIRTYPE, b"", ""), ("d/file", tarfile.REGTYPE, bytes(range(256)) * 100, ""),
            ("d/link", tarfile.SYMTYPE, b"", "/etc/passwd"), ("d/node", tarfile.CHRTYPE, b"", ""),
        ):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mode = kind, len(content), target, 0o777 if target else 0o755
            info.uid, info.gid, info.mtime, info.devmajor, info.devminor = 33, 44, 1577836800, 1, 3
            archive.addfile(info, io.BytesIO(content))

    def act(session: TalkingSession) -> None:
        put = session.further.start(Order(builtin=Builtin.EXTRACT, path="/srv", stdin=True))
        put.send_stdin(out.getvalue())
        put.end_stdin()
        finished(session, put)
        assert (put.exit_code, bytes(put.stderr)) == (0, b"")
        got = session.further.start(Order(builtin=Builtin.ARCHIVE, path="/srv/d"))
        finished(session, got)
        assert (got.exit_code, bytes(got.stderr)) == (0, b"")
        written = io.BytesIO(out.getvalue())
        with tarfile.open(fileobj=io.BytesIO(bytes(got.stdout))) as back, tarfile.open(fileobj=written) as there:
            said = [
                [(one.name, one.type, one.mode, one.uid, one.gid, one.mtime, one.linkname, one.size) for one in each]
                for each in (back.getmembers(), sorted(there.getmembers(), key=lambda one: one.name))
            ]
            file = back.extractfile("d/file")
            assert file is not None
            assert file.read() == bytes(range(256)) * 100
        assert said[0] == said[1]
        # What it may not read or write; our own programs are not of the image, and cannot be replaced.
        assert ran(session, Order(builtin=Builtin.ARCHIVE, path="/none"))[0] == 1
        whole = session.further.start(Order(builtin=Builtin.ARCHIVE, path="/"))
        finished(session, whole)
        with tarfile.open(fileobj=io.BytesIO(bytes(whole.stdout))) as everything:
            names = everything.getnames()
        assert {"./etc/passwd", "./dev/null", "./proc", "./.vmtailor"} <= set(names)
        assert not [name for name in names if name.startswith(("./proc/", "./sys/", "./.vmtailor/"))]
        put = session.further.start(Order(builtin=Builtin.EXTRACT, path="/.vmtailor", stdin=True))
        put.send_stdin(out.getvalue())
        put.end_stdin()
        finished(session, put)
        assert put.exit_code == 1
        assert b"Read-only file system" in put.stderr
        code, used, _ = ran(session, Order(builtin=Builtin.STATS))
        found = dict(line.split(" ") for line in used.split("\0")[1:-1])
        assert (code, int(found["memory-total"]) <= 256 << 20, int(found["processes"]) >= 1) == (0, True, True)
        code, used, _ = ran(session, Order(builtin=Builtin.TOP))
        assert "process 1 0 0 " in used
        assert "init" not in used

    report = container(bench, act)
    assert (report.exit_code, report.notes, report.damaged) == (0, (), 0)
