# SPDX-License-Identifier: Apache-2.0
"""`run`: one start of a bundle, with the caller's terminal, signals and ports."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from vmtailor.base import records
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.store import Store
from vmtailor.base.text import plain
from vmtailor.drivers import guest_volume, kvm, qemu, rig
from vmtailor.drivers.guest import GuestSession
from vmtailor.drivers.guest_volume import Run, Terminal
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine, PublishedPort

#: Seconds between the stop signal and the end of the machine, as container engines wait.
STOP_S = 10.0
#: Seconds within which init must have spoken: a kernel that goes astray says nothing, and would be waited for for ever.
START_S = 120.0
#: Exit status of what had to be killed.
KILLED = 128 + signal.SIGKILL
_PORT = re.compile(r"(?:(?P<address>[0-9.]+):)?(?P<host>[0-9]{1,9}):(?P<guest>[0-9]{1,9})(?:/(?P<protocol>tcp|udp))?\Z")


@dataclass(frozen=True)
class RunOptions:
    """What differs from the image's configuration; empty or None leaves it. `env` entries are NAME=VALUE or NAME."""

    bundle: Path
    command: tuple[str, ...] = ()
    entrypoint: str | None = None
    ports: tuple[PublishedPort, ...] = ()
    env: tuple[str, ...] = ()
    user: str | None = None
    cwd: str | None = None
    hostname: str | None = None
    interactive: bool = False
    terminal: bool = False
    memory_bytes: int | None = None
    accelerator: Accelerator | None = None
    outbound: bool = True


def parse_port(text: str) -> PublishedPort:
    """`[ADDRESS:]HOST:GUEST[/PROTOCOL]`; the loopback address unless one is given."""
    match = _PORT.match(text)
    if match is None or not all(0 < int(match[part]) < 65536 for part in ("host", "guest")):
        raise _no_port(text)
    address = match["address"] or "127.0.0.1"
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise _no_port(text) from None
    return PublishedPort(address, int(match["host"]), int(match["guest"]), match["protocol"] or "tcp")


def _no_port(text: str) -> UserInputError:
    return UserInputError(f"'{text}' publishes no port", hint="for example -p 8080:80, or -p 0.0.0.0:8080:80/tcp")


def load_bundle(folder: Path) -> Bundle:
    """The record of a bundle; UserInputError when it is none, or a file of it is missing."""
    if not (folder / RECORD).is_file():
        raise UserInputError(f"{folder} is no bundle", hint="vmtailor fit IMAGE -o FOLDER makes one")
    bundle = records.load(Bundle, folder / RECORD)
    for name in (bundle.kernel, bundle.root):
        if not (folder / name).is_file():
            raise UserInputError(f"the bundle {folder} lacks its file {name}", hint="fit the image again")
    return bundle


def machine_of(folder: Path, bundle: Bundle, *, accelerator: Accelerator, memory_bytes: int | None = None) -> Machine:
    """The bundle's machine on the wall clock."""
    return Machine(
        kind=bundle.machine,
        memory_bytes=memory_bytes or bundle.memory_bytes,
        kernel=str((folder / bundle.kernel).absolute()),
        append=bundle.words,
        disks=(Disk(str((folder / bundle.root).absolute())),),
        cpus=bundle.cpus,
        cpu_model="host" if accelerator is Accelerator.KVM else "max",
        clock=Clock.WALL,
        accelerator=accelerator,
    )


def best_accelerator(store: Store | None = None) -> Accelerator:
    """KVM where a guest really runs under it. The answer is kept until the host is started again: asking a KVM that
    hangs takes seconds."""
    if not kvm.DEVICE.exists():
        return Accelerator.TCG
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    path = (store or Store()).root / "kvm" / boot
    if not path.is_file():
        records.write_atomic(path, kvm.kvm_works().state.value.encode())
    return Accelerator.KVM if path.read_text() == kvm.KvmState.WORKS.value else Accelerator.TCG


def run_of(options: RunOptions, image: ImageConfig, network: bool) -> Run:
    """What init is told for this start."""
    argv: tuple[str, ...] | None = None
    if options.entrypoint is not None:
        argv = (options.entrypoint, *options.command)
    elif options.command:
        argv = (*image.entrypoint, *options.command)
    size = shutil.get_terminal_size()
    return Run(
        argv=argv,
        env=tuple(variable for text in options.env for variable in _variable(text)),
        user=options.user,
        cwd=options.cwd,
        hostname=options.hostname,
        terminal=Terminal(size.lines, size.columns) if options.terminal else None,
        stdin=options.interactive,
        network=rig.NETWORK if network else None,
    )


