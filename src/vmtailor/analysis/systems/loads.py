# SPDX-License-Identifier: Apache-2.0
"""Modules that were loaded while a system started, each with its cause: a device that is there, a request of the kernel
on a program's behalf, or a program that asked by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vmtailor.analysis.demands.strace_log import unquote
from vmtailor.analysis.systems.log import WATCHERS, Mark
from vmtailor.analysis.systems.module_index import ModuleIndex
from vmtailor.base.notation import module_name
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import LoadedModule
from vmtailor.model.watched.system_trace import KernelProgram, LoadedFor, ModuleLoad, SeenDevice

#: Most marks of a kind that are kept: a log is untrusted.
MOST = 20_000


@dataclass
class Noted:
    """Takes what a log gives that has to do with modules and the kernel's own programs. Bounded."""

    events: list[KernelEvent] = field(default_factory=list)
    has_events: bool = False
    _asked: dict[int, tuple[int, tuple[str, ...], bool]] = field(
        default_factory=dict
    )  # modprobe's pid → line, names, -q
    _devices: dict[tuple[str, str], SeenDevice] = field(default_factory=dict)
    _modules: dict[str, tuple[int, int]] = field(default_factory=dict)
    _sections: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    _processes: set[int] = field(default_factory=set)

    def mark(self, mark: Mark) -> None:
        words = mark.text.split()
        if mark.kind == "kernel":
            event = read_event(mark)
            if event is not None and len(self.events) < MOST:
                self.events.append(event)
        elif mark.kind == "events":
            self.has_events = self.has_events or words[:1] == ["on"]
        elif mark.kind == "device" and len(words) >= 2 and len(self._devices) < MOST:
            self._devices[(words[0], words[1])] = SeenDevice(words[0], words[1])
        elif mark.kind == "module" and len(words) == 3 and len(self._modules) < MOST:
            self._modules[words[0]] = (_number(words[2]), _number(words[1]))
        elif mark.kind == "section" and len(words) == 3 and len(self._sections) < MOST:
            self._sections.setdefault(words[0], []).append((words[1], _number(words[2])))

    def call(self, event: SyscallEvent) -> None:
        self._processes.add(event.pid)
        if event.name != "execve" or event.result != 0 or len(event.args) < 2:
            return
        if unquote(event.args[0]).rpartition("/")[2] == "modprobe":
            words = [unquote(one.strip()) for one in event.args[1].strip("[]").split(",")][1:]
            flags = "".join(w.lstrip("-") for w in words if w.startswith("-") and not w.startswith("--"))
            names = tuple(w for w in words if not w.startswith("-"))
            if len(self._asked) < MOST:
                self._asked[event.pid] = (event.line, names, "q" in flags or "--quiet" in words)

    @property
    def devices(self) -> tuple[SeenDevice, ...]:
        return tuple(self._devices.values())

    @property
    def modules(self) -> tuple[LoadedModule, ...]:
        """Return the modules that were there at the last look, with their sections."""
        return tuple(
            LoadedModule(name, base, size, tuple(self._sections.get(name, ())))
            for name, (base, size) in self._modules.items()
        )

    def kernel_programs(self) -> tuple[KernelProgram, ...]:
        """Return programs that no descendant of PID 1 executed."""
        found: dict[str, KernelProgram] = {}
        for event in self.events:
            if event.kind != "sched_process_exec" or event.pid in self._processes or _ours(event):
                continue
            known = found.get(event.name)
            found[event.name] = KernelProgram(
                event.name, known.count + 1 if known else 1, known.line if known else event.line
            )
        return tuple(found.values())

    def loads(self, index: ModuleIndex) -> tuple[ModuleLoad, ...]:
        """Return each module once, in the order in which they came, with what it was loaded for."""
        devices = _by_module(self.devices, index)
        requests: list[KernelEvent] = []
        found: dict[str, ModuleLoad] = {}
        for event in self.events:
            if event.kind == "module_request":
                requests.append(event)
            elif event.kind == "module_load" and module_name(event.name) not in found:
                load = self._load(event, requests, devices, index)
                found[load.module] = load
        return tuple(_dependencies(found, index))

    def _load(
        self,
        event: KernelEvent,
        requests: list[KernelEvent],
        devices: Mapping[str, SeenDevice],
        index: ModuleIndex,
    ) -> ModuleLoad:
        name = module_name(event.name)
        path = index.paths.get(name, "")

        def made(reason: LoadedFor, what: str = "", task: str = event.task) -> ModuleLoad:
            return ModuleLoad(module=name, path=path, reason=reason, what=what, task=task, line=event.line)

        if (event.pid == 1 and event.pid not in self._processes) or event.task == "init":
            return made(LoadedFor.ROOT)
        if event.pid not in self._processes:  # the kernel's own modprobe: the latest request that leads here
            for request in reversed(requests[-64:]):
                if name in index.with_needs(index.answering(request.name)):
                    ours = request.task in WATCHERS and request.pid not in self._processes
                    return made(LoadedFor.WATCHING if ours else LoadedFor.REQUEST, request.name, request.task)
            return made(LoadedFor.UNKNOWN)
        if event.pid in self._asked:
            _, names, quiet = self._asked[event.pid]
            what = next((one for one in names if name in index.with_needs(index.answering(one))), " ".join(names))
            return made(LoadedFor.PERHAPS if quiet else LoadedFor.NAME, what)
        if name in devices:
            return made(LoadedFor.DEVICE, devices[name].alias)
        # PID 1 goes on without what it loads itself; if it could not, nothing would go on.
        return made(LoadedFor.PERHAPS if event.pid == 1 else LoadedFor.NAME, event.name)


