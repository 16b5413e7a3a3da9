# SPDX-License-Identifier: Apache-2.0
"""Changes beyond the kernel that the user names (`fit --try`), tried on the fitted machine: each alone until it is
ready or under its load, and the better ones together through the whole exercise. Those that pass are kept."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.changes import choice
from vmtailor.analysis.changes.change_catalogue import Candidate
from vmtailor.analysis.changes.repair import minimise
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, temporary
from vmtailor.base.progress import step
from vmtailor.base.text import plural
from vmtailor.booting.booter import boot
from vmtailor.booting.instruction_boots import Settled
from vmtailor.model.boots.series import JudgedBy
from vmtailor.model.boots.timeline import Timeline
from vmtailor.model.boots.workload import Until
from vmtailor.model.change import Change, ChangeKind, Effect, Verdict, exact
from vmtailor.model.fit_run import Warning
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.systems.kept_changes import Tuning, words_of
from vmtailor.model.systems.system import InitKind
from vmtailor.model.trial import Purpose, Trial
from vmtailor.pipeline import boot_trials, judged_changes
from vmtailor.pipeline.boot_trials import Shown
from vmtailor.pipeline.change_means import Means, applied
from vmtailor.pipeline.machine_testbed import JUDGED
from vmtailor.pipeline.subject import Findings, Fitted
from vmtailor.pipeline.systems import disk_files
from vmtailor.pipeline.systems.driven_system import DrivenSystem, SystemSeen
from vmtailor.pipeline.systems.system_testbed import COMMAND_LINE_BYTES, SystemTestbed
from vmtailor.pipeline.trials import TrialRequest, Trials
from vmtailor.stages import system_verify

_TIMELINE = "timeline.json"


def chosen(system: DrivenSystem, found: Findings[SystemSeen], fitted: Fitted) -> tuple[Fitted, Tuning]:
    """Return the machine with the changes that were better and pass together, and the result of each change."""
    wanted = choice.for_system(system.options.tries, system.options.files)
    if not wanted:
        return fitted, Tuning()

    def make(changes: Sequence[Change]) -> tuple[Machine, tuple[Change, ...]]:
        return made(system, fitted.machine, changes)

    by = judged_changes.of_system(system.options, system.exercise)
    loaded = any(one.of_load for one in by)
    with step("one boot that shows more of itself, for what is expected"):
        seen = _seen(system, fitted) if by[0] is JudgedBy.READY else None
    predict = boot_trials.by_seconds(seen, JudgedBy.READY) if seen is not None else _nothing
    whole = SystemTestbed(system, found.seen, fitted, make)
    alone = replace(whole, until=Until.SHUTDOWN if loaded else Until.READY, judged_by=by)
    how = f"through its load ({' and '.join(by)})" if loaded else "until ready"
    with step(f"{plural(len(wanted), 'change', 'changes')} beside the kernel, each alone {how}"):
        judged = Trials(alone, found.trials).each_alone(boot_trials.expected(wanted, predict))
    better = {change.id: change for change in judged if change.verdict is Verdict.BETTER}
    best, names = _together(found.trials, replace(whole, judged_by=by), better)
    kept = tuple(better[name] for name in names)
    return best, Tuning(kept, tuple(change for change in judged if change.id not in names))


def _nothing(one: Candidate) -> tuple[Effect, ...]:
    """Return that nothing is expected."""
    return ()


def made(system: DrivenSystem, machine: Machine, changes: Sequence[Change]) -> tuple[Machine, tuple[Change, ...]]:
    """Return the machine with words, units and files changed. Raises UserInputError for a change without effect, one
    without room on the command line, and one for another init."""
    init = system.system.init
    if init.kind is not InitKind.SYSTEMD:
        for change in changes:
            if any(setting.kind is ChangeKind.UNIT for setting in change.settings):
                raise UserInputError(f"it masks a unit of systemd, and the init is {init.program}")
    write = functools.partial(disk_files.written, system)
    changed, done = applied(changes, machine, Means(system.scratch, system.natives.small_init, write=write))
    if changed == machine:
        raise UserInputError("the machine is like this already")
    if len(" ".join(changed.words).encode()) > COMMAND_LINE_BYTES:
        raise UserInputError(f"the command line has no room for it ({COMMAND_LINE_BYTES:,} bytes)")
    return changed, done


def _together(ledger: list[Trial], testbed: SystemTestbed, better: dict[str, Change]) -> tuple[Fitted, tuple[str, ...]]:
    """Return all that were better, through the whole exercise; half of them where that fails."""
    kept: list[str] = []

    def ask(names: tuple[str, ...]) -> TrialRequest:
        changes = tuple(replace(better[name], expected=better[name].measured[:1], measured=()) for name in names)
        figure = JUDGED[testbed.judged_by[0]]
        gains = [change.expects(figure) for change in changes]
        expected = sum(one.value for one in gains if one is not None)
        about = replace(
            choice.together(" + ".join(names), changes), expected=(exact(figure, expected, "the sum of each alone"),)
        )
        title = f"trial {len(ledger) + 1}: the exercise with {', '.join(names)}"
        return TrialRequest(changes, (about,), title)

    def passed(_: Fitted, names: tuple[str, ...]) -> None:
        kept[:] = names

    search = minimise(tuple(better), len(better))
    ended = Trials(testbed, ledger).search(search, Purpose.TOGETHER, ask, on_passed=passed)
    return (ended.best if ended.best is not None else testbed.fitted), tuple(kept)


def _seen(system: DrivenSystem, fitted: Fitted) -> Shown | None:
    """Return the timeline of a boot that stamps its units, until it is ready; None where it cannot be had."""
    store, target = system.store, system.target_of(fitted.machine)
    key = system.run_key(target, "timeline to ready, initcalls by name")
    if store.has("system-run", key):
        return Shown(records.load(Timeline, store.path("system-run", key) / _TIMELINE), 1.0)
    with temporary.held_folder(system.scratch) as folder:
        work = system_verify.workload(target, folder, until=Until.READY).unhurried(target.machine.clock)
        booter = Settled(system.natives) if target.machine.clock is Clock.INSTRUCTIONS else boot
        symbols = Path(fitted.kernel.system_map)
        seen = boot_trials.shown(target.machine, work, folder, system.natives, JudgedBy.READY, booter, symbols=symbols)
    if seen is not None:
        timeline = seen.timeline
        store.get("system-run", key, lambda place: records.save(timeline, place / _TIMELINE))
    return seen


def warnings(tuning: Tuning) -> tuple[Warning, ...]:
    """Return warnings: the machine's changes beside its kernel, and those tried in vain."""
    found = []
    if tuning.kept:
        each = "; ".join(f"{change.id} ({', '.join(words_of(change))})" for change in tuning.kept)
        found.append(Warning("tried", f"on the machine beside its kernel, since the exercise passes with them: {each}"))
    if tuning.others:
        each = "; ".join(f"{change.id} ({tuning.outcome(change)})" for change in tuning.others)
        found.append(Warning("tried", f"tried, and not kept: {each}"))
    return tuple(found)
