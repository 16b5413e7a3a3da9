# SPDX-License-Identifier: Apache-2.0
"""The names by which a kernel tree can be asked for things: found in its source, as one record per tree."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource import kbuild
from vmtailor.analysis.ksource.conditions import line_conditions
from vmtailor.analysis.ksource.expr import FALSE, TRUE, Expr, conjunction, disjunction, negation
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.facts import Facts, Place
from vmtailor.analysis.ksource.make_values import Reader
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.files import records
from vmtailor.base.notation import module_name
from vmtailor.model.architecture import Architecture, presumed

Found = Iterator[tuple[str, str, int]]
#: Names of macros → the strings that they stand for.
Strings = Mapping[str, str]

_LONGEST = 6000


@dataclass(frozen=True)
class _Struct:
    """Definitions of a struct whose field is a name: `struct TYPE x = { .FIELD = "name" }`. `all`: every such field in
    the body, as arrays have; else the first."""

    kind: str
    type: str
    field: str
    all: bool = False


_STRUCTS = (
    _Struct("link", "rtnl_link_ops", "kind"),
    _Struct("qdisc", "Qdisc_ops", "id"),
    _Struct("classifier", "tcf_proto_ops", "kind"),
    _Struct("action", "tc_action_ops", "kind"),
    _Struct("match", "xt_match", "name", all=True),
    _Struct("target", "xt_target", "name", all=True),
    _Struct("expression", "nft_expr_type", "name"),
    _Struct("genetlink", "genl_family", "name"),
    _Struct("ulp", "tcp_ulp_ops", "name"),
    _Struct("congestion", "tcp_congestion_ops", "name"),
    _Struct("mapper target", "target_type", "name"),
    _Struct("key type", "key_type", "name"),
    _Struct("scheduler", "elevator_type", "elevator_name"),
    _Struct("charset", "nls_table", "charset"),
    _Struct("9p transport", "p9_trans_module", "name"),
    _Struct("sys", "class", "name"),
    _Struct("sys", "bus_type", "name"),
)
_BELOW = {"class": "class/", "bus_type": "bus/"}
_START = re.compile(
    r"\bstruct (" + "|".join(s.type for s in _STRUCTS) + r")\s+\w++(?:\[[^\]]{0,200}\])?\s*+(?:__\w++\s*+)*+=\s*\{"
)
_BY_TYPE = {s.type: s for s in _STRUCTS}
_VALUE = r'\.{}\s*=\s*(?:"([^"\n]+)"|([A-Z][A-Z0-9_]+)\b)'
_FIELDS = {s.type: re.compile(_VALUE.format(s.field)) for s in _STRUCTS}
_STRING = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+"([^"\n]+)"', re.M)

_RULES = re.compile(r"\bstruct\s+fib_rules_ops\s[\w\s]{0,100}=\s*\{[^}]{0,300}?\.family\s*=\s*(?:AF|PF)_(\w+)", re.S)
_LSM = re.compile(r"^DEFINE_(?:EARLY_)?LSM\((\w+)\)", re.M)
_ENCAP = re.compile(r"\blwtunnel_encap_add_ops\([^,;()]*,\s*LWTUNNEL_ENCAP_(\w+)")
_BLOCK = re.compile(r'\b(?:__)?register_blkdev\(\s*[\w.>-]+,\s*"([^"\n]+)"')
_MISC = re.compile(r'\bstruct\s+miscdevice\s+\w+\s*=\s*\{\s*\w+,\s*"([^"\n]+)"')
_FOLDER = re.compile(
    r'\b(?:kobject_create_and_add\(\s*"(?P<a>[^"\n]+)",\s*(?P<under>\w+_kobj|NULL)\s*\)'
    r'|sysfs_create_mount_point\(\s*(?P<under2>\w+_kobj),\s*"(?P<b>[^"\n]+)")'
)
_TRACE = re.compile(r"^#[ \t]*include[ \t]+<trace/events/(\w+)\.h>", re.M)
_CLASS = re.compile(r'\bclass_create\(\s*(?:THIS_MODULE,\s*)?"([^"\n]+)"')
_UNDER = {
    "fs_kobj": "fs/", "kernel_kobj": "kernel/", "mm_kobj": "kernel/mm/", "power_kobj": "power/", "NULL": "",
    "firmware_kobj": "firmware/", "hypervisor_kobj": "hypervisor/", "fuse_kobj": "fs/fuse/",
}  # fmt: skip
#: Lists in headers: controllers of control groups, kinds of BPF programs and maps.
LISTED = re.compile(r"^(?:SUBSYS|BPF_(?:PROG|MAP)_TYPE)\((\w+)", re.M)
_ALIAS = re.compile(r"^[ \t]*MODULE_ALIAS(_\w+)?\(\s*+([^;\n]+)\)\s*;", re.M)
_RTNETLINK = re.compile(
    r"\brtnl_register(?:_module)?\(\s*(?:THIS_MODULE,\s*)?\w+,\s*RTM_(\w+)|\.msgtype\s*=\s*RTM_(\w+)"
)

_CASE = re.compile(r"\bcase[ \t]+([A-Z][A-Z0-9_]+)[ \t]*:|\bcmd == ([A-Z][A-Z0-9_]+)\b")
_LABEL = re.compile(r"^\s*(?:case\b[^:\n]*|default\s*):")
_NO_STATEMENT = re.compile(
    r"^\s*+(?:(?:#|/?\*|//).*|(?:case\b[^:\n]*:|default\s*:|fallthrough\s*;|\{|)\s*+(?:/\*.*\*/)?\s*+)$"
)
_CALLED = re.compile(r"\b([a-z_]\w+)\s*\(")
_MOST_LINES = 14
#: A function that does nothing but refuse.
_STUB = re.compile(
    r"\bstatic\s+(?:__always_)?inline\s[^;{}()]{0,120}?\b(\w+)\s*\([^;{}]{0,600}\)\s*\{\s*return\s+(?:-E\w+|ERR_PTR\(\s*-E\w+\s*\))"
    r"\s*;\s*\}"
)
_REFUSING = re.compile(r"^static\s[^;{}()=]{0,120}?\b(\w+)\s*\([^;{}]{0,600}\)\s*\{\s*return\s+-E\w+\s*;\s*\}", re.M)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Z][A-Z0-9_]+)(?=[ \t])", re.M)
_MEMBER = re.compile(r"^[ \t]+([A-Z][A-Z0-9_]+)[ \t]*(?:=[^,\n]*)?,", re.M)

#: Words without one of which a C file has none of these names.
HINTS = (
    "MODULE_ALIAS", "_kobj", "case ", "class_create", "RTM_", "fib_rules_ops", "_LSM(", "lwtunnel_encap", "cmd == ",
    "register_blkdev", "struct miscdevice", "CREATE_TRACE_POINTS", *(f"struct {s.type}" for s in _STRUCTS),
)  # fmt: skip


def strings(text: str) -> Iterator[tuple[str, str]]:
    """Return macros of a text that stand for strings."""
    return ((m.group(1), m.group(2)) for m in _STRING.finditer(text))


def constants(text: str) -> Iterator[str]:
    """Yield the names of constants that a header for programs defines."""
    yield from (m.group(1) for m in _MACRO.finditer(text))
    yield from (m.group(1) for m in _MEMBER.finditer(text))


def stubs(text: str) -> Iterator[tuple[str, int]]:
    """Return functions that do nothing but return an error: what a header has in place of what is not compiled."""
    return ((m.group(1), m.start()) for m in _STUB.finditer(text))


def refusing(text: str) -> Iterator[tuple[str, int]]:
    """Yield the functions of a C file that only refuse, where they need not be inline."""
    return ((m.group(1), m.start()) for m in _REFUSING.finditer(text))


def names(text: str, known: Strings) -> Found:
    """Yield all names of a C file but the words of `case`s. `known`: macros of headers."""
    yield from _fields(text, known)
    for kind, pattern, hint in _PLAIN:
        for match in pattern.finditer(text) if hint in text else ():
            yield kind, next(group for group in match.groups() if group), match.start()
    for match in _LSM.finditer(text) if "_LSM(" in text else ():
        name = match.group(1)
        yield (
            "lsm",
            dict(strings(text)).get(name) or known.get(name) or name.removesuffix("_NAME").lower(),
            match.start(),
        )
    for match in _FOLDER.finditer(text) if "_kobj" in text else ():
        under = _UNDER.get(match["under"] or match["under2"])
        if under is not None:
            yield "sys", under + (match["a"] or match["b"]), match.start()
    begin = text.find("#define CREATE_TRACE_POINTS")
    for match in _TRACE.finditer(text, begin) if begin >= 0 else ():
        yield "tracepoint", match.group(1), match.start()
    for match in _CLASS.finditer(text) if "class_create" in text else ():
        yield "sys", f"class/{match.group(1)}", match.start()
    for match in _ALIAS.finditer(text) if "MODULE_ALIAS" in text else ():
        for name in _aliases(match.group(1) or "", match.group(2).rstrip()):
            yield "alias", name, match.start()


#: Kind, pattern, and a word without which a file has none.
_PLAIN = (
    ("rules", _RULES, "struct fib_rules_ops"), ("device", _MISC, "struct miscdevice"),
    ("encapsulation", _ENCAP, "lwtunnel_encap_add_ops"), ("block device", _BLOCK, "register_blkdev"),
    ("rtnetlink", _RTNETLINK, "RTM_"),
)  # fmt: skip


def _fields(text: str, known: Strings) -> Found:
    here: dict[str, str] | None = None
    if not any(f"struct {kind}" in text for kind in _BY_TYPE):
        return
    for match in _START.finditer(text):
        kind = match.group(1)
        end = text.find("\n}", match.end(), match.end() + _LONGEST)
        body = text[match.end() : end if end > 0 else match.end() + _LONGEST]
        for field in _FIELDS[kind].finditer(body):
            name = field.group(1)
            if name is None:
                here = dict(strings(text)) if here is None else here
                name = here.get(field.group(2)) or known.get(field.group(2))
            if name:
                yield _BY_TYPE[kind].kind, _BELOW.get(kind, "") + name, match.end() + field.start()
                if kind == "bus_type" and "subsys_system_register" in text:
                    yield "sys", f"devices/system/{name}", match.end() + field.start()
            if not _BY_TYPE[kind].all:
                break


def _aliases(ending: str, arguments: str) -> Iterator[str]:
    """Return the aliases of a module: x for `MODULE_ALIAS("x")`, rtnl-link-x for `MODULE_ALIAS_RTNL_LINK("x")` as its
    macro defines it, and net-pf-N for `MODULE_ALIAS_NETPROTO(PF_X)`, with the number N of the family."""
    words = [word.strip().strip('"') for word in arguments.split(",")]
    if not ending:
        if arguments.startswith('"') and len(words) == 1 and not words[0].startswith("devname:"):
            yield words[0]
    elif ending == "_NETPROTO":
        yield f"net-pf-{_family(words[0])}"
    elif ending == "_NFT_CHAIN" and len(words) == 2:
        yield f"nft-chain-{_chain_family(words[0])}-{words[1]}"
    elif ending.startswith("_NET_PF_PROTO") and len(words) >= 2:
        yield f"net-pf-{_family(words[0])}-proto-{words[1]}" + "".join(f"-type-{w}" for w in words[2:])
    elif ending in _PREFIXES and words[0]:
        yield _PREFIXES[ending] + words[0]


def _family(word: str) -> str:
    return word.removeprefix("PF_").removeprefix("AF_")


def _chain_family(word: str) -> str:
    """Return the number that a family has in packet filters; a number stays one."""
    return {"INET": "2", "INET6": "10", "BRIDGE": "7"}.get(_family(word), word)


_PREFIXES = {
    "_RTNL_LINK": "rtnl-link-", "_FS": "fs-", "_CRYPTO": "crypto-", "_TCP_ULP": "tcp-ulp-", "_NET_ACT": "net-act-",
    "_NET_SCH": "net-sch-", "_NET_CLS": "net-cls-", "_NFT_EXPR": "nft-expr-", "_NFCT_HELPER": "nfct-helper-",
    "_RTNL_LWT": "rtnl-lwt-", "_IP_VS_SCHEDULER": "ip_vs_", "_9P": "9p-", "_NF_LOGGER": "nf-logger-",
}  # fmt: skip


def cases(text: str, wanted: Container[str]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield words of `case WORD:` that programs can write, each with the functions that what follows calls."""
    for match in _CASE.finditer(text):
        name = match.group(1) or match.group(2)
        if name in wanted:
            after = text[match.end() : match.end() + 1200].splitlines() if match.group(1) else []
            yield name, match.start(), tuple(_called(after))


