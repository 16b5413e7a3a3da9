# SPDX-License-Identifier: Apache-2.0
"""How the program that ran a machine ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vmtailor.base.errors import GuestError


class Ending(StrEnum):
    """How a machine ended."""

    EXITED = "exited"  # by itself: power-off, or a triple fault with -no-reboot
    PANIC = "panic"  # the kernel said so on its console
    DEADLINE = "deadline"  # it still ran when its time was over
    DIED = "died"  # QEMU failed, or was killed from outside


@dataclass(frozen=True)
class End:
    """The end of one boot, with what a person needs to see why. `seconds` of host time since QEMU was started."""

    ending: Ending
    command: str
    console_tail: str
    stderr: str
    seconds: float
    returncode: int | None

    def error(self) -> GuestError:
        """This end as the error it is where it was not wanted."""
        what = {
            Ending.EXITED: "the machine ended by itself too early",
            Ending.PANIC: "the guest's kernel panicked",
            Ending.DEADLINE: f"the guest was not done after {self.seconds:.0f} s",
            Ending.DIED: f"QEMU ended with status {self.returncode}",
        }[self.ending]
        parts = (self.console_tail[-4000:], self.stderr, f"{self.command}\nafter {self.seconds:.1f} s")
        hint = "give it more time" if self.ending is Ending.DEADLINE else "the console's last lines tell more"
        return GuestError(what, hint=hint, details="\n".join(part.strip() for part in parts if part.strip()))
