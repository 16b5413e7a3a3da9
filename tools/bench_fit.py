# SPDX-License-Identifier: Apache-2.0
"""`make bench-fit`: fit the examples, print what the figures are held against, write the documents of `fit --json`.

    tools/bench_fit.py [--only lighttpd] [--arch NAME] [--margins none default] [--cold] [--peer NAME=CONFIG]
                       [--removals 10 --seed 1] [--markdown]

Each image is fitted twice through the command line: the first time takes what the cache does not have, the second must
find everything there. Then its machine is run: what it prints and ends with, or answers through a published port.
`--peer` builds another project's configuration from the same source and measures it in the same way. `--removals` takes
kept symbols out, one at a time, and sees whether the exercise notices. All of it can be interrupted: what was finished
is found again.

OUT gets {image: document}, the image with its margin where that is not none; OUT with `-details.json` gets times, what
the machine did, peers and removals.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import bench_fit_started
import msgspec
from bench_fit_started import Answer
from bench_fit_table import Peer, Removal, Result, Timing, show_all
from bench_page import say

from vmtailor.analysis.changes import plan_summary
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.cost.side_figures import KernelFacts
from vmtailor.analysis.ksource.reasons import why_set
from vmtailor.base.cache.store import Store, cache_root, digest, locked
from vmtailor.base.errors import BuildError, GuestError, VmtailorError
from vmtailor.base.files import dot_config, records
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.drivers.kernel import make
from vmtailor.model.architecture import Architecture, named, presumed
from vmtailor.model.bundle import RUN
from vmtailor.model.change import Cause
from vmtailor.model.fit_run import FitRun
from vmtailor.model.kernel import Configured, KernelFiles
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline import fit_sides, kernel_repair, measured_machines
from vmtailor.pipeline.image_subject import ImageSeen, prepare
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import Findings, Fitted
from vmtailor.stages.build import collect, located

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: Goals are for this one; the others are printed beside it.
GOALS_OF = "lighttpd"
#: What a machine of ours cannot be booted without; a peer that lacks one gets it, and the table says so.
NEEDED = (
    "PVH", "VIRTIO_MMIO", "VIRTIO_MMIO_CMDLINE_DEVICES", "VIRTIO_BLK", "SERIAL_8250_CONSOLE", "TMPFS", "OVERLAY_FS",
)  # fmt: skip
#: Margins: the one that goals are for, and what nobody who gives none gets.
NONE, DEFAULT = "none", "default"
#: What the examples' machines do when they are run.
ANSWERS = {
    "hello": Answer("Hello from a machine made to measure.", exit_code=3),
    "lighttpd": Answer("made to measure", port=80),
    "nginx": Answer("made to measure", port=80),
}
#: Kinds of the cache of which a cold fit makes one more each.
RESULTS = ("trace", "kernel", measured_machines.COUNTED)
#: Kinds of the cache that hold what was downloaded.
DOWNLOADED = ("packages", "baselines", "kernel-image", "kernel-debug", "kernel-source")
ROOT_SYMBOL = {RootFormat.EROFS: "EROFS_FS", RootFormat.SQUASHFS: "SQUASHFS", RootFormat.EXT4: "EXT4_FS"}


# --- fitting ---


def vmtailor(*arguments: str, stdout: Any = subprocess.PIPE) -> tuple[bytes, float, int]:
    """Run the program; its progress goes to our standard error. Returns output, seconds, most memory in bytes."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "vmtailor", *arguments], stdout=stdout)
    try:
        output = process.stdout.read() if process.stdout is not None else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
    if process.returncode not in (0, 1):
        raise SystemExit(f"vmtailor {' '.join(arguments)} failed with {process.returncode}")
    return output, time.monotonic() - started, usage.ru_maxrss * 1024