def _called(lines: Iterable[str]) -> Iterator[str]:
    """Yield functions called in the statements that belong to a label: to `break`, or to the next label after a
    statement."""
    begun = False
    for number, line in enumerate(lines):
        if number > _MOST_LINES:
            return
        if begun and _LABEL.match(line):
            return
        if _NO_STATEMENT.match(line):
            continue
        begun = True
        yield from _CALLED.findall(line)
        if line.strip() == "break;" or line.startswith("\t\treturn "):
            return


#: Change when a finder changes, so that what is stored is made again.
FORMAT = "4"
#: Folders searched in addition to those of the facts: what maps disks, and buses between machines.
_MORE = ("drivers/md", "drivers/android", "drivers/net/can/vcan.c", "drivers/net/can/vxcan.c", "drivers/virtio")
_HEADERS = ("include/linux", "include/net", "fs", "kernel", "mm", "net", "ipc")
_UAPI = ("include/uapi/linux", "include/uapi/asm-generic")
#: Families, protocols and errors with their numbers: kind → (file, what a line is).
_NUMBERED = (
    ("family", "include/linux/socket.h", re.compile(r"^[ \t]*#[ \t]*define[ \t]+AF_(\w+)[ \t]+(\d+)", re.M)),
    ("protocol", "include/uapi/linux/in.h", re.compile(r"^[ \t]*IPPROTO_(\w+)[ \t]*=[ \t]*(\d+)", re.M)),
    (
        "netlink",
        "include/uapi/linux/netlink.h",
        re.compile(r"^[ \t]*#[ \t]*define[ \t]+NETLINK_(\w+)[ \t]+(\d+)", re.M),
    ),
    ("type", "include/linux/net.h", re.compile(r"^[ \t]*SOCK_(\w+)[ \t]*=[ \t]*(\d+)", re.M)),
)
_ERRNO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(E[A-Z0-9]+)[ \t]+(\d+)", re.M)
_MOST_PLACES = 12


