# SPDX-License-Identifier: Apache-2.0
"""The cost of a monitor: what was executed around and within its guest, and why the guest was left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.model.architecture import named


@dataclass(frozen=True)
class CauseRow:
    """One cause of exits in data/exits: an exit has it when a function of `passes` was called until the guest was
    entered again, and one of `then`, where there are any."""

    title: str
    passes: tuple[str, ...]
    then: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventRow:
    """An event of KVM's trace that says what an exit is about. `pattern`: its group `number` is that of a port, an
    address, a register, in hexadecimal; a group `write`, where there is one, matches a write alone."""

    name: str
    pattern: str


@dataclass(frozen=True)
class DeviceRow:
    """A device, by the event of its accesses and the numbers first <= number <= last. `written`: by writes alone. The
    first row that fits an access counts."""

    event: str
    first: int
    last: int
    title: str
    written: bool = False


@dataclass(frozen=True)
class ExitRows:
    """A file of data/exits, of one architecture. `by_bytes`: functions that clear and copy memory by repeated
    instructions."""

    cause: tuple[CauseRow, ...]
    event: tuple[EventRow, ...]
    by_bytes: tuple[str, ...] = ()
    device: tuple[DeviceRow, ...] = ()


@cache
def exit_rows(architecture: str) -> ExitRows:
    """Return what is known of exits on an architecture, by its name. Raises UserInputError where nothing is."""
    name, texts = f"exits/{architecture}.toml", dict(toml_files.texts("exits"))
    if name not in texts:
        raise UserInputError(
            f"boots in the lab cannot be counted for {named(architecture).title}: its exits are not known",
            hint="vmtailor verify --lab works where there is a lab for it",
        )
    return toml_files.read_strictly(texts[name], ExitRows, name)


@dataclass(frozen=True)
class MonitorPart:
    """The instructions from one milestone to the next, `begin` and `end`. `exits`: times that the guest was entered,
    and left. `by_bytes`: those of the host's kernel that clear and copy memory by repeated instructions, of which each
    repetition counts, though a processor does many at once."""

    begin: str
    end: str
    host_user: int
    host_kernel: int
    guest_kernel: int
    guest_user: int
    exits: int
    by_bytes: int = 0

    @property
    def executed(self) -> int:
        return self.host_user + self.host_kernel + self.guest_kernel + self.guest_user


@dataclass(frozen=True)
class ExitCost:
    """The exits of one cause from the first entry into the guest until it was ready, and the instructions of the whole
    host from each exit to the next entry. `to_monitor`: how many of them left the host's kernel, too."""

    cause: str
    exits: int = 0
    to_monitor: int = 0
    host_kernel: int = 0
    host_user: int = 0


@dataclass(frozen=True)
class ExitPlace:
    """Accesses that made the guest exit, by KVM's trace in a boot of its own, until as many exits as there were until
    ready. `event`: of the trace; `title`: of the device; `place`: a number in hexadecimal where no device is known."""

    event: str
    title: str
    exits: int


@dataclass(frozen=True)
class SmallPages:
    """The cost of a boot on a host without huge pages: `until` ready, and its exits by cause."""

    until: MonitorPart
    causes: tuple[ExitCost, ...]


@dataclass(frozen=True)
class MonitorCost:
    """The cost of a monitor in one boot, from its exec on. `waited_ns`: in which the whole host was idle, from the exec
    to the monitor's end; None where it is not known. `places` and `small_pages`: of boots of their own."""

    parts: tuple[MonitorPart, ...]
    causes: tuple[ExitCost, ...] = ()
    places: tuple[ExitPlace, ...] = ()
    waited_ns: int | None = None
    small_pages: SmallPages | None = None

    def until(self, name: str) -> MonitorPart | None:
        """Return all from the exec of the monitor until a milestone, or None if it was not reached."""
        ends = [part.end for part in self.parts]
        if name not in ends:
            return None
        parts = self.parts[: ends.index(name) + 1]
        return MonitorPart(
            begin=parts[0].begin, end=name, host_user=sum(one.host_user for one in parts),
            host_kernel=sum(one.host_kernel for one in parts), guest_kernel=sum(one.guest_kernel for one in parts),
            guest_user=sum(one.guest_user for one in parts), exits=sum(one.exits for one in parts),
            by_bytes=sum(one.by_bytes for one in parts),
        )  # fmt: skip
