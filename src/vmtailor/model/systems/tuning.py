# SPDX-License-Identifier: Apache-2.0
"""What came of changes beside the kernel that a system's owner named."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.model.change import Change, Verdict

#: Why a change is not kept, by its verdict.
IN_VAIN = {
    Verdict.SAME: "no difference",
    Verdict.WORSE: "slower",
    Verdict.UNDECIDED: "cannot be told from chance",
    Verdict.BETTER: "faster alone, and the trial with it failed",
}


def words_of(change: Change) -> tuple[str, ...]:
    """Say in words what a change sets or takes away, without what stood there before."""
    return tuple(str(setting) for setting in change.settings if setting.value != setting.before)


@dataclass(frozen=True)
class Tuning:
    """`kept`: those that the machine has now, as each was measured alone; `others`: those that it has not."""

    kept: tuple[Change, ...] = ()
    others: tuple[Change, ...] = ()

    @property
    def files(self) -> dict[str, str | None]:
        """The files that the disk has now: path → content, None where there is none any more."""
        return {one.name: one.value for change in self.kept for one in change.settings if one.is_file}

    def outcome(self, change: Change) -> str:
        """Say in words what became of one of them."""
        return "kept" if change in self.kept else change.problem or IN_VAIN[change.verdict]
