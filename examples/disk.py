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
TIME = {"E2FSPROGS_FAKE_TIME": EPOCH}


def newest(pattern: str, options: tuple[str, ...] = ()) -> str:
    """The newest package whose name fits a pattern with one `*`, by the numbers in it. `options`: of apt."""
    before, _, after = pattern.partition("*")
    expression = f"^{re.escape(before)}[0-9][^ ]*{re.escape(after)}$"
    listed = subprocess.run(
        ["apt-cache", *options, "--names-only", "search", expression], check=True, stdout=subprocess.PIPE
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
            subprocess.run([program("depmod", "kmod"), "-b", name, modules.name], check=True)
        for path in sorted(root.rglob("*"), reverse=True):
            os.utime(path, (int(EPOCH), int(EPOCH)), follow_symlinks=False)
        mke2fs = program("mke2fs", "e2fsprogs")
        made = [mke2fs, "-q", "-F", "-t", "ext4", "-L", "root", "-d", name, "-E", f"hash_seed={SEED}", "-U", UUID]
        out.unlink(missing_ok=True)
        subprocess.run([*made, str(out), size], check=True, env={**os.environ, **TIME})
        settle(out, ["/", *(f"/{path.relative_to(root)}" for path in root.rglob("*"))])


def settle(disk: Path, paths: list[str]) -> None:
    """Give the files the change time of every build: mke2fs takes that of the unpacked ones."""
    orders = "".join(f'sif "{path}" ctime @{EPOCH}\n' for path in paths if not re.search(r'["\n]', path))
    subprocess.run(
        [program("debugfs", "e2fsprogs"), "-w", "-f", "-", str(disk)], input=orders.encode(), check=True,
        env={**os.environ, **TIME}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def program(name: str, package: str) -> str:
    """A program, also where only the administrator's path has it."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"no {name}: apt-get install {package}")
    return found


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
