# SPDX-License-Identifier: Apache-2.0
"""Reading what QEMU's monitor says of the registers."""

from __future__ import annotations

import pytest

from vmtailor.drivers.qemu.qemu import all_halted
from vmtailor.model.architecture import named


def cpu(number: int, flags: int, waits: int) -> str:
    return (
        f"\nCPU#{number}\nRAX=0000000000000000 RBX=ffffffff81a0c940\n"
        f"RIP=ffffffff816a5a0f RFL={flags:08x} [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT={waits}\nES =0000\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (cpu(0, 0x046, 1), True),
        (cpu(0, 0x246, 1), False),  # idle: the next interrupt wakes it
        (cpu(0, 0x046, 0), False),  # at work with interrupts off
        (cpu(0, 0x046, 1) + cpu(1, 0x046, 1), True),
        (cpu(0, 0x046, 1) + cpu(1, 0x246, 1), False),
        ("EAX=00000000\nEIP=0000fff0 EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\n", True),
        ("unknown command: 'info registers'", False),
        ("", False),
    ],
)
def test_all_halted(text: str, expected: bool) -> None:
    assert all_halted(text, named("x86_64").emulator) is expected
