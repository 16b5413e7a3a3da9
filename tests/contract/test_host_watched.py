# SPDX-License-Identifier: Apache-2.0
"""`watch host:`: this host's own figures, by the sampler that machines have."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.program import run_program

from vmtailor.base.files import records
from vmtailor.model.machine_watch import MachineWatch, WatchedKind

pytestmark = pytest.mark.contract


def test_this_host_is_watched_without_a_machine(tmp_path: Path) -> None:
    words = ("watch", "host:", "--for", "2s", "--every", "100ms", "-o", tmp_path / "out")
    ended = run_program(tmp_path / "run", *words, timeout_s=60)
    assert ended.code == 0 and not ended.left_over, ended.stderr
    watch = records.load(MachineWatch, tmp_path / "out" / "watch.json")
    assert 5 <= len(watch.times_ns) <= 21 and watch.times_ns == tuple(sorted(watch.times_ns))
    memory = watch.find(WatchedKind.MACHINE, "memory_total_bytes")
    assert memory is not None and memory.values[-1] == total_memory()
    assert watch.find(WatchedKind.PROCESSOR, "cpu_user_us", "0") or watch.of(WatchedKind.PROCESSOR)
    assert "host:" in (tmp_path / "out" / "watch.html").read_text()


def test_options_of_machines_that_are_booted_are_refused(tmp_path: Path) -> None:
    for words in (("--memory", "1G"), ("--clock", "instructions"), ("-x", "x.toml")):
        ended = run_program(tmp_path / "run", "watch", "host:", *words, "-o", tmp_path / "out")
        assert ended.code == 2 and words[0].replace("-x", "--exercise") in ended.stderr
        assert "this host, which runs already" in ended.stderr


def total_memory() -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemTotal"].split()[0]) << 10
