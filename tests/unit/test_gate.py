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
from vmtailor.analysis.comparison.budgets import Missing, figure, judge, metrics_of, parse_budget, shown
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
    with pytest.raises(UserInputError, match="schema 'vmtailor/boots/1', this version reads 'vmtailor/boots/4'"):
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
        judge(parse_budget("unit_a_b_service_us <= 1us"), metrics_of(SYSTEM), None)


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


METRICS = {
    "schema": "none",
    "figures": {"ready_s": 5.0, "flag": True, "odd": float("inf")},
    "ready_s": 9.0,
    "empty": [],
    "mixed": [1, "x", 2],
    "samples": [1, 2.5],
    "flags": [True, False],
    "unknown": None,
    "sides": [{"name": "tailored", "bytes": 7, "name_length": 1}, {"bytes": 8}, "text"],
    "deep": {"er": {"still": 3}},
}


def test_every_figure_of_a_document_has_a_name() -> None:
    """Figures of their own table come first, what is no number is none, and rows are told by their names."""
    assert metrics_of(METRICS) == {
        "ready_s": [5.0],
        "figures_ready_s": [5.0],
        "samples": [1.0, 2.5],
        "unknown": [],
        "sides_tailored_bytes": [7.0],
        "sides_tailored_name_length": [1.0],
        "deep_er_still": [3.0],
    }
    assert metrics_of([1, 2]) == {}


def test_a_timeline_has_the_figures_of_its_rows() -> None:
    document = {
        "schema": "vmtailor/timeline/2",
        "phases": [
            {"name": "kernel", "start_us": None, "end_us": 400},
            {"name": "ready", "start_us": 900, "end_us": 900},
            "damaged",
        ],
        "processes": [{"name": "sh", "exclusive_us": 3, "duration_us": 9}, {"name": "sh", "exclusive_us": 4}],
        "units": [{"name": "a", "exclusive_us": 3, "duration_us": 9}, 5],
        "probes": None,
    }
    found = {name: values for name, values in metrics_of(document).items() if name.split("_")[0] in KINDS}
    assert found == {
        "phase_kernel_us": [],
        "phase_ready_us": [],  # since a beginning that is not known
        "process_sh_us": [7.0],
        "process_sh_own_us": [7.0],
        "process_sh_duration_us": [],
        "unit_a_us": [9.0],
        "unit_a_own_us": [3.0],
        "unit_a_duration_us": [9.0],
    }


KINDS = ("phase", "process", "unit", "probe", "initcall")


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("x", 30.0),  # the median
        ("x_median", 30.0),
        ("x_p50", 30.0),
        ("x_p25", 20.0),
        ("x_p90", 48.0),
        ("x_p99", 49.8),
        ("x_p0", 10.0),
        ("x_min", 10.0),
        ("x_max", 50.0),
        ("x_mean", 31.0),
        ("single_p90", 5.0),
        ("named_max", 1.0),  # a figure of that very name
        ("two_p50", 1.5),
    ],
)
def test_a_suffix_asks_for_a_quantile_of_samples(metric: str, value: float) -> None:
    metrics = {"x": [50.0, 10.0, 20.0, 45.0, 30.0], "single": [5.0], "named": [7.0, 9.0], "named_max": [1.0]}
    assert figure({**metrics, "two": [2.0, 1.0]}, metric) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("a <= 2", True), ("a < 2", False), ("a >= 2", True), ("a > 2", False), ("a == 2", True), ("a == 3", False),
     ("a <= 1", False), ("a >= 3", False), ("a < 3", True), ("a > 1", True), ("a == 2_0e-1", True)],
)  # fmt: skip
def test_operators(text: str, kept: bool) -> None:
    found = judge(parse_budget(f"  {text} "), {"a": [2.0]}, None)
    assert (found.kept, found.value, found.why, found.budget.text) == (kept, 2.0, "", text)
    assert (found.budget.metric, found.budget.percent, found.budget.reference) == ("a", None, "")


@pytest.mark.parametrize(
    ("text", "percent", "reference"),
    [("a <= +5% of 'old run.json'", 5.0, "old run.json"), ("a >= - 2.5 % of x", -2.5, "x")],
)
def test_a_percentage_is_of_another_documents_figure(text: str, percent: float, reference: str) -> None:
    budget = parse_budget(text)
    assert (budget.metric, budget.limit, budget.percent, budget.reference) == ("a", None, percent, reference)
    assert judge(budget, {"a": [1.0]}, {"a": [200.0]}).limit == 200.0 * (1 + percent / 100)
    missing = judge(budget, {"a": [1.0]}, {"b": [200.0]})
    assert (missing.kept, missing.value, missing.limit) == (False, None, None)
    assert missing.why.startswith(f"{reference}: there is no figure 'a'; there are: b")
    absent = judge(budget, {"b": [1.0]}, {"a": [200.0]})
    assert not absent.kept and absent.limit == 200.0 * (1 + percent / 100) and absent.why.startswith("there is no")


UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "ns": 10**-9, "us": 10**-6, "µs": 10**-6, "ms": 10**-3, "s": 1, "min": 60,
}  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_units_of_a_limit(unit: str) -> None:
    assert parse_budget(f"a <= 3000{unit}").limit == pytest.approx(3000 * UNITS[unit])
    with pytest.raises(UserInputError, match="unknown unit"):
        parse_budget(f"a <= 3{unit}x")


