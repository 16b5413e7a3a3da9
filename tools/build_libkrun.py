# SPDX-License-Identifier: Apache-2.0
"""Build libkrun from Rust's registry, or find what was built before, and print its path.

    tools/build_libkrun.py [--out FOLDER]

benchmarks/krun/Cargo.toml names the version and its features, Cargo.lock all that it is made of. The library is kept in
the cache by these files and by the compiler's version. `--out`: a folder that gets libkrun.so.VERSION and the name by
which programs load it, libkrun.so.1. libkrunfw, its own kernel, is not needed where a machine has a kernel."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import HostError, VmtailorError

SOURCE = Path(__file__).resolve().parent.parent / "benchmarks" / "krun"
NAMES = ("Cargo.toml", "Cargo.lock", "lib.rs")
#: The name by which programs load it, and the folder of a distribution's libraries that it is looked for in.
SONAME = "libkrun.so.1"
#: The least version of Rust that understands all of what it is made of, and the packages that have it in Debian 12.
LEAST, PACKAGES = (1, 85), "rustc-web cargo-web"
#: Seconds that cargo may take; the descriptor on which all of its messages come.
_WAIT_S, _ERRORS = 5400.0, 2
_VERSION = re.compile(r"\w+ (\d+)\.(\d+)\.\d+")


def version() -> str:
    """Return the version of libkrun that is built."""
    wanted = tomllib.loads((SOURCE / "Cargo.toml").read_text())["dependencies"]["libkrun"]["version"]
    return str(wanted).removeprefix("=")


def compiler() -> str:
    """Return what rustc says of its version. Raises HostError where it or cargo is missing, or too old."""
    said = ""
    for program in ("cargo", "rustc"):
        if shutil.which(program) is None:
            raise HostError(f"the program '{program}' is not installed", hint=f"apt-get install {PACKAGES}")
        said = subprocess.run([program, "--version", "-v"], check=True, stdout=subprocess.PIPE, text=True).stdout
        found = _VERSION.match(said)
        if found is None or (int(found[1]), int(found[2])) < LEAST:
            least = ".".join(map(str, LEAST))
            raise HostError(
                f"libkrun needs {program} {least} or newer, and this one is: {said.splitlines()[0][:80]}",
                hint=f"apt-get install {PACKAGES}",
            )
    return said


def library(store: Store | None = None) -> Path:
    """Return the library in the cache, named by its version; it is built where it is not there. Raises HostError where
    it cannot be built, with cargo's own words on standard error."""
    key = digest("libkrun", compiler(), *(SOURCE / name for name in NAMES))
    return (store or Store()).get("libkrun", key, _fill) / f"libkrun.so.{version()}"


def _fill(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        for name in NAMES:
            shutil.copyfile(SOURCE / name, Path(place, name))
        target = Path(place, "target")
        argv = ["cargo", "build", "--release", "--locked", "--package", "libkrun", "--target-dir", str(target)]
        # No path of this host is in the library.
        flags = f"--remap-path-prefix={place}=. --remap-path-prefix={Path.home()}=~"
        environment = {**os.environ, "RUSTFLAGS": flags}
        try:
            subprocess.run(argv, cwd=place, check=True, timeout=_WAIT_S, env=environment, stdout=_ERRORS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise HostError(
                "cargo could not build libkrun (see above)", hint="it fetches from Rust's registry"
            ) from error
        # Of a package that others depend on, cargo may leave the library where its parts are.
        built = (target / "release" / "libkrun.so", *target.glob("release/deps/libkrun*.so"))
        there = next((path for path in built if path.is_file()), None)
        if there is None:
            raise HostError("cargo built libkrun, and left no library", hint="cargo's messages above say more")
        shutil.copyfile(there, folder / f"libkrun.so.{version()}")


def main(arguments: list[str]) -> int:
    """Build, and print where the library is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="copy it there, with the name that programs load")
    out = parser.parse_args(arguments).out
    try:
        found = library()
    except VmtailorError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return 1
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, out / found.name)
        (out / SONAME).unlink(missing_ok=True)
        (out / SONAME).symlink_to(found.name)
        found = out / found.name
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
