# SPDX-License-Identifier: Apache-2.0
"""A small host with systemd as its PID 1, in a container of systemd-nspawn: it is booted, asked, rebooted and cut off.

Its programs are those of this host, read-only; its configuration and its state are its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import natives
from vmtailor.base.process import require_tool

TREE = Path(__file__).parents[2]
#: Files of this host's configuration that programs ask for.
_KNOWN = ("passwd", "group", "ld.so.cache", "nsswitch.conf", "os-release", "alternatives", "pam.d", "security")
#: What stands in PATH there.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
#: A mount on which nspawn may remove what it made, whatever /run is here; it goes with its namespace.
_BEGIN = 'mkdir -p "$0" && mount -t tmpfs -o mode=755 own "$0" && exec "$@"'
#: An ordinary user there, called "someone".
USER = 4711
#: Status of nspawn whose host wants to boot again.
_AGAIN = 133
BOOT_S = 60.0


@dataclass
class LivingSystemd:
    """A host below `folder`. `shown`: folders of this host that it sees; `process`: nspawn's, while it is booted."""

    folder: Path
    shown: Sequence[Path]
    process: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Boot, and wait until systemd has started all that it was told to."""
        binds = [f"--bind-ro={path}" for path in self.shown]
        argv = [
            require_tool("unshare"), "--mount", "sh", "-c", _BEGIN, "/run/systemd/nspawn",
            require_tool("systemd-nspawn"), "--quiet", "--boot", f"--directory={self.folder}", "--register=no",
            "--keep-unit", "--private-network", "--console=pipe", "--link-journal=no", "--capability=all", *binds,
        ]  # fmt: skip
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        end = time.monotonic() + BOOT_S
        while (state := self.run("systemctl", "is-system-running").stdout.strip()) not in ("running", "degraded"):
            assert time.monotonic() < end and self.process is not None and self.process.poll() is None, state
            time.sleep(0.1)

    def reboot(self) -> None:
        """Tell systemd to reboot, and boot again once everything has ended in its order."""
        self.run("systemctl", "reboot")
        assert self.process is not None and self.process.wait(BOOT_S) == _AGAIN
        self.boot()

    def run(self, *argv: str | Path, user: int = 0, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a program there as somebody does who is logged in: root, or USER."""
        inside = _leader(self.process)
        if inside is None:
            return subprocess.CompletedProcess([], 1, "", "nothing is booted")
        home = "/home/someone" if user else "/root"
        environment = ["env", f"--chdir={home}", "-i", f"PATH={_PATH}", f"HOME={home}", "LC_ALL=C.UTF-8"]
        if user:
            environment += [f"XDG_RUNTIME_DIR=/run/user/{user}"]
            environment += [require_tool("setpriv"), f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        enter = [require_tool("nsenter"), f"--target={inside}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root"]
        return subprocess.run(
            [*enter, "--", *environment, *map(str, argv)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip

    def cut(self) -> None:
        """Take its power away: everything ends at once."""
        inside = _leader(self.process)
        if self.process is not None:
            if inside is not None:
                os.kill(inside, 9)
            self.process.kill()
            self.process.wait(30)
        self.process = None

    def log_in(self) -> None:
        """Let systemd start services of USER, now and whenever it boots."""
        self.run("loginctl", "enable-linger", "someone")
        end = time.monotonic() + BOOT_S
        while self.run("systemctl", "--user", "is-system-running", user=USER).stdout.strip() != "running":
            assert time.monotonic() < end, self.run("systemctl", "status", f"user@{USER}").stdout
            time.sleep(0.1)


def made(folder: Path) -> LivingSystemd:
    """Make such a host, which is not booted."""
    natives.locate()  # nobody can make them there
    for name in ("usr", "proc", "sys", "dev", "run", "tmp", "var", "root"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    etc = folder / "etc"
    (etc / "systemd" / "system").mkdir(parents=True)
    for name in _KNOWN:
        known = Path("/etc") / name
        if known.is_dir():
            shutil.copytree(known, etc / name, symlinks=True)
        elif known.exists():
            shutil.copy(known, etc / name)
    with (etc / "passwd").open("a") as users, (etc / "group").open("a") as groups:
        users.write(f"someone:x:{USER}:{USER}::/home/someone:/bin/sh\n")
        groups.write(f"someone:x:{USER}:\n")
    (etc / "shadow").write_text("root:*:19000::::::\nsomeone:*:19000::::::\n")
    home = folder / "home" / "someone"
    home.mkdir(parents=True)
    os.chown(home, USER, USER)
    (etc / "machine-id").touch()
    (etc / "tmpfiles.d").mkdir()
    (etc / "tmpfiles.d" / "tmp.conf").symlink_to("/dev/null")  # what is shown there may lie below /tmp
    # Python and its packages, where they are not below /usr.
    prefixes = {Path(sys.base_prefix), Path(sys.prefix)}
    own = [path for path in sorted(prefixes) if not path.is_relative_to("/usr") and not path.is_relative_to(TREE)]
    return LivingSystemd(folder, (Path("/usr"), TREE, *own))


def _leader(process: subprocess.Popen[bytes] | None) -> int | None:
    """Return the process that is PID 1 there; None where there is none yet."""
    if process is None or process.poll() is not None:
        return None
    for number in _children(process.pid):
        try:
            own, others = (Path(f"/proc/{one}/ns/pid").readlink() for one in (process.pid, number))
            if own != others:
                return number
        except OSError:
            continue
    return None


def _children(number: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{number}/task/{number}/children").read_text().split()]
    except OSError:
        return []
