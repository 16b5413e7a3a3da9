# SPDX-License-Identifier: Apache-2.0
"""grab-boot-data files: sections of machine information, the kernel's configuration and its log, under `== TITLE ==`
lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from vmtailor.analysis.bootlog import kernel_messages
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.kernel_build import arch_of, parse_config
from vmtailor.analysis.bootlog.log_lines import Cleaner, Content, decode

_TITLE = re.compile(rb"=={1,2} (.{1,60}?) =+\s*$")
_VERSION = re.compile(r'KERNEL_VERSION="?(\S+)')
_COMMAND_LINE = re.compile(r'KERNEL_CMDLINE="?(.*?)"?\s*$')


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


def read(content: Content) -> Observed:
    """Read such a file."""
    sections = _Sections(Cleaner(content.sample).blocks(content.stream()))
    lines = sections.messages()
    observed = kernel_messages.read(Content(content.path, _joined(lines), content.boot))
    observed.format, observed.is_log = f"grab-boot-data ({observed.format})", True
    info = "\n".join(decode(line, 4200) for line in sections.kept.get("KERNEL INFO", []))
    version, command_line = _VERSION.search(info), re.search(_COMMAND_LINE, info)
    if version and observed.version is None:
        observed.version = version[1]
    if command_line is None:
        command_line = re.search(r'KERNEL_CMDLINE="?(.*?)"?$', info, re.M)
    if command_line and observed.command_line is None:
        observed.command_line = command_line[1]
    config = sections.kept.get("CONFIG", [])
    observed.config = parse_config(config)
    observed.arch = observed.arch or arch_of(config)
    return observed


def _joined(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines many at a time; the first so few that a log is recognised by them."""
    yield b"".join(islice(lines, kernel_messages.SAMPLE_LINES))
    while batch := b"".join(islice(lines, 8192)):
        yield batch