def spent_s() -> float:
    """Seconds of processor time, of all processors, that what we started and waited for has taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def results_in_cache() -> list[int]:
    """How many traces, kernels and measurements there are: a cold fit makes one more of each."""
    return [len([*(cache_root() / kind).glob("[0-9a-f]*")]) for kind in RESULTS]


def cold_cache(folder: Path, name: str) -> Path:
    return folder.absolute() / "cold-cache" / name


def start_cold(downloads: Path, cold: Path) -> None:
    """From here on, use a cache that has what was downloaded, and no result. Each image has its own: nothing of
    another one's kernel helps to compile it."""
    if cold.exists():
        shutil.rmtree(cold)
    (cold / "vmtailor").mkdir(parents=True)
    for kept in downloads.iterdir():
        if kept.name.startswith(DOWNLOADED):
            (cold / "vmtailor" / kept.name).symlink_to(kept)
    os.environ["XDG_CACHE_HOME"] = str(cold)


def called(name: str, arch: str | None) -> str:
    """What an example's image and bundle are called."""
    return f"{name}-{arch}" if arch else name


def margin_words(margin: str) -> list[str]:
    """What `fit` is told of a margin; of its default one, nothing."""
    return [] if margin == DEFAULT else ["--margin", margin]


def fit(name: str, folder: Path, boots: int, arch: str | None = None, margin: str = NONE) -> Result:
    """Build one example, fit it twice and run it; for another processor, where one is named."""
    layout, exercise = folder / "images" / called(name, arch), EXAMPLES / name / "exercise.toml"
    say(f"=== {called(name, arch)}, margin {margin}")
    target = ["--arch", arch] if arch else []
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), name, str(layout), *target], check=True)
    image = [f"oci:{layout}", "--exercise", str(exercise), *margin_words(margin)]
    bundle = folder / "bench" / (called(name, arch) + ("" if margin == NONE else f"-{margin}"))
    bundle.parent.mkdir(parents=True, exist_ok=True)
    argv = ["fit", *image, "--json", "--repeat", str(boots), "-o", str(bundle)]
    before = results_in_cache()
    worked = spent_s()
    _, first_s, _ = vmtailor(*argv)
    processor_s = spent_s() - worked
    cold = all(now > then for then, now in zip(before, results_in_cache(), strict=True))
    say("=== the second time")
    document, second_s, _ = vmtailor(*argv)
    _, planning_s, planning_bytes = vmtailor("plan", *image, "--json", stdout=subprocess.DEVNULL)
    run = records.load(FitRun, bundle / RUN)
    timing = Timing(first_s, second_s, planning_s, planning_bytes, cold, processor_s)
    did = bench_fit_started.did(bundle, ANSWERS.get(name))
    return Result(name, json.loads(document), run, timing, margin=margin, started=did)


def found_again(name: str, folder: Path, boots: int, arch: str | None) -> tuple[Findings[ImageSeen], Fitted]:
    """What the fit was made of, from the cache."""
    options = FitOptions(
        reference=f"oci:{folder / 'images' / called(name, arch)}",
        out=folder / "bench" / called(name, arch),
        exercise_file=EXAMPLES / name / "exercise.toml",
        boots=boots,
        budget=1000,
        margins=(),
    )
    findings = prepare(options).trace()
    return findings, kernel_repair.fit_kernel(findings)


# --- peers ---


def peer(findings: Findings[ImageSeen], fitted: Fitted, name: str, config: Path) -> Peer:
    """Build a configuration file from the source of the fit and measure it on the same machine, root and exercise."""
    subject, store, row = findings.subject, findings.subject.store, findings.subject.architecture
    work = store.root / "kernel-build" / f"peer-{digest(name, subject.source.digest)[:16]}"
    with locked(work.with_suffix(".lock")):
        added, remark = _complete(findings, fitted, config, work)
        key = digest("peer", subject.source.digest, make.Toolchain.of(row).describe(), work / ".config")
        files = _built(store, key, subject.source.path, work, name, row)
    kernel = records.load(KernelFiles, files / "kernel.json")
    kernel = located(kernel, files)
    machine = findings.machine_of(fitted.plan, kernel)
    symbols = dot_config.parse(Path(kernel.config).read_text())
    kconfig = findings.tree.kconfig
    enabled = [symbol for symbol, value in symbols.items() if value == "y"]
    facts = KernelFacts(
        label=name,
        file=Path(row.kernel.file).name,
        symbols_y=len(enabled),
        symbols_prompted=sum(1 for symbol in enabled if kconfig.known(symbol) and kconfig.prompted(symbol)),
        bytes=kernel.image_bytes,
        compressed_bytes=kernel.packed_bytes,
    )
    table = SymbolTable.parse(Path(kernel.system_map).read_text(), row.name)
    try:
        found = measured_machines.measured(subject.asked(machine, table, name))
    except GuestError as error:
        say(error.details)
        return Peer(name, None, added, f"{remark}; {error.message}: {error.details.partition(chr(10))[0]}")
    where = fit_sides.files_of(findings.costs) if findings.costs is not None else None
    return Peer(name, fit_sides.side_of(facts, name, machine, found, where), added, remark)


