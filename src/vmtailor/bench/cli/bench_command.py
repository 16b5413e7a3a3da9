# SPDX-License-Identifier: Apache-2.0
"""`vmtailor bench`: run the same container in every way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from vmtailor.base import output as printed
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.records import to_bytes
from vmtailor.base.text import plain
from vmtailor.bench.cli import saved_results
from vmtailor.bench.cli.result_tables import show
from vmtailor.bench.model.job import BENCH_IMAGE, BenchJob
from vmtailor.bench.model.results import VIRTUAL, SuiteName
from vmtailor.bench.run import growth_boot, machine_counts, rounds_boot
from vmtailor.bench.run.launch import bench as measure
from vmtailor.bench.run.launch import seed_of
from vmtailor.bench.runtimes import description
from vmtailor.bench.suites.registry import SUITES
from vmtailor.model import option_values
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON, PAGE_OUT
from vmtailor.model.option_rows import REPEAT as REPEAT_ROW

#: Repetitions of a cell, and of the quick form.
REPEAT, QUICK_REPEAT = 10, 6
#: Instances at once.
COUNTS = "1,4"
#: Idle instances at once, within a machine.
COUNTS_INSIDE = ",".join(map(str, growth_boot.COUNTS))
RESULTS = "bench.json"
_SUITES = ", ".join(SUITES)


def _list(name: str, help_: str) -> Option:
    """Return the row of an option that takes several words, as one text with commas."""
    return Option(name=name, many=True, commas=True, read=",".join, help=f"{help_} Repeat it, or use commas.")


def _sources(name: str, program: str, use: str) -> Option:
    """Return the row of an option that takes the source of a program that tests are done with."""
    return Option(name=name, type=Path, help=f"Build this tree of {program}, and {use}.")


def bench(
    what: Annotated[
        str,
        Option(
            name="WHAT",
            help=f"Run suites, joined by commas ({_SUITES}, or all); or report, compare or advise of results.",
        ),
    ],
    files: Annotated[
        Sequence[Path], Option(name="FILES", type=Path, many=True, help="Read these results; several merge.")
    ] = (),
    on: Annotated[
        str | None,
        _list(
            "--on",
            "Run in these: names, NAME.toml, vm:stock, vm:FOLDER (bundle); with --inside, kvm:FOLDER, "
            "libkrun:FOLDER. Default: all but machines.",
        ),
    ] = None,
    count: Annotated[
        str | None,
        _list("--n", f"Start this many instances at once. Default: {COUNTS}; with --inside {COUNTS_INSIDE}, and 0 is "
            "the machine itself."),
    ] = None,
    repeat: Annotated[
        int | None,
        replace(
            REPEAT_ROW, short="", former=(), most=10000,
            help=f"Measure each cell this many times. Default: {REPEAT}; {QUICK_REPEAT} with --quick; 1 with --n and "
            "--inside, 2 of what is counted.",
        ),
    ] = None,
    quick: Annotated[bool, Option(name="--quick", type=bool, help="Run for a tenth of the time, and say so.")] = False,
    only: Annotated[str | None, _list("--only", "Run these tests of the suites.")] = None,
    variant: Annotated[
        str | None,
        Option(
            name="--variant",
            help="Run this variant of tests that have several: cold, 'with limits', or part of its words.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Option(
            name="--seed", type=int, least=0, most=(1 << 31) - 1,
            help="Order trials by this seed. Default: that of the results that are there; otherwise a new one.",
        ),
    ] = None,
    unixbench_source: Annotated[
        Path | None, _sources("--unixbench-source", "the published UnixBench", "run it in place of our set")
    ] = None,
    iozone_source: Annotated[
        Path | None, _sources("--iozone-source", "IOzone", "do the disk test of efficiency with it")
    ] = None,
    netperf_source: Annotated[
        Path | None, _sources("--netperf-source", "netperf", "do the network tests of efficiency with it")
    ] = None,
    inside: Annotated[
        Sequence[str],
        Option(
            name="--inside", many=True, commas=True,
            help="Run engines and monitors within vm:DISK, a system that has them, or vm:BUNDLE of its fit; count "
            "instructions. Repeat it, or use commas.",
        ),
    ] = (),
    one_boot: Annotated[
        bool,
        Option(
            name="--one-boot", type=bool,
            help="With --inside, count the units of all tests in one boot for each repetition: sooner, and not by "
            "subsystem.",
        ),
    ] = False,
    starts: Annotated[
        int,
        Option(
            name="--starts", type=int, least=1, most=100,
            help="With --inside, count this many starts of an engine in each boot, one after the other. Default: 1.",
        ),
    ] = 1,
    program: Annotated[
        Sequence[tuple[str, Path]],
        Option(
            name="--program", metavar="NAME=PATH", many=True, read=option_values.named_files,
            help="Use this program for a monitor within the machine, such as firecracker=PATH. Repeat it.",
        ),
    ] = (),
    within: Annotated[
        float | None,
        Option(
            name="--within", type=float, least=1.0, most=100_000.0,
            help="Take at most this many minutes: leave out tests to fit, and name them.",
        ),
    ] = None,
    host_name: Annotated[
        str | None,
        Option(name="--host-name", help="Name this host in results. Default: a digest that tells it from others."),
    ] = None,
    require_kvm: Annotated[
        bool,
        Option(name="--require-kvm", type=bool, help="End with 3 if KVM does not work: machines are to be timed."),
    ] = False,
    image: Annotated[
        Sequence[str],
        Option(
            name="--image", many=True, commas=True,
            help="Use this image, which must hold /bench (make bench-image), as root; compare several with the first. "
            "Repeat it, or use commas.",
        ),
    ] = (BENCH_IMAGE,),
    out: Annotated[
        Path | None,
        replace(PAGE_OUT, help=f"Write results, or the page of report, to this file. Default: {RESULTS}, which grows."),
    ] = None,
    published: Annotated[
        bool,
        Option(
            name="--published", type=bool, help="Report Markdown tables in the published layout, of whole measurements."
        ),
    ] = False,
    data_n: Annotated[
        bool,
        Option(
            name="--data-n", type=bool,
            help="Report Markdown tables of instances at once within a machine, beside the published work.",
        ),
    ] = False,
    weights: Annotated[str | None, _list("--weights", "Rank advice by these weights: SUITE=NUMBER.")] = None,
    csv: Annotated[
        Path | None,
        Option(name="--csv-file", type=Path, former=("--csv",), help="Write every sample as CSV to this file."),
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """Run the same container in every way, and compare the costs: natively, in engines, in systems."""
    if what == "report" and published:
        return saved_results.published(files, out)
    if what == "report" and data_n:
        return saved_results.data_n(files, out)
    if what == "report":
        return saved_results.report(files, out, csv, json=json)
    if what == "compare":
        return saved_results.compare(files, json=json)
    if what == "advise":
        return saved_results.advise(files, weights, runtimes_of(on) if on is not None else (), json=json)
    if files:
        raise UserInputError(f"{what} takes no files", hint="vmtailor bench report FILE... reads results")
    at_once = bool(inside) and count is not None and variant in (None, VIRTUAL)
    file = out or Path(RESULTS)
    job = BenchJob(
        suites=suites_of(what),
        runtimes=runtimes_of(on),
        counts=counts_of(count or (COUNTS_INSIDE if inside else COUNTS), least=rounds_boot.NONE if at_once else 1),
        repeat=repeat_of(repeat, quick=quick, at_once=at_once, inside=bool(inside)),
        quick=quick,
        seed=seed_of(seed, file),
        out=str(file),
        reference=image[0],
        only=tuple(name.strip() for name in only.split(",")) if only else (),
        unixbench_source=str(unixbench_source or ""),
        iozone_source=str(iozone_source or ""),
        netperf_source=str(netperf_source or ""),
        within_s=None if within is None else 60.0 * within,
        variant=variant or "",
        host_name=plain(host_name or "")[:64],
        at_once=at_once,
        boots=repeat if inside and repeat else machine_counts.REPEAT,
        one_boot=one_boot,
        starts=starts,
    )
    for one in dict.fromkeys(image):
        asked = replace(job, reference=one)
        found = measure(asked, Store(), insides=tuple(inside), require_kvm=require_kvm, programs=dict(program))
    printed.note(f"written: {file}")
    if csv is not None:
        saved_results.write_csv(found, csv)
    if json:
        printed.json_bytes([to_bytes(found)])
    else:
        show(found)
        if len(set(image)) > 1:
            saved_results.compare((file,), json=False)


def suites_of(what: str) -> tuple[SuiteName, ...]:
    """Return the named suites. Raises UserInputError."""
    names = list(SUITES) if what == "all" else [name.strip() for name in what.split(",")]
    for name in names:
        if name not in SUITES:
            raise UserInputError(
                f"no suite {name[:64]!r} is known",
                hint=f"known: {_SUITES}, all; or report, compare and advise of results",
            )
    return tuple(SuiteName(name) for name in dict.fromkeys(names))


def runtimes_of(on: str | None) -> tuple[str, ...]:
    """Return the named runtimes, each once; without names, all known ones. Raises UserInputError."""
    names = description.known() if on is None else [name.strip() for name in on.split(",") if name.strip()]
    if not names:
        raise UserInputError("--on names no runtime", hint=f"known: {', '.join(description.known())}")
    return tuple(dict.fromkeys(names))


def counts_of(text: str, least: int = 1) -> tuple[int, ...]:
    """Return numbers of instances, ascending. `least`: 0 where the machine itself may be measured. Raises
    UserInputError."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = [-1]
    if not found or found[0] < least or found[-1] > 256:
        raise UserInputError(
            f"--n {text[:64]!r} is not a list of numbers from {least} to 256",
            hint="for example --n 1,2,4,8; 0 is the machine itself, with --inside vm:DISK",
        )
    return tuple(found)


def repeat_of(asked: int | None, *, quick: bool, at_once: bool, inside: bool = False) -> int:
    """Return the number of repetitions of a cell. Raises UserInputError for a single one on the wall clock, where it
    says nothing."""
    if asked == 1 and not (at_once or inside):
        raise UserInputError(
            "--repeat 1 says nothing about a time that varies",
            hint="2 at least; 1 is for --inside, where it is counted",
        )
    return asked or (1 if at_once else QUICK_REPEAT if quick else REPEAT)
