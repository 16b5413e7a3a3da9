# SPDX-License-Identifier: Apache-2.0
"""`vmtailor run`: exit codes, words, input, signals; nothing is left running.

The kernel is the one that was fitted to `lighttpd`, with other images: one that prints a line, and a program that says
how it was started (tests/guests/talker)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
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
    small_disk,
    started,
)
from tests.system.conftest import Fitted

from vmtailor.base.files import records
from vmtailor.drivers.host import host_client
from vmtailor.model.bundle import RECORD, Bundle

pytestmark = pytest.mark.system

TEXT = "Hello from a machine made to measure.\n"
#: Seconds in which what is told to stop has long ended, on a busy host.
PATIENCE_S = 90.0


def run_it(folder: Path, *arguments: str | Path, stdin: bytes | None = None) -> Ended:
    ended = run_program(folder, "run", *arguments, stdin=stdin)
    assert_nothing_left(ended)
    return ended


def test_the_containers_exit_code_and_output(hello: Path, tmp_path: Path) -> None:
    ended = run_it(tmp_path, "--rm", hello)
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
    assert missing.stderr == "vmtailor: the container could not be started: execve(/nope): No such file or directory\n"
    reset = run_it(tmp_path, "--entrypoint", "", talker, "/talker", "copy")
    assert reset.code == 4
    nothing = run_program(tmp_path, "run", "--entrypoint", "", hello_without_command(talker, tmp_path))
    assert_clear(nothing, 125, "no command")


def hello_without_command(bundle: Path, folder: Path) -> Path:
    """The bundle with an image that names an entry point and no command."""
    made = folder / "without"
    shutil.copytree(bundle, made)
    record = records.load(Bundle, made / RECORD)
    assert record.image is not None
    records.save(replace(record, image=replace(record.image, cmd=())), made / RECORD)
    return made


def test_what_cannot_be_executed_is_126(talker: Path, tmp_path: Path) -> None:
    unknown = run_it(tmp_path, "-u", "nobody-knows", talker)
    assert (unknown.code, unknown.stdout) == (126, "")
    assert "user 'nobody-knows': no such user" in unknown.stderr
    folder = run_it(tmp_path, "-w", "/talker", talker)
    assert folder.code == 126 and "chdir(/talker)" in folder.stderr
    data = run_it(tmp_path, "--entrypoint", "/srv", talker)
    assert data.code == 126 and "execve(/srv)" in data.stderr


def test_variables_from_a_file(talker: Path, tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("# a comment\nFROM_FILE=a b\nADDED=from the file\n")
    ended = run_it(tmp_path, "--env-file", file, "-e", "ADDED=from the option", talker)
    assert {"variable FROM_FILE=a b", "variable ADDED=from the option"} <= set(ended.stdout.splitlines())


def test_too_little_memory_is_said(lighttpd: Fitted, hello: Path, tmp_path: Path) -> None:
    """The kernel is too large for it and silent, or dies; either way the message names what was measured."""
    least = lighttpd.document["tailored"]["min_memory_bytes"] >> 20
    ended = run_program(tmp_path, "run", "-m", "9m", hello)
    assert_clear(ended, 125, f"least memory is measured as {least} MiB", f"--memory {least}M")


def test_a_cache_and_a_home_that_cannot_be_written(hello: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    env = {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere / "cache")}
    ended = run_program(tmp_path, "run", hello, env=env)
    assert (ended.code, ended.stdout, ended.stderr) == (3, TEXT, "")
    assert_nothing_left(ended)


def test_a_full_folder_for_temporary_files_is_named(hello: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "64k") as disk:
        with contextlib.suppress(OSError), (disk / "all").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        ended = run_program(tmp_path, "run", hello, env={"TMPDIR": str(disk)})
        assert_clear(ended, 125, str(disk), "no space left", "0 KiB are free there")


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
        ended = finish(running, PATIENCE_S)
    assert ended.code == signal.SIGUSR1, ended.stderr
    assert_nothing_left(ended)


def test_a_second_interrupt_ends_the_machine_at_once(talker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", "--stop-timeout", "600", talker, "stubborn") as running:
        running.wait_for("waiting", where=running.out)
        interrupt(running)
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(1.0)
        interrupt(running)
        ended = finish(running, PATIENCE_S)  # sooner than the container would be killed anyway
    assert ended.code == 128 + signal.SIGKILL
    assert_nothing_left(ended)


def test_what_does_not_heed_the_stop_signal_is_killed(talker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", talker, "stubborn") as running:
        running.wait_for("waiting", where=running.out)
        os.kill(running.process.pid, signal.SIGTERM)
        ended = finish(running, PATIENCE_S)
    assert ended.code == 128 + signal.SIGKILL
    assert_nothing_left(ended)


def test_no_port_without_a_network(hello: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "-p", "8080:80", hello)
    assert_clear(ended, 125, "no port can be published", "VIRTIO_NET")


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
    assert_clear(ended, 125, "already in use", str(port))


def test_a_bundle_without_its_kernel(hello: Path, tmp_path: Path) -> None:
    made = tmp_path / "broken"
    shutil.copytree(hello, made)
    (made / "vmlinux").unlink()
    assert_clear(run_program(tmp_path, "run", made), 125, "vmlinux")
