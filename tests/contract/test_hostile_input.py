# SPDX-License-Identifier: Apache-2.0
"""Hostile options, files and logs through the command line: each is refused at once, in one message with the place and
a next step, and leaves nothing behind."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.hostile import (
    ACCEPTED,
    ENOUGH,
    Parts,
    vmtailor,
)
from tests.fakes.hostile_images import (
    DEEP,
    DIGITS,
    SMALL,
    Make,
    a_socket,
    nothing_left,
    sparse,
)

from vmtailor.stages.image_fetch import host_architecture

pytestmark = [
    pytest.mark.contract,
    pytest.mark.attack,
    pytest.mark.skipif(host_architecture() != "amd64", reason="the images made here are for amd64"),
]


def exercise(text: str | bytes) -> Make:
    def make(folder: Path) -> tuple[str | Path, ...]:
        data = text if isinstance(text, bytes) else text.encode()
        (folder / "x.toml").write_bytes(data)
        return (f"oci:{Parts().write(folder / 'image')}", "-x", folder / "x.toml")

    return make


def with_option(*options: str) -> Make:
    return lambda folder: (f"oci:{Parts().write(folder / 'image')}", *options)


def with_file(option: str, make: Callable[[Path], None], *more: str) -> Make:
    def making(folder: Path) -> tuple[str | Path, ...]:
        make(folder / "given")
        return (f"oci:{Parts().write(folder / 'image')}", option, folder / "given", *more)

    return making


def holding(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


STEP = '[[load]]\nkind = "tcp"\nport = 1\n'
LOAD = '[[load]]\nkind = "command"\n'
CONFIGURATION = "--baseline-config"
FITS: dict[str, tuple[Make, str]] = {
    "exercise: port of 5,000 digits": (exercise(f"[ready]\nkind = 'tcp'\nport = {DIGITS}"), "x.toml"),
    "exercise: hexadecimal port without end": (
        exercise(f"[ready]\nkind = 'tcp'\nport = 0x{'f' * 9000}"), "ready.port"),
    "exercise: port is infinite": (exercise("[ready]\nkind = 'tcp'\nport = inf"), "ready.port"),
    "exercise: timeout is nan": (exercise("[stop]\ntimeout_s = nan"), "stop.timeout_s"),
    "exercise: timeout 1e400": (exercise("[stop]\ntimeout_s = 1e400"), "stop.timeout_s"),
    "exercise: timeout without end": (exercise(f"[stop]\ntimeout_s = 0x{'f' * 9000}"), "stop.timeout_s"),
    "exercise: a billion repeats": (exercise(STEP + "repeat = 1_000_000_000"), "load[1].repeat"),
    "exercise: 257 steps": (exercise(STEP * 257), "256"),
    "exercise: 20,000 steps": (exercise(STEP * 20_000), "256"),
    "exercise: a kind of a megabyte": (exercise(f"[ready]\nkind = '{'x' * 1_000_000}'"), "ready.kind"),
    "exercise: a key of 100 KB": (exercise(f"{'x' * 100_000} = 1"), "not known"),
    "exercise: a text of 100 KB to look for": (
        exercise(LOAD + f"argv = ['x']\nexpect = {{ contains = '{'x' * 100_000}' }}"), "contains"),
    "exercise: a word of 200 KB": (exercise(LOAD + f"argv = ['{'x' * 200_000}']"), "load[1].argv"),
    "exercise: a NUL in a word": (exercise(LOAD + 'argv = ["a\\u0000"]'), "load[1].argv"),
    "exercise: a NUL in the signal": (exercise('[stop]\nsignal = "TERM\\u0000"'), "stop.signal"),
    "exercise: a signal of 5,000 digits": (exercise(f"[stop]\nsignal = '{DIGITS}'"), "stop.signal"),
    "exercise: nested lists": (exercise(b"a = " + DEEP), "deep"),
    "exercise: nested tables": (exercise(b"a = " + b"{a=" * 50_000), "deep"),
    "exercise: a key of 100,000 parts": (exercise("a." * 100_000 + "a = 1"), "parts"),
    "exercise: a table of 100,000 parts": (exercise("[" + '"a".' * 100_000 + "a]"), "parts"),
    "exercise: a date as a port": (exercise("[ready]\nkind = 'tcp'\nport = 2020-01-01"), "ready.port"),
    "exercise: two megabytes": (exercise(b"#" * (2 << 20)), "larger"),
    "exercise: no UTF-8": (exercise(b"\xff\xfe"), "x.toml"),
    "exercise: a FIFO": (with_file("-x", os.mkfifo), "named pipe"),
    "exercise: a folder": (with_file("-x", Path.mkdir), "a folder"),
    "exercise: /dev/zero": (with_option("-x", "/dev/zero"), "a device"),
    "configuration: a FIFO": (with_file(CONFIGURATION, os.mkfifo), "named pipe"),
    "configuration: /dev/zero": (with_option(CONFIGURATION, "/dev/zero"), "a device"),
    "configuration: 8 TB": (with_file(CONFIGURATION, sparse), "larger"),
    "configuration: binary": (with_file(CONFIGURATION, holding(os.urandom(5000))), "not a kernel configuration"),
    "configuration: a NUL": (with_file(CONFIGURATION, holding(b"CONFIG_X=y\0\n")), "not a kernel configuration"),
    "configuration: empty": (with_file(CONFIGURATION, holding(b"")), "not a kernel configuration"),
    "credentials: a FIFO": (with_file("--authfile", os.mkfifo), "named pipe"),
    "memory of 5,000 digits": (with_option("--memory", DIGITS), "memory"),
    "memory 1e3G": (with_option("--memory", "1e3G"), "1e3G"),
    "memory 0": (with_option("--memory", "0"), "memory"),
    "memory -1G": (with_option("--memory=-1G"), "memory"),
    "memory in Arabic digits": (with_option("--memory", "\u0661\u0660\u0660M"), "memory"),
    "10^30 CPUs": (with_option("--cpus", "1" + "0" * 30), "--cpus"),
    "-1 CPUs": (with_option("--cpus=-1"), "--cpus"),
    "CPUs of 5,000 digits": (with_option("--cpus", DIGITS), "--cpus"),
    "10^30 boots": (with_option("--repeat", "1" + "0" * 30), "--repeat"),
    "an image size of 5,000 digits": (with_option("--max-image-size", DIGITS + "G"), "image"),
    "an image size of 0": (with_option("--max-image-size", "0G"), "1M to 16T"),
    "an image size of 1e3G": (with_option("--max-image-size", "1e3G"), "1e3G"),
    "a NUL in --entrypoint": (with_option("--entrypoint", "/prog\0x"), "NUL"),
    "half a character in --entrypoint": (with_option("--entrypoint", "/prog\udcff"), "UTF-8"),
    "a NUL in the reference": (lambda _: "docker://a\0b", "UTF-8"),
    "a reference that is no text": (lambda _: "docker://a\udcff", "UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_hostile_options_and_files(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, word = FITS[name]
    made = make(place)
    arguments = list(made) if isinstance(made, tuple) else [made]
    enough = ENOUGH[:2] if CONFIGURATION in arguments else ENOUGH
    said = vmtailor(["fit", *arguments, "-o", place / "bundle", *enough], capsys, monkeypatch)
    assert said.code == 2, said.stderr
    assert ACCEPTED not in said.stderr
    assert said.stderr.count("error:") == 1 and said.stderr.count("hint:") == 1, said.stderr
    assert word in said.stderr, said.stderr
    assert len(said.stderr) < 5000
    nothing_left(place)


@pytest.mark.parametrize("source", ["endless", "folder", "closed", "empty"])
def test_hostile_standard_input(
    source: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: dict[str, bytes | Path | None] = {"endless": Path("/dev/zero"), "closed": None}
    words = {"endless": "1M", "empty": "archive", "closed": "docker save", "folder": "a directory"}
    if source == "folder":
        monkeypatch.setattr("vmtailor.stages.image_fetch._standard_input", Unreadable)
    arguments = ["fit", "docker-archive:-", "-o", str(place / "bundle"), *ENOUGH, *SMALL]
    said = vmtailor(arguments, capsys, monkeypatch, stdin=sources.get(source, b""))
    assert said.code == 2 and said.stderr.count("error:") == 1, said.stderr
    assert words[source] in said.stderr
    nothing_left(place)


class Unreadable:
    """What reading standard input gives when a shell made it a folder."""

    def read(self, _size: int) -> bytes:
        raise IsADirectoryError(21, "Is a directory")


def gzipped_lines(path: Path) -> None:
    block = gzip.compress((b"x" * 63 + b"\n") * (1 << 15), 9)
    with path.open("wb") as out:
        for _ in range(80):
            out.write(block)


def fifo_within(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "run.json")


def log_within(path: Path) -> None:
    path.mkdir()
    (path / "boot.log").write_text(
        "[    0.000000] Linux version 6.12.1 (x)\n[    1.000000] Run /init as init process\n"
    )


LOGS: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "a FIFO": (os.mkfifo, ("analyze", "LOG"), "named pipe"),
    "/dev/zero": (lambda p: p.symlink_to("/dev/zero"), ("analyze", "LOG"), "a device"),
    "a socket": (a_socket, ("analyze", "LOG"), "cannot be read"),
    "an empty folder": (Path.mkdir, ("analyze", "LOG"), "holds no files"),
    "a gzip bomb": (gzipped_lines, ("analyze", "LOG"), "more than"),
    "compare with a FIFO": (os.mkfifo, ("compare", "LOG", "LOG"), "named pipe"),
    "gate on a FIFO": (os.mkfifo, ("gate", "LOG", "kernel_us <= 1"), "named pipe"),
    "budgets from a FIFO": (os.mkfifo, ("gate", "/etc/hostname", "-f", "LOG"), "named pipe"),
    "budgets from /dev/zero": (lambda p: p.symlink_to("/dev/zero"), ("gate", "x", "-f", "LOG"), "a device"),
    "a budget of 5,000 digits": (Path.touch, ("gate", "LOG", f"kernel_us <= {DIGITS}"), ""),
    "results from a FIFO": (os.mkfifo, ("bench", "report", "LOG"), "named pipe"),
    "results from a folder": (Path.mkdir, ("bench", "compare", "LOG"), "a folder"),
    "a saved boot that is a FIFO": (fifo_within, ("compare", "LOG/run.json", "LOG/run.json"), "named pipe"),
    "a page that is a folder": (log_within, ("analyze", "LOG/boot.log", "-o", "LOG"), "LOG cannot be written"),
    "boots into a file": (Path.touch, ("boot", "--kernel", "/etc/hostname", "-o", "LOG"), "LOG cannot be made"),
    "a source in nobody's home": (
        lambda p: p.write_text("CONFIG_EPOLL=y\n"),
        ("explain", "--source", "~no such user/x", "EPOLL", "--config", "LOG"),
        "no such user",
    ),
    "a bundle that is a FIFO": (os.mkfifo, ("explain", "LOG"), "named pipe"),
    "boot: memory of 5,000 digits": (Path.touch, ("boot", "--kernel", "LOG", "--memory", DIGITS), "memory"),
    "boot: 10^30 CPUs": (Path.touch, ("boot", "--kernel", "LOG", "--cpus", "1" + "0" * 30), "--cpus"),
    "boot: 10^30 times": (Path.touch, ("boot", "--kernel", "LOG", "--repeat", "1" + "0" * 30), "--repeat"),
    "boot: a timeout of nan": (Path.touch, ("boot", "--kernel", "LOG", "--timeout", "nan"), "timeout"),
    "boot: a timeout without end": (Path.touch, ("boot", "--kernel", "LOG", "--timeout", "inf"), "timeout"),
    "boot: a FIFO as the kernel": (os.mkfifo, ("boot", "--kernel", "LOG"), "not a file"),
    "boot: a FIFO as the disk": (os.mkfifo, ("boot", "LOG"), ""),
    "boot: a port of 5,000 digits": (Path.touch, ("boot", "--kernel", "LOG", "--ready", f"tcp:{DIGITS}"), ""),
    "run: a port of 5,000 digits": (Path.mkdir, ("run", "-p", f"{DIGITS}:80", "LOG"), "is not a port to publish"),
    "run: memory 1e3G": (Path.mkdir, ("run", "--memory", "1e3G", "LOG"), "1e3G"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_hostile_logs_and_options_of_other_verbs(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtailor.analysis.bootlog.archive.WRITER_MS", 200)
    monkeypatch.chdir(place)
    make, arguments, word = LOGS[name]
    make(place / "LOG")
    said = vmtailor(arguments, capsys, monkeypatch)
    assert said.code == (125 if arguments[0] == "run" else 2), said.stderr
    assert said.stderr.count("error:") == 1, said.stderr
    assert word in said.stderr, said.stderr
    nothing_left(place)
