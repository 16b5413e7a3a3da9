# SPDX-License-Identifier: Apache-2.0
"""Run the scripts of tests/data/podman/cases.toml by podman, and write what they print to
tests/data/podman/expected.json: what `vmtailor run` and its verbs are compared with.

    tools/podman_cases.py [--check] [CASE]...

--check writes nothing: it names the cases whose output is another one than is recorded. podman runs as root in a root
directory of its own, made of packages (tests/guests/podman), and in a mount namespace that ends with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data/podman"
CASES, EXPECTED = DATA / "cases.toml", DATA / "expected.json"
GUESTS = ROOT / "tests/guests"
#: Seconds that one script may take.
LIMIT_S = 240
#: Tells the program that it has a mount namespace of its own, and its folder.
_INSIDE = "VMTAILOR_PODMAN_CASES"
#: Limits of open files and processes are no greater than this host's: raising them takes a right that root may lack.
#: Capabilities are docker's: podman has three fewer.
_CONTAINERS = """[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
stop_timeout = 3
[containers]
netns = "none"
cgroups = "disabled"
log_driver = "k8s-file"
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
default_capabilities = [
  "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
  "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
]
[network]
network_backend = "cni"
"""
_STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "/var/lib/containers/storage"\nrunroot = "/run/containers/storage"\n'


@dataclass(frozen=True)
class Case:
    """A script, and what is known of it. `quick`: it is among those that every check runs. `needs`: `folders` where the
    machine's kernel must be able to mount some. `holds`: options that it shows to be the same. `prints`, `reason`: what
    vmtailor prints where it differs on purpose, and why."""

    name: str
    script: str
    quick: bool = False
    needs: str = ""
    holds: tuple[str, ...] = ()
    prints: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Printed:
    """Standard output and error of a script, and its exit status."""

    text: str
    errors: str
    status: int


def cases() -> tuple[Case, ...]:
    """Return every case in the file's order."""
    rows = tomllib.loads(CASES.read_text())["case"]
    return tuple(Case(**{**row, "holds": tuple(row.get("holds", ()))}) for row in rows)


def recorded() -> dict[str, str]:
    """Return what podman printed: case → standard output."""
    found: dict[str, str] = json.loads(EXPECTED.read_text())["printed"]
    return found


def run_script(case: Case, engine: Sequence[str], image: str, folder: Path, env: Mapping[str, str]) -> Printed:
    """Run a case's script in an empty folder below `folder`, with `engine` for the words `engine`, and $IMAGE."""
    work = folder / case.name
    work.mkdir(parents=True)
    programs = folder / f"{case.name}.programs"
    programs.mkdir()
    program = programs / "engine"
    words = " ".join(f"'{word}'" for word in engine)
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ, **env, "IMAGE": image, "PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C", "TZ": "UTC",
    }  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", case.script],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Printed(done.stdout.decode("latin-1"), done.stderr.decode("utf-8", "replace"), done.returncode)


def _layout(name: str, folder: Path) -> Path:
    layout = folder / name
    subprocess.run([sys.executable, str(ROOT / "examples/build.py"), str(GUESTS / name), str(layout)], check=True)
    return layout


def _unpack(layout: Path, root: Path) -> None:
    """Write the files of an image that we have built."""
    index = json.loads((layout / "index.json").read_text())
    blob = layout / "blobs/sha256"
    manifest = json.loads((blob / index["manifests"][0]["digest"].partition(":")[2]).read_text())
    for layer in manifest["layers"]:
        with tarfile.open(blob / layer["digest"].partition(":")[2]) as archive:
            archive.extractall(root, filter="fully_trusted")


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *(str(word) for word in words)], check=True)


