# SPDX-License-Identifier: Apache-2.0
"""The demands of a whole system on its kernel, from the stream of its calls and from the modules it loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from vmtailor.analysis.demands.call_paths import paths
from vmtailor.analysis.demands.demand import Demands
from vmtailor.analysis.demands.strace_log import descriptor_path, unquote
from vmtailor.analysis.explain.lookup import KnownSource, Question, find
from vmtailor.analysis.explain.name_index import merged
from vmtailor.analysis.ksource.expr import Enabled, asked_for, holds
from vmtailor.analysis.systems import asks, harmless_opens
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.watched.system_trace import LoadedFor, ModuleLoad

_KINDS = {
    "controller": EvidenceKind.PSEUDO_FILE, "word": EvidenceKind.FLAG, "module": EvidenceKind.MODULE_REQUEST,
    "key type": EvidenceKind.FLAG,
}  # fmt: skip
_CGROUP_FILE = re.compile(r"/sys/fs/cgroup/.+/([\w.](?=[\w.]*\.[\w.])[\w.]+)\Z", re.S)
#: Reasons that make a module demanded. The target machine decides about devices. If a program can do without a module,
#: its calls show whether it was used.
_DEMANDED = (LoadedFor.REQUEST, LoadedFor.NAME)
#: Calls that only look whether something is there, or name it: a system comes by hundreds of files in this way.
_LOOKING = frozenset({
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "statfs",
    "name_to_handle_at", "chmod", "fchmodat", "chown", "lchown", "fchownat", "mknod", "mknodat", "utimensat",
    "getxattr", "lgetxattr", "setxattr", "lsetxattr", "listxattr", "llistxattr", "inotify_add_watch", "mkdir",
    "mkdirat", "unlink", "unlinkat", "rmdir", "chdir", "symlink", "symlinkat", "rename", "renameat", "renameat2",
    "umount2", "open_tree",
})  # fmt: skip
_BRIDGE = "net/bridge/"
#: Different questions that are looked up.
MOST_QUESTIONS = 20_000


def _opened(event: SyscallEvent) -> str | None:
    """Return the file that a call opens; "" where it opens a folder, or something only to name it; None for other
    calls."""
    if event.name not in ("open", "openat", "openat2"):
        return None
    how = event.args[1 if event.name == "open" else 2] if len(event.args) > 2 else ""
    named = paths(event)
    return "" if "O_PATH" in how or "O_DIRECTORY" in how or event.error or not named else named[0]


class SystemDemands:
    """Collects demands from calls, one by one: nothing is kept but what is demanded."""

    def __init__(self, demands: Demands, known: KnownSource, baseline: Enabled) -> None:
        """`demands`: takes what any program asks for; `baseline`: symbols of the kernel that was traced, y or m."""
        self.demands = demands
        self._known = known
        self._baseline = baseline
        self._untouched = harmless_opens.load()
        #: Mounts that nobody has looked into yet: place → the call.
        self._waiting: dict[str, SyscallEvent] = {}
        self._named: dict[int, str] = {}
        self._answers: dict[Question, tuple[tuple[str, ...], str]] = {}
        #: Questions that nothing of the source answers, or that the traced kernel could not have answered.
        self.unanswered: set[Question] = set()

    def event(self, event: SyscallEvent) -> None:
        """Take one system call into account."""
        if event.name == "mount" and not event.error and self._holds_back(event):
            return
        opened = _opened(event)
        if opened == "" and not event.error and len(self._named) < MOST_QUESTIONS:
            self._named[event.pid] = next(iter(paths(event)), "")
        if opened:
            self._looks_into(opened)
        counts = event.name not in _LOOKING and (opened is None or bool(opened))
        self.demands.event(event, paths=counts and not (opened and self._untouched.covers(opened)))
        where = f"requests:{event.line}"
        for question, text in asks.of_call(event):
            self._ask(question, where, text)
        if event.name in ("openat", "write", "read") and not event.error:
            self._group_file(event, where)

    def _holds_back(self, event: SyscallEvent) -> bool:
        """Return whether a call mounts a file system of the kernel's own at its usual place. Such a mount waits until a
        file in it is opened."""
        place, kind = unquote(event.args[1]), unquote(event.args[2])
        if place.startswith("/proc/self/fd/"):
            place = self._named.get(event.pid, place)  # opened just before, so that no link is followed
        if any(row.type == kind and row.place == place for row in self._untouched.mounts):
            self._waiting.setdefault(f"{place}/", event)
            return True
        return False

    def _looks_into(self, path: str) -> None:
        for place in [one for one in self._waiting if path.startswith(one)]:
            self.demands.event(self._waiting.pop(place))

    def loads(self, loads: Iterable[ModuleLoad], symbol_of: Callable[[str], str | None]) -> None:
        """Take note of the modules that were loaded, and for what. `symbol_of`: a module's path in the tree → its
        symbol."""
        needs = {load.what: load for load in loads if load.reason is LoadedFor.DEPENDENCY}
        for load in loads:
            missed = load.reason is LoadedFor.PERHAPS and self._untouched.misses(load.module, load.task)
            if not load.path or not (missed or load.reason in _DEMANDED):
                continue
            symbol = symbol_of(load.path)
            if symbol is not None and symbol in self._baseline:
                how = f"it asked for {load.what}" if load.what else "by name"
                if load.reason is LoadedFor.REQUEST:
                    how = f"the kernel asked for {load.what} on its behalf"
                text = f"{load.task} made the kernel load {load.module}: {how}"
                self.demands.add(
                    EvidenceKind.MODULE_REQUEST, load.module, [symbol], f"requests:{load.line}", text,
                    detail=needs[load.module].module if load.module in needs else "",
                )  # fmt: skip

    def _ask(self, question: Question, where: str, text: str) -> None:
        if question not in self._answers:
            if len(self._answers) >= MOST_QUESTIONS:
                return
            self._answers[question] = self._answer(question)
        symbols, place = self._answers[question]
        kind = _KINDS.get(question.kind, EvidenceKind.SOCKET)
        self.demands.add(kind, str(question), symbols, where, text, detail=place)

    def _answer(self, question: Question) -> tuple[tuple[str, ...], str]:
        """Return the symbols of the likeliest answer that the traced kernel had, and where the source says so."""
        if question.kind == "expression":
            # Bridges have some of the same names; that a table is theirs shows in its chains.
            places = [
                p for p in self._known.asked.places("expression", question.name) if not p.path.startswith(_BRIDGE)
            ]
            if places:
                return asked_for(merged(places), self._baseline), f"{places[0].path}:{places[0].line}"
        for provider in find(question, self._known):
            if holds(provider.condition, self._baseline):
                return asked_for(provider.condition, self._baseline), provider.place
        self.unanswered.add(question)
        return (), ""

    def _group_file(self, event: SyscallEvent, where: str) -> None:
        """A file of a control group, whichever group it is: rules know it by /sys/fs/cgroup/NAME."""
        from_call = event.args[1] if event.name == "openat" and len(event.args) > 1 else event.args[0]
        path = from_call.strip('"') if event.name == "openat" else descriptor_path(from_call)
        found = _CGROUP_FILE.match(path)
        if found:
            self.demands.path(f"/sys/fs/cgroup/{found[1]}", where)
