# SPDX-License-Identifier: Apache-2.0
"""Registries of a test's own: a real one on loopback, and a folder in which the fake skopeo looks."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtailor.base.process import require_tool


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Yield its host and port. Its files are in `registry` below the test's folder."""
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
            }
        )
    )
    process = subprocess.Popen([program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
