# SPDX-License-Identifier: Apache-2.0
"""What doctor finds, says and advises."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tools import load_tool

from vmtailor.base.errors import HostError
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import doctor
from vmtailor.drivers.host import host
from vmtailor.drivers.host.host import Tool
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.drivers.qemu import host_checks
from vmtailor.model.architecture import every
from vmtailor.model.checks import Check, Need, State

ROOT = Path(__file__).resolve().parents[2]


def fake(folder: Path, name: str, text: str, code: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("printed", "state"),
    [
        ("tailor version 7.2.22 (Debian)", State.OK),
        ("tailor 7.1", State.OLD),
        ("tailor 10.0", State.OK),
        ("??", State.OK),
    ],
)
def test_versions_are_compared_as_numbers(programs: Path, printed: str, state: State) -> None:
    fake(programs, "vt-tailor", printed)
    tool = Tool("tailor", "tailor-tools", Need.REQUIRED, "why", "vt-tailor", version=("--version",), minimum="7.2")
    assert host.check_tool(tool).state is state


def test_a_missing_program_names_its_package(programs: Path) -> None:
    check = host.check_tool(Tool("x", "x-tools", Need.REQUIRED, "why", "vt-no-such-program"))
    assert check.state is State.MISSING and check.blocks and check.package == "x-tools"
    optional = host.check_tool(Tool("x", "x-tools", Need.OPTIONAL, "why", "vt-no-such-program"))
    assert not optional.blocks


def test_a_header_is_found_at_any_of_its_places(tmp_path: Path) -> None:
    (tmp_path / "lib1.h").touch()
    places = (str(tmp_path / "none.h"), str(tmp_path / "lib*.h"))
    assert host.check_tool(Tool("h", "h-dev", Need.REQUIRED, "why", file=places)).state is State.OK
    assert host.check_tool(Tool("h", "h-dev", Need.REQUIRED, "why", file=places[:1])).state is State.MISSING


def test_space_is_measured_where_the_cache_will_be(tmp_path: Path) -> None:
    assert host.check_space(tmp_path / "not" / "there", needed=1).state is State.OK
    full = host.check_space(tmp_path, needed=1 << 62)
    assert full.state is State.LIMITED and "XDG_CACHE_HOME" in full.fix


@pytest.mark.parametrize(
    ("verdict", "state", "words"),
    [
        (KvmVerdict(KvmState.WORKS, seconds=0.2), State.OK, "200"),
        (KvmVerdict(KvmState.HANGS, "it hangs"), State.LIMITED, "it hangs"),
        (KvmVerdict(KvmState.FORBIDDEN, "no"), State.LIMITED, "no"),
    ],
)
def test_kvm_is_never_an_obstacle(verdict: KvmVerdict, state: State, words: str) -> None:
    check = host_checks.check_kvm(lambda: verdict)
    assert check.state is state and words in check.found and not check.blocks
    assert ("group kvm" in check.fix) == (verdict.state is KvmState.FORBIDDEN)


def test_kvm_that_cannot_be_tried_is_no_obstacle() -> None:
    def probe() -> KvmVerdict:
        raise HostError("no QEMU")

    check = host_checks.check_kvm(probe)
    assert check.state is State.LIMITED and "not tried: no QEMU" in check.found


@given(st.text())
def test_any_output_gives_a_version_or_none(text: str) -> None:
    version = host.parse_version(text)
    assert version == "" or re.fullmatch(r"\d+(\.\d+)+", version)


CHECKS = (
    Check("fine", State.OK, Need.REQUIRED, "1.0", "why"),
    Check("gone", State.MISSING, Need.REQUIRED, "not found", "why", "apt-get install gone-tools", "gone-tools"),
    Check("gone too", State.MISSING, Need.REQUIRED, "not found", "why", "apt-get install gone-tools", "gone-tools"),
    Check("late", State.OLD, Need.OPTIONAL, "1", "why", "apt-get install late", "late"),
)


def test_one_line_installs_everything_once() -> None:
    assert doctor.install_line(CHECKS) == "apt-get install -y gone-tools late"
    assert doctor.install_line(CHECKS[:1]) == ""


def test_a_command_to_copy_is_one_line_on_a_narrow_terminal() -> None:
    many = [replace(CHECKS[1], name=f"tool {n}", package=f"package-number-{n}") for n in range(9)]
    fix = Check(
        "kvm", State.LIMITED, Need.OPTIONAL, "no", "why", "usermod --append --groups kvm $USER, and log in again"
    )
    out = io.StringIO()
    doctor.show([*many, fix], TerminalConsole(file=out, width=40))
    lines = out.getvalue().splitlines()
    assert f"  {doctor.install_line(many)}" in lines and f"  → kvm: {fix.fix}" in lines


def test_the_table_says_what_blocks() -> None:
    out = io.StringIO()
    doctor.show(CHECKS, TerminalConsole(file=out, width=120))
    assert "fit cannot work here yet: gone, gone too" in out.getvalue()
    assert "apt-get install -y gone-tools late" in out.getvalue()
    document = doctor.document(CHECKS)
    assert next(iter(document)) == "schema" and document["works"] is False
    json.dumps(document)


def test_the_table_of_tools_is_sound() -> None:
    tools = host.tools()
    assert len({tool.name for tool in tools}) == len(tools) > 20
    for tool in tools:
        assert bool(tool.program) != bool(tool.file), tool.name
        assert tool.package and tool.why, tool.name
        assert not tool.minimum or tool.version, tool.name


@pytest.mark.parametrize(
    ("machine", "needed", "strangers"), [("x86_64", "QEMU", "arm64"), ("aarch64", "QEMU (arm64)", "x86-64")]
)
def test_each_host_needs_the_emulator_of_its_own_processor_and_cross_compilers_of_the_others(
    machine: str, needed: str, strangers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    tools = {tool.name: tool for tool in host.tools()}
    for name in ("QEMU", "QEMU (arm64)", "QEMU (mips64el)"):
        assert tools[name].need is (Need.REQUIRED if name == needed else Need.OPTIONAL)
    own = {"arm64": "x86-64", "x86-64": "arm64"}[strangers]
    assert {f"gcc ({strangers})", f"C library ({strangers})", "gcc (mips64el)"} <= tools.keys()
    assert not {f"gcc ({own})", f"C library ({own})"} & tools.keys()
    assert tools["skopeo"].need is Need.REQUIRED
    # What compiles for a processor elsewhere is what its row names.
    packages = {tool.package for tool in tools.values()}
    for row in every():
        if not row.is_host:
            assert {row.kernel.cross_packages[0], row.kernel.cross_packages[-1]} <= packages, row.name
            assert f"{row.kernel.cross}gcc" in {tool.program for tool in tools.values()}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert load_tool("apt_packages").main() == 0
    assert printed.getvalue().split() == list(dict.fromkeys(tool.package for tool in host.tools()))


def test_make_setup_installs_what_doctor_checks() -> None:
    printed = subprocess.run(
        [sys.executable, "-I", str(ROOT / "tools" / "apt_packages.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split()
    assert printed == list(dict.fromkeys(tool.package for tool in host.tools()))
