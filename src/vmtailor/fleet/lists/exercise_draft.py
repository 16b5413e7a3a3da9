# SPDX-License-Identifier: Apache-2.0
"""Exercises drafted from what other programs say of a container, as the text of an exercise file
(docs/reference/exercise.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import tomli_w

from vmtailor.base.text import shell_words
from vmtailor.stages.exercise_file import PORTS_MAX, READY_TIMEOUT_S, STEPS_MAX

#: The longest that an exercise file lets anything take.
LONGEST_S = 86_400.0
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
_GETTERS = frozenset({"curl", "wget"})


@dataclass
class ExerciseDraft:
    """An exercise that is being put together: the tables of its file."""

    ready: dict[str, Any] = field(default_factory=dict)
    load: list[dict[str, Any]] = field(default_factory=list)
    stop: dict[str, Any] = field(default_factory=dict)
    expect: dict[str, Any] = field(default_factory=dict)

    def add_load(self, step: dict[str, Any]) -> None:
        """Add a step to the load, once."""
        if step not in self.load and len(self.load) < STEPS_MAX:
            self.load.append(step)

    def wait_for_ports(self, ports: Sequence[int]) -> None:
        """Count the container as ready once its first port accepts a connection; the load connects to the others."""
        first, *others = ports[:PORTS_MAX]
        self.ready = tcp(first)
        for port in others:
            self.add_load(tcp(port))

    def patient(self, seconds: float) -> None:
        """Wait at least so long for the container to be ready."""
        if self.ready and seconds > READY_TIMEOUT_S:
            self.ready["timeout_s"] = min(float(seconds), LONGEST_S)

    def text(self) -> str:
        """Return the text of the file; empty where nothing was said."""
        tables = {"ready": self.ready, "load": self.load, "expect": self.expect, "stop": self.stop}
        said = {name: table for name, table in tables.items() if table}
        return tomli_w.dumps(said) if said else ""


def tcp(port: int) -> dict[str, Any]:
    """Return a step that connects to a port."""
    return {"kind": "tcp", "port": port}


def http(port: int, path: str) -> dict[str, Any]:
    """Return a step that asks for a page."""
    return {"kind": "http", "port": port, "path": path}


def command(argv: Sequence[str]) -> dict[str, Any]:
    """Return a step that runs a command in the guest."""
    return {"kind": "command", "argv": list(argv)}


def is_path(path: str) -> bool:
    """Return whether a text is the path of a request that an exercise can make."""
    return path.startswith("/") and path.isascii() and all(" " < c < "\x7f" for c in path)


def asked_page(argv: Sequence[str]) -> dict[str, Any] | None:
    """Return the request that a check by curl or wget makes of the container itself, as a step; None for any other
    command. `argv`: its words, or a shell's with a script behind `-c`."""
    words = list(argv)
    if len(words) == 3 and words[1] == "-c" and words[0].rpartition("/")[2] in ("sh", "bash", "ash"):
        words = shell_words(words[2])
    if not words or words[0].rpartition("/")[2] not in _GETTERS:
        return None
    plain = [word for word in words[1:] if "://" in word]
    if len(plain) != 1 or any(word in ("-X", "--request", "-d", "--data", "--post-data") for word in words):
        return None
    try:
        url = urlsplit(plain[0])
        port = url.port or 80
    except ValueError:
        return None
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    if url.scheme != "http" or url.hostname not in _LOCAL or not is_path(path):
        return None
    return http(port, path)
