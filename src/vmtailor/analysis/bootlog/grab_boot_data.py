# SPDX-License-Identifier: Apache-2.0
"""grab-boot-data files: sections of machine information, the kernel's configuration and its log, under `== TITLE ==`
lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vmtailor.analysis.bootlog import kernel_log
from vmtailor.analysis.bootlog.clean import Cleaner, decode
from vmtailor.analysis.bootlog.kernel_build.kconfig_file import arch_of, parse
from vmtailor.analysis.bootlog.observed import Observed

_TITLE = re.compile(rb"=={1,2} (.{1,60}?) =+\s*$")
_VERSION = re.compile(r'KERNEL_VERSION="?(\S+)')
_COMMAND_LINE = re.compile(r'KERNEL_CMDLINE="?(.*?)"?\s*$')


def recognise(sample: bytes) -> bool:
    """Whether the file has the sections of grab-boot-data."""
    return b"== GRAB-BOOT-DATA INFO ==" in sample or (b"== KERNEL MESSAGES ==" in sample and b"== CONFIG ==" in sample)


class _Sections:
    """Takes the small sections aside and passes the kernel's messages on."""

    def __init__(self, blocks: Iterable[list[bytes]]) -> None:
        self._blocks = blocks
        self.kept: dict[str, list[bytes]] = {}

    def messages(self) -> Iterator[bytes]:
        title = ""
        for block in self._blocks:
            for line in block:
                match = _TITLE.match(line) if line.startswith(b"==") else None
                if match:
                    title = decode(match[1], 60).upper()
                elif title == "KERNEL MESSAGES":
                    yield line + b"\n"
                else:
                    part = self.kept.setdefault(title, [])
                    if len(part) < 100_000:
                        part.append(line)


def read(path: str, chunks: Iterable[bytes], sample: bytes, boot: int = 0) -> Observed:
    """Read such a file."""
    sections = _Sections(Cleaner(sample).blocks(chunks))
    lines = sections.messages()
    head: list[bytes] = []
    for line in lines:
        head.append(line)
        if len(head) >= kernel_log.SAMPLE_LINES:
            break
    first = b"".join(head)
    observed = kernel_log.read(path, _joined(first, lines), first, boot)
    observed.format = f"grab-boot-data ({observed.format})"
    info = "\n".join(decode(line, 4200) for line in sections.kept.get("KERNEL INFO", []))
    version, command_line = _VERSION.search(info), re.search(_COMMAND_LINE, info)
    if version and observed.version is None:
        observed.version = version[1]
    if command_line is None:
        command_line = re.search(r'KERNEL_CMDLINE="?(.*?)"?$', info, re.M)
    if command_line and observed.command_line is None:
        observed.command_line = command_line[1]
    config = sections.kept.get("CONFIG", [])
    observed.config = parse(config)
    observed.arch = observed.arch or arch_of(config)
    return observed


def _joined(first: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= 1 << 20:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)
