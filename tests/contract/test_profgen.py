# SPDX-License-Identifier: Apache-2.0
"""llvm-profgen turns counts of blocks into a profile, and clang compiles by it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.drivers.kernel import compiler_flags, load_profile
from vmtailor.drivers.kernel.make import Toolchain
from vmtailor.model.architecture import presumed

pytestmark = pytest.mark.contract

SOURCE = """\
int twice(int n)
{
    if (n > 7)
        return n * 3;
    return n + n;
}
int main(int argc, char **argv)
{
    (void)argv;
    return twice(argc);
}
"""
FLAGS = ("-O1", "-fno-inline", "-Wall", "-Wextra", "-Werror")


def run(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, text=True, capture_output=True, timeout=60).stdout


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program with debug information, as the kernel that is counted has it."""
    (tmp_path / "a.c").write_text(SOURCE)
    run("clang-19", *FLAGS, "-g", load_profile.COUNTED, tmp_path / "a.c", "-o", tmp_path / "a")
    return tmp_path / "a"


def ranges_of(program: Path, name: str, count: int) -> str:
    """Return the counts of one function that ran as a whole."""
    listing = run("llvm-objdump-19", "-d", f"--disassemble-symbols={name}", "--no-show-raw-insn", program)
    at = [line.split(":")[0].strip() for line in listing.splitlines() if line.startswith(" ")]
    return f"1\n{at[0]}-{at[-1]}:{count}\n1\n1->{at[0]}:{count}\n"


def test_counts_become_a_profile_that_clang_takes(program: Path, tmp_path: Path) -> None:
    data = load_profile.symbolized(ranges_of(program, "twice", 4242), program, "-19")
    head, *lines = data.decode().splitlines()
    name, total, entries = head.split(":")
    assert (name, entries) == ("twice", "4242") and int(total) >= 2 * 4242
    assert any(line.strip().partition(".")[0].partition(":")[0] == "2" for line in lines), lines  # `if` is line 3
    store, folder = Store(tmp_path / "cache"), tmp_path / "out"
    sha256 = load_profile.keep(data, store)
    assert sha256 == hashlib.sha256(data).hexdigest()
    flag = f"{load_profile.FLAG}={sha256}"
    load_profile.lay((flag,), store, folder)
    # As make runs it: in the folder where the profile lies.
    argv = ["clang-19", *FLAGS, flag, "-S", "-emit-llvm", str(tmp_path / "a.c"), "-o", "-"]
    made = subprocess.run(argv, check=True, text=True, capture_output=True, timeout=60, cwd=folder)
    assert made.stderr == "" and '!"function_entry_count", i64 4243' in made.stdout
    (folder / sha256).write_text("no profile\n")
    bad = subprocess.run(argv, check=False, text=True, capture_output=True, timeout=60, cwd=folder)
    assert bad.returncode and "Could not open profile" in bad.stderr


@pytest.mark.parametrize("ranges", ["", "0\n0\n", "1\n99991000-99991010:5\n0\n"])
def test_counts_of_nothing_are_refused_in_one_sentence(ranges: str, program: Path) -> None:
    with pytest.raises(BuildError, match="no profile") as caught:
        load_profile.symbolized(ranges, program, "-19")
    assert "\n" not in caught.value.message and "/tmp" not in caught.value.message


def test_a_program_without_debug_information_gives_none(program: Path, tmp_path: Path) -> None:
    ranges = ranges_of(program, "twice", 10)
    run("strip", "-g", program)
    with pytest.raises(BuildError, match=r"llvm-profgen made no profile of the load's counts: warning"):
        load_profile.symbolized(ranges, program, "-19")


def test_a_profile_is_asked_of_clang_alone() -> None:
    flag = f"{load_profile.FLAG}={load_profile.LOAD}"
    compiler_flags.require_known(["CC=clang-19", flag], Toolchain.of(presumed(), flags=("CC=clang-19", flag)))
    with pytest.raises(UserInputError, match=r"^a profile of the load is for clang, and this kernel is"):
        compiler_flags.require_known([flag], Toolchain.of(presumed(), flags=(flag,)))
    with pytest.raises(UserInputError) as caught:
        load_profile.require_program("-77")
    assert "llvm-profgen-77" in caught.value.message and "llvm-77" in (caught.value.hint or "")
