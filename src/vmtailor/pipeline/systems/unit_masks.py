# SPDX-License-Identifier: Apache-2.0
"""Units that a system does without, masked on its command line. Its graph tells the candidates; they are tried in
halves with the exercise as judge. Nothing is masked silently, and the disk is not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vmtailor.analysis.changes.repair import minimise
from vmtailor.analysis.guests.attended_boots import UNITS
from vmtailor.analysis.systems import unit_choice, unit_graph
from vmtailor.base.text import plural
from vmtailor.drivers.guest.attendant_volume import MOST_SAID
from vmtailor.model.change import UNITS as FIGURE_UNITS
from vmtailor.model.change import Cause, Change, ChangeKind, Effect, Figure, Reason, Setting
from vmtailor.model.fit_run import Warning
from vmtailor.model.machine import Machine
from vmtailor.model.systems.units import UnitChoice, UnitFate, UnitsMode, UnitStanding
from vmtailor.model.trial import Purpose, Trial
from vmtailor.pipeline.subject import AskUnits, Findings, Fitted
from vmtailor.pipeline.systems.driven_system import DrivenSystem, SystemSeen
from vmtailor.pipeline.systems.system_testbed import COMMAND_LINE_BYTES, SystemTestbed
from vmtailor.pipeline.trials import TrialRequest, Trials
from vmtailor.stages.system_watch import chunks_of

#: Number of units masked together at first.
GROUP = 8
_MASK = "systemd.mask="
#: Names that a warning lists.
_MOST_NAMED = 30


def candidates(system: DrivenSystem, seen: SystemSeen) -> UnitChoice:
    """Return the candidates, from the run on the system's own kernel and from its trace."""
    graph = unit_graph.parse(seen.before.report.file(UNITS), MOST_SAID)
    asked = unit_choice.asked_sockets(chunks_of(seen.folder / seen.record.requests_file))
    named = system.options.mask
    rows = unit_choice.standings(graph, system.exercise, asked, unit_choice.load(), named)
    return UnitChoice(system.options.units, rows, graph.cut, unit_choice.unmatched(graph, named))


def chosen(
    system: DrivenSystem, found: Findings[SystemSeen], fitted: Fitted, ask: AskUnits | None = None
) -> tuple[Fitted, UnitChoice]:
    """Return the machine with the unneeded units masked, and the decision on each unit. Named units are tried first.
    With `keep`, and after the answer no, no other unit is touched."""
    choice = candidates(system, found.seen)
    rows = {one.name: one for one in choice.units}
    named = [name for name in choice.of(UnitFate.CANDIDATE) if rows[name].named]
    others = [name for name in choice.of(UnitFate.CANDIDATE) if not rows[name].named]
    wanted = choice.mode is UnitsMode.TRIM or (
        choice.mode is UnitsMode.ASK and ask is not None and ask([rows[name] for name in others])
    )
    names = (*named, *(others if wanted else ()))
    if not names:
        return fitted, choice
    fits = with_room(fitted.machine.words, names)

    def make(changes: Sequence[Change]) -> tuple[Machine, tuple[Change, ...]]:
        masks = [setting.name for change in changes for setting in change.settings]
        return masked(fitted.machine, masks), tuple(changes)

    testbed = SystemTestbed(system, found.seen, fitted, make)
    fates = dict.fromkeys((name for name in names if name not in fits), UnitFate.NO_ROOM)
    best = _searched(found.trials, testbed, {name: rows[name] for name in fits}, fates)
    return best, replace(choice, units=tuple(_told(one, fates) for one in choice.units))


