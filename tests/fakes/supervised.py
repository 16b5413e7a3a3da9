# SPDX-License-Identifier: Apache-2.0
"""A supervised run without the program that words its end: the record of the end is read here, so that a test sees the
error itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from vmtailor.booting import run_end, run_orders
from vmtailor.booting.run_orders import RunOrders
from vmtailor.drivers.host import tty
from vmtailor.pipeline import machine_run
from vmtailor.pipeline.machine_run import RunOptions, Watching


def supervise(orders: RunOrders, record: Path) -> int:
    """Return the supervisor's exit status, with our standard streams and directly below us; an end that needs words
    leaves its record there."""
    explain = ("/bin/sh", "-c", 'cat <&3 >"$0"; exit 125', str(record))
    descriptor = run_orders.in_memory(replace(orders, explain=explain).text())
    told = (orders.told,) if orders.told else ()
    try:
        # Our own standard streams, even where one of them is closed.
        return subprocess.Popen([run_orders.program(), str(descriptor)], pass_fds=(descriptor, *told)).wait()
    finally:
        os.close(descriptor)


def run(options: RunOptions, watching: Watching | None = None) -> int:
    """Run a container's bundle to its end as `machine_run.run` does, and return its exit status or raise the error."""
    tty.require_streams()
    orders, context = machine_run.orders_of(options, watching)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "end")
        status = supervise(orders, record)
        if record.is_file():
            with os.fdopen(os.dup(2), "w") as words, contextlib.redirect_stderr(words):
                return machine_run.ended(run_end.parse(record.read_bytes()), context)
    return status
