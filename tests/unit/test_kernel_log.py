# SPDX-License-Identifier: Apache-2.0
"""New complaints of the kernel are found; old ones, in other numbers, are not."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.kernel_log import messages, new_messages

BASELINE = "[    0.1] ACPI BIOS Error (bug): 0x12 at 7\nbanner\n[    0.2] virtio_blk: odd\n"


def test_only_kernel_lines_count() -> None:
    assert messages(BASELINE + "hello from the program\n") == ["ACPI BIOS Error (bug): 0x12 at 7", "virtio_blk: odd"]


def test_the_same_message_with_other_numbers_is_not_new() -> None:
    assert new_messages("[    9.9][    T1] ACPI BIOS Error (bug): 0xff at 99\n", BASELINE) == []


def test_a_new_message_is_found_once() -> None:
    log = "[ 1.0] Warning: unable to open an initial console.\n" * 2
    assert new_messages(log, BASELINE) == ["Warning: unable to open an initial console."]
    assert new_messages(log, BASELINE, [re.compile("initial console")]) == []


@given(st.text(), st.text())
def test_no_text_breaks_it(tailored: str, baseline: str) -> None:
    assert new_messages(tailored, tailored) == []
    new_messages(tailored, baseline)
