# SPDX-License-Identifier: Apache-2.0
"""Files in, timeline out: reading, joining, judging, advice."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from vmtailor.analysis.bootlog.clean import printable
from vmtailor.analysis.bootlog.reader import read_path
from vmtailor.analysis.changes.advice import advise
from vmtailor.analysis.timeline.timeline import build
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.timeline import Timeline

#: What files are called that are of no kind known here.
NO_LOGS = ("not recognised", "empty", "SVG", "JSON", "tar archive without a bootchart")


def require_log(timeline: Timeline) -> Timeline:
    """The timeline. Raises UserInputError where none of its files is a log or a chart."""
    if timeline.files and all(file.format in NO_LOGS for file in timeline.files):
        what = ", ".join(f"{file.path} ({file.format})" for file in timeline.files[:4])
        raise UserInputError(
            f"no log and no chart of a boot: {printable(what)}",
            hint="docs/reference/boot-formats.md lists what can be read",
        )
    return timeline


def analyze(paths: Sequence[Path], boot: int = 0) -> Timeline:
    """The timeline of one boot from its files. `boot` chooses among several in one log: 1 the first, 0 the last.

    Raises UserInputError for files that cannot be read; what cannot be understood becomes a warning in the timeline."""
    enabled = gc.isenabled()
    gc.disable()  # a long log makes a million rows that live to the end: looking for cycles among them doubles the time
    try:
        sources = [source for path in paths for source in read_path(path, boot)]
        messages = [message for source in sources for message in source.messages]
        timeline = build(sources)
        return advise(timeline, messages)
    finally:
        if enabled:
            gc.enable()
