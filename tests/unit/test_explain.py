# SPDX-License-Identifier: Apache-2.0
"""Why something is in a bundle, or out."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.fit_run_data import fit_run
from typer.testing import CliRunner

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import answers, explanation
from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.analysis.explain.explanation import Explanation
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.explain import explain, show
from vmtailor.cli.fit_record import TraceLines, load_run
from vmtailor.cli.report import report
from vmtailor.cli.signature import of_verb
from vmtailor.model.architecture import named
from vmtailor.model.change import Cause, Change, Figure, Reason, exact, symbol
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength
from vmtailor.model.fit_run import FitRun
from vmtailor.pipeline.known_source import newest_source, source_for

RUN = fit_run()


def ask(what: str, run: FitRun = RUN) -> Explained:
    found = answers.answer(run, what, symbol_catalogue.load(), demand_rules.load())
    assert found is not None, what
    return found


def shown(found: Explained, folder: Path) -> str:
    out = io.StringIO()
    show(found, TraceLines(folder), TerminalConsole(file=out, width=160))
    return out.getvalue()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle with a record and a trace of 500 lines."""
    records.save(RUN, tmp_path / "run.json")
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "trace.json").write_text('{"schema": "vmtailor/trace/3", "requests_file": "requests.log"}')
    lines = [f"1 call({number}) = 0" for number in range(1, 501)]
    lines[3] = "a file separator \x1c and a line separator \u2028 end no line"
    lines[411] = "7 epoll_create1(EPOLL_CLOEXEC) = 5 \x1b[31m"
    (tmp_path / "trace" / "requests.log").write_text("\n".join(lines) + "\0\0")
    return tmp_path


@pytest.mark.parametrize("what", ["EPOLL", "CONFIG_EPOLL", "epoll"])
def test_a_demanded_symbol_shows_its_place_in_the_trace(what: str, bundle: Path) -> None:
    found = ask(what)
    assert (found.kind, found.standing) == (NameKind.SYMBOL, Standing.IN)
    text = shown(found, bundle)
    assert "trace:requests:412" in text and "epoll_create1(EPOLL_CLOEXEC) = 5" in text
    assert "\x1b" not in text


def test_a_dependency_is_followed_to_a_direct_cause() -> None:
    found = ask("BLOCK")
    assert [name for name, _ in found.chain] == ["BLOCK", "VIRTIO_BLK"]
    assert found.chain[-1][1].reference == "platform:root-disk"
    assert "BLOCK" in ask("VIRTIO_BLK").related


def test_a_symbol_without_a_prompt_that_ran_is_out_too() -> None:
    """It was in the baseline, which nobody could have known if only symbols with a prompt were on record."""
    evidence = (Evidence(EvidenceKind.CODE, "ecc_point_mult", Strength.RAN, "coverage:ecc_point_mult", 7),)
    gone = dataclasses.replace(
        symbol("CRYPTO_ECC", "n", before="m", chosen=False), evidence=evidence,
        expected=(exact(Figure.TRACE_INSTRUCTIONS, -568_000_000),),
    )  # fmt: skip
    plan = dataclasses.replace(RUN.plan, changes=(*RUN.plan.changes, gone))
    found = ask("CRYPTO_ECC", dataclasses.replace(RUN, plan=plan))
    assert found.standing is Standing.OUT and "its code ran on the baseline" in found.summary
    assert gone in plan.gone and gone not in plan.left_out  # repair could not set it


def of_processor(architecture: str, changes: Sequence[Change]) -> FitRun:
    """The run, had it been of another processor, with these changes."""
    plan = dataclasses.replace(RUN.plan, architecture=architecture, changes=tuple(changes))
    return dataclasses.replace(RUN, plan=plan)


