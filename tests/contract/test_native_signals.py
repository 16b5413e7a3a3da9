# SPDX-License-Identifier: Apache-2.0
"""Numbers of signals: what the guest's programs translate, held against the headers of each processor's C library."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest

from vmtailor.base.natives import SOURCES
from vmtailor.base.process import run
from vmtailor.model.architecture import Architecture, every

pytestmark = pytest.mark.contract

#: Number that is said → the name in the C library.
TRANSLATED = {
    name: int(number)
    for number, name in re.findall(r"each\((\d+), (SIG\w+)\)", (SOURCES / "common/signals.c").read_text())
}
#: Those of the kernel's own numbers that have a name on every processor.
NAMES = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV",
    "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU",
    "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
)  # fmt: skip


def numbers(compiler: str, folder: Path) -> dict[str, int]:
    """What a compiler's headers say."""
    source = folder / "signals.c"
    source.write_text("#define _GNU_SOURCE\n#include <signal.h>\n" + "".join(f"=== {n} {n[3:]}_ {n}\n" for n in NAMES))
    text = run([compiler, "-E", "-P", str(source)], timeout_s=60).text
    return {f"SIG{name}": int(number) for name, number in re.findall(r"=== \d+ (\w+)_ (\d+)", text)}


def test_what_is_said_are_this_hosts_numbers() -> None:
    assert {name: int(signal.Signals[name]) for name in TRANSLATED} == TRANSLATED
    assert set(TRANSLATED) <= set(NAMES)


@pytest.mark.parametrize("row", every(), ids=lambda row: row.name)
def test_every_signal_that_is_numbered_otherwise_is_translated(row: Architecture, tmp_path: Path) -> None:
    compiler = "gcc" if row.is_host else f"{row.kernel.cross}gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not here")
    found = numbers(compiler, tmp_path)
    assert set(found) == set(NAMES)
    other = {name for name, number in found.items() if number != int(signal.Signals[name])}
    assert other <= set(TRANSLATED), f"{row.title} numbers these otherwise"
    # Nothing that is translated becomes what another signal is already.
    here = {TRANSLATED.get(name, number): number for name, number in found.items()}
    assert len(here) == len(set(here.values())) == len(NAMES)
