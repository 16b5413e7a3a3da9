# SPDX-License-Identifier: Apache-2.0
"""`vmtailor compare`: compare two boots, or two sets of repeated boots, and tell real changes from noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from vmtailor.analysis.comparison import processors
from vmtailor.analysis.comparison.boot_differences import THRESHOLDS, compare_sides
from vmtailor.analysis.comparison.comparison_page import compare_page
from vmtailor.analysis.comparison.sides import load_side, runs_of, side_names
from vmtailor.analysis.statistics.significance import Thresholds
from vmtailor.base import figures
from vmtailor.base import output as printed
from vmtailor.base.errors import UserInputError
from vmtailor.base.figures import duration
from vmtailor.base.files import regular_files
from vmtailor.base.files.records import to_bytes
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text, folding
from vmtailor.base.text import encodable, plural
from vmtailor.cli.fit_record import run_of
from vmtailor.model.architecture import named, names
from vmtailor.model.boots.comparison import Comparison, PlatformFigure, ProcessorsCompared, Row, RowVerdict
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON, PAGE_OUT, TOP

_COLOURS = {
    RowVerdict.FASTER: "green",
    RowVerdict.GONE: "green",
    RowVerdict.SLOWER: "red",
    RowVerdict.NEW: "yellow",
    RowVerdict.MOVED: "cyan",
    RowVerdict.UNDECIDED: "dim",
    RowVerdict.BELOW: "dim",
    RowVerdict.SAME: "dim",
    RowVerdict.PARTLY: "yellow",
}
#: Verdicts of what is not worth a line, unless --all is given.
_QUIET = (RowVerdict.SAME, RowVerdict.BELOW)


def compare(
    before: Annotated[
        Path,
        Option(
            name="BEFORE",
            type=Path,
            help="Compare this log, chart, saved analyze --json, folder of logs, or what boot or fit wrote.",
        ),
    ],
    after: Annotated[
        Path, Option(name="AFTER", type=Path, help="Compare it with this log, chart or folder of the other side.")
    ],
    more_before: Annotated[
        Sequence[Path],
        Option(name="--before", type=Path, many=True, help="Add another boot of the first side. Repeat it for more."),
    ] = (),
    more_after: Annotated[
        Sequence[Path],
        Option(name="--after", type=Path, many=True, help="Add another boot of the second side. Repeat it for more."),
    ] = (),
    name_before: Annotated[
        str, Option(name="--name-before", help="Name the first side. Default: its folder or file.")
    ] = "",
    name_after: Annotated[
        str, Option(name="--name-after", help="Name the second side. Default: its folder or file.")
    ] = "",
    threshold: Annotated[
        float,
        Option(name="--threshold", type=float, least=0, most=1000, help="Ignore differences below this many percent."),
    ] = 100 * THRESHOLDS.relative,
    threshold_ms: Annotated[
        float,
        Option(name="--threshold-ms", type=float, least=0, most=1e9, help="Ignore differences below this many ms."),
    ] = THRESHOLDS.absolute / 1000,
    json: Annotated[bool, JSON] = False,
    out: Annotated[Path | None, PAGE_OUT] = None,
    top: Annotated[int, replace(TOP, help="Print this many items.")] = 30,
    all_rows: Annotated[bool, Option(name="--all", type=bool, help="Also print what stayed the same.")] = False,
) -> None:
    """Show what changed between boots: phases and items gone, new, faster, slower, moved, or undecided.

    Bundles for several processors are compared by their figures, and by the symbols that only some of them need. Give a
    third one with --after."""
    bundles = [before, *more_before, after, *more_after]
    runs = runs_of(bundles, run_of)
    if runs is not None:
        if out is not None:
            raise UserInputError("there is no page of several processors", hint="--json has everything")
        platforms = processors.compare_processors([encodable(path.resolve().name) for path in bundles], runs)
        if json:
            printed.json_bytes([to_bytes(platforms)])
        else:
            _show_processors(platforms, TerminalConsole(), top)
        return
    left, right = (load_side(side, run_of) for side in ([before, *more_before], [after, *more_after]))
    names = side_names(before, after)
    found = compare_sides(
        left,
        right,
        (encodable(name_before or names[0]), encodable(name_after or names[1])),
        Thresholds(threshold / 100, threshold_ms * 1000),
    )
    if out is not None:
        regular_files.write_output(out, compare_page(found).encode())
        printed.note(f"written: {out}")
    if json:
        printed.json_bytes([to_bytes(found)])
    else:
        _show(found, top, all_rows)


def _amount(row: Row, value: float | None) -> str:
    if value is None:
        return "–"
    if row.unit == "µs":
        return duration(round(value))
    # A figure whose name says its unit need not say it again; that the others count instructions is said below them.
    unit = "" if row.unit in row.name or row.unit == "instructions" else f" {row.unit}"
    return f"{value:,.0f}{unit}"


def _cells(row: Row) -> tuple[str | Text, ...]:
    change = "–" if row.change is None else f"{'+' if row.change > 0 else ''}{_amount(row, row.change)}"
    between = "" if row.low is None or row.high is None else f"{_amount(row, row.low)} … {_amount(row, row.high)}"
    name = row.name + (f" (run {row.occurrence})" if row.occurrence > 1 else "")
    exact = {RowVerdict.FASTER: "less", RowVerdict.SLOWER: "more"} if row.unit != "µs" else {}
    kind = RowVerdict(row.verdict)
    verdict = Text(_partly(row) if kind is RowVerdict.PARTLY else exact.get(kind, row.verdict), _COLOURS.get(kind, ""))
    if row.direction and kind is RowVerdict.BELOW:
        verdict.append(f", {row.direction}", style="dim")
    elif row.direction:
        verdict.append(f", {row.direction}?", style="dim")
    if row.moved and row.verdict != RowVerdict.MOVED:
        verdict.append(", moved", style="cyan")
    return (
        row.kind,
        Text(name),
        _amount(row, row.before),
        _amount(row, row.after),
        change,
        Text(between, style="dim"),
        verdict,
    )


def _partly(row: Row) -> str:
    """`in 1 of 5`, of the side that has it, or of both."""
    counts = [f"{count} of {of}" for count, of in zip(row.boots, row.of, strict=True) if count]
    return f"in {' and in '.join(counts)}"


def _table(title: str, rows: list[Row]) -> Table:
    """Return rows as a table; the column of intervals is left out where there are none."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim")
    between = any(row.low is not None for row in rows)
    for name in ("kind", "name", "before", "after", "change", *(["95 %"] if between else []), ""):
        figure = name in ("before", "after", "change")
        least = {"name": min(18, max(len(row.name) for row in rows)), "": 10}.get(name)
        table.add_column(name, justify="right" if figure else "left", overflow="fold", no_wrap=figure, min_width=least)
    for row in rows:
        cells = _cells(row)
        table.add_row(*(cells if between else (*cells[:5], *cells[6:])))
    return table


