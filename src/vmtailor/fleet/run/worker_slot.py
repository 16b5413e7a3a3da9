# SPDX-License-Identifier: Apache-2.0
"""One slot of a worker: a process of the engine that does one task at a time. A slot that is killed takes one task with
it, and no other one can be blamed. Its arguments: the scheduler's address, the certificates' folder, its name."""

from __future__ import annotations

import asyncio
import importlib
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base import output
from vmtailor.base.concurrency import Stop
from vmtailor.base.errors import ExitCode, HostError
from vmtailor.base.files import records, temporary
from vmtailor.fleet.model import addresses
from vmtailor.fleet.model.addresses import LOOPBACK, Address
from vmtailor.fleet.model.orders import Order, RunOutcome, TaskAnswer
from vmtailor.fleet.run import certificates, engine_settings, task_runner, worker_values
from vmtailor.fleet.run.certificates import Certificates
from vmtailor.fleet.run.task_runner import Needed

#: Seconds within which a slot reaches its scheduler, or is given up.
REACHED_S = 30
#: The engine's topic of answers: who ordered a run reads there what came of it.
ANSWERS = "vmtailor-answers"
#: Ends the task of this process.
_stop = Stop()
#: The program of its tasks.
task_program: Sequence[str] = task_runner.PROGRAM


def carry_out(key: str, order: bytes, needed: Needed) -> None:
    """Do a task, as the engine's thread calls it, and tell its answer. Raises nothing that a log would show. `key`: by
    which the engine knows the task. Variables whose values the list has not are looked up here."""
    from distributed import get_worker

    tasks = get_worker().state.tasks

    def is_called_off() -> bool:
        task = tasks.get(key)
        return task is None or task.state in ("cancelled", "resumed")

    asked = records.from_bytes(Order, order, "the order")
    try:
        looked_up = worker_values.found(asked.entry)
    except HostError as error:
        return tell(key, TaskAnswer(RunOutcome.HOST, says=error.message, hint=error.hint))
    answer = task_runner.run(
        asked, needed, looked_up, is_called_off=is_called_off, stop=_stop, program=task_program,
    )  # fmt: skip
    return tell(key, answer)


def tell(key: str, answer: TaskAnswer) -> None:
    """Tell what came of a run, from within it. It reaches the client before the news that the run has ended: both
    take the same stream, and nothing has to be fetched from this worker."""
    from distributed import get_worker

    get_worker().log_event(ANSWERS, [key, records.to_bytes(answer)])


def _reaching(scheduler: Address) -> str:
    """Return the address of this host that its scheduler sees it by: what listens there is reached by nobody else."""
    if scheduler.is_loopback:
        return LOOPBACK
    family, kind, protocol, _, target = socket.getaddrinfo(scheduler.host, scheduler.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as one:  # sends nothing
        one.connect(target)
        return str(one.getsockname()[0])


async def _serve(scheduler: Address, shown: Certificates, name: str, folder: Path) -> None:
    from distributed import Worker

    async with Worker(
        scheduler.text, nthreads=1, name=name, security=shown.security(), protocol="tls://", host=_reaching(scheduler),
        dashboard=False, dashboard_address=engine_settings.NO_DASHBOARD, local_directory=str(folder), memory_limit=0,
        death_timeout=REACHED_S,
    ) as worker:  # fmt: skip
        loop = asyncio.get_running_loop()
        ended = asyncio.ensure_future(worker.finished())
        loop.add_signal_handler(signal.SIGTERM, ended.cancel)
        try:
            await ended
        finally:
            _stop.stop()


def main() -> None:
    """Serve until the scheduler ends, or until this process is told to."""
    address, folder, name = sys.argv[1:]
    engine_settings.apply()
    task_runner.adopt_orphans()
    scheduler, shown = addresses.parse(address), certificates.found(Path(folder))
    try:
        with temporary.held_folder() as place:
            asyncio.run(_serve(scheduler, shown, name, place))
    except asyncio.CancelledError:
        return
    except (TimeoutError, OSError, RuntimeError) as error:
        why = error.__cause__ or error
        output.note(f"error: no scheduler answers at {address}: {why}")
        sys.exit(ExitCode.HOST)


if __name__ == "__main__":
    # Orders name functions of the module, which is not this one: it would have another switch.
    importlib.import_module("vmtailor.fleet.run.worker_slot").main()