def _complete(findings: Findings[ImageSeen], fitted: Fitted, config: Path, work: Path) -> tuple[tuple[str, ...], str]:
    """Configure `work` from the file; add what our machine needs. Returns what was added, and a remark."""
    source, root = findings.source.path, fitted.plan.root_format
    row = named(fitted.plan.architecture)
    work.mkdir(parents=True, exist_ok=True)
    as_it_is = dict(make.configure_file(source, work, config, make.Toolchain.of(row)).symbols)
    wanted = [*NEEDED, ROOT_SYMBOL[root], *(("VIRTIO_NET",) if fitted.plan.network else ())]
    missing = tuple(name for name in wanted if as_it_is.get(name) != "y")
    if not missing:
        return (), "as it is"
    whole = work / "whole.config"
    whole.write_text(config.read_text() + "".join(f"CONFIG_{name}=y\n" for name in missing))
    now = dict(make.configure_file(source, work, whole, make.Toolchain.of(row)).symbols)
    lost = [name for name in missing if now.get(name) != "y"]
    if lost:
        raise BuildError(f"{config} cannot have {', '.join(lost)}", hint="this peer cannot boot on our machine")
    cannot = f"cannot mount the root: {ROOT_SYMBOL[root]} is not set" if ROOT_SYMBOL[root] in missing else "cannot boot"
    return missing, f"as it is it {cannot}; measured with {', '.join(missing)} added"


def _built(store: Store, key: str, source: Path, work: Path, title: str, row: Architecture) -> Path:
    def fill(folder: Path) -> None:
        symbols = dot_config.parse((work / ".config").read_text())
        kept = tuple((name, value) for name, value in symbols.items() if value != "n")
        configured = Configured(str(work), str(source), str(work / ".config"), kept, ())
        compiled = make.compile_kernel(
            configured, (row.kernel.target,), make.Toolchain.of(row), title=f"compiling {title}'s kernel"
        )
        records.save(collect(row, configured, compiled, folder), folder / "kernel.json")

    return store.get("kernel", key, fill)


# --- removals ---


def drawn(fitted: Fitted, count: int, seed: int) -> list[str]:
    """Kept symbols with a prompt, drawn with a fixed seed."""
    names = sorted(c.id for c in fitted.plan.symbols if c.setting.chosen and c.is_kept)
    return random.Random(seed).sample(names, min(count, len(names)))


