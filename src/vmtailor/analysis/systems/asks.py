# SPDX-License-Identifier: Apache-2.0
"""Requests that single calls of engines and service managers make beyond their names: netlink, packet filters, BPF,
control groups, keys. The kernel's source gives the symbol of each (analysis/explain/lookup.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from vmtailor.analysis.demands.strace_log import descriptor_path, unquote
from vmtailor.analysis.explain.lookup import Question
from vmtailor.analysis.systems import nftables
from vmtailor.model.syscalls import SyscallEvent

Asks = Iterator[tuple[Question, str]]
#: Longest call that is looked into.
MOST = 65536

_LINK_KIND = re.compile(r'nla_type=IFLA_INFO_KIND\}, "([\w.+-]{1,32})"')
_TRAFFIC = re.compile(
    r"nlmsg_type=RTM_NEW(QDISC|TFILTER|ACTION)(?:[^n]|n(?!lmsg_type=))*?nla_type=TCA_(?:ACT_)?KIND\}, "
    r'"([\w.+-]{1,32})"',
    re.S,
)
_TRAFFIC_KINDS = {"QDISC": "qdisc", "TFILTER": "classifier", "ACTION": "action"}
_RULE = re.compile(r"nlmsg_type=RTM_(?:NEW|DEL)RULE\b.{0,300}?family=(?:AF_)(INET6?)\b", re.S)
_GENERIC = re.compile(r'nla_type=CTRL_ATTR_FAMILY_NAME\}, "([\w.+-]{1,32})"')
_BPF = re.compile(r"(?:prog_type|map_type)=(BPF_(?:PROG|MAP)_TYPE_\w+)")
_CONTROLLER = re.compile(r"\+([a-z_]+)")
_MOST_CONTROLLERS = 32
_CGROUP_FILE = re.compile(r"/sys/fs/cgroup/(?:.*/)?((?!cgroup\.)[a-z_]+)\.[\w.]+\Z", re.S)
_XTABLES = re.compile(
    r"\b(IP6?T|EBT|ARPT)_SO_(SET_REPLACE|GET_INFO|GET_ENTRIES|GET_REVISION_MATCH|GET_REVISION_TARGET)\b"
)
_TOOLS = {"IPT": "iptables", "IP6T": "ip6tables", "EBT": "ebtables", "ARPT": "arptables"}


def of_call(event: SyscallEvent) -> Asks:
    """Yield all that one call asks for, with a sentence that says how. A call that failed asks for nothing."""
    reader = _READERS.get(event.name)
    if reader is not None and not event.error and sum(map(len, event.args)) <= MOST:
        yield from reader(event)


def _netlink(event: SyscallEvent) -> Asks:
    if not event.args or "<NETLINK:[" not in event.args[0]:
        return
    said = ", ".join(event.args[1:])
    who = event.task
    if "nlmsg_type=RTM_NEWLINK" in said:
        for kind in _LINK_KIND.findall(said):
            yield Question("link", kind), f"{who} makes a network link of kind {kind}"
    for where, kind in _TRAFFIC.findall(said):
        yield Question(_TRAFFIC_KINDS[where], kind), f"{who} sets up traffic control of kind {kind}"
    for family in _RULE.findall(said):
        yield Question("rules", family), f"{who} sets a rule of policy routing"
    if "CTRL_CMD_GETFAMILY" in said:
        for name in _GENERIC.findall(said):
            yield Question("genetlink", name), f"{who} asks for the generic netlink family {name}"
    if "NFNL_SUBSYS_NF" in said:
        for kind, name in nftables.asked(said):
            if kind == "chain":
                yield Question("module", f"nft-chain-{name}"), f"{who} makes a chain of nf_tables of kind {name}"
            else:
                yield Question(kind, name), f"{who} uses the {kind} {name} in a rule of nf_tables"


def _bpf(event: SyscallEvent) -> Asks:
    if event.args[:1] and event.args[0] in ("BPF_PROG_LOAD", "BPF_MAP_CREATE"):
        for word in _BPF.findall(", ".join(event.args[1:])):
            yield Question("word", word, "bpf"), f"{event.task} makes a {word}"


def _xtables(event: SyscallEvent) -> Asks:
    """Yield tables, matches and targets by their socket options. Each structure begins with a name in 32 bytes, or
    29."""
    asked = _XTABLES.search(event.args[2]) if len(event.args) > 3 else None
    if asked is None:
        return
    name = unquote(event.args[3].strip("[]")).partition("\0")[0]
    if not re.fullmatch(r"[\w-]{1,32}", name):
        return
    if asked[2] == "GET_REVISION_MATCH":
        yield Question("match", name), f"{event.task} asks for the match {name}"
    elif asked[2] == "GET_REVISION_TARGET":
        yield Question("target", name), f"{event.task} asks for the target {name}"
    else:
        tool = _TOOLS[asked[1]]
        yield Question("table", f"{tool}:{name}"), f"{event.task} uses the table {name} of {tool}"


def _written(event: SyscallEvent) -> Asks:
    path = descriptor_path(event.args[0]) if event.args else ""
    if path.startswith("/sys/fs/cgroup/") and path.endswith("/cgroup.subtree_control") and len(event.args) > 1:
        for name in _CONTROLLER.findall(unquote(event.args[1]))[:_MOST_CONTROLLERS]:
            yield Question("controller", name), f"{event.task} switches the control group controller {name} on"


def _opened(event: SyscallEvent) -> Asks:
    path = descriptor_path(event.args[0]) + "/" if event.args and event.args[0].startswith("AT_FDCWD<") else ""
    named = next((unquote(one) for one in event.args[:2] if one.startswith('"')), "")
    whole = named if named.startswith("/") else path + named
    found = _CGROUP_FILE.match(whole)
    if found:
        yield Question("controller", found[1]), f"{event.task} uses files of the control group controller {found[1]}"


def _mounted(event: SyscallEvent) -> Asks:
    """Control groups of the first version are mounted with their controllers as options."""
    if len(event.args) > 4 and unquote(event.args[2]) == "cgroup":
        for name in unquote(event.args[4]).split(",")[:_MOST_CONTROLLERS]:
            if re.fullmatch(r"[a-z_]{2,20}", name) and name not in ("none", "xattr", "rw", "ro"):
                yield Question("controller", name), f"{event.task} mounts the control group controller {name}"


def _key(event: SyscallEvent) -> Asks:
    kind = unquote(event.args[0]) if event.args else ""
    if re.fullmatch(r"[\w.:-]{1,32}", kind):
        yield Question("key type", kind), f"{event.task} uses keys of type {kind}"


_READERS: dict[str, Callable[[SyscallEvent], Asks]] = {
    "sendto": _netlink, "sendmsg": _netlink, "write": _written, "bpf": _bpf, "setsockopt": _xtables,
    "getsockopt": _xtables, "openat": _opened, "open": _opened, "mount": _mounted, "add_key": _key,
    "request_key": _key,
}  # fmt: skip
