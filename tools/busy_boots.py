# SPDX-License-Identifier: Apache-2.0
"""Boot a bundle's kernel in many emulated machines at once, with and without the words that `run` gives it, and count
the boots whose kernel complained or hung.

    tools/busy_boots.py BUNDLE [--boots 240] [--at-once 20]

Each machine is QEMU alone on x86-64's board microvm. It ends by itself as soon as init finds that nobody speaks with
it. Mistakes of the emulator show when interrupts come at unusual moments, so the host should be busy: machines at once
make it so.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vmtailor.base.process import require_tool
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.architecture import named

#: Seconds that the machines of one round may take.
LIMIT_S = 180.0
_BAD = re.compile(rb"Oops|BUG:|WARNING:|corruption|double fault")


def _argv(bundle: bundle_folder.BundleFolder, words: tuple[str, ...], console: Path) -> list[str]:
    emulator, told = named(bundle.bundle.architecture).emulator, (*bundle.bundle.words, *words)
    return [
        require_tool(emulator.program), "-machine", "microvm,acpi=off", "-cpu", emulator.cpu_model, "-m", "96M",
        "-accel", "tcg", "-icount", "shift=auto", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-serial", f"file:{console}", "-kernel", str(bundle.kernel), "-append", " ".join(told),
        "-drive", f"if=none,id=root,file={bundle.root.path},format=raw,read-only=on",
        "-device", "virtio-blk-device,drive=root,bus=virtio-mmio-bus.7", "-nic", "none",
    ]  # fmt: skip


def _is_bad(machine: subprocess.Popen[bytes], console: Path, end: float) -> bool:
    try:
        machine.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        machine.kill()
        machine.wait()
        return True
    return _BAD.search(console.read_bytes()) is not None


def bad_boots(bundle: bundle_folder.BundleFolder, words: tuple[str, ...], boots: int, at_once: int) -> int:
    """Return how many boots of a kernel with these further words went wrong."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix="busy-boots-") as folder:
        for first in range(0, boots, at_once):
            end = time.monotonic() + LIMIT_S
            consoles = [Path(folder) / str(number) for number in range(min(at_once, boots - first))]
            machines = [
                subprocess.Popen(_argv(bundle, words, one), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                for one in consoles
            ]
            bad += sum(_is_bad(*pair, end) for pair in zip(machines, consoles, strict=True))
    return bad


def main() -> int:
    """Count, and print. Returns 1 where a boot with the words of `run` went wrong."""
    parser = argparse.ArgumentParser(description="Count boots that go wrong on a busy host.")
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle of a container for x86-64")
    parser.add_argument("--boots", type=int, default=240, help="boots with and without the words")
    parser.add_argument("--at-once", type=int, default=20, help="machines at the same time")
    asked = parser.parse_args()
    bundle = bundle_folder.load(asked.bundle)
    words = named(bundle.bundle.architecture).emulator.run_words
    found = 0
    for told in (words, ()):
        bad = bad_boots(bundle, told, asked.boots, asked.at_once)
        found += bad if told else 0
        print(f"{' '.join(told) or 'without words'}: {bad} of {asked.boots} boots went wrong", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
