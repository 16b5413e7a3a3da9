# SPDX-License-Identifier: Apache-2.0
"""What a bundle's machine does when it is run as a user would: its output and exit code, or a page of it through a
published port of this host."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_fit_table import Started

from vmtailor.drivers.host import host_client

#: A machine under emulation, on a host that has other work.
WITHIN_S = 300.0


@dataclass(frozen=True)
class Answer:
    """What a machine should do: print `text` and end with `exit_code`; or, with a `port`, serve `text` there."""

    text: str
    exit_code: int = 0
    port: int = 0


def did(
    bundle: Path, answer: Answer | None, program: Sequence[str] = (sys.executable, "-m", "vmtailor")
) -> Started | None:
    """Run a bundle and see; None where it is not said what it should do. `program`: how vmtailor is called."""
    if answer is None:
        return None
    return _served(bundle, answer, program) if answer.port else _printed(bundle, answer, program)


def _printed(bundle: Path, answer: Answer, program: Sequence[str]) -> Started:
    try:
        ended = subprocess.run(
            [*program, "run", str(bundle)], stdout=subprocess.PIPE, timeout=WITHIN_S, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return Started(f"did not end within {WITHIN_S:.0f} s", False)
    good = answer.text in ended.stdout and ended.returncode == answer.exit_code
    return Started(f'prints "{ended.stdout.strip()[:80]}", ends with {ended.returncode}', good)


def _served(bundle: Path, answer: Answer, program: Sequence[str]) -> Started:
    port = host_client.free_port()
    argv = [*program, "run", "-p", f"127.0.0.1:{port}:{answer.port}", str(bundle)]
    running = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        page = _asked(f"http://127.0.0.1:{port}/", running)
    finally:
        running.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(60)
        running.kill()
        running.wait()
    if page is None:
        return Started(f"ends, or answers nothing within {WITHIN_S:.0f} s, through a published port", False)
    good = answer.text in page
    return Started(f"serves {len(page)} bytes through a published port" + ("" if good else ", not its page"), good)


def _asked(address: str, running: subprocess.Popen[bytes]) -> str | None:
    """The page, as soon as there is one; None when the machine has ended, or time is up."""
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until and running.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=20) as page:
                return str(page.read().decode("utf-8", "replace"))
        except OSError:
            time.sleep(0.5)
    return None
