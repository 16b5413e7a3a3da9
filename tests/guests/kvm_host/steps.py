# SPDX-License-Identifier: Apache-2.0
"""Uses vmtailor on a host with KVM, as a person would, and prints a line of JSON for each use: `kvm-host {…}`.

It runs in the machine of tests/system/test_own_kvm.py, on the distribution's own Python; bundles lie beside it, and
`done`, with the names of uses that are not to be repeated."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "vmtailor"]
#: Seconds of this host's clock in which whatever is started here has long ended.
PATIENCE_S = 120.0
#: The same of benchmarks, which start a container several times.
BENCH_S = 600.0
#: Seconds within which what ends others when it ends has ended itself.
GUARD_S = 5.0
TEMPORARY = Path("/tmp")


def others() -> list[str]:
    """Return the command lines of all processes but the first and this one."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in (1, os.getpid()):
            with contextlib.suppress(OSError):
                line = (folder / "cmdline").read_text().replace("\0", " ").strip()
                found += [line] if line else []  # the kernel's own have none
    return found


class Started:
    """vmtailor under way, in a process group of its own. Its output goes to files."""

    def __init__(self, *words: str, program: Sequence[str] = PROGRAM) -> None:
        self.began = time.monotonic()
        self.out, self.err = Path("out"), Path("err")
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*program, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    def end(self, patience_s: float = PATIENCE_S, **more: Any) -> dict[str, Any]:
        """Wait for its end; return how it ended, and what it left."""
        try:
            code: int | None = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        end = time.monotonic() + GUARD_S
        while others() and time.monotonic() < end:
            time.sleep(0.1)
        return {
            "code": code,
            "seconds": round(time.monotonic() - self.began, 2),
            "stdout": self.out.read_text(errors="replace"),
            "stderr": self.err.read_text(errors="replace"),
            "left": others(),
            "files": sorted(path.name for path in TEMPORARY.iterdir()),
            **more,
        }


def tell(name: str, found: dict[str, Any]) -> None:
    print("kvm-host", json.dumps({"use": name, **found}), flush=True)


def served() -> dict[str, Any]:
    """Ask a server through its published port, then press Ctrl-C."""
    running = Started("run", "-p", "8080:80", "/mnt/bundles/lighttpd")
    answer = ""
    while not answer and running.process.poll() is None and time.monotonic() - running.began < PATIENCE_S:
        try:
            with urllib.request.urlopen("http://127.0.0.1:8080/", timeout=10.0) as page:
                answer = page.read().decode()
        except OSError:
            time.sleep(0.1)
    at_work = others()
    os.killpg(running.process.pid, signal.SIGINT)
    return running.end(answer=answer, at_work=at_work)


def exported() -> dict[str, Any]:
    """Export a bundle, and start what was written by its own script, which is to choose KVM."""
    done = Started("export", "/mnt/bundles/hello", "--to", "qemu", "-o", "exported").end()
    if done["code"] != 0:
        return done
    running = Started(program=["sh", "-x", "exported/start"])
    return running.end()


#: Uses that run to their end: name → words.
USES = {
    "doctor": "doctor --run --json",
    "hello": "run --rm /mnt/bundles/hello",
    "observed": "run --observed seen.json /mnt/bundles/hello",
    "powers off": "run --privileged --pid host /mnt/bundles/talker poweroff",
    "two processors": "boot --kernel /mnt/kernel --machine microvm --append console=ttyS0 --memory 256M --cpus 2 "
    "--accelerator kvm --repeat 1 --ready log:Brought.up.1.node,.2.CPUs --out two --json",
    "on 1": "run --rm --cpus 1 /mnt/bundles/processors",
    "on 2": "run --rm --cpus 2 /mnt/bundles/processors",
    "booted": "boot /mnt/bundles/lighttpd --repeat 2 --accelerator kvm --out booted --json",
    "verified": "verify /mnt/bundles/lighttpd --clock wall --json",
}
#: As `make bench-kvm` does, with the fewest rows and tests; none is counted, which no KVM is needed for.
BENCHED = (
    "bench startup --require-kvm --quick --on native,vm:/mnt/bundles/bench --only report --variant warm --repeat 2 "
    "--image oci:/mnt/images/bench -o bench.json --json"
)


def ran(words: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    return Started(*words.split()).end(patience_s)


def main() -> None:
    """Take one use after the other."""
    done = (Path(__file__).parent / "done").read_text().splitlines()
    os.chdir("/root")
    uses: dict[str, Callable[[], dict[str, Any]]] = {name: partial(ran, words) for name, words in USES.items()}
    uses |= {"exported": exported, "served": served, "benched": partial(ran, BENCHED, BENCH_S)}
    for name, use in uses.items():
        if name not in done:
            tell(name, use())


if __name__ == "__main__":
    main()
