# SPDX-License-Identifier: Apache-2.0
"""The end of `run` that needs words: the supervisor of a machine becomes this program, with its record of the end at
descriptor 3. Its argument is what the run was, as JSON (`EndContext`)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vmtailor.cli.entry import escape_what_lacks
from vmtailor.cli.interrupt import leave_at_interrupt, work_begins

if TYPE_CHECKING:
    from vmtailor.pipeline.machine_run import EndContext

#: The descriptor of the record.
RECORD = 3


def _finish() -> NoReturn:
    from vmtailor.booting import run_end
    from vmtailor.pipeline.machine_run import EndContext, ended

    context = EndContext(**json.loads(sys.argv[1]))
    with os.fdopen(RECORD, "rb") as file:
        end = run_end.parse(file.read())
    try:
        sys.exit(ended(end, context))
    finally:
        if context.told and end.listening:  # before init has spoken, nothing was watched
            _show_refused(context)


def _show_refused(context: EndContext) -> None:
    from vmtailor.base.files import records
    from vmtailor.cli.tables import refused_table
    from vmtailor.pipeline.run_watch import Watch

    watch, out = Watch(Path(context.bundle)), Path(context.out) if context.out else None
    with os.fdopen(context.told, "rb") as file:
        file.seek(0)
        watch.hear(file.read())
    if out is not None:
        records.save(watch.observed(), out)
    refused_table.show(watch.findings(), Path(context.bundle), out)


def main() -> None:
    """Word the end, and exit with the status of `run`."""
    leave_at_interrupt()
    escape_what_lacks()
    from vmtailor.cli.main import finish

    try:
        work_begins()
        finish(_finish, ("run",))
    finally:
        leave_at_interrupt()


if __name__ == "__main__":
    main()
