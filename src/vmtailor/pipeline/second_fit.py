# SPDX-License-Identifier: Apache-2.0
"""`refit`: fit a bundle again, with calls refused in runs, with symbols that the user keeps or drops, or on another
kernel.

A bundle may be somebody else's. These parts of it are used: its trace, as evidence; its exercise, without programs of
the host unless the user allows them; the symbols that its user kept or dropped, and those that repair put back. The
image must be in the cache, with the bundle's digest; baseline and source come from the cache or the distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmtailor.analysis.changes import choice, plan_summary
from vmtailor.analysis.changes.plan_summary import PlanDifference
from vmtailor.analysis.ksource import foreign_config
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, regular_files, temporary
from vmtailor.base.text import plain
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.host import bundle_folder, bundle_values
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.kernel import kept_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.drivers.targets import targets
from vmtailor.model import option_values
from vmtailor.model.architecture import named
from vmtailor.model.bundle import BASELINE_CONFIG, OBSERVED, PLAN, RUN
from vmtailor.model.change import Change, Reason
from vmtailor.model.fit_run import FitRun
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.machine import Clock
from vmtailor.model.option import Option, OptionSubject, internal, option, refuse
from vmtailor.model.option_rows import BUNDLE_EXERCISE, DRY_RUN, OUT, TRUST_HOST_COMMANDS
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import ObservedCall, ObservedRun
from vmtailor.model.systems.units import UnitFate
from vmtailor.model.trace import Trace
from vmtailor.pipeline import (
    bundle_files,
    bundle_kernel,
    fit,
    fit_sides,
    kernel_repair,
    measured_machines,
    reverify,
    saved_trace,
    symbol_check,
    system_bundle,
)
from vmtailor.pipeline.image_subject import ImageSeen, assembled
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.reverify import SavedContainer, SavedSystem, VerifyRequest
from vmtailor.pipeline.subject import Findings, Times
from vmtailor.stages import image_fetch as image_stage
from vmtailor.stages.kernel_plan import TARGET_REFERENCE, named_symbols
from vmtailor.stages.measure import CPU_MODEL

#: Longest record of what was refused.
OBSERVED_BYTES = 64 << 20
_TERMINAL = "platform:terminal"


@dataclass(frozen=True)
class RefitRequest:
    """The options of `vmtailor refit`. `options`: the user's, completed from the bundle. A `kernel` in them is another
    kernel, whose baseline is traced anew. `exercise`: the user's own file, whose host commands are run."""

    bundle: Path = option(Option(name="BUNDLE", type=Path, help="Fit this bundle again."))
    options: FitOptions = internal("its fields are rows of their own", factory=FitOptions)
    out: Path | None = option(
        OUT, None, help="Write the new bundle to this folder. Default: the bundle's name, and -refit."
    )
    observed: tuple[Path, ...] = option(
        Option(
            name="--observed", type=Path, many=True, subjects=frozenset({OptionSubject.CONTAINER}),
            help="Add calls that a run was refused, as `run --observed FILE` wrote them. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    exercise: Path | None = option(BUNDLE_EXERCISE, None)
    trust_host_commands: bool = option(
        TRUST_HOST_COMMANDS, False, help=f"{TRUST_HOST_COMMANDS.help[:-1]}, of the new bundle too."
    )
    dry_run: bool = option(DRY_RUN, False, help="Show the plan's difference, and build nothing.")


@dataclass(frozen=True, eq=False)
class Replanned:
    """A plan that is made again. `runs` and `skipped`: programs of the host, as for `verify`. `observed`: all refused
    calls, of this and earlier fits."""

    findings: Findings[Any]
    before: Plan
    after: Plan
    observed: ObservedRun | None
    runs: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def difference(self) -> PlanDifference:
        return plan_summary.between(self.before, self.after)


@contextmanager
def prepare(request: RefitRequest) -> Iterator[Replanned]:
    """Read the bundle, and plan again. Builds nothing; boots only the baseline of another kernel, to trace it.

    Raises UserInputError for a damaged bundle, a missing image or source, and refused calls of another bundle. Raises
    HostError when this host cannot have the baseline's kernel."""
    temporary.require_usable()
    loaded = bundle_folder.load(request.bundle, request.options.store)
    kind = OptionSubject.SYSTEM if loaded.is_system else OptionSubject.CONTAINER
    refuse(request, kind, request.bundle)
    refuse(request.options, kind, request.bundle)
    before = loaded.record(Plan, PLAN)
    verified = VerifyRequest(
        request.bundle, Clock.INSTRUCTIONS, exercise=request.exercise, trust_host_commands=request.trust_host_commands
    )
    if request.options.kernel:  # else nothing long comes before the source is read
        symbol_check.require_known(request.options)
    options = _options(request.options, loaded, before)
    if loaded.is_system:
        system = reverify.saved_system(verified, loaded)

        def source() -> SourceTree:
            return bundle_kernel.source_of(loaded, options.store, options.distribution)

        with system_bundle.read(options, loaded, system.exercise, source) as findings:
            yield _replanned(findings, loaded, before, system)
        return
    observed = _observed(request, loaded)
    container = reverify.saved_container(verified, bundle_folder.container_of(loaded))
    found = _of_container(request, options, loaded, container)
    found.seen = replace(found.seen, observed=observed.calls if observed is not None else ())
    yield replace(_replanned(found, loaded, before, container), observed=observed)


def _of_container(
    request: RefitRequest, options: FitOptions, loaded: BundleFolder, saved: SavedContainer
) -> Findings[ImageSeen]:
    """Return what is known of a container's fit: from the trace in its bundle, or a new one on another kernel."""
    image = image_stage.kept_for(loaded, options.store)
    if image is None:
        raise UserInputError(
            f"the image of {request.bundle} ({plain(loaded.bundle.image_reference)}) is not in the cache",
            hint="fit the image again, with --keep for what it lacks",
        )
    kernel, source = _kernel(loaded, loaded.trace, options)
    inputs = assembled(options, image, saved.exercise, kernel, source)
    if request.options.kernel:
        return inputs.trace()
    record, folder, name = saved_trace.of_container(loaded)
    return inputs.known(record, folder, name=name)


def _replanned(
    findings: Findings[Any], loaded: BundleFolder, before: Plan, saved: SavedContainer | SavedSystem
) -> Replanned:
    """Plan again, with what repair put back in the fit before."""
    kconfig = findings.tree.kconfig
    _require_harmless(kconfig, before, loaded.path / PLAN)
    findings.repaired = tuple(
        _before(change) for change in kernel_repair.repairs_of(before) if kconfig.known(change.id)
    )
    return Replanned(
        findings=findings,
        before=before,
        after=findings.planned(),
        observed=None,
        runs=saved.runs,
        skipped=saved.skipped,
    )


def refit(prepared: Replanned) -> FitRun:
    """Build, verify, measure, and write the bundle."""
    subject, options = prepared.findings.subject, prepared.findings.options
    bundle_files.require_writable(options.out)
    if subject.copied is not None:
        bundle_files.require_room(options.out, subject.copied)
    with temporary.held_folder(subject.scratch) as made:
        with measured_machines.ahead() as begun:
            begun.begin(fit_sides.baseline_asked(subject))
            findings = subject.counted(prepared.findings)
            run = fit.finished(findings, Times(), made, begun)
        if prepared.observed is not None:
            records.save(prepared.observed, made / OBSERVED)
        return bundle_files.place(made, options.out, options.command, subject.users_disk(run))


def cpu_model_of(loaded: BundleFolder) -> str:
    """Return the CPU model that a bundle was fitted with; empty where a system's does not say. Raises UserInputError
    for what is none."""
    if not loaded.is_system:
        return loaded.trace.cpu_model
    model = dict(loaded.record(FitRun, RUN).tailored.conditions).get(CPU_MODEL, "")
    return bundle_values.require_cpu_model(model, loaded.path / RUN) if model else ""


def fitted_with(loaded: BundleFolder, asked: FitOptions) -> FitOptions:
    """Return the options, with the machine that the bundle was fitted with."""
    bundle = loaded.bundle
    return replace(
        asked, reference=bundle.image_reference, architecture=bundle.architecture, machine=bundle.machine,
        memory_bytes=bundle.memory_bytes, memory_asked=True, cpus=bundle.cpus, cpu_model=cpu_model_of(loaded),
        root=bundle.root_format,
    )  # fmt: skip


def _options(asked: FitOptions, loaded: BundleFolder, plan: Plan) -> FitOptions:
    """Return the options that the bundle was fitted with, its margins among them, and those that the user adds."""
    keep = [f"{c.id}={c.value}" for c in plan.symbols if _by_user(c, "keep") and c.id not in named_symbols(asked.drop)]
    drop = [c.id for c in plan.symbols if _by_user(c, "drop") and c.id not in named_symbols(asked.keep)]
    mask, tries = _beside(loaded)
    return replace(
        fitted_with(loaded, asked), privileged=loaded.bundle.privileged, mask=mask, tries=tries,
        terminal=any(r.reference == _TERMINAL for c in plan.symbols for r in c.reasons),
        margins=plan.margins if asked.margins is None else asked.margins,
        targets=tuple(dict.fromkeys((*_targets(plan), *asked.targets))),
        keep=tuple(dict.fromkeys((*keep, *asked.keep))), drop=tuple(dict.fromkeys((*drop, *asked.drop))),
    )  # fmt: skip


def _beside(loaded: BundleFolder) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The units of a system that its fit has masked, and the words and units that it has changed: they are tried once
    more. Files that it has put on the disk are there."""
    if not loaded.is_system:
        return (), ()
    run = loaded.record(FitRun, RUN)
    kept = [one for one in run.tuned.kept if not any(s.is_file for s in one.settings)] if run.tuned is not None else []
    masked = run.units.of(UnitFate.MASKED) if run.units is not None else ()
    others = {setting.name for change in kept for setting in change.settings}
    tries = tuple(one.id for one in kept)
    choice.for_system(tries)
    return option_values.unit_names([name for name in masked if name not in others]), tries


def _targets(plan: Plan) -> tuple[str, ...]:
    """Return the targets of `export` that a plan was made for. Raises UserInputError for what no target is called."""
    references = (reason.reference for one in plan.symbols for reason in one.reasons)
    names = dict.fromkeys(one.removeprefix(TARGET_REFERENCE) for one in references if one.startswith(TARGET_REFERENCE))
    return tuple(targets.chosen(name).text for name in names)


def _by_user(change: Change, what: str) -> bool:
    return any(reason.reference == f"user:{what}" for reason in change.reasons)


def _before(change: Change) -> Change:
    """Return a repair of the fit before, whose trials are on that fit's record."""
    reasons = tuple(Reason(r.cause, r.reference, f"in the fit before, {r.text}") for r in change.reasons)
    return replace(change, reasons=reasons)


def _require_harmless(kconfig: Kconfig, plan: Plan, where: Path) -> None:
    """Require that symbols kept by a stranger's plan contain nothing that make would execute."""
    kept = {c.id: c.value for c in plan.symbols if _by_user(c, "keep")}
    foreign_config.harmless(kconfig, kept, str(where))


def _kernel(loaded: BundleFolder, trace: Trace, options: FitOptions) -> tuple[KernelBaseline, SourceTree]:
    """Return the baseline and the source: those of the bundle, or another series'."""
    architecture, store = named(options.architecture), options.store
    if options.kernel:
        kernel = packaged_baseline.provide(options.distribution, architecture, store, options.kernel)
        return kernel, SourceTree(Path(kernel.source_dir), kernel.source_digest)
    wanted = loaded.listed(BASELINE_CONFIG).sha256 if loaded.lists(BASELINE_CONFIG) else ""
    for known in kept_source.baselines(store):
        same = (known.version, known.release) == (loaded.bundle.kernel_version, trace.kernel_release)
        if same and _has_config(known, wanted):
            return known, bundle_kernel.source_of(loaded, store, options.distribution)
    kernel = packaged_baseline.provide(options.distribution, architecture, store, trace.kernel_release)
    return kernel, bundle_kernel.source_of(loaded, store, options.distribution)


def _has_config(kernel: KernelBaseline, sha256: str) -> bool:
    """Return whether the file is there, and has the configuration of this digest, where one is known."""
    parts = (kernel.vmlinuz, kernel.config, kernel.debug_vmlinux, kernel.debug_modules_dir, kernel.modules_dir)
    if not all(Path(path).exists() for path in parts):
        return False
    return not sha256 or hashlib.sha256(Path(kernel.config).read_bytes()).hexdigest() == sha256


def _observed(request: RefitRequest, loaded: BundleFolder) -> ObservedRun | None:
    """Return the refused calls, from the files that the user names and from the bundle."""
    found = []
    if loaded.lists(OBSERVED):
        found.append(loaded.record(ObservedRun, OBSERVED, OBSERVED_BYTES))
    for path in request.observed:
        data = regular_files.read_regular(path, "what was refused,", OBSERVED_BYTES)
        hint = "vmtailor run --observed FILE BUNDLE writes it"
        one = records.from_bytes(ObservedRun, data, str(path), hint=hint)
        if one.image_digest != loaded.bundle.image_digest:
            raise UserInputError(
                f"{path} was seen in a machine of another image ({plain(one.image_reference[:200])}) than "
                f"{request.bundle}",
                hint="give the record of a run of this bundle",
            )
        found.append(one)
    if not found:
        return None
    return replace(found[-1], calls=_together(found), untold=sum(one.untold for one in found))


def _together(found: Sequence[ObservedRun]) -> tuple[ObservedCall, ...]:
    """Return all calls, those that were known before first, so that references to them stay; each kind once."""
    calls: dict[tuple[str, ...], ObservedCall] = {}
    for one in found:
        for call in one.calls:
            calls.setdefault((call.name, call.arguments, call.error, call.task), call)
    return tuple(calls.values())
