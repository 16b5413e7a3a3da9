# SPDX-License-Identifier: Apache-2.0
"""What an image could ask for, and a kernel has not: ranked, with what it cost on the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from vmtailor.analysis.cost.attribution import SymbolCost
from vmtailor.analysis.reach.asked import Reached
from vmtailor.model.reach import NEARNESS, Lack

#: Calls and files that are named of one symbol, and symbols in all.
MOST_KEYS, MOST_FILES, MOST_LACKS = 12, 8, 200


def lacks(
    reached: Iterable[Reached], enabled: Set[str], ran: Mapping[str, SymbolCost], most: int = MOST_LACKS
) -> tuple[Lack, ...]:
    """The asks whose symbols are not all in `enabled`, by the first symbol that is not there: the nearest first, then
    those that most files could ask for. `ran`: symbol → what its code cost on the baseline."""
    found: dict[str, list[Reached]] = {}
    for one in reached:
        gone = [name for name in one.symbols if name not in enabled]
        if gone:
            found.setdefault(gone[0], []).append(one)
    rows = [_lack(name, asks, enabled, ran) for name, asks in found.items()]
    rows.sort(key=lambda row: (NEARNESS.index(row.nearness), -len(row.files) - row.more_files, row.symbol))
    return tuple(rows[:most])


def _lack(name: str, asks: list[Reached], enabled: Set[str], ran: Mapping[str, SymbolCost]) -> Lack:
    asks = sorted(asks, key=lambda one: NEARNESS.index(one.file.nearness))  # stable: within it, as they were found
    keys = list(dict.fromkeys(one.ask.key for one in asks))
    files = list(dict.fromkeys(one.file.path for one in asks))
    symbols = tuple(dict.fromkeys(symbol for one in asks for symbol in one.symbols if symbol not in enabled))
    costs = [ran[symbol].to_init_net for symbol in symbols if symbol in ran]
    return Lack(
        symbol=name,
        symbols=symbols,
        nearness=asks[0].file.nearness,
        keys=tuple(keys[:MOST_KEYS]),
        files=tuple(files[:MOST_FILES]),
        text=asks[0].text,
        more_keys=max(0, len(keys) - MOST_KEYS),
        more_files=max(0, len(files) - MOST_FILES),
        to_init=sum(costs) if costs else None,
    )
