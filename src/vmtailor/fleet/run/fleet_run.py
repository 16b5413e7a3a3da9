# SPDX-License-Identifier: Apache-2.0
"""A fleet's work from its list to its bundles: what is done already is left, the rest is conducted on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import VmtailorError
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import FleetImage, FleetRecord
from vmtailor.fleet.model.orders import Job, Order, RunOutcome, TaskAnswer
from vmtailor.fleet.run import clusters, graph
from vmtailor.fleet.run.clusters import Cluster, ClusterPlace
from vmtailor.fleet.run.conduct import Conductor
from vmtailor.fleet.run.dask_engine import SeenSlot
from vmtailor.fleet.run.fleet_folder import FleetFolder
from vmtailor.fleet.run.graph import Graph, Task
from vmtailor.fleet.run.task_runner import Hidden, Needed
from vmtailor.model.fit_part import FitPart
from vmtailor.model.host_fingerprint import Fingerprint
from vmtailor.pipeline import fit

#: Parts of each kind of work.
PARTS: Mapping[Job, Mapping[FitPart, tuple[FitPart, ...]]] = {Job.FIT: graph.FIT, Job.VERIFY: graph.SINGLE}


class View(Protocol):
    """Shows a fleet while it works."""

    def show(self, work: Graph, slots: Sequence[SeenSlot], record: FleetRecord) -> None: ...


@dataclass(frozen=True)
class FleetJob:
    """The work that is to be done. `entries`: all of the fleet, in the order of its list; `kept`: images of them that
    need no work; `path`: the fleet's folder; `place`, `certificates`: the cluster; `needed`: what workers need
    beside their orders; `command`: as records of bundles have it; `before`: the record of a fleet that is verified
    again; `boots`: of each side; `variables`: entry → the values that the list has for its container, as JSON."""

    job: Job
    entries: Sequence[FleetEntry]
    kept: Sequence[FleetImage]
    path: Path
    list_path: str
    place: ClusterPlace
    certificates: Path | None
    tools: Fingerprint
    needed: Needed
    command: str
    before: FleetRecord | None = None
    boots: int | None = None
    variables: Mapping[str, Hidden] = field(default_factory=dict)

    def needed_for(self, entry: FleetEntry) -> Needed:
        """Return what a worker needs for an entry, beside its orders."""
        return replace(self.needed, variables=self.variables.get(entry.name, Hidden()))


def run(job: FleetJob, view: View) -> FleetRecord:
    """Do it, and return the record, which is kept up to date meanwhile. Raises HostError where the cluster is gone or
    nobody in it is able; what was done by then is on record."""
    left = {one.entry.name for one in job.kept}
    work = Graph([one for one in job.entries if one.name not in left], PARTS[job.job])
    folder = FleetFolder(job.path, job.list_path, job.tools.digest, job.kept, work, job.before)
    folder.in_order([one.name for one in job.entries])
    folder.save(now=True)
    if not work.works:
        return folder.record()
    try:
        with clusters.reached(job.place, job.certificates, job.tools) as cluster:
            _conduct(job, work, folder, cluster, view)
    finally:
        folder.save(now=True)
    return folder.record()


def _conduct(job: FleetJob, work: Graph, folder: FleetFolder, cluster: Cluster, view: View) -> None:
    elsewhere = job.place.address is not None

    def order(task: Task) -> Order:
        entry = task.works[0].entry
        here = task.part is FitPart.SEAL and not (elsewhere and job.job is Job.FIT)
        return Order(
            job.job, task.part, entry, out=str((job.path / entry.name).absolute()) if here else "",
            command=job.command, limit_s=task.limit_s, boots=job.boots,
        )  # fmt: skip

    def changed(ended: bool) -> None:
        if cluster.local is not None:
            cluster.local.slots.keep()
        if ended:
            folder.save()
        view.show(work, cluster.slots(), folder.record())

    def placed(task: Task, answer: TaskAnswer) -> TaskAnswer:
        return _placed(job, task, answer) if elsewhere and task.part is FitPart.SEAL else answer

    Conductor(
        work, cluster.engine, order, needed=job.needed_for, lacks=cluster.lacks, changed=changed,
        answered=placed,
    ).conduct()  # fmt: skip


def _placed(job: FleetJob, task: Task, answer: TaskAnswer) -> TaskAnswer:
    """Write the bundle of a fit that a worker elsewhere has left in the cache."""
    if answer.outcome is not RunOutcome.DONE or not answer.verified or not answer.fit_key:
        return answer
    entry = task.works[0].entry
    try:
        fit.place_kept(answer.fit_key, Store(), job.path / entry.name, job.command)
    except VmtailorError as error:
        return TaskAnswer(RunOutcome.FAILED, says=error.message, hint=error.hint)
    return answer
