# SPDX-License-Identifier: Apache-2.0
"""The results of changes beside the kernel that a system's user named."""

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
    """Return the settings of a change in words, without the former ones."""
    return tuple(str(setting) for setting in change.settings if setting.value != setting.before)


@dataclass(frozen=True)
class Tuning:
    """`kept`: those that the machine has now, as each was measured alone; `others`: those that it has not."""

    kept: tuple[Change, ...] = ()
    others: tuple[Change, ...] = ()

    @property
    def files(self) -> dict[str, str | None]:
        """Return the files that the disk has now: path → content, None for a removed one."""
        return {one.name: one.value for change in self.kept for one in change.settings if one.is_file}

    def outcome(self, change: Change) -> str:
        """Return the outcome of one of them, in words."""
        return "kept" if change in self.kept else change.problem or IN_VAIN[change.verdict]
