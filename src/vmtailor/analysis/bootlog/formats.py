# SPDX-License-Identifier: Apache-2.0
"""Read any file or folder that says something about a boot. The one table of formats is here, with the signs of each: a
file is recognised by its content, and its name is never trusted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.bootlog import (
    archive,
    bootchart,
    cloud_init,
    embedded_log,
    ftrace,
    grab_boot_data,
    journal,
    kernel_build,
    kernel_messages,
    systemd_analyze,
)
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import MAX_TEXT, Content, printable
from vmtailor.analysis.bootlog.milestones import parse_startup_line
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


#: Lines of a text that are looked at.
_LINES = 400
#: Lines that are enough to recognise a table of symbols.
_ENOUGH = 5
#: An entry of the journal begins with its cursor, or, from other writers of the format, with its time.
_ENTRY_START = re.compile(rb"\s*__(?:CURSOR|REALTIME_TIMESTAMP|MONOTONIC_TIMESTAMP)=[^\n]*\n")
_ENTRY_STAMP = re.compile(rb"^__MONOTONIC_TIMESTAMP=\d{1,15}$", re.MULTILINE)
_TRACED = re.compile(rb": initcall_(?:level|start|finish): (?:func|level)=")
#: This text alone: after the name of a program, it is a line of a journal, which holds more.
_SAID_ALONE = re.compile(r"[^\w\[]{0,20}Startup finished in ")


def _is_tar(content: Content) -> bool:
    return archive.is_tar(content.sample)


def is_export(content: Content) -> bool:
    """Return whether a file begins as `journalctl -o export` does."""
    return bool(_ENTRY_START.match(content.sample) and _ENTRY_STAMP.search(content.sample))


def _is_grab(content: Content) -> bool:
    text = content.clean
    return b"== GRAB-BOOT-DATA INFO ==" in text or (b"== KERNEL MESSAGES ==" in text and b"== CONFIG ==" in text)


def _is_config(content: Content) -> bool:
    """Return whether a file is a .config by itself."""
    return content.clean.startswith(b"#") and kernel_build.TITLE.search(content.clean[:400]) is not None


def is_symbols(content: Content) -> bool:
    """Return whether a file is a table of symbols: its first lines are, all of them."""
    lines = content.clean.split(b"\n", _ENOUGH)[:_ENOUGH]
    return len(lines) == _ENOUGH and all(kernel_build.SYMBOL.match(line) for line in lines)


def _is_bootchart_drawing(content: Content) -> bool:
    text = content.beginning if content.is_drawing else ""
    return "bootchart SVG file" in text[:6000] or "Bootchart for" in text[:12000]


def _is_plot_drawing(content: Content) -> bool:
    text = content.beginning if content.is_drawing else ""
    return "systemd-analyze" in text[:4000] or "rect.activating" in text


def _is_dmesg_json(content: Content) -> bool:
    return isinstance(content.document, dict) and isinstance(content.document.get("dmesg"), list)


def _is_journal_json(content: Content) -> bool:
    return content.is_json and not isinstance(content.document, list)


def _is_rows(content: Content, names: set[str]) -> bool:
    """Return whether a file is a JSON list whose first object has these names."""
    rows = content.document
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], dict) and names <= set(rows[0])


def _is_trace(content: Content) -> bool:
    return not content.is_json and _TRACED.search(content.clean) is not None


def _is_cloud_init(content: Content) -> bool:
    """Return whether a file is text of `cloud-init analyze`."""
    if not content.is_prose:
        return False
    text = content.beginning
    if "-- Boot Record" in text and (
        "Starting stage:" in text or any(cloud_init.BLAME.match(line) for line in text.splitlines()[:_LINES])
    ):
        return True
    return "-- Most Recent Boot Record --" in text or ("Kernel Started at:" in text and "Cloud-init" in text)


def _is_chain(content: Content) -> bool:
    if not content.is_prose:
        return False
    lines = content.beginning.splitlines()[:_LINES]
    return any(systemd_analyze.CHAIN.match(line) and "@" in line for line in lines)


def _is_time(content: Content) -> bool:
    if not content.is_prose:
        return False
    return any(_SAID_ALONE.match(line) and parse_startup_line(line) for line in content.beginning.splitlines())


def _is_blame(content: Content) -> bool:
    """Return whether most lines are such as `systemd-analyze blame` prints."""
    if not content.is_prose:
        return False
    lines = [line for line in content.beginning.splitlines() if line.strip()]
    return bool(lines) and sum(1 for line in lines if systemd_analyze.BLAME.match(line)) * 2 > len(lines)


#: In the order in which they are tried.
FORMATS = (
    _no_log("empty", lambda c: not c.sample.strip(b"\0 \t\r\n")),
    Format("bootchart", "bootchart, bootchart2", _is_tar, bootchart.read_tar, whole=False),
    _no_log("tar archive without a bootchart", _is_tar),
    Format("kernel log, journal (export)", "journal", is_export, journal.read_export),
    Format("grab-boot-data", "grab-boot-data", _is_grab, grab_boot_data.read, whole=False),
    Format("kernel configuration", ".config", _is_config, kernel_build.read_config),
    Format("symbols of a kernel", "System.map", is_symbols, kernel_build.read_symbols),
    Format("header of a bootchart", "bootchart, bootchart2", bootchart.is_header, bootchart.read_header),
    Format("systemd-bootchart (SVG)", "systemd-bootchart (SVG)", _is_bootchart_drawing, bootchart.read_drawing),
    Format("systemd-analyze plot (SVG)", "`plot` (SVG)", _is_plot_drawing, systemd_analyze.read_svg),
    _no_log("SVG", lambda c: c.is_drawing),
    Format("kernel log, dmesg (JSON)", "`dmesg -x`", _is_dmesg_json, journal.read_dmesg),
    Format("kernel log, journal (JSON)", "journal", _is_journal_json, journal.read_json),
    Format("systemd-analyze plot (JSON)", "`plot --json`", lambda c: _is_rows(c, {"name", "activating", "activated"}),
           systemd_analyze.read_json),
    Format("cloud-init analyze dump", "`cloud-init analyze`", lambda c: _is_rows(c, {"event_type", "timestamp"}),
           cloud_init.read_dump),
    Format("log in JSON", "text within", lambda c: c.document is not None, embedded_log.read_document),
    Format("log in JSON", "text within", lambda c: c.is_json and c.document is None, embedded_log.read_lines),
    Format("log in base64", "text within", embedded_log.is_base64, embedded_log.read_base64),
    Format("escaped log", "text within", embedded_log.is_escaped, embedded_log.read_escaped),
    _no_log("JSON", lambda c: c.document is not None),
    Format("ftrace initcall events", "ftrace", _is_trace, ftrace.read, whole=False),
    Format("cloud-init analyze", "`cloud-init analyze`", _is_cloud_init, cloud_init.read_text),
    Format("systemd-analyze critical-chain", "`critical-chain`", _is_chain, systemd_analyze.read_text),
    Format("systemd-analyze time", "systemd-analyze `time`", _is_time, systemd_analyze.read_text),
    Format("systemd-analyze blame", "`blame`", _is_blame, systemd_analyze.read_text),
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
