# SPDX-License-Identifier: Apache-2.0
"""`vmtailor bench`: the same container, every way to run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtailor.base import output as printed
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.records import to_bytes
from vmtailor.base.text import plain
from vmtailor.bench.cli import saved_results
from vmtailor.bench.cli.result_tables import show
from vmtailor.bench.model.job import BENCH_IMAGE
from vmtailor.bench.model.results import VIRTUAL, SuiteName
from vmtailor.bench.run import rounds_boot
from vmtailor.bench.run.launch import BenchOptions
from vmtailor.bench.run.launch import bench as measure
from vmtailor.bench.runtimes import description
from vmtailor.bench.suites.registry import SUITES

#: Repetitions of a cell, and of the quick form.
REPEAT, QUICK_REPEAT = 10, 6
#: Instances at once.
COUNTS = "1,4"
RESULTS = "bench.json"
_SUITES = ", ".join(SUITES)


def bench(
    what: Annotated[
        str,
        typer.Argument(
            help=f"Suites to run, joined by commas ({_SUITES}, or all); or, of results that are there: report, "
            "compare, advise."
        ),
    ],
    files: Annotated[list[Path] | None, typer.Argument(help="Results that are there; several merge.")] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            help=f"Runtimes, joined by commas: {', '.join(description.known())}, a file NAME.toml that describes one, "
            "vm:stock (the image on the distribution's kernel), vm:FOLDER (a bundle of the image). Default: all but "
            "machines. With advise: those that are ranked, of the measured ones.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        str | None,
        typer.Option(
            "--n", help=f"Instances at once, joined by commas, for tests that take several. Default: {COUNTS}. With "
            "--inside: unixbench in so many at once, in virtual time; 0 is the machine itself.",
            show_default=False,
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1, max=10000, help=f"Repetitions of a cell. Default: {REPEAT}; {QUICK_REPEAT} with --quick; 1 with --n "
            "and --inside. Elsewhere at least 2.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Durations at a tenth, marked as such.")] = False,
    only: Annotated[str | None, typer.Option("--only", help="Tests of the suites to run, joined by commas.")] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant", help="Of tests that are run in several ways, this one: cold, 'with limits', or part of "
            "its words: 'one core' …",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, max=(1 << 31) - 1,
            help="Of the order of trials. Default: that of the results that are there; otherwise a new one.",
            show_default=False,
        ),
    ] = None,
    unixbench_source: Annotated[
        Path | None,
        typer.Option(
            "--unixbench-source", help="A tree of the published UnixBench: it is built, and runs in place of our set.",
            show_default=False,
        ),
    ] = None,
    iozone_source: Annotated[
        Path | None,
        typer.Option(
            "--iozone-source", help="A tree of IOzone: it is built, and does the disk test of efficiency.",
            show_default=False,
        ),
    ] = None,
    netperf_source: Annotated[
        Path | None,
        typer.Option(
            "--netperf-source", help="A tree of netperf: it is built, and does the network tests of efficiency.",
            show_default=False,
        ),
    ] = None,
    inside: Annotated[
        str | None,
        typer.Option(
            "--inside", help="vm:DISK: run the engines of --on within this machine, a system that has them (make "
            "bench-engines builds one), counted on the instruction clock.",
            show_default=False,
        ),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            "--within", min=1.0, max=100_000.0,
            help="Minutes that all of it may take: by what trials cost and then by what they take, tests are left "
            "out for it, and named.",
            show_default=False,
        ),
    ] = None,
    host_name: Annotated[
        str | None,
        typer.Option(
            "--host-name", help="What results call this host. Default: a digest by which it is told from others.",
            show_default=False,
        ),
    ] = None,
    require_kvm: Annotated[
        bool, typer.Option("--require-kvm", help="End with 3 where KVM does not work: machines are to be timed.")
    ] = False,
    image: Annotated[
        str,
        typer.Option("--image", help="The image; it must hold /bench (make bench-image). Its programs run as root."),
    ] = BENCH_IMAGE,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help=f"Where results go ({RESULTS} in the working folder; those that are there of the "
            "same host go on), or the page of report.",
            show_default=False,
        ),
    ] = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="report: Markdown tables in the published layout, of what was measured in full."
        ),
    ] = False,
    data_n: Annotated[
        bool,
        typer.Option(
            "--data-n", help="report: Markdown tables of instances at once within a machine, beside the published work."
        ),
    ] = False,
    weights: Annotated[
        str | None, typer.Option("--weights", help="What advise ranks by: SUITE=NUMBER, joined by commas.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every sample as CSV here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:  # fmt: skip
    """Run the same container in every way, and compare the costs: natively, in engines, in systems."""
    if what == "report" and published:
        return saved_results.published(files or [], output)
    if what == "report" and data_n:
        return saved_results.data_n(files or [], output)
    if what == "report":
        return saved_results.report(files or [], output, csv, json=json)
    if what == "compare":
        return saved_results.compare(files or [], json=json)
    if what == "advise":
        return saved_results.advise(files or [], weights, runtimes_of(on) if on is not None else (), json=json)
    if files:
        raise UserInputError(f"{what} takes no files", hint="vmtailor bench report FILE... reads results")
    at_once = inside is not None and count is not None and variant in (None, VIRTUAL)
    options = BenchOptions(
        suites=suites_of(what),
        runtimes=runtimes_of(on),
        image=image,
        out=output or Path(RESULTS),
        store=Store(),
        counts=counts_of(count or COUNTS, least=rounds_boot.NONE if at_once else 1),
        repeat=repeat_of(repeat, quick=quick, at_once=at_once),
        quick=quick,
        only=tuple(name.strip() for name in only.split(",")) if only else (),
        unixbench_source=unixbench_source,
        iozone_source=iozone_source,
        netperf_source=netperf_source,
        require_kvm=require_kvm,
        within_s=None if within is None else 60.0 * within,
        inside=inside or "",
        variant=variant or "",
        seed=seed,
        host_name=plain(host_name or "")[:64],
        at_once=at_once,
    )
    found = measure(options)
    printed.note(f"written: {options.out}")
    if csv is not None:
        saved_results.write_csv(found, csv)
    if json:
        printed.json_bytes([to_bytes(found)])
    else:
        show(found)


def suites_of(what: str) -> tuple[SuiteName, ...]:
    """Return the suites that are named. Raises UserInputError."""
    names = list(SUITES) if what == "all" else [name.strip() for name in what.split(",")]
    for name in names:
        if name not in SUITES:
            raise UserInputError(
                f"no suite {name[:64]!r} is known",
                hint=f"known: {_SUITES}, all; or report, compare and advise of results",
            )
    return tuple(SuiteName(name) for name in dict.fromkeys(names))


def runtimes_of(on: str | None) -> tuple[str, ...]:
    """Return the runtimes that are named, each once."""
    names = description.known() if on is None else [name.strip() for name in on.split(",") if name.strip()]
    if not names:
        raise UserInputError("--on names no runtime", hint=f"known: {', '.join(description.known())}")
    return tuple(dict.fromkeys(names))


def counts_of(text: str, least: int = 1) -> tuple[int, ...]:
    """Return numbers of instances, ascending; `least`: 0 where there may be none. Raises UserInputError."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = [-1]
    if not found or found[0] < least or found[-1] > 256:
        raise UserInputError(
            f"--n {text[:64]!r} is no list of numbers from {least} to 256",
            hint="for example --n 1,2,4,8; 0 is the machine itself, with --inside vm:DISK",
        )
    return tuple(found)


def repeat_of(asked: int | None, *, quick: bool, at_once: bool) -> int:
    """Return how often a cell is measured. Raises UserInputError where once would say nothing: on the wall clock."""
    if asked == 1 and not at_once:
        raise UserInputError(
            "--repeat 1 says nothing of a time that varies", hint="2 at least; 1 is for --n with --inside"
        )
    return asked or (1 if at_once else QUICK_REPEAT if quick else REPEAT)