def _variable(text: str) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE sets; NAME alone passes ours on, where it is set, as container engines do."""
    name, equals, value = text.partition("=")
    if not name or "\0" in text:
        raise UserInputError(f"'{text}' sets no variable", hint="write it as NAME=VALUE")
    if equals:
        return ((name, value),)
    return ((name, os.environ[name]),) if name in os.environ else ()


def run_bundle(options: RunOptions) -> int:
    """Run to the end; returns the container's exit status. Raises GuestError when the guest died before it had one."""
    bundle = load_bundle(options.bundle)
    if options.ports and not bundle.network:
        raise UserInputError(
            "this machine has no network device, so no port can be published",
            hint="the image exposes no port; fit it with --keep VIRTIO_NET",
        )
    accelerator = options.accelerator or best_accelerator()
    run = run_of(options, bundle.image, bundle.network)
    machine = machine_of(options.bundle, bundle, accelerator=accelerator, memory_bytes=options.memory_bytes)
    with tempfile.TemporaryDirectory(prefix="vmtailor-run-") as name:
        volume = Path(name) / "run"
        guest_volume.write_run_volume(volume, run)
        machine = replace(
            machine,
            append=(*machine.append, "VT_RUN=1"),
            disks=(*machine.disks, Disk(str(volume))),
            network=bundle.network,
            ports=options.ports,
            outbound=options.outbound,
        )
        with qemu.boot(machine) as running:
            session = GuestSession(running.serial, key=run.key, on_stdout=_writer(1), on_stderr=_writer(2))
            stop = guest_volume.signal_number(bundle.image.stop_signal or "SIGTERM")
            return _Relay(running, session, options, stop).run()


def _writer(descriptor: int) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    return write


class _Relay:
    """Between the caller's terminal and the guest, until the guest ends."""

    def __init__(
        self, running: qemu.RunningMachine, session: GuestSession, options: RunOptions, stop_signal: int
    ) -> None:
        self._running = running
        self._session = session
        self._options = options
        self._stop_signal = stop_signal
        self._asked: float | None = None
        self._killed = False

    def run(self) -> int:
        session = self._session
        with self._signals(), self._raw_terminal():
            reading = self._options.interactive
            while session.open and not self._killed:
                reading = self._turn(reading)
                if self._asked is not None and time.monotonic() - self._asked > STOP_S:
                    self._killed = True
                if not session.listening and self._running.elapsed_s > START_S:
                    raise GuestError(
                        f"the machine's init has not started within {START_S:g} s",
                        hint="give the machine more memory, or fit the image again",
                        details=f"{session.report().console[-4000:]}\n{self._running.command}".strip(),
                    )
        if session.exit_code is not None:
            self._say_why()
            return session.exit_code
        if self._killed:
            return KILLED
        report = session.report()
        if report.fatal is not None:
            symbol = report.fatal.symbol
            raise GuestError(
                f"the machine's init gave up: {report.fatal.text}",
                hint=f"fit the image again with --keep {symbol}" if symbol else "fit the image again",
            )
        raise self._running.wait(1.0, report.console).error()

    def _say_why(self) -> None:
        """On standard error, why the entry point could not be executed, where it could not; as engines do."""
        report = self._session.report()
        if not report.exit_reason:
            return
        # Init notes what the kernel lacks in the same words as the call that failed for it.
        lacking = [note.symbol for note in report.notes if note.symbol and note.text == report.exit_reason]
        hint = f" (the kernel lacks {lacking[0]}: fit the image again with --keep {lacking[0]})" if lacking else ""
        sys.stderr.write(f"vmtailor: the container could not be started: {plain(report.exit_reason)}{hint}\n")

    def _turn(self, reading: bool) -> bool:
        session, line = self._session, self._running.serial
        wanted = [line.fileno()]
        if reading and session.stdin_queued < 65536:
            wanted.append(0)
        writer = [line.write_fileno()] if session.wants_write else []
        ready, writable, _ = select.select(wanted, writer, [], 0.5)
        if 0 in ready:
            data = os.read(0, 4096)
            if data:
                session.send_stdin(data)
            else:
                session.end_stdin()
                reading = False
        if writable or line.fileno() in ready:
            session.pump(0)
        return reading

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, _frame: FrameType | None) -> None:
            if self._asked is not None and number == signal.SIGINT:
                self._killed = True  # asked twice: now
                return
            self._asked = self._asked or time.monotonic()
            self._session.send_signal(self._stop_signal)

        def resize(_number: int, _frame: FrameType | None) -> None:
            size = shutil.get_terminal_size()
            self._session.resize(size.lines, size.columns)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        if self._options.terminal:
            before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, resize)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _raw_terminal(self) -> Iterator[None]:
        if not (self._options.terminal and sys.stdin.isatty()):
            yield
            return
        saved = termios.tcgetattr(0)
        try:
            tty.setraw(0)
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
