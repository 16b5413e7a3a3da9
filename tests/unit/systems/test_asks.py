# SPDX-License-Identifier: Apache-2.0
"""What calls ask for beyond their names, from lines of the Docker host of examples/debian-vm, and some by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.systems.test_system_log import EXCERPT, calls, read

from vmtailor.analysis.systems import asks, nftables
from vmtailor.model.syscalls import SyscallEvent


def of(name: str, *args: str, error: str = "") -> set[tuple[str, str]]:
    event = SyscallEvent(1, 7, "engine", name, args, 0, error, 0.0)
    return {(question.kind, question.name) for question, _ in asks.of_call(event)}


def test_a_recorded_engine_asks_for_what_it_uses() -> None:
    _, found = read(EXCERPT.read_bytes())
    asked = {(q.kind, q.name): text for event in calls(found) for q, text in asks.of_call(event)}
    assert set(asked) >= {
        ("link", "bridge"), ("controller", "cpu"), ("controller", "cpuset"), ("controller", "memory"),
        ("word", "BPF_PROG_TYPE_CGROUP_SKB"), ("word", "BPF_PROG_TYPE_CGROUP_DEVICE"), ("match", "addrtype"),
        ("expression", "counter"), ("expression", "immediate"), ("key type", "user"),
    }  # fmt: skip
    assert asked[("link", "bridge")] == "dockerd makes a network link of kind bridge"


NETLINK = "3<NETLINK:[ROUTE:9]>"
GENERIC = "3<NETLINK:[GENERIC:9]>"
RAW = "4<RAW:[1]>"
MEMORY = '"/sys/fs/cgroup/memory/docker/memory.limit_in_bytes"'
CONTROL = "5</sys/fs/cgroup/a/cgroup.subtree_control>"
#: The call, its arguments, and what it asks for: one kind, and names.
CASES: tuple[tuple[str, tuple[str, ...], str, tuple[str, ...]], ...] = (
    ("sendto", (NETLINK, '[{nlmsg_type=RTM_NEWQDISC}, {nla_type=TCA_KIND}, "fq_codel"]'), "qdisc", ("fq_codel",)),
    ("sendto", (NETLINK, '[{nlmsg_type=RTM_NEWTFILTER}, {nla_type=TCA_KIND}, "u32"]'), "classifier", ("u32",)),
    (
        "sendmsg",
        (GENERIC, 'CTRL_CMD_GETFAMILY {nla_type=CTRL_ATTR_FAMILY_NAME}, "IPVS"'),
        "genetlink",
        ("IPVS",),
    ),
    ("sendto", (NETLINK, "[{nlmsg_type=RTM_NEWRULE}, {family=AF_INET6}]"), "rules", ("INET6",)),
    ("sendto", ("3<TCP:[1]>", '{nlmsg_type=RTM_NEWLINK} nla_type=IFLA_INFO_KIND}, "veth"'), "", ()),
    ("setsockopt", (RAW, "SOL_IP", "IPT_SO_SET_REPLACE", r'"nat\0\0\0"', "900"), "table", ("iptables:nat",)),
    ("getsockopt", (RAW, "SOL_IP", "IPT_SO_GET_REVISION_MATCH", r'"mark\0\3"', "[30]"), "match", ("mark",)),
    ("getsockopt", (RAW, "SOL_IPV6", "IP6T_SO_GET_REVISION_TARGET", r'"LOG\0"', "[30]"), "target", ("LOG",)),
    ("mount", ('"c"', '"/x"', '"cgroup"', "MS_NOSUID", '"cpu,cpuacct"'), "controller", ("cpu", "cpuacct")),
    ("openat", ("AT_FDCWD</>", MEMORY, "O_RDWR"), "controller", ("memory",)),
    ("openat", ("AT_FDCWD</>", '"/sys/fs/cgroup/a/cgroup.procs"', "O_RDWR"), "", ()),
    ("write", (CONTROL, r'"+io +pids -cpu\n"', "9"), "controller", ("io", "pids")),
    ("bpf", ("BPF_MAP_CREATE", "{map_type=BPF_MAP_TYPE_HASH, key_size=8}", "72"), "word", ("BPF_MAP_TYPE_HASH",)),
    ("request_key", ('"dns_resolver"', '"x"', "NULL", "0"), "key type", ("dns_resolver",)),
)


@pytest.mark.parametrize(("name", "args", "kind", "names"), CASES)
def test_each_kind_is_read_where_it_is_said(
    name: str, args: tuple[str, ...], kind: str, names: tuple[str, ...]
) -> None:
    assert of(name, *args) == {(kind, one) for one in names}
    assert of(name, *args, error="EPERM") == set()


def rule(*attributes: tuple[int, bytes], message: str = "NFT_MSG_NEWRULE") -> str:
    """A message as the tracer prints it."""

    def one(kind: int, value: bytes) -> str:
        quoted = "".join(rf"\x{byte:02x}" for byte in value)
        return f'[{{nla_len={len(value) + 4}, nla_type=0x{kind:x}}}, "{quoted}"]'

    head = f"{{nlmsg_len=1, nlmsg_type=NFNL_SUBSYS_NFTABLES<<8|{message}, nlmsg_flags=0}}, {{nfgen_family=AF_INET}}"
    return f"[{head}, [{', '.join(one(kind, value) for kind, value in attributes)}]]"


def attribute(kind: int, value: bytes) -> bytes:
    return (len(value) + 4).to_bytes(2, "little") + kind.to_bytes(2, "little") + value + bytes(-len(value) % 4)


def expression(name: bytes, data: bytes = b"") -> bytes:
    return attribute(1, attribute(1, name + b"\0") + (attribute(2, data) if data else b""))


def test_matches_and_targets_stand_inside_expressions() -> None:
    both = expression(b"match", attribute(1, b"conntrack\0") + attribute(2, bytes(4))) + expression(
        b"target", attribute(1, b"MASQUERADE\0") + attribute(2, bytes(4))
    )
    assert set(nftables.asked(rule((1, b"nat\0"), (4, both)))) == {
        ("expression", "match"), ("match", "conntrack"), ("expression", "target"), ("target", "MASQUERADE"),
    }  # fmt: skip


def test_a_chain_has_a_kind_and_a_family() -> None:
    text = rule((1, b"nat\0"), (3, b"POSTROUTING\0"), (7, b"nat\0"), message="NFT_MSG_NEWCHAIN")
    assert list(nftables.asked(text)) == [("chain", "2-nat")]


@pytest.mark.attack
def test_an_attribute_that_the_tracer_cut_is_left_out() -> None:
    text = rule((4, expression(b"counter"))).replace('"]', '"...]')
    assert list(nftables.asked(text)) == []


@pytest.mark.attack
@given(st.binary(max_size=300))
def test_any_bytes_of_a_rule_are_decoded_or_passed_over(data: bytes) -> None:
    for kind, name in nftables.asked(rule((4, data))):
        assert isinstance(kind, str) and isinstance(name, str)


@pytest.mark.attack
def test_a_call_of_any_length_takes_no_longer() -> None:
    assert of("sendto", NETLINK, "nlmsg_type=RTM_NEWQDISC " * 100_000) == set()
