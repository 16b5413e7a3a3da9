# SPDX-License-Identifier: Apache-2.0
"""Find the dropped symbols to put back: nearest to the failure first, then by bisection, with few trials."""

from __future__ import annotations

from collections.abc import Generator, Sequence

Search = Generator[tuple[str, ...], bool, tuple[str, ...] | None]


#: More symbols than this are not put back together for one failing call: which of them it is, is searched.
MOST_ASKED = 8


def search(candidates: Sequence[str], asked: int = 0) -> Search:
    """Find a small set of `candidates` with which the exercise passes.

    A generator: it yields a set to try and is sent whether that passed; it returns the set to keep, or None when even
    all of them together do not help. `candidates` are ordered, the likeliest first, and without them the exercise is
    known to fail. Prefixes grow fourfold until one passes, then the shortest passing prefix is found by bisection: its
    last element is needed. This is repeated with what stands before it until the needed ones alone pass.

    The first `asked` of them are what the failing calls ask for by name. They are tried first, together, and kept as
    they are when that passes: each has its reason, and none is worth a kernel to see whether it could go.
    """
    pool = list(dict.fromkeys(candidates))
    needed: list[str] = []
    known_to_fail = 0
    if 1 < asked <= min(MOST_ASKED, len(pool)):
        if (yield tuple(pool[:asked])):
            return tuple(pool[:asked])
        known_to_fail = asked
        if asked == len(pool):
            return None
    while pool:
        low, high = known_to_fail, 0  # a prefix of `low` fails, one of `high` passes
        length = min(4 * low, len(pool)) if low else 1
        known_to_fail = 0
        while True:
            if (yield tuple(needed + pool[:length])):
                high = length
                break
            low = length
            if length == len(pool):
                return None
            length = min(4 * length, len(pool))
        while high - low > 1:
            middle = (low + high) // 2
            if (yield tuple(needed + pool[:middle])):
                high = middle
            else:
                low = middle
        needed.append(pool[high - 1])
        pool = pool[: high - 1]
        if not pool or (yield tuple(needed)):
            return tuple(needed)
    return None


def minimise(kept: Sequence[str], group: int) -> Generator[tuple[str, ...], bool, tuple[str, ...]]:
    """Remove kept symbols in groups: yields a set to leave out, is sent whether the exercise still passes without it.

    A group that can go makes the next one twice as large, and that takes a small rest along; of one that cannot, the
    first half is tried. So little is asked both where nearly all is needed and where nearly nothing is. `group` is the
    size of the first. Returns all that can go together.
    """
    gone: list[str] = []
    waiting = list(kept)
    size = max(1, group)
    while waiting:
        part = waiting[:size]
        if (yield tuple(gone + part)):
            gone += part
            rest, size = len(waiting) - len(part), 2 * len(part)
            if rest <= size + len(part):
                size = max(1, rest)
        elif len(part) > 1:
            size = len(part) // 2
            continue
        del waiting[: len(part)]
    return tuple(gone)
