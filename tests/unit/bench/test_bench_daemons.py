# SPDX-License-Identifier: Apache-2.0
"""An engine's daemon: it is waited for until it is ready, and what it said is told where it never is."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError
from vmtailor.bench.runtimes import description, host_runtime
from vmtailor.bench.runtimes.host_runtime import BenchImage, DescribedRuntime
from vmtailor.bench.runtimes.instance_cgroups import Cgroups


def runtime(folder: Path, shell: str, ready: str) -> DescribedRuntime:
    """One whose daemon and the question whether it is ready are programs of a shell."""
    text = f"""
name = "small"
title = "Small"
programs = ["sh"]
packages = []
root = "image"
[commands]
run = ["true"]
start = ["true"]
[daemon]
start = ["sh", "-c", {json.dumps(shell)}]
ready = ["sh", "-c", {json.dumps(ready)}]
"""
    one = description.parse(text.encode(), "small.toml")
    return DescribedRuntime(one, folder / "small", Path("/enter"), Cgroups(folder))


def prepare(one: DescribedRuntime, folder: Path) -> None:
    one.prepare(BenchImage(folder / "tree", folder / "image.tar", "bench:1"))


def test_a_daemon_is_waited_for_and_ended_with_its_runtime(tmp_path: Path) -> None:
    with runtime(tmp_path, "echo $$ >pid; sleep .3; : >up; exec sleep 20", "[ -e up ]") as one:
        prepare(one, tmp_path)
        assert (tmp_path / "small/up").exists()
        number = int((tmp_path / "small/pid").read_text())
        os.kill(number, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_daemon_that_ends_at_once_is_not_waited_for_and_its_words_are_told(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        pytest.raises(HostError, match="sh of small did not get ready") as failed,
        runtime(tmp_path, "echo why; echo and how >&2; exit 3", "false") as one,
    ):
        prepare(one, tmp_path)
    assert failed.value.details == "why\nand how\n" and failed.value.hint
    assert time.monotonic() - began < host_runtime.READY_S / 2


@pytest.mark.lengthy
@pytest.mark.parametrize("ready", ["false", "exec sleep 20"])
def test_a_daemon_that_never_gets_ready_is_given_up(
    ready: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_runtime, "READY_S", 0.5)
    began = time.monotonic()
    with (
        pytest.raises(HostError, match="sh of small did not get ready") as failed,
        runtime(tmp_path, "echo waiting; exec sleep 20", ready) as one,
    ):
        prepare(one, tmp_path)
    assert failed.value.details == "waiting\n" and 0.5 <= time.monotonic() - began < 15.0
