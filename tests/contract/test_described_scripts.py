# SPDX-License-Identifier: Apache-2.0
"""Descriptions whose `run` is a script, with a real shell: which commands of the runtime it comes to. The runtimes
themselves are not here: a program that writes down its words stands for each."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vmtailor.base.natives import locate
from vmtailor.bench.model.instance import InstanceSpec, Limits, Volume
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes.host_runtime import BenchImage, DescribedRuntime
from vmtailor.bench.runtimes.instance_cgroups import Cgroups

EXAMPLES = Path(__file__).parents[2] / "examples/runtimes"
SPEC = InstanceSpec(
    "vt-1", ("/bench/bench", "report", "a b"), Limits(256 << 20, 1.5, 64, "0"), (Volume("/a", "/b"), Volume("/c", "/d"))
)
#: Writes its words down, one line a call; each in brackets, so that where one ends is seen.
FAKE = """#!/bin/sh
{ printf '%s' "${0##*/}"; printf ' [%s]' "$@"; echo; } >> "$SAID"
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the programs that stand for runtimes write down how they are called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, more in (
        ("rkt", 'case "$*" in *fetch*) echo sha512-12 ;; version) echo rkt Version: 1.30.0 ;; esac\n'),
        ("docker2aci", ": > library-bench-1.aci\n"),
        ("vzctl", 'case "$*" in *refused*) exit 7 ;; *chroot*) echo from inside ;; *) echo chatter ;; esac\n'),
    ):
        (programs / name).write_text(FAKE + more)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    return tmp_path / "said"


def prepared(name: str, tmp_path: Path) -> DescribedRuntime:
    one = description.load(str(EXAMPLES / f"{name}.toml"))
    (tmp_path / "cgroups").mkdir()
    runtime = DescribedRuntime(one, tmp_path / name, locate().folder / "enter", Cgroups(tmp_path / "cgroups"))
    runtime.prepare(BenchImage(tmp_path / "tree", tmp_path / "image.tar", "bench:1"))
    return runtime


def test_rkt_runs_the_digest_of_what_was_fetched(said: Path, tmp_path: Path) -> None:
    runtime = prepared("rkt", tmp_path)
    assert runtime.version() == "rkt Version: 1.30.0"
    folder = tmp_path / "rkt"
    fetched = f"[--dir={folder}/rkt] [fetch] [--insecure-options=image] [--full] [{folder}/aci/library-bench-1.aci]"
    assert said.read_text().splitlines()[:2] == [f"docker2aci [{tmp_path}/image.tar]", f"rkt {fetched}"]
    said.unlink()
    subprocess.run(runtime.run_words(SPEC), check=True)
    (line,) = said.read_text().splitlines()
    assert line == (
        f"rkt [--dir={folder}/rkt] [run] [--uuid-file-save={folder}/vt-1.uuid] [--net=none] "
        "[--volume=volume0,kind=host,source=/a,readOnly=false] [--mount=volume=volume0,target=/b] "
        "[--volume=volume1,kind=host,source=/c,readOnly=false] [--mount=volume=volume1,target=/d] "
        "[sha512-12] [--memory=268435456] [--cpu=1.5] [--exec=/usr/bin/env] [--] [/bench/bench] [report] [a b]"
    )


def test_rkt_is_begun_in_the_network_that_it_is_to_have(said: Path, tmp_path: Path) -> None:
    runtime = prepared("rkt", tmp_path)
    words = runtime.run_words(InstanceSpec("vt-2", ("/bench/bench", "serve"), network="/run/netns/bench0"))
    assert words[:5] == (str(locate().folder / "enter"), "-n", "/run/netns/bench0", "sh", f"{tmp_path}/rkt/rkt.sh")
    assert "--net=host" in words and "--net=none" not in words


def test_openvz_makes_a_container_runs_in_it_and_takes_it_away(said: Path, tmp_path: Path) -> None:
    runtime = prepared("openvz", tmp_path)
    ended = subprocess.run(runtime.run_words(SPEC), check=True, capture_output=True, text=True)
    assert ended.stdout == "from inside\n"  # what vzctl says of itself is no output of the instance
    assert said.read_text().splitlines() == [
        "vzctl [--quiet] [create] [vt-1] [--ostemplate] [debian-12-x86_64]",
        "vzctl [--quiet] [set] [vt-1] [--save] [--bindmount_add] [:/image] [--ram] [268435456] [--swap] [0] "
        "[--cpulimit] [150] [--cpumask] [0] [--numproc] [64] "
        "[--bindmount_add] [/a:/image/b] [--bindmount_add] [/c:/image/d]",
        "vzctl [--quiet] [start] [vt-1] [--wait]",
        "vzctl [--quiet] [exec2] [vt-1] [mount] [-t] [proc] [proc] [/image/proc]",
        "vzctl [--quiet] [exec2] [vt-1] [chroot] [/image] [/bench/bench report 'a b']",  # vzctl hands it to a shell
        "vzctl [--quiet] [stop] [vt-1] [--fast]",
        "vzctl [--quiet] [destroy] [vt-1]",
    ]


def test_openvz_tells_the_status_of_what_failed_and_takes_the_container_away(said: Path, tmp_path: Path) -> None:
    runtime = prepared("openvz", tmp_path)
    ended = subprocess.run(runtime.run_words(InstanceSpec("vt-3", ("refused",))), capture_output=True, check=False)
    assert ended.returncode == 7
    assert said.read_text().splitlines()[-1] == "vzctl [--quiet] [destroy] [vt-3]"
