# SPDX-License-Identifier: Apache-2.0
"""`make bench-analyze`: times `vmtailor analyze` on logs of 100 MB, and fails when one takes 10 s or 500 MB.

Three shapes: one boot with 700,000 initcalls (the hardest), a long log of ordinary messages, and a serial capture
with host times.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SECONDS = 10.0
MEMORY_MB = 500
HEAD = b"[    0.000000] Linux version 6.12.1 (gcc) #1 SMP\n[    0.100000] clocksource: Switched to clocksource tsc\n"


def initcalls(prefix: bytes = b"") -> Iterator[bytes]:
    """Pairs of lines of initcall_debug, each with a probe now and then."""
    now, n = 200_000, 0
    while True:
        n += 1
        took = 10 + n * 7919 % 900
        yield b"%s[%5d.%06d] calling  driver_%d_init+0x0/0x1f0 @ 1\n" % (prefix, now // 10**6, now % 10**6, n)
        if n % 8 == 0:
            at = now + took - 2
            yield b"%s[%5d.%06d] probe of device%d returned 0 after %d usecs\n" % (
                prefix,
                at // 10**6,
                at % 10**6,
                n,
                took // 2,
            )
        now += took
        yield b"%s[%5d.%06d] initcall driver_%d_init+0x0/0x1f0 returned 0 after %d usecs\n" % (
            prefix, now // 10**6, now % 10**6, n, took - 3,
        )  # fmt: skip
        now += 15


def messages() -> Iterator[bytes]:
    """Ordinary messages."""
    now, n = 200_000, 0
    while True:
        n += 1
        now += 37
        yield b"[%5d.%06d] virtio_blk virtio%d: [vda] %d 512-byte logical blocks (2.15 GB/2.00 GiB)\n" % (
            now // 10**6, now % 10**6, n % 40, n,
        )  # fmt: skip


def journal() -> Iterator[bytes]:
    """The same initcalls as a journal writes them."""
    return initcalls(b"2026-03-06T13:18:05.123456+01:00 debian kernel: ")


SHAPES: dict[str, Callable[[], Iterator[bytes]]] = {"initcalls": initcalls, "messages": messages, "journal": journal}


def write(path: Path, lines: Iterator[bytes], size: int) -> None:
    """Fill a file with lines up to a size."""
    with path.open("wb") as file:
        file.write(HEAD)
        while file.tell() < size:
            file.writelines(next(lines) for _ in range(10_000))


def measure(path: Path) -> tuple[float, float, int]:
    """Seconds, seconds of the processor, peak megabytes of `analyze --json` in a process of its own, to nowhere."""
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.execv(sys.executable, [sys.executable, "-m", "vmtailor", "analyze", "--json", str(path)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"analyze failed with status {status}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    wanted = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted.shape or SHAPES:
            path = Path(folder) / f"{name}.log"
            write(path, SHAPES[name](), wanted.megabytes * 1_000_000)
            seconds, cpu, memory = measure(path)
            path.unlink()
            fits = seconds < SECONDS and memory < MEMORY_MB
            good = good and fits
            print(
                f"{name:10} {wanted.megabytes} MB: {seconds:5.2f} s ({cpu:.2f} s of the processor), {memory} MB"
                f"{'' if fits else '  too much'}",
                flush=True,
            )
    if not good:
        raise SystemExit(f"more than {SECONDS:.0f} s or {MEMORY_MB} MB")


if __name__ == "__main__":
    main()
