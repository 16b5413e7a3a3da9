# SPDX-License-Identifier: Apache-2.0
"""`boot --try --under load` on a fitted bundle: settings that init writes, and rows for what cannot be had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fakes.program import assert_nothing_left, run_program
from tests.system.conftest import Fitted

from vmtailor.model.change import Figure

pytestmark = pytest.mark.system


def test_settings_are_tried_under_load_and_the_impossible_has_a_row(lighttpd: Fitted, tmp_path: Path) -> None:
    # This kernel has no scheduler of that name, and no compiler that flag; neither keeps the other from being tried.
    changes = "large-windows,scheduler-deadline,cc:-fno-such-thing"
    words = ("--under", "load", "-n", "1", "--try", changes, "--json", "-o", tmp_path / "out")
    ended = run_program(tmp_path, "boot", lighttpd.bundle, *words, timeout_s=600)
    assert ended.code == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["judged_by"] == "request-kernel"
    trials = {one["id"]: one for one in document["trials"]}
    measured = {one["figure"]: one for one in trials["large-windows"]["measured"]}
    # Windows of 4 MiB cost this server memory that the kernel clears.
    assert trials["large-windows"]["verdict"] == "worse"
    assert measured[Figure.REQUEST_KERNEL]["value"] > 0 and Figure.REQUEST in measured
    assert "/sys/block/vda/queue/scheduler to mq-deadline" in trials["scheduler-deadline"]["problem"]
    assert "does not take the flag -fno-such-thing" in trials["cc:-fno-such-thing"]["problem"]
    # Nothing of a trial is in the bundle.
    assert all("VT_SET" not in word for word in json.loads((lighttpd.bundle / "bundle.json").read_text())["words"])
    (machine,) = [one["machine"] for one in document["variants"] if one["name"] == "large-windows"]
    assert any(word.startswith("VT_SET=/proc/sys/net/ipv4/tcp_rmem=") for word in machine["words"])
    assert_nothing_left(ended)


RATE = """
[ready]
kind = "healthcheck"

[[load]]
kind = "rate"
port = 80
rate = 4000
seconds = 0.25
"""


@pytest.mark.slow
def test_changes_are_judged_by_a_percentile_of_latency(lighttpd: Fitted, tmp_path: Path) -> None:
    (tmp_path / "rate.toml").write_text(RATE)
    words = ("-x", tmp_path / "rate.toml", "--judge", "p99", "-n", "1", "--json", "-o", tmp_path / "out")
    ended = run_program(tmp_path, "boot", lighttpd.bundle, *words, "--try", "large-windows", timeout_s=900)
    assert ended.code == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["judged_by"] == "p99" and document["clock"] == "instructions"
    (trial,) = document["trials"]
    measured = {one["figure"]: one for one in trial["measured"]}
    assert trial["verdict"] in ("better", "worse", "same", "undecided")
    assert measured[Figure.P99]["unit"] == "s" and {Figure.P50, Figure.P90, Figure.REQUEST} <= set(measured)
    # A thousand requests give no p99.9: that is said before anything is booted.
    asked = run_program(
        tmp_path, "boot", lighttpd.bundle, "-x", tmp_path / "rate.toml", "--judge", "p99.9", "--try", "all"
    )
    assert asked.code == 2 and "--judge p99.9 needs 10\N{NARROW NO-BREAK SPACE}000 requests" in asked.stderr
    assert_nothing_left(ended)
