# SPDX-License-Identifier: Apache-2.0
"""QEMU with a machine that has an init of its own: console, second serial port and QMP over socket pairs, all with
host times."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from vmtailor.base.errors import GuestError
from vmtailor.base.process import pasteable, require_tool, spawn
from vmtailor.model.machine import Accelerator, Clock, MachineKind
from vmtailor.model.vm import Vm

#: A guest that prints without end is cut off here.
MAX_CONSOLE = 64 << 20
MAX_PROBE = 256 << 20
QMP_S = 10.0
_MICROVM = "microvm,acpi=on,pic=on,pit=on,rtc=on"
_USERNET = re.compile(r"TCP\[([A-Z_0-9]+)\]\s+-?\d+\s+(\S+)\s+(\d+)\s+(\S+)\s+(\d+)")


def command(vm: Vm, *, console_fd: int, qmp_fd: int, probe_fd: int | None = None, plugin: str = "") -> list[str]:
    """QEMU's argument list. Pure. The descriptors are ends of socket pairs that QEMU inherits; `plugin` is the value
    of -plugin."""
    microvm = vm.kind is MachineKind.MICROVM
    # Without a screen the firmware, and a loader that uses it, print on the serial line.
    screen = ("graphics=off",) if vm.kernel is None and not microvm else ()
    machine = ",".join((_MICROVM if microvm else str(vm.kind), *screen, *vm.machine_options))
    argv = ["qemu-system-x86_64", "-M", machine, "-m", f"{vm.memory_bytes >> 20}M", "-smp", str(vm.cpus)]
    argv += ["-cpu", vm.cpu_model, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    if vm.clock is Clock.INSTRUCTIONS:
        argv += [
            "-accel",
            "tcg",
            "-icount",
            "shift=0,sleep=off",
            "-rtc",
            "base=2026-01-01T00:00:00,clock=vm",
            "-seed",
            "1",
        ]
    else:
        argv += ["-accel", str(vm.accelerator)]
        # Without it the time stamp counter is the host's, and while the host is busy the guest sets its clock wrong.
        argv += ["-icount", "shift=auto"] if vm.accelerator is Accelerator.TCG and vm.cpus == 1 else []
    argv += ["-chardev", f"socket,id=qmp,fd={qmp_fd}", "-mon", "chardev=qmp,mode=control"]
    argv += ["-chardev", f"socket,id=console,fd={console_fd}", "-serial", "chardev:console"]
    if probe_fd is not None:
        argv += ["-chardev", f"socket,id=probe,fd={probe_fd}", "-serial", "chardev:probe"]
    bus = "device" if microvm else "pci"
    if vm.network:
        # Port 0: the kernel chooses a free one, and QMP tells which. Nothing but the loopback address is bound.
        forwards = "".join(f",hostfwd=tcp:127.0.0.1:0-:{port}" for port in vm.forwards)
        argv += ["-netdev", f"user,id=net,restrict=on{forwards}", "-device", f"virtio-net-{bus},netdev=net"]
    if vm.entropy:
        argv += ["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", f"virtio-rng-{bus},rng=rng"]
    for number, disk in enumerate(vm.disks):
        path = disk.path.replace(",", ",,")
        argv += ["-drive", f"if=none,id=d{number},file={path},format={disk.format},snapshot=on"]
        argv += ["-device", f"virtio-blk-{bus},drive=d{number}"]
    if vm.kernel is not None:
        argv += ["-kernel", vm.kernel, "-append", " ".join(vm.append)]
        if vm.initrd is not None:
            argv += ["-initrd", vm.initrd]
    if plugin:
        argv += ["-plugin", plugin]
    return [*argv, *vm.options]


@dataclass
class Console:
    """The console as it came: text, and the host time (seconds since the start) of each line's first byte."""

    raw: bytearray = field(default_factory=bytearray)
    lines: list[tuple[float, str]] = field(default_factory=list)
    _partial: str = ""
    _partial_at: float = 0.0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def take(self, data: bytes, at: float) -> str:
        """Add what was read; returns it as text."""
        if len(self.raw) < MAX_CONSOLE:
            self.raw += data
        text = self._decoder.decode(data)
        *whole, rest = text.split("\n")
        for piece in whole:
            start = self._partial_at if self._partial else at
            if len(self.raw) < MAX_CONSOLE:
                self.lines.append((start, (self._partial + piece).rstrip("\r")))
            self._partial = ""
        if rest and not self._partial:
            self._partial_at = at
        self._partial = (self._partial + rest)[-65536:]
        return text

    def timed(self) -> list[tuple[float, str]]:
        """All lines, the unfinished one included."""
        return [*self.lines, (self._partial_at, self._partial.rstrip("\r"))] if self._partial else list(self.lines)


