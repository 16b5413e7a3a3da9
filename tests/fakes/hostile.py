# SPDX-License-Identifier: Apache-2.0
"""Images and archives that mean harm, and the command line in this process, stopped when it hangs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.tars import config_of, entry, file, tar_of

#: A layer with the entry point of CONFIG.
GOOD = tar_of(file("prog", b"\x7fELF" + bytes(60), mode=0o755))
CONFIG: dict[str, Any] = {"Entrypoint": ["/prog"], "Env": ["PATH=/"]}
VND = "application/vnd.oci.image"
#: What follows an image that was accepted: the fit ends there, before anything is downloaded or built.
ENOUGH = ("--source", "/nowhere", "--baseline-config", "/nowhere/config")
ACCEPTED = "/nowhere/config does not exist"


def dumped(document: Any) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


@dataclass
class Parts:
    """An OCI layout before it is written. Documents may be bytes, which are written as they are."""

    blobs: Sequence[bytes] = (GOOD,)
    tars: Sequence[bytes] | None = None  # the content of `blobs`, where they are compressed
    config: Any = None
    manifest: Callable[[dict[str, Any]], Any] = lambda manifest: manifest
    index: Callable[[dict[str, Any]], Any] = lambda index: index

    def write(self, folder: Path) -> Path:
        places = folder / "blobs" / "sha256"
        places.mkdir(parents=True)

        def put(data: bytes) -> dict[str, Any]:
            name = hashlib.sha256(data).hexdigest()
            (places / name).write_bytes(data)
            return {"digest": f"sha256:{name}", "size": len(data)}

        inner = self.config if isinstance(self.config, Mapping) else {}
        config = (
            self.config if isinstance(self.config, bytes) else config_of(self.tars or self.blobs, {**CONFIG, **inner})
        )
        described = {"mediaType": f"{VND}.config.v1+json", **put(dumped(config))}
        layers = [{"mediaType": f"{VND}.layer.v1.tar", **put(blob)} for blob in self.blobs]
        manifest = {
            "schemaVersion": 2, "mediaType": f"{VND}.manifest.v1+json", "config": described, "layers": layers,
        }  # fmt: skip
        top = {"mediaType": f"{VND}.manifest.v1+json", **put(dumped(self.manifest(manifest)))}
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (folder / "index.json").write_bytes(dumped(self.index({"schemaVersion": 2, "manifests": [top]})))
        return folder


def docker_archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], layer: bytes = GOOD, **more: Any) -> Path:
    """An archive as `docker save` writes it; `members` come first, `more` changes its manifest."""
    config = dumped(config_of([layer], CONFIG))
    manifest = [{"Config": "config.json", "RepoTags": ["a:b"], "Layers": ["layer.tar"], **more}]
    path.write_bytes(
        tar_of(*members, file("manifest.json", dumped(manifest)), file("config.json", config), file("layer.tar", layer))
    )
    return path


def tar_of_folder(folder: Path, out: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """A layout's files as an archive, `members` after them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    out.write_bytes(tar_of(*(file(str(path.relative_to(folder)), path.read_bytes()) for path in files), *members))
    return out


def pax_number(name: str, **headers: str) -> bytes:
    """A layer with one entry whose extended header says such things."""
    return tar_of((entry(name, pax_headers=headers), b""), file("prog", b"\x7fELF", mode=0o755))


class Hung(BaseException):
    """The program did not end in time."""


@dataclass(frozen=True)
class Said:
    code: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """What is in the block takes no longer, or is Hung."""

    def ring(_number: int, _frame: object) -> None:
        raise Hung(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def vmtailor(
    arguments: Sequence[str | Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    stdin: bytes | Path | None = b"",
    seconds: int = 20,
) -> Said:
    """The program as a user starts it, in this process: some milliseconds instead of a second. `stdin`: bytes, a file,
    or None for a closed one."""
    from vmtailor.cli.main import main

    with contextlib.ExitStack() as stack:
        source: Any = None
        if stdin is not None:
            source = io.TextIOWrapper(io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin.open("rb"))
            stack.callback(source.close)
        monkeypatch.setattr(sys, "argv", ["vmtailor", *(str(part) for part in arguments)])
        monkeypatch.setattr(sys, "stdin", source)
        terminate = signal.getsignal(signal.SIGTERM)
        stack.callback(signal.signal, signal.SIGTERM, terminate)
        with deadline(seconds), pytest.raises(SystemExit) as ended:
            main()
    said = capsys.readouterr()
    return Said(int(ended.value.code or 0), said.out, said.err)
