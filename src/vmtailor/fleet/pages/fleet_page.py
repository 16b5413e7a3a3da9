# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet: images and their figures, kernels and who shares them, failures with their reasons."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import pages
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.fleet.model.fleet_record import PAGE, FleetImage, FleetRecord, ImageStanding

#: Letters of a kernel's key that are shown.
_SHOWN = 12
_NO_FIGURE = "–"


@dataclass(frozen=True)
class ImageRow:
    """An image. `link`: to its report, beside the page; empty where there is none."""

    name: str
    reference: str
    standing: str
    link: str
    kernel: str
    figures: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class Shared:
    """A kernel, and the images that want it."""

    key: str
    bytes: int | None
    images: tuple[str, ...]


def write(record: FleetRecord, folder: Path) -> Path:
    """Write the page into a fleet's folder, and return its path."""
    path = folder / PAGE
    write_atomic(path, page(record, folder).encode())
    return path


def page(record: FleetRecord, folder: Path) -> str:
    """Return the page. `folder`: where the bundles are, whose reports it links to."""
    rows = [_row(one, folder) for one in record.images]
    failed = [one for one in record.images if one.failed_in or one.says]
    return pages.render(
        "fleet.html",
        data=record,
        values={
            "title": Path(record.list_path).name or "fleet",
            "rows": rows,
            "kernels": kernels(record),
            "failed": failed,
            "done": sum(1 for one in record.images if works(one)),
            "count": len(record.images),
            "nothing": _NO_FIGURE,
        },
    )


def works(image: FleetImage) -> bool:
    """Return whether an image has a machine that works."""
    return image.standing is ImageStanding.DONE and image.verified_again is not False


def kernels(record: FleetRecord) -> list[Shared]:
    """Return the kernels, those of the most images first."""
    found: dict[str, list[FleetImage]] = defaultdict(list)
    for one in record.images:
        if one.kernel:
            found[one.kernel].append(one)
    rows = [
        Shared(
            key[:_SHOWN],
            next((dict(one.figures)["kernel_bytes"] for one in images if dict(one.figures).get("kernel_bytes")), None),
            tuple(one.entry.name for one in images),
        )
        for key, images in found.items()
    ]
    return sorted(rows, key=lambda row: (-len(row.images), row.key))


def _row(one: FleetImage, folder: Path) -> ImageRow:
    report = f"{one.entry.name}/report.html"
    standing = "does not work any more" if one.verified_again is False else one.standing.value
    return ImageRow(
        name=one.entry.name, reference=one.entry.reference, standing=standing,
        link=report if (folder / report).is_file() else "", kernel=one.kernel[:_SHOWN], figures=dict(one.figures),
        seconds=sum(part.seconds for part in one.parts if part.worker),
    )  # fmt: skip
