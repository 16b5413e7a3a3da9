# SPDX-License-Identifier: Apache-2.0
"""The subject of a reference, prepared: the content tells its kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vmtailor.model.image import Image
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline import image_subject, symbol_check
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import Subject
from vmtailor.pipeline.systems import subjects, system_subject

#: An archive that can be read once.
_STDIN = "docker-archive:-"


@contextmanager
def prepare(options: FitOptions) -> Iterator[Subject[Any]]:
    """Read and fetch everything that is missing, for as long as the block lasts; an image is fetched once. Errors in
    the user's input are found before anything long begins."""
    symbol_check.require_known(options)
    system, image = look(options)
    if system:
        with system_subject.prepare(options, image) as subject:
            yield subject
        return
    refuse(options, OptionSubject.IMAGE, options.reference)
    yield image_subject.prepare(options, image)


def look(options: FitOptions) -> tuple[bool, Image | None]:
    """Return whether a reference names a system with an init of its own, and its image where that had to be fetched to
    tell. A system is a disk; a tree with an init, unless the user names another program; an image whose entry point is
    one. Raises as image_subject.fetched does."""
    if subjects.disk_path(options.reference) is not None:
        return True, None
    if options.entrypoint is not None or options.cmd is not None or options.reference == _STDIN:
        return False, None
    image = image_subject.fetched(options)
    return subjects.has_own_init(options.reference, image), image
