# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them: one way to write counts, bytes, times and ratios, on the terminal and on pages.
A figure that is not there, None, is a dash."""

from __future__ import annotations

import functools
from collections.abc import Callable

NARROW_SPACE = "\u202f"
NONE = "–"


def _or_dash(form: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return a form of figures that shows None as a dash."""

    @functools.wraps(form)
    def shown(value: float | None) -> str:
        return NONE if value is None else form(value)

    return shown


@_or_dash
def grouped(value: float) -> str:
    """Return a whole number with narrow spaces between thousands: `1 236 400 117`."""
    return f"{value:,.0f}".replace(",", NARROW_SPACE)


@_or_dash
def short(value: float) -> str:
    """Return a count with three significant digits and its magnitude: `27.1 M`, `1.34 G`, `812`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{_three(value / size)}{NARROW_SPACE}{unit}"
    return f"{value:.0f}" if float(value).is_integer() else _three(value)


@_or_dash
def millions(value: float) -> str:
    """Return a count in millions, for columns that are compared: `1 343.6 M`."""
    digits = 0 if abs(value) >= 1e9 else 1 if abs(value) >= 1e7 else 2
    return f"{value / 1e6:,.{digits}f}{NARROW_SPACE}M".replace(",", NARROW_SPACE)


@_or_dash
def file_bytes(value: float) -> str:
    """Return the size of a file in powers of 1000: `3.41 MB`."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size * 0.9995:
            return f"{_three(value / size)}{NARROW_SPACE}{unit}"
    return f"{value:.0f}{NARROW_SPACE}B"


@_or_dash
def memory_bytes(value: float) -> str:
    """Return an amount of memory in powers of 1024: `22 MiB`."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size:
            return f"{value / size:.4g}{NARROW_SPACE}{unit}"
    return f"{value:.0f}{NARROW_SPACE}B"


@_or_dash
def microseconds(value: float) -> str:
    """Return a time given in µs, in the unit that reads best: `31.2 ms`, `4.07 s`."""
    if value >= 999_500:
        return f"{_three(value / 1e6)}{NARROW_SPACE}s"
    if value >= 999.5:
        return f"{_three(value / 1e3)}{NARROW_SPACE}ms"
    return f"{_three(value)}{NARROW_SPACE}µs"


@_or_dash
def duration(us: float) -> str:
    """Return a time given in µs to the millisecond, finer where it is short, for columns that are compared: `182 ms`,
    `2.340 s`. The space is a plain one, so that a terminal's output can be searched."""
    if abs(us) >= 1_000_000:
        return f"{us / 1e6:.3f} s"
    if abs(us) >= 10_000:
        return f"{us / 1e3:.0f} ms"
    return f"{us / 1e3:.2f} ms" if abs(us) >= 1000 else f"{us:.0f} µs"


@_or_dash
def share(part: float) -> str:
    """Return a part of 1 in percent, for columns that are compared: `7.8 %`."""
    return f"{100 * part:.1f} %"


def signed(value: float | None, form: Callable[[float | None], str]) -> str:
    """Return a difference in one of the forms of this module, with its sign: `+1.3 M`, `−40.2 ms`, `0`."""
    if not value:
        return NONE if value is None else "0"
    return f"{'−' if value < 0 else '+'}{form(abs(value))}"


def exact(value: float, places: int) -> str:
    """Return a number with so many places, as many of them as are not 0, so that it can be told from its limit:
    `9.134`, `28,500,000`."""
    whole, _, fraction = f"{value:,.{places}f}".partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


@_or_dash
def seconds(value: float) -> str:
    """Return a time given in s, for people: `4 min 07 s`, `31.2 s`."""
    if value == 0:
        return f"0{NARROW_SPACE}s"
    if value >= 60:
        whole = round(value)
        return f"{whole // 60}{NARROW_SPACE}min {whole % 60:02d}{NARROW_SPACE}s"
    return f"{_three(value)}{NARROW_SPACE}s"


def ratio(before: float | None, after: float | None) -> str:
    """Return how much less there is afterwards: `÷ 46.2`; `× 1.3` where there is more; `=` where nothing changed."""
    if before is None or after is None or before <= 0 or after <= 0:
        return NONE
    if before == after:
        return "="
    if before > after:
        return f"÷{NARROW_SPACE}{_factor(before / after)}"
    return f"×{NARROW_SPACE}{_factor(after / before)}"


def percent(part: float, whole: float) -> str:
    """Return a share in percent: `3.1 %`; a dash where there is no whole."""
    if whole <= 0:
        return NONE
    share = 100 * part / whole
    return f"{share:.0f}{NARROW_SPACE}%" if share >= 10 else f"{share:.1f}{NARROW_SPACE}%"


def _three(value: float) -> str:
    if abs(value) >= 99.95:
        return f"{value:,.0f}".replace(",", NARROW_SPACE)
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def _factor(value: float) -> str:
    if value >= 99.5:
        return f"{value:,.0f}".replace(",", NARROW_SPACE)
    return f"{value:.1f}" if value >= 9.95 else f"{value:.2f}" if value < 1.95 else f"{value:.1f}"
