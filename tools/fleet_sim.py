# SPDX-License-Identifier: Apache-2.0
"""`make fleet-sim`: a fleet on the real scheduler, with workers that only wait: what a task costs, how long all takes.

    tools/fleet_sim.py [--tasks 2000] [--workers 50] [--seconds 30] [RUN.json ...]

Durations are drawn from the stages of recorded fits (run.json of bundles; without any, of such a fit), and scaled so
that all workers are busy for about so many seconds. The makespan stands beside that of greedy list scheduling of the
same tasks, where a free worker begins the first task that can begin, and nothing takes time but tasks."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base import output
from vmtailor.base.files import records, temporary
from vmtailor.fleet.model.addresses import LOOPBACK, Address
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.orders import Job, Order, RunOutcome, TaskAnswer
from vmtailor.fleet.run import dask_engine, engine_settings, local_cluster, worker_slot
from vmtailor.fleet.run.certificates import Certificates
from vmtailor.fleet.run.conduct import Conductor
from vmtailor.fleet.run.graph import Graph, Task
from vmtailor.fleet.run.worker_slots import DIGEST_MARK
from vmtailor.model.fit_part import FitPart

#: Stage of a fit's record, and the share of it that a part takes.
SHARES = {
    FitPart.PREPARE: ("prepare", 1.0), FitPart.TRACE: ("trace", 1.0), FitPart.BASELINE: ("measure", 0.5),
    FitPart.PLAN: ("plan, build, verify", 0.05), FitPart.KERNEL: ("plan, build, verify", 0.75),
    FitPart.VERIFY: ("plan, build, verify", 0.2), FitPart.MEASURE: ("measure", 0.5), FitPart.SEAL: ("price", 1.0),
}  # fmt: skip
#: Seconds of a fit's stages, where no record is given.
USUAL = {"prepare": 8.0, "trace": 40.0, "plan, build, verify": 240.0, "measure": 60.0, "price": 5.0}
#: Images that want one kernel; workers of one process; variable with the durations, as JSON.
SHARED, PER_PROCESS, DURATIONS = 3, 25, "VMTAILOR_FLEET_SIM"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Durations:
    """Seconds of each part in each recorded fit, and what they are multiplied by."""

    rows: list[dict[str, float]]
    scale: float = 1.0

    def of(self, part: FitPart, name: str) -> float:
        """Return the seconds of a part of an image, the same each time."""
        stage, share = SHARES[part]
        number = int(name.removeprefix("image-"))
        own = 0.7 + 0.6 * ((number * 2654435761) % 1000) / 1000  # images differ, records are few
        return self.scale * share * own * self.rows[number % len(self.rows)].get(stage, 1.0)


def recorded(files: Sequence[Path]) -> Durations:
    """Return the durations of recorded fits that began with an empty cache: those whose kernel took a while."""
    rows = [dict(json.loads(file.read_bytes())["stage_seconds"]) for file in files]
    return Durations([row for row in rows if row.get("plan, build, verify", 0.0) > 30.0] or [USUAL])


def answer_of(order: Order, seconds: float) -> TaskAnswer:
    """Return the answer of a part, with keys as the pipeline makes them."""
    name = order.entry.name
    keys: tuple[tuple[FitPart, str], ...] = ()
    if order.part is FitPart.PREPARE:
        keys = tuple((part, f"{part}-{name}") for part in FitPart if part not in (FitPart.KERNEL, FitPart.SEAL))
    if order.part is FitPart.PLAN:
        keys = ((FitPart.KERNEL, f"kernel-{int(name.removeprefix('image-')) // SHARED}"),)
    verified = True if order.part is FitPart.SEAL else None
    return TaskAnswer(RunOutcome.DONE, keys=keys, verified=verified, seconds=seconds)


async def stub(key: str, order_bytes: bytes, _needed: object) -> None:
    """Wait as long as a task would take, and answer."""
    order = records.from_bytes(Order, order_bytes)
    seconds = Durations(**json.loads(os.environ[DURATIONS])).of(order.part, order.entry.name)
    await asyncio.sleep(seconds)
    worker_slot.tell(key, answer_of(order, seconds))


def serve(address: Address, shown: Certificates, first: int, count: int) -> None:
    """Be so many workers, until the scheduler ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    engine_settings.apply()
    from distributed import Worker

    async def serve_all() -> None:
        with temporary.held_folder() as folder:
            workers = [
                Worker(
                    address.text, nthreads=1, name=f"w{first + number}{DIGEST_MARK}sim", security=shown.security(),
                    protocol="tls://", host=LOOPBACK, dashboard=False, local_directory=str(folder), memory_limit=0,
                    dashboard_address=engine_settings.NO_DASHBOARD,
                )
                for number in range(count)
            ]  # fmt: skip
            async with contextlib.AsyncExitStack() as held:
                for worker in workers:
                    await held.enter_async_context(worker)
                await workers[0].finished()

    asyncio.run(serve_all())


