# SPDX-License-Identifier: Apache-2.0
"""The options of a bundle, or an image, that comes from a registry or a layout, and a bundle that came."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vmtailor.model import architecture, option_values
from vmtailor.model.option import Option, option


class PullWhen(StrEnum):
    """When a registry is asked for a bundle by its tag."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True)
class PulledBundle:
    """A bundle in the cache. `said`: the line that tells its digest; `depends`: files that change when its reference
    means another one."""

    folder: Path
    said: str
    depends: tuple[Path, ...]


@dataclass(frozen=True)
class PullOptions:
    """The options of what is pulled. `when`: for bundles alone; `architecture`: of an index's part; empty for this
    host's."""

    when: PullWhen = option(
        Option(
            name="--pull", type=PullWhen,
            help="Ask the registry which bundle a tag names: if it was never asked (missing), always, or never.",
        ),
        PullWhen.MISSING,
    )  # fmt: skip
    architecture: str = option(
        Option(
            name="--arch", suggests=architecture.names(),
            help=f"Take what is for this processor ({', '.join(architecture.names())}). Default: this host's.",
        ),
        "",
    )  # fmt: skip
    authfile: Path | None = option(
        Option(name="--authfile", type=Path, help="Read the registry's credentials from this file."), None
    )
    max_bytes: int | None = option(
        Option(
            name="--max-image-size", read=option_values.parse_image_size,
            help="Accept this size, such as 32G. Default: 16G, or 2G if the cache has less than 32G free.",
        ),
        None,
    )  # fmt: skip
