# SPDX-License-Identifier: Apache-2.0
"""Our assumptions about Dask, held against a real scheduler and real workers on loopback, whose tasks are made up."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import ImageStanding
from vmtailor.fleet.model.orders import Job, Order
from vmtailor.fleet.run import certificates, dask_engine, graph, local_cluster
from vmtailor.fleet.run.conduct import Conductor
from vmtailor.fleet.run.dask_engine import DaskEngine
from vmtailor.fleet.run.graph import Graph, Task
from vmtailor.fleet.run.local_cluster import LocalCluster
from vmtailor.fleet.run.task_runner import Hidden, Needed

pytestmark = [
    pytest.mark.contract,
    # Of the library and of its event loop, when a line breaks that we have cut.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SLOT = Path(__file__).parents[1] / "fakes" / "fleet_slot.py"
#: The digest that slots tell.
DIGEST = "d" * 64


@contextmanager
def cluster(count: int) -> Iterator[tuple[LocalCluster, DaskEngine]]:
    with (
        local_cluster.started(count, DIGEST, (sys.executable, str(SLOT))) as local,
        dask_engine.connected(local.address, local.shown) as engine,
    ):
        yield local, engine


def entries(*names: str) -> list[FleetEntry]:
    return [FleetEntry(name, f"docker://{name}") for name in names]


def order_of(task: Task) -> Order:
    return Order(Job.FIT, task.part, task.works[0].entry, limit_s=task.limit_s)


def conducted(
    local: LocalCluster,
    engine: DaskEngine,
    work: Graph,
    tick: Callable[[], None] = lambda: None,
    needed: Needed | None = None,
) -> Graph:
    def changed(_: bool) -> None:
        local.slots.keep()
        tick()

    Conductor(work, engine, order_of, needed=lambda entry: needed or Needed(), changed=changed).conduct()
    return work


def standing(work: Graph) -> dict[str, ImageStanding]:
    return {one.entry.name: work.standing(one) for one in work.works}


def below(parent: int) -> set[int]:
    """Return all processes below one."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            child = int(stat.parent.name)
            found |= {child} | below(child)
    return found


def test_two_hundred_tasks_and_what_dies_costs_the_others_nothing() -> None:
    spare = [f"spare-{number}" for number in range(88)]
    names = ["kill-a", "die-b", *spare, "c-x", "d-x"]
    with cluster(2) as (local, engine):
        work = conducted(local, engine, Graph(entries(*names)), needed=Needed((Hidden("last words"),)))
    found = standing(work)
    assert {name for name, one in found.items() if one is ImageStanding.FAILED} == {"kill-a", "die-b"}
    assert len([one for one in found.values() if one is ImageStanding.DONE]) == 90
    for one in work.works[:2]:
        assert one.failure is not None
        assert one.failure[0].value == "trace"
    killer, dead = work.works[0].failure, work.works[1].failure
    assert killer is not None
    assert dead is not None
    assert killer[1].says == "its worker died"
    assert dead[1].log == "its …\n"  # without what nobody may read


def test_a_worker_that_is_killed_is_started_again_and_its_task_done_elsewhere() -> None:
    work = Graph(entries("slow-a", "slow-b", "slow-c"))
    killed: list[int] = []
    with cluster(2) as (local, engine):

        def kill_one() -> None:
            slots = [one for one in below(os.getpid()) if b"fleet_slot.py\0tls" in _command(one)]
            if len(killed) < 3 and work.running and slots:
                os.kill(slots[0], signal.SIGKILL)
                killed.append(slots[0])

        conducted(local, engine, work, kill_one)
        assert set(standing(work).values()) == {ImageStanding.DONE}
        assert len(killed) == 3


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_nothing_is_left_after_an_interruption() -> None:
    before = below(os.getpid())
    work = Graph(entries("never-a", "never-b"))
    with pytest.raises(KeyboardInterrupt), cluster(2) as (local, engine):

        def stop() -> None:
            if len([one for one in below(os.getpid()) if b"fleet_slot.py\0task" in _command(one)]) == 2:
                raise KeyboardInterrupt

        conducted(local, engine, work, stop)
    end = time.monotonic() + 10
    while (
        left := {one for one in below(os.getpid()) - before if b"fleet" in _command(one)}
    ) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def test_a_run_that_nobody_wants_is_ended_on_its_worker() -> None:
    with cluster(1) as (_, engine):
        while not (slots := engine.slots(now=True)):
            time.sleep(0.1)
        task = Graph(entries("never-a")).next_for("w", ["w"], 0.0)
        assert task is not None
        engine.begin(task.name, order_of(task), slots[0].address, Needed())
        _wait(lambda: any(b"fleet_slot.py\0task" in _command(one) for one in below(os.getpid())))
        engine.call_off(task.name)
        _wait(lambda: not any(b"fleet_slot.py\0task" in _command(one) for one in below(os.getpid())))


def _wait(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_foreign_certificates_and_plain_lines_are_refused(tmp_path: Path) -> None:
    with cluster(1) as (local, engine):
        foreign = certificates.make(tmp_path / "foreign")
        with (
            pytest.raises(HostError, match="has other certificates than ours"),
            dask_engine.connected(local.address, foreign),
        ):
            pass
        with socket.create_connection((local.address.host, local.address.port), timeout=10) as plain:
            plain.sendall(b"x" * 64)
            with pytest.raises((ConnectionError, AssertionError)):
                assert plain.recv(100).startswith(b"never")
        without = ssl.create_default_context()
        without.check_hostname, without.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((local.address.host, local.address.port), timeout=10) as line,
            pytest.raises(OSError),
            without.wrap_socket(line) as wrapped,
        ):  # TLS, and no certificate of ours
            wrapped.sendall(b"x")
            assert not wrapped.recv(100)
            raise OSError("closed")
        assert engine.slots(now=True) is not None  # it goes on
        listening = _listening(below(os.getpid()))
        assert listening
        assert listening <= {"0100007F"}, "nothing but loopback"


def _listening(processes: set[int]) -> set[str]:
    """Return the addresses that these processes listen on, as the kernel writes them."""
    inodes = set()
    for one in processes:
        for descriptor in Path(f"/proc/{one}/fd").glob("*"):
            try:
                found = re.fullmatch(r"socket:\[(\d{1,20})\]", str(descriptor.readlink()))
            except OSError:
                continue
            if found:
                inodes.add(found[1])
    rows = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


def test_a_cluster_that_is_not_there_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_engine, "REACHED_S", 2.0)
    shown = certificates.make(tmp_path / "c")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    with (
        pytest.raises(HostError, match=f"no scheduler answers at {re.escape(address.text)}"),
        dask_engine.connected(address, shown),
    ):
        pass


def test_a_scheduler_that_dies_is_said_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_engine, "GONE_S", 2.0)
    work = Graph(entries("slow-a", "slow-b"))
    with pytest.raises(HostError, match=r"is gone|ended"), cluster(2) as (local, engine):

        def kill() -> None:
            if work.works[0].done:
                for one in below(os.getpid()):
                    if b"vmtailor.fleet.run.scheduler" in _command(one):
                        os.kill(one, signal.SIGKILL)

        conducted(local, engine, work, kill)
    assert work.works[0].done
    assert all(one.failure is None for one in work.works)
    assert graph.STRIKES == 3
    assert threading.active_count() < 50
