# SPDX-License-Identifier: Apache-2.0
"""The program starts with little, each verb loads what it needs, and Ctrl-C is heard from the first moment."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vmtailor.cli import interrupt, quick_start

HEAVY = (
    "numpy",
    "scipy",
    "kconfiglib",
    "rich",
    "msgspec",
    "jinja2",
    "cyclonedx",
    "asyncio",
    "qemu",
    "vmtailor.drivers",
)

BEFORE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def __init__(self, name): self.name = name
    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            os.kill(os.getpid(), signal.SIGINT)
"""
OWN = ("vmtailor.cli.entry", "vmtailor.cli.interrupt", "vmtailor.cli.quick_start")
#: What these load of Python's own, beside what the interpreter needs anyway.
PYTHONS = ("__future__",)
START = "from vmtailor.cli.entry import main\nmain()\n"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip


def loaded(*arguments: str) -> set[str]:
    """The modules that are there when the program ends."""
    code = f"import atexit, sys\natexit.register(lambda: sys.stderr.write(' '.join(sys.modules)))\n{START}"
    result = python(code, *arguments)
    return set(result.stderr.split("\n")[-1].split())


def test_the_first_module_imports_next_to_nothing() -> None:
    # What the interpreter and its start script have loaded already, and what it is for besides.
    there = "import io, os, sys\nbefore = set(sys.modules)\n"
    code = f"{there}import vmtailor.cli.entry\nprint(*(set(sys.modules) - before))"
    assert set(python(code).stdout.split()) == {"vmtailor", "vmtailor.cli", *OWN, *PYTHONS}


@pytest.mark.parametrize("lacking", [(), ("_sha2", "_sha256")])
def test_kept_starts_are_found_by_sha_256_without_openssl(
    monkeypatch: pytest.MonkeyPatch, lacking: tuple[str, ...]
) -> None:
    for name in lacking:
        monkeypatch.setitem(sys.modules, name, None)
    assert quick_start.sha256(b"run\0bundle") == hashlib.sha256(b"run\0bundle").hexdigest()


def test_the_script_is_the_program() -> None:
    # Installers replace the first line, and look for these words.
    script = Path(__file__).parents[2] / "bin" / "vmtailor"
    assert script.read_bytes().startswith(b"#!python\n")
    code = f"import runpy, sys\nsys.argv[0] = 'vmtailor'\nrunpy.run_path({str(script)!r}, run_name='__main__')"
    assert python(code, "--version").stdout.startswith("vmtailor ")


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ()])
def test_the_program_itself_needs_next_to_nothing(arguments: tuple[str, ...]) -> None:
    modules = loaded(*arguments)
    assert "vmtailor.cli.verbs" in modules
    assert not [name for name in HEAVY if name in modules]


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("verb", "unneeded"),
    [
        ("run", ("numpy", "scipy", "kconfiglib", "rich", "jinja2", "cyclonedx")),
        ("analyze", ("numpy", "scipy", "kconfiglib", "cyclonedx", "qemu", "vmtailor.pipeline")),
        ("gate", ("numpy", "scipy", "kconfiglib", "jinja2", "cyclonedx", "qemu")),
        ("explain", ("numpy", "scipy", "jinja2", "cyclonedx", "qemu")),
        ("doctor", ("numpy", "scipy", "kconfiglib", "jinja2", "cyclonedx")),
    ],
)
def test_a_verb_loads_what_it_needs(verb: str, unneeded: tuple[str, ...]) -> None:
    modules = loaded(verb, "--help")
    assert f"vmtailor.cli.{verb}" in modules
    assert not [name for name in unneeded if name in modules]


def test_the_driver_of_a_monitor_loads_nothing_heavy() -> None:
    """It is imported by its name in a row of data, when a machine starts."""
    code = "import sys\nfrom vmtailor.drivers.monitors import monitors\nmonitors.usual()\nprint(*sys.modules)"
    modules = python(code).stdout.split()
    assert "vmtailor.drivers.qemu.qemu_monitor" in modules
    assert not {"numpy", "scipy", "rich", "jinja2"} & set(modules)


@pytest.mark.parametrize(
    "at", ["vmtailor.cli.main", "typer", "typer.core", "vmtailor.cli.verbs", "vmtailor.cli.gate", "msgspec"]
)
def test_an_interrupt_while_the_program_loads_ends_it_quietly(at: str) -> None:
    result = python(f"{BEFORE}\nsys.meta_path.insert(0, Interrupt({at!r}))\n{START}", "gate", "/nowhere", "x <= 1")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_an_interrupt_during_work_is_said() -> None:
    patch = "import vmtailor.cli.gate as gate\ngate._read = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
    result = python(f"{BEFORE}{patch}{START}", "gate", "/nowhere", "x <= 1")
    assert result.returncode == 130
    assert result.stderr == "interrupted: finished work is kept, and the next try uses it\n"


def test_an_interrupt_after_the_work_ends_it_quietly() -> None:
    patch = "import atexit\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    result = python(f"{BEFORE}{patch}{START}", "--version")
    assert (result.returncode, result.stderr) == (130, "") and result.stdout.startswith("vmtailor ")


def test_an_interrupt_that_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupt.leave_at_interrupt()
        interrupt.work_begins()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_error(unbuffered: str) -> None:
    lines = "".join(f"[{n / 1000:12.6f}] initcall f{n}+0x0/0x10 returned 0 after 5 usecs\n" for n in range(3000))
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-c", BEFORE + START, "analyze", "-", "--json"], input=lines.encode(),
        stderr=subprocess.PIPE, stdout=write, timeout=60, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    os.close(write)
    assert (result.returncode, result.stderr) == (0, b"")