@pytest.mark.parametrize(
    ("architecture", "name", "words"),
    [
        ("mips64el", "STRICT_KERNEL_RWX", "no page table maps"),
        ("mips64el", "CONFIG_KVM_GUEST", "no paravirtualisation"),
        ("mips64el", "vmap_stack", "no guard pages"),
        ("arm64", "ARM64_SSBD", "no symbol since 5.10"),
    ],
)
def test_what_no_kernel_of_a_processor_has_says_why(architecture: str, name: str, words: str) -> None:
    run = of_processor(architecture, [c for c in RUN.plan.changes if c.id != name.removeprefix("CONFIG_").upper()])
    found = ask(name, run)
    assert found.kind is NameKind.SYMBOL and found.standing is Standing.OUT
    assert words in found.summary and named(architecture).title in found.summary


def test_a_record_of_a_processor_that_is_not_known_is_explained_all_the_same() -> None:
    run = of_processor("abacus", RUN.plan.changes)
    assert answers.answer(run, "KVM_GUEST", symbol_catalogue.load(), demand_rules.load()) is not None
    assert answers.answer(run, "ARM64_SSBD", symbol_catalogue.load(), demand_rules.load()) is None


def test_protection_that_is_left_out_says_why_beside_what_would_bring_it_in() -> None:
    gone = dataclasses.replace(RUN.plan.gone[0], id="RANDOMIZE_BASE")
    run = of_processor("arm64", [gone, *RUN.plan.changes])
    found = ask("RANDOMIZE_BASE", run)
    assert "nokaslr" in dict(found.facts)["as protection"] and found.brings_in


def test_circles_of_dependencies_end() -> None:
    def needing(name: str, of: str) -> Change:
        return symbol(name, "y", Reason(Cause.DEPENDENCY, f"symbol:{of}", "x"))

    plan = dataclasses.replace(RUN.plan, changes=(needing("A", "B"), needing("B", "A")))
    assert ask("A", dataclasses.replace(RUN, plan=plan)).chain == ()


def test_a_symbol_that_ran_says_what_would_bring_it_in() -> None:
    found = ask("USERFAULTFD")
    assert found.standing is Standing.OUT and found.brings_in
    smp = ask("SMP")
    assert any("cpus >=2" in way for way in smp.brings_in), smp.brings_in
    cgroups = ask("CGROUPS")
    assert any("/sys/fs/cgroup" in way for way in cgroups.brings_in)


def test_a_symbol_that_is_switched_off_says_why() -> None:
    found = ask("MODULES")
    assert found.standing is Standing.OFF and found.reasons[0].reference == "policy:no-modules"


def test_initcalls_functions_calls_words_and_files() -> None:
    assert ask("inet_init").standing is Standing.IN
    gone = ask("acpi_init")
    assert gone.standing is Standing.OUT and "58" in gone.facts[0][1] and "ACPI" in gone.related
    assert ask("memset_orig").kind is NameKind.FUNCTION
    call = ask("eventfd2")
    assert call.kind is NameKind.CALL and call.related == ("EVENTFD",)
    assert ask("sendfile").kind is NameKind.CALL
    assert ask("quiet").kind is NameKind.WORD and ask("root").kind is NameKind.WORD
    assert "never opened" in ask("/usr/bin/perl").summary
    assert ask("crypto/algapi.c").standing is Standing.OUT
    assert ask("net/socket.c").standing is Standing.IN


KNOWN = Explanation(
    "IO_URING",
    True,
    "Enable IO uring support",
    ("init/Kconfig:1745",),
    dependency="EXPERT",
    would_add=("IO_URING", "IO_WQ"),
    brought_in_by=("system call io_uring_setup", *(f"system call x{i}" for i in range(20))),
)


def test_the_tree_makes_ways_in_exact() -> None:
    found = explanation.with_tree(ask("IO_URING"), KNOWN)
    assert any("io_uring_setup" in way and "and 13 more" in way for way in found.brings_in)
    assert found.brings_in[-1].endswith("--keep IO_URING (would also set IO_WQ)")
    assert dict(found.facts)["prompt"] == "Enable IO uring support"
    impossible = explanation.with_tree(ask("IO_URING"), dataclasses.replace(KNOWN, would_add=()))
    assert "cannot have it" in impossible.brings_in[-1]


