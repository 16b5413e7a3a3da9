# SPDX-License-Identifier: Apache-2.0
"""The graph of a fleet's work, which grows: each answer has the keys of the tasks that come next. A task that several
images want is done once. Pure: it starts nothing, and asks no clock."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import ImageStanding
from vmtailor.fleet.model.orders import RunOutcome, TaskAnswer
from vmtailor.model.fit_part import FitPart

#: Runs of a task that end by its death, or by an error of its host, before it is given up.
STRIKES = 3
#: Part → the parts that come before it.
FIT: Mapping[FitPart, tuple[FitPart, ...]] = {
    FitPart.PREPARE: (),
    FitPart.TRACE: (FitPart.PREPARE,),
    FitPart.BASELINE: (FitPart.TRACE,),
    FitPart.PLAN: (FitPart.TRACE,),
    FitPart.KERNEL: (FitPart.PLAN,),
    FitPart.VERIFY: (FitPart.KERNEL,),
    FitPart.MEASURE: (FitPart.VERIFY, FitPart.BASELINE),
    FitPart.SEAL: (FitPart.MEASURE,),
}
#: Work of one part: a bundle verified, or fitted again.
SINGLE: Mapping[FitPart, tuple[FitPart, ...]] = {FitPart.SEAL: ()}


@dataclass(eq=False)
class ImageWork:
    """One image on its way. `done`: parts that need no more work. `spent_s`: seconds of the runs that it waited for.
    `took`: part → its seconds and its worker, empty where another image's task did it. `failure`: the part and the
    answer that ended it."""

    index: int
    entry: FleetEntry
    done: set[FitPart] = field(default_factory=set)
    keys: dict[FitPart, str] = field(default_factory=dict)
    spent_s: float = 0.0
    took: dict[FitPart, tuple[float, str]] = field(default_factory=dict)
    failure: tuple[FitPart, TaskAnswer] | None = None
    sealed: TaskAnswer | None = None

    @property
    def left_s(self) -> float | None:
        """Return the seconds that it may still take; None for no limit."""
        return None if self.entry.limit_s is None else max(0.0, self.entry.limit_s - self.spent_s)


@dataclass(eq=False)
class Task:
    """One task. `works`: those that wait for it, the first one's entry being in its order. `dead`: answers of runs that
    died or that their host failed. `shunned`: workers that failed it."""

    part: FitPart
    key: str
    works: list[ImageWork]
    runs: int = 0
    dead: list[TaskAnswer] = field(default_factory=list)
    shunned: set[str] = field(default_factory=set)
    worker: str = ""
    since: float = 0.0

    @property
    def name(self) -> str:
        """Return the name of its next or present run."""
        return f"{self.part}-{self.key[:40]}-{self.runs}"

    @property
    def limit_s(self) -> float | None:
        """Return the longest that it may take: what the most patient of its images has left."""
        left = [one.left_s for one in self.works]
        known = [one for one in left if one is not None]
        return max(known) if len(known) == len(left) and known else None

    def order(self) -> tuple[int, int, int]:
        """Return what tasks are sorted by: the highest priority, then the first in the list, its last part."""
        first = min(self.works, key=lambda one: (-one.entry.priority, one.index))
        return -first.entry.priority, first.index, -list(FitPart).index(self.part)


class Graph:
    """The work on all images. `needs`: the parts, each with those before it."""

    def __init__(self, entries: Sequence[FleetEntry], needs: Mapping[FitPart, tuple[FitPart, ...]] = FIT) -> None:
        self.works = [ImageWork(index, entry) for index, entry in enumerate(entries)]
        self._needs = needs
        self._open: dict[tuple[FitPart, str], Task] = {}
        self._answers: dict[tuple[FitPart, str], TaskAnswer] = {}
        #: Waiting tasks, the first ones first. A task may be in it several times: one whose place has changed is stale.
        self._queue: list[tuple[tuple[int, int, int], int, Task]] = []
        self._queued = 0
        for work in self.works:
            self._advance(work)

    @property
    def is_over(self) -> bool:
        return not self._open

    @property
    def running(self) -> list[Task]:
        return [task for task in self._open.values() if task.worker]

    @property
    def waiting(self) -> list[Task]:
        return [task for task in self._open.values() if not task.worker]

    def standing(self, work: ImageWork) -> ImageStanding:
        """Return how an image stands."""
        if work.failure is not None:
            return ImageStanding.FAILED
        if FitPart.SEAL in work.done:
            return ImageStanding.DONE
        return ImageStanding.RUNNING if self.tasks_of(work) else ImageStanding.WAITING

    def tasks_of(self, work: ImageWork) -> list[Task]:
        """Return the running tasks that an image waits for."""
        return [task for task in self.running if work in task.works]

    def left(self, work: ImageWork) -> list[FitPart]:
        """Return the parts of an image that are still to be done."""
        return [part for part in self._needs if part not in work.done]

    def next_for(self, worker: str, others: Collection[str], now: float) -> Task | None:
        """Begin the first task that a free worker may do, and return it. `others`: all workers; one that failed a task
        gets it again only where no other is left."""
        passed = []
        found = None
        while self._queue and found is None:
            place, number, task = heapq.heappop(self._queue)
            if task.worker or self._open.get((task.part, task.key)) is not task or place != task.order():
                continue
            if worker in task.shunned and not task.shunned.issuperset(others):
                passed.append((place, number, task))
            else:
                found = task
        for one in passed:
            heapq.heappush(self._queue, one)
        if found is not None:
            found.runs += 1
            found.worker, found.since = worker, now
        return found

    def _queue_up(self, task: Task) -> None:
        self._queued += 1
        heapq.heappush(self._queue, (task.order(), self._queued, task))

    def ended(self, task: Task, answer: TaskAnswer) -> None:
        """Take the answer of a run."""
        worker, task.worker = task.worker, ""
        for work in task.works:
            work.spent_s += answer.seconds
        if not task.works:  # nobody wants it any more
            del self._open[task.part, task.key]
            return
        if answer.outcome is RunOutcome.NEVER:
            self._queue_up(task)
            return
        if answer.outcome in (RunOutcome.DIED, RunOutcome.HOST):
            task.dead.append(answer)
            task.shunned.add(worker)
            if len(task.dead) < STRIKES:
                self._out_of_time(task)
                if task.works:
                    self._queue_up(task)
                return
        if answer.outcome is RunOutcome.LATE:
            self._out_of_time(task, answer)
            if task.works:
                self._queue_up(task)
            return
        del self._open[task.part, task.key]
        if answer.outcome is RunOutcome.DONE:
            self._answers[task.part, task.key] = answer
            for number, work in enumerate(task.works):
                work.took[task.part] = (answer.seconds, worker if number == 0 else "")
                self._take(work, task.part, answer)
        else:
            for work in task.works:
                self._fail(work, task.part, answer)

    def _out_of_time(self, task: Task, answer: TaskAnswer | None = None) -> None:
        """End the images of a task that have no time left."""
        late = [work for work in task.works if work.left_s is not None and work.left_s <= 0]
        for work in late if late or answer is None else list(task.works):
            said = f"it took longer than its limit of {work.entry.limit_s or 0:.0f} s"
            log = answer.log if answer is not None else task.dead[-1].log
            self._fail(work, task.part, TaskAnswer(RunOutcome.LATE, says=said, log=log))

    def _take(self, work: ImageWork, part: FitPart, answer: TaskAnswer) -> None:
        work.done.add(part)
        work.done.update(answer.spare)
        work.keys.update(answer.keys)
        if part is FitPart.SEAL:
            work.sealed = answer
            if answer.verified is False:
                work.failure = (part, answer)
        if work.failure is None:
            self._advance(work)

    def _fail(self, work: ImageWork, part: FitPart, answer: TaskAnswer) -> None:
        """End the work on an image: what only it waits for is not begun."""
        work.failure = (part, answer)
        for name, task in list(self._open.items()):
            if work in task.works:
                task.works.remove(work)
            if not task.works and not task.worker:
                del self._open[name]

    def _advance(self, work: ImageWork) -> None:
        """Want what can be done now."""
        for part, before in self._needs.items():
            if part in work.done or not work.done.issuperset(before):
                continue
            key = work.keys.get(part) or f"entry-{work.index}"
            if (part, key) in self._answers:
                work.took[part] = (0.0, "")
                self._take(work, part, self._answers[part, key])
                return  # it has gone on from there
            task = self._open.setdefault((part, key), Task(part, key, []))
            if work not in task.works:
                task.works.append(work)
                if not task.worker:
                    self._queue_up(task)
