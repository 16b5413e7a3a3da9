# SPDX-License-Identifier: Apache-2.0
"""Any file or folder → what it says about a boot. The format is recognised by content; names are never trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from vmtailor.analysis.bootlog import (
    archive,
    bootchart,
    bootchart_svg,
    cloud_init,
    ftrace,
    grab_boot_data,
    journal_export,
    journal_json,
    kernel_log,
    systemd_plot,
    systemd_text,
)
from vmtailor.analysis.bootlog.clean import Cleaner, printable
from vmtailor.analysis.bootlog.kernel_build import kconfig_file, system_map
from vmtailor.analysis.bootlog.observed import Observed
from vmtailor.analysis.bootlog.stamps import has_stamps
from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.notation import decoded_json
from vmtailor.base.text import encodable
from vmtailor.model.boots.timeline import WarningCode

#: How much of a file is looked at to recognise it.
SAMPLE = 128 << 10
#: Text formats other than logs are small; more than this is not read.
MAX_TEXT = 64 << 20

#: Formats that are read in one piece, and no further than that.
WHOLE = ("(JSON)", "(export)", "(SVG)", "critical-chain", "blame", "time")

Chunks = Iterator[bytes]


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
        name: _whole(archive.open_chunks(file), archive.MAX_MEMBER)
        for name, file in files.items()
        if name in bootchart.MEMBERS
    }
    if bootchart.is_bootchart(chart):
        return [bootchart.read(encodable(str(path)), chart)]
    found = [read_chunks(encodable(str(file)), archive.open_chunks(file), boot) for file in files.values()]
    if not found:
        raise UserInputError(f"{path} holds no files", hint="give a log, a chart, or a folder that has some")
    return found


def _whole(chunks: Chunks, limit: int) -> bytes:
    pieces, size = [], 0
    for chunk in chunks:
        pieces.append(chunk[: limit - size])
        size += len(chunk)
        if size >= limit:
            break
    return b"".join(pieces)


def read_chunks(path: str, chunks: Chunks, boot: int = 0) -> Observed:
    """Read one (already decompressed) stream of bytes."""
    observed = _recognised(path, chunks, boot)
    if observed.format.endswith(WHOLE) and next(iter(chunks), None):
        observed.warn(
            WarningCode.FILE_CUT, f"{printable(path)}: only its first {notation.mebibytes(MAX_TEXT)} are read"
        )
    if isinstance(chunks, archive.Chunks) and chunks.cut:
        observed.warn(WarningCode.FILE_CUT, f"{printable(path)}: {chunks.cut}: what was before is read")
    return observed


def _recognised(path: str, chunks: Chunks, boot: int) -> Observed:
    head: list[bytes] = []
    size = 0
    for chunk in chunks:
        head.append(chunk)
        size += len(chunk)
        if size >= SAMPLE:
            break
    sample = b"".join(head)[:SAMPLE]
    rest = chain(head, chunks)
    if not sample.strip(b"\0 \t\r\n"):
        return _nothing(path, "empty")
    binary = _binary(sample, boot)
    if binary is not None:
        return binary(path, rest)
    clean = b"\n".join(Cleaner(sample).lines(iter([sample])))
    if grab_boot_data.recognise(clean):
        return grab_boot_data.read(path, rest, sample, boot)
    special = _of_build(clean) or _special(clean, boot)
    if special is not None:
        return special(path, rest, sample)
    return kernel_log.read(path, rest, sample, boot)


def _binary(sample: bytes, boot: int) -> Callable[[str, Chunks], Observed] | None:
    """A reader for what must be read byte for byte."""
    if archive.is_tar(sample):
        return _read_archive
    return partial(_read_export, boot=boot) if journal_export.recognise(sample) else None


def _of_build(clean: bytes) -> Callable[[str, Chunks, bytes], Observed] | None:
    """A reader for what a kernel's build leaves beside it."""
    if kconfig_file.recognise(clean):
        return _read_config
    return _read_symbols if system_map.recognise(clean) else None


def _special(clean: bytes, boot: int) -> Callable[[str, Chunks, bytes], Observed] | None:
    """A reader for everything that is not a kernel log; None for those."""
    start = clean.lstrip()[:1]
    text = clean.decode("utf-8", "replace")
    if start == b"<" and "<svg" in text[:6000]:
        return _read_svg
    if start in (b"[", b"{") and not has_stamps(clean.split(b"\n")[:50]):
        return partial(_read_json, boot=boot)
    if ftrace.recognise(clean):
        return lambda path, chunks, sample: ftrace.read(path, Cleaner(sample).lines(chunks))
    return None if has_stamps(clean.split(b"\n")[:2000]) >= 3 else _text_reader(text)


