# SPDX-License-Identifier: Apache-2.0
"""The words of a kernel command line, each with its reason: as `explain` tells them, and as the report lists them."""

from __future__ import annotations

from tests.fakes.fit_run_data import fit_run

from vmtailor.analysis.changes import machine_words
from vmtailor.analysis.explain.answers import Standing
from vmtailor.analysis.explain.system_answers import machine_word_answer
from vmtailor.analysis.guests.machine_variants import common_words
from vmtailor.model.architecture import named, names
from vmtailor.model.change import Cause
from vmtailor.stages.report.report_page import page

RUN = fit_run()
WORDS = ("root=/dev/vda", "ro", "quiet", "nokaslr", "audit=0")


def test_every_word_that_machines_are_told_has_a_reason() -> None:
    for name in names():
        for change in machine_words.explained(RUN.plan, common_words(named(name))):
            assert change.reasons[0].cause is not Cause.USER, change.id


def test_a_word_is_explained_by_itself_and_by_its_name() -> None:
    for what in ("root=/dev/vda", "root", "quiet", "nokaslr"):
        found = machine_word_answer(RUN, what, WORDS)
        assert found is not None and found.standing is Standing.IN and found.reasons[0].cause is not Cause.USER
    own = machine_word_answer(RUN, "audit=0", WORDS)
    assert own is not None and "system's own" in own.reasons[0].text


def test_a_word_that_is_not_there_is_out_and_no_other_is_known() -> None:
    out = machine_word_answer(RUN, "rootwait", WORDS)
    assert out is not None and out.standing is Standing.OUT and "--append rootwait" in out.brings_in[0]
    assert machine_word_answer(RUN, "flock", WORDS) is None
    assert machine_word_answer(RUN, "rootwait", ()) is None


def test_the_report_lists_the_words_or_has_no_table() -> None:
    text = page(RUN, WORDS)
    assert all(f"<code>{word}</code>" in text for word in WORDS)
    assert ("Kernel command line" in page(RUN)) == bool(RUN.plan.words)
