# SPDX-License-Identifier: Apache-2.0
"""Disks of whole systems, from the same layers as images: used by build.py for folders with a `system.toml`."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: The same in every build, so that two builds of the same packages give the same bytes.
UUID = "00000000-0000-4000-8000-000000000002"
SEED = "00000000-0000-4000-8000-000000000000"
EPOCH = os.environ.get("SOURCE_DATE_EPOCH", "1735689600")


def newest(pattern: str) -> str:
    """The newest package whose name fits a pattern with one `*`, by the numbers in it."""
    before, _, after = pattern.partition("*")
    expression = f"^{re.escape(before)}[0-9][^ ]*{re.escape(after)}$"
    listed = subprocess.run(
        ["apt-cache", "--names-only", "search", expression], check=True, stdout=subprocess.PIPE
    ).stdout.decode()
    names = [line.split()[0] for line in listed.splitlines() if not line.split()[0].endswith("-unsigned")]
    if not names:
        raise SystemExit(f"the package lists have nothing like {pattern}")
    return max(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def pack(archives: list[Path], out: Path, size: str) -> None:
    """Unpack the layers and fill the file system. Run as (fake) root, so that owners and devices are kept; nothing of
    what was unpacked is executed. Modules get their index from this host's depmod."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".root-") as name:
        root = Path(name)
        root.chmod(0o755)
        for archive in archives:
            extract = ["tar", "-xf", str(archive), "-C", name, "--numeric-owner", "--xattrs", "--xattrs-include=*"]
            subprocess.run(extract, check=True)
        for modules in (root / "usr/lib/modules").glob("*"):
            depmod = shutil.which("depmod", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
            if depmod is None:
                raise SystemExit("no depmod: apt-get install kmod")
            subprocess.run([depmod, "-b", name, modules.name], check=True)
        for path in sorted(root.rglob("*"), reverse=True):
            os.utime(path, (int(EPOCH), int(EPOCH)), follow_symlinks=False)
        mke2fs = shutil.which("mke2fs", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "mke2fs"
        made = [mke2fs, "-q", "-F", "-t", "ext4", "-L", "root", "-d", name, "-E", f"hash_seed={SEED}", "-U", UUID]
        environment = {**os.environ, "E2FSPROGS_FAKE_TIME": EPOCH}
        out.unlink(missing_ok=True)
        subprocess.run([*made, str(out), size], check=True, env=environment)


def write(out: Path, layers: list[bytes], spec: dict[str, Any], scratch: Path) -> None:
    """Write the disk `out` (raw, one ext4 file system) from layers as tar archives, lowest first."""
    archives = []
    for number, data in enumerate(layers):
        archives.append(scratch / f"layer-{number}.tar")
        archives[-1].write_bytes(data)
    argv = [sys.executable, str(Path(__file__).resolve()), str(out.absolute()), spec.get("size", "512M")]
    argv += [str(path) for path in archives]
    subprocess.run(argv if os.geteuid() == 0 else ["fakeroot", "--", *argv], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("size")
    parser.add_argument("layer", type=Path, nargs="+")
    arguments = parser.parse_args()
    pack(arguments.layer, arguments.out, arguments.size)