def _text_reader(text: str) -> Callable[[str, Chunks, bytes], Observed] | None:
    if cloud_init.recognise(text):
        return lambda path, chunks, sample: cloud_init.read_text(path, _text(chunks, sample))
    if systemd_text.recognise(text):
        return lambda path, chunks, sample: systemd_text.read(path, _text(chunks, sample))
    return None


def _text(chunks: Chunks, sample: bytes) -> str:
    data = _whole(chunks, MAX_TEXT)
    return "\n".join(line.decode("utf-8", "replace") for line in Cleaner(sample).lines(iter([data])))


def _read_svg(path: str, chunks: Chunks, sample: bytes) -> Observed:
    text = _text(chunks, sample)
    if bootchart_svg.recognise(text):
        observed = bootchart_svg.read(path, text)
    elif systemd_plot.is_plot_svg(text):
        observed = systemd_plot.read_svg(path, text)
    else:
        return _nothing(path, "SVG")
    if "</svg>" not in text[-1000:]:
        observed.warn(WarningCode.FILE_CUT, f"{printable(path)}: the drawing ends in its middle")
    return observed


def _read_json(path: str, chunks: Chunks, sample: bytes, boot: int) -> Observed:
    data = _whole(chunks, MAX_TEXT)
    document = decoded_json(data)
    if document is None and (document := systemd_plot.decode_cut(data)) is not None:
        observed = _of_document(path, document, data, boot)
        observed.warn(WarningCode.FILE_CUT, f"{printable(path)}: the document ends in its middle")
        return observed
    if document is None:
        lines = journal_json.as_log(Cleaner(sample).lines(iter([data])))
        if lines:
            return _as_kernel_log(path, lines, "journal (JSON)", boot)
        return kernel_log.read(path, iter([data]), sample, boot)
    return _of_document(path, document, data, boot)


def _of_document(path: str, document: object, data: bytes, boot: int) -> Observed:
    if isinstance(document, dict):
        entries = document.get("dmesg")
        log = journal_json.dmesg_as_log(entries) if isinstance(entries, list) else journal_json.as_log([data])
        if not log:
            return _nothing(path, "JSON")
        return _as_kernel_log(path, log, "dmesg (JSON)" if entries else "journal (JSON)", boot)
    if isinstance(document, list) and systemd_plot.is_plot_json(document):
        return systemd_plot.read_json(path, document)
    if isinstance(document, list) and cloud_init.is_dump(document):
        return cloud_init.read_dump(path, document)
    return _nothing(path, "JSON")


def _as_kernel_log(path: str, log: bytes, name: str, boot: int) -> Observed:
    observed = kernel_log.read(path, iter([log]), log[:SAMPLE], boot)
    observed.format = f"kernel log, {name}"
    return observed


def _read_config(path: str, chunks: Chunks, sample: bytes) -> Observed:
    lines = list(Cleaner(sample).lines(iter([_whole(chunks, MAX_TEXT)])))
    observed = Observed(path, "kernel configuration")
    observed.config, observed.arch = kconfig_file.parse(lines), kconfig_file.arch_of(lines)
    observed.version = kconfig_file.version_of(b"\n".join(lines[:10]))
    return observed


def _read_symbols(path: str, chunks: Chunks, sample: bytes) -> Observed:
    observed = Observed(path, "symbols of a kernel")
    observed.symbols = system_map.parse(Cleaner(sample).lines(iter([_whole(chunks, MAX_TEXT)])))
    return observed


def _read_export(path: str, chunks: Chunks, boot: int) -> Observed:
    return _as_kernel_log(path, journal_export.as_log(_whole(chunks, MAX_TEXT)), "journal (export)", boot)


def _read_archive(path: str, chunks: Chunks) -> Observed:
    told = archive.Chunks()
    members = dict(archive.tar_members(chunks, bootchart.MEMBERS, told))
    if bootchart.is_bootchart(members):
        observed = bootchart.read(path, members)
    else:
        observed = _nothing(path, "tar archive without a bootchart")
    if told.cut:
        observed.warn(WarningCode.FILE_CUT, f"{printable(path)}: {told.cut}: what was before is read")
    return observed


def _nothing(path: str, what: str) -> Observed:
    observed = Observed(path, what)
    observed.warn(WarningCode.NOTHING_FOUND, f"{printable(path)}: {what}: nothing in it times a boot")
    return observed
