# SPDX-License-Identifier: Apache-2.0
"""A fleet whose workers are killed at random moments, and whose scheduler is killed twice: all ends as in
a quiet run. Once with tasks that are made up, and once with real images, which takes the better part of an hour."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.system.conftest import Fitted

from vmtailor.base.cache.store import cache_root
from vmtailor.base.errors import HostError
from vmtailor.base.files import records
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import FleetImage, FleetRecord, ImageStanding
from vmtailor.fleet.model.orders import Job
from vmtailor.fleet.run import dask_engine, fleet_folder, fleet_run, local_cluster
from vmtailor.fleet.run.clusters import ClusterPlace
from vmtailor.fleet.run.fleet_run import FleetJob
from vmtailor.fleet.run.graph import Graph
from vmtailor.fleet.run.task_runner import Needed
from vmtailor.model.bundle import PLAN, RUN
from vmtailor.model.fit_run import FitRun
from vmtailor.model.host_fingerprint import Fingerprint

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SLOT = Path(__file__).parents[1] / "fakes" / "fleet_slot.py"
TOOLS = Fingerprint("x86_64", (("made up", "1"),))
IMAGES, WORKERS, KILLS, SCHEDULERS = 12, 3, 30, 2


class Quiet:
    """A view that shows nothing."""

    def show(self, work: Graph, slots: object, record: FleetRecord) -> None: ...


def below(parent: int) -> set[int]:
    """Return all processes below one."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = set[int](), [parent]
    while waiting:
        for one in children.get(waiting.pop(), []):
            found.add(one)
            waiting.append(one)
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def killer(parent: int, pause_s: float, schedulers: int) -> Iterator[list[int]]:
    """Kill workers below a process at random moments while the block runs, and the first schedulers."""
    over, killed, choice = threading.Event(), list[int](), random.Random(7)
    left = [schedulers]

    def kill() -> None:
        while not over.wait(choice.uniform(0.5, 1.5) * pause_s) and len(killed) < KILLS:
            found = below(parent)
            slots = [one for one in found if b"\0tls://" in command_of(one) and b"scheduler" not in command_of(one)]
            heads = [one for one in found if b"fleet.run.scheduler" in command_of(one)]
            among = heads if left[0] and len(killed) % 8 == 5 else slots
            if among:
                victim = choice.choice(among)
                left[0] -= among is heads
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def job_of(entries: list[FleetEntry], path: Path) -> FleetJob:
    kept: list[FleetImage] = fleet_folder.kept_images(entries, fleet_folder.read(path), path, TOOLS.digest)
    return FleetJob(
        job=Job.FIT, entries=entries, kept=kept, path=path, list_path="list", place=ClusterPlace(WORKERS),
        certificates=None, tools=TOOLS, needed=Needed(), command="made up",
    )  # fmt: skip


def test_all_is_done_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (sys.executable, str(SLOT))
    started = local_cluster.started
    monkeypatch.setattr(local_cluster, "started", lambda count, digest: started(count, digest, program))
    monkeypatch.setattr(dask_engine, "GONE_S", 3.0)
    entries = [FleetEntry(f"slow-{number}", f"docker://slow-{number}") for number in range(IMAGES)]
    path, commands = fleet_folder.begun(tmp_path / "out"), 0
    with killer(os.getpid(), 4.0, SCHEDULERS) as killed:
        while True:
            commands += 1
            assert commands < 10
            try:
                record = fleet_run.run(job_of(entries, path), Quiet())
            except HostError:  # the scheduler died: the same command again
                continue
            if record.all_done:
                break
    assert len(killed) > 3
    assert commands > 1, "a scheduler was killed"
    assert fleet_folder.required(path) == record
    assert {one.entry.name for one in record.images} == {one.name for one in entries}
    assert all(json.loads((path / one.name / "bundle.json").read_text()) == {"name": one.name} for one in entries)
    end = time.monotonic() + 10
    while left := [one for one in below(os.getpid()) if b"fleet" in command_of(one)]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def test_real_images_are_fitted_as_in_a_quiet_run(lighttpd: Fitted, hello_layout: Path, tmp_path: Path) -> None:
    """Both runs have caches of their own, with the packages, sources and kernels that this host has."""
    layouts = (lighttpd.layout, hello_layout)
    rows = [
        f'[[image]]\nname = "image-{number}"\nreference = "oci:{layouts[number % 2]}"\nmemory = "{256 + 8 * number}M"\n'
        for number in range(IMAGES)
    ]
    listed = tmp_path / "list.toml"
    listed.write_text("".join(rows))
    quiet = fleet_of(listed, tmp_path / "quiet", kills=False)
    faulty = fleet_of(listed, tmp_path / "faulty", kills=True)
    for number in range(IMAGES):
        one, other = (records.load(FitRun, out / f"image-{number}" / RUN) for out in (quiet, faulty))
        assert one.verified
        assert other.verified
        assert one.plan == other.plan
        names = [path.name for path in (quiet / f"image-{number}").glob("root.*")] + ["vmlinux", PLAN]
        for name in names:
            same = [(out / f"image-{number}" / name).read_bytes() for out in (quiet, faulty)]
            assert same[0] == same[1], name


def fleet_of(listed: Path, folder: Path, *, kills: bool) -> Path:
    """Fit the list with a cache of its own until all is done, and return the folder of its bundles."""
    cache = folder / "cache" / "vmtailor"
    cache.mkdir(parents=True, mode=0o700)
    for kind in ("packages", "source", "kernel", "downloads", "baseline", "facts", "images"):
        if (kept := cache_root() / kind).is_dir():
            shutil.copytree(kept, cache / kind, symlinks=True, copy_function=os.link)
    out = folder / "out"
    argv = [sys.executable, "-m", "vmtailor", "fleet", "fit", listed, "-o", out, "--on", f"local:{WORKERS}"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parent)}
    for _ in range(10):
        with subprocess.Popen([str(word) for word in argv], env=environment, start_new_session=True) as run:
            if kills:
                with killer(run.pid, 30.0, SCHEDULERS):
                    run.wait()
            run.wait()
        found = records.load(FleetRecord, out / "fleet.json")
        if all(one.standing is ImageStanding.DONE for one in found.images):
            return out
    raise AssertionError("it is not done after ten commands")
