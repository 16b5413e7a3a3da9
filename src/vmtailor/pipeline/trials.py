# SPDX-License-Identifier: Apache-2.0
"""The engine of trials: it applies changes, runs the results, has them judged, and records every trial.

The testbed defines what changes apply to, and what a run is. The engine has three uses of it: one set of changes, a
search that asks for sets until it knows, and each change alone followed by all that were better together."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from vmtailor.analysis.changes import choice
from vmtailor.analysis.changes.effects import TrialRun, judge
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.base.progress import step
from vmtailor.model.change import Change, Effect, Verdict, exact
from vmtailor.model.trial import Purpose, Trial

Made = TypeVar("Made")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Ran(Generic[Result]):
    """One of several results: its judgement, and the testbed's own record of it. `before`: what it is judged against,
    where that is not what all are."""

    run: TrialRun
    result: Result
    before: TrialRun | None = None


class Testbed(Protocol[Made, Result]):
    """A place where changes are tried."""

    def apply(self, changes: Sequence[Change]) -> tuple[Made, tuple[Change, ...]]:
        """Return the changed object, and the changes with the values that stood there before. Raises UserInputError or
        BuildError for impossible changes."""
        ...

    def run(self, made: Mapping[str, Made]) -> tuple[TrialRun, Mapping[str, Ran[Result]]]:
        """Run each of the changed objects, in turn where that is fair. Return the result without them, and the result
        of each."""
        ...


@dataclass(frozen=True)
class Tried(Generic[Result]):
    """A trial with its result; None if there was none."""

    trial: Trial
    result: Result | None


@dataclass(frozen=True)
class TrialRequest:
    """A set that a search asks to try: all changes to apply, and those that the trial is about."""

    changes: tuple[Change, ...]
    about: tuple[Change, ...]
    title: str


@dataclass(frozen=True)
class Found(Generic[Result]):
    """The answer of a search: the last result that passed, the last result of all, and whether the search ended with an
    answer."""

    best: Result | None
    last: Result | None
    answered: bool


@dataclass
class Trials(Generic[Made, Result]):
    """The trials of changes on one testbed. `ledger`: every trial so far."""

    testbed: Testbed[Made, Result]
    ledger: list[Trial] = field(default_factory=list)

    def attempt(
        self, purpose: Purpose, changes: Sequence[Change], about: Sequence[Change] | None = None
    ) -> Tried[Result]:
        """Apply changes together and run the result. `about`: the changes that the trial is recorded for. Without a
        change there is no trial but a first machine, and an error is raised."""
        (tried,) = self._attempts(purpose, {str(purpose): (tuple(changes), tuple(changes if about is None else about))})
        return tried

    def search(
        self,
        search: Generator[tuple[str, ...], bool, tuple[str, ...] | None],
        purpose: Purpose,
        ask: Callable[[tuple[str, ...]], TrialRequest | None],
        *,
        most: int | None = None,
        on_passed: Callable[[Result, tuple[str, ...]], None] = lambda result, names: None,
        on_failed: Callable[[Result | None, tuple[str, ...]], None] = lambda result, names: None,
    ) -> Found[Result]:
        """Try the sets that a search asks for, and tell it whether each passed, until it knows, or `most` trials are on
        record. `ask` makes names changes; None from it counts as a set that does not pass."""
        answer: bool | None = None
        best: Result | None = None
        last: Result | None = None
        while most is None or len(self.ledger) < most:
            try:
                names = search.send(answer)  # type: ignore[arg-type]
            except StopIteration as stop:
                return Found(best, last, stop.value is not None)
            answer = False
            asked = ask(names)
            if asked is None:
                continue
            with step(asked.title) as shown:
                tried = self.attempt(purpose, asked.changes, asked.about)
                if not tried.trial.passed:
                    shown.fail()
            answer = tried.trial.passed
            last = tried.result if tried.result is not None else last
            if answer and tried.result is not None:
                best = tried.result
                on_passed(tried.result, names)
            else:
                on_failed(tried.result, names)
        return Found(best, last, best is not None)

    def each_alone(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Try every change alone. Return each with its effects and a verdict, or with its problem."""
        alone = self._attempts(Purpose.ALONE, {change.id: ((change,), (change,)) for change in changes})
        return tuple(change for tried in alone for change in tried.trial.changes)

    def each_alone_then_together(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Try every change alone, then all that were better together. Return each with its effects and a verdict, or
        with its problem."""
        judged = self.each_alone(changes)
        good = [change for change in judged if change.verdict is Verdict.BETTER]
        if len(good) < 2:
            return judged
        whole = replace(
            choice.together(str(Purpose.TOGETHER), good),
            does=", ".join(change.id for change in good),
            expected=_sum([change.expected for change in good]),
        )
        (last,) = self._attempts(Purpose.TOGETHER, {whole.id: (tuple(good), (whole,))})
        return (*judged, *last.trial.changes)

    def _attempts(
        self, purpose: Purpose, asked: Mapping[str, tuple[tuple[Change, ...], tuple[Change, ...]]]
    ) -> list[Tried[Result]]:
        """Apply each set of changes, then run all that could be had."""
        made: dict[str, Made] = {}
        about: dict[str, tuple[Change, ...]] = {}
        problems: dict[str, str] = {}
        seconds: dict[str, float] = {}
        for name, (changes, noted) in asked.items():
            started = time.monotonic()
            about[name] = noted
            try:
                made[name], applied = self.testbed.apply(changes)
                about[name] = _with_before(noted, applied)
            except (UserInputError, BuildError) as error:
                if not changes:
                    raise
                problems[name] = error.message
            seconds[name] = time.monotonic() - started
        started = time.monotonic()
        before, ran = self.testbed.run(made)
        each_s = (time.monotonic() - started) / max(1, len(made))
        found = []
        for name, changes in about.items():
            failures = (problems[name],) if name in problems else ran[name].run.failures
            judged = tuple(
                replace(change, expected=(), problem=problems[name])
                if name in problems
                else judge(change, ran[name].before or before, ran[name].run)
                for change in changes
            )
            trial = Trial(
                number=len(self.ledger) + 1,
                purpose=purpose,
                changes=judged,
                passed=not failures,
                failures=failures,
                build_seconds=seconds[name] if name in made else 0.0,
                verify_seconds=each_s if name in made else 0.0,
            )
            self.ledger.append(trial)
            found.append(Tried(trial, ran[name].result if name in ran else None))
        return found


def _with_before(noted: Sequence[Change], applied: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes that a trial is about, their settings as they were applied."""
    found = {change.id: change for change in applied}
    return tuple(
        replace(change, settings=found[change.id].settings) if change.id in found else change for change in noted
    )


def _sum(expected: Sequence[tuple[Effect, ...]]) -> tuple[Effect, ...]:
    """Return the expected saving of several together, when each has an expectation."""
    if not all(expected):
        return ()
    first = expected[0][0]
    return (exact(first.figure, sum(effects[0].value for effects in expected), "the sum"),)
