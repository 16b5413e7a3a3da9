# SPDX-License-Identifier: Apache-2.0
"""Compilers refuse flags that they do not know, and take those of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmtailor.analysis.changes import load_catalogue
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.kernel import compiler_flags
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell
from vmtailor.drivers.kernel.make import Toolchain
from vmtailor.model.architecture import presumed
from vmtailor.model.change import ChangeKind

pytestmark = pytest.mark.contract


def test_the_compiler_takes_every_flag_of_the_catalogue() -> None:
    checked: list[str] = []
    for change in load_catalogue.catalogue():
        flags = tuple(
            str(setting) for setting in change.candidate.change.settings
            if setting.kind is ChangeKind.COMPILER and "march" not in setting.name
        )  # fmt: skip
        compiler_flags.require_known(flags, Toolchain.of(presumed(), flags=flags))
        checked += flags
    assert {"-O3", "CC=clang-19"} <= set(checked)


def test_clang_is_asked_with_its_own_name() -> None:
    toolchain = Toolchain.of(presumed(), flags=("CC=clang-19",))
    assert "clang version 19" in toolchain.describe() and "LLD 19" in toolchain.describe()
    with pytest.raises(UserInputError, match=r"^clang-19 does not take the flag --param=max-inline-insns-auto=60"):
        compiler_flags.require_known(["CC=clang-19", "--param=max-inline-insns-auto=60"], toolchain)


def test_a_compiler_that_is_not_installed_is_named_with_its_package() -> None:
    toolchain = Toolchain.of(presumed(), flags=("CC=clang-77",))
    with pytest.raises(UserInputError) as caught:
        compiler_flags.require_known(["CC=clang-77"], toolchain)
    assert "clang-77" in caught.value.message and "clang-77" in (caught.value.hint or "")


def test_kconfig_knows_the_compiler(tmp_path: Path) -> None:
    """Link time optimisation is there under clang alone, and its programs answer the kernel's own questions."""
    (tmp_path / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\nEXTRAVERSION =\n")
    asked = KconfigShell(tmp_path, llvm="-19")
    assert asked("$CC $CLANG_FLAGS -Wa,--version -c -x assembler-with-cpp /dev/null -o /dev/null 2>&1").startswith(
        "Debian clang"
    )
    assert "LLD 19" in asked("$LD --version") and "LLVM version 19" in asked("$AR --version")
    assert "clang version 19" in asked.env["CC_VERSION_TEXT"]


@pytest.mark.parametrize("flag", ["-fno-such-thing", "-march=no-such", "--param=no-such=1"])
def test_an_unknown_flag_is_named_in_one_sentence(flag: str) -> None:
    with pytest.raises(UserInputError, match="does not take the flag") as caught:
        compiler_flags.require_known(["-O2", flag], Toolchain.of(presumed()))
    assert flag in caught.value.message and "\n" not in caught.value.message