class Qmp:
    """QMP over a connected socket, in the same loop as the console (the usual library brings a loop of its own)."""

    def __init__(self, sock: socket.socket, errors: IO[bytes]) -> None:
        self.sock = sock
        self._errors = errors
        self._pending = b""
        self._answers: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.closed = False

    def feed(self) -> None:
        """Read what is there."""
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "event" in message:
                self.events.append(str(message["event"]))
            elif "return" in message or "error" in message:
                self._answers.append(message)

    def ask(self, what: str, **arguments: Any) -> Any:
        """One command, answered. Raises GuestError when QEMU does not."""
        request = {"execute": what, **({"arguments": arguments} if arguments else {})}
        deadline = time.monotonic() + QMP_S
        with contextlib.suppress(OSError):
            self.sock.sendall(json.dumps(request).encode() + b"\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            while not self._answers and not self.closed and (left := deadline - time.monotonic()) > 0:
                if selector.select(left):
                    self.feed()
        if not self._answers:
            self._errors.seek(0)
            said = self._errors.read()[-4000:].decode("utf-8", "replace").strip()
            raise GuestError("QEMU ended before it answered" if self.closed else "QEMU does not answer", details=said)
        answer = self._answers.pop(0)
        if "error" in answer:
            raise GuestError(f"QEMU refused {what}: {answer['error'].get('desc', '')}")
        return answer["return"]


@dataclass
class RunningVm:
    """A machine under way. Times are seconds since QEMU was started."""

    process: subprocess.Popen[bytes]
    started: float
    qmp: Qmp
    argv: list[str]
    console: Console
    probe: bytearray
    _selector: selectors.BaseSelector
    _console_sock: socket.socket
    _probe_sock: socket.socket | None
    _errors: IO[bytes]
    forwards: dict[int, int] = field(default_factory=dict)

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def cpu_s(self) -> float | None:
        """Processor seconds that QEMU has used on the host, user and system."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pump(self, wait_s: float) -> str:
        """Read whatever comes within `wait_s`, at least once; returns new text of the console."""
        text = ""
        for key, _ in self._selector.select(wait_s):
            if key.data == "qmp":
                self.qmp.feed()
                if self.qmp.closed:
                    self._selector.unregister(self.qmp.sock)
                continue
            sock = self._console_sock if key.data == "console" else self._probe_sock
            assert sock is not None
            try:
                data = sock.recv(65536)
            except OSError:
                data = b""
            if not data:
                self._selector.unregister(sock)
            elif key.data == "console":
                text += self.console.take(data, self.now)
            elif len(self.probe) < MAX_PROBE:
                self.probe += data
        return text

    def established(self, local_port: int) -> bool:
        """Whether the guest itself took the connection that came from this local port."""
        return any(
            state == "ESTABLISHED" and int(port) == local_port
            for state, _, port, _, _ in _USERNET.findall(self._usernet())
        )

    def learn_forwards(self) -> None:
        """Which host ports lead to which guest ports."""
        for state, _, host_port, _, guest_port in _USERNET.findall(self._usernet()):
            if state == "HOST_FORWARD":
                self.forwards[int(guest_port)] = int(host_port)

    def _usernet(self) -> str:
        return str(self.qmp.ask("human-monitor-command", **{"command-line": "info usernet"}))

    def errors(self) -> str:
        """What QEMU itself said on standard error."""
        self._errors.seek(0)
        return self._errors.read()[-8000:].decode("utf-8", "replace").strip()

    def quit(self, wait_s: float = 10.0) -> None:
        """Ask QEMU to end, so that plugins write what they have; drains the sockets meanwhile."""
        with contextlib.suppress(OSError):
            self.qmp.sock.sendall(b'{"execute": "quit"}\n')
        deadline = time.monotonic() + wait_s
        while not self.ended and time.monotonic() < deadline:
            self.pump(0.05)
        self.drain()

    def drain(self) -> None:
        """Read what is left after QEMU's end."""
        before = -1
        while before != (before := len(self.console.raw) + len(self.probe)):
            self.pump(0.0)


@contextlib.contextmanager
def start(vm: Vm, *, plugin: str = "", scratch: Path | None = None) -> Iterator[RunningVm]:
    """Start a machine; it is gone when the block is left. Raises GuestError, with QEMU's words, when it does not
    start."""
    require_tool("qemu-system-x86_64", "qemu-system-x86")
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3 if vm.probe else 2)]
        for pair in pairs:
            for end in pair:
                stack.enter_context(end)
            pair[0].setblocking(False)
        theirs = [pair[1].fileno() for pair in pairs]
        argv = command(
            vm, console_fd=theirs[0], qmp_fd=theirs[1], probe_fd=theirs[2] if vm.probe else None, plugin=plugin
        )
        errors = stack.enter_context(tempfile.TemporaryFile(dir=scratch))
        selector = stack.enter_context(selectors.DefaultSelector())
        started = time.monotonic()
        process = stack.enter_context(spawn(argv, stderr=errors, pass_fds=theirs))
        for _, end in pairs:
            end.close()
        for name, (end, _) in zip(("console", "qmp", "probe"), pairs, strict=False):
            selector.register(end, selectors.EVENT_READ, name)
        running = RunningVm(
            process, started, Qmp(pairs[1][0], errors), argv, Console(), bytearray(), selector, pairs[0][0],
            pairs[2][0] if vm.probe else None, errors,
        )  # fmt: skip
        try:
            running.qmp.ask("qmp_capabilities")
            if vm.forwards:
                running.learn_forwards()
        except GuestError as error:
            raise GuestError(error.message, details=f"{running.errors()}\n{pasteable(argv)}") from error
        yield running