def _prepare(folder: Path) -> Path:
    """Return the root directory with podman in it, and its mounts. What is mounted ends with this namespace."""
    root = folder / "root"
    _unpack(_layout("podman", folder), root)
    for name in ("proc", "sys", "dev", "run", "srv", "tmp", "var/lib/containers"):
        (root / name).mkdir(parents=True, exist_ok=True)
    # What is below a root must be a mount of its own, or podman cannot change it.
    _mount("--bind", root, root)
    _mount("-t", "proc", "proc", root / "proc")
    _mount("-t", "sysfs", "sysfs", root / "sys")
    _mount("-t", "cgroup2", "cgroup2", root / "sys/fs/cgroup")
    _mount("--rbind", "/dev", root / "dev")
    for name in ("run", "tmp", "var/lib/containers"):
        _mount("-t", "tmpfs", "tmpfs", root / name)
    shared = folder / "shared"
    shared.mkdir()
    (root / str(shared)[1:]).mkdir(parents=True)
    _mount("--bind", shared, root / str(shared)[1:])
    settings = root / "etc/containers"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "containers.conf").write_text(_CONTAINERS)
    (settings / "storage.conf").write_text(_STORAGE)
    (settings / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')
    (root / "etc/hosts").write_text("127.0.0.1\tlocalhost\n")
    return root


@contextlib.contextmanager
def _podman(root: Path) -> Iterator[tuple[str, ...]]:
    """Yield the words before podman's own: a folder to be in comes next. Its root directory is that of a mount
    namespace, and not of a chroot: who joins a container's namespace there would come out in this host's root."""
    pivot = "mkdir -p old && pivot_root . old && cd / && umount -l /old && echo && exec sleep infinity"
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'cd "$0" && {pivot}', str(root)],
        stdout=subprocess.PIPE,
    )
    try:
        if holder.stdout is None or not holder.stdout.readline():
            raise SystemExit("no root directory for podman could be made")
        enter = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--", "/usr/bin/sh", "-c")
        yield (*enter, 'cd "$0" && exec podman "$@"')
    finally:
        holder.kill()
        holder.wait()


def _by_podman(chosen: Sequence[Case], folder: Path) -> tuple[str, dict[str, str]]:
    """Return podman's version, and what each case prints."""
    work, root = folder / "shared", _prepare(folder)
    # Its path becomes the image's name: a temporary folder's would seldom be one.
    _layout("box", root / "srv")
    with _podman(root) as podman:

        def said(*words: str) -> str:
            return subprocess.run([*podman, "/", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

        image, printed = said("pull", "--quiet", "oci:/srv/box"), {}
        for case in chosen:
            done = run_script(case, (*podman, str(work / case.name)), image, work, {})
            print(f"{case.name}: {done.status}\n{done.errors}", file=sys.stderr, end="")
            printed[case.name] = done.text
            # On a busy host one that was to go by itself may still be there: the next case is not to see it.
            said("rm", "--all", "--force", "--time", "0")
        return said("--version"), printed


def _inside() -> int:
    """Go on in a mount namespace, where nothing of what is mounted is seen outside. Returns that program's status."""
    if os.geteuid() != 0:
        print("podman runs containers as root here: start this as root", file=sys.stderr)
        return 3
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
    with tempfile.TemporaryDirectory(prefix="podman-cases-") as folder:
        return subprocess.run(command, env={**os.environ, _INSIDE: folder}, check=False).returncode


def main() -> int:
    """Record, or compare. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Record what podman prints for the cases.")
    parser.add_argument("--check", action="store_true", help="compare with what is recorded, and write nothing")
    parser.add_argument("only", nargs="*", metavar="CASE", help="these cases alone")
    arguments = parser.parse_args()
    if _INSIDE not in os.environ:
        return _inside()
    chosen = [case for case in cases() if not arguments.only or case.name in arguments.only]
    version, printed = _by_podman(chosen, Path(os.environ[_INSIDE]))
    if arguments.check:
        before = recorded()
        other = [name for name, text in printed.items() if before.get(name) != text]
        for name in other:
            print(f"{name}: recorded {before.get(name)!r}\n  podman now {printed[name]!r}", file=sys.stderr)
        return 1 if other else 0
    _write(version, {**(recorded() if arguments.only and EXPECTED.exists() else {}), **printed})
    return 0


def _write(version: str, printed: Mapping[str, str]) -> None:
    names = {case.name for case in cases()}
    document: dict[str, Any] = {
        "command": "tools/podman_cases.py",
        "engine": version,
        "printed": {name: text for name, text in sorted(printed.items()) if name in names},
    }
    EXPECTED.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
