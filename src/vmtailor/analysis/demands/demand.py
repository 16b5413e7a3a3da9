# SPDX-License-Identifier: Apache-2.0
"""Find a container's demands on its kernel: from the system calls of a trace, and from the image's configuration.

A call demands something only where it worked on the baseline: a call that failed there (ENOSYS, EAFNOSUPPORT …) cannot
be missed. A call that used to work must not fail afterwards, even if the program would cope."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.demands.call_paths import paths
from vmtailor.analysis.demands.degradation import NORMAL
from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.demands.request_symbols import CREDENTIALS, AskedSymbols, family_name
from vmtailor.analysis.demands.strace_log import unquote
from vmtailor.analysis.ksource.expr import Enabled
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.base.text import plural
from vmtailor.model.architecture import narrow_numbers
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength
from vmtailor.model.exercise import LOADS, Exercise, StepKind
from vmtailor.model.image import ImageConfig, insists_on_pid_one
from vmtailor.model.plan import RootFormat
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import ModuleRequest

#: Gives the first bytes of a file of the image by its absolute path; empty when there is none.
Head = Callable[[str], bytes]

#: Folders whose files the kernel makes.
PSEUDO = ("/proc", "/sys", "/dev")
_LOOPBACK = re.compile(r'inet_addr\("127\.|inet_pton\(AF_INET6, "::1"')
_FAMILY = re.compile(r"sa_family=AF_(\w+)")
#: The first two words of a command, where neither is escaped.
_FIRST_WORDS = re.compile(r'\["([^"\\]*)"(?:, "([^"\\]*)")?')
_PORT = re.compile(r"sin6?_port=htons\((\d{1,5})\)")
#: Ports below are root's, where a setting below /proc/sys does not say otherwise.
LOW_PORTS = 1024
_ALGORITHM = re.compile(r'salg_name="([^"]+)"')


@dataclass(frozen=True)
class Demand:
    """Evidence of strength `demanded`, the symbols that it asks for, and why, in a sentence."""

    evidence: Evidence
    symbols: tuple[str, ...]
    text: str

    @property
    def reference(self) -> str:
        """Return the reference of a reason in the plan: `trace:requests:LINE`, `observed:NUMBER`, `image:…` or
        `exercise:…`."""
        where = self.evidence.where
        return f"trace:{where}" if where.startswith("requests:") else where


class Demands:
    """Collects demands from events. Equal ones (kind and key) are counted, the first one says where."""

    def __init__(
        self,
        facts: Facts,
        rules: Rules,
        baseline: Enabled,
        head: Head = lambda path: b"",
        who: str = "the container",
    ) -> None:
        """`baseline`: symbols that are set in the kernel that was traced, with y or m. `who`: whose calls they are."""
        self._who = who
        self._facts = facts
        self._rules = rules.for_kernel(facts.kernel_version)
        self._symbols = AskedSymbols(facts, self._rules, baseline)
        self._head = head
        self._found: dict[tuple[EvidenceKind, str], Demand] = {}
        self._calls: dict[str, tuple[str, ...]] = {}
        self._paths: dict[str, list[tuple[str, tuple[str, ...], str]]] = {}
        #: The first call that wants to reach or be reached by another machine, or None.
        self.network: Demand | None = None
        #: Place and text of the first call that bound a port below 1024, or None.
        self.low_port: tuple[str, str] | None = None

    def result(self) -> tuple[Demand, ...]:
        return tuple(self._found.values())

    def add(
        self, kind: EvidenceKind, key: str, symbols: Iterable[str], where: str, text: str, *, detail: str = ""
    ) -> None:
        """Note one demand; without symbols there is nothing to note."""
        known = self._found.get((kind, key))
        if known is not None:
            counted = replace(known.evidence, count=known.evidence.count + 1)
            self._found[(kind, key)] = replace(known, evidence=counted)
            return
        wanted = tuple(dict.fromkeys(symbols))
        if wanted:
            evidence = Evidence(kind=kind, key=key, strength=Strength.DEMANDED, where=where, count=1, detail=detail)
            self._found[(kind, key)] = Demand(evidence, wanted, text)

    # ---- system calls

    def event(self, event: SyscallEvent, *, paths: bool = True) -> None:
        """Take one system call of the trace into account; without `paths` not the files below /proc, /sys and /dev that
        it names."""
        if event.error and event.error not in NORMAL and event.name != "rt_sigreturn":
            return
        self._asks(event, f"requests:{event.line}", with_paths=paths)

    def alone(self, event: SyscallEvent, where: str) -> tuple[Demand, ...]:
        """Return what a call that failed would ask for if it worked, as if nothing else had been seen."""
        before, network, self._found = self._found, self.network, {}
        try:
            self._asks(replace(event, error="", result=0), where)
            return self.result()
        finally:
            self._found, self.network = before, network

    def add_found(self, found: Demand) -> None:
        """Note a demand that was found by itself."""
        self.add(
            found.evidence.kind, found.evidence.key, found.symbols, found.evidence.where, found.text,
            detail=found.evidence.detail,
        )  # fmt: skip

    def _asks(self, event: SyscallEvent, where: str, *, with_paths: bool = True) -> None:
        self._call(event, where)
        for rule in self._rules.for_call(event.name):
            found = rule.match(event)
            if found is not None:
                text = (
                    f"{event.name} with {found}: {rule.reason}" if found != rule.id else f"{event.name}: {rule.reason}"
                )
                self.add(rule.kind, f"{event.name}({found})", rule.symbols, where, text, detail=f"demand:{rule.id}")
        if event.error:
            return
        if event.name in ("socket", "socketpair"):
            self._socket(event, where)
        elif event.name == "mount" and len(event.args) > 2:
            self._filesystem(unquote(event.args[2]), where)
        elif event.name == "fsopen" and event.args:
            self._filesystem(unquote(event.args[0]), where)
        elif event.name in ("execve", "execveat"):
            for path in paths(event)[:1]:
                self.program(path, where)
        elif event.name in ("bind", "connect", "sendto", "sendmsg"):
            self._address(event, where)
            self._algorithm(event, where)
        for path in paths(event) if with_paths else ():
            if path.startswith(PSEUDO):
                self.path(path, where)

    def _call(self, event: SyscallEvent, where: str) -> None:
        symbols = self._calls.get(event.name)
        if symbols is None:
            symbols = self._calls[event.name] = self._symbols.call(event.name)
        if symbols:
            kind = EvidenceKind.CREDENTIAL if event.name in CREDENTIALS else EvidenceKind.SYSCALL
            self.add(
                kind,
                event.name,
                symbols,
                where,
                f"{self._who} calls {event.name}",
                detail=self._place("call", event.name),
            )

    def _place(self, kind: str, name: str) -> str:
        known = self._facts.syscall(name) if kind == "call" else None
        found = known[1] if known else self._facts.places(kind, name)
        return f"{found[0].path}:{found[0].line}" if found else ""

    def _socket(self, event: SyscallEvent, where: str) -> None:
        family = family_name(event.args[0]) if event.args else ""
        wanted = self._symbols.family(family)
        text = f"{self._who} opens an AF_{family} socket"
        self.add(EvidenceKind.SOCKET, f"AF_{family}", wanted, where, text, detail=self._place("family", family))
        if len(event.args) < 3:
            return
        protocol = re.sub(r"^(?:IPPROTO|NETLINK)_", "", event.args[2])
        kind = "netlink" if family == "NETLINK" else "protocol"
        if family in ("INET", "INET6"):
            style = event.args[1].partition("|")[0].removeprefix("SOCK_")
            protocol = f"{style}/{protocol}"
        elif family != "NETLINK":
            return
        # A protocol that comes with the family adds nothing; only one that needs more is evidence of its own.
        more = self._symbols.protocol(family, protocol)
        key = f"AF_{family}/{protocol}"
        self.add(
            EvidenceKind.SOCKET, key, more, where, f"{text} of protocol {protocol}", detail=self._place(kind, protocol)
        )

    def _algorithm(self, event: SyscallEvent, where: str) -> None:
        """bind() of an AF_ALG socket names an algorithm, and its parts: `hmac(sha256)`."""
        named = _ALGORITHM.search(", ".join(event.args))
        for name in re.findall(r"[\w.-]+", named.group(1)) if named else ():
            wanted = self._symbols.named("algorithm", name)
            text = f"{self._who} asks the kernel for the algorithm {name}"
            self.add(
                EvidenceKind.SOCKET, f"algorithm {name}", wanted, where, text, detail=self._place("algorithm", name)
            )

    def _filesystem(self, name: str, where: str) -> None:
        wanted = self._symbols.named("filesystem", name)
        place = self._place("filesystem", name)
        self.add(EvidenceKind.FILESYSTEM, name, wanted, where, f"{self._who} mounts a file system {name}", detail=place)

    def _address(self, event: SyscallEvent, where: str) -> None:
        address = next((a for a in event.args if "sa_family=AF_" in a or "msg_name=" in a), "")
        port = _PORT.search(address)
        if self.low_port is None and event.name == "bind" and port and 0 < int(port[1]) < LOW_PORTS:
            self.low_port = where, f"{self._who} listens on port {port[1]}"
        family = _FAMILY.search(address)
        if self.network is None and family and family.group(1) in ("INET", "INET6") and not _LOOPBACK.search(address):
            key = f"{event.name}({family.group(0)})"
            evidence = Evidence(
                kind=EvidenceKind.SOCKET,
                key=key,
                strength=Strength.DEMANDED,
                where=where,
                count=1,
                detail=address[:200],
            )
            self.network = Demand(evidence, (), f"{event.name} with an address beyond loopback")

    # ---- programs and pseudo-files

    def program(self, path: str, where: str) -> None:
        """Add a file that was executed: its first bytes tell the binary format."""
        start = self._head(path)
        if start.startswith(b"#!"):
            self.add(
                EvidenceKind.BINARY_FORMAT, "#!", ["BINFMT_SCRIPT"], where, f"{path} is a script with an interpreter"
            )
        elif start.startswith(b"\x7fELF\x01"):
            symbols = self._rules.for_narrow(*narrow_numbers(start))
            self.add(EvidenceKind.BINARY_FORMAT, "ELF32", symbols, where, f"{path} is a 32-bit program")
        elif start.startswith(b"\x7fELF"):
            self.add(EvidenceKind.BINARY_FORMAT, "ELF", ["BINFMT_ELF"], where, f"{path} is an ELF program")

    def path(self, path: str, where: str) -> None:
        """Add a path below /proc, /sys or /dev that was used."""
        if path not in self._paths:
            self._paths[path] = self._path_demands(path)
        for key, symbols, text in self._paths[path]:
            self.add(EvidenceKind.PSEUDO_FILE, key, symbols, where, text)

    def _path_demands(self, path: str) -> list[tuple[str, tuple[str, ...], str]]:
        return [
            (key, symbols, f"{path}: {reason}" if reason else f"{self._who} uses {path}")
            for key, symbols, reason in self._symbols.path(path)
        ]


def of_events(events: Iterable[SyscallEvent], demands: Demands) -> None:
    """Take all calls of a trace into account."""
    for event in events:
        demands.event(event)
        _insisting(event, demands)


def _insisting(event: SyscallEvent, demands: Demands) -> None:
    """Note an init that a wrapper executes in its own place."""
    if event.error or event.name not in ("execve", "execveat"):
        return
    given = next(filter(None, map(_FIRST_WORDS.match, event.args)), None)
    words = [word for word in given.groups() if word is not None] if given else []
    # By its file, or by the word that it is called by: to a BusyBox shell, each program of its own is /proc/self/exe.
    for argv in (*([path, *words[1:]] for path in paths(event)[:1]), words):
        if insists_on_pid_one(argv):
            name = argv[0] if insists_on_pid_one(argv[:1]) else " ".join(argv)
            text = f"{name} insists on being PID 1, which it is in a namespace of its own"
            demands.add(EvidenceKind.FLAG, "PID 1", ["PID_NS"], f"requests:{event.line}", text)
            return


def of_modules(requests: Iterable[ModuleRequest], demands: Demands, symbol_of: Callable[[str], str | None]) -> None:
    """Return the demands of the modules that the container made the kernel load. `symbol_of`: path of a module in the
    tree → its symbol.

    Algorithms are left to the calls that name them: all variants of one answer to the same request."""
    for one in requests:
        symbol = symbol_of(one.path)
        if symbol is not None and not one.request.startswith("crypto-"):
            text = f"the container made the kernel load {one.module} (it asked for {one.request})"
            demands.add(EvidenceKind.MODULE_REQUEST, one.module, [symbol], f"modules:{one.module}", text)


def of_image(config: ImageConfig, demands: Demands) -> None:
    """Return the demands of the image's configuration, whether or not the trace shows them."""
    if any(name not in ("", "0", "root") for name in config.user.partition(":")[::2]):
        text = f"the image runs as user {config.user}"
        demands.add(EvidenceKind.CREDENTIAL, f"USER {config.user}", ["MULTIUSER"], "image:user", text)
    if config.insists_on_pid_one:
        text = f"the entry point {config.argv[0]} insists on being PID 1, which it is in a namespace of its own"
        demands.add(EvidenceKind.FLAG, "PID 1", ["PID_NS"], "image:entrypoint", text)
    for port in config.exposed_ports:
        text = f"the image exposes port {port.number}/{port.protocol}"
        demands.add(EvidenceKind.SOCKET, f"EXPOSE {port.number}/{port.protocol}", ["NET", "INET"], "image:ports", text)
    if config.argv:
        demands.program(config.argv[0], "image:entrypoint")


