# SPDX-License-Identifier: Apache-2.0
"""Read any file or folder that says something about a boot. The one table of formats is here: a file is recognised by
its content, and its name is never trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.bootlog import (
    archive,
    bootchart,
    cloud_init,
    ftrace,
    grab_boot_data,
    journal,
    kernel_build,
    kernel_messages,
    systemd_analyze,
)
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import MAX_TEXT, Content, printable
from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import encodable
from vmtailor.model.boots.timeline import WarningCode


@dataclass(frozen=True)
class Format:
    """One row: how the format is recognised by content and read. A reader returns None for a file that is none of its
    format after all, and the next row that recognises it reads it.

    `name`: shown to the user, unless the reader knows a closer one. `row`: begins its row in boot-formats.md. `whole`:
    it is read in one piece, and what is beyond MAX_TEXT is cut off. `is_log`: it tells something about a boot."""

    name: str
    row: str
    recognise: Callable[[Content], bool]
    read: Callable[[Content], Observed | None]
    whole: bool = True
    is_log: bool = True


def _no_log(name: str, recognise: Callable[[Content], bool]) -> Format:
    """Return the row of files that tell nothing about a boot."""
    return Format(name, "", recognise, lambda content: Observed(content.path), whole=False, is_log=False)


#: In the order in which they are tried.
FORMATS = (
    _no_log("empty", lambda c: not c.sample.strip(b"\0 \t\r\n")),
    Format("bootchart", "bootchart, bootchart2", lambda c: archive.is_tar(c.sample), bootchart.read_tar, whole=False),
    _no_log("tar archive without a bootchart", lambda c: archive.is_tar(c.sample)),
    Format("kernel log, journal (export)", "journal", lambda c: journal.is_export(c.sample), journal.read_export),
    Format("grab-boot-data", "grab-boot-data", lambda c: grab_boot_data.recognise(c.clean), grab_boot_data.read,
           whole=False),
    Format("kernel configuration", ".config", lambda c: kernel_build.is_config(c.clean), kernel_build.read_config),
    Format("symbols of a kernel", "System.map", lambda c: kernel_build.is_symbols(c.clean), kernel_build.read_symbols),
    Format("systemd-bootchart (SVG)", "systemd-bootchart (SVG)",
           lambda c: c.is_drawing and bootchart.is_drawing(c.beginning), bootchart.read_drawing),
    Format("systemd-analyze plot (SVG)", "`plot` (SVG)",
           lambda c: c.is_drawing and systemd_analyze.is_plot_svg(c.beginning), systemd_analyze.read_svg),
    _no_log("SVG", lambda c: c.is_drawing),
    Format("kernel log, dmesg (JSON)", "`dmesg -x`", lambda c: journal.is_dmesg(c.document), journal.read_dmesg),
    Format("kernel log, journal (JSON)", "journal", lambda c: c.is_json and not isinstance(c.document, list),
           journal.read_json),
    Format("systemd-analyze plot (JSON)", "`plot --json`", lambda c: systemd_analyze.is_plot_json(c.document),
           systemd_analyze.read_json),
    Format("cloud-init analyze dump", "`cloud-init analyze`", lambda c: cloud_init.is_dump(c.document),
           cloud_init.read_dump),
    _no_log("JSON", lambda c: c.document is not None),
    Format("ftrace initcall events", "ftrace", lambda c: not c.is_json and ftrace.recognise(c.clean), ftrace.read,
           whole=False),
    Format("cloud-init analyze", "`cloud-init analyze`", lambda c: c.is_prose and cloud_init.recognise(c.beginning),
           cloud_init.read_text),
    Format("systemd-analyze critical-chain", "`critical-chain`",
           lambda c: c.is_prose and systemd_analyze.is_chain(c.beginning), systemd_analyze.read_text),
    Format("systemd-analyze time", "systemd-analyze `time`",
           lambda c: c.is_prose and systemd_analyze.is_time(c.beginning), systemd_analyze.read_text),
    Format("systemd-analyze blame", "`blame`", lambda c: c.is_prose and systemd_analyze.is_blame(c.beginning),
           systemd_analyze.read_text),
    Format("kernel log", "plain", lambda c: True, kernel_messages.read, whole=False),
)  # fmt: skip


def read_path(path: Path, boot: int = 0) -> list[Observed]:
    """Read a file, a folder, or (`-`) standard input. Raises UserInputError when it cannot be read or is too large
    once unpacked."""
    try:
        if str(path) == "-":
            return [read_chunks("standard input", archive.decompressed(sys.stdin.buffer), boot)]
        if path.is_dir():
            return _read_folder(path, boot)
        return [read_chunks(encodable(str(path)), archive.open_chunks(path), boot)]
    except FileNotFoundError:
        raise UserInputError(f"{path} does not exist") from None
    except archive.Bomb as error:
        raise UserInputError(
            f"{path} is not read to its end: {error}", hint="unpack it and give the log itself"
        ) from None
    except OSError as error:
        raise UserInputError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_folder(path: Path, boot: int) -> list[Observed]:
    files = {entry.name: entry for entry in sorted(path.iterdir()) if entry.is_file()}
    chart = {
        name: Content(name, archive.open_chunks(file)).whole(archive.MAX_MEMBER)
        for name, file in files.items()
        if name in bootchart.MEMBERS
    }
    if bootchart.is_bootchart(chart):
        return [bootchart.read(encodable(str(path)), chart)]
    found = [read_chunks(encodable(str(file)), archive.open_chunks(file), boot) for file in files.values()]
    if not found:
        raise UserInputError(f"{path} holds no files", hint="give a log, a chart, or a folder that has some")
    return found


def read_chunks(path: str, chunks: Iterator[bytes], boot: int = 0) -> Observed:
    """Read one (already decompressed) stream of bytes. `boot` chooses among several in one log: 1 the first, 0 the
    last."""
    content = Content(path, chunks, boot)
    found = (
        (row, observed) for row in FORMATS if row.recognise(content) and (observed := row.read(content)) is not None
    )
    row, observed = next(found)
    observed.format = observed.format or row.name
    observed.is_log = observed.is_log and row.is_log
    shown = printable(path)
    if not row.is_log:
        observed.warn(WarningCode.NOTHING_FOUND, f"{shown}: {row.name}: nothing in it times a boot")
    if content.cut:
        observed.warn(WarningCode.FILE_CUT, f"{shown}: {content.cut}")
    if row.whole and content.has_more:
        observed.warn(WarningCode.FILE_CUT, f"{shown}: only its first {notation.mebibytes(MAX_TEXT)} are read")
    if isinstance(chunks, archive.Chunks) and chunks.cut:
        observed.warn(WarningCode.FILE_CUT, f"{shown}: {chunks.cut}: what was before is read")
    return observed
