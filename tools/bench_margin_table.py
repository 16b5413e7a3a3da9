# SPDX-License-Identifier: Apache-2.0
"""What `bench_margin.py` found, and its tables: what newly fails with each margin, what each costs, which images share
a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bench_fit_table import markdown
from bench_margin_probe import Feature, Outcome, Probed, newly

from vmtailor.analysis.demands import harmless_absences
from vmtailor.model.syscalls import FailedCall

#: Kinds of features: what their names begin with → how the table calls them. The others are the language's own.
KINDS = {"call:": "further calls", "read/": "pseudo-files"}
OWN = "the language's own"
#: The system calls of features that ask for no more than whether something is there.
CALLS = {"call:memory_of_nodes": "get_mempolicy"}
#: Features that are named in a table, and characters of why.
MOST_NAMED, MOST_WHY = 60, 60


@dataclass(frozen=True)
class FitCell:
    """One fit: an image with a margin. `seconds`: of the host, through the command line. `kernel`: its name in the
    cache; `cached`: it was there. `failed`: why there is no machine, in a line. Instructions are from kernel entry to
    init, net; figures that were not taken are None."""

    SCHEMA: ClassVar[str] = "vmtailor-bench/fit/1"

    key: str
    seconds: float
    verified: bool = False
    repairs: int = 0
    symbols_prompted: int = 0
    symbols_y: int = 0
    calls: int | None = None
    kernel_bytes: int | None = None
    init_instructions_net: int | None = None
    min_memory_bytes: int | None = None
    kernel: str = ""
    cached: bool = False
    failed: str = ""


@dataclass(frozen=True)
class ProbeCell:
    """One probe in one machine."""

    SCHEMA: ClassVar[str] = "vmtailor-bench/probe/1"

    key: str
    probed: Probed


@dataclass(frozen=True)
class Measured:
    """All of one image: the probe on the baseline, and by margin the fit and the probe; what is not there yet is
    missing."""

    name: str
    baseline: ProbeCell | None
    fits: Mapping[str, FitCell]
    probes: Mapping[str, ProbeCell]


def fit_cell(key: str, seconds: float, document: Mapping[str, Any]) -> FitCell:
    """The cell of what `fit --json` printed."""
    prices = [price for price in document["margin"]["prices"] if price["chosen"]]
    side, found = document["tailored"], document["kernel"] or {}
    return FitCell(
        key=key,
        seconds=seconds,
        verified=document["verified"],
        repairs=document["repairs"],
        symbols_prompted=side["symbols_prompted"],
        symbols_y=side["symbols_y"],
        calls=prices[0]["calls"] if prices else None,
        kernel_bytes=side["kernel_bytes"],
        init_instructions_net=side["init_instructions_net"],
        min_memory_bytes=side["min_memory_bytes"],
        kernel=found.get("digest", ""),
        cached=found.get("cached", False),
    )


def kind_of(name: str) -> str:
    return next((kind for begin, kind in KINDS.items() if name.startswith(begin)), OWN)


def is_harmless(feature: Feature) -> bool:
    """Whether a feature that newly fails is an absence that data/harmless excuses: a file that is not there, or the
    call that a feature is of."""
    if feature.outcome is not Outcome.FAILS:
        return False
    path = feature.name.removeprefix("read")
    call = FailedCall("open", path, feature.why) if path != feature.name else None
    call = call or (FailedCall(CALLS[feature.name], "", feature.why) if feature.name in CALLS else None)
    return call is not None and bool(harmless_absences.split([call])[1])


def _count(found: Sequence[Feature], outcome: Outcome | None = None) -> str:
    return str(sum(1 for one in found if outcome is None or one.outcome is outcome))


def probe_table(images: Sequence[Measured], margins: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """How many features newly fail: a row for each image and margin that was probed."""
    head = ["image", "margin", "features", "fail on the baseline", "newly fail", OWN, *KINDS.values(), "hang", "lost",
            "harmlessly absent"]  # fmt: skip
    rows = []
    for image in images:
        if image.baseline is None:
            continue
        before = image.baseline.probed
        bad = [one for one in before.features if one.outcome is not Outcome.OK]
        for margin in margins:
            cell = image.probes.get(margin)
            if cell is None:
                continue
            every = newly(before, cell.probed)
            found = [one for one in every if not is_harmless(one)]
            kinds = Counter(kind_of(one.name) for one in found)
            rows.append(
                [image.name, margin, str(len(before.features)), str(len(bad)), str(len(found))]
                + [str(kinds[kind]) for kind in (OWN, *KINDS.values())]
                + [_count(found, Outcome.HANGS), _count(found, Outcome.LOST), str(len(every) - len(found))]
            )
    return head, rows


def named_table(images: Sequence[Measured], margin: str) -> tuple[list[str], list[list[str]]]:
    """The features that newly fail with one margin, by name."""
    rows = []
    for image in images:
        if image.baseline is None or margin not in image.probes:
            continue
        found = newly(image.baseline.probed, image.probes[margin].probed)
        for one in found[:MOST_NAMED]:
            what = "is absent, harmlessly" if is_harmless(one) else one.outcome.value
            rows.append([image.name, one.name, what, one.why[:MOST_WHY]])
        if len(found) > MOST_NAMED:
            rows.append([image.name, f"and {len(found) - MOST_NAMED} more", "", ""])
    return ["image", "feature", "what happens", "why"], rows


def _figure(value: float | None, write: Callable[[float], str]) -> str:
    return "–" if value is None else write(value)


def price_table(images: Sequence[Measured], margins: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """What each fit costs: a row for each image and margin that was fitted."""
    head = ["image", "margin", "verified", "repairs", "symbols", "=y", "calls", "kernel (MB)", "to init, net (M)",
            "least memory (MiB)", "fit (s)", "kernel"]  # fmt: skip
    rows = []
    for image in images:
        for margin in margins:
            cell = image.fits.get(margin)
            if cell is None:
                continue
            if cell.failed:
                rows.append([image.name, margin, f"no: {cell.failed}", *["–"] * (len(head) - 3)])
                continue
            rows.append(
                [
                    image.name, margin, "yes" if cell.verified else "no", str(cell.repairs),
                    str(cell.symbols_prompted), str(cell.symbols_y), _figure(cell.calls, str),
                    _figure(cell.kernel_bytes, lambda value: f"{value / 1e6:.2f}"),
                    _figure(cell.init_instructions_net, lambda value: f"{value / 1e6:.1f}"),
                    _figure(cell.min_memory_bytes, lambda value: f"{value / (1 << 20):.0f}"),
                    f"{cell.seconds:.0f}", "found" if cell.cached else "compiled",
                ]
            )  # fmt: skip
    return head, rows


def family_table(fits: Mapping[str, FitCell]) -> tuple[list[str], list[list[str]], str]:
    """Which images share a kernel: the most shared first. Also, in a sentence, how many have one of the top three."""
    members: dict[str, list[str]] = {}
    for name, cell in sorted(fits.items()):
        if cell.kernel:
            members.setdefault(cell.kernel, []).append(name)
    order = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = [[kernel[:12], str(len(names)), ", ".join(names)] for kernel, names in order]
    three = sum(len(names) for _, names in order[:3])
    whole = sum(map(len, members.values()))
    if len(members) == 1:
        said = f"all {whole} images share one kernel"
    else:
        said = f"{three} of {whole} images have one of the {min(3, len(members))} most shared of {len(members)} kernels"
    return ["kernel", "images", "which"], rows, said if members else "no image was fitted"


def document(images: Sequence[Measured], margins: Sequence[str], default: str, conditions: str) -> str:
    """The tables of what was probed, as Markdown."""
    parts = [
        f"{conditions}\n",
        "### What newly fails\n",
        markdown(*probe_table(images, margins)),
        f"### By name, with the margin {default}\n",
        markdown(*named_table(images, default)) if named_table(images, default)[1] else "None.\n",
        "### What each margin costs\n",
        markdown(*price_table(images, margins)),
    ]
    return "\n".join(parts)


def family_document(fits: Mapping[str, FitCell], beside: Mapping[str, FitCell], default: str, conditions: str) -> str:
    """The tables of further images, as Markdown: what each cost, and which share a kernel. `beside`: images that are
    timed, and counted in no share."""
    head, rows, shared = family_table(fits)
    images = [Measured(name, None, {default: cell}, {}) for name, cell in (*fits.items(), *beside.items())]
    parts = [
        f"{conditions}\n",
        "### Further images, fitted\n",
        markdown(*price_table(images, (default,))),
        "### Images that share a kernel\n",
        f"Of the servers, each with the margin {default}: {shared}.\n",
        markdown(head, rows),
    ]
    return "\n".join(parts)
