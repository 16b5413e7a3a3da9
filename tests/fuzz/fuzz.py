# SPDX-License-Identifier: Apache-2.0

"""Mutates real and made-up inputs of every boot-log parser. `make fuzz` runs a million; a failure is kept as a file
and printed.

What must hold for any bytes: no exception but the user's error, no control character in what is printed, JSON that
reads back.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.seeds import DICTIONARY, SEEDS, tar_of

from vmtailor.analysis.bootlog import archive, bootchart
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.formats import FORMATS, Format, read_chunks
from vmtailor.analysis.bootlog.log_lines import Content
from vmtailor.analysis.comparison.budgets import metrics_of, parse_budget
from vmtailor.analysis.timeline.boot_json import from_json, json_chunks, to_csv, trace_events
from vmtailor.analysis.timeline.boot_timeline import build
from vmtailor.analysis.timeline.hotspots import rank
from vmtailor.base.errors import UserInputError
from vmtailor.base.notation import decoded_json

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _reader(row: Format, data: bytes, step: int = 0) -> None:
    """What a format's reader makes of it, whether it is recognised or not; in pieces of so many bytes."""
    content = Content("x", iter([data[at : at + step] for at in range(0, len(data), step)] if step else [data]))
    row.recognise(content)
    if (observed := row.read(content)) is not None:
        check(observed)


def _charts(data: bytes) -> None:
    third = len(data) // 3
    members = {"header": data[:third], "proc_ps.log": data[third:], "proc_stat.log": data, "kernel_pacct": data}
    members |= {"taskstats.log": data[: 2 * third], "proc_diskstats.log": data[third:]}
    check(bootchart.read("x", members))


def _packed(data: bytes) -> None:
    list(archive.tar_members(archive.decompress(_file(data), 1 << 20), bootchart.MEMBERS))


def _file(data: bytes) -> IO[bytes]:
    return io.BytesIO(data)


def _budget(data: bytes) -> None:
    parse_budget(data.decode("utf-8", "replace"))


def check(observed: Observed) -> None:
    """Build the timeline and hold it to what every timeline must be."""
    timeline = rank(build([observed]))
    b"".join(json_chunks(timeline))
    rows: list[Any] = [*timeline.initcalls, *timeline.probes, *timeline.units, *timeline.processes, *timeline.hotspots]
    for row in rows:
        if _CONTROLS.search(row.name):
            raise AssertionError(f"a control character in {row.name!r}")
        if (row.exclusive_us or 0) < 0:
            raise AssertionError(f"negative own time of {row.name!r}")


def whole(data: bytes) -> None:
    """The way of `analyze`, from recognising to every form of output."""
    observed = read_chunks("x", archive.decompress(_file(data), 1 << 20))
    timeline = rank(build([observed]))
    document = b"".join(json_chunks(timeline))
    if from_json(document, "x") != timeline:
        raise AssertionError("the document does not read back")
    to_csv(timeline)
    trace_events(timeline)


TARGETS: dict[str, Callable[[bytes], None]] = {
    **{row.name: partial(_reader, row) for row in FORMATS},
    "kernel log in pieces": partial(_reader, FORMATS[-1], step=7),
    "document": lambda d: (metrics_of(decoded_json(d)), None)[1],
    "bootchart": _charts,
    "archive": _packed,
    "budget": _budget,
    "whole": whole,
}


def mutate(rng: random.Random, seed: bytes) -> bytes:
    """A seed with some of it changed, doubled, cut, moved, or replaced by something that means something somewhere."""
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 5, 20, 80)))
        match rng.randrange(9):
            case 0:
                data[at:end] = rng.randbytes(end - at)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * rng.choice((1, 2, 9))
            case 3 | 4:
                data[at:at] = rng.choice(DICTIONARY)
            case 5:
                data[at:end] = rng.choice(DICTIONARY)
            case 6:
                data[at:at] = str(rng.choice((0, 1, -1, 2**31, 2**63, 10**30, 1e308))).encode()
            case 7:
                other = rng.choice(SEEDS)
                start = rng.randrange(len(other) + 1)
                data[at:at] = other[start : start + rng.randrange(200)]
            case 8:
                data = data[:at]
    return bytes(data[:4000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"))
    wanted = parser.parse_args()
    rng = random.Random(wanted.seed)
    seeds = [*SEEDS, tar_of(SEEDS[0])]
    names = list(TARGETS)
    failures = 0
    slowest = (0.0, "")
    started = time.monotonic()
    for n in range(wanted.inputs):
        name = names[n % len(names)]
        data = mutate(rng, rng.choice(seeds))
        begun = time.monotonic()
        try:
            TARGETS[name](data)
        except UserInputError:
            pass
        except Exception:
            failures += 1
            wanted.keep.mkdir(parents=True, exist_ok=True)
            path = wanted.keep / f"{name.replace(' ', '-')}-{n}"
            path.write_bytes(data)
            print(f"{name}: {path}\n{traceback.format_exc(limit=-3)}", flush=True)
            if failures >= 20:
                break
        slowest = max(slowest, (time.monotonic() - begun, f"{name} {n}"))
        if n and n % 50_000 == 0:
            print(f"{n} inputs, {failures} failures, {n / (time.monotonic() - started):.0f} a second", flush=True)
    took = time.monotonic() - started
    print(
        f"{wanted.inputs} inputs over {len(names)} parsers in {took:.0f} s, {failures} failures; slowest "
        f"{slowest[0]:.2f} s ({slowest[1]})"
    )
    if failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
