# SPDX-License-Identifier: Apache-2.0
"""Registries of a test's own: a real one on loopback, and a folder in which the fake skopeo looks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from vmtailor.base.process import require_tool

#: Name and password of a private registry, and the hash that it knows.
USER, PASSWORD = "someone", "made-up-secret"
_HASH = "$2b$04$abcdefghijklmnopqrstuuCKYMqOcrk.fjtvSDC6Ws/I4Cue2mhx2"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Yield its host and port. Its files are in `registry` below the test's folder."""
    with _served(tmp_path, {}) as name:
        yield name


@pytest.fixture
def private_registry(tmp_path: Path) -> Iterator[str]:
    """Yield the host and port of a registry that lets nobody in but USER with PASSWORD."""
    known = tmp_path / "known"
    known.write_text(f"{USER}:{_HASH}\n")
    with _served(tmp_path, {"auth": {"htpasswd": {"realm": "a test", "path": str(known)}}}) as name:
        yield name


def requests(folder: Path) -> list[str]:
    """Return what the registry of a test's folder was asked, such as `GET /v2/NAME/manifests/TAG`."""
    return re.findall(r'"([A-Z]+ /v2/\S*) HTTP', (folder / "requests").read_text())


@contextlib.contextmanager
def _served(tmp_path: Path, more: Mapping[str, Any]) -> Iterator[str]:
    program = require_tool("docker-registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "registry.json"
    config.write_text(
        json.dumps(
            {
                "version": 0.1,
                "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
                "http": {"addr": f"127.0.0.1:{port}"},
                "log": {"level": "error"},
                **more,
            }
        )
    )
    with (tmp_path / "requests").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "the registry does not start"
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def folder_registry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the fake skopeo in the place of the real one. Returns the folder of its registry, made by its first call."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "skopeo").symlink_to(Path(__file__).with_name("skopeo"))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_REGISTRY", str(folder / "registry"))
    monkeypatch.delenv("FAKE_SKOPEO", raising=False)
    return folder / "registry"


def has_image(registry: Path, *tags: str) -> None:
    """Let the fake skopeo find an image under these tags."""
    kind = "application/vnd.oci.image.config.v1+json"
    manifest = json.dumps({"schemaVersion": 2, "config": {"mediaType": kind}, "layers": []}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    for name in ("blobs", "tags"):
        (registry / name).mkdir(parents=True, exist_ok=True)
    (registry / "blobs" / digest).write_bytes(manifest)
    for tag in tags:
        (registry / "tags" / tag).write_text(digest)
