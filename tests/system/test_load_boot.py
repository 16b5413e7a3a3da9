# SPDX-License-Identifier: Apache-2.0
"""`boot BUNDLE --exercise FILE` with loads: the client in a real guest, against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.fakes.program import assert_nothing_left, run_program
from tests.system.conftest import Fitted

from vmtailor.analysis.cost import request_costs
from vmtailor.model.boots.series import BootSeries

pytestmark = pytest.mark.system

LOADS = """
[ready]
kind = "healthcheck"

[[load]]
kind = "peak"
port = 80
at_once = 4
requests = 100
[load.expect]
contains = "A machine made to measure"

[[load]]
kind = "rate"
port = 80
rate = 400
seconds = 0.25

[[load]]
kind = "surf"
port = 80
users = 2
pause_s = [0.01, 0.02]
pages = [{ path = "/" }, { path = "/not-there", status = 404 }]

[[load]]
kind = "peak"
protocol = "command"
argv = ["http-check"]
at_once = 2
requests = 6
"""


def series_of(document: dict[str, object]) -> BootSeries:
    return msgspec.convert({key: value for key, value in document.items() if key != "schema"}, BootSeries)


def test_loads_are_the_same_to_the_nanosecond_in_two_boots(lighttpd: Fitted, tmp_path: Path) -> None:
    (tmp_path / "loads.toml").write_text(LOADS)
    words = ("-x", tmp_path / "loads.toml", "--clock", "instructions", "-n", "2", "--json", "-o", tmp_path / "out")
    ended = run_program(tmp_path, "boot", lighttpd.bundle, *words, timeout_s=600)
    assert ended.code == 0, ended.stderr
    first, second = (one.boot for one in series_of(json.loads(ended.stdout)).boots)
    assert first.container is not None and second.container is not None
    assert first.container.loads == second.container.loads and first.phases == second.phases
    peak, rate, surf, commands = first.container.loads
    assert [one.stages[0].right for one in (peak, rate, surf, commands)] == [100, 100, 4, 6]
    assert all(one.stages[0].failures == () and one.whole for one in (peak, rate, surf, commands))
    assert commands.title == "peak of http-check" and commands.stages[0].connections == 6
    assert rate.stages[0].held and rate.fine_ns == 1
    # A request alone takes far less than the time between two: none waits for another.
    assert (rate.stages[0].latencies.at(0.5) or 0) < 1e9 / 400 < rate.stages[0].took_ns
    cost = request_costs.of_boot(first)
    assert cost is not None and cost.requests == 210 and 10_000 < cost.container < cost.whole
    assert_nothing_left(ended)


def test_on_the_wall_clock_the_same_is_asked_and_a_wrong_answer_is_named(lighttpd: Fitted, tmp_path: Path) -> None:
    (tmp_path / "loads.toml").write_text(LOADS.replace("status = 404", "status = 200"))
    words = ("-x", tmp_path / "loads.toml", "-n", "1", "-o", tmp_path / "out")
    ended = run_program(tmp_path, "boot", lighttpd.bundle, *words, timeout_s=600)
    assert ended.code == 5 and "wrong): status 404, not 200" in " ".join(ended.stdout.split())
    assert "peak of GET /, port 80" in ended.stdout


def test_this_host_asks_over_the_machines_network(lighttpd: Fitted, tmp_path: Path) -> None:
    # No rate: a busy host may not hold it.
    load = '[[load]]\nkind = "peak"\nport = 80\nat_once = 4\nrequests = 100\n'
    (tmp_path / "loads.toml").write_text(f'[ready]\nkind = "healthcheck"\n{load}{load}')
    words = ("-x", tmp_path / "loads.toml", "--clients", "host", "-n", "1", "--json", "-o", tmp_path / "out")
    ended = run_program(tmp_path, "boot", lighttpd.bundle, *words, timeout_s=600)
    assert ended.code == 0, ended.stderr
    (found,) = (one.boot for one in series_of(json.loads(ended.stdout)).boots)
    assert found.container is not None
    assert [load.stages[0].right for load in found.container.loads] == [100, 100]
    assert_nothing_left(ended)
