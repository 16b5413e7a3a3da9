# SPDX-License-Identifier: Apache-2.0
"""A fit that goes on while an image runs on a family kernel: a process of its own, with a log in the cache. What it
finds is an ordinary fit in the cache, which the next run of the image takes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.base import process
from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import file_lock, records
from vmtailor.model.image import Image
from vmtailor.pipeline import image_bundle
from vmtailor.pipeline.pull_options import PullOptions

#: Names of such fits in the cache.
KIND = "fit-behind"
#: The files of one: its record, its log, the lock that it holds as long as it lives, and the bundle while it is made.
RECORD, LOG, _LOCK, BUNDLE = "fit.json", "log", "lock", "bundle"
#: The program that fits.
PROGRAM = "vmtailor.cli.fit_behind"
#: The words for a fit whose process was ended.
ENDED_EARLY = "its process was ended"
#: How much it yields to others.
NICE = 15


@dataclass(frozen=True)
class FitBehind:
    """The end of such a fit. `verified`: the image works on the kernel that was made; `said`: why it does not."""

    SCHEMA: ClassVar[str] = "vmtailor/fit-behind/1"

    reference: str
    verified: bool
    said: str = ""


def folder_of(image: Image, store: Store) -> Path:
    """Return the folder of an image's fit, which may not be there."""
    return store.path(KIND, digest(image.digest, image.config.architecture))


def _made(image: Image, store: Store) -> Path:
    folder = folder_of(image, store)
    store.folder(KIND)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def goes_on(folder: Path) -> bool:
    """Return whether the fit of a folder lives."""
    return file_lock.is_held(folder / _LOCK)


def begin(image: Image, store: Store, pull: PullOptions) -> Path:
    """Begin the fit of an image where none goes on, and return its folder. It outlives this process, and gets the image
    as this process did: for this processor, of this size at most, with these credentials. Raises HostError."""
    folder = _made(image, store)
    with file_lock.tried(folder / _LOCK) as lock:
        if lock is not None:
            # It stays where the process is killed.
            records.save(FitBehind(image.reference, False, ENDED_EARLY), folder / RECORD, private=True)
            argv = [sys.executable, "-P", "-m", PROGRAM, str(folder), image.reference, *words_of(pull)]
            # It holds the lock by the descriptor that it inherits.
            process.leave(argv, folder / LOG, nice=NICE, pass_fds=(lock,))
    return folder


def words_of(pull: PullOptions) -> tuple[str, str, str]:
    """Return how an image is got, as words of the program that fits. Of the credentials they have the file's path."""
    size = "" if pull.max_bytes is None else str(pull.max_bytes)
    return pull.architecture, size, "" if pull.authfile is None else str(pull.authfile.absolute())


def of_words(words: Sequence[str]) -> PullOptions:
    """Return what `words_of` made words of."""
    architecture, size, authfile = words
    return PullOptions(
        architecture=architecture,
        max_bytes=int(size) if size else None,
        authfile=Path(authfile) if authfile else None,
    )


def ended(folder: Path, end: FitBehind) -> None:
    """Record the end of a fit; a bundle that was made lies in the cache as any other."""
    shutil.rmtree(folder / BUNDLE, ignore_errors=True)
    records.save(end, folder / RECORD, private=True)


def told(folder: Path) -> str:
    """Return the one line about a fit that is to be printed: how it ended, which is said once, or that it goes on;
    empty where there is nothing to say."""
    if goes_on(folder):
        return under_way(folder)
    try:
        end = records.load(FitBehind, folder / RECORD)
        (folder / RECORD).unlink()
    except (VmtailorError, OSError):
        return ""
    if end.verified:
        return f"the fit of {end.reference} is done: runs of it take its own kernel from now on"
    return f"the fit of {end.reference} failed: {end.said} ({folder / LOG} has all of it)"


def under_way(folder: Path) -> str:
    """Return the line that tells of a fit that goes on, and where its progress is: one in the foreground has no log."""
    if (folder / LOG).is_file():
        return f"the fit goes on in the background: {folder / LOG} has its progress"
    return "the fit goes on in another run of this image, which shows its progress"


def fit_of(image_reference: str, folder: Path, store: Store, pull: PullOptions) -> FitBehind:
    """Fit an image to its end, and return what came of it. Raises what a fit raises."""
    # Nothing else of `run` has a use for it.
    from vmtailor.pipeline.fit import run_fit
    from vmtailor.pipeline.options import FitOptions

    command = f"vmtailor fit {image_reference}" + (f" --arch {pull.architecture}" if pull.architecture else "")
    options = FitOptions(
        reference=image_reference, out=folder, store=store, command=command, memory_asked=False,
        architecture=pull.architecture, authfile=pull.authfile, max_image_bytes=pull.max_bytes,
    )  # fmt: skip
    run = run_fit(options)
    return FitBehind(image_reference, run.verified, "" if run.verified else "the container does not work in it")


def fit_first(image: Image, architecture: str, store: Store, pull: PullOptions) -> None:
    """Fit an image in the foreground, with its progress. Where another run fits it, that fit's end is waited for, and
    nothing more is done if the image then has a fit. Raises what a fit raises, and UserInputError where the image does
    not work in the machine that was made."""
    folder = _made(image, store)
    with locked(folder / _LOCK, f"the fit of {image.reference}"):
        if image_bundle.fitted(image, architecture, store) is not None:
            return
        (folder / LOG).unlink(missing_ok=True)
        try:
            end = fit_of(image.reference, folder / BUNDLE, store, pull)
        finally:
            shutil.rmtree(folder / BUNDLE, ignore_errors=True)
    if not end.verified:
        raise UserInputError(
            f"{image.reference} does not work in the machine that was made for it",
            hint=f"vmtailor fit {image.reference} -o FOLDER writes a report that says why",
        )
