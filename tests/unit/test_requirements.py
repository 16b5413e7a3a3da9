# SPDX-License-Identifier: Apache-2.0
"""`explain --for`: what programs are known to require, held against a kernel."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import re
from pathlib import Path

import grimp
import pytest
from tests.fakes.fit_run_data import fit_run
from typer.testing import CliRunner

from vmtailor.analysis.explain import requirements
from vmtailor.analysis.explain.requirements import Level, Met
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import main
from vmtailor.cli.tables import requirements_view
from vmtailor.model.change import Cause, Reason, symbol

ROWS = """
[[program]]
name = "engine"
says = "an engine"
source = "its README"

[[requirement]]
id = "pair"
level = "required"
symbols = ["ONE", "TWO"]
instead = ["OTHER"]
need = "a pair"
without = "it fails"

[[requirement]]
id = "off"
level = "optional"
value = "n"
symbols = ["HELPER"]
need = "no helper"
without = "it waits"

[[requirement]]
id = "late"
level = "recommended"
kernel = ">=6.6"
symbols = ["LATE"]
need = "what is new"
without = "it does without"
"""


@pytest.fixture
def asked(tmp_path: Path) -> requirements.Requirements:
    (tmp_path / "engine.toml").write_text(ROWS)
    return requirements.of_program("engine", tmp_path)


def met(asked: requirements.Requirements, version: str = "6.1.1", **symbols: str) -> dict[str, Met]:
    held = requirements.against_configuration(asked, "k", symbols, version)
    return {one.requirement.id: one.met for one in held.answers}


def test_a_row_is_met_by_all_its_symbols_or_by_what_does_as_well(asked: requirements.Requirements) -> None:
    assert met(asked)["pair"] is Met.MISSING
    assert met(asked, ONE="y")["pair"] is Met.MISSING
    assert met(asked, ONE="y", TWO="m")["pair"] is Met.MET
    assert met(asked, ONE="y", OTHER="m")["pair"] is Met.INSTEAD


def test_what_should_not_be_set_is_against_when_it_is(asked: requirements.Requirements) -> None:
    assert met(asked)["off"] is Met.MET
    assert met(asked, HELPER="y")["off"] is Met.AGAINST


def test_a_row_holds_for_its_versions_and_where_none_is_known(asked: requirements.Requirements) -> None:
    assert "late" not in met(asked, "6.1.170")
    assert met(asked, "6.12.3")["late"] is Met.MISSING
    assert met(asked, "")["late"] is Met.MISSING


def test_a_symbol_that_the_source_has_not_cannot_be_missing_alone(asked: requirements.Requirements) -> None:
    def known(name: str) -> bool:
        return name != "TWO"

    held = requirements.against_configuration(asked, "k", {"ONE": "y"}, "6.1", known)
    assert held.answers[0].met is Met.MET
    assert [one.value for one in held.answers[0].symbols] == ["y", ""]
    assert requirements.against_configuration(asked, "k", {}, "6.1", known).answers[0].met is Met.MISSING


def test_a_bundle_is_set_against_its_trace_and_its_prices(asked: requirements.Requirements) -> None:
    run = fit_run()
    reason = Reason(Cause.DEMANDED, "trace:requests:7", "the engine asks for one")
    plan = dataclasses.replace(run.plan, changes=(symbol("ONE", "y", reason), symbol("TWO", "m"), *run.plan.changes))
    tailored = dataclasses.replace(run.tailored, symbol_costs=(("ONE", 120), ("TWO", 30)))
    held = requirements.against_run(asked, "b", dataclasses.replace(run, plan=plan, tailored=tailored))
    pair = held.answers[0]
    assert (pair.met, pair.used, pair.instructions) == (Met.MET, True, 150)
    assert pair.symbols[0].reference == "trace:requests:7"
    assert not held.answers[1].used
    shown = io.StringIO()
    requirements_view.show(held, TerminalConsole(file=shown, width=120))
    assert "asked for: trace:requests:7" in shown.getvalue()


@pytest.mark.parametrize("bad", ["symbols = []", 'value = "maybe"', 'kernel = "about 6"', 'level = "nice"'])
def test_a_malformed_row_is_refused_with_its_name(tmp_path: Path, bad: str) -> None:
    key = bad.partition(" ")[0]
    row = ROWS[: ROWS.index('[[requirement]]\nid = "off"')]
    row = re.sub(rf"^{key} = .*\n", "", row, flags=re.M)
    (tmp_path / "engine.toml").write_text(row + bad + "\n")
    with pytest.raises(UserInputError, match="pair"):
        requirements.of_program("engine", tmp_path)


def test_what_comes_with_the_program_is_whole() -> None:
    known = requirements.load()
    assert set(known) == {"docker", "podman", "systemd"}
    for one in known.values():
        assert {row.level for row in one.rows} == set(Level)
        for row in one.rows:
            assert row.id.startswith(f"{one.program.name}-")
            assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", name) for name in (*row.symbols, *row.instead)), row.id
            assert len(row.need) > 10 and len(row.without) > 10


def test_no_requirement_is_a_reason_to_keep_anything() -> None:
    """They are read by `explain` alone."""
    graph = grimp.build_graph("vmtailor", cache_dir=None)
    users = graph.find_downstream_modules(requirements.__name__)
    assert users and not [user for user in users if not user.startswith("vmtailor.cli.")]


CONFIG = "# Linux/x86 6.1.1 Kernel Configuration\nCONFIG_NET_NS=y\n# CONFIG_KEYS is not set\n"


@pytest.mark.parametrize("packed", [False, True])
def test_the_verb_reads_a_configuration_plain_or_packed(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / "config"
    file.write_bytes(gzip.compress(CONFIG.encode()) if packed else CONFIG.encode())
    done = CliRunner().invoke(main.app, ["explain", str(file), "--for", "docker", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    rows = {row["id"]: row for row in found["requirements"]}
    assert rows["docker-keys"]["standing"] == "missing"
    assert found["traced"] is False and rows["docker-keys"]["used"] is None


@pytest.mark.lengthy
def test_the_verb_reads_a_bundle(tmp_path: Path) -> None:
    records.save(fit_run(), tmp_path / "run.json")
    done = CliRunner().invoke(main.app, ["explain", str(tmp_path), "--for", "systemd"])
    assert done.exit_code == 0, done.output
    assert "missing for systemd" in done.stdout and "only reported" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--for", "docker"], "no kernel to look at"),
        (["FILE", "--for", "kubernetes"], "known: docker, podman, systemd"),
        (["FILE", "EPOLL", "--for", "docker"], "ask one thing at a time"),
        (["FILE/none", "--for", "docker"], "cannot be read"),
    ],
)
def test_bad_questions_are_refused(tmp_path: Path, words: list[str], says: str) -> None:
    file = tmp_path / "config"
    file.write_text(CONFIG)
    done = CliRunner().invoke(main.app, ["explain", *(w.replace("FILE", str(file)) for w in words)])
    assert isinstance(done.exception, UserInputError)
    assert says in f"{done.exception.message} {done.exception.hint}"