def test_a_symbol_that_only_the_tree_knows() -> None:
    found = explanation.outside_baseline(dataclasses.replace(KNOWN, name="XFS_QUOTA"))
    assert found.standing is Standing.OUT and "not in the baseline" in found.summary


def test_a_cache_without_the_source_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (Store().root / "baselines").mkdir(parents=True)
    (Store().root / "baselines" / "x.json").write_text("{}")
    assert source_for(None, "6.12.117") is None and newest_source() is None


def test_typing_errors_find_the_nearest_names() -> None:
    assert answers.answer(RUN, "EPOL", symbol_catalogue.load(), demand_rules.load()) is None
    assert answers.nearest(RUN, "CONFIG_EPOL")[0] == "EPOLL"
    assert "SERIAL_8250_CONSOLE" in answers.nearest(RUN, "serial_8250")
    assert answers.nearest(RUN, "") == ()


@given(st.text())
def test_any_question_has_an_answer_or_none(what: str) -> None:
    answers.answer(RUN, what, symbol_catalogue.Catalogue(()), demand_rules.Rules())
    assert len(answers.nearest(RUN, what)) <= 5


@pytest.mark.parametrize(
    "reference", ["trace:requests:0", "trace:requests:501", "trace:other:1", "policy:x", "requests:x", ""]
)
def test_no_quotation_where_there_is_no_line(bundle: Path, reference: str) -> None:
    assert TraceLines(bundle).quote(reference) is None


def test_a_trace_that_names_a_file_elsewhere_is_not_followed(bundle: Path) -> None:
    (bundle / "secret").write_text("not to be shown\n" * 500)
    record = bundle / "trace" / "trace.json"
    record.write_bytes(record.read_bytes().replace(b'"requests.log"', b'"../secret"'))
    assert TraceLines(bundle).quote("trace:requests:1") is None


def app(function: Callable[..., None]) -> typer.Typer:
    made = typer.Typer()
    made.command()(of_verb(function.__name__, function))
    return made


def test_the_verb_prints_one_document(bundle: Path) -> None:
    result = CliRunner().invoke(app(explain), [str(bundle), "EPOLL", "--json"])
    document = json.loads(result.stdout)
    assert next(iter(document)) == "schema" and document["standing"] == "in"
    assert document["reasons"][0]["line"].startswith("7 epoll_create1")


def test_without_a_name_it_gives_the_overview(bundle: Path) -> None:
    result = CliRunner().invoke(app(explain), [str(bundle)], env={"COLUMNS": "160"})
    assert result.exit_code == 0 and "demanded" in result.stdout and "INOTIFY_USER" in result.stdout
    document = json.loads(CliRunner().invoke(app(explain), [str(bundle), "--json"]).stdout)
    assert document["symbols"]["repair"] == ["INOTIFY_USER"]


def test_wrong_names_and_wrong_folders_are_the_users_errors(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = {"XDG_CACHE_HOME": str(bundle)}
    result = CliRunner().invoke(app(explain), [str(bundle), "EPOL"], env=elsewhere)
    assert isinstance(result.exception, UserInputError) and "EPOLL" in result.exception.hint
    with pytest.raises(UserInputError, match="not a bundle"):
        load_run(tmp_path_factory.mktemp("empty"))
    with pytest.raises(UserInputError, match="does not exist"):
        load_run(tmp_path_factory.mktemp("empty") / "x")


def test_the_report_is_written_again(bundle: Path) -> None:
    result = CliRunner().invoke(app(report), [str(bundle / "run.json")])
    assert result.exit_code == 0 and (bundle / "report.html").read_text().startswith("<!DOCTYPE html>")
    document = json.loads(CliRunner().invoke(app(report), [str(bundle), "--json"]).stdout)
    assert document["schema"] == "vmtailor/fit/2"
    elsewhere = bundle / "x" / "page.html"
    assert CliRunner().invoke(app(report), [str(bundle), "-o", str(elsewhere)]).exit_code == 0 and elsewhere.exists()
