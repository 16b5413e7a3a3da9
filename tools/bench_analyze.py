# SPDX-License-Identifier: Apache-2.0
"""`make bench-analyze`: times `vmtailor analyze` on logs of 100 MB of every kind, and fails when one takes 8 s of the
processor or 400 MB. (On a machine that does nothing else that is the time on the clock, too.)

The hardest is one boot with 700,000 initcalls; the others are ordinary messages in all the shapes that logs come in.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

SECONDS = 8.0
MEMORY_MB = 400
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


def messages(form: bytes = b"[%(s)5d.%(f)06d] %(text)s\n") -> Iterator[bytes]:
    """Ordinary messages, a stamp of the kernel's before each, in any shape."""
    now, n = 200_000, 0
    while True:
        n += 1
        now += 37
        text = b"virtio_blk virtio%d: [vda] %d 512-byte logical blocks (2.15 GB/2.00 GiB)" % (n % 40, n)
        whole, rest = now // 10**6, now % 10**6
        yield form % {b"s": whole, b"f": rest, b"us": now, b"m": whole // 60 % 60, b"t": whole % 60, b"text": text}


#: Shapes of the same messages: name, and a line.
FORMS: dict[str, bytes] = {
    "messages": b"[%(s)5d.%(f)06d] %(text)s\n",
    "level and caller": b"<6>[%(s)5d.%(f)06d][    T1] %(text)s\n",
    "colour, CRLF": b"\x1b[32m[%(s)5d.%(f)06d]\x1b[0m %(text)s\r\n",
    "dmesg -d": b"[%(s)5d.%(f)06d <    0.000037>] %(text)s\n",
    "dmesg -x": b"kern  :info  : [%(s)5d.%(f)06d] %(text)s\n",
    "dmesg -T": b"[Fri Mar  6 13:%(m)02d:%(t)02d 2026] %(text)s\n",
    "dmesg iso": b"2026-03-06T13:%(m)02d:%(t)02d,%(f)06d+01:00 %(text)s\n",
    "kmsg": b"6,339,%(us)d,-;%(text)s\n",
    "journal short": b"Mar 06 13:%(m)02d:%(t)02d debian kernel: %(text)s\n",
    "journal short-monotonic": b"[%(s)5d.%(f)06d] debian kernel: %(text)s\n",
    "journal short-iso-precise": b"2026-03-06T13:%(m)02d:%(t)02d.%(f)06d+01:00 debian systemd[1]: %(text)s\n",
    "journal JSON": b'{"_SOURCE_MONOTONIC_TIMESTAMP":"%(us)d","_TRANSPORT":"kernel","MESSAGE":"%(text)s"}\n',
    "journal export": b"__CURSOR=s\n__MONOTONIC_TIMESTAMP=%(us)d\n_TRANSPORT=kernel\nMESSAGE=%(text)s\n\n",
    "syslog": b"<6>Mar  6 13:%(m)02d:%(t)02d debian kernel: [%(s)5d.%(f)06d] %(text)s\n",
    "syslog RFC 5424": b"<6>1 2026-03-06T13:%(m)02d:%(t)02d.%(f)06dZ debian kernel - - - [%(s)5d.%(f)06d] %(text)s\n",
    "syslog BusyBox": b"Mar  6 13:%(m)02d:%(t)02d board kern.info kernel: [%(s)5d.%(f)06d] %(text)s\n",
    "grabserial": b"[%(s)d.%(f)06d 0.000037] [%(s)5d.%(f)06d] %(text)s\n",
    "mail": b"> [%(s)5d.%(f)06d] %(text)s\n",
    "no stamps": b"%(text)s\n",
}
#: Kinds that begin with their own first line, not with that of a plain log.
OWN_HEADS = ("journal JSON", "journal export")


def journal() -> Iterator[bytes]:
    """The same initcalls as a journal writes them."""
    return initcalls(b"2026-03-06T13:18:05.123456+01:00 debian kernel: ")


SHAPES: dict[str, Callable[[], Iterator[bytes]]] = {
    "initcalls": initcalls,
    "initcalls in a journal": journal,
    **{name: partial(messages, form) for name, form in FORMS.items()},
}


def write(path: Path, lines: Iterator[bytes], size: int, head: bytes = HEAD) -> None:
    """Fill a file with lines up to a size."""
    with path.open("wb") as file:
        file.write(head)
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
            head = b"" if name in OWN_HEADS else HEAD
            write(path, SHAPES[name](), wanted.megabytes * 1_000_000, head)
            seconds, cpu, memory = measure(path)
            path.unlink()
            fits = cpu * 100 < SECONDS * wanted.megabytes and memory < MEMORY_MB
            good = good and fits
            print(
                f"{name:26} {wanted.megabytes} MB: {seconds:5.2f} s ({cpu:.2f} s of the processor), {memory} MB"
                f"{'' if fits else '  too much'}",
                flush=True,
            )
    if not good:
        raise SystemExit(f"more than {SECONDS:.0f} s of the processor for 100 MB, or {MEMORY_MB} MB")


if __name__ == "__main__":
    main()
