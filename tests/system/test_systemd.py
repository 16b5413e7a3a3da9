# SPDX-License-Identifier: Apache-2.0
"""A unit of `vmtailor generate systemd` under a systemd that lives: started, asked, killed, stopped, and there again
after a reboot and after a power cut."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes import living_systemd
from tests.fakes.living_systemd import USER, LivingSystemd
from tests.fakes.program import argv_of
from tests.system.conftest import Fitted

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="systemd-nspawn is for root"),
    pytest.mark.skipif(shutil.which("systemd-nspawn") is None, reason="systemd-nspawn is not installed"),
]
UNIT = "vmtailor-web.service"
BUNDLE = Path("/srv/bundle")
PATIENCE_S = 120.0


@pytest.fixture
def host(lighttpd: Fitted, tmp_path: Path) -> Iterator[LivingSystemd]:
    host = living_systemd.made(tmp_path / "host")
    bundle = host.folder / BUNDLE.relative_to("/")
    shutil.copytree(lighttpd.bundle, bundle)
    for path in (bundle, *bundle.rglob("*")):
        path.chmod(0o755)  # every user there may read it
    host.boot()
    yield host
    host.cut()


def own(host: LivingSystemd, *words: str | Path, user: int = 0) -> str:
    """Return what the program prints there."""
    ended = host.run(*argv_of(*words), user=user)
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return ended.stdout


def shown(host: LivingSystemd, *names: str, user: int = 0) -> list[str]:
    """Return properties of the unit."""
    whose = ["--user"] if user else []
    said = host.run("systemctl", *whose, "show", UNIT, *(f"--property={name}" for name in names), user=user).stdout
    values = dict(line.split("=", 1) for line in said.splitlines())
    return [values[name] for name in names]


def until(what: str, true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def answers(host: LivingSystemd, user: int = 0) -> bool:
    """Return whether a program starts in the machine."""
    ended = host.run(*argv_of("exec", "web", "sh", "-c", "echo inside"), user=user)
    return (ended.returncode, ended.stdout) == (0, "inside\n")


def processes(host: LivingSystemd, program: str) -> list[str]:
    """Return the numbers of the processes that run a program there; the kernel keeps 15 letters of its name."""
    return host.run("pgrep", "--exact", program[:15]).stdout.split()


def test_a_unit_keeps_its_machine_under_a_living_systemd(host: LivingSystemd) -> None:
    own(host, "run", "-d", "--name", "web", "--restart", "on-failure", BUNDLE)
    unit = own(host, "generate", "systemd", "web")
    (host.folder / "etc" / "systemd" / "system" / UNIT).write_text(unit)
    ended = host.run("systemctl", "enable", "--now", UNIT)
    assert ended.returncode == 0, ended.stderr
    until("it is started", lambda: answers(host))
    assert shown(host, "ActiveState", "NRestarts") == ["active", "0"]
    (supervisor,) = processes(host, "supervise")
    assert [supervisor] == shown(host, "MainPID"), "it is systemd's own, and not the one that ran before"

    # The machine is killed: its supervisor starts it again, and systemd notices nothing.
    (machine,) = processes(host, "qemu-system-x86_64")
    host.run("kill", "-9", machine)
    until("the machine is started again", lambda: processes(host, "qemu-system-x86_64") not in ([], [machine]))
    until("it answers again", lambda: answers(host))
    assert shown(host, "ActiveState", "NRestarts", "MainPID") == ["active", "0", supervisor]

    # The supervisor is killed: systemd starts it again.
    host.run("kill", "-9", supervisor)
    until("systemd starts it again", lambda: shown(host, "ActiveState", "NRestarts") == ["active", "1"])
    until("it answers again", lambda: answers(host))

    # A stop is no failure, by systemd's word as by ours.
    for stop in (["systemctl", "stop", UNIT], argv_of("stop", "web")):
        assert host.run(*stop).returncode == 0
        until("it is stopped", lambda: shown(host, "ActiveState") == ["inactive"])
        assert shown(host, "Result", "MainPID") == ["success", "0"]
        assert "Exited (0)" in own(host, "ps", "-a")
        assert host.run("systemctl", "start", UNIT).returncode == 0
        until("it answers again", lambda: answers(host))
    before = shown(host, "MainPID")
    assert host.run("systemctl", "restart", UNIT).returncode == 0
    until("it answers again", lambda: answers(host))
    assert shown(host, "ActiveState") == ["active"] and shown(host, "MainPID") != before

    # A host that is rebooted, and one that loses its power, start it again.
    host.reboot()
    until("it answers after a reboot", lambda: answers(host))
    host.cut()
    host.boot()
    until("it answers after a power cut", lambda: answers(host))
    assert shown(host, "ActiveState", "NRestarts") == ["active", "0"]
    assert len(processes(host, "qemu-system-x86_64")) == 1


def test_a_users_unit_is_there_again_without_a_login(host: LivingSystemd) -> None:
    host.log_in()
    own(host, "run", "-d", "--name", "web", "--restart", "always", BUNDLE, user=USER)
    unit = own(host, "generate", "systemd", "web", user=USER)
    folder = host.folder / "home" / "someone" / ".config" / "systemd" / "user"
    assert host.run("mkdir", "-p", "/home/someone/.config/systemd/user", user=USER).returncode == 0
    (folder / UNIT).write_text(unit)
    ended = host.run("systemctl", "--user", "enable", "--now", UNIT, user=USER)
    assert ended.returncode == 0, ended.stderr
    until("it is started", lambda: answers(host, USER))
    assert shown(host, "ActiveState", "NRestarts", user=USER) == ["active", "0"]
    assert processes(host, "supervise") == shown(host, "MainPID", user=USER)
    # No reboot: a user's manager was seen to take its 120 s to end, also without a unit of ours.
    host.cut()
    host.boot()
    until("it answers after a power cut", lambda: answers(host, USER))
    assert host.run("systemctl", "--user", "stop", UNIT, user=USER).returncode == 0
    assert shown(host, "ActiveState", "Result", user=USER) == ["inactive", "success"]
    assert processes(host, "qemu-system-x86_64") == []
