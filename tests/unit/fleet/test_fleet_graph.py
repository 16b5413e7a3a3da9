# SPDX-License-Identifier: Apache-2.0
"""The graph of a fleet and its conductor, with an engine that is made up: no process, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from vmtailor.base.errors import HostError
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import ImageStanding
from vmtailor.fleet.model.orders import Job, Order, RunOutcome, TaskAnswer
from vmtailor.fleet.run import conduct, graph
from vmtailor.fleet.run.conduct import Conductor
from vmtailor.fleet.run.dask_engine import Ended, SeenSlot
from vmtailor.fleet.run.graph import Graph, ImageWork, Task
from vmtailor.fleet.run.task_runner import Hidden, Needed
from vmtailor.model.fit_part import FitPart


def entries(*names: str, **more: object) -> list[FleetEntry]:
    return [FleetEntry(name, f"docker://{name}", **more) for name in names]  # type: ignore[arg-type]


def usual(order: Order) -> TaskAnswer:
    """An answer as the pipeline gives it, with one trace an image and one kernel for all whose name ends alike."""
    name = order.entry.name
    if order.part is FitPart.PREPARE:
        rest = (FitPart.BASELINE, FitPart.PLAN, FitPart.VERIFY, FitPart.MEASURE)
        return TaskAnswer(
            RunOutcome.DONE, ((FitPart.TRACE, f"t-{name}"), *((part, f"f-{name}") for part in rest)), seconds=1.0
        )
    if order.part is FitPart.PLAN:
        return TaskAnswer(RunOutcome.DONE, ((FitPart.KERNEL, f"k-{name[-1]}"),), seconds=1.0)
    if order.part is FitPart.SEAL:
        return TaskAnswer(RunOutcome.DONE, verified=True, figures=(("kernel_bytes", 1),), seconds=1.0)
    return TaskAnswer(RunOutcome.DONE, seconds=1.0)


@dataclass
class FakeEngine:
    """An engine with so many slots. `does`: what a run answers. `kills`: part → times that its worker dies of it."""

    count: int = 2
    does: Callable[[Order], TaskAnswer] = usual
    begun: list[tuple[str, Order, str]] = field(default_factory=list)
    running: dict[str, tuple[Order, str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    off: list[str] = field(default_factory=list)
    needed: list[Needed] = field(default_factory=list)

    def slots(self, *, now: bool = False) -> tuple[SeenSlot, ...]:
        return tuple(SeenSlot(f"tls://w{number}", f"w{number}", "d") for number in range(self.count))

    def begin(self, name: str, order: Order, worker: str, needed: Needed) -> None:
        assert worker not in {one for _, one in self.running.values()}, "one task a slot"
        assert name not in self.names, "no name twice"
        self.names.add(name)
        self.begun.append((name, order, worker))
        self.running[name] = (order, worker)
        self.needed.append(needed)

    def call_off(self, name: str) -> None:
        self.off.append(name)
        self.running.pop(name, None)

    def ended(self, timeout_s: float) -> list[Ended]:
        if not self.running:
            return []
        name = next(iter(self.running))
        order, _ = self.running.pop(name)
        return [Ended(name, self.does(order))]


def order_of(task: Task) -> Order:
    return Order(Job.FIT, task.part, task.works[0].entry, limit_s=task.limit_s)


def conducted(work: Graph, engine: FakeEngine) -> Graph:
    Conductor(work, engine, order_of).conduct()
    return work


def standing(work: Graph) -> dict[str, ImageStanding]:
    return {one.entry.name: work.standing(one) for one in work.works}


def parts(engine: FakeEngine) -> Counter[FitPart]:
    return Counter(order.part for _, order, _ in engine.begun)


def test_every_part_of_an_image_is_done_after_those_before_it() -> None:
    engine = FakeEngine(1)
    work = conducted(Graph(entries("a")), engine)
    order = [one.part for _, one, _ in engine.begun]
    assert sorted(order) == sorted(FitPart)
    for part, before in graph.FIT.items():
        assert all(order.index(one) < order.index(part) for one in before)
    assert standing(work) == {"a": ImageStanding.DONE}
    assert work.works[0].sealed is not None


def test_two_images_that_want_one_kernel_compile_it_once() -> None:
    engine = FakeEngine(3)
    work = conducted(Graph(entries("one-x", "two-x", "three-y")), engine)
    assert parts(engine) == Counter(dict.fromkeys(FitPart, 3) | {FitPart.KERNEL: 2})
    assert [one.took[FitPart.KERNEL][1] == "" for one in work.works].count(True) == 1
    assert set(standing(work).values()) == {ImageStanding.DONE}


def test_two_entries_of_one_image_share_all_but_what_is_written() -> None:
    def same(order: Order) -> TaskAnswer:
        if order.part is FitPart.PREPARE:
            keys = tuple(
                (part, "same") for part in FitPart if part not in (FitPart.PREPARE, FitPart.KERNEL, FitPart.SEAL)
            )
            return TaskAnswer(RunOutcome.DONE, keys)
        return usual(order)

    engine = FakeEngine(2, same)
    conducted(Graph(entries("a-x", "b-x")), engine)
    once = dict.fromkeys(FitPart, 1)
    assert parts(engine) == Counter(once | {FitPart.PREPARE: 2, FitPart.SEAL: 2})


def test_a_finished_fit_is_only_written() -> None:
    spare = tuple(part for part in FitPart if part not in (FitPart.PREPARE, FitPart.SEAL))
    engine = FakeEngine(1, lambda order: TaskAnswer(RunOutcome.DONE, spare=spare, verified=True))
    work = conducted(Graph(entries("a")), engine)
    assert [one.part for _, one, _ in engine.begun] == [FitPart.PREPARE, FitPart.SEAL]
    assert standing(work) == {"a": ImageStanding.DONE}


def test_the_highest_priority_comes_first_then_the_first_in_the_list() -> None:
    listed = [*entries("low"), *entries("high", priority=5), *entries("last")]
    engine = FakeEngine(1)
    conducted(Graph(listed), engine)
    names = list(dict.fromkeys(order.entry.name for _, order, _ in engine.begun))
    assert names == ["high", "low", "last"]


def test_a_shared_kernel_has_the_priority_of_the_most_urgent_image() -> None:
    work = Graph([*entries("a-x", "b-y"), *entries("c-x", priority=9)])
    for one in work.works:
        one.done.update((FitPart.PREPARE, FitPart.TRACE, FitPart.BASELINE))
    tasks = [Task(FitPart.KERNEL, "y", [work.works[1]]), Task(FitPart.KERNEL, "x", [work.works[0], work.works[2]])]
    assert min(tasks, key=Task.order).key == "x"


def test_an_image_that_cannot_be_fitted_costs_the_others_nothing() -> None:
    def does(order: Order) -> TaskAnswer:
        if order.entry.name == "bad":
            return TaskAnswer(RunOutcome.FAILED, says="not there", hint="check it", log="words")
        return usual(order)

    engine = FakeEngine(2, does)
    work = conducted(Graph(entries("a", "bad", "c")), engine)
    assert standing(work) == {"a": ImageStanding.DONE, "bad": ImageStanding.FAILED, "c": ImageStanding.DONE}
    failure = work.works[1].failure
    assert failure is not None
    assert (failure[0], failure[1].says) == (FitPart.PREPARE, "not there")
    assert parts(engine)[FitPart.PREPARE] == 3  # an error of its own is not tried again


def test_one_that_does_not_work_in_its_machine_has_failed_and_is_sealed() -> None:
    def does(order: Order) -> TaskAnswer:
        if order.part is FitPart.VERIFY:
            return TaskAnswer(RunOutcome.DONE, spare=(FitPart.MEASURE,))
        if order.part is FitPart.SEAL:
            return TaskAnswer(RunOutcome.DONE, verified=False, says="it crashed")
        return usual(order)

    engine = FakeEngine(1, does)
    work = conducted(Graph(entries("a")), engine)
    assert standing(work) == {"a": ImageStanding.FAILED}
    assert FitPart.MEASURE not in parts(engine)


def test_a_task_that_kills_its_worker_ends_after_three_runs_and_no_other_is_blamed() -> None:
    def does(order: Order) -> TaskAnswer:
        if order.entry.name == "killer" and order.part is FitPart.TRACE:
            return TaskAnswer(RunOutcome.DIED, says="its process died", log="last words")
        return usual(order)

    engine = FakeEngine(3, does)
    work = conducted(Graph(entries("a", "killer", "c")), engine)
    assert standing(work) == {"a": ImageStanding.DONE, "killer": ImageStanding.FAILED, "c": ImageStanding.DONE}
    runs = [one for _, one, _ in engine.begun if one.entry.name == "killer" and one.part is FitPart.TRACE]
    assert len(runs) == graph.STRIKES
    assert all(one.failure is None for one in work.works if one.entry.name != "killer")
    failure = work.works[1].failure
    assert failure is not None
    assert failure[1].log == "last words"


def test_a_run_that_died_is_tried_elsewhere_first() -> None:
    died: list[str] = []

    def does(order: Order) -> TaskAnswer:
        if order.part is FitPart.TRACE and len(died) < 2:
            died.append("x")
            return TaskAnswer(RunOutcome.DIED)
        return usual(order)

    engine = FakeEngine(3, does)
    work = conducted(Graph(entries("a")), engine)
    workers = [worker for _, order, worker in engine.begun if order.part is FitPart.TRACE]
    assert len(set(workers)) == 3
    assert standing(work) == {"a": ImageStanding.DONE}


def test_on_one_worker_it_is_tried_there_again() -> None:
    answers = iter([TaskAnswer(RunOutcome.HOST, says="no space"), TaskAnswer(RunOutcome.DIED)])

    def does(order: Order) -> TaskAnswer:
        return next(answers, usual(order)) if order.part is FitPart.PREPARE else usual(order)

    assert standing(conducted(Graph(entries("a")), FakeEngine(1, does))) == {"a": ImageStanding.DONE}


def test_a_run_that_was_called_off_counts_nothing() -> None:
    answers = iter([TaskAnswer(RunOutcome.NEVER)] * 5)

    def does(order: Order) -> TaskAnswer:
        return next(answers, usual(order)) if order.part is FitPart.TRACE else usual(order)

    assert standing(conducted(Graph(entries("a")), FakeEngine(2, does))) == {"a": ImageStanding.DONE}


def test_a_limit_ends_the_image_whose_it_is_alone() -> None:
    slow, quick = entries("slow", limit_s=2.0)[0], entries("quick")[0]

    def does(order: Order) -> TaskAnswer:
        answer = usual(order)
        if order.entry.name == "slow" and order.part is FitPart.TRACE:
            assert order.limit_s is not None
            assert order.limit_s <= 1.0
            return TaskAnswer(RunOutcome.LATE, seconds=order.limit_s)
        return answer

    work = conducted(Graph([slow, quick]), FakeEngine(2, does))
    assert standing(work) == {"slow": ImageStanding.FAILED, "quick": ImageStanding.DONE}
    failure = work.works[0].failure
    assert failure is not None
    assert failure[1].says == "it took longer than its limit of 2 s"


def test_a_shared_task_has_the_limit_of_the_most_patient() -> None:
    one, other = ImageWork(0, entries("a", limit_s=5.0)[0]), ImageWork(1, entries("b", limit_s=50.0)[0])
    assert Task(FitPart.KERNEL, "k", [one, other]).limit_s == 50.0
    assert Task(FitPart.KERNEL, "k", [one, ImageWork(2, entries("c")[0])]).limit_s is None
    assert Task(FitPart.KERNEL, "k", [one]).limit_s == 5.0


def test_what_only_a_failed_image_waits_for_is_not_begun_and_what_runs_is_called_off() -> None:
    work = Graph(entries("a"))
    task = work.next_for("w0", ["w0"], 0.0)
    assert task is not None
    work.ended(task, usual(order_of(task)))
    trace = work.next_for("w0", ["w0"], 0.0)
    assert trace is not None
    work.ended(trace, usual(order_of(trace)))
    first, second = (work.next_for(name, ["w0", "w1"], 0.0) for name in ("w0", "w1"))
    assert first is not None
    assert second is not None
    work.ended(first, TaskAnswer(RunOutcome.FAILED, says="no"))
    assert second.works == []
    assert not work.is_over  # until the other run has ended
    work.ended(second, TaskAnswer(RunOutcome.NEVER))
    assert work.is_over


def test_secrets_go_with_the_orders_and_are_in_no_order() -> None:
    engine = FakeEngine(1)
    secret = Hidden("canary")
    needed = Needed((secret,), secret, secret)
    Conductor(Graph(entries("a")), engine, order_of, needed=lambda entry: needed).conduct()
    assert engine.needed
    assert all(one == needed for one in engine.needed)
    assert "canary" not in repr(engine.begun)
    assert "canary" not in repr(engine.needed)


def test_nobody_able_is_said_with_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 20))
    work, engine = Graph(entries("a")), FakeEngine(2)
    conductor = Conductor(
        work, engine, order_of, lacks=lambda slot: "gcc: 12 here, 14 there", clock=lambda: next(clock)
    )
    with pytest.raises(HostError, match=r"no worker is able .*w0: gcc: 12 here, 14 there"):
        conductor.conduct()
    engine.count = 0
    with pytest.raises(HostError, match=f"no worker has come within {conduct.PATIENCE_S:.0f} s"):
        Conductor(work, engine, order_of, clock=lambda: next(clock)).conduct()


def test_what_is_interrupted_is_called_off() -> None:
    def does(order: Order) -> TaskAnswer:
        raise KeyboardInterrupt

    engine = FakeEngine(2, does)
    with pytest.raises(KeyboardInterrupt):
        Conductor(Graph(entries("a", "b")), engine, order_of).conduct()
    assert len(engine.off) == 2


def test_a_large_fleet_is_conducted_quickly() -> None:
    engine = FakeEngine(50)
    work = conducted(Graph(entries(*(f"i{number}" for number in range(500)))), engine)
    assert set(standing(work).values()) == {ImageStanding.DONE}
    assert parts(engine)[FitPart.KERNEL] == 10
