# SPDX-License-Identifier: Apache-2.0
"""The options of `run` for images, and the bundle that is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vmtailor.model.option import IMAGES, Option, Suggests, option
from vmtailor.pipeline.pull_options import PulledBundle

_HINT = "leave it out: a bundle has a kernel of its own"


@dataclass(frozen=True)
class ImageRunOptions:
    """The options of `run` that an image has, and a bundle has not. `family`: a reference or a folder; empty for the
    kernels in the cache."""

    family: str = option(
        Option(
            name="--family", suggests=Suggests.ARTEFACTS, subjects=IMAGES, hint=_HINT,
            help="Start an image on this family kernel: oci:DIR, docker://NAME, a bundle, or one of `family ls`.",
        ),
        "",
    )  # fmt: skip
    fit: bool = option(
        Option(
            name="--fit", type=bool, subjects=IMAGES, hint=_HINT,
            help="Fit the image in the background meanwhile: the next run of it takes its own kernel.",
        ),
        False,
    )  # fmt: skip


@dataclass(frozen=True)
class RunSubject:
    """The bundle that is started, by its folder. `of_cache`: it lies in the cache, for an image or a
    reference that was named. `pulled`: for a reference.
    `behind`: the folder of a fit that goes on meanwhile."""

    bundle: Path
    of_cache: bool = False
    behind: Path | None = None
    pulled: PulledBundle | None = None
