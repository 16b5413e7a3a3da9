# SPDX-License-Identifier: Apache-2.0
"""Changes that the user names for the fit of an image (`fit --try`): each is tried alone on the fitted machine, under
its boot or its load, and those that were better together. They are kept if the proof still passes with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vmtailor.analysis.changes import choice
from vmtailor.analysis.changes.change_catalogue import SPOKEN
from vmtailor.analysis.guests import machine_variants
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.progress import step
from vmtailor.base.text import plural
from vmtailor.booting.bundle_booter import ExercisedBooter
from vmtailor.drivers.kernel import compiler_flags, kernel_patches, load_profile, make
from vmtailor.model.boots.series import JudgedBy
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.change import COMPILED, Cause, Change, ChangeKind, Reason, Setting, Verdict, symbol
from vmtailor.model.exercise import Exercise
from vmtailor.model.fit_run import PATCHED, Warning
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.plan import Plan
from vmtailor.model.systems.kept_changes import Tuning, words_of
from vmtailor.model.trial import Purpose, Trial
from vmtailor.pipeline import bundle_kernel, judged_changes, kernel_trials, profiled_kernel
from vmtailor.pipeline.change_means import KernelRequest, Means, applied
from vmtailor.pipeline.machine_testbed import MachineTestbed
from vmtailor.pipeline.subject import Findings, Fitted
from vmtailor.pipeline.trials import Trials
from vmtailor.stages import build, kernel_plan
from vmtailor.stages.measure import BOOT_S

#: Kinds that a bundle keeps.
_KEPT = (ChangeKind.CONFIG, ChangeKind.COMMAND_LINE, ChangeKind.RUNTIME, *COMPILED)
#: The code of warnings of the changes that a machine has, and those tried in vain.
TRIED = "tried"


@dataclass(frozen=True)
class NamedChanges:
    """Changes named for one fit. `boots`: of each machine."""

    found: Findings[Any]
    fitted: Fitted
    exercise: Exercise
    boots: int

    def chosen(self) -> tuple[Fitted, Tuning]:
        """Return the machine with the changes that were better and pass together, and the result of each."""
        options = self.found.options
        wanted = choice.for_bundle(options.tries, self.fitted.plan.kernel_version)
        for one in wanted:
            for setting in one.change.settings:
                if setting.kind not in _KEPT:
                    raise UserInputError(
                        f"{one.change.id} changes the {SPOKEN[setting.kind]}, which a fitted bundle does not keep",
                        hint="vmtailor boot BUNDLE --try tries it",
                    )
        judged_by = judged_changes.of_image(options, self.exercise)
        with (
            step(f"{plural(len(wanted), 'change', 'changes')}, each alone, then together"),
            temporary.held_folder(self.found.subject.scratch) as folder,
        ):
            trials = Trials(self._testbed(folder, judged_by), self.found.trials)
            judged = trials.each_alone_then_together([one.change for one in wanted])
        alone = [change for change in judged if change.id != Purpose.TOGETHER]
        together = next((change for change in judged if change.id == Purpose.TOGETHER), None)
        better = [change for change in alone if change.verdict is Verdict.BETTER]
        if together is not None and together.verdict is not Verdict.BETTER:
            better = sorted(better, key=lambda change: change.measured[0].value)[:1]
        return self._proven(better, alone)

    def _proven(self, better: Sequence[Change], alone: Sequence[Change]) -> tuple[Fitted, Tuning]:
        """Return the machine with the better changes if the whole proof passes, and the machine as it was if not."""
        if not better:
            return self.fitted, Tuning((), tuple(alone))
        fitted = self.with_changes(better)
        passed = fitted.verification.passed
        trial = Trial(
            number=len(self.found.trials) + 1, purpose=Purpose.TOGETHER, changes=tuple(better), passed=passed,
            failures=fitted.verification.failures, build_seconds=0.0, verify_seconds=0.0,
        )  # fmt: skip
        self.found.trials.append(trial)
        if not passed:
            return self.fitted, Tuning((), tuple(alone))
        return fitted, Tuning(tuple(better), tuple(change for change in alone if change not in better))

    def _testbed(self, folder: Path, judged_by: tuple[JudgedBy, ...]) -> MachineTestbed:
        return MachineTestbed(
            subject=self.found.subject.reference, base=self._counted, workload=self._workload, out=folder,
            booter=self._booter, make=partial(self._made, folder),
            times=self.boots, judged_by=judged_by[0], also=judged_by[1] if len(judged_by) > 1 else None,
        )  # fmt: skip

    @property
    def _counted(self) -> Machine:
        return machine_variants.counted(replace(self.fitted.machine, clock=Clock.INSTRUCTIONS))

    @property
    def _workload(self) -> Exercised:
        run = Run(exercise=self.exercise, key=FIXED_KEY)
        return Exercised(run, BOOT_S + 4 * self.exercise.ready.timeout_s).unhurried(Clock.INSTRUCTIONS)

    @property
    def _booter(self) -> ExercisedBooter:
        return ExercisedBooter(self.found.subject.natives, self.fitted.machine.architecture)

    def _with_profile(self, asked: KernelRequest) -> KernelRequest:
        """Return a request with the profile of the exercise's load named by its digest, where it asks for one."""
        if asked.flags.get(load_profile.FLAG) != load_profile.LOAD:
            return asked
        subject, base = self.found.subject, self._counted
        with temporary.held_folder(subject.scratch) as folder:
            load = profiled_kernel.counted_load(self._booter, base, self._workload, subject.natives, folder)
            return profiled_kernel.named(asked, lambda one: (self._plan(one), self.found.source), subject.store, load)

    def _made(self, folder: Path, changes: Sequence[Change], machine: Machine) -> tuple[Machine, tuple[Change, ...]]:
        compiled = bundle_kernel.compiled_with(self.fitted.plan)
        config = {change.id: change.value for change in self.fitted.plan.symbols}
        means = Means(folder, Path(), self._rebuilt, config, compiled=compiled, tuned=True)
        return applied(changes, machine, means)

    def _rebuilt(self, asked: KernelRequest) -> Path:
        return Path(kernel_trials.built(self.found, self._plan(asked)).image)

    def _plan(self, asked: KernelRequest) -> Plan:
        """Return the plan with other symbols, flags and patches. Raises UserInputError for those that cannot be had."""
        asked = self._with_profile(asked)
        why = Reason(Cause.USER, "user:try", "asked for, and better")
        now = {change.id: change.value for change in self.fitted.plan.symbols}
        compiled = bundle_kernel.compiler_changes(self.fitted.plan, asked)
        llvm = make.llvm_of(replace(self.fitted.plan, changes=compiled).flags)
        if not llvm and all(now.get(name, "n") == value for name, value in asked.symbols.items()):
            made = self.fitted.plan
        else:
            # What is off already is no change, and a choice is made by the one that is on.
            wanted = [(name, value) for name, value in asked.symbols.items() if now.get(name, "n") != value]
            changes = [symbol(name, value, why, before=now.get(name)) for name, value in wanted]
            try:
                made = self._found_under(llvm).planned(changes)
            except BuildError as error:
                raise UserInputError(error.message, hint=error.hint) from error
        kept = (change for change in made.changes if not any(one.kind in COMPILED for one in change.settings))
        other = replace(made, changes=(*kept, *compiled))
        kernel_patches.require_for(other.patches, made.kernel_version, made.architecture)
        compiler_flags.require_known(other.flags, build.toolchain_of(other))
        return other

    def _found_under(self, llvm: str) -> Findings[Any]:
        """Return the findings with the symbols that the source has under LLVM of this suffix, or under gcc."""
        if not llvm:
            return self.found
        chosen = (make.CLANG + llvm,)
        compiler_flags.require_known(chosen, make.Toolchain.of(self.found.subject.architecture, flags=chosen))
        source, subject = self.found.source, self.found.subject
        with step("facts of the kernel source"):
            tree = kernel_plan.read_tree(
                source.path, self.found.tree.facts.kernel_version, source.digest, subject.store,
                architecture=subject.architecture.name, llvm=llvm,
            )  # fmt: skip
        return replace(self.found, tree=tree)

    def with_changes(self, changes: Sequence[Change]) -> Fitted:
        """Return the machine with changes that were tried, verified. Its plan has each of them, with what it saved."""
        settings = [setting for change in changes for setting in change.settings]
        of_kind = {
            kind: {setting.name: setting.value for setting in settings if setting.kind is kind} for kind in _KEPT
        }
        symbols = {name: "n" if value is None else value for name, value in of_kind[ChangeKind.CONFIG].items()}
        asked = KernelRequest(symbols, of_kind[ChangeKind.COMPILER], of_kind[ChangeKind.PATCH])
        made = self._plan(asked)
        before = self.fitted.machine
        words = applied(
            [replace(change, settings=tuple(s for s in change.settings if s.kind in _WORDS)) for change in changes],
            before, Means(Path(), Path(), tuned=True),
        )[0].words  # fmt: skip
        there = {word.id for word in made.words}
        reason = Reason(Cause.USER, "user:try", f"asked for, and better: {', '.join(change.id for change in changes)}")
        more = tuple(_word(word, reason) for word in words if word not in before.words and word not in there)
        made = replace(made, changes=(*made.changes, *more))
        kernel = kernel_trials.built(self.found, made)
        machine = self.found.machine_of(made, kernel)
        return Fitted(made, kernel, machine, self.found.verified(made, machine))


_WORDS = (ChangeKind.COMMAND_LINE, ChangeKind.RUNTIME)


def _word(word: str, reason: Reason) -> Change:
    name, equals, value = word.partition("=")
    setting = Setting(ChangeKind.COMMAND_LINE, name, value if equals else "")
    return Change(word, "", (setting,), (reason,))


def warnings(plan: Plan, tuning: Tuning) -> tuple[Warning, ...]:
    """Return warnings: patches of the kernel's source, the changes that the machine has, and those tried in vain."""
    found = [
        Warning(PATCHED, f"the kernel's source is patched, which is unsafe: {name}, with which "
                f"{kernel_patches.every()[name].gives_up}")
        for name, _ in plan.patches
    ]  # fmt: skip
    if tuning.kept:
        each = "; ".join(f"{change.id} ({', '.join(words_of(change))})" for change in tuning.kept)
        found.append(Warning(TRIED, f"kept, since they were better and the proof passes with them: {each}"))
    if tuning.others:
        each = "; ".join(f"{change.id} ({tuning.outcome(change)})" for change in tuning.others)
        found.append(Warning(TRIED, f"tried, and not kept: {each}"))
    return tuple(found)