def of_user(config: ImageConfig, demands: Demands) -> None:
    """Add what the image's user needs for the calls seen: without /proc/sys, init cannot open low ports to all."""
    if demands.low_port is not None and config.user.partition(":")[0] not in ("", "0", "root"):
        where, text = demands.low_port
        text = f"{text} as user {config.user}, which a setting below /proc/sys allows"
        demands.add(EvidenceKind.CREDENTIAL, "low port", ["PROC_FS", "PROC_SYSCTL"], where, text)


#: The symbol by which a root of a format keeps access control lists; squashfs keeps none.
_ACL_SYMBOLS = {RootFormat.EROFS: ("EROFS_FS_POSIX_ACL",), RootFormat.EXT4: ("EXT4_FS_POSIX_ACL",)}


def of_access_lists(paths: Sequence[str], form: RootFormat, demands: Demands) -> None:
    """Return the demands of files of the image with access control lists: without them, a right that a list gives or
    takes is another. They stay with a file when it is written to, which copies it to the writable part."""
    if paths:
        more = f" and {plural(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        text = f"{paths[0]}{more} of the image {'have' if more else 'has'} an access control list"
        symbols = [*_ACL_SYMBOLS.get(form, ()), "TMPFS_POSIX_ACL"]
        demands.add(EvidenceKind.FILESYSTEM, "access control lists", symbols, f"image:{paths[0]}", text)


def of_exercise(exercise: Exercise, demands: Demands) -> None:
    """Return the demands of the exercise's own client inside the guest: TCP over the loopback interface."""
    steps = [*([exercise.ready.step] if exercise.ready.step else []), *exercise.load]
    if any(step.port and step.kind in (StepKind.HTTP, StepKind.TCP, *LOADS) for step in steps):
        text = "the exercise talks to the container over TCP, inside the machine"
        demands.add(EvidenceKind.SOCKET, "exercise over TCP", ["NET", "INET"], "exercise:load", text)


def wants_network(config: ImageConfig, demands: Demands) -> bool:
    """Return whether the machine needs a network device: ports are exposed, or the container talks to other
    machines."""
    return bool(config.exposed_ports) or demands.network is not None
