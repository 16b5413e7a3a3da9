# SPDX-License-Identifier: Apache-2.0
"""`vmtailor run`: exit codes, words, input, signals; nothing is left running.

The kernel is the one that was fitted to `hello`; where more has to be seen, its root file system holds a program that
says how it was started (tests/guests/talker)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.program import (
    Ended,
    assert_clear,
    assert_nothing_left,
    finish,
    interrupt,
    run_program,
    started,
)
from tests.system.conftest import EXAMPLES, Hello

from vmtailor.base import records
from vmtailor.base.natives import locate
from vmtailor.base.store import Store
from vmtailor.drivers import host_client
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.pipeline import bundling
from vmtailor.stages.image import fetch
from vmtailor.stages.root import build_root

pytestmark = [pytest.mark.system, pytest.mark.slow]

TEXT = "Hello from a machine made to measure.\n"
TALKER = Path(__file__).parents[1] / "guests" / "talker"


@pytest.fixture(scope="module")
def talker(hello: Hello, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of `hello` with another image in it."""
    folder = tmp_path_factory.mktemp("talker")
    layout = folder / "layout"
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), str(TALKER), str(layout)], check=True, timeout=300)
    store = Store(folder / "cache")
    image = fetch(f"oci:{layout}", store)
    made = folder / "bundle"
    shutil.copytree(hello.bundle, made)
    bundle = records.load(Bundle, made / RECORD)
    shutil.copyfile(build_root(image, bundle.root_format, locate(), store), made / bundle.root)
    bundling.seal(made, replace(bundle, image=image.config))
    return made


def run_it(folder: Path, *arguments: str | Path, stdin: bytes | None = None) -> Ended:
    ended = run_program(folder, "run", *arguments, stdin=stdin)
    assert_nothing_left(ended)
    return ended


def test_the_containers_exit_code_and_output(hello: Hello, tmp_path: Path) -> None:
    ended = run_it(tmp_path, "--rm", hello.bundle)
    assert (ended.code, ended.stdout, ended.stderr) == (3, TEXT, "")


def test_as_the_image_says(talker: Path, tmp_path: Path) -> None:
    ended = run_it(tmp_path, talker)
    assert ended.code == 3 and ended.stderr == "an aside\n"
    lines = ended.stdout.splitlines()
    assert lines[:4] == ["user 0 group 0", "folder /srv", "word /talker", "word say"]
    assert {"variable PATH=/", "variable FROM_IMAGE=yes"} <= set(lines)


def test_as_the_caller_says(talker: Path, tmp_path: Path) -> None:
    ended = run_it(
        tmp_path, "-e", "ADDED=a b=c", "-e", "FROM_IMAGE=no", "-w", "/other", "--hostname", "box", talker, "tell",
        "-x y",
    )  # fmt: skip
    assert ended.code == 3, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[1:5] == ["folder /other", "word /talker", "word tell", "word -x y"]
    assert {"variable ADDED=a b=c", "variable FROM_IMAGE=no", "variable HOSTNAME=box"} <= set(lines)
    assert not any("FROM_IMAGE=yes" in line for line in lines)


def test_another_user(talker: Path, tmp_path: Path) -> None:
    """Either the kernel can do it, or the machine says which symbol it lacks: never another user than asked for."""
    ended = run_it(tmp_path, "-u", "33:44", talker)
    if "CONFIG_MULTIUSER=y" in (talker / "config").read_text():
        assert ended.code == 3 and ended.stdout.startswith("user 33 group 44\n")
    else:
        assert ended.code == 126
        assert "could not be started" in ended.stderr and "--keep MULTIUSER" in ended.stderr
        assert ended.stdout == ""


def test_another_program(talker: Path, tmp_path: Path) -> None:
    ended = run_it(tmp_path, "--entrypoint", "/talker", talker, "copy")
    assert ended.code == 4
    missing = run_it(tmp_path, "--entrypoint", "/nope", talker)
    assert missing.code == 127


def test_input_arrives_whole_and_ends(talker: Path, tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(2000))
    ended = run_it(tmp_path, "-i", talker, "copy", stdin=text.encode())
    assert (ended.code, ended.stdout) == (4, text)


def test_without_input_there_is_none(talker: Path, tmp_path: Path) -> None:
    ended = run_it(tmp_path, talker, "copy", stdin=b"not for the guest")
    assert (ended.code, ended.stdout) == (4, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_become_the_images_stop_signal(talker: Path, tmp_path: Path, number: int) -> None:
    with started(tmp_path, "run", talker, "wait") as running:
        running.wait_for("waiting", where=running.out)
        interrupt(running, number)
        ended = finish(running, 30.0)
    assert ended.code == signal.SIGUSR1, ended.stderr
    assert_nothing_left(ended)


def test_a_second_interrupt_ends_the_machine_at_once(talker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", talker, "stubborn") as running:
        running.wait_for("waiting", where=running.out)
        interrupt(running)
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(1.0)
        interrupt(running)
        ended = finish(running, 8.0)  # sooner than the container would be killed anyway
    assert ended.code == 128 + signal.SIGKILL
    assert_nothing_left(ended)


def test_what_does_not_heed_the_stop_signal_is_killed(talker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", talker, "stubborn") as running:
        running.wait_for("waiting", where=running.out)
        os.kill(running.process.pid, signal.SIGTERM)
        ended = finish(running, 40.0)
    assert ended.code == 128 + signal.SIGKILL
    assert_nothing_left(ended)


def test_no_port_without_a_network(hello: Hello, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "-p", "8080:80", hello.bundle)
    assert_clear(ended, 2, "no port can be published", "VIRTIO_NET")


def test_a_port_that_is_in_use(talker: Path, tmp_path: Path) -> None:
    """QEMU opens the host's ports before the guest runs, so that any kernel will do."""
    records.save(replace(records.load(Bundle, talker / RECORD), network=True), tmp_path / "record")
    made = tmp_path / "networked"
    shutil.copytree(talker, made)
    shutil.copyfile(tmp_path / "record", made / RECORD)
    port = host_client.free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ended = run_program(tmp_path, "run", "-p", f"{port}:80", made)
    assert_clear(ended, 3, "already in use", str(port))


def test_a_bundle_without_its_kernel(hello: Hello, tmp_path: Path) -> None:
    made = tmp_path / "broken"
    shutil.copytree(hello.bundle, made)
    (made / "vmlinux").unlink()
    assert_clear(run_program(tmp_path, "run", made), 2, "vmlinux")
