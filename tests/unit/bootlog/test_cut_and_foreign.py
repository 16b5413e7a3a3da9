# SPDX-License-Identifier: Apache-2.0
"""Files that end in their middle say so, archives of all kinds are read, files of syslog are, and what is no log ends
with the user's error."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
import zstandard
from tests.unit.bootlog.reading import DATA, codes, timeline_of, times
from typer.testing import CliRunner

from vmtailor.analysis.bootlog import archive
from vmtailor.analysis.comparison import judged_document
from vmtailor.base.errors import UserInputError
from vmtailor.cli.analyze import analyze as analyze_verb
from vmtailor.cli.signature import of_verb

LOG = "[    0.000000] Linux version 6.1.0 (gcc)\n" + "".join(
    f"[    0.{n:06}] message {n * 7919} of a driver\n" for n in range(1000, 200_000, 40)
)
LOG += "[    1.000000] Run /sbin/init as init process\n"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd, in two frames": lambda data: b"".join(
        zstandard.ZstdCompressor().compress(part) for part in (data[:50_000], data[50_000:])
    ),
}


@pytest.mark.lengthy
@pytest.mark.parametrize("name", PACKERS)
def test_packed_whole_and_cut(tmp_path: Path, name: str) -> None:
    packed = PACKERS[name](LOG.encode())
    whole = timeline_of(tmp_path, packed)
    assert times(whole)["kernel"] == (0, 1_000_000) and "file-cut" not in codes(whole)
    for cut in (packed[: len(packed) * 3 // 4], packed[:-3]):
        assert "file-cut" in codes(timeline_of(tmp_path, cut))
    damaged = bytearray(packed)
    damaged[len(damaged) // 2 : len(damaged) // 2 + 40] = os.urandom(40)
    assert codes(timeline_of(tmp_path, bytes(damaged))) & {"file-cut", "damaged-lines", "clock-backwards"}


@pytest.mark.attack
def test_a_zstd_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(zstandard.ZstdCompressor(level=1).compress(bytes(1 << 30)))
    with pytest.raises(archive.Bomb):
        for chunk in archive.open_chunks(path):
            assert len(chunk) <= 64 << 20


def chart() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for file in sorted((DATA / "bootchart").iterdir()):
            info = tarfile.TarInfo(file.name)
            info.size = file.stat().st_size
            made.addfile(info, io.BytesIO(file.read_bytes()))
    return out.getvalue()


def test_a_damaged_archive_says_so(tmp_path: Path) -> None:
    data = chart()
    assert "file-cut" not in codes(timeline_of(tmp_path, data))
    within = data.index(b"proc_stat.log") + 1024
    assert "file-cut" in codes(timeline_of(tmp_path, data[:within]))
    assert "file-cut" in codes(timeline_of(tmp_path, gzip.compress(data)[:-200]))


ROWS = (
    '[{"name":"a.service","activating":10,"activated":30,"time":20},'
    '{"name":"b.service","activating":40,"activated":45,"time":5}]'
)


@pytest.mark.parametrize(
    ("text", "units"),
    [
        (ROWS, 2),
        (ROWS[:-1], 2),
        (ROWS[:-20], 1),
        (ROWS.replace("},{", "},\n {")[:100], 1),
    ],
)
def test_json_that_ends_in_its_middle(tmp_path: Path, text: str, units: int) -> None:
    timeline = timeline_of(tmp_path, text)
    assert len(timeline.units) == units
    assert ("file-cut" in codes(timeline)) == (text != ROWS)


def test_a_drawing_that_ends_in_its_middle(tmp_path: Path) -> None:
    text = (DATA / "corpus" / "plot-pi4kodi.svg").read_text()
    assert "file-cut" not in codes(timeline_of(tmp_path, text))
    assert "file-cut" in codes(timeline_of(tmp_path, text[: len(text) // 2]))


@pytest.mark.parametrize(
    ("end", "cut"),
    [
        ("[    2.0000", True),
        ("[    2.000000] initcall foo_init+0x0/0x10 retur", True),
        ("[    2.000000] calling  foo_init+0x0/", True),
        ("[    2.000000] a whole line", False),
        ("debian login: ", False),
        ("[    2.000000] initcall foo_init+0x0/0x10 returned 0 after 5 usecs", False),
    ],
)
def test_a_log_that_ends_within_a_line(tmp_path: Path, end: str, cut: bool) -> None:
    log = "[    0.000000] Linux version 6.1.0 (gcc)\n[    1.000000] Run /sbin/init as init process\n"
    assert ("file-cut" in codes(timeline_of(tmp_path, log + end))) == cut
    assert "file-cut" not in codes(timeline_of(tmp_path, log + end + "\n"))


SYSLOGS = {
    "classic": ("Mar  6 13:18:05 debian kernel: ", "Mar  6 13:18:09 debian systemd[1]: "),
    "with its priority": ("<6>Mar  6 13:18:05 debian kernel: ", "<30>Mar  6 13:18:09 debian systemd[1]: "),
    "rsyslog's own": (
        "2026-03-06T13:18:05.000000+01:00 debian kernel: ",
        "2026-03-06T13:18:09.000000+01:00 debian systemd[1]: ",
    ),
    "RFC 5424": (
        "<6>1 2026-03-06T13:18:05.000000+01:00 debian kernel - - - ",
        '<30>1 2026-03-06T13:18:09.000000+01:00 debian systemd 1 - [meta sequenceId="1"] ',
    ),
    "BusyBox": ("Mar  6 13:18:05 board kern.info kernel: ", "Mar  6 13:18:09 board daemon.info systemd[1]: "),
    "BusyBox on its own": ("Mar  6 13:18:05 kern.info kernel: ", "Mar  6 13:18:09 daemon.info systemd[1]: "),
    "logread": ("Fri Mar  6 13:18:05 2026 kern.info kernel: ", "Fri Mar  6 13:18:09 2026 daemon.info systemd[1]: "),
}


@pytest.mark.parametrize("name", SYSLOGS)
@pytest.mark.parametrize("before", [0, 1, 700])
def test_files_of_syslog(tmp_path: Path, name: str, before: int) -> None:
    kernel, system = SYSLOGS[name]
    earlier = kernel.replace("13:18:05", "13:10:00").replace("kernel", "cron[14]" if "1 2026" not in kernel else "cron")
    log = earlier.replace("kern.", "cron.") + "(CRON) a job\n"
    log = log * before + f"{kernel}[    0.000000] Linux version 6.1.0 (gcc)\n"
    log += f"{kernel}[    1.000000] Run /sbin/init as init process\n{system}Reached target Multi-User System.\n"
    timeline = timeline_of(tmp_path, log)
    # The least delay of a kernel's line is 13:18:05 less its 1.000000 s: 13:18:09 is 5 s after the kernel's zero.
    assert times(timeline) == {
        "kernel": (0, 1_000_000),
        "userspace": (1_000_000, 5_000_000),
        "ready": (5_000_000, 5_000_000),
    }
    assert timeline.files[0].format.startswith("kernel log, ") and "several-boots" not in codes(timeline)


def test_a_file_of_syslog_without_a_kernel_is_a_log(tmp_path: Path) -> None:
    log = "Mar  6 13:18:00 debian syslogd 1.5.0#2: restart.\n" + "Mar  6 13:18:01 debian sshd[12]: listening\n" * 3
    assert "syslog" in timeline_of(tmp_path, log).files[0].format


FOREIGN = {
    "prose": b"The quick brown fox\njumps over\nthe lazy dog\n",
    "nothing": b"",
    "noise": bytes(n * 7919 % 251 for n in range(50_000)),
    "a table": b"root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:\n",
    "code": (DATA.parents[1] / "conftest.py").read_bytes(),
    "another log": b"2026-11-23 00:00:01 startup archives unpack\n2026-11-23 00:00:01 install a:all <none> 1.0\n",
    "a document": b'{"a": [1, 2, 3]}',
    "a drawing": b'<?xml version="1.0"?>\n<svg width="1"><rect class="activating"/></svg>',
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_log_is_the_users_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(FOREIGN[name])
    app = typer.Typer()
    app.command()(of_verb("analyze", analyze_verb))
    for words in ([str(path)], [str(path), "--json"]):
        done = CliRunner().invoke(app, words, standalone_mode=False)
        assert isinstance(done.exception, UserInputError) and done.exception.exit_code == 2, done.output
    if name != "a document":  # a gate holds any document's figures against budgets
        with pytest.raises(UserInputError):
            judged_document.read(path)
