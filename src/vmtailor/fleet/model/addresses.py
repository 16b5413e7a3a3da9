# SPDX-License-Identifier: Apache-2.0
"""Addresses of schedulers. What listens unpickles what it gets, so that nothing listens without certificates."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from vmtailor.base.errors import UserInputError

#: Port of a scheduler, unless its address says another.
PORT = 8786
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """A host, by name or number, and a port. 0 is any free port, for what listens."""

    host: str
    port: int = PORT

    @property
    def text(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tls://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether only this host reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse(text: str) -> Address:
    """Return the address that `tls://HOST[:PORT]` names. Raises UserInputError, for plain tcp:// too."""
    hint = "tls://HOST:PORT, with the certificates that vmtailor fleet certificates DIR makes"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme == "tcp":
        raise UserInputError(f"{text}: whoever reaches a plain port could run programs there", hint=hint)
    if parts.scheme != "tls" or not host or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise UserInputError(f"{text[:200]!r} is not the address of a scheduler", hint=hint)
    return Address(host, PORT if port is None else port)
