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

#: Lines kept of a section.
MOST_LINES = 100_000
_TITLE = re.compile(rb"=={1,2} (.{1,60}?) =+\s*$")
_VERSION = re.compile(r'KERNEL_VERSION="?(\S+)')
_COMMAND_LINE = "KERNEL_CMDLINE="


def _messages(blocks: Iterable[list[bytes]], kept: dict[str, list[bytes]]) -> Iterator[bytes]:
    """Yield the kernel's messages. The other sections, which are small, are put into `kept` by their titles."""
    title = ""
    for block in blocks:
        for line in block:
            match = _TITLE.match(line) if line.startswith(b"==") else None
            if match:
                title = decode(match[1], 60).upper()
            elif title == "KERNEL MESSAGES":
                yield line + b"\n"
            else:
                part = kept.setdefault(title, [])
                if len(part) < MOST_LINES:
                    part.append(line)


def read(content: Content) -> Observed:
    """Read such a file."""
    kept: dict[str, list[bytes]] = {}
    lines = _messages(Cleaner(content.sample).blocks(content.stream()), kept)
    observed = kernel_messages.read(Content(content.path, _joined(lines), content.boot))
    observed.format, observed.is_log = f"grab-boot-data ({observed.format})", True
    info = [decode(line, 4200) for line in kept.get("KERNEL INFO", [])]
    version = next(filter(None, map(_VERSION.search, info)), None)
    if version and observed.version is None:
        observed.version = version[1]
    given = next((line.partition(_COMMAND_LINE)[2].rstrip() for line in info if _COMMAND_LINE in line), None)
    if given is not None and observed.command_line is None:
        observed.command_line = given.removeprefix('"').removesuffix('"')
    config = kept.get("CONFIG", [])
    observed.config = parse_config(config)
    observed.arch = observed.arch or arch_of(config)
    return observed


def _joined(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines many at a time; the first so few that a log is recognised by them."""
    yield b"".join(islice(lines, kernel_messages.SAMPLE_LINES))
    while batch := b"".join(islice(lines, 8192)):
        yield batch
