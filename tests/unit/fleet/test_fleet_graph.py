# SPDX-License-Identifier: Apache-2.0
"""The graph of a fleet and its conductor, with an engine that is made up: no process, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from vmtailor.base.errors import HostError
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import Standing
from vmtailor.fleet.model.orders import Answer, Job, Order, Outcome
from vmtailor.fleet.run import conduct, graph
from vmtailor.fleet.run.conduct import Conductor, Needed
from vmtailor.fleet.run.dask_engine import Ended, Seen
from vmtailor.fleet.run.graph import Graph, Task, Work
from vmtailor.fleet.run.task_runner import Hidden
from vmtailor.model.fit_part import Part


def entries(*names: str, **more: object) -> list[FleetEntry]:
    return [FleetEntry(name, f"docker://{name}", **more) for name in names]  # type: ignore[arg-type]


def usual(order: Order) -> Answer:
    """An answer as the pipeline gives it, with one trace an image and one kernel for all whose name ends alike."""
    name = order.entry.name
    if order.part is Part.PREPARE:
        rest = (Part.BASELINE, Part.PLAN, Part.VERIFY, Part.MEASURE)
        return Answer(Outcome.DONE, ((Part.TRACE, f"t-{name}"), *((part, f"f-{name}") for part in rest)), seconds=1.0)
    if order.part is Part.PLAN:
        return Answer(Outcome.DONE, ((Part.KERNEL, f"k-{name[-1]}"),), seconds=1.0)
    if order.part is Part.SEAL:
        return Answer(Outcome.DONE, verified=True, figures=(("kernel_bytes", 1),), seconds=1.0)
    return Answer(Outcome.DONE, seconds=1.0)


@dataclass
class FakeEngine:
    """An engine with so many slots. `does`: what a run answers. `kills`: part → times that its worker dies of it."""

    count: int = 2
    does: Callable[[Order], Answer] = usual
    begun: list[tuple[str, Order, str]] = field(default_factory=list)
    running: dict[str, tuple[Order, str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    off: list[str] = field(default_factory=list)
    needed: list[tuple[Sequence[Hidden], Hidden | None]] = field(default_factory=list)

    def slots(self, *, now: bool = False) -> tuple[Seen, ...]:
        return tuple(Seen(f"tls://w{number}", f"w{number}", "d") for number in range(self.count))

    def begin(self, name: str, order: Order, worker: str, secrets: Sequence[Hidden], login: Hidden | None) -> None:
        assert worker not in {one for _, one in self.running.values()}, "one task a slot"
        assert name not in self.names, "no name twice"
        self.names.add(name)
        self.begun.append((name, order, worker))
        self.running[name] = (order, worker)
        self.needed.append((secrets, login))

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


def standing(work: Graph) -> dict[str, Standing]:
    return {one.entry.name: work.standing(one) for one in work.works}


def parts(engine: FakeEngine) -> Counter[Part]:
    return Counter(order.part for _, order, _ in engine.begun)


def test_every_part_of_an_image_is_done_after_those_before_it() -> None:
    engine = FakeEngine(1)
    work = conducted(Graph(entries("a")), engine)
    order = [one.part for _, one, _ in engine.begun]
    assert sorted(order) == sorted(Part)
    for part, before in graph.FIT.items():
        assert all(order.index(one) < order.index(part) for one in before)
    assert standing(work) == {"a": Standing.DONE}
    assert work.works[0].sealed is not None


def test_two_images_that_want_one_kernel_compile_it_once() -> None:
    engine = FakeEngine(3)
    work = conducted(Graph(entries("one-x", "two-x", "three-y")), engine)
    assert parts(engine) == Counter(dict.fromkeys(Part, 3) | {Part.KERNEL: 2})
    assert [one.took[Part.KERNEL][1] == "" for one in work.works].count(True) == 1
    assert set(standing(work).values()) == {Standing.DONE}


def test_two_entries_of_one_image_share_all_but_what_is_written() -> None:
    def same(order: Order) -> Answer:
        if order.part is Part.PREPARE:
            keys = tuple((part, "same") for part in Part if part not in (Part.PREPARE, Part.KERNEL, Part.SEAL))
            return Answer(Outcome.DONE, keys)
        return usual(order)

    engine = FakeEngine(2, same)
    conducted(Graph(entries("a-x", "b-x")), engine)
    once = dict.fromkeys(Part, 1)
    assert parts(engine) == Counter(once | {Part.PREPARE: 2, Part.SEAL: 2})


def test_a_finished_fit_is_only_written() -> None:
    spare = tuple(part for part in Part if part not in (Part.PREPARE, Part.SEAL))
    engine = FakeEngine(1, lambda order: Answer(Outcome.DONE, spare=spare, verified=True))
    work = conducted(Graph(entries("a")), engine)
    assert [one.part for _, one, _ in engine.begun] == [Part.PREPARE, Part.SEAL]
    assert standing(work) == {"a": Standing.DONE}


def test_the_highest_priority_comes_first_then_the_first_in_the_list() -> None:
    listed = [*entries("low"), *entries("high", priority=5), *entries("last")]
    engine = FakeEngine(1)
    conducted(Graph(listed), engine)
    names = list(dict.fromkeys(order.entry.name for _, order, _ in engine.begun))
    assert names == ["high", "low", "last"]


def test_a_shared_kernel_has_the_priority_of_the_most_urgent_image() -> None:
    work = Graph([*entries("a-x", "b-y"), *entries("c-x", priority=9)])
    for one in work.works:
        one.done.update((Part.PREPARE, Part.TRACE, Part.BASELINE))
    tasks = [Task(Part.KERNEL, "y", [work.works[1]]), Task(Part.KERNEL, "x", [work.works[0], work.works[2]])]
    assert min(tasks, key=Task.order).key == "x"


def test_an_image_that_cannot_be_fitted_costs_the_others_nothing() -> None:
    def does(order: Order) -> Answer:
        if order.entry.name == "bad":
            return Answer(Outcome.FAILED, says="not there", hint="check it", log="words")
        return usual(order)

    engine = FakeEngine(2, does)
    work = conducted(Graph(entries("a", "bad", "c")), engine)
    assert standing(work) == {"a": Standing.DONE, "bad": Standing.FAILED, "c": Standing.DONE}
    failure = work.works[1].failure
    assert failure is not None
    assert (failure[0], failure[1].says) == (Part.PREPARE, "not there")
    assert parts(engine)[Part.PREPARE] == 3  # an error of its own is not tried again


def test_one_that_does_not_work_in_its_machine_has_failed_and_is_sealed() -> None:
    def does(order: Order) -> Answer:
        if order.part is Part.VERIFY:
            return Answer(Outcome.DONE, spare=(Part.MEASURE,))
        if order.part is Part.SEAL:
            return Answer(Outcome.DONE, verified=False, says="it crashed")
        return usual(order)

    engine = FakeEngine(1, does)
    work = conducted(Graph(entries("a")), engine)
    assert standing(work) == {"a": Standing.FAILED}
    assert Part.MEASURE not in parts(engine)


def test_a_task_that_kills_its_worker_ends_after_three_runs_and_no_other_is_blamed() -> None:
    def does(order: Order) -> Answer:
        if order.entry.name == "killer" and order.part is Part.TRACE:
            return Answer(Outcome.DIED, says="its process died", log="last words")
        return usual(order)

    engine = FakeEngine(3, does)
    work = conducted(Graph(entries("a", "killer", "c")), engine)
    assert standing(work) == {"a": Standing.DONE, "killer": Standing.FAILED, "c": Standing.DONE}
    runs = [one for _, one, _ in engine.begun if one.entry.name == "killer" and one.part is Part.TRACE]
    assert len(runs) == graph.STRIKES
    assert all(one.failure is None for one in work.works if one.entry.name != "killer")
    failure = work.works[1].failure
    assert failure is not None
    assert failure[1].log == "last words"


def test_a_run_that_died_is_tried_elsewhere_first() -> None:
    died: list[str] = []

    def does(order: Order) -> Answer:
        if order.part is Part.TRACE and len(died) < 2:
            died.append("x")
            return Answer(Outcome.DIED)
        return usual(order)

    engine = FakeEngine(3, does)
    work = conducted(Graph(entries("a")), engine)
    workers = [worker for _, order, worker in engine.begun if order.part is Part.TRACE]
    assert len(set(workers)) == 3
    assert standing(work) == {"a": Standing.DONE}


def test_on_one_worker_it_is_tried_there_again() -> None:
    answers = iter([Answer(Outcome.HOST, says="no space"), Answer(Outcome.DIED)])

    def does(order: Order) -> Answer:
        return next(answers, usual(order)) if order.part is Part.PREPARE else usual(order)

    assert standing(conducted(Graph(entries("a")), FakeEngine(1, does))) == {"a": Standing.DONE}


def test_a_run_that_was_called_off_counts_nothing() -> None:
    answers = iter([Answer(Outcome.NEVER)] * 5)

    def does(order: Order) -> Answer:
        return next(answers, usual(order)) if order.part is Part.TRACE else usual(order)

    assert standing(conducted(Graph(entries("a")), FakeEngine(2, does))) == {"a": Standing.DONE}


def test_a_limit_ends_the_image_whose_it_is_alone() -> None:
    slow, quick = entries("slow", limit_s=2.0)[0], entries("quick")[0]

    def does(order: Order) -> Answer:
        answer = usual(order)
        if order.entry.name == "slow" and order.part is Part.TRACE:
            assert order.limit_s is not None
            assert order.limit_s <= 1.0
            return Answer(Outcome.LATE, seconds=order.limit_s)
        return answer

    work = conducted(Graph([slow, quick]), FakeEngine(2, does))
    assert standing(work) == {"slow": Standing.FAILED, "quick": Standing.DONE}
    failure = work.works[0].failure
    assert failure is not None
    assert failure[1].says == "it took longer than its limit of 2 s"


def test_a_shared_task_has_the_limit_of_the_most_patient() -> None:
    one, other = Work(0, entries("a", limit_s=5.0)[0]), Work(1, entries("b", limit_s=50.0)[0])
    assert Task(Part.KERNEL, "k", [one, other]).limit_s == 50.0
    assert Task(Part.KERNEL, "k", [one, Work(2, entries("c")[0])]).limit_s is None
    assert Task(Part.KERNEL, "k", [one]).limit_s == 5.0


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
    work.ended(first, Answer(Outcome.FAILED, says="no"))
    assert second.works == []
    assert not work.is_over  # until the other run has ended
    work.ended(second, Answer(Outcome.NEVER))
    assert work.is_over


def test_secrets_go_with_the_orders_and_are_in_no_order() -> None:
    engine = FakeEngine(1)
    secret = Hidden("canary")
    Conductor(Graph(entries("a")), engine, order_of, needed=lambda entry: Needed((secret,), secret)).conduct()
    assert all(one == ((secret,), secret) for one in engine.needed)
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
    def does(order: Order) -> Answer:
        raise KeyboardInterrupt

    engine = FakeEngine(2, does)
    with pytest.raises(KeyboardInterrupt):
        Conductor(Graph(entries("a", "b")), engine, order_of).conduct()
    assert len(engine.off) == 2


def test_a_large_fleet_is_conducted_quickly() -> None:
    engine = FakeEngine(50)
    work = conducted(Graph(entries(*(f"i{number}" for number in range(500)))), engine)
    assert set(standing(work).values()) == {Standing.DONE}
    assert parts(engine)[Part.KERNEL] == 10
