# SPDX-License-Identifier: Apache-2.0
"""Machines watched over time, for real: a system of one program with groups of processes in it that are named as
Docker names its containers, whose counters the kernel itself tells beside ours; and the container of a bundle."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.fakes import systems
from tests.fakes.program import run_program
from tests.system.conftest import Fitted

from vmtailor.analysis.watches import rates
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.model.architecture import presumed
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import MachineWatch, WatchedKind

pytestmark = pytest.mark.system
TOOLS = Path(__file__).parents[2] / "tools"

GROUPS = """
while [ ! -d /sys/fs/cgroup ]; do sleep 1; done
mount -t cgroup2 none /sys/fs/cgroup
cd /sys/fs/cgroup
echo "+cpu +memory +io +pids" > cgroup.subtree_control
busybox mkdir docker
echo "+cpu +memory +io +pids" > docker/cgroup.subtree_control
"""
#: As many groups as `count`, each with a sleeping process that has a network of its own.
START = """
for n in $(busybox seq 1 {count}); do
    id=$(busybox printf %012x $n)$(busybox printf %052x 0)
    busybox mkdir /sys/fs/cgroup/docker/$id
    sh -c "echo \\$\\$ > /sys/fs/cgroup/docker/$id/cgroup.procs; exec busybox unshare -n sleep 9999" > /dev/null 2>&1 &
done
"""
#: One of them works for a while, and tells on the console what the kernel has counted, before and after.
WORK = """
tell() { echo "told $1 $(grep usage_usec /sys/fs/cgroup/docker/$id/cpu.stat)" > /dev/console; }
id=$(busybox printf %012x 1)$(busybox printf %052x 0)
sleep 2
tell before
sh -c "echo \\$\\$ > /sys/fs/cgroup/docker/$id/cgroup.procs; n=0; while [ \\$n -lt 30000 ]; do n=\\$((n+1)); done"
tell after
sleep 2
"""


def exercise(count: int, *scripts: str) -> str:
    steps = "".join(
        f"[[load]]\nkind = 'command'\nargv = ['sh', '-c', '''{text}''']\n" for text in (*scripts, "sleep 5")
    )
    ready = f"[ready]\nkind = 'command'\nargv = ['sh', '-c', '''{GROUPS}{START.format(count=count)}''']\n"
    return f"step_timeout_s = 300\n{ready}{steps}"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = packaged_baseline.provide(selection.of_host(), presumed(), Store())
    folder = tmp_path_factory.mktemp("system")
    tree = systems.busybox_tree(folder / "root", Path(kernel.vmlinuz), Path(kernel.modules_dir), kernel.release)
    return systems.ext4(folder / "disk.raw", tree, size_mib=48)


def test_containers_are_watched_and_their_counters_are_the_kernels_own(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(exercise(3, WORK))
    before = disk.read_bytes()
    ended = run_program(
        tmp_path, "watch", f"disk:{disk}", "-x", tmp_path / "x.toml", "--memory", "256M", "--clock", "instructions",
        "--every", "500ms", "--openmetrics", tmp_path / "text", "-o", tmp_path / "out", "--timeout", "400",
        timeout_s=460,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert disk.read_bytes() == before and not ended.left_over
    found = records.load(MachineWatch, tmp_path / "out" / "watch.json")
    assert found.clock is Clock.INSTRUCTIONS and not rates.gaps(found)
    assert [one.command for one in found.containers] == 3 * ["sleep"]
    marks = [mark.name for mark in found.marks]
    assert [name for name in marks if name != "end"] == [
        "init",
        "ready",
        "load",
        "step-0",
        "step-1",
        "load_end",
        "stop",
    ]
    # Every half second, on the beat of the machine's clock.
    beats = {round((now - then) / 1e6) for then, now in zip(found.times_ns, found.times_ns[1:], strict=False)}
    assert beats <= {499, 500, 501}, beats
    console = (tmp_path / "out" / "base-1" / "console.log").read_text(errors="replace")
    told = [int(text) for text in re.findall(r"told \w+ usage_usec (\d+)", console)]
    series = found.find(WatchedKind.CONTAINER, "cpu_us", "000000000001")
    assert series is not None and len(told) == 2 and told[1] - told[0] > 10_000
    step = next(mark.at_ns for mark in found.marks if mark.name == "step-0")
    inside = [v for ns, v in zip(found.times_ns, series.values, strict=True) if ns > step + 10**9 and v is not None]
    assert inside[-1] - inside[0] == pytest.approx(told[1] - told[0], rel=0.02)
    network = found.find(WatchedKind.CONTAINER, "received_bytes", "000000000001")
    assert network is not None and {value for value in network.values if value is not None} == {0}
    host = found.find(WatchedKind.HOST_DISK, "written_bytes", "disk0")
    guest = found.find(WatchedKind.DISK, "written_bytes", "vda")
    # Both count from the machine's start; at this moment nothing is written.
    assert host is not None and guest is not None and host.values[-2] == guest.values[-2] and host.values[-2]
    families = text_string_to_metric_families((tmp_path / "text").read_text())  # type: ignore[no-untyped-call]
    names = {family.name for family in families}
    assert {"vmtailor_container_cpu_seconds", "vmtailor_host_cpu_seconds", "vmtailor_container"} <= names
    page = (tmp_path / "out" / "watch.html").read_text()
    assert "sleep 000000000001" in page and "Processors of" in page


@pytest.mark.slow
def test_a_sample_with_16_containers_costs_less_than_10_million_instructions(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(exercise(16, "sleep 20"))
    done = subprocess.run(
        [sys.executable, TOOLS / "watch_cost.py", f"disk:{disk}", tmp_path / "x.toml", "--memory", "256"],
        capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    assert "16 containers seen, 16 at the end" in done.stdout, done.stdout
    cost = re.search(r"together +([\d.]+) M", done.stdout)
    assert cost is not None and 0.1 < float(cost[1]) < 10.0, done.stdout


def test_the_machine_of_a_bundle_is_watched(lighttpd: Fitted, tmp_path: Path) -> None:
    ended = run_program(
        tmp_path, "watch", lighttpd.bundle, "--clock", "instructions", "--every", "100ms", "-o", tmp_path / "out",
        timeout_s=300,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    found = records.load(MachineWatch, tmp_path / "out" / "watch.json")
    assert found.times_ns and found.find(WatchedKind.MACHINE, "memory_free_bytes") is not None
    assert {"init", "ready", "load", "step-0", "stop"} <= {mark.name for mark in found.marks}
    host = found.find(WatchedKind.HOST, "cpu_us")
    assert host is not None and any(host.values)


def test_what_a_bundle_has_no_use_for_is_refused(lighttpd: Fitted, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "watch", lighttpd.bundle, "--for", "5s", "-o", tmp_path / "out", timeout_s=60)
    assert ended.code == 2 and "--for does not go with" in ended.stderr
