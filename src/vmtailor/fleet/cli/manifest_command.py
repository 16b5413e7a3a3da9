# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet manifest`: what starts a fleet's scheduler and workers elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from vmtailor.base import near_names, output
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import write_output
from vmtailor.base.text import plain
from vmtailor.fleet.manifests import kubernetes_jobs, slurm_script, systemd_units
from vmtailor.fleet.manifests.manifest_wishes import ManifestWishes


class ManifestKind(StrEnum):
    KUBERNETES = "kubernetes"
    SLURM = "slurm"
    SYSTEMD = "systemd"


_FILES: dict[ManifestKind, Callable[[ManifestWishes], dict[str, str]]] = {
    ManifestKind.KUBERNETES: kubernetes_jobs.files,
    ManifestKind.SLURM: slurm_script.files,
    ManifestKind.SYSTEMD: systemd_units.files,
}


def show(kind: str, wishes: ManifestWishes, out: Path | None) -> None:
    """Print the files of a fleet, or write them into a folder. Raises UserInputError for another kind, and where a file
    is there."""
    if kind not in set(ManifestKind):
        question = near_names.or_else(kind, ManifestKind, f"choose {', '.join(ManifestKind)}")
        raise UserInputError(f"no manifest of '{plain(kind)[:40]}' is known", hint=question)
    files = _FILES[ManifestKind(kind)](wishes)
    if out is None:
        for text in files.values():
            output.lines(text)
        return
    taken = next((name for name in files if (out / name).exists()), None)
    if taken is not None:
        raise UserInputError(f"{out / taken} is there", hint="name another folder, or remove it")
    for name, text in files.items():
        write_output(out / name, text.encode())
        output.say(f"{out / name}")
