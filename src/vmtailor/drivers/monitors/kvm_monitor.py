# SPDX-License-Identifier: Apache-2.0
"""A monitor that has KVM and nothing else: the part that all of them share which take a command and files, and whose
standard input and output are the serial line."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO, ClassVar

from vmtailor.base.errors import HostError, UserInputError, VmtailorError
from vmtailor.base.files import temporary
from vmtailor.base.natives import Natives
from vmtailor.base.process import CommandFailed, on_path, pasteable, run, spawn
from vmtailor.base.text import plain
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.monitors import kvm_guest
from vmtailor.drivers.monitors.monitor import KVM_DEVICE, KvmState, KvmVerdict, Monitor, Orders, StartPlace, Wants
from vmtailor.drivers.monitors.running_machine import Lines, RunningMachine
from vmtailor.model.architecture import named, of_host
from vmtailor.model.boots.ending import End
from vmtailor.model.checks import Check, Need, State
from vmtailor.model.machine import HOST_CPU, Accelerator, Clock, Machine

#: The MAC address of a machine's network device, the same with every monitor.
MAC = "52:54:00:12:34:56"
#: The file, in the folder in which a monitor is started, to which one writes that keeps a log.
LOG = "monitor.log"
#: The folder and the TAP device in commands that are shown.
_SHOWN = StartPlace("/machine", tap="tap0")
_MOST_LOG = 8000
#: Seconds in which a monitor says its version, and in which the small guest has to end.
_VERSION_S, _TRIAL_S = 20.0, 10.0
_TRIAL_BYTES = 64 << 20
_VERSION = re.compile(r"\bv?(\d+\.\d+(?:\.\d+)?(?:[-+~][0-9A-Za-z.+~-]{1,60})?)")


class KvmMachine(RunningMachine):
    """A machine under way in such a monitor, which is asked nothing. `log`: the file in which the monitor keeps one."""

    def __init__(
        self, process: subprocess.Popen[bytes], lines: Lines, command: str, errors: IO[bytes], title: str, log: Path
    ) -> None:
        super().__init__(process, lines, command, errors)
        self.title = title
        self._log = log

    def stderr(self) -> str:
        """Return the end of what the monitor has said so far, and of its log."""
        log = b""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_LOG))
            log = file.read(_MOST_LOG)
        return "\n".join(part for part in (log.decode("utf-8", "replace").strip(), super().stderr()) if part)

    def not_started(self, end: End) -> HostError:
        """Return the error of a monitor that ended before its machine said a word, with the monitor's own."""
        error = super().not_started(end)
        first = next((line for line in end.stderr.splitlines() if line.strip()), "")
        return type(error)(
            f"{error.message}: {plain(first.strip())[:200]}" if first else error.message,
            hint=error.hint, details=error.details,
        )  # fmt: skip


