# SPDX-License-Identifier: Apache-2.0
"""Published programs: recognised by their trees, and read by what they print."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.run.harness import again as again_words
from vmtailor.bench.runtimes.networks import PING, await_listening
from vmtailor.bench.suites.efficiency import Efficiency, iozone_rates, netperf_figure
from vmtailor.bench.suites.published_sets import IOZONE, NETPERF, UNIXBENCH, Published, check

FAKES = Path(__file__).parents[2] / "fakes"
IOZONE_SAID = """\tCommand line used: ./iozone -e -i 0 -i 1 -s 1048576k -r 8k
              kB  reclen    write  rewrite    read    reread    read     write
         1048576       8   912345  1012345  2012345  3012345

iozone test complete.
"""


def test_iozones_row_is_found_by_its_sizes() -> None:
    assert iozone_rates(IOZONE_SAID, 1 << 20, 8) == (912345.0, 1012345.0, 2012345.0, 3012345.0)
    assert iozone_rates(IOZONE_SAID, 1 << 20, 4) is None
    assert iozone_rates("1048576 8 one two three four", 1 << 20, 8) is None


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        ("131072  16384  16384    10.00    41234.56\n", 41234.56),
        ("catcher: timer popped\n 87380  16384  16384    1.00     0.00\n", None),
        ("establish control: are you sure there is a netserver\n", None),
    ],
)
def test_netperfs_line_has_megabits(said: str, rate: float | None) -> None:
    assert netperf_figure(said, 5) == rate


@pytest.mark.parametrize(
    ("said", "transactions"),
    [
        ("16384  131072 1        1       10.00    23456.78\n16384  131072\n", 23456.78),
        ("16384  131072 1 1 10.00 0.00\n", None),
        (" 87380  16384  16384    10.00     8000.00\n", None),
        ("", None),
    ],
)
def test_netperfs_transactions_are_of_its_line_of_six(said: str, transactions: float | None) -> None:
    assert netperf_figure(said, 6) == transactions


@pytest.mark.parametrize(("published", "name"), [(UNIXBENCH, "unixbench"), (IOZONE, "iozone"), (NETPERF, "netperf")])
def test_trees_are_recognised_and_others_refused(published: Published, name: str, tmp_path: Path) -> None:
    assert (check(published, FAKES / name) / published.marks[0][0]).exists()
    with pytest.raises(UserInputError, match=f"holds no {published.title}"):
        check(published, tmp_path)


def test_their_cells_are_others_and_say_how_to_get_them_again() -> None:
    job = BenchJob(
        (SuiteName.EFFICIENCY,), ("native",), (1,), 6, True, 1, "", "", "", "", "", "", (), "", "/a b", "/c"
    )  # fmt: skip
    tests = {test.test: test for test in Efficiency().tests(job)}
    assert (tests["disk"].variant, tests["tcp-send"].variant, tests["stream"].variant) == ("IOzone", "netperf", "")
    assert tests["tcp-latency"].variant == "netperf"
    words = again_words(job, PlannedTrial(tests["disk"], "native", 1))
    assert "--iozone-source '/a b' --netperf-source /c" in shlex.join(words)


def test_the_trees_are_passed_on_by_make() -> None:
    given = {"UNIXBENCH_SOURCE": "/a", "IOZONE_SOURCE": "/b", "NETPERF_SOURCE": "/c"}
    words = ["make", "--silent", "--dry-run", "bench-published", *(f"{name}={tree}" for name, tree in given.items())]
    said = subprocess.run(words, cwd=FAKES.parents[1], capture_output=True, text=True, check=True, timeout=60).stdout
    (line,) = [line for line in said.splitlines() if "published.json ||" in line]
    assert "--unixbench-source /a --iozone-source /b --netperf-source /c" in line
    plain = subprocess.run(
        words[:4], cwd=FAKES.parents[1], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "-source" not in plain


@pytest.mark.lengthy
def test_our_own_round_trips_are_of_a_byte_each_way(tmp_path: Path) -> None:
    program = tmp_path / "ping"
    source = FAKES.parents[1] / "benchmarks/image/ping.c"
    subprocess.run(["cc", "-std=c11", "-O2", "-o", str(program), str(source)], check=True, timeout=120)
    serve = [str(program), "serve", "127.0.0.1", str(PING)]
    with subprocess.Popen(serve) as server:
        try:
            await_listening(server.pid, PING)
            ask = [str(program), "ask", "127.0.0.1", str(PING), "0.2"]
            for _ in range(2):  # one client after the other
                ended = subprocess.run(ask, capture_output=True, check=True, timeout=60)
                said = json.loads(ended.stdout)
                assert said["seconds"] >= 0.2 and said["round_trips"] >= 1
                assert 0 < said["median_s"] <= said["p99_s"] <= said["seconds"]
        finally:
            server.kill()
    asked = subprocess.run(ask, check=False, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 1 and "connect" in asked.stderr


def test_a_server_that_has_ended_listens_nowhere() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(HostError, match="no program listens on port 5007"):
        await_listening(gone.pid, PING, patience_s=0.05)
