# SPDX-License-Identifier: Apache-2.0
"""`make bench-overhead`: what the harness of `vmtailor bench` adds to its figures, by workloads that do nothing.

Start-up: a program that ends at once, timed by the harness, and timed by a C program that starts it with vfork and
waits. The difference of the medians is what every start-up figure has too much. Throughput: a loop that counts its own
rounds, while the harness waits for it, and while nobody does. Order: A B B A.

    tools/bench_overhead.py [--starts N] [--seconds S] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vmtailor.drivers.host.bench_host import ProcessorTimes
from vmtailor.drivers.runtimes.timed import timed

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_S, MOST_SHARE = 0.001, 0.01
_LONG_S = 600.0


def compiled(folder: Path) -> str:
    """The benchmarks' own program, as in their image."""
    source, common = REPOSITORY / "benchmarks/image/bench.c", REPOSITORY / "native/common/sha256.c"
    out = folder / "bench"
    words = ["cc", "-std=c11", "-O2", "-static", f"-I{REPOSITORY / 'native'}", "-o", str(out), str(source), str(common)]
    subprocess.run(words, check=True, timeout=_LONG_S)
    return str(out)


def interval(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """The difference of the medians, with its 95 % bootstrap interval."""
    chance = np.random.default_rng(1)
    drawn = [np.median(chance.choice(np.asarray(side), (4000, len(side))), axis=1) for side in (values, others)]
    low, high = np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
    return statistics.median(values) - statistics.median(others), float(low), float(high)


def started(program: str, count: int) -> tuple[float, ...]:
    """Seconds of each start, by the harness."""
    return tuple(timed([program, "null"], deadline_s=_LONG_S).exit_s for _ in range(count))


def started_bare(program: str, count: int) -> tuple[float, ...]:
    """The same by a C program."""
    said = subprocess.run(
        [program, "times", str(count), program, "null"], check=True, timeout=_LONG_S, capture_output=True
    )
    return tuple(json.loads(said.stdout)["seconds"])


def spun(program: str, seconds: float) -> float:
    """Rounds a second while the harness waits."""
    found = timed([program, "spin", str(seconds)], deadline_s=_LONG_S)
    return float(json.loads(found.stdout)["rounds_per_s"])


def spun_bare(program: str, seconds: float, folder: Path) -> float:
    """The same while nothing but this program's parent waits."""
    out = folder / "said"
    with out.open("wb") as file:
        subprocess.run(
            [program, "after", str(folder), "here", program, "spin", str(seconds)],
            check=True, timeout=_LONG_S, stdout=file,
        )  # fmt: skip
    return float(json.loads(out.read_bytes())["rounds_per_s"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--starts", type=int, default=100, help="starts a round")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each loop")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of A B B A")
    options = parser.parse_args()
    ours: list[float] = []
    bare: list[float] = []
    fast: list[float] = []
    fast_bare: list[float] = []
    before = ProcessorTimes.now()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compiled(folder)
        (folder / "go").touch()
        for _ in range(options.rounds):
            ours += started(program, options.starts)
            bare += started_bare(program, 2 * options.starts)
            ours += started(program, options.starts)
            fast.append(spun(program, options.seconds))
            fast_bare += [spun_bare(program, options.seconds, folder) for _ in range(2)]
            fast.append(spun(program, options.seconds))
    more, low, high = interval(ours, bare)
    lost, least, most = (x / statistics.median(fast_bare) for x in interval(fast_bare, fast))
    noise = ProcessorTimes.now().noise_since(before, 0.0)
    print(f"start-up: {len(ours)} starts, median {1e3 * statistics.median(ours):.3f} ms by the harness,")
    print(f"  {1e3 * statistics.median(bare):.3f} ms bare: {1e3 * more:+.3f} ms ({1e3 * low:+.3f} … {1e3 * high:+.3f})")
    quarters = [1e3 * float(np.percentile(side, 25)) for side in (ours, bare)]
    print(f"  the fastest quarter took up to {quarters[0]:.3f} ms and {quarters[1]:.3f} ms: what disturbs is not in it")
    print(f"throughput: {len(fast)} loops of {options.seconds:g} s: {100 * lost:+.2f} % lost")
    print(f"  ({100 * least:+.2f} … {100 * most:+.2f} %)")
    print(f"this host's processors were {100 * noise.others:.0f} % busy with this and all else")
    holds = {
        f"start-up: less than {1e3 * MOST_S:g} ms": more < MOST_S,
        f"throughput: less than {100 * MOST_SHARE:g} %": lost < MOST_SHARE,
    }
    for words, held in holds.items():
        print(f"{'yes' if held else 'NO ':>4}  {words}")
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
