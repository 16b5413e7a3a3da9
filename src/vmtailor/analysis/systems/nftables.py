# SPDX-License-Identifier: Apache-2.0
"""Requests to nf_tables: expressions, matches and targets of rules, kinds of sets and chains.

The tracer decodes only the heads of these messages and the outermost attributes, and prints the rest as bytes. Here a
message is put together again from the printed text, and pyroute2 decodes it (docs/decisions/0026)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

#: Messages of one call, and bytes of one, that are looked at.
MOST_MESSAGES, MOST_BYTES = 4096, 65536
_MESSAGE = re.compile(
    r"\{nlmsg_len=\d+, nlmsg_type=NFNL_SUBSYS_(NFTABLES|NFT_COMPAT)<<8\|(\w++)[^{}]*+\}, \{nfgen_family=(\w+)"
)
_ATTRIBUTE = re.compile(r'\{nla_len=(\d+), nla_type=([^{}]*)\}, "((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_KIND = re.compile(r"(?:\A|\|)(0x[0-9a-f]+|\d+)\Z")
_FAMILIES = {"AF_INET": 2, "AF_INET6": 10, "AF_UNSPEC": 0, "AF_UNIX": 1, "AF_BRIDGE": 7, "AF_NETDEV": 5, "AF_ARP": 3}
_CHAIN_TYPE, _COMPAT_NAME, _COMPAT_KIND = 7, 1, 3

#: A request: ("expression", "counter"), ("match", "addrtype"), ("target", "MASQUERADE"), ("chain", "2-nat").
Asked = tuple[str, str]


def asked(message: str) -> Iterator[Asked]:
    """Yield all that one printed call asks nf_tables for. What cannot be decoded is passed over."""
    heads = list(_MESSAGE.finditer(message))[:MOST_MESSAGES]
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(message)
        attributes = list(_attributes(message, head.end(), end))
        family = _FAMILIES.get(head[3], 0)
        if head[1] == "NFT_COMPAT":
            yield from _compat(attributes)
        elif head[2] == "NFT_MSG_NEWRULE":
            yield from _of_rule(attributes)
        elif head[2] == "NFT_MSG_NEWCHAIN":
            for kind, value in attributes:
                if kind == _CHAIN_TYPE:
                    yield "chain", f"{family}-{_text(value)}"


def _attributes(message: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the outermost attributes (kind, content); one that the tracer cut is left out."""
    for found in _ATTRIBUTE.finditer(message, start, end):
        kind, value = _KIND.search(found[2]), bytes.fromhex(found[3].replace("\\x", ""))
        if kind is not None and not found[4] and len(value) + 4 == int(found[1]):
            yield int(kind[1], 0), value


def _compat(attributes: list[tuple[int, bytes]]) -> Iterator[Asked]:
    found = dict(attributes)
    if name := _text(found.get(_COMPAT_NAME, b"")):
        is_target = int.from_bytes(found.get(_COMPAT_KIND, b"")[:4], "big") == 1
        yield "target" if is_target else "match", name


def _of_rule(attributes: list[tuple[int, bytes]]) -> Iterator[Asked]:
    body = b"".join(
        struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4) for kind, value in attributes
    )
    if len(body) > MOST_BYTES:
        return
    # nlmsghdr and nfgenmsg; which family it is does not change what the attributes mean.
    data = struct.pack("=IHHIIBBH", 20 + len(body), 0, 0, 0, 0, 2, 0, 0) + body
    from pyroute2.netlink.nfnetlink import nftsocket  # half a second, and only where a log has rules

    try:
        rule = nftsocket.nft_rule_msg(data)
        rule.decode()
        expressions = rule.get_attr("NFTA_RULE_EXPRESSIONS") or []
        found = [one for expression in expressions for one in _expression(expression)]
    except Exception:  # whatever a decoder makes of bytes that a guest has written
        return
    yield from found


def _expression(expression: Any) -> Iterator[Asked]:
    name, data = expression.get_attr("NFTA_EXPR_NAME"), expression.get_attr("NFTA_EXPR_DATA")
    if not isinstance(name, str):
        return
    yield "expression", name
    inner = data.get_attr(f"NFTA_{name.upper()}_NAME") if name in ("match", "target") and data is not None else None
    if isinstance(inner, str) and inner:
        yield name, inner


def _text(value: bytes) -> str:
    return value.partition(b"\0")[0].decode("ascii", "replace")