def removal(findings: Findings[ImageSeen], fitted: Fitted, name: str) -> Removal:
    """Build and verify the kernel without one symbol."""
    symbol = fitted.plan.symbol(name)
    assert symbol is not None
    cause = plan_summary.cause_of(symbol)
    if cause is Cause.POLICY:
        return Removal(name, "policy", "policy", symbol.reasons[0].text)
    label = str(cause or "none")
    try:
        made = findings.planned(kernel_repair.repairs_of(fitted.plan), drop=(name,))
        left = made.symbol(name)
        if left is not None and left.is_kept:
            reason = why_set(findings.tree.kconfig, name)
            return Removal(name, label, "cannot be removed alone", reason.text if reason else "something sets it")
        before = {c.id for c in fitted.plan.symbols if c.setting.chosen and c.is_kept}
        after = {c.id for c in made.symbols if c.setting.chosen and c.is_kept}
        gone = tuple(sorted(before - after - {name}))
        trial = kernel_repair.without(findings, fitted, (name,))
    except BuildError as error:
        return Removal(name, label, "breaks", f"it cannot be built: {error.message}")
    verification = trial.verification
    if verification.passed:
        return Removal(name, label, "unneeded", "the exercise passes without it", gone)
    return Removal(name, label, "breaks", verification.failures[0], gone)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fit the examples and print the table of figures.")
    names = sorted(path.parent.name for path in EXAMPLES.glob("*/image.toml"))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="some of the examples")
    parser.add_argument(
        "--margins", nargs="+", default=[NONE], metavar="M", help="fit with each: none, default, or as fit takes them"
    )
    parser.add_argument("--arch", help="fit for this processor, as vmtailor names it; this host's by default")
    parser.add_argument("--out", type=Path, default=Path("build/bench-fit.json"), help="where the documents go")
    parser.add_argument("--boots", type=int, default=3, help="boots of each side")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=CONFIG", help="another configuration file")
    parser.add_argument("--removals", type=int, default=0, metavar="N", help="remove so many kept symbols, one by one")
    parser.add_argument("--seed", type=int, default=1, help="which symbols are drawn")
    parser.add_argument("--deep", default=GOALS_OF, metavar="NAME", help="the example for peers and removals")
    parser.add_argument("--cold", action="store_true", help="begin each with a cache that has nothing but downloads")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    return parser.parse_args()


def deepened(result: Result, chosen: argparse.Namespace, folder: Path) -> Result:
    """Peers and removals of one image."""
    findings, fitted = found_again(result.name, folder, chosen.boots, chosen.arch)
    removals = []
    for number, name in enumerate(drawn(fitted, chosen.removals, chosen.seed), 1):
        say(f"=== {result.name} without {name} ({number} of {chosen.removals})")
        removals.append(removal(findings, fitted, name))
        say(f"    {removals[-1].outcome}: {removals[-1].why}")
    peers = []
    for text in chosen.peer:
        name, _, config = text.partition("=")
        say(f"=== {name}'s configuration")
        try:
            peers.append(peer(findings, fitted, name, Path(config)))
        except BuildError as error:
            peers.append(Peer(name, None, (), error.message))
    return replace(result, peers=tuple(peers), removals=tuple(removals))


def save(results: Sequence[Result], out: Path) -> None:
    write_atomic(out, json.dumps({r.title: r.document for r in results}, indent=1).encode())
    details = {
        r.title: {
            "timing": asdict(r.timing),
            "started": None if r.started is None else asdict(r.started),
            "peers": msgspec.to_builtins(r.peers),
            "removals": [asdict(x) for x in r.removals],
        }
        for r in results
    }
    write_atomic(out.with_name(f"{out.stem}-details.json"), json.dumps(details, indent=1).encode())


def main() -> None:
    chosen = arguments()
    folder = chosen.out.parent
    folder.mkdir(parents=True, exist_ok=True)
    downloads = cache_root()
    results: list[Result] = []
    try:
        for name in chosen.only:
            if chosen.cold:
                start_cold(downloads, cold_cache(folder, called(name, chosen.arch)))
            for margin in chosen.margins:
                results.append(fit(name, folder, chosen.boots, chosen.arch, margin))
                save(results, chosen.out)
        if chosen.peer or chosen.removals:
            if chosen.cold:
                os.environ["XDG_CACHE_HOME"] = str(cold_cache(folder, called(chosen.deep, chosen.arch)))
            results = [deepened(r, chosen, folder) if r.title == chosen.deep else r for r in results]
            save(results, chosen.out)
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\n{error.details}") from error
    missed = show_all(results, chosen.markdown, chosen.arch or presumed().name)
    for goal in missed:
        of_it = goal.startswith(f"{GOALS_OF}:")
        print(f"goal missed: {goal}" + ("" if of_it else f" (the goals are for {GOALS_OF})"))
    if not missed:
        print("all goals met")


if __name__ == "__main__":
    main()
