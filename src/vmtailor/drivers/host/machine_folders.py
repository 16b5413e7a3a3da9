# SPDX-License-Identifier: Apache-2.0
"""The folders of named machines, below the user's folder for state: `machines/ID` and `names/NAME`, a link to its ID.

Python writes `machine.json`, once; the supervisor writes the rest. Both are read as if somebody else had written them:
regular files of ours alone, bounded, and nothing in them becomes a path outside."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from vmtailor.base import near_names
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import AnswerNo, HostError, UserInputError, VmtailorError
from vmtailor.base.files import file_lock, records
from vmtailor.base.text import is_number, plain
from vmtailor.drivers.host import machine_names, machine_removal, user_folders
from vmtailor.model.kept_machine import ID, KILLED, NAME, KeptMachine, MachineState, MachineStatus

RECORD, STATE, LOG, ORDERS, ALIVE, CONTROL = "machine.json", "state", "log", "orders", "alive", "control"
#: The disk of what a machine writes, where it keeps that.
LAYER = "layer.raw"
#: A link to the folder of the control socket.
PLACE = "runtime"
#: The folder of a bundle that only this machine has: of an image that was run.
BUNDLE = "bundle"
#: Logs that were rotated, the newest first.
OLD_LOGS = ("log.1", "log.2")
#: Longest record and longest state that are read; machines that are listed.
MOST_RECORD_BYTES, MOST_STATE_BYTES, MOST_MACHINES = 4 << 20, 64 << 10, 10_000
#: The first record of every text of records.
_VERSION = b"vmtailor 1"
#: Seconds for which a lock is tried that a look at a machine may hold for a moment.
_LOOK_S = 0.2
_HEALTH = ("none", "starting", "healthy", "unhealthy")


class NoMachine(AnswerNo):
    """No machine, or more than one, has a name."""


@dataclass(frozen=True)
class MachineFolder:
    """The folder of one machine, and the folder of its socket."""

    path: Path
    runtime: Path
    record: KeptMachine

    @property
    def control(self) -> Path:
        return self.runtime / CONTROL

    @property
    def logs(self) -> tuple[Path, ...]:
        """Return the paths of its logs, the oldest first; each may be missing."""
        return (*(self.path / name for name in reversed(OLD_LOGS)), self.path / LOG)

    @property
    def layer(self) -> Path | None:
        """Return the path of the disk of what it writes; None where that is in memory."""
        return self.path / LAYER if self.record.layer_bytes else None

    def layer_taken_bytes(self) -> int | None:
        """Return what the disk of what it writes takes of the host's; None where there is none."""
        try:
            return None if self.layer is None else self.layer.lstat().st_blocks * 512
        except OSError:
            return None

    @property
    def alive(self) -> bool:
        """Return whether its supervisor lives, which holds a lock as long as it does."""
        return file_lock.is_held(self.path / ALIVE)

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock of a machine that does not run, so that nobody starts it; yields whether it is held."""
        with file_lock.tried(self.path / ALIVE, _LOOK_S) as lock:
            yield lock is not None

    def state(self) -> MachineState:
        """Return its state as it is now. A machine whose supervisor was killed has exited with status 137."""
        # The lock is asked first: a supervisor that ends between the two has written its last state.
        alive = self.alive
        written = parse_state(bytes_of(self.path, STATE, MOST_STATE_BYTES) or b"")
        if alive:
            return replace(written, alive=True)
        if written.status in (MachineStatus.CREATED, MachineStatus.EXITED, MachineStatus.DEAD):
            return written
        return replace(
            written,
            status=MachineStatus.EXITED,
            pid=0,
            exit_code=KILLED,
            finished_ns=written.finished_ns if written.finished_ns >= written.started_ns else 0,
            health="none",
            error=written.error or "its supervisor was killed",
        )

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait until its supervisor has gone, at most so long; returns whether it has."""
        end = time.monotonic() + timeout_s
        pause_s = 0.005
        while self.alive:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, pause_s))
            pause_s = min(2 * pause_s, 0.1)
        return True


