# SPDX-License-Identifier: Apache-2.0
"""One run of a task: a process of its own. Its argument is the file for its answer; its order comes from standard
input, and its output goes to its log."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import msgspec

from vmtailor.base import output
from vmtailor.base.cache import core_bookings
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.files import records, regular_files, temporary
from vmtailor.fleet.model.orders import Order, RunOutcome, TaskAnswer
from vmtailor.fleet.run import entry_fit
from vmtailor.fleet.run.entry_fit import Variables
from vmtailor.pipeline import run_environment, shared_results

#: Longest message of an error in an answer, in characters.
_MOST_TEXT = 1500


class TaskInput(msgspec.Struct):
    """The input of a run: the order's record, credentials of registries as their file has them, and the container's
    variables: `plain` those of the list, as JSON, `secret` those that this worker has looked up."""

    order: bytes
    credentials: str = ""
    plain: str = ""
    secret: dict[str, str] = {}


def run(given: TaskInput) -> TaskAnswer:
    """Do what is ordered, and return its answer, whatever happens."""
    order = records.from_bytes(Order, given.order, "the order")
    shared_results.begin()
    store = Store()
    core_bookings.begin(store.folder("locks"))
    try:
        with temporary.held_folder(store.folder("scratch")) as folder:
            authfile = folder / "auth.json" if given.credentials else None
            if authfile is not None:
                regular_files.write_atomic(authfile, given.credentials.encode(), private=True)
            plain = msgspec.json.decode(given.plain, type=dict[str, str]) if given.plain else {}
            run_environment.know(given.secret)
            variables = Variables(tuple(plain.items()), tuple(given.secret))
            return entry_fit.done(order, folder, authfile, variables)
    except HostError as error:
        return _failed(RunOutcome.HOST, error)
    except VmtailorError as error:
        return _failed(RunOutcome.FAILED, error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return TaskAnswer(RunOutcome.HOST, says=f"{where}{error.strerror or error}")
    except Exception as error:
        output.note(traceback.format_exc())
        return TaskAnswer(
            RunOutcome.FAILED, says=f"{type(error).__name__}: {error}"[:_MOST_TEXT], hint="report this bug"
        )


def _failed(outcome: RunOutcome, error: VmtailorError) -> TaskAnswer:
    output.note(f"error: {error.message}")
    if error.details:
        output.note(error.details)
    return TaskAnswer(outcome, says=error.message[:_MOST_TEXT], hint=error.hint[:_MOST_TEXT])


def _cpu_s() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    """Read the order, do it, and write the answer."""
    from vmtailor.cli.entry import escape_what_lacks

    escape_what_lacks()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=TaskInput)
    os.close(sys.stdin.fileno())
    began = time.monotonic()
    answer = run(given)
    answer = replace(answer, seconds=time.monotonic() - began, cpu_seconds=_cpu_s())
    records.save(answer, Path(sys.argv[1]), private=True)


if __name__ == "__main__":
    main()