def _ours(event: KernelEvent) -> bool:
    return event.name.startswith("/watch/") or event.name == "/init" or event.task in WATCHERS


def _by_module(devices: Iterable[SeenDevice], index: ModuleIndex) -> dict[str, SeenDevice]:
    """Module → the first device that it, or one that needs it, drives."""
    found: dict[str, SeenDevice] = {}
    for device in devices:
        for name in index.with_needs(index.answering(device.alias)):
            found.setdefault(name, device)
    return found


def _dependencies(found: Mapping[str, ModuleLoad], index: ModuleIndex) -> Iterable[ModuleLoad]:
    """Yield modules that nothing named: each came with the one that needs it."""
    for load in found.values():
        if load.reason not in (LoadedFor.ROOT, LoadedFor.UNKNOWN) and load.what:
            direct = load.module in index.answering(load.what) or load.module == module_name(load.what)
            parent = next((m for m in index.answering(load.what) if load.module in index.depends.get(m, ())), "")
            if not direct and parent:
                yield ModuleLoad(
                    module=load.module,
                    path=load.path,
                    reason=LoadedFor.DEPENDENCY,
                    what=parent,
                    task=load.task,
                    line=load.line,
                )
                continue
        yield load


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


_LINE = re.compile(r"\s*(.{1,16}?)-(\d{1,10})\s+\[\d+\]\s+\S+\s+(\d+\.\d+): (\w+): (.*)\Z", re.S)
_EXEC = re.compile(r"filename=(.*) pid=(\d+) old_pid=(\d+)\Z", re.S)
_REQUEST = re.compile(r"(\S+) wait=\d call_site=\S+")


@dataclass(frozen=True)
class KernelEvent:
    """`kind`: module_request, module_load or sched_process_exec. `name`: the alias, the module, the program's path.
    `task` and `pid`: who was running."""

    kind: str
    name: str
    task: str
    pid: int
    line: int


def read_event(mark: Mark) -> KernelEvent | None:
    """Return the event of a mark of the kind `kernel`; None for what is none that is known."""
    match = _LINE.match(mark.text) if mark.kind == "kernel" else None
    if match is None:
        return None
    task, pid, kind, rest = match[1].strip(), int(match[2]), match[4], match[5]
    if kind == "sched_process_exec":
        found = _EXEC.match(rest)
        return KernelEvent(kind=kind, name=found[1], task=task, pid=pid, line=mark.line) if found else None
    if kind == "module_request":
        asked = _REQUEST.match(rest)
        return KernelEvent(kind=kind, name=asked[1], task=task, pid=pid, line=mark.line) if asked else None
    if kind == "module_load" and rest.split():
        return KernelEvent(kind=kind, name=rest.split()[0], task=task, pid=pid, line=mark.line)
    return None
