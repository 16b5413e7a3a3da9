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
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.started import Start
from tests.fakes.tools import load_tool

from vmtailor.base import natives, process
from vmtailor.base.errors import HostError
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import doctor
from vmtailor.drivers.host import host
from vmtailor.drivers.host.host import Tool
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.drivers.qemu import host_checks
from vmtailor.model.architecture import every
from vmtailor.model.checks import Check, HostPurpose, Need, State

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


def packages_of(purpose: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What tools/apt_packages.py prints for a purpose on a host that calls its processor this."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert load_tool("apt_packages").main([purpose]) == 0
    return printed.getvalue().split()


HOSTS = {"x86_64": "x86_64", "aarch64": "arm64", "mips64": "mips64el", "riscv64": "riscv64"}


@pytest.mark.parametrize("machine", HOSTS)
def test_what_is_installed_is_what_doctor_checks(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, setup, cross, dev = (
        packages_of(purpose, machine, monkeypatch) for purpose in ("run", "setup", "cross", "dev")
    )
    tools = host.tools()
    assert dev == list(dict.fromkeys(tool.package for tool in tools))
    assert set(cross) == {tool.package for tool in tools if tool.processor}
    fit = {tool.package for tool in tools if tool.need in (Need.REQUIRED, Need.OPTIONAL) and not tool.processor}
    assert set(setup) == fit | {"musl-tools", "python3-venv"}
    own = next(row for row in every() if row.name == HOSTS[machine])
    assert set(run) == {own.emulator.package, "python3-venv"} == {tool.package for tool in tools if tool.runs}


@pytest.mark.parametrize("machine", HOSTS)
def test_setup_brings_no_other_processor_and_no_test(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = set(packages_of("setup", machine, monkeypatch))
    others = [row for row in every() if row.name != HOSTS[machine]]
    assert len(others) == 3
    for row in others:
        assert not {row.emulator.package, *row.kernel.cross_packages} & setup
        assert {row.emulator.package, row.kernel.cross_packages[0]} <= set(packages_of("cross", machine, monkeypatch))
    tests = {"chromium", "docker-registry", "clang-format", "busybox-static", "crun", "systemd-container"}
    assert not tests & setup and tests <= set(packages_of("dev", machine, monkeypatch))


@pytest.mark.parametrize("arguments", [[], ["all"], ["setup", "dev"]])
def test_packages_are_those_of_one_purpose(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert load_tool("apt_packages").main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out and "run|setup|cross|dev" in err


@pytest.mark.parametrize("purpose", ["run", "setup", "cross", "dev"])
def test_packages_need_nothing_but_python(purpose: str) -> None:
    """They are asked for before anything is installed."""
    program = [sys.executable, "-I", "-S", str(ROOT / "tools" / "apt_packages.py"), purpose]
    printed = subprocess.run(program, capture_output=True, text=True, check=True, timeout=30).stdout
    assert "python3-venv" in printed.split() or purpose == "cross"


def installing(target: str, *variables: str) -> str:
    """The commands with which `make TARGET` would install something in a fresh tree."""
    command = ["make", "-n", "-B", "-C", str(ROOT), "VENV=.none", target, *variables]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=True, timeout=60)
    return "\n".join(line for line in done.stdout.splitlines() if "install" in line)


@pytest.mark.parametrize("target", ["setup", "demo", "examples", "bench-fit", "bench-margin", "wheel"])
def test_what_only_fits_installs_nothing_for_tests(target: str) -> None:
    asked = installing(target)
    assert "apt_packages.py setup" in asked and "-r requirements.lock" in asked
    assert "apt_packages.py dev" not in asked and "requirements-dev.lock" not in asked
    assert "apt_packages.py cross" not in asked


@pytest.mark.parametrize("target", ["setup-dev", "check", "format", "unit", "contract", "system", "attack", "test"])
def test_what_tests_installs_all(target: str) -> None:
    asked = installing(target)
    assert "apt_packages.py setup" in asked and "apt_packages.py dev" in asked
    assert "-r requirements.lock" in asked and "-r requirements-dev.lock" in asked


@pytest.mark.parametrize("target", [("bench-fit", "ARCH=arm64"), ("bench-loongson",), ("setup-cross",)])
def test_other_processors_are_set_up_where_a_target_needs_them(target: tuple[str, ...]) -> None:
    asked = installing(*target)
    assert "apt_packages.py cross" in asked and "requirements-dev.lock" not in asked


def test_the_locks_hold_each_requirement_once() -> None:
    """What the program imports is in the first; the second has the rest."""
    first, second = (
        re.findall(r"^([\w-]+)==", (ROOT / name).read_text(), re.MULTILINE)
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert len({*first, *second}) == len(first) + len(second)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime, dev = (
        {re.split(r"[<>=\[]", one)[0].replace(".", "-") for one in wanted}
        for wanted in (project["dependencies"], project["optional-dependencies"]["dev"])
    )
    assert runtime <= set(first) and dev - {"setuptools"} <= set(second) and "setuptools" in first


def test_for_run_alone_no_kernel_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> Check:
        raise AssertionError("fit's alone")

    for name in ("check_packages", "check_space"):
        monkeypatch.setattr(host, name, refused)
    # A guest would be started for it.
    monkeypatch.setattr(host_checks, "check_kvm", lambda: Check("KVM", State.OK, Need.OPTIONAL, "", "", runs=True))
    checks = host.check_all(HostPurpose.RUN)
    names = {check.name for check in checks}
    assert {"Python", "QEMU", "guest programs", "network guard"} <= names
    assert not {"skopeo", "gcc", "venv", "counting plugin", "QEMU plugins"} & names
    assert all(check.runs for check in checks)


def test_each_other_processor_is_one_check(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(process, "on_path", lambda name: None)
    assert host.others() == ("arm64", "mips64el", "riscv64")
    for name, row in ((one.name, one) for one in every() if one.name != "x86_64"):
        check = host.check_processor(name, HostPurpose.FIT)
        assert not check.blocks and not check.package and check.state is State.MISSING
        assert {row.emulator.package, row.kernel.cross_packages[0]} <= set(check.fix.split())
        check = host.check_processor(name, HostPurpose.RUN)
        assert check.fix == f"apt-get install {row.emulator.package}"


def test_a_wheel_without_programs_of_a_processor_is_told(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(host, "_look_for", lambda tool: (State.OK, "there"))
    assert host.check_processor("arm64", HostPurpose.FIT).state is State.OK  # the tree has their sources
    monkeypatch.setattr(natives, "SOURCES", programs / "none")
    monkeypatch.setattr(natives, "FOLDER", programs)
    check = host.check_processor("riscv64", HostPurpose.FIT)
    assert check.state is State.MISSING and "lacks init, stage1" in check.found and "wheel" in check.fix
    assert host.check_processor("riscv64", HostPurpose.RUN).state is State.OK  # a bundle has its own


def test_where_fit_does_not_work_it_is_said_if_run_does() -> None:
    run = (Check("emulator", State.OK, Need.REQUIRED, "1.0", "why", runs=True), CHECKS[1])
    both = (replace(run[0], state=State.MISSING, package="emulator-tools"), CHECKS[1])
    for checks, words in (
        (run, "✓ run works on this host"),
        (both, "For run alone:\n  apt-get install -y emulator-tools\n\n✗ run cannot work here yet: emulator"),
    ):
        out = io.StringIO()
        doctor.show(checks, TerminalConsole(file=out, width=80))
        assert words in out.getvalue() and "✗ fit cannot work here yet" in out.getvalue()
        document = doctor.document(checks)
        assert document["run"]["works"] is (checks is run) and document["works"] is False
    assert document["run"]["install"] == "apt-get install -y emulator-tools"
    out = io.StringIO()
    doctor.show(both[:1], TerminalConsole(file=out, width=80))
    assert out.getvalue().count("apt-get install") == 1  # of both verbs it is the same


def test_two_purposes_are_refused(start: Start) -> None:
    code, out, err = start("doctor", "--run", "--development")
    assert code == 2 and not out and "exclude each other" in err


@pytest.mark.parametrize("library", [True, False])
def test_guest_programs_are_made_where_compiler_and_c_library_are(library: bool, programs: Path) -> None:
    """A compiler that knows no library says the name alone. Each folder to be made is printed only."""
    row = next(one for one in every() if not one.is_host)
    fake(programs, f"{row.kernel.cross}gcc", "/usr/lib/libc.a" if library else "libc.a")
    native = str(ROOT / "native")
    command = ["make", "--silent", "-C", native, f"OUT={programs}/out", "MAKE=echo made", "others"]
    done = subprocess.run(
        command, env={"PATH": f"{programs}:/usr/bin:/bin"}, capture_output=True, text=True, check=True, timeout=60
    )
    assert (f"made ARCH={row.name} " in done.stdout) is library
