# SPDX-License-Identifier: Apache-2.0
"""Look up the symbols that answer a request (a call, a path, a socket family, a module …). The tables of the kernel's
own source answer first; where those do not tell, the rules of data/demand do."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from string import digits

from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.explain.name_index import AskedNames, merged
from vmtailor.analysis.ksource.expr import FALSE, TRUE, UNKNOWN, Expr, Symbol, conjunction, symbols
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.facts import Facts, Place
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.notation import module_name

_MOST = 8
#: A number that something may have in the kernel.
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Question:
    """A request: a kind (`KINDS`), and a name as the source has it. `call`: the call that asks."""

    kind: str
    name: str
    call: str = ""

    def __str__(self) -> str:
        return KINDS.get(self.kind, self.kind + " {}").format(self.name)


#: Kind → its words for people.
KINDS = {
    "call": "system call {}", "word": "{}", "path": "{}", "family": "socket family AF_{}", "protocol": "protocol {}",
    "netlink": "netlink protocol NETLINK_{}", "filesystem": "file system {}", "device": "device /dev/{}",
    "module": "module {}", "match": "packet filter match '{}'", "target": "packet filter target '{}'",
    "table": "packet filter table {}", "expression": "nftables expression '{}'", "link": "network link of kind {}",
    "qdisc": "queueing discipline {}", "classifier": "packet classifier {}", "action": "packet action {}",
    "genetlink": "generic netlink family {}", "ulp": "TCP upper layer protocol {}", "lsm": "security module {}",
    "congestion": "TCP congestion control {}", "algorithm": "cipher or hash {}", "key type": "type of keys {}",
    "mapper target": "device mapper target {}", "controller": "control group controller {}", "source": "code in {}",
    "rules": "policy routing of AF_{}", "rtnetlink": "rtnetlink request RTM_{}", "encapsulation": "encapsulation {}",
    "symbol": "CONFIG_{}", "charset": "character set {}", "9p transport": "9P transport {}", "scheduler":
    "I/O scheduler {}", "tracepoint": "tracepoints of {}",
}  # fmt: skip


@dataclass(frozen=True)
class KnownSource:
    """All that is known of one source tree, and the rules that hold for it."""

    facts: Facts
    asked: AskedNames
    rules: Rules
    kconfig: Kconfig | None = None


@dataclass(frozen=True)
class Provider:
    """A condition under which a kernel has what was asked for; `place` says where that stands."""

    ask: Question
    condition: Expr
    place: str


def find(ask: Question, known: KnownSource) -> tuple[Provider, ...]:
    """Return the providers of a request, likeliest first; empty when neither source nor rules know of it."""
    finder = _FINDERS.get(ask.kind)
    found = finder(ask, known) if finder is not None else _named(ask, known)
    unique: dict[str, Provider] = {}
    for one in found:
        if one.condition != FALSE:
            unique.setdefault(str(one.condition), one)
    return tuple(unique.values())[:_MOST]


def _at(place: Place) -> str:
    return f"{place.path}:{place.line}" if place.line else place.path


def _of(ask: Question, places: Iterable[Place], *under: Expr) -> Iterator[Provider]:
    for place in places:
        yield Provider(ask, conjunction(*under, parse(place.condition)), _at(place))


def _whole(ask: Question, places: tuple[Place, ...], *under: Expr) -> Iterator[Provider]:
    """Yield one candidate for all places: it is there where any of them is."""
    if places:
        yield Provider(ask, conjunction(*under, merged(places)), _at(places[0]))


def _by_rule(ask: Question, names: Iterable[str], where: str) -> Provider:
    return Provider(ask, conjunction(*map(Symbol, names)), where)


# ---- kinds


def _named(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """Yield a name that one struct of the source has; else a module of that name, or one that answers to it."""
    places = known.asked.places(ask.kind, ask.name)
    yield from _whole(ask, places)
    if not places:
        for name in (_MODULE_NAMES.get(ask.kind, "{}").format(ask.name), ask.name):
            found = list(_built(ask, name, known, files=False))
            yield from found
            if found:
                return


_MODULE_NAMES = {
    "match": "xt_{}", "target": "xt_{}", "expression": "nft_{}", "link": "rtnl-link-{}", "qdisc": "sch_{}",
    "classifier": "cls_{}", "action": "act_{}", "ulp": "tcp-ulp-{}", "congestion": "tcp_{}", "scheduler": "{}-iosched",
    "mapper target": "dm-{}", "charset": "nls_{}",
}  # fmt: skip


def _call(ask: Question, known: KnownSource) -> Iterator[Provider]:
    for name in (ask.name, *(ask.name + more for more in ("1", "2", "3", "4", "64", "at"))):
        entry = known.facts.syscall(name)
        if entry is not None:
            condition, places = entry
            if condition == TRUE:
                yield from _stubbed(ask, name, known)
            yield Provider(ask, condition, _at(places[0]) if places else "the table of system calls")
            return


def _stubbed(ask: Question, name: str, known: KnownSource) -> Iterator[Provider]:
    """Yield rules that ask for symbols by this call, whatever its arguments."""
    for rule in known.rules.for_call(name):
        if not rule.words and not rule.text:
            yield _by_rule(ask, rule.symbols, f"rule {rule.id}")


#: Folders in which a word has the meaning that programs know, ahead of modules that also look at it.
_CORE = (
    "include/linux/bpf_types.h", "kernel/", "fs/", "mm/", "ipc/", "net/core/", "net/socket.c",
    "net/", "block/", "drivers/block/", "drivers/tty/",
    "drivers/net/tun.c", "drivers/net/tap.c", "include/", "drivers/", "arch/",
)  # fmt: skip
_LOOKS_ON = ("security/", "kernel/auditsc.c", "lib/")


def _word(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """Yield a word of ioctl, fcntl, prctl, a socket option, a kind of BPF program …"""
    ruled = [
        _by_rule(ask, rule.symbols, f"rule {rule.id}")
        for rule in known.rules.calls
        if ask.name in rule.words and (not ask.call or ask.call in rule.calls)
    ]
    places = [
        p for p in known.asked.places("word", ask.name)
        if not p.path.startswith(_LOOKS_ON) and "COMPAT" not in symbols(parse(p.condition))
    ]  # fmt: skip
    places.sort(key=lambda p: next((n for n, start in enumerate(_CORE) if p.path.startswith(start)), 99))
    entry = known.facts.syscall(ask.call) if ask.call else None
    if entry is not None:
        own = {p.path for p in entry[1]}
        places.sort(key=lambda p: p.path not in own)
        if any(p.path in own for p in places) or ask.call not in _OPEN_ENDED:
            places = [p for p in places if p.path in own]
    found = list(_of(ask, places))
    # If the source has the word everywhere, a rule may know its meaning.
    plain = bool(found) and found[0].condition in (TRUE, UNKNOWN, *_BASES)
    yield from (*ruled, *found) if plain else (*found, *ruled)


#: Calls whose words are those of whatever stands behind a descriptor.
_OPEN_ENDED = ("ioctl", "setsockopt", "getsockopt")
_BASES = (parse("NET"), parse("NET && INET"), parse("MMU"))


def _path(ask: Question, known: KnownSource) -> Iterator[Provider]:
    path = posixpath.normpath(re.sub(r"^/proc/(?:\d+|PID|thread-self|self/task/\d+)(?=/|$)", "/proc/self", ask.name))
    if path.startswith("//"):
        path = path[1:]
    for start, finder in _FOLDERS:
        if path == start or path.startswith(f"{start}/"):
            yield from finder(ask, path[len(start) + 1 :], path, known)
            return


def _rules_for(ask: Question, path: str, known: KnownSource) -> list[Provider]:
    """Return rules for a path, those that name most of it first; not those for all of /proc or /sys."""
    rules = [rule for rule in known.rules.paths if rule.covers(path) and not {"/proc", "/sys"} & {*rule.paths}]
    rules.sort(key=lambda rule: -max(len(p) for p in rule.paths if not p.startswith("/dev/tty[")))
    return [_by_rule(ask, rule.symbols, f"rule {rule.id}") for rule in rules]


def _upwards(name: str) -> Iterator[str]:
    while name:
        yield name
        name = posixpath.dirname(name)


def _sysctl(ask: Question, name: str, path: str, known: KnownSource) -> Iterator[Provider]:
    base = known.facts.file_condition("fs/proc/proc_sysctl.c")
    wild = re.sub(r"(?<=/)(conf|neigh)/[^/]+/", r"\1/*/", name)
    places = known.facts.places("sysctl", name) or known.facts.places("sysctl", wild)
    yield from _whole(ask, places, base)
    if not places:
        yield from _rules_for(ask, path, known)
        folder, _, last = name.rpartition("/")
        loose = known.facts.places("sysctl", f"*/{last}")
        words = {word.rstrip("0123456789") for word in folder.split("/")}
        # The folder is not in the same file: the one whose own folder has most in common comes first.
        ranked = sorted(loose, key=lambda p: -len(words & set(re.split(r"[/_.]", p.path))))
        yield from _of(ask, ranked[:2], base)
    yield Provider(ask, base, "fs/proc/proc_sysctl.c")


def _proc(ask: Question, name: str, path: str, known: KnownSource) -> Iterator[Provider]:
    base = known.facts.file_condition("fs/proc/root.c")
    name = re.sub(r"^self/net/", "net/", name)
    for number, part in enumerate(_upwards(name)):
        places = known.facts.places("proc", part)
        if places:
            yield from _whole(ask, places, base)
            break
        if number == 0:
            yield from _rules_for(ask, path, known)
    yield Provider(ask, base, "fs/proc/root.c")


def _sys(ask: Question, name: str, path: str, known: KnownSource) -> Iterator[Provider]:
    base = known.facts.file_condition("fs/sysfs/mount.c")
    if name.startswith("module/"):
        module = name.split("/")[1]
        yield from (Provider(ask, conjunction(base, c.condition), c.place) for c in _built(ask, module, known))
    if match := re.match(r"fs/cgroup/(?:.*/)?([a-z_]+)(?:\.[\w.]+)?$", name):
        yield from _whole(ask, known.asked.places("controller", _CONTROLLERS.get(match[1], match[1])))
    own: list[Provider] = []
    for part in _upwards(name):
        places = known.asked.places("sys", part)
        if places:
            own = list(_whole(ask, places, base))
            break
    ruled = _rules_for(ask, path, known)
    # A folder at the top says little of what lies below it.
    yield from (*own, *ruled) if "/" in part else (*ruled, *own)
    yield Provider(ask, base, "fs/sysfs/mount.c")


#: Controllers by the names of their first version.
_CONTROLLERS = {"blkio": "io"}


def _without_number(device: str) -> str:
    """Return `nvme0n1` for `nvme0n1p2`, and `vda` for `vda1`."""
    stem = device.rstrip(digits)
    return stem.removesuffix("p") if stem != device else stem


def _dev(ask: Question, name: str, path: str, known: KnownSource) -> Iterator[Provider]:
    found = False
    for part in _upwards(name):
        stem = _without_number(part)
        for kind, wanted in (("device", part), ("device", stem), ("block device", stem)):
            places = known.facts.places(kind, wanted) or known.asked.places(kind, wanted)
            yield from _whole(ask, places)
            found = found or bool(places)
        if found:
            break
    yield from _rules_for(ask, path, known)
    if not found:
        yield from _built(ask, name.split("/", maxsplit=1)[0].rstrip(digits), known, files=False)


_FOLDERS: tuple[tuple[str, Callable[[Question, str, str, KnownSource], Iterator[Provider]]], ...] = (
    ("/proc/sys", _sysctl), ("/proc", _proc), ("/sys", _sys), ("/dev", _dev),
)  # fmt: skip


def _called(known: KnownSource, kind: str, name: str) -> str:
    """Return the name of a number; a name is returned as it is."""
    return known.asked.name_of(kind, int(name)) if _NUMBER.fullmatch(name) else name


def _family(ask: Question, known: KnownSource) -> Iterator[Provider]:
    name = _called(known, "family", ask.name)
    yield from _whole(ask, known.facts.places("family", {"LOCAL": "UNIX", "ROUTE": "NETLINK"}.get(name, name)))


def _netlink(ask: Question, known: KnownSource) -> Iterator[Provider]:
    name = _called(known, "netlink", ask.name)
    yield from _whole(ask, known.facts.places("netlink", name))


def _protocol(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """`SCTP`, `132`, or `SEQPACKET/SCTP`."""
    name = ask.name.rpartition("/")[2].upper()
    name = _called(known, "protocol", name)
    places = [p for key, ps in known.facts.names.get("protocol", {}).items() if key.endswith(f"/{name}") for p in ps]
    yield from _whole(ask, tuple(places))
    if not places:
        yield from _built(ask, name.lower(), known)


def _filesystem(ask: Question, known: KnownSource) -> Iterator[Provider]:
    name = ask.name.partition(".")[0]
    places = known.facts.places("filesystem", ask.name) or known.facts.places("filesystem", name)
    yield from _whole(ask, places)
    if not places:
        yield from _built(ask, f"fs-{name}", known, files=False)
        yield from _built(ask, name, known, files=False)


def _algorithm(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """`sha256`, or `cbc(aes)`, which needs all of its parts."""
    parts = [p for p in re.split(r"[(),]", ask.name) if p]
    conditions = [known.facts.condition("algorithm", part) for part in parts]
    there = [condition for condition in conditions if condition is not None]
    if there:
        yield Provider(
            ask, conjunction(*there), _at(known.facts.places("algorithm", parts[0])[0]) if conditions[0] else ""
        )


def _table(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """`iptables:nat`, `ip6tables:filter`, `ebtables:broute`: the module that has the table."""
    tool, _, name = ask.name.partition(":")
    family = {"iptables": "iptable", "ip6tables": "ip6table", "ebtables": "ebtable", "arptables": "arptable"}
    yield from _built(ask, f"{family.get(tool, 'iptable')}_{name}", known)


def _module(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """Yield a module by its name, by what it answers to, by what the kernel asks for under it, by the file of that
    name."""
    built = list(_built(ask, ask.name, known, files=False))
    requested = list(_requested(ask, known))
    # Any transport may answer to the family that it serves; the family itself is what was asked for.
    found = (*requested, *built) if ask.name.startswith("net-pf-") else (built or requested)
    yield from found or _built(ask, ask.name, known)


def _built(ask: Question, module: str, known: KnownSource, *, files: bool = True) -> Iterator[Provider]:
    """Return the targets built under a name: a module, a module with that alias, or (`files`) a source file."""
    name = module_name(module.removesuffix(".ko"))
    places = known.asked.places("module", name)
    if places:
        yield from _of(ask, places[:2])
        return
    for alias in (module, name, _family_words(module, known)):
        places = known.asked.places("alias", alias)
        if places:
            yield from _of(ask, places[:3])
            return
    if files:
        paths = [p for p in known.facts.files if module_name(posixpath.basename(p)) == name]
        for path in paths[:2]:
            yield Provider(ask, parse(known.facts.files[path]), f"{path}.c")


def _family_words(name: str, known: KnownSource) -> str:
    """`net-pf-40` with the family's name for its number."""
    return re.sub(r"^net-pf-([0-9]{1,9})", lambda m: f"net-pf-{known.asked.name_of('family', int(m[1]))}", name)


