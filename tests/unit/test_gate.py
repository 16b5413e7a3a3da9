# SPDX-License-Identifier: Apache-2.0
"""Budgets: what they mean, and what is said when one is none."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.fit_run_data import fit_run
from typer.testing import CliRunner

from vmtailor.analysis.comparison import judged_document
from vmtailor.analysis.comparison.budgets import judge, metrics_of, parse_budget, shown
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.files import records
from vmtailor.cli.gate import gate
from vmtailor.cli.signature import of_verb

DOCUMENT = {
    "schema": "vmtailor/run/1",
    "init_instructions_net": 28_500_000,
    "metrics": {"ready_wall": [1.0, 1.2, 1.1], "size_bytes": 3_900_000},
    "phases": [{"name": "kernel", "start_us": 0, "end_us": 2_000_000}],
}


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        ("init_instructions_net <= 30M", True),
        ("init_instructions_net <= 28M", False),
        ("init_instructions_net<=28_500_000", True),
        ("init_instructions_net < 28500k", False),
        ("ready_wall_p50 <= 1100ms", True),
        ("ready_wall_max <= 1.1 s", False),
        ("ready_wall <= 1.1", True),
        ("size_bytes <= 4MB", True),
        ("size_bytes <= 3MiB", False),
        ("metrics.size_bytes >= 1", True),
        ("phases_kernel_end_us == 2s", True),
    ],
)
def test_budgets(budget: str, kept: bool) -> None:
    assert judge(parse_budget(budget), metrics_of(DOCUMENT), None).kept is kept


def test_relative_budgets() -> None:
    reference = metrics_of({"init_instructions_net": 30_000_000})
    five = judge(parse_budget("init_instructions_net <= -5% of old run.json"), metrics_of(DOCUMENT), reference)
    assert (five.budget.reference, five.limit, five.kept) == ("old run.json", 28_500_000, True)
    assert not judge(parse_budget("init_instructions_net <= -10% of x"), metrics_of(DOCUMENT), reference).kept


@pytest.mark.parametrize("text", ["", "a", "a <= ", "a <= 5 bananas", "<= 5", "a <= 5% of", "a =< 5"])
def test_what_is_no_budget_says_so(text: str) -> None:
    with pytest.raises(UserInputError):
        parse_budget(text)


def test_a_missing_figure_breaks_its_budget_and_names_what_is_there() -> None:
    for budget in ("init_instruction_net <= 1", "init_instruction_net >= 0"):
        judged = judge(parse_budget(budget), metrics_of(DOCUMENT), None)
        assert not judged.kept and judged.value is None
        assert "there is no figure 'init_instruction_net'" in judged.why and "init_instructions_net" in judged.why
    without = judge(parse_budget("init_instructions_net <= +5% of old.json"), metrics_of(DOCUMENT), {})
    assert not without.kept and "old.json: there is no figure" in without.why


@given(st.text(max_size=40))
def test_any_text_is_a_budget_or_the_users_error(text: str) -> None:
    try:
        assert parse_budget(text).metric
    except UserInputError as error:
        assert error.hint


def run(*arguments: str) -> object:
    app = typer.Typer()
    app.command()(of_verb("gate", gate))
    return CliRunner().invoke(app, list(arguments), standalone_mode=False)


def test_the_command_fails_with_the_figure(tmp_path: Path) -> None:
    document = tmp_path / "run.json"
    document.write_text(json.dumps(DOCUMENT))
    good = run(str(tmp_path), "init_instructions_net <= 30M", "--json")
    assert json.loads(good.output)["kept"] is True  # type: ignore[attr-defined]
    budgets = tmp_path / "budgets"
    budgets.write_text(
        "# nightly\ninit_instructions_net <= 20M  # too much\ninit_instructions_net <= +1% of run.json\n"
    )
    bad = run(str(document), "--budgets", str(budgets))
    assert isinstance(bad.exception, AnswerNo)  # type: ignore[attr-defined]
    assert "28,500,000" in bad.exception.message  # type: ignore[attr-defined]


def test_what_was_judged_is_said_with_its_digests(tmp_path: Path) -> None:
    run_record = fit_run()
    records.save(run_record, tmp_path / "run.json")
    (tmp_path / run_record.tailored.kernel_file).write_bytes(b"the kernel")
    (tmp_path / "old.json").write_text(json.dumps({"tailored": {"kernel_bytes": 1}}))
    words = (str(tmp_path), "tailored_kernel_bytes >= 1", "tailored_kernel_bytes >= +5% of old.json")
    text = run(*words, "-f", str(_file(tmp_path / "budgets", "tailored_kernel_bytes >= -1% of old.json"))).output  # type: ignore[attr-defined]
    digest = hashlib.sha256((tmp_path / "run.json").read_bytes()).hexdigest()
    kernel = hashlib.sha256(b"the kernel").hexdigest()
    assert f"run.json sha256:{digest}" in text
    assert f"sha256:{kernel}" in text and run_record.image_digest in text and run_record.command in text
    assert "reference: " in text


def test_saved_boots_have_figures_and_an_identity(tmp_path: Path) -> None:
    boots = [
        {"variant": v, "boot": {"outcome": o, "instructions": n, "milestones": [{"name": "ready", "wall_s": at}]}}
        for v, o, n, at in (
            ("base", "ready", 10, 1.0),
            ("base", "ready", 12, 3.0),
            ("base", "panic", 9, 9),
            ("x", "ready", 1, 1),
        )
    ]
    kernel = _file(tmp_path / "vmlinux", "kernel")
    vm = {"clock": "wall", "kernel": str(kernel), "append": ["quiet", "ro"]}
    record = {
        "schema": "vmtailor/boots/3",
        "subject": "a\x1b[31mvm",
        "conditions": [["clock", "wall"]],
        "variants": [{"name": "base", "machine": vm}],
        "boots": boots,
    }
    (tmp_path / "boots.json").write_text(json.dumps(record))
    broken = run(str(tmp_path), "ready_s_max <= 3")
    # Of those that did not get there are no figures: without a budget of their own, none may be.
    assert isinstance(broken.exception, AnswerNo) and "boots_failed is 1, the limit 0" in str(broken.exception)  # type: ignore[attr-defined]
    assert "4 boots, of which 1 did not come to be ready" in broken.output  # type: ignore[attr-defined]
    done = run(str(tmp_path), "ready_s_max <= 3", "init_instructions <= 11", "boots_failed <= 1")
    assert done.exception is None and "\x1b" not in done.output  # type: ignore[attr-defined]
    assert f"sha256:{hashlib.sha256(b'kernel').hexdigest()}" in done.output  # type: ignore[attr-defined]
    told = json.loads(run(str(tmp_path), "ready_s <= 3", "--json").output)["judged"]  # type: ignore[attr-defined]
    assert told["clock"] == "wall" and told["command line"] == "quiet ro" and told["file"].endswith("boots.json")


def test_saved_boots_of_another_version_are_to_be_made_again(tmp_path: Path) -> None:
    record = {"schema": "vmtailor/boots/1", "boots": [{"variant": "base", "outcome": "ready", "milestones": []}]}
    (tmp_path / "boots.json").write_text(json.dumps(record))
    with pytest.raises(UserInputError, match="schema 'vmtailor/boots/1', this version reads 'vmtailor/boots/3'"):
        judged_document.read(tmp_path)


NAMES = st.sampled_from(
    ["schema", "boots", "boot", "variants", "milestones", "name", "sources", "conditions", "kernel", "machine"]
)
ODD = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
)


@given(st.dictionaries(NAMES, ODD), st.sampled_from(["fit-run/1", "boots/3", "timeline/1"]))
def test_no_document_is_too_odd_to_be_told(odd: dict[str, object], schema: str) -> None:
    content = {**odd, "schema": f"vmtailor/{schema}"}
    assert all(len(values) for values in judged_document.samples(content).values())
    assert all(isinstance(part, str) for fact in judged_document.facts(content, Path("/none")) for part in fact)


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_log_is_analysed_first(tmp_path: Path) -> None:
    log = tmp_path / "dmesg"
    log.write_text("[    0.000000] Linux version 6.1.0 (gcc) #1\n[    1.500000] Run /sbin/init as init process\n")
    assert run(str(log), "kernel_us <= 1.5s").exception is None  # type: ignore[attr-defined]
    assert isinstance(run(str(log), "phase_kernel_us <= 1s").exception, AnswerNo)  # type: ignore[attr-defined]


SYSTEM = {
    "schema": "vmtailor/timeline/1",
    "total_us": None,
    "phases": [
        {"name": "loader", "start_us": -1_000_000, "end_us": 0},
        {"name": "kernel", "start_us": 0, "end_us": 2_243_390},
        {"name": "userspace", "start_us": 2_243_390, "end_us": None},
        {"name": "ready", "start_us": 9_134_000, "end_us": 9_134_000},
    ],
    "units": [
        {"name": "systemd-fsck@dev-disk-by\\x2duuid-1.service", "duration_us": 15_100_000, "exclusive_us": 58_000},
        {"name": "a-b.service", "duration_us": 3_000, "exclusive_us": None},
        {"name": "a.b.service", "duration_us": 4_000, "exclusive_us": None},
    ],
    "probes": [
        {"name": "c440000.spmi:pmic@0", "duration_us": 7_000, "exclusive_us": 5_000},
        {"name": "c440000.spmi:pmic@0", "duration_us": None, "exclusive_us": None},
        {"name": "0006:01:00.0", "duration_us": 1_022_363, "exclusive_us": 1_022_363},
    ],
    "initcalls": [{"name": "pty_init", "duration_us": 200, "exclusive_us": 181}],
}


@pytest.mark.parametrize(
    ("budget", "kept", "value"),
    [
        ("phase_ready_us <= 9s", False, 10_134_000),  # 9.134 s after the kernel's start, 1 s of a loader before
        ("phase_ready_us <= 10134 ms", True, 10_134_000),
        ("phase_kernel_us <= 2.24339s", True, 2_243_390),
        ("phase_userspace_us <= 100s", False, None),
        ("total_us <= 100s", False, None),
        ("total_us >= 0", False, None),
        ("unit_systemd-fsck@dev-disk-by\\x2duuid-1.service_us <= 15s", False, 15_100_000),
        ("unit_systemd-fsck@dev-disk-by\\x2duuid-1.service_own_us <= 15s", True, 58_000),
        ("unit_systemd_fsck_dev_disk_by_x2duuid_1_service_us <= 15s", False, 15_100_000),
        ("unit_a-b.service_us < 4ms", True, 3_000),
        ("unit_a.b.service_us < 4ms", False, 4_000),
        ("unit_a.b.service_own_us < 4ms", False, None),
        ("probe_c440000.spmi:pmic@0_us <= 1s", False, None),  # of two tries one is not known
        ("probe_0006:01:00.0_us <= 1s", False, 1_022_363),
        ("initcall_pty_init_us <= 181us", True, 181),
        ("initcall_pty_init_duration_us <= 181us", False, 200),
    ],
)
def test_budgets_on_a_boot(budget: str, kept: bool, value: float | None) -> None:
    judged = judge(parse_budget(budget), metrics_of(SYSTEM), None)
    assert (judged.kept, judged.value, bool(judged.why)) == (kept, value, value is None)


def test_a_name_that_could_be_two_is_asked_for() -> None:
    with pytest.raises(UserInputError, match=r"a-b.service_us, unit_a.b.service_us"):
        judge(parse_budget("unit_a_b_service_us <= 1"), metrics_of(SYSTEM), None)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("kernel_us", 2_243_390, "2.24339 s"),
        ("kernel_us_p50", 181_334, "181.334 ms"),
        ("kernel_us", 0, "0 µs"),
        ("ready_s", 75.25, "75.25 s"),
        ("init_instructions", 28_500_000, "28,500,000"),
        ("size_bytes", 3_900_000, "3,900,000 bytes"),
        ("total_us", None, "–"),
    ],
)
def test_figures_as_people_write_them(metric: str, value: float | None, text: str) -> None:
    assert shown(metric, value) == text


def test_the_how_tos_gates_can_be_kept_by_the_log_of_a_kernel(tmp_path: Path) -> None:
    """Each budget that the page holds against a boot finds its figure there, or breaks with a word."""
    page = (Path(__file__).parents[2] / "docs/how-to/analyze-a-boot-log.md").read_text()
    (line,) = [line for line in page.splitlines() if line.strip().startswith("vmtailor gate dmesg.txt")]
    budgets = re.findall(r"'([^']+)'", line)
    log = tmp_path / "dmesg.txt"
    log.write_text("[    0.000000] Linux version 6.1.0 (gcc) #1\n[    0.400000] Run /sbin/init as init process\n")
    assert len(budgets) > 1 and run(str(log), *budgets).exception is None  # type: ignore[attr-defined]
    missing = run(str(log), "total_us <= 100s")
    assert isinstance(missing.exception, AnswerNo)  # type: ignore[attr-defined]
    assert "total_us is not known" in missing.exception.message  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("ready_us", 9_134_000, "9.134 s"),
        ("ready_us", 999_600, "0.9996 s"),
        ("ready_us", 999_400, "999.4 ms"),
        ("ready_us", 12, "12 µs"),
        ("ready_us", 0, "0 µs"),
        ("wait_ns_p90", 2_500, "2.5 µs"),
        ("root_bytes", 4096, "4,096 bytes"),
        ("instructions", 28_500_000, "28,500,000"),
        ("instructions", None, "–"),
    ],
)
def test_a_figure_is_shown_in_its_own_unit(metric: str, value: float | None, text: str) -> None:
    assert shown(metric, value) == text


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("ready_us <= 1_500us", 1_500.0),
        ("ready_us <= 1.5ms", 1_500.0),
        ("ready_ms <= 2s", 2_000.0),
        ("wait_us_p90 <= 3ms", 3_000.0),
        ("ready_wall <= 2min", 120.0),
        ("instructions <= 28_500_000", 28_500_000.0),
        ("root_bytes <= 4KiB", 4_096.0),
    ],
)
def test_a_limit_is_read_in_the_unit_of_its_figure(text: str, limit: float) -> None:
    assert parse_budget(text).limit == limit


def test_ready_alone_is_counted_from_the_zero_of_its_clock() -> None:
    ready = {"name": "ready", "start_us": 400, "end_us": 1_000}
    alone = {"schema": "vmtailor/timeline/9", "phases": [ready]}
    after = {"schema": "vmtailor/timeline/9", "phases": [{"name": "kernel", "start_us": 100, "end_us": 400}, ready]}
    assert [metrics_of(one)["phase_ready_us"] for one in (alone, after)] == [[1_000.0], [900.0]]