@dataclass(frozen=True)
class AskedNames:
    """`names`: kind → name → places, as in the facts; `numbers`: kind (family, protocol, netlink, type, errno) → name →
    number."""

    SCHEMA: ClassVar[str] = "vmtailor/asked/1"

    kernel_version: str
    names: dict[str, dict[str, tuple[Place, ...]]]
    numbers: dict[str, dict[str, int]]

    def places(self, kind: str, name: str) -> tuple[Place, ...]:
        return self.names.get(kind, {}).get(name, ())

    def name_of(self, kind: str, number: int) -> str:
        """Return the first name with that number; empty for none."""
        return next((name for name, value in self.numbers.get(kind, {}).items() if value == number), "")


def collect(
    facts: Facts, read: Reader, sources: Iterable[str], headers: Iterable[str], architecture: Architecture | None = None
) -> AskedNames:
    """Search a tree. `sources`: its C files; `headers`: those for programs, and those with what stands for code that is
    not compiled. Pure but for what `read` does."""
    architecture = architecture or presumed()
    search = _Search(facts, architecture.kernel.source)
    for path in headers:
        search.header(path, read(path) or "")
    for path in sources:
        search.source(path, read(path) or "")
    for name, condition in kbuild.modules(read, architecture.kernel.source).items():
        search.note("module", module_name(posixpath.basename(name)), Place(name, 0, str(condition)))
    return AskedNames(
        facts.kernel_version,
        {kind: {n: tuple(p[:_MOST_PLACES]) for n, p in by_name.items()} for kind, by_name in search.found.items()},
        _numbers(read, architecture.kernel.source),
    )


