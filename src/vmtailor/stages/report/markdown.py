# SPDX-License-Identifier: Apache-2.0
"""The record of a fit as Markdown: for the summary of a CI job, or a comment on a change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vmtailor.base import figures
from vmtailor.base.text import plural
from vmtailor.model.fit_run import FitRun
from vmtailor.stages.report import fit_end
from vmtailor.stages.report.figure_rows import FigureRow, groups

#: Symbols, calls and failures that are named; further ones are counted.
_MOST = 20
_MEANS = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def summary(run: FitRun, former: FitRun | None = None) -> str:
    """Return the verdict and the figures of a fit. `former`: of the same image before a change; the differences to it
    are a column of their own, and symbols that came or went are named."""
    verdict = fit_end.verdict(run)
    lines = [f"### {_plain(run.reference)}: {verdict.headline}", "", _plain(verdict.text), ""]
    lines += _table(run, former)
    if former is not None:
        lines += ["", *_symbols(run, former)]
    if run.degraded:
        lines += ["", "Calls that newly fail:", "", *_list(f"`{_code(one.name)}`" for one in run.degraded)]
    return "\n".join(lines) + "\n"


def _table(run: FitRun, former: FitRun | None) -> Iterator[str]:
    before = _rows(former) if former is not None else {}
    yield "| figure | baseline | tailored | ratio |" + (" before | difference |" if former is not None else "")
    yield "| --- | ---: | ---: | ---: |" + (" ---: | ---: |" if former is not None else "")
    for name, row in _rows(run).items():
        line = f"| {_plain(row.title)} | {row.baseline} | {row.tailored} | {row.ratio} |"
        if former is not None:
            old = before.get(name)
            line += f" {old.tailored if old is not None else '–'} | {_difference(row, old)} |"
        yield line


def _rows(run: FitRun) -> dict[str, FigureRow]:
    return {row.name: row for group in groups(run) for row in group.rows if row.strong and None not in row.exact}


def _difference(row: FigureRow, old: FigureRow | None) -> str:
    now, then = row.exact[1], old.exact[1] if old is not None else None
    if now is None or not then:
        return "–"
    return "none" if now == then else f"{(now - then) / then:+.1%}"


def _symbols(run: FitRun, former: FitRun) -> Iterator[str]:
    now, then = ({one.id for one in each.plan.symbols if one.value == "y"} for each in (run, former))
    for what, names in (("new", now - then), ("gone", then - now)):
        if names:
            yield f"{plural(len(names), 'kernel symbol')} {what}:"
            yield ""
            yield from _list(f"`{_code(name)}`" for name in sorted(names))
            yield ""
    if now == then:
        yield "The kernel has the same symbols as before."


def _list(items: Iterable[str]) -> list[str]:
    found = list(items)
    more = [f"- and {figures.grouped(len(found) - _MOST)} more"] if len(found) > _MOST else []
    return [*(f"- {one}" for one in found[:_MOST]), *more]


def _plain(text: str) -> str:
    """Return text in which Markdown and HTML mean nothing, on one line."""
    return _MEANS.sub(r"\\\1", "".join(c if c.isprintable() else "?" for c in text))[:400]


def _code(text: str) -> str:
    return "".join(c if c.isprintable() and c not in "`|" else "?" for c in text)[:100]
