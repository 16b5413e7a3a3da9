# SPDX-License-Identifier: Apache-2.0
"""`make bench-overhead`: what the harness of `vmtailor bench` adds to its figures, by workloads that do nothing.

Start-up: a program that ends at once, timed by the harness, and timed by a C program that starts it with vfork and
waits. The difference of the medians is what every start-up figure has too much. HTTP: a server that is asked until it
answers, and one that is asked when it says that it listens. Throughput: a loop that counts its own rounds, while the
harness waits for it, and while nobody does; together: the same, begun as instances of UnixBench are. Order: A B B A.

    tools/bench_overhead.py [--starts N] [--seconds S] [--rounds N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vmtailor.base.process import spawn
from vmtailor.bench.model.instance import InstanceSpec
from vmtailor.bench.runtimes.host_runtime import Surroundings
from vmtailor.bench.runtimes.host_state import Clocks, ProcessorTimes
from vmtailor.bench.runtimes.stopwatch import CallBacks, TimedCommand, timed
from vmtailor.bench.suites.simultaneous import together
from vmtailor.bench.suites.startup import POLL_S, answers
from vmtailor.drivers.host.host_client import free_port

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_S, MOST_SHARE = 0.001, 0.01
_LONG_S = 600.0


def compiled(folder: Path) -> str:
    """The benchmarks' own program, as in their image."""
    own, native, out = REPOSITORY / "benchmarks/image", REPOSITORY / "native", folder / "bench"
    sources = [str(path) for path in (own / "bench.c", own / "report.c", native / "common/sha256.c")]
    words = ["cc", "-std=c11", "-O2", "-static", f"-I{native}", "-o", str(out), *sources]
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


def polled(program: str, port: int) -> float:
    """Seconds until the first right answer over HTTP, asked for as the suite does: again and again."""
    started_s = time.monotonic()
    with spawn([program, "serve", str(port)], stdout=subprocess.DEVNULL) as server:
        while not answers("127.0.0.1", port):
            if server.poll() is not None or time.monotonic() - started_s > _LONG_S:
                raise SystemExit("the server did not answer")
            time.sleep(POLL_S)
        return time.monotonic() - started_s


def polled_bare(program: str, port: int) -> float:
    """The same, asked for once: when the server says that it listens."""
    started_s = time.monotonic()
    with spawn([program, "serve", str(port)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        if not answers("127.0.0.1", port):
            raise SystemExit("the server did not answer")
        return time.monotonic() - started_s


class Bare:
    """What `together` is given in place of a run in the scope: an instance is the command itself. `folder`: to call
    back in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self.runtimes = {"bare": self}

    def spec(self, command: Sequence[str], _limits: object = None, _network: str = "") -> InstanceSpec:
        self._number += 1
        return InstanceSpec(f"bare-{self._number}", tuple(command))

    def callback_folder(self, spec: InstanceSpec) -> Path:
        return self._folder / spec.name

    @contextlib.contextmanager
    def calling_back(self, spec: InstanceSpec) -> Iterator[tuple[InstanceSpec, CallBacks]]:
        folder = self.callback_folder(spec)
        folder.mkdir(parents=True)
        self.here = folder
        with contextlib.closing(CallBacks(folder)) as callbacks:
            yield spec, callbacks

    @contextlib.contextmanager
    def placed(self, _runtime: str, spec: InstanceSpec) -> Iterator[InstanceSpec]:
        yield spec

    def surroundings(self) -> Surroundings:
        return {"env": None, "cwd": self._folder}

    def witnessed(self, _runtime: str, words: Sequence[str]) -> Sequence[str]:
        return words

    def heard(self, _runtime: str, found: TimedCommand) -> TimedCommand:
        return found

    def run_words(self, spec: InstanceSpec) -> tuple[str, ...]:
        return spec.command


def spun_together(program: str, seconds: float, folder: Path) -> float:
    """Rounds a second of one instance that begins when it is told to, as those of UnixBench do, while the harness
    waits and looks at the processors' clocks."""
    run: Any = Bare(folder)  # as much of a run as this needs

    def words(number: int) -> list[str]:
        return [program, "after", str(run.here), str(number), program, "spin", str(seconds)]

    with Clocks():
        (found,) = together(run, "bare", words, 1, seconds=seconds, grace_s=_LONG_S)
    return float(json.loads(found.stdout)["rounds_per_s"])


@dataclass
class Sides:
    """Samples of one figure, with the harness and without it."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Sides]:
    """All figures, in the order A B B A."""
    program = compiled(folder)
    (folder / "go").touch()
    found = {name: Sides() for name in ("start-up", "HTTP", "throughput", "together")}
    for round_ in range(options.rounds):
        found["start-up"].ours += started(program, options.starts)
        found["start-up"].bare += started_bare(program, 2 * options.starts)
        found["start-up"].ours += started(program, options.starts)
        for _ in range(max(1, options.starts // 10)):
            for side, how in (("ours", polled), ("bare", polled_bare), ("bare", polled_bare), ("ours", polled)):
                getattr(found["HTTP"], side).append(how(program, free_port()))
        bare = [spun_bare(program, options.seconds, folder)]
        found["throughput"].ours.append(spun(program, options.seconds))
        found["together"].ours.append(spun_together(program, options.seconds, folder / f"{round_}a"))
        bare += [spun_bare(program, options.seconds, folder) for _ in range(2)]
        found["together"].ours.append(spun_together(program, options.seconds, folder / f"{round_}b"))
        found["throughput"].ours.append(spun(program, options.seconds))
        bare.append(spun_bare(program, options.seconds, folder))
        for name in ("throughput", "together"):
            found[name].bare += bare
    return found


def show(found: dict[str, Sides], seconds: float) -> dict[str, bool]:
    """Print the figures; which of the goals hold."""
    holds = {}
    for name in ("start-up", "HTTP"):
        ours, bare = found[name].ours, found[name].bare
        more, low, high = (1e3 * x for x in interval(ours, bare))
        print(f"{name}: {len(ours)} starts, median {1e3 * statistics.median(ours):.3f} ms by the harness,")
        print(f"  {1e3 * statistics.median(bare):.3f} ms bare: {more:+.3f} ms ({low:+.3f} … {high:+.3f})")
        quarters = [1e3 * float(np.percentile(side, 25)) for side in (ours, bare)]
        print(
            f"  the fastest quarter took up to {quarters[0]:.3f} and {quarters[1]:.3f} ms: what disturbs is not in it"
        )
        holds[f"{name}: less than {1e3 * MOST_S:g} ms"] = more < 1e3 * MOST_S
    for name in ("throughput", "together"):
        ours, bare = found[name].ours, found[name].bare
        lost, least, most = (100 * x / statistics.median(bare) for x in interval(bare, ours))
        print(f"{name}: {len(ours)} loops of {seconds:g} s: {lost:+.2f} % lost ({least:+.2f} … {most:+.2f} %)")
        holds[f"{name}: less than {100 * MOST_SHARE:g} %"] = lost < 100 * MOST_SHARE
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--starts", type=int, default=100, help="starts a round")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each loop")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of A B B A")
    options = parser.parse_args()
    before = ProcessorTimes.now()
    with tempfile.TemporaryDirectory() as name:
        holds = show(measured(options, Path(name)), options.seconds)
    noise = ProcessorTimes.now().noise_since(before, 0.0)
    print(f"this host's processors were {100 * noise.others:.0f} % busy with this and all else")
    for words, held in holds.items():
        print(f"{'yes' if held else 'NO ':>4}  {words}")
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