class _Search:
    def __init__(self, facts: Facts, arch: str) -> None:
        self.found: dict[str, dict[str, list[Place]]] = {}
        self._facts = facts
        self._arch = arch
        self._constants: set[str] = set()
        self._strings: dict[str, str] = {}
        self._refusals: dict[str, Expr] = {}  # function → when it does nothing but refuse

    def note(self, kind: str, name: str, place: Place) -> None:
        places = self.found.setdefault(kind, {}).setdefault(name, [])
        if place.condition != str(FALSE) and all(place.condition != known.condition for known in places):
            places.append(place)

    def header(self, path: str, text: str) -> None:
        if "/uapi/" in path:
            self._constants |= set(constants(text))
        self._strings.update(strings(text))
        found = list(stubs(text)) if "-E" in text else []
        lists = [(m.group(1), m.start()) for m in LISTED.finditer(text)]
        if not found and not lists:
            return
        conditions = line_conditions(text, self._facts.may_be_modules)
        for name, offset in found:
            self._refuses(name, conditions.at(_line(text, offset)))
        kind = "controller" if path.endswith("cgroup_subsys.h") else "word"
        for name, offset in lists:
            line = _line(text, offset)
            self.note(kind, name, Place(path, line, str(conditions.at(line))))

    def _refuses(self, name: str, condition: Expr) -> None:
        if condition != TRUE:  # what always refuses says nothing
            self._refusals[name] = disjunction(self._refusals.get(name, FALSE), condition)

    def source(self, path: str, text: str) -> None:
        if not any(hint in text for hint in HINTS):
            return
        whole = self._facts.file_condition(path)
        if whole == FALSE:
            return
        before = dict(self._refusals)
        hits = [(kind, name, offset, ()) for kind, name, offset in names(text, self._strings)]
        words = [("word", name, offset, called) for name, offset, called in cases(text, self._constants)]
        if not hits and not words:
            return
        conditions = line_conditions(text, self._facts.may_be_modules)
        if words and "return -E" in text:
            for name, offset in refusing(text):
                self._refuses(name, conditions.at(_line(text, offset)))
        for kind, name, offset, called in (*hits, *words):
            line = _line(text, offset)
            refusals = [negation(self._refusals[one]) for one in called if one in self._refusals]
            condition = conjunction(whole, conditions.at(line), *refusals)
            self.note(kind, name, Place(path, line, str(condition)))
        self._refusals = before  # what a C file has for itself


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _numbers(read: Reader, arch: str) -> dict[str, dict[str, int]]:
    found = {
        kind: {name: int(number) for name, number in pattern.findall(read(path) or "")}
        for kind, path, pattern in _NUMBERED
    }
    errors: dict[str, int] = {}
    for path in (
        "include/uapi/asm-generic/errno-base.h", "include/uapi/asm-generic/errno.h",
        f"arch/{arch}/include/uapi/asm/errno.h",
    ):  # fmt: skip
        errors.update({name: int(number) for name, number in _ERRNO.findall(read(path) or "")})
    return found | {"errno": errors}


