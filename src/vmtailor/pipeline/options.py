# SPDX-License-Identifier: Apache-2.0
"""What the user asked for, parsed once at the door."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.drivers.distribution.choice import of_host
from vmtailor.drivers.distribution.protocol import Distribution
from vmtailor.model.architecture import named
from vmtailor.model.margin import Margin
from vmtailor.model.plan import RootFormat
from vmtailor.model.systems.units import UnitsMode

MEBIBYTE = 1 << 20
#: Memory of a machine that is fitted to an image, where nobody says another.
IMAGE_MEMORY = 256 * MEBIBYTE


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
    source. `baseline_config`: a file, or `defconfig`, with which the baseline itself is compiled from `source`. `budget`: how
    many kernels repair may build. `boots`: how often each side is measured. `max_image_bytes`: content that an image
    may have; None: as much as fits this disk. `margins`: what is kept beyond what was demanded; None until the exercise
    has said it (pipeline/image_subject.py, `with_margins`). `price_margins`: compile and measure what the other margins
    would cost. `root`: the root's file system; None: what the architecture has. `distribution`: whose packages the
    baseline is of. `units`: of a system with an init of its own, what is done about units that nobody wants;
    `mask`: names and patterns of units that are tried to be masked whatever a list of ours says; `tries`: changes of
    the catalogue that are tried on the fitted machine; `files`: paths of files on its disk, each with the content that
    is tried, None where none is to be there."""

    reference: str
    out: Path
    exercise_file: Path | None = None
    architecture: str = ""
    machine: str = ""
    memory_bytes: int = IMAGE_MEMORY
    memory_asked: bool = True
    cpus: int = 1
    cpu_model: str = ""
    kernel: str | None = None
    source: str | None = None
    baseline_config: str | None = None
    root: RootFormat | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    margins: tuple[Margin, ...] | None = None
    price_margins: bool = False
    terminal: bool = True
    boots: int = 3
    budget: int = 12
    effort: Effort = Effort.NORMAL
    units: UnitsMode = UnitsMode.KEEP
    mask: tuple[str, ...] = ()
    tries: tuple[str, ...] = ()
    files: tuple[tuple[str, str | None], ...] = ()
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    authfile: Path | None = None
    privileged: bool = False
    max_image_bytes: int | None = None
    command: str = ""
    store: Store = field(default_factory=Store)
    distribution: Distribution = field(default_factory=of_host)

    @property
    def root_format(self) -> RootFormat:
        """The root's file system: `root`, or what the architecture, which must be known by now, has."""
        return self.root or RootFormat(named(self.architecture).kernel.root)
