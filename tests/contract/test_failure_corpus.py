# SPDX-License-Identifier: Apache-2.0
"""Messages of tests/data/failures against the source of every packaged kernel: the right symbol first.

About a second for each tree where the cache has what was read of it, 40 where it has not.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.packaged_series import each_series, packaged_series, packaged_source

from vmtailor.analysis.explain import messages
from vmtailor.analysis.explain.failure import recognise
from vmtailor.analysis.explain.lookup import KnownSource, Question, find, meant
from vmtailor.analysis.explain.presence import AskedKernel, Presence, findings, verdict
from vmtailor.pipeline.known_source import source_for

pytestmark = pytest.mark.contract

DATA = Path(__file__).parent.parent / "data" / "failures"
NOTHING = AskedKernel("a kernel of nothing", {})
MESSAGES = messages.load()
SAID = {"not the kernel": (Presence.NOT_KERNEL,), "unsure": (Presence.UNSURE, Presence.UNKNOWN)}


def known_of(series: str) -> KnownSource:
    packaged_source(series)
    found = source_for(series, series)
    assert found is not None
    return found.known


@pytest.fixture(scope="module", params=each_series())
def known(request: pytest.FixtureRequest) -> KnownSource:
    return known_of(request.param)


def rows(name: str) -> list[dict[str, Any]]:
    return list(tomllib.loads((DATA / name).read_text())["message"])


def missed(name: str, known: KnownSource) -> list[str]:
    """The messages whose first answer is not the right one, each with that answer."""
    wrong = []
    for row in rows(name):
        read = recognise(row["text"], known, MESSAGES)
        found = findings(read.asks, known, NOTHING, closed=0) if not read.not_kernel else ()
        first = found[0].symbol if found else ""
        reached = verdict(found, read.not_kernel, sure=read.sure)
        right = first in row["symbol"] if "symbol" in row else reached in SAID[row["says"]]
        if not right:
            wrong.append(f"{row.get('symbol', row.get('says'))}, not {first or read.kind}: {row['text'][:80]!r}")
    return wrong


def test_messages_lead_to_the_right_symbol(known: KnownSource) -> None:
    assert len(rows("messages.toml")) >= 60
    assert missed("messages.toml", known) == []


def test_pasted_messages_are_never_answered_wrongly(known: KnownSource) -> None:
    """Wrapped, over several lines, with errors that contradict what they name, or without anything that names it."""
    assert len(rows("pasted.toml")) >= 60
    assert missed("pasted.toml", known) == []


def test_every_request_of_a_kind_of_messages_is_known(known: KnownSource) -> None:
    """A kind whose request no source has would never speak. Those that quote the message are tried by the messages."""
    asks = {Question(*ask.split(":", 1)) for kind in MESSAGES.kinds for ask in kind.asks if "{" not in ask}
    assert [str(ask) for ask in asks if not find(ask, known)] == []


def test_messages_that_the_data_was_not_made_with(known: KnownSource) -> None:
    """Written down before they were tried; the file says how many were right at once."""
    assert len(missed("unseen.toml", known)) <= len(rows("unseen.toml")) // 10


def test_every_expectation_is_a_symbol_or_elsewhere(known: KnownSource) -> None:
    assert known.kconfig is not None
    for row in (*rows("messages.toml"), *rows("unseen.toml"), *rows("pasted.toml")):
        assert row["seen"] and (row.get("says") in SAID or any(map(known.kconfig.known, row["symbol"]))), row


@pytest.mark.slow
def test_another_source_gives_another_answer() -> None:
    """6.12 moved the tables of the legacy iptables to a symbol of their own."""
    series = packaged_series()
    if not {"6.1", "6.12"} <= set(series):
        pytest.skip("needs the source of both 6.1 and 6.12")
    message = "modprobe: FATAL: Module ip_tables not found in directory /lib/modules/x"
    first = {}
    for one in ("6.1", "6.12"):
        known = known_of(one)
        first[one] = findings(recognise(message, known, MESSAGES).asks, known, NOTHING)[0].symbol
    assert first == {"6.1": "IP_NF_IPTABLES", "6.12": "IP_NF_IPTABLES_LEGACY"}


@pytest.mark.parametrize(
    ("what", "symbol"),
    [("flock", "FILE_LOCKING"), ("F_SETLK", "FILE_LOCKING"), ("inotify_init1", "INOTIFY_USER"), ("TCP_ULP", "TLS"),
     ("/proc/self/status", "PROC_FS"), ("AF_INET6", "IPV6"), ("MASQUERADE", "NETFILTER_XT_TARGET_MASQUERADE"),
     ("wireguard", "WIREGUARD"), ("overlay", "OVERLAY_FS"), ("/dev/net/tun", "TUN"), ("cbc(aes)", "CRYPTO_AES"),
     ("net-pf-10", "IPV6"), ("PR_SET_SECCOMP", "SECCOMP"), ("landlock", "SECURITY_LANDLOCK")],
)  # fmt: skip
def test_names(known: KnownSource, what: str, symbol: str) -> None:
    assert findings(meant(what, known), known, NOTHING, closed=0)[0].symbol == symbol