def files(source: Path, architecture: Architecture | None = None) -> tuple[list[str], list[str]]:
    """Return the C files and the headers to search, each in a fixed order."""
    more = [path for name in _MORE for path in _below(source, name, "*.c")]
    headers = [path for name in (*_UAPI, *_HEADERS) for path in _below(source, name, "*.h")]
    arch = f"arch/{(architecture or presumed()).kernel.source}/include/uapi/asm"
    return sorted({*ksource_facts.c_files(source, architecture), *more}), [
        *_below(source, arch, "*.h"),
        *dict.fromkeys(headers),
    ]


def _below(source: Path, name: str, pattern: str) -> Iterator[str]:
    folder = source / name
    if folder.is_file():
        yield name
    yield from sorted(path.relative_to(source).as_posix() for path in folder.rglob(pattern))


def load(
    source: Path, facts: Facts, source_id: str, store: Store | None = None, *, architecture: Architecture
) -> AskedNames:
    """Return the record of the tree at `source`. It comes from the store when `source_id`, which names its content, is
    known."""

    def fill(folder: Path) -> None:
        records.save(
            collect(facts, ksource_facts.reader(source), *files(source, architecture), architecture),
            folder / "asked.json",
        )

    key = digest(AskedNames.SCHEMA, FORMAT, ksource_facts.FORMAT, architecture.name, facts.kernel_version, source_id)
    return records.load(AskedNames, (store or Store()).get("facts", key, fill) / "asked.json")


def merged(condition: Iterable[Place]) -> Expr:
    """Return the condition that any of the places is compiled."""
    return disjunction(*(parse(place.condition) for place in condition))
