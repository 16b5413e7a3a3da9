# SPDX-License-Identifier: Apache-2.0
"""Explain why a symbol is set without a request: the symbol that selects it, or the default of the tree that sets
it."""

from __future__ import annotations

from typing import Any

import kconfiglib as k

from vmtailor.analysis.ksource.kconfig import Kconfig, symbols_in, terms
from vmtailor.model.change import Cause, Reason


def why_set(kconfig: Kconfig, name: str) -> Reason | None:
    """Return the reason that the tree, as it stands now, sets a symbol by itself; None when only a wish can have set
    it.

    The reference is the `symbol:NAME` that brings it in, or `kconfig:FILE:LINE` where nothing else does."""
    symbol = kconfig.symbols[name]
    return _selected(symbol) or _chosen(kconfig, symbol) or _by_default(kconfig, symbol)


def _selected(symbol: Any) -> Reason | None:
    for dependency, verb in ((symbol.rev_dep, "selects"), (symbol.weak_rev_dep, "implies")):
        for term in terms(dependency, k.OR):
            if k.expr_value(term) > 0:
                first = terms(term, k.AND)[0]
                if isinstance(first, k.Symbol) and not first.is_constant:
                    text = f"{first.name} {verb} it"
                    return Reason(Cause.DEPENDENCY, f"symbol:{first.name}", text)
    return None


def _chosen(kconfig: Kconfig, symbol: Any) -> Reason | None:
    if symbol.choice is None or symbol.choice.selection is not symbol:
        return None
    place = kconfig.places(symbol.name)[0]
    prompt = next((n.prompt[0] for n in symbol.choice.nodes if n.prompt), "a choice")
    return Reason(
        Cause.DEPENDENCY, f"kconfig:{place}", f"one member of '{prompt}' must be set, this is the tree's default"
    )


def _by_default(kconfig: Kconfig, symbol: Any) -> Reason | None:
    visible = any(n.prompt and k.expr_value(n.prompt[1]) > 0 for n in symbol.nodes)
    if visible:
        return None  # allnoconfig answers n
    for value, condition in symbol.defaults:
        if k.expr_value(condition) == 0:
            continue
        if k.expr_value(value) == 0:
            return None
        place = kconfig.places(symbol.name)[0]
        named = [s for s in sorted(symbols_in(value) | symbols_in(condition)) if kconfig.value(s) in ("y", "m")]
        hidden = "its prompt is hidden here" if kconfig.prompted(symbol.name) else "it has no prompt"
        if named:
            text = f"{hidden}; its default follows {', '.join(named)} ({place})"
            return Reason(Cause.DEPENDENCY, f"symbol:{named[0]}", text)
        needs = [s for s in kconfig.depends_on(symbol.name) if kconfig.value(s) in ("y", "m")]
        if needs:
            text = f"{hidden}; the tree sets it wherever {', '.join(needs)} is set ({place})"
            return Reason(Cause.DEPENDENCY, f"symbol:{needs[0]}", text)
        return Reason(
            Cause.DEPENDENCY, f"kconfig:{place}", f"{hidden}; the tree, the architecture or the compiler sets it"
        )
    return None
