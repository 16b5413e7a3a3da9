# SPDX-License-Identifier: Apache-2.0
"""Exported disks, booted by the firmware of a PC, without vmtailor."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import TALKER, Fitted, with_image
from tests.system.test_exported_machines import answer, exported, followed, free_port, started

pytestmark = [pytest.mark.system, pytest.mark.slow]
UEFI = Path("/usr/share/OVMF")


def command_of(out: Path) -> str:
    """The first command of an export's README, to be started in the foreground."""
    block = (out / "README.md").read_text().split("```sh\n")[1]
    return block.splitlines()[0].removesuffix("&").replace("qemu-system-x86_64", "exec qemu-system-x86_64", 1)


def firmware_of(kind: str, folder: Path) -> str:
    """Further words for QEMU: none for its own BIOS."""
    if kind == "bios":
        return ""
    shutil.copyfile(UEFI / "OVMF_VARS_4M.fd", folder / "vars.fd")
    code = f" -drive if=pflash,unit=0,format=raw,readonly=on,file={UEFI}/OVMF_CODE_4M.fd"
    return f"{code} -drive if=pflash,unit=1,format=raw,file={folder}/vars.fd"


@pytest.mark.parametrize(
    ("kind", "target"), [("bios", "disk"), ("uefi", "disk"), ("bios", "disk:qcow2"), ("uefi", "disk:vmdk")]
)
def test_a_server_on_a_disk_answers_at_an_address_by_dhcp(
    exportable: Path, kind: str, target: str, tmp_path: Path
) -> None:
    port = free_port()
    out = exported(exportable, tmp_path, "--to", target, "-p", f"{port}:80")
    command = command_of(out) + firmware_of(kind, tmp_path)
    with started("sh", "-c", command, cwd=out):
        assert b"<html" in answer(f"http://127.0.0.1:{port}/").lower()


def test_the_readmes_commands_start_a_server_and_ask_it(exportable: Path, tmp_path: Path) -> None:
    out = exported(exportable, tmp_path, "--to", "disk", "-p", f"{free_port()}:80")
    assert b"<html" in followed(out).lower()


@pytest.mark.parametrize("kind", ["bios", "uefi"])
def test_variables_come_from_a_partition_and_the_machine_powers_off(
    exportable: Path, kind: str, tmp_path: Path
) -> None:
    talker = with_image(exportable, TALKER, tmp_path / "talker", network=False)
    out = exported(talker, tmp_path, "--to", "disk", "-e", "EXPORTED=as it was told", "--", "say", "so")
    assert (out / "disk.raw").stat().st_mode & 0o777 == 0o600
    command = command_of(out) + firmware_of(kind, tmp_path)
    done = subprocess.run(["sh", "-c", command], cwd=out, capture_output=True, timeout=200, check=False)
    assert b"word so\r\n" in done.stdout and b"EXPORTED=as it was told\r\n" in done.stdout, done.stdout[-2000:]
    assert done.returncode == 0


def test_a_kernel_without_pci_is_refused_with_the_command_that_adds_it(lighttpd: Fitted, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "export", lighttpd.bundle, "--to", "disk", "-o", tmp_path / "out")
    assert ended.code == 2 and "PCI" in ended.stderr and "refit" in ended.stderr and "--for disk" in ended.stderr
