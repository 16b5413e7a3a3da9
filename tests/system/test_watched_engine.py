# SPDX-License-Identifier: Apache-2.0
"""The machine of examples/debian-vm watched with 16 containers of Docker in it, for real: what is told of a container
is what its engine says of it over the same interval, and a sample costs less than 10 M instructions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import EXAMPLES

from vmtailor.base.files import records
from vmtailor.model.machine_watch import MachineWatch, WatchedKind

pytestmark = [pytest.mark.system, pytest.mark.slow]
ROOT = EXAMPLES.parent

START = """
for n in $(seq 1 15); do docker run -d --name c$n example-busybox sleep 9999 || exit 1; done
docker run -d --name server example-busybox httpd -f -p 80 -h /www
docker exec server dd if=/dev/zero of=/www/big bs=64k count=64
docker inspect --format 'worker {{.Id}}' c1 > /dev/console
"""
TELL = """
curl -s --unix-socket /var/run/docker.sock 'http://x/containers/c1/stats?stream=false&one-shot=true' > /tmp/told
{ printf 'told '; tr -d '\\n' < /tmp/told; echo; } > /dev/console
"""
WORK = """
address=$(docker inspect --format '{{.NetworkSettings.IPAddress}}' server)
docker exec c1 sh -c "wget -q -O /tmp/got http://$address/big; dd if=/dev/zero of=/tmp/file bs=64k count=100 conv=fsync"
docker exec c1 awk 'BEGIN { for (i = 0; i < 2000000; i++) x += i }'
sync
"""
#: In their order; those that tell lie between pauses in which the containers sleep.
STEPS = (START, "sleep 4", TELL, WORK, "sleep 1", TELL, "sleep 4", "sleep 20")
BEFORE, AFTER = 2, 6


def exercise() -> str:
    text = "step_timeout_s = 600\n[ready]\nkind = 'unit'\nunit = 'example-ready.service'\ntimeout_s = 600\n"
    return text + "".join(f"[[load]]\nkind = 'command'\nargv = ['sh', '-c', '''{step}''']\n" for step in STEPS)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the tool printed, and the folder of the boot."""
    folder = tmp_path_factory.mktemp("watched")
    subprocess.run([sys.executable, EXAMPLES / "debian-vm" / "build", folder / "vm"], check=True, timeout=3600)
    return watch(folder / "vm" / "disk.raw", folder)


def watch(disk: Path, folder: Path) -> tuple[str, Path]:
    (folder / "x.toml").write_text(exercise())
    words = ("tools/watch_cost.py", f"disk:{disk}", str(folder / "x.toml"), "--keep", str(folder / "out"))
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=3600, check=True)
    return done.stdout, folder / "out" / "base-1"


def moment(watch: MachineWatch, step: int) -> int:
    """The number of the last sample before a step begins."""
    at = next(mark.at_ns for mark in watch.marks if mark.name == f"step-{step}")
    return max(number for number, ns in enumerate(watch.times_ns) if ns < at)


def disk_bytes(told: dict[str, Any], operation: str) -> int:
    rows = told["blkio_stats"]["io_service_bytes_recursive"] or []
    return sum(row["value"] for row in rows if row["op"] == operation)


def test_what_is_told_of_a_container_is_what_its_engine_says(watched: tuple[str, Path]) -> None:
    agree(watched[1])


def agree(folder: Path) -> None:
    found = records.load(MachineWatch, folder / "watch.json")
    console = (folder / "console.log").read_text(errors="replace")
    name = re.findall(r"worker ([0-9a-f]{12})", console)[0]
    before, after = (json.loads(text) for text in re.findall(r"told (\{.*\})", console))

    def ours(figure: str, step: int) -> int:
        series = found.find(WatchedKind.CONTAINER, figure, name)
        assert series is not None
        value = series.values[moment(found, step)]
        assert value is not None
        return value

    def grown(figure: str) -> int:
        return ours(figure, AFTER + 1) - ours(figure, BEFORE)

    cpu = [told["cpu_stats"]["cpu_usage"]["total_usage"] for told in (before, after)]
    network = [told["networks"]["eth0"] for told in (before, after)]
    pairs = {
        "cpu_us": (cpu[1] - cpu[0]) / 1000,
        "received_bytes": network[1]["rx_bytes"] - network[0]["rx_bytes"],
        "sent_bytes": network[1]["tx_bytes"] - network[0]["tx_bytes"],
        "written_bytes": disk_bytes(after, "write") - disk_bytes(before, "write"),
    }
    print({figure: (grown(figure), theirs) for figure, theirs in pairs.items()})
    for figure, theirs in pairs.items():
        assert theirs > 0 and grown(figure) == pytest.approx(theirs, rel=0.02), figure
    assert ours("memory_bytes", AFTER + 1) == pytest.approx(after["memory_stats"]["usage"], rel=0.02)
    assert ours("tasks", AFTER + 1) == after["pids_stats"]["current"]
    assert {one.engine for one in found.containers} == {"docker"}


def test_a_sample_costs_less_than_10_million_instructions(watched: tuple[str, Path]) -> None:
    cost = re.search(r"together +([\d.]+) M", watched[0])
    assert "16 at the end" in watched[0] and cost is not None and float(cost[1]) < 10.0, watched[0]
