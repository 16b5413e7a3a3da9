# SPDX-License-Identifier: Apache-2.0
"""Exported machines, started by the commands of their READMEs, without vmtailor."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted

pytestmark = pytest.mark.system


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def exported(bundle: Path, folder: Path, *options: str) -> Path:
    out = folder / "out"
    ended = run_program(folder, "export", bundle, "-o", out, *options)
    assert ended.code == 0, ended.stderr
    return out


@contextmanager
def started(*argv: str, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a machine, ended with its group."""
    env = {**os.environ, "ACCEL": "tcg"}  # KVM may be there, and not work
    with (cwd / "console").open("wb") as out:
        process = subprocess.Popen(argv, cwd=cwd, stdout=out, stderr=out, start_new_session=True, env=env)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def answer(url: str, limit_s: float = 120.0) -> bytes:
    """The answer of a server, asked until there is one."""
    end = time.monotonic() + limit_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return bytes(reply.read())
        except OSError:
            assert time.monotonic() < end, "no answer"
            time.sleep(0.3)


def followed(out: Path) -> bytes:
    """All that the commands of an export's README print, pasted at once. The machine is ended afterwards."""
    block = (out / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    env = {**os.environ, "ACCEL": "tcg"}
    with (out / "console").open("wb") as said:
        process = subprocess.Popen(
            ["sh", "-c", block], cwd=out, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            env=env,
        )  # fmt: skip
    try:
        process.wait(240)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    printed = (out / "console").read_bytes()
    assert process.returncode == 0, printed
    return printed


def console_of(out: Path) -> bytes:
    """All that a machine says whose container ends by itself, under emulation."""
    env = {**os.environ, "ACCEL": "tcg"}
    done = subprocess.run([out / "start"], capture_output=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix(b"reboot: Restarting system\r\n")  # the kernel's own last word


def test_a_script_starts_the_machine_and_its_console_shows_the_container(hello: Path, tmp_path: Path) -> None:
    said = console_of(exported(hello, tmp_path, "--to", "qemu"))
    assert said == b"Hello from a machine made to measure.\r\nvmtailor: the container ended with status 3\r\n"


def test_variables_and_a_command_go_with_the_machine_time_after_time(talker: Path, tmp_path: Path) -> None:
    out = exported(talker, tmp_path, "--to", "qemu", "-e", "EXPORTED=as it was told", "--", "say", "so")
    first, second = (sorted(console_of(out).splitlines(keepends=True)) for _ in range(2))  # two streams, in any order
    assert b"word so\r\n" in first and b"variable EXPORTED=as it was told\r\n" in first and first == second


def test_an_address_by_dhcp_serves_as_one_that_was_given(lighttpd: Fitted, tmp_path: Path) -> None:
    port = free_port()
    out = exported(lighttpd.bundle, tmp_path, "--to", "qemu", "-p", f"{port}:80", "--address", "dhcp")
    assert "VT_NET=dhcp" in (out / "start").read_text()
    with started("./start", cwd=out):
        assert b"<html" in answer(f"http://127.0.0.1:{port}/").lower()


def test_the_readmes_commands_start_a_server_and_ask_it(lighttpd: Fitted, tmp_path: Path) -> None:
    out = exported(lighttpd.bundle, tmp_path, "--to", "qemu", "-p", f"{free_port()}:80", "--name", "web")
    assert b"<html" in followed(out).lower()


@pytest.mark.parametrize(
    "form", ["bzimage", *(pytest.param(one, marks=pytest.mark.slow) for one in ("bzimage-lz4", "bzimage-xz"))]
)
def test_boot_code_around_the_kernel_starts_it(hello: Path, form: str, tmp_path: Path) -> None:
    out = exported(hello, tmp_path, "--to", "qemu")
    kernel = tmp_path / "kernel"
    ended = run_program(tmp_path, "export", hello, "--to", f"kernel:{form}", "-o", kernel, timeout_s=600)
    assert ended.code == 0, ended.stderr
    image = (kernel / "bzImage").read_bytes()
    assert image[0x202:0x206] == b"HdrS" and image[:2] == b"MZ"
    assert "init=/.vmtailor/init" in (kernel / "cmdline.txt").read_text()
    shutil.copyfile(kernel / "bzImage", out / "vmlinux")
    assert b"the container ended with status 3" in console_of(out)


@pytest.mark.parametrize(("form", "program"), [("zst", "zstd"), ("lz4", "lz4"), ("xz", "xz"), ("gz", "gzip")])
def test_a_packed_kernel_is_the_bundles_own_file(hello: Path, form: str, program: str, tmp_path: Path) -> None:
    packed = exported(hello, tmp_path, "--to", f"kernel:{form}") / f"vmlinux.{form}"
    unpacked = subprocess.run([program, "-dc", packed], capture_output=True, timeout=60, check=True).stdout
    assert unpacked == (hello / "vmlinux").read_bytes()