def parse_state(data: bytes) -> MachineState:
    """Return what a state says: records `key value`, each ended by a NUL. What makes no sense counts for nothing."""
    values = parse_records(data)
    status = next((one for one in MachineStatus if one == values.get("status")), MachineStatus.CREATED)
    numbers = {key: _number(values.get(key, "")) for key in ("pid", "started-ns", "finished-ns", "exit", "restarts")}
    health = values.get("health", "none")
    return MachineState(
        status=status,
        pid=numbers["pid"],
        started_ns=numbers["started-ns"],
        finished_ns=numbers["finished-ns"],
        exit_code=numbers["exit"],
        restarts=numbers["restarts"],
        health=health if health in _HEALTH else "none",
        error=values.get("error", "")[:4096],
    )


def parse_records(data: bytes) -> dict[str, str]:
    """Return records `key value`, each ended by a NUL, by key; the last of a key counts. A first record with the
    version is passed over, and so is what is no record."""
    found: dict[str, str] = {}
    for number, part in enumerate(data.split(b"\0")):
        key, space, value = part.partition(b" ")
        if space and not (number == 0 and part == _VERSION):
            found[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


def _number(text: str) -> int:
    return int(text) if is_number(text) and len(text) < 20 else 0


def bytes_of(folder: Path, name: str, most_bytes: int) -> bytes | None:
    """Return the content of a regular file of ours in a folder; None where there is none, or it is longer."""
    try:
        file = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(file, "rb") as opened:  # noqa: PTH123
        found = os.fstat(file)
        if found.st_uid not in (0, os.geteuid()) or (found.st_mode & 0o170000) != 0o100000:
            return None
        data = opened.read(most_bytes + 1)
    return data if len(data) <= most_bytes else None


class MachineFolders:
    """All named machines of the user."""

    def __init__(self) -> None:
        home = user_folders.state_home()
        self.machines, self.names = home / "machines", home / "names"
        self.runtime = user_folders.runtime_home()

    def _folder(self, identifier: str) -> MachineFolder | None:
        """Return the folder of an identifier; None where its record is missing or makes no sense."""
        path = self.machines / identifier
        data = bytes_of(path, RECORD, MOST_RECORD_BYTES)
        if data is None:
            return None
        try:
            record = records.from_bytes(KeptMachine, data, str(path / RECORD))
        except UserInputError:
            return None
        if record.id != identifier:
            return None
        # The link has the last word: a name that was changed is not written into the record.
        name = record.name if NAME.fullmatch(record.name) else record.short_id
        return MachineFolder(path, self._runtime(path, identifier), replace(record, name=self._named(identifier, name)))

    def _runtime(self, path: Path, identifier: str) -> Path:
        """Return the folder of a machine's socket: its supervisor has left a link to it, for it may have had another
        environment than we have. It is looked at before it is used."""
        with contextlib.suppress(OSError):
            there = (path / PLACE).readlink()
            if there.is_absolute() and there.name == identifier and ".." not in there.parts:
                return there
        return self.runtime / identifier

    def _named(self, identifier: str, name: str) -> str:
        if self._target(name) == identifier:
            return name
        return next((other for other, target in self._links() if target == identifier), name)

    def _target(self, name: str) -> str:
        """Return the identifier that a name leads to; empty where it leads nowhere."""
        try:
            target = str((self.names / name).readlink())
        except OSError:
            return ""
        found = target.rpartition("/")[2]
        return found if ID.fullmatch(found) else ""

    def _links(self) -> Iterator[tuple[str, str]]:
        with contextlib.suppress(OSError), os.scandir(self.names) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name):
                    yield entry.name, self._target(entry.name)

    def _identifiers(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(one.name for one in self.machines.iterdir() if ID.fullmatch(one.name))[:MOST_MACHINES]
        return []

    def every(self) -> list[MachineFolder]:
        """Return all machines, the newest first. Those that go by themselves when they have ended are removed, and so
        is what killed commands left."""
        found = []
        for name in self._identifiers():
            folder = self._folder(name)
            if folder is None:
                self._clear(name)
            elif not self._swept(folder):
                found.append(folder)
        return sorted(found, key=lambda folder: (folder.record.created, folder.record.id), reverse=True)

    def _clear(self, identifier: str) -> None:
        """Remove what a killed command has left of a machine."""
        machine_removal.clear(self.machines / identifier, self.runtime / identifier, RECORD, ALIVE)

    def _swept(self, folder: MachineFolder) -> bool:
        """Remove a machine that was started with `--rm` and has ended; returns whether it was."""
        if not folder.record.remove or folder.alive:
            return False
        state = folder.state()
        if state.status is MachineStatus.CREATED and not state.finished_ns:  # else its program could not be executed
            return False
        with contextlib.suppress(VmtailorError, OSError):
            return self.remove(folder)
        return False

    def find(self, word: str) -> MachineFolder:
        """Return the machine of a name, an identifier, or the beginning of one. Raises NoMachine."""
        found: list[str] = []
        if ID.fullmatch(word):
            found = [word]
        elif NAME.fullmatch(word) and (target := self._target(word)):
            found = [target]
        elif word and set(word) <= set("0123456789abcdef") and len(word) < 64:
            found = [one for one in self._identifiers() if one.startswith(word)]
        if len(found) > 1:
            raise NoMachine(
                f"'{plain(word[:80])}' is the beginning of {len(found)} identifiers",
                hint="give more of it, or the name",
            )
        folder = self._folder(found[0]) if found else None
        if folder is None or self._swept(folder):
            names = [name for name, target in self._links() if target and name != word]
            raise NoMachine(
                f"no machine is called '{plain(word[:80])}'",
                hint=near_names.or_else(word, names, "vmtailor ps -a lists all machines"),
            )
        return folder

    def create(self, record: KeptMachine) -> MachineFolder:
        """Make the folder of a machine; a name is drawn where the record has none. Raises UserInputError where the name
        is taken, HostError where the folder cannot be made."""
        user_folders.private(self.machines)
        user_folders.private(self.names)
        path = self.machines / record.id
        with disk_full_is_a_host_error(path):
            path.mkdir(mode=0o700)
            try:
                record = replace(record, name=self._take_name(record))
                records.save(record, path / RECORD, private=True)
            except BaseException:
                self._free_name(record.name, record.id)
                shutil.rmtree(path, ignore_errors=True)
                raise
        return MachineFolder(path, self.runtime / record.id, record)

    def _take_name(self, record: KeptMachine) -> str:
        if record.name:
            self._link(record.name, record.id)
            return record.name
        for number in range(100):
            name = machine_names.drawn(number)
            with contextlib.suppress(UserInputError):
                self._link(name, record.id)
                return name
        self._link(record.id[:32], record.id)
        return record.id[:32]

    def _link(self, name: str, identifier: str) -> None:
        """Take a name. Raises UserInputError where another machine has it."""
        place = self.names / name
        for _ in range(3):
            try:
                place.symlink_to(identifier)
                return
            except FileExistsError:
                target = self._target(name)
                if target:
                    self._clear(target)
                if target and (self.machines / target).is_dir():
                    raise UserInputError(
                        f"the name '{name}' is taken by the machine {target[:12]}",
                        hint=f"vmtailor rm {name} removes it, vmtailor rename {name} NEW gives it another name",
                    ) from None
                place.unlink(missing_ok=True)  # of a machine that is gone
        raise HostError(f"the name '{name}' cannot be taken", hint=f"remove {place}")

    def _free_name(self, name: str, identifier: str) -> None:
        if NAME.fullmatch(name) and self._target(name) == identifier:
            (self.names / name).unlink(missing_ok=True)

    def rename(self, folder: MachineFolder, name: str) -> None:
        """Give a machine another name. Raises UserInputError where it is taken, or none."""
        require_name(name)
        self._link(name, folder.record.id)
        self._free_name(folder.record.name, folder.record.id)

    def remove(self, folder: MachineFolder) -> bool:
        """Remove a machine that does not run, with all that it has kept; returns whether it did. A machine that runs is
        left alone. Raises OSError."""
        with folder.held() as held:
            if not held:
                return False
            # Without its record nobody finds or starts it any more, also where the rest cannot be removed at once.
            (folder.path / RECORD).unlink(missing_ok=True)
            self._free_name(folder.record.name, folder.record.id)
        machine_removal.remove(folder.path, folder.runtime)
        return True


def require_name(name: str) -> str:
    """Return a name that a machine can have. Raises UserInputError."""
    if not NAME.fullmatch(name):
        raise UserInputError(
            f"no machine can be called '{plain(name[:80])}'",
            hint="two characters or more: letters, digits, and behind the first one _ . -",
        )
    return name


def new_id() -> str:
    """Return an identifier that no other machine has."""
    return secrets.token_hex(32)


def now() -> str:
    """Return the time as a record has it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
