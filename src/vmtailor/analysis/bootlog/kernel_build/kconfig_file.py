# SPDX-License-Identifier: Apache-2.0
"""A kernel's .config, as far as a boot analysis needs it: what is set, and for which architecture."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vmtailor.analysis.bootlog.clean import decode
from vmtailor.analysis.bootlog.milestones import architecture
from vmtailor.base.files import dot_config
from vmtailor.model.architecture import every

_TITLES = {"riscv": "riscv64"} | {word: name for row in every() for word, name in row.log.titles.items()}
_TITLE = re.compile(rb"# Linux/(\S{1,30}) (\S{1,60}) Kernel Configuration")


def recognise(sample: bytes) -> bool:
    """Whether this is a .config by itself."""
    return sample.startswith(b"#") and _TITLE.search(sample[:400]) is not None


def parse(lines: Iterable[bytes]) -> dict[str, str]:
    """Symbol (without CONFIG_) → value, without the quotes of strings. What is not set is not there."""
    text = "\n".join(decode(line.strip(), 1200) for line in lines if b"CONFIG_" in line)
    return {name: value for name, value in dot_config.parse(text).items() if value != "n"}


def arch_of(lines: Iterable[bytes]) -> str | None:
    """The architecture of the title, `# Linux/arm 6.13.9 Kernel Configuration`."""
    for line in lines:
        match = _TITLE.match(line)
        if match:
            name = decode(match[1], 30)
            return _TITLES.get(name, architecture(name))
    return None


def version_of(sample: bytes) -> str | None:
    """The kernel version of the title."""
    match = _TITLE.search(sample[:400])
    return decode(match[2], 60) if match else None