def with_room(words: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of `names`, first ones first, whose masks fit on the command line beside `words`."""
    left = COMMAND_LINE_BYTES - len(" ".join(words).encode())
    found = []
    for name in names:
        size = len(f" {_MASK}{name}".encode())
        if size <= left:
            found.append(name)
            left -= size
    return tuple(found)


def masked(machine: Machine, names: Sequence[str]) -> Machine:
    """Return the machine with these units masked, beside those that it masks itself."""
    words = (_MASK + name for name in names)
    return replace(machine, words=(*machine.words, *(word for word in words if word not in machine.words)))


def _searched(
    ledger: list[Trial], testbed: SystemTestbed, rows: Mapping[str, UnitStanding], fates: dict[str, UnitFate]
) -> Fitted:
    """Mask in groups, halve what fails; `fates` is filled in."""
    gone: list[str] = []

    def ask(names: tuple[str, ...]) -> TrialRequest:
        new = [name for name in names if name not in gone]
        about = change_of([rows[name] for name in new])
        changes = (*(change_of([rows[name]]) for name in gone), about)
        number = len(ledger) + 1
        return TrialRequest(changes, (about,), f"units, trial {number}: without {', '.join(new)} ({len(gone)} masked)")

    def passed(result: Fitted, names: tuple[str, ...]) -> None:
        testbed.before = testbed.ran(result.machine).run
        gone[:] = names
        fates.update(dict.fromkeys(names, UnitFate.MASKED))

    def failed(_: Fitted | None, names: tuple[str, ...]) -> None:
        new = [name for name in names if name not in gone]
        if len(new) == 1:
            fates[new[0]] = UnitFate.NEEDED

    search = minimise(tuple(rows), GROUP)
    ended = Trials(testbed, ledger).search(search, Purpose.UNNEEDED, ask, on_passed=passed, on_failed=failed)
    return ended.best if ended.best is not None else testbed.fitted


def change_of(units: Sequence[UnitStanding]) -> Change:
    """Return the change that masks units together, with the most that it can gain: the time of their starts on the
    system's own kernel."""
    names = [one.name for one in units]
    most_s = sum(one.start_s or 0.0 for one in units)
    source = "what their starts took on the system's own kernel, at most"
    expected = Effect(
        figure=Figure.READY, value=-most_s, low=-most_s, high=0.0, unit=FIGURE_UNITS[Figure.READY], source=source
    )
    return Change(
        ", ".join(names),
        f"mask {plural(len(names), 'unit', 'units')}",
        tuple(Setting(ChangeKind.UNIT, name, "masked") for name in names),
        tuple(Reason(Cause.USER, "user:units", f"{one.name}: {one.reason}") for one in units),
        expected=(expected,),
    )


_TOLD = {
    UnitFate.MASKED: "{}, and the exercise passes without it",
    UnitFate.NEEDED: "{}, and a trial without it failed",
    UnitFate.NO_ROOM: f"the command line has no room for its mask ({COMMAND_LINE_BYTES:,} bytes)",
}


def _told(one: UnitStanding, fates: Mapping[str, UnitFate]) -> UnitStanding:
    fate = fates.get(one.name)
    why = one.reason if one.named else "nobody wanted it"
    return one if fate is None else replace(one, fate=fate, reason=_TOLD[fate].format(why))


def with_tuned(choice: UnitChoice, kept: Sequence[Change]) -> UnitChoice:
    """Return the choice of units, with those that the machine's changes beside its kernel mask."""
    by = {one.name: change.id for change in kept for one in change.settings if one.kind is ChangeKind.UNIT}
    rows = [
        replace(one, fate=UnitFate.MASKED, reason=f"--try {by[one.name]}, and the exercise passes without it")
        if one.name in by
        else one
        for one in choice.units
    ]
    return replace(choice, units=tuple(rows))


def warnings(choice: UnitChoice) -> tuple[Warning, ...]:
    """Return warnings about units: those masked, those that could be, and those without room on the command line."""
    sentences = (
        (UnitFate.MASKED, "masked on the command line, since the exercise passes without them: {}"),
        (UnitFate.CANDIDATE, "nobody in the exercise wanted these units; nothing was done about them: {}"),
        (UnitFate.NO_ROOM, "the command line has no room for the masks of these units, which stay: {}"),
    )
    found = [Warning("units", text.format(_listed(choice.of(fate)))) for fate, text in sentences if choice.of(fate)]
    wanted = [one for one in choice.units if one.fate is UnitFate.WANTED and one.named]
    found += [Warning("units", f"--mask {one.name}: it stays, since {one.reason}") for one in wanted]
    if choice.unmatched:
        text = f"--mask {', '.join(choice.unmatched)}: no unit that could be masked and is called so started"
        found.append(Warning("units", text))
    if choice.cut:
        found.append(Warning("units", "the system has more units than could be read; the others stay as they are"))
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