class KvmMonitor(Monitor):
    """Starts machines by a program and what `orders` gives. `program`: its name; `source`: where it is to be had, since
    no distribution packages it; `asked`: the arguments for which it says its version."""

    program: ClassVar[str]
    source: ClassVar[str]
    asked: ClassVar[tuple[str, ...]] = ("--version",)

    def orders(self, machine: Machine, place: StartPlace) -> Orders:
        """Return the command and the files by which a machine starts. Raises UserInputError for what this monitor
        cannot give, and for a network without a TAP device."""
        self.require(machine)
        if machine.kernel is None:
            raise UserInputError(f"{self.row.title} starts a machine's kernel, and this machine has none")
        if machine.network and not place.tap:
            raise self._no_network()
        return self._orders(machine, machine.kernel, place)

    @abstractmethod
    def _orders(self, machine: Machine, kernel: str, place: StartPlace) -> Orders:
        """Return what `orders` returns, of a machine with this kernel that can be given."""

    def _no_network(self) -> UserInputError:
        return UserInputError(
            f"{self.row.title} has no network on this host: a TAP device is root's to make",
            hint="choose QEMU, a machine without a network, or the lab (--lab)",
        )

    def command(self, machine: Machine) -> list[str]:
        """Return the command, with the content of a file in the place of its name."""
        orders = self._orders(machine, machine.kernel or "", _SHOWN)
        files = {f"{_SHOWN.folder}/{name}": data.decode("utf-8", "replace") for name, data in orders.files.items()}
        return [files.get(word, word) for word in orders.argv]

    # --- the machine on this host

    @contextlib.contextmanager
    def run(self, machine: Machine, wants: Wants) -> Iterator[RunningMachine]:
        """Start a machine on this host, without a network. Raises UserInputError when a file is not there, HostError
        when KVM or the monitor is not."""
        if machine.network:
            raise self._no_network()
        for path in (*machine.files.values(), *(disk.path for disk in machine.disks)):
            if not Path(path).is_file():
                raise UserInputError(f"{path} does not exist", hint="the machine cannot be booted without it")
        if closed := _closed():
            raise HostError(
                f"{self.row.title} starts machines under KVM alone: {closed.reason}",
                hint="vmtailor doctor checks the host; in the lab (--lab) it works on any",
            )
        with self._launched(machine) as running:
            yield running

    @contextlib.contextmanager
    def _launched(self, machine: Machine) -> Iterator[KvmMachine]:
        program = self._program()
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary.held_folder())
            names = {path: str(Path(path).absolute()) for path in machine.files.values()}
            names |= {disk.path: str(Path(disk.path).absolute()) for disk in machine.disks}
            orders = self.orders(machine, StartPlace(str(folder), names))
            (folder / LOG).touch()  # which not all of them make
            for name, content in orders.files.items():
                (folder / name).write_bytes(content)
            errors, serial = stack.enter_context(tempfile.TemporaryFile()), stack.enter_context(SerialLine())
            started = spawn(
                [program, *orders.argv[1:]], stdin=serial.guest_in, stdout=serial.guest_out, stderr=errors,
                env=_environment(), cwd=folder, umask=0o077,
            )  # fmt: skip
            try:
                process = stack.enter_context(started)
            except OSError as error:  # a program of another architecture
                raise self._unusable(program, error) from error
            serial.started()
            shown = pasteable(self.command(machine))
            yield KvmMachine(process, Lines(serial), shown, errors, self.row.title, folder / LOG)

    # --- what it is

    def _program(self) -> str:
        """Return the path of the program. Raises HostError when it is not installed."""
        found = on_path(self.program)
        if found is None:
            raise HostError(f"the program '{self.program}' is not installed", hint=f"{self.source}; the lab (--lab)")
        return found

    def _unusable(self, program: str, error: OSError) -> HostError:
        why = os.strerror(error.errno or 0).lower()
        return HostError(f"{program} cannot be started: {why}", hint=f"{self.source}, for this host's processor")

    def version(self, architecture: str) -> str:
        """Return the version that the program says. Raises HostError when there is none, or it says none."""
        program = self._program()
        try:
            said = run([program, *self.asked], timeout_s=_VERSION_S, env=_environment(), most_bytes=1 << 16)
        except CommandFailed as error:
            words = error.details or "without a word"
            raise HostError(f"{self.row.title} does not say its version", hint=self.source, details=words) from error
        except OSError as error:
            raise self._unusable(program, error) from error
        found = _VERSION.search(said.text)
        if found is None:
            raise HostError(f"{self.row.title} does not say its version", hint=self.source, details=said.text[:200])
        return found[1]

    def identity(self, architecture: str, natives: Natives) -> tuple[str | Path, ...]:
        """Return the program by its content: it has no firmware."""
        return (Path(self._program()).resolve(),)

    def checks(self) -> tuple[Check, ...]:
        """Return whether the program is there. What it is good for, KVM's own check says."""
        why = "starts bundles under KVM"
        try:
            found = self.version(of_host().name)
        except VmtailorError as error:
            return (
                Check(
                    name=self.row.title, state=State.LIMITED, need=Need.OPTIONAL, found=error.message, why=why,
                    fix=error.hint or self.source,
                ),
            )  # fmt: skip
        return (Check(name=self.row.title, state=State.OK, need=Need.OPTIONAL, found=found, why=why),)

    # --- KVM

    def kvm(self) -> KvmVerdict:
        """Start a small guest under KVM in this monitor, with a deadline."""
        if closed := _closed():
            return closed
        family = of_host()
        if family.name != kvm_guest.ARCHITECTURE:
            return KvmVerdict(KvmState.ABSENT, f"no guest that would try it is made for {family.title}")
        board = next((one for one in family.board_names if family.board_named(one).bus in self.row.gives.buses), None)
        if board is None:
            return KvmVerdict(KvmState.ABSENT, f"{self.row.title} has none of the machines of {family.title}")
        try:
            return self._tried(board)
        except VmtailorError as error:
            return KvmVerdict(KvmState.FAILS, error.message, error.details)

    def _tried(self, board: str) -> KvmVerdict:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            kernel = Path(folder, "kernel")
            kernel.write_bytes(kvm_guest.elf())
            console = named(kvm_guest.ARCHITECTURE).kernel.console
            machine = Machine(
                board=board, memory_bytes=_TRIAL_BYTES, kernel=str(kernel), words=(f"console={console}", "quiet"),
                clock=Clock.WALL, accelerator=Accelerator.KVM, cpu_model=HOST_CPU, acpi=self.row.gives.acpi,
                architecture=kvm_guest.ARCHITECTURE, monitor=self.name,
            )  # fmt: skip
            with self._launched(machine) as running:
                # Some end with their machine, some start it again: its words are what counts.
                while (
                    kvm_guest.SAID not in running.serial.tail
                    and (left := running.left(_TRIAL_S)) > 0
                    and running.serial.wait_readable(left)
                    and running.serial.recv(4096)
                ):
                    pass
                fine = kvm_guest.SAID in running.serial.tail
                if not fine and select.select([running.serial], [], [], 0)[0]:
                    running.wait(1.0)
                code, said = running.returncode, f"{running.stderr()}\n{running.command}".strip()
        seconds = time.monotonic() - started
        if fine:
            return KvmVerdict(KvmState.WORKS, "", said, seconds)
        if code is None:
            reason = f"a small guest in {self.row.title} hangs; it was ended after {seconds:.0f} s"
            return KvmVerdict(KvmState.HANGS, reason, said, seconds)
        reason = f"a small guest in {self.row.title} fails (its status {code})"
        return KvmVerdict(KvmState.FAILS, reason, said, seconds)


def mebibytes(machine: Machine) -> int:
    """Return a machine's memory in MiB, rounded up: these monitors know no smaller unit."""
    return -(-machine.memory_bytes >> 20)


def words(machine: Machine, console: str = "") -> str:
    """Return the kernel's command line. `console`: what the monitor's serial line is called, where the architecture's
    own board calls it otherwise."""
    own = f"console={named(machine.architecture).kernel.console}"
    told = (word.partition(",") for word in machine.words)
    return " ".join((f"console={console}" if console and word == own else word) + c + rest for word, c, rest in told)


def _closed() -> KvmVerdict | None:
    """Return why this host's KVM cannot be opened; None where it can."""
    if not KVM_DEVICE.exists():
        return KvmVerdict(KvmState.ABSENT, f"there is no {KVM_DEVICE}")
    try:
        with KVM_DEVICE.open("r+b", buffering=0):
            return None
    except OSError as error:
        return KvmVerdict(KvmState.FORBIDDEN, f"{KVM_DEVICE} cannot be opened: {os.strerror(error.errno or 0)}")


def _environment() -> dict[str, str]:
    """Return what a monitor sees of our environment: next to nothing."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {"LC_ALL": "C", **kept}