def test_a_missing_figure_names_what_is_like_it() -> None:
    metrics = {"unit_ssh.service_us": [1.0], "unit_cron.service_us": [2.0], "kernel_us": [3.0], "unit_none_us": []}
    with pytest.raises(Missing) as service:
        figure(metrics, "unit_sshd.service_us")
    assert service.value.hint == "there are: unit_ssh.service_us, unit_cron.service_us"
    with pytest.raises(Missing) as kernel:
        figure(metrics, "phase_kernel_us")
    assert kernel.value.hint == "there are: kernel_us"
    with pytest.raises(Missing) as other:
        figure(metrics, "instructions")
    assert other.value.hint == "there are: unit_ssh.service_us, unit_cron.service_us, kernel_us"
    with pytest.raises(Missing) as nothing:
        figure({}, "instructions")
    assert nothing.value.hint == "there are: none"


def facts_of(folder: Path, content: object) -> dict[str, str]:
    path = _file(folder / "document.json", f"\n  {json.dumps(content)}")
    found = judged_document.read(path)
    assert (found.path, found.sha256) == (path, hashlib.sha256(path.read_bytes()).hexdigest())
    return dict(found.facts)


def test_a_document_says_what_it_is_of(tmp_path: Path) -> None:
    kernel = {"version": "6.1", "command_line": "quiet"}
    assert facts_of(tmp_path, {"schema": "vmtailor/timeline/2", "kernel": kernel, "version": "0.2"}) == {
        "schema": "vmtailor/timeline/2", "kernel": "6.1, quiet", "vmtailor": "0.2",
    }  # fmt: skip
    assert facts_of(tmp_path, {"ready_s": 1}) == {"schema": "none"}
    (tmp_path / "vmlinux").write_bytes(b"kernel")
    fit = {
        "schema": "vmtailor/fit-run/8",
        "reference": "app:1",
        "image_digest": "sha256:00",
        "command": "vmtailor fit app:1",
        "verified": True,
        "proof": "exercise",
        "sources": [["kernel source", "6.12"], ["qemu", "7.2"], ["compiler", "gcc"], 5],
        "tailored": {"kernel": "6.12 tailored", "kernel_file": "/elsewhere/vmlinux"},
    }
    digest = f"sha256:{hashlib.sha256(b'kernel').hexdigest()}"
    told = {
        "schema": "vmtailor/fit-run/8",
        "image": "app:1, sha256:00",
        "fit": "vmtailor fit app:1",
        "verified": "yes, exercise",
        "kernel source": "6.12",
        "compiler": "gcc",
        "kernel": f"6.12 tailored, {digest}",
    }
    assert facts_of(tmp_path, fit) == told
    (tmp_path / "vmlinux").unlink()
    moved = facts_of(tmp_path, {**fit, "verified": False, "reference": None})
    assert moved == {
        **told, "image": "sha256:00", "verified": "no", "kernel": "6.12 tailored, its file is not beside the record",
    }  # fmt: skip


def test_saved_boots_say_how_many_and_of_what(tmp_path: Path) -> None:
    def told(machine: object, *outcomes: str) -> dict[str, str]:
        boots = [{"variant": "base", "boot": {"outcome": one}} for one in outcomes]
        variants = [{"name": "base", "machine": machine}, {"name": "x", "machine": {"kernel": "/other"}}]
        content = {"subject": "a disk", "conditions": [["clock", "wall"]], "variants": variants, "boots": boots}
        return facts_of(tmp_path, {"schema": "vmtailor/boots/3", **content})

    gone = str(tmp_path / "none")
    assert told({"kernel": gone, "words": ["quiet", "ro"]}, "ready") == {
        "schema": "vmtailor/boots/3", "subject": "a disk, 1 boot", "clock": "wall",
        "kernel": f"{gone}, no longer there", "command line": "quiet ro",
    }  # fmt: skip
    assert told({}, "ready", "panic")["subject"] == "a disk, 2 boots, of which 1 did not come to be ready"


def test_samples_are_of_the_machine_as_it_was_and_of_its_clock() -> None:
    def samples(clock: str) -> dict[str, list[float]]:
        marks = [{"name": "first line", "wall_s": 0.5, "virtual_ns": 250_000_000}, {"name": "ready", "wall_s": 2}]
        boots = [
            {"variant": "base", "boot": {"outcome": "ready", "instructions": 10, "milestones": marks}},
            {"variant": "base", "boot": {"outcome": "panic", "instructions": 99, "milestones": marks}},
            {"variant": "base", "boot": None},
            {"variant": "other", "boot": {"outcome": "ready", "instructions": 98}},
        ]
        variants = [{"name": "base", "machine": {"clock": clock}}, {"name": "other"}]
        return judged_document.samples({"schema": "vmtailor/boots/3", "boots": boots, "variants": variants})

    assert samples("wall") == {
        "boots_failed": [2.0], "init_instructions": [10.0], "first_line_s": [0.5], "ready_s": [2.0],
    }  # fmt: skip
    assert samples("instructions") == {"boots_failed": [2.0], "init_instructions": [10.0], "first_line_s": [0.25]}
    assert judged_document.samples({"schema": "vmtailor/timeline/2", "boots": [1]}) == {}


def test_a_document_that_breaks_off_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match=r"cut\.json is damaged"):
        judged_document.read(_file(tmp_path / "cut.json", '{"ready_s": '))