@contextlib.contextmanager
def workers(address: Address, shown: Certificates, count: int) -> Iterator[None]:
    """Keep so many workers in a few processes while the block runs."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=serve, args=(address, shown, first, min(PER_PROCESS, count - first)))
        for first in range(0, count, PER_PROCESS)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


@dataclass(order=True)
class _End:
    at: float
    number: int
    task: Task = field(compare=False)
    answer: TaskAnswer = field(compare=False)


def greedy(entries: Sequence[FleetEntry], count: int, durations: Durations) -> float:
    """Return the makespan of greedy list scheduling, in seconds."""
    work, now, number = Graph(entries), 0.0, 0
    free = [f"w{one}" for one in range(count)]
    ends: list[_End] = []
    while not work.is_over:
        while free and (task := work.next_for(free[-1], free, now)) is not None:
            free.pop()
            number += 1
            order = order_of(task)
            seconds = durations.of(order.part, order.entry.name)
            heapq.heappush(ends, _End(now + seconds, number, task, answer_of(order, seconds)))
        end = heapq.heappop(ends)
        now = end.at
        free.append(end.task.worker)
        work.ended(end.task, end.answer)
    return now


def order_of(task: Task) -> Order:
    """Return the order of a task."""
    return Order(Job.FIT, task.part, task.works[0].entry)


def spent_s(pid: int) -> float:
    """Return the processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(entries: Sequence[FleetEntry], count: int, durations: Durations) -> None:
    """Conduct all of it, and print what it took."""
    best = greedy(entries, count, durations)
    os.environ[DURATIONS] = json.dumps({"rows": durations.rows, "scale": durations.scale})
    sent: list[int] = []
    with (
        local_cluster.started(0, "") as local,
        workers(local.address, local.shown, count),
        dask_engine.connected(local.address, local.shown) as engine,
    ):
        engine.work = stub
        pid = local.scheduler_pid
        while len(engine.slots(now=True)) < count:
            time.sleep(0.5)
        output.note(f"{count} workers are there")
        work = Graph(entries)

        def ordered(task: Task) -> Order:
            order = order_of(task)
            sent.append(len(records.to_bytes(order)) + len(records.to_bytes(answer_of(order, 1.0))))
            return order

        began, before, held = time.monotonic(), spent_s(pid), memory_bytes(pid)
        own = time.process_time()
        Conductor(work, engine, ordered).conduct()
        took, cost = time.monotonic() - began, spent_s(pid) - before
        tasks = len(sent)
        output.say(f"{tasks} tasks on {count} workers, {len(entries)} images, {os.cpu_count()} processors here")
        output.say(f"scheduler: {1000 * cost / tasks:.2f} ms of processor time a task")
        output.say(f"client: {1000 * (time.process_time() - own) / tasks:.2f} ms of processor time a task")
        output.say(f"orders and answers: {sum(sent) / tasks:.0f} bytes a task")
        output.say(f"scheduler's memory: {(memory_bytes(pid) - held) / tasks / 1000:.1f} kB more a task")
        output.say(f"makespan: {took:.1f} s; greedy list schedule: {best:.1f} s; ratio {took / best:.2f}")


def main(arguments: Sequence[str]) -> None:
    """Simulate a fleet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", type=Path, nargs="*", help="run.json of bundles, whose stages are drawn from")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long all workers are busy")
    asked = parser.parse_args(arguments)
    durations = recorded(asked.records)
    images = max(1, round(asked.tasks / (len(FitPart) - 1 + 1 / SHARED)))
    entries = [FleetEntry(f"image-{number}", f"docker://image-{number}") for number in range(images)]
    whole = sum(
        durations.of(part, one.name)
        for number, one in enumerate(entries)
        for part in FitPart
        if part is not FitPart.KERNEL or number % SHARED == 0
    )
    durations.scale = asked.seconds * asked.workers / whole
    run(entries, asked.workers, durations)


if __name__ == "__main__":
    # Functions of __main__ would be sent as code; those of a module are sent by name, and the scheduler looks for it.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    importlib.import_module("fleet_sim").main(sys.argv[1:])
