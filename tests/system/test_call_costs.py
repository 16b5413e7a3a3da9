# SPDX-License-Identifier: Apache-2.0
"""The calls of a real kernel, followed: their sums are what the other plugin counts, function by function."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted

from vmtailor.analysis.calls import request_split
from vmtailor.analysis.calls.call_shares import During
from vmtailor.analysis.calls.request_split import SplitPart
from vmtailor.base import natives
from vmtailor.base.cache.store import Store
from vmtailor.booting.bundle_booter import BundleBooter, workload_of
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.boots.boot import Phase
from vmtailor.model.machine import Clock
from vmtailor.pipeline import followed_calls

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_what_calls_cost_adds_up_to_what_is_counted(lighttpd: Fitted, tmp_path: Path) -> None:
    store = Store()
    boot = followed_calls.of_bundle(lighttpd.bundle, store).boot
    loaded = bundle_folder.load_container(lighttpd.bundle, store)
    booter = BundleBooter(loaded, natives.locate())
    machine = machine_of(loaded, Chosen(clock=Clock.INSTRUCTIONS))
    booted, gathered = booter(machine, workload_of(loaded.exercise, 600), tmp_path)
    counters, table = gathered.counters, booter.table(str(loaded.kernel))
    assert counters is not None and boot.graph.complete and not boot.graph.cut
    before = 0
    for ours, theirs in zip(boot.graph.stretches, counters.stretches, strict=True):
        assert (ours.begin, ours.end, ours.kernel) == (theirs.begin, theirs.end, theirs.at_end.kernel - before)
        before = theirs.at_end.kernel
        assert ours.kernel == sum(one.own + one.soft for one in ours.works)
        late = ~counters.blocks.early[theirs.block]
        index = table.index_of(counters.blocks.vaddr[theirs.block[late]])
        expected = np.zeros(len(table.names) + 1, np.int64)
        np.add.at(expected, np.where(index < 0, len(table.names), index), theirs.executed[late].astype(np.int64))
        found = np.zeros(len(table.names) + 1, np.int64)
        at = np.minimum(boot.graph.function[ours.node], len(table.names)).astype(np.int64)
        np.add.at(found, at, ours.self.astype(np.int64))
        assert (found == expected).all()
    # A load's instructions by part are those of the counted boot's phase, all of them.
    counted = next(one for one in booted.phases if one.phase is Phase.LOAD)
    split = request_split.rows(boot)
    whole = counted.kernel + counted.user + counted.client_kernel + counted.client_user
    assert sum(row.instructions for row in split) == whole
    of = {part: sum(row.instructions for row in split if row.part is part) for part in SplitPart}
    init = sum(
        row.instructions for row in split if row.part is request_split.SplitPart.OURS and row.what == "its own code"
    )
    assert of[request_split.SplitPart.PROGRAM] + init == counted.user
    assert of[request_split.SplitPart.CLIENT] == counted.client_user
    assert of[request_split.SplitPart.INTERRUPT] > 0 and of[request_split.SplitPart.SOFT] > 0
    assert booted.container is not None and boot.requests == booted.container.requests
    costs = boot.costs(During.LOAD)
    for one in costs:
        if one.on:
            tree = boot.tree(During.LOAD, one.call, one.on, one.owner)
            assert int(tree.own.sum()) == one.own + one.soft
    serving = {(one.call, one.on) for one in costs if one.owner == "program"}
    assert {("writev", "TCP socket"), ("accept4", "TCP socket"), ("epoll_wait", "epoll")} <= serving
    ended = run_program(tmp_path, "trace", lighttpd.bundle, "--show", "costs", "--json", timeout_s=300)
    rows = json.loads(ended.stdout)["rows"]
    assert sum(row["instructions"] + row["deferred"] for row in rows) == boot.total(During.LOAD)
