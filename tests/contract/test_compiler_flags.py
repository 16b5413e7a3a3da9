# SPDX-License-Identifier: Apache-2.0
"""Compilers refuse flags that they do not know, and take those of the catalogue."""

from __future__ import annotations

import pytest

from vmtailor.analysis.changes import load_catalogue
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.kernel import compiler_flags
from vmtailor.drivers.kernel.make import Toolchain
from vmtailor.model.architecture import presumed
from vmtailor.model.change import ChangeKind

pytestmark = pytest.mark.contract


def test_the_compiler_takes_every_flag_of_the_catalogue() -> None:
    settings = [
        str(setting) for change in load_catalogue.catalogue() for setting in change.candidate.change.settings
        if setting.kind is ChangeKind.COMPILER and "march" not in setting.name
    ]  # fmt: skip
    assert len(settings) >= 4
    compiler_flags.require_known(settings, Toolchain.of(presumed()))


@pytest.mark.parametrize("flag", ["-fno-such-thing", "-march=no-such", "--param=no-such=1"])
def test_an_unknown_flag_is_named_in_one_sentence(flag: str) -> None:
    with pytest.raises(UserInputError, match="does not take the flag") as caught:
        compiler_flags.require_known(["-O2", flag], Toolchain.of(presumed()))
    assert flag in caught.value.message and "\n" not in caught.value.message
