# SPDX-License-Identifier: Apache-2.0
"""Bundles exported to libvirt, defined and started in a session of an ordinary user, under emulation."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted, with_image
from tests.system.test_exported_machines import answer, exported, free_port, started

pytestmark = [pytest.mark.system, pytest.mark.slow]
#: The user of a session where the tests run as root: libvirt would take root's for the host's own.
_NOBODY = 65534


@dataclass
class Session:
    """A user's libvirt, whose files are all below a folder."""

    folder: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        user = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups") if os.getuid() == 0 else ()
        places = {"HOME": "home", "XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache"}
        values = [f"{name}={self.folder / place}" for name, place in places.items()]
        return (*user, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TYPE=qemu", *values)

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        said = self.folder / "said"
        with said.open("wb") as file:
            return subprocess.Popen([*self.prefix, *argv], stdout=file, stderr=subprocess.STDOUT, cwd=self.folder)

    def run(self, *argv: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [*self.prefix, *argv], cwd=cwd or self.folder, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def virsh(self, *words: str) -> str:
        return self.run("virsh", "--connect", "qemu:///session", *words)

    def given(self, folder: Path) -> None:
        """Give the user a folder with all that is in it."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *(2 * (_NOBODY if os.getuid() == 0 else os.getuid(),)))


@pytest.fixture
def session() -> Iterator[Session]:
    """A session, whose socket has a short path; all of it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="vt-"))
    made = Session(folder)
    for name in ("home", "run", "config", "cache"):
        (folder / name).mkdir(mode=0o700)
    made.given(folder)
    daemon = made.start("libvirtd", "--timeout", "600")
    try:
        end = time.monotonic() + 60
        while not (folder / "run" / "libvirt" / "libvirt-sock").exists():
            assert daemon.poll() is None and time.monotonic() < end, (folder / "said").read_text()
            time.sleep(0.1)
        yield made
    finally:
        with contextlib.suppress(AssertionError):
            for name in made.virsh("list", "--name").split():
                made.virsh("destroy", name)
        daemon.terminate()
        daemon.wait(30)
        with contextlib.suppress(OSError, ValueError):  # libvirtd starts it, and leaves it for two minutes
            os.kill(int((folder / "run" / "libvirt" / "virtlogd.pid").read_text()), signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def defined(bundle: Path, session: Session, *options: str) -> Path:
    """An export in the session's folder, with its first command done."""
    out = session.folder / "machine"
    ended = run_program(session.folder, "export", bundle, "--to", "libvirt", "--name", "web", "-o", out, *options)
    assert ended.code == 0, ended.stderr
    session.given(session.folder)
    session.run("./define", cwd=out)
    return out


def test_a_published_port_answers_in_a_session(exportable: Path, session: Session) -> None:
    port = free_port()
    defined(exportable, session, "-p", f"{port}:80")
    session.run("./define", cwd=session.folder / "machine")  # again
    session.virsh("start", "web")
    assert b"<html" in answer(f"http://127.0.0.1:{port}/", 240.0).lower()
    assert session.virsh("domstate", "web").strip() == "running"


def test_a_machine_ends_with_its_container(exportable: Path, session: Session, tmp_path: Path) -> None:
    """By a reset, which libvirt is told to take for the end."""
    out = defined(with_image(exportable, "hello", tmp_path, network=False), session)
    session.virsh("start", "web")
    end = time.monotonic() + 240
    while session.virsh("domstate", "web").strip() != "shut off":
        assert time.monotonic() < end, (out / "console.log").read_bytes()
        time.sleep(0.5)
    said = (out / "console.log").read_bytes()
    assert b"Hello from a machine made to measure.\r\nvmtailor: the container ended with status 3\r\n" in said


def test_passt_leads_to_a_machine_that_has_the_address_of_the_domain(lighttpd: Fitted, tmp_path: Path) -> None:
    """As libvirt starts both for `libvirt:passt`, which Debian 12's libvirt refuses. passt runs as nobody: its socket
    is in a folder of everybody's."""
    port = free_port()
    out = exported(lighttpd.bundle, tmp_path, "--to", "qemu")
    script = (out / "start").read_text()
    with tempfile.TemporaryDirectory(prefix="vt-") as folder:
        Path(folder).chmod(0o777)
        netdev = f"-netdev stream,id=net,server=off,addr.type=unix,addr.path={folder}/socket"
        (out / "start").write_text(re.sub(r"-netdev \S+", netdev, script))
        words = (
            "--foreground",
            "--one-off",
            "--socket",
            f"{folder}/socket",
            "--address",
            "10.0.2.15",
            "--netmask",
            "24",
        )
        with started("passt", *words, "--tcp-ports", f"127.0.0.1/{port}:80", cwd=tmp_path) as passt:
            end = time.monotonic() + 30
            while not (Path(folder) / "socket").exists():
                assert passt.poll() is None and time.monotonic() < end, (tmp_path / "console").read_text()
                time.sleep(0.1)
            with started("./start", cwd=out):
                assert b"<html" in answer(f"http://127.0.0.1:{port}/").lower()
