# SPDX-License-Identifier: Apache-2.0
"""The program of an export to libkrun, compiled, with a libkrun that starts nothing (tests/fakes/krun)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.process import run
from vmtailor.drivers.targets import libkrun_target

pytestmark = pytest.mark.contract

FAKE = Path(__file__).parents[1] / "fakes" / "krun" / "libkrun.c"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
#: Words and names as nobody would write them, who means well.
HOSTILE = 'quiet "); system("touch /tmp/x"); (" \\" %s %n ??/ ??) */ /* \\x41 $(id) ${HOME} `id` \x7f ä #define it\'s'


def said(orders: tuple[str, ...], folder: Path) -> list[str]:
    """The calls that the program of a command makes."""
    library, source, program = folder / "libkrun.so.1", folder / "machine.c", folder / "start"
    source.write_text(libkrun_target.source("web", orders))
    if not library.exists():
        run(["cc", "-shared", "-fPIC", "-o", str(library), str(FAKE)], timeout_s=60)
    run(["cc", *STRICT, "-o", str(program), str(source), str(library)], timeout_s=60)
    env = {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([program], env=env, capture_output=True, timeout=30, check=True)
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("words", ["ro quiet VT_NET=10.0.2.15/24,10.0.2.2", HOSTILE], ids=["usual", "hostile"])
def test_the_program_makes_the_calls_that_verify_makes(words: str, tmp_path: Path) -> None:
    machine = ("cpus", "2", "memory", "64", "format", "1", "kernel", "vmlinux", "words", words)
    more = ("disk", "root.erofs", "written", "run.img", "tap", 'tap"0\\', "52:54:00:0a:0b:ff", "without", "pic")
    assert said((*machine, *more), tmp_path) == [
        "no init of 7", "no console of 7", "no socket of 7",
        "2 cpus, 64 MiB of 7", f"kernel vmlinux 1 alone |{words}| of 7",
        "disk a root.erofs read of 7", "disk b run.img written of 7", 'tap tap"0\\ 5254000a0bff 0 0 of 7',
        "no pic of 7", "serial -1 1 of 7", "start 7",
    ]  # fmt: skip


@pytest.mark.attack
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_string_of_c_holds_nothing_that_ends_it(text: str) -> None:
    for line in libkrun_target.c_strings(text).splitlines():
        inner = line.strip()[1:-1]
        assert inner.isascii() and '"' not in inner and "?" not in inner and inner.isprintable()
        assert line.strip()[0] == line.strip()[-1] == '"'
