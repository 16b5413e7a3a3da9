# SPDX-License-Identifier: Apache-2.0
"""What the user asked for, parsed once at the door."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.distribution.selection import of_host
from vmtailor.model.architecture import named
from vmtailor.model.margin import Margin
from vmtailor.model.option import FETCHED, IMAGES, SYSTEMS, Option, internal, option
from vmtailor.model.plan import RootFormat
from vmtailor.model.systems.units import UnitsMode

MEBIBYTE = 1 << 20
#: Memory of a machine that is fitted to an image, where nobody says another.
IMAGE_MEMORY = 256 * MEBIBYTE


_TRY_HINT = "vmtailor boot BUNDLE --try CHANGE tries changes on the bundle of a container"


class Effort(StrEnum):
    """`normal`: repair until it passes. `thorough`: afterwards, try to remove what is kept, in groups."""

    NORMAL = "normal"
    THOROUGH = "thorough"


@dataclass(frozen=True)
class FitOptions:
    """Everything `fit` depends on. Sizes in bytes. `memory_asked`: the user said how much memory; a system gets what
    systems usually have otherwise. `architecture`: empty until the image has said it; `machine` and `cpu_model` are
    then the architecture's first where they are empty (pipeline/image_subject.py, `settled`). `kernel`: a series or
    exact version of a packaged baseline; `source`: `DIR` or `TARBALL[,sha256]` to build from instead of the packaged
    source. `baseline_config`: a file, or `defconfig`, with which the baseline itself is compiled from `source`.
    `budget`: how many kernels repair may build. `boots`: how often each side is measured. `max_image_bytes`: content
    that an image may have; None: as much as fits this disk. `margins`: what is kept beyond what was demanded; None
    until the exercise has said it (pipeline/image_subject.py, `with_margins`). `price_margins`: compile and measure
    what the other margins would cost. `root`: the root's file system; None: what the architecture has. `distribution`:
    whose packages the baseline is of. `units`: of a system with an init of its own, what is done about units that
    nobody wants; `mask`: names and patterns of units that are tried to be masked whatever a list of ours says; `tries`:
    changes of the catalogue that are tried on the fitted machine; `files`: paths of files on its disk, each with the
    content that is tried, None where none is to be there."""

    reference: str = internal("the key has the digest of what was found there, and its record")
    out: Path = option(Option(name="--out", unkeyed="a bundle is placed there when it is finished"))
    exercise_file: Path | None = option(
        Option(name="--exercise", unkeyed="the key has the exercise that it holds"), None
    )
    architecture: str = option(Option(name="--arch"), "")
    machine: str = option(Option(name="--machine"), "")
    memory_bytes: int = option(Option(name="--memory"), IMAGE_MEMORY)
    memory_asked: bool = internal("the key has the memory itself", True)
    cpus: int = option(Option(name="--cpus"), 1)
    cpu_model: str = option(Option(name="--cpu-model"), "")
    kernel: str | None = option(
        Option(name="--kernel", subjects=IMAGES, unkeyed="the key has the content of the kernel that it names"), None
    )
    source: str | None = option(Option(name="--source", unkeyed="the key has the digest of the source"), None)
    baseline_config: str | None = option(
        Option(name="--baseline-config", subjects=IMAGES, unkeyed="the key has the kernel compiled with it"), None
    )
    root: RootFormat | None = option(Option(name="--root", subjects=IMAGES), None)
    keep: tuple[str, ...] = option(Option(name="--keep"), ())
    drop: tuple[str, ...] = option(Option(name="--drop"), ())
    margins: tuple[Margin, ...] | None = option(Option(name="--margin", subjects=IMAGES), None)
    price_margins: bool = option(Option(name="--price-margins", subjects=IMAGES), False)
    terminal: bool = option(Option(name="--terminal", subjects=IMAGES), True)
    boots: int = option(Option(name="--boots"), 3)
    budget: int = option(Option(name="--budget"), 12)
    effort: Effort = option(Option(name="--effort"), Effort.NORMAL)
    units: UnitsMode = option(Option(name="--units", subjects=SYSTEMS), UnitsMode.KEEP)
    mask: tuple[str, ...] = option(Option(name="--mask", subjects=SYSTEMS), ())
    tries: tuple[str, ...] = option(Option(name="--try", subjects=SYSTEMS, hint=_TRY_HINT), ())
    files: tuple[tuple[str, str | None], ...] = option(Option(name="--try-file", subjects=SYSTEMS, hint=_TRY_HINT), ())
    entrypoint: tuple[str, ...] | None = option(Option(name="--entrypoint", subjects=IMAGES), None)
    cmd: tuple[str, ...] | None = option(Option(name="--cmd", subjects=IMAGES), None)
    authfile: Path | None = option(
        Option(name="--authfile", subjects=FETCHED, unkeyed="it opens a registry, whose image the key has"), None
    )
    privileged: bool = option(Option(name="--privileged", subjects=IMAGES), False)
    max_image_bytes: int | None = option(
        Option(name="--max-image-size", subjects=FETCHED, unkeyed="it refuses an image, or changes nothing"), None
    )
    command: str = internal("it is written into the record when a bundle is placed", "")
    store: Store = internal("it is where results are kept", factory=Store)
    distribution: Distribution = internal("the key has the content of its packages", factory=of_host)

    @property
    def root_format(self) -> RootFormat:
        """The root's file system: `root`, or what the architecture, which must be known by now, has."""
        return self.root or RootFormat(named(self.architecture).kernel.root)