def _requested(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """Yield names that the kernel itself makes up when it asks for a module: request_module("net-pf-%d-proto-%d" …)."""
    name = ask.name
    if match := re.fullmatch(r"net-pf-([0-9]{1,9})-proto-([0-9]{1,9})(?:-type-([0-9]{1,9}))?", name):
        if known.asked.name_of("family", int(match[1])) == "NETLINK":
            yield from _netlink(Question("netlink", match[2]), known)
        else:
            yield from _protocol(Question("protocol", match[2]), known)
    elif match := re.fullmatch(r"net-pf-(\w+)", name):
        yield from _family(Question("family", match[1]), known)
    for start, kind in _REQUESTS:
        if name.startswith(start):
            yield from find(Question(kind, name[len(start) :]), known)
            return


_REQUESTS = (
    ("fs-", "filesystem"), ("crypto-", "algorithm"), ("rtnl-link-", "link"), ("tcp_", "congestion"), ("ipt_", "match"),
    ("ip6t_", "match"), ("xt_", "match"), ("binfmt-464c", "elf"), ("nft-expr-", "expression"), ("sch_", "qdisc"),
)  # fmt: skip


def _source(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """Code by its file (`fs/binfmt_script.c`)."""
    stem = posixpath.splitext(ask.name)[0]
    if stem in known.facts.files:
        yield Provider(ask, known.facts.file_condition(ask.name), ask.name)


def _symbol(ask: Question, known: KnownSource) -> Iterator[Provider]:
    if known.kconfig is None or known.kconfig.known(ask.name):
        place = (
            known.kconfig.places(ask.name)[0] if known.kconfig is not None and known.kconfig.places(ask.name) else ""
        )
        yield Provider(ask, Symbol(ask.name), place)


def _controller(ask: Question, known: KnownSource) -> Iterator[Provider]:
    name = ask.name.lower()
    yield from _whole(ask, known.asked.places("controller", _CONTROLLERS.get(name, name)))


def _tracepoint(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """Events of a system (`syscalls`, `kvm`): what defines them, and what makes them files."""
    own = {"syscalls": "kernel/trace/trace_syscalls.c"}.get(ask.name, "")
    base = known.facts.file_condition("kernel/trace/trace_events.c")
    if own:
        yield Provider(ask, conjunction(base, known.facts.file_condition(own)), own)
    yield from _whole(ask, known.asked.places("tracepoint", ask.name), base)
    yield Provider(ask, base, "kernel/trace/trace_events.c")


def _device(ask: Question, known: KnownSource) -> Iterator[Provider]:
    """A device by its name below /dev (`net/tun`)."""
    yield from _dev(ask, ask.name, f"/dev/{ask.name}", known)


_FINDERS: dict[str, Callable[[Question, KnownSource], Iterator[Provider]]] = {
    "call": _call, "word": _word, "path": _path, "family": _family, "netlink": _netlink, "protocol": _protocol,
    "filesystem": _filesystem, "algorithm": _algorithm, "table": _table, "module": _module, "source": _source,
    "symbol": _symbol, "controller": _controller, "device": _device,
    "tracepoint": _tracepoint,
}  # fmt: skip


# ---- what a word of the user may mean


def meant(what: str, known: KnownSource) -> tuple[Question, ...]:
    """Return all requests that one word can mean, likeliest first: `AF_INET6`, `flock`, `/dev/kvm`, `overlay`,
    `F_SETLK` …"""
    what = what.strip()
    if what.startswith("/"):
        return (Question("path", what),)
    found: list[Question] = []
    for start, kind in _STARTS:
        if what.startswith(start):
            found.append(Question(kind, what[len(start) :]))
    if what in known.facts.table:
        found.append(Question("call", what))
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", what):
        found.append(Question("word", what))
        if known.kconfig is not None and known.kconfig.known(what):
            found.append(Question("symbol", what))
    found += [Question(k, what) for k in _ANY_KIND if known.asked.places(k, what) or known.facts.places(k, what)]
    found += [Question("algorithm", what), Question("call", what)]
    if not any(find(ask, known) for ask in found) or list(_built(Question("module", what), what, known, files=False)):
        found.append(Question("module", what))
    if what.endswith((".c", ".S")):
        found.insert(0, Question("source", what))
    return tuple(ask for ask in dict.fromkeys(found) if find(ask, known))


_STARTS = (
    ("AF_", "family"), ("PF_", "family"), ("IPPROTO_", "protocol"), ("NETLINK_", "netlink"), ("CONFIG_", "symbol"),
    ("RTM_", "rtnetlink"),
)  # fmt: skip
_ANY_KIND = (
    "filesystem", "link", "match", "target", "expression", "congestion", "ulp", "algorithm", "controller", "lsm",
    "genetlink", "mapper target", "qdisc", "classifier", "action", "key type", "9p transport", "scheduler", "charset",
)  # fmt: skip
