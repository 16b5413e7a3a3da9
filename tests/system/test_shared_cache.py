# SPDX-License-Identifier: Apache-2.0
"""A fit with a cache that lies elsewhere, and with one that has nothing but finds all in a remote cache: no machine
boots, and nothing is compiled."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from tests.fakes.program import run_program
from tests.system.conftest import Fitted

from vmtailor.base.cache import remote_cache
from vmtailor.base.cache.store import cache_root
from vmtailor.base.files import records
from vmtailor.drivers.host.fingerprint import fingerprint

#: An option that the key of a fit has, and no other key: all stages are asked for, and each finds its result.
_OTHER_FIT = ("--budget", "7")


def _digests(bundle: Path) -> dict[str, str]:
    names = ("vmlinux", "config", "System.map", "root.erofs", "plan.json", "init")
    return {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in names}


def test_nothing_is_made_again(lighttpd: Fitted, no_builds: dict[str, str], tmp_path: Path) -> None:
    """First at another place, which is the user's own cache by another name; then in a cache that has only what stays
    on a host, beside a remote one with what the first run used."""
    moved, fresh, shared = tmp_path / "moved", tmp_path / "fresh" / "vmtailor", tmp_path / "shared"
    for folder in (moved, fresh, shared):
        folder.mkdir(parents=True)
    (moved / "vmtailor").symlink_to(cache_root())
    began_s = time.time()
    first = run_program(
        tmp_path, *lighttpd.arguments, *_OTHER_FIT, "-o", tmp_path / "first",
        env={**no_builds, "XDG_CACHE_HOME": str(moved)}, timeout_s=300,
    )  # fmt: skip
    assert first.code == 0, first.stderr
    assert _digests(tmp_path / "first") == _digests(lighttpd.bundle)

    found = fingerprint()
    cache = remote_cache.RemoteCache(str(shared), lambda: (found.digest, records.to_bytes(found)))
    sent = set()
    for kind in sorted(cache_root().iterdir()):
        if kind.name not in remote_cache.travelling():
            if kind.name not in ("locks", "users", "scratch"):
                (fresh / kind.name).symlink_to(kind)
            continue
        for entry in kind.glob("[0-9a-f]*"):
            if kind.name != "fit" and entry.stat().st_mtime >= began_s - 1:
                cache.publish(kind.name, entry.name, entry)
                sent.add(f"{kind.name}/{entry.name}")
    assert {"kernel", "trace", "counted", "root", "verification"} <= {one.partition("/")[0] for one in sent}

    second = run_program(
        tmp_path, *lighttpd.arguments, *_OTHER_FIT, "-o", tmp_path / "second", "--remote-cache", str(shared),
        env={**no_builds, "XDG_CACHE_HOME": str(fresh.parent)}, timeout_s=300,
    )  # fmt: skip
    assert second.code == 0, second.stderr
    assert "remote cache" not in second.stderr
    assert _digests(tmp_path / "second") == _digests(lighttpd.bundle)
    kinds = [fresh / kind for kind in remote_cache.travelling() if (fresh / kind).is_dir()]
    brought = {f"{kind.name}/{entry.name}" for kind in kinds for entry in kind.iterdir()}
    assert {"kernel", "trace", "counted", "root", "verification"} <= {one.partition("/")[0] for one in brought}
    made = brought - sent
    assert {one.partition("/")[0] for one in made} == {"fit"}
    for one in made:
        assert not [file for file in (fresh / one).rglob("*.json") if str(fresh).encode() in file.read_bytes()]
