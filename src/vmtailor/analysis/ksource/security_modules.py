# SPDX-License-Identifier: Apache-2.0
"""Security modules of which a kernel starts only one: the first of its list that it has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from vmtailor.analysis.ksource.expr import asked_for, holds
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.make_values import Reader

_BELOW = "security/"
_MODULE = re.compile(r"^DEFINE_LSM\(\w+\)\s*=\s*\{", re.M)
_NAME = re.compile(r'\.name\s*=\s*"(\w+)"')
_EXCLUSIVE = "LSM_FLAG_EXCLUSIVE"


def exclusive(read: Reader, facts: Facts) -> dict[str, str]:
    """Return name → source file of the modules that exclude each other. `read`: text of a file of the tree, None where
    there is none. The result is empty for a tree from before Linux 5.1, where no list chooses."""
    found = {}
    for stem in facts.files:
        text = read(f"{stem}.c") if stem.startswith(_BELOW) else None
        for body in _bodies(text or ""):
            if _EXCLUSIVE in body and (name := _NAME.search(body)):
                found[name[1]] = f"{stem}.c"
    return found


def _bodies(text: str) -> Iterator[str]:
    """Yield each definition of a security module, up to the `};` in the first column that ends it."""
    end = 0
    while (begun := _MODULE.search(text, end)) and (end := text.find("\n};", begun.end())) >= 0:
        yield text[begun.end() : end]


def at_work(config: Mapping[str, str], read: Reader, facts: Facts) -> dict[str, str]:
    """Return the symbols of a configuration that are set (name → y or m), without those of security modules that it
    does not start. Nothing can have been asked of these. `config`: name → value, strings in quotes or without."""
    enabled = {name: value for name, value in config.items() if value in ("y", "m")}
    order = config.get("LSM", "").strip('"').split(",")
    known = {name: facts.file_condition(path) for name, path in (exclusive(read, facts) if any(order) else {}).items()}
    started = next((name for name in order if name in known and holds(known[name], enabled)), None)
    takers = Counter(symbol for condition in known.values() for symbol in set(asked_for(condition, enabled)))
    resting = {symbol for name in known if name != started for symbol in asked_for(known[name], enabled)}
    return {name: value for name, value in enabled.items() if name not in resting or takers[name] > 1}
