# SPDX-License-Identifier: Apache-2.0
"""A pipe that breaks: to whoever reads our output, which ends us quietly; to a program of ours, which is an error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from vmtailor.base.errors import ExitCode

#: A verb that does what its first word says, and writes to standard output or to a pipe that leads nowhere.
PROGRAM = """
import os, sys
import typer
from typer.main import get_command
from vmtailor.cli.main import finish
from vmtailor.cli.verbs import Command

broken = os.pipe()
os.close(broken[0])
app = typer.Typer(pretty_exceptions_enable=False)

@app.command("write", cls=Command)
def write() -> None:
    os.write({to}, b"x" * 100_000)

command = get_command(app)
finish(lambda: command([], standalone_mode=False), ["write"])
"""


@pytest.mark.parametrize(("to", "code"), [("1", ExitCode.DONE), ("broken[1]", ExitCode.HOST)])
def test_only_the_reader_of_our_output_may_leave_without_a_word(to: str, code: ExitCode) -> None:
    reader, writer = os.pipe()
    if to == "1":
        os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{to}", to)], stdout=writer, stderr=subprocess.PIPE, timeout=60,
        check=False, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert ("is gone" in done.stderr) is (code is ExitCode.HOST) and "Traceback" not in done.stderr
