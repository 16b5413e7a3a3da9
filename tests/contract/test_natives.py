# SPDX-License-Identifier: Apache-2.0
"""The native parts: where they are linked, that two builds are the same, and that they bring nothing along."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from vmtailor.base.files.elf import interpreter
from vmtailor.base.natives import ADDRESSES, SOURCES, elf_symbols, locate
from vmtailor.base.process import CommandFailed, require_tool, run
from vmtailor.drivers.qemu.kvm import PROBE, SAID_WHEN_FINE, probe_command
from vmtailor.drivers.rootfs.tracer_volume import libraries, write_tools_volume
from vmtailor.model.architecture import every, named

pytestmark = pytest.mark.contract

PROGRAMS = ("init", "stage1", "client")
#: PID 1 lies in the memory of every machine. An eighth is what a run may ask for: mounts, limits, further
#: processes, addresses of DHCP and IPv6, samples.
MOST_BYTES = 171_000


def make(sources: Path, out: Path, *options: str) -> None:
    run([require_tool("make"), "-C", str(sources), f"OUT={out}", *options, "guest"], timeout_s=300)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    make(SOURCES, out)
    return out


def test_two_builds_are_the_same_wherever_they_are_made(built: Path, tmp_path: Path) -> None:
    shutil.copytree(SOURCES, tmp_path / "elsewhere")
    make(tmp_path / "elsewhere", tmp_path / "again")
    for name in PROGRAMS:
        assert (built / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_static_and_at_their_own_addresses(built: Path, name: str) -> None:
    data = (built / name).read_bytes()
    assert interpreter(data) == ""
    low, high = ADDRESSES[name]
    assert low <= elf_symbols(data)["main"] < high
    assert len(data) < MOST_BYTES


def test_each_mark_has_an_address_of_its_own() -> None:
    marks = locate().marks()
    assert set(marks) == {"init", "entry", "ready", "load", "load_end", "stop", "end"}
    low, high = ADDRESSES["init"]
    assert len({at for at in marks.values() if low <= at < high}) == 7


def test_another_c_library_will_do(tmp_path: Path) -> None:
    make(SOURCES, tmp_path, "CC_GUEST=cc")
    assert interpreter((tmp_path / "init").read_bytes()) == ""


def test_init_refuses_to_be_anything_but_pid_1(built: Path) -> None:
    done = subprocess.run([built / "init"], capture_output=True, timeout=10, check=False)
    assert done.returncode == 2
    assert b"PID 1" in done.stderr


def test_the_tracer_comes_with_all_it_needs(tmp_path: Path) -> None:
    strace = Path(require_tool("strace"))
    loader, found = libraries(strace)
    assert Path(loader).name.startswith("ld-linux")
    assert "libc.so.6" in found
    for out in ("one.erofs", "two.erofs"):
        write_tools_volume(tmp_path / out)
    assert (tmp_path / "one.erofs").read_bytes() == (tmp_path / "two.erofs").read_bytes()


def test_a_processor_that_the_sources_do_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as failed:
        make(SOURCES, tmp_path, "ARCH=pdp11")
    assert "there is no native/arch/pdp11/arch.h" in str(failed.value.details)


@pytest.mark.parametrize("name", [row.name for row in every() if row.emulator.kvm_probe is not None])
def test_what_tries_kvm_runs_under_emulation(tmp_path: Path, name: str) -> None:
    """The same guest as under KVM on a host of that processor, which is decided by what it says."""
    row = named(name)
    cross = "" if row.is_host else row.kernel.cross
    for program in (f"{cross}gcc", row.emulator.program):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not here")
    run([require_tool("make"), "-C", str(SOURCES / "arch" / name / "kvm-probe"), f"OUT={tmp_path}", f"CROSS={cross}"],
        timeout_s=60)  # fmt: skip
    assert row.emulator.kvm_probe is not None
    argv = probe_command(row.emulator.program, str(tmp_path / PROBE), "tcg", row.emulator.kvm_probe)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and SAID_WHEN_FINE in done.stdout, done.stderr


def test_another_processor_is_another_folder(tmp_path: Path) -> None:
    """Nothing but arch/ changes, and what it says reaches the programs."""
    shutil.copytree(SOURCES, tmp_path / "native")
    arch = tmp_path / "native" / "arch"
    (arch / "other").mkdir()
    header = (arch / "x86_64" / "arch.h").read_text().replace("IA32_EMULATION", "OTHER_EMULATION")
    (arch / "other" / "arch.h").write_text(header)
    shutil.rmtree(arch / "x86_64")
    make(tmp_path / "native", tmp_path / "out", "ARCH=other", "probe")
    assert b"OTHER_EMULATION" in (tmp_path / "out" / "init").read_bytes()
    assert not (tmp_path / "out" / "kvm-probe.bin").exists()