def _show(found: Comparison, top: int, all_rows: bool) -> None:
    console = TerminalConsole()
    for mark, side in (("before", found.before), ("after", found.after)):
        count = plural(side.boots, "boot") if side.boots else "a fit"
        console.print(
            Text.assemble(
                (f"{mark:7}", "dim"),
                (side.name, "bold"),
                f"  {count}, Linux {side.version or 'of unknown version'}",
            )
        )
    if found.phases:
        console.print(_table("Phases", list(found.phases)))
    items = [row for row in found.items if all_rows or row.verdict not in _QUIET]
    if items:
        console.print(_table(f"What changed ({min(top, len(items))} of {len(items)})", items[:top]))
        if any(row.unit == "instructions" for row in items[:top]):
            console.print("numbers without a unit count instructions, or what their name says", style="dim")
    elif found.items:
        console.print(f"No item changed by the threshold or more, of {len(found.items)}.")
    for change in found.config[:top]:
        console.print(Text(f"CONFIG_{change.symbol}: {change.before or 'not set'} → {change.after or 'not set'}"))
    if len(found.config) > top:
        console.print(f"… and {len(found.config) - top} more symbols: --json", style="dim")
    quiet = len(found.items) - len(items)
    console.print(
        f"threshold: {100 * found.threshold_share:g} % and {found.threshold_us / 1000:g} ms, whichever is more "
        f"(--threshold, --threshold-ms)" + (f"; {plural(quiet, 'item')} below it or the same: --all" if quiet else ""),
        style="dim",
    )
    for warning in found.warnings:
        console.print(Text.assemble(("! ", "yellow"), (warning.code, "yellow"), ": ", warning.text))
    console.print("Details: --json, -o PAGE.html, --all", style="dim")


def _show_processors(found: ProcessorsCompared, console: TerminalConsole, top: int) -> None:
    """Print the figures, and the symbols that only some of the kernels have."""
    titles = (f"{_title(one.architecture)}, {one.machine}" for one in found.platforms)
    columns: list[Column | str] = ["", *(Column(title, justify="right", no_wrap=True) for title in titles)]
    table = Table(*columns, title="Figures", title_justify="left", title_style="bold", box=None, header_style="dim")
    table.add_row("bundle", *(one.name for one in found.platforms))
    table.add_row("kernel", *(one.kernel_version for one in found.platforms))
    table.add_row("verified", *("yes" if one.verified else "no" for one in found.platforms))
    for row in found.figures:
        table.add_row(row.name, *(_platform_amount(row, value) for value in row.values))
    console.print(table)
    chosen = [one for one in found.differing if one.why]
    console.print(
        f"{plural(found.shared, 'symbol')} that all have; {plural(len(found.differing), 'symbol')} that only some have,"
        f" {len(chosen)} of them chosen"
    )
    if chosen:
        symbol_column, why = folding("symbol", "why")
        table = Table(
            symbol_column, *(_title(one.architecture) for one in found.platforms), why,
            title=f"What only some need ({min(top, len(chosen))} of {len(chosen)})",
            title_justify="left", title_style="bold", box=None, header_style="dim",
        )  # fmt: skip
        for symbol in chosen[:top]:
            table.add_row(symbol.symbol, *(value or "–" for value in symbol.has), Text(symbol.why, style="dim"))
        console.print(table)
    console.print("instructions are of different sets: side by side, and no verdict. Details: --json", style="dim")


def _title(architecture: str) -> str:
    return named(architecture).title if architecture in names() else architecture[:32]


def _platform_amount(row: PlatformFigure, value: float | None) -> str:
    if value is None:
        return "–"
    if row.unit == "bytes":
        return figures.memory_bytes(value) if row.name.endswith("memory") else figures.file_bytes(value)
    return figures.short(value)
