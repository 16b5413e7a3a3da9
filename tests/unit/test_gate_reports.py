# SPDX-License-Identifier: Apache-2.0
"""A gate in CI: its warnings, annotations and JUnit; figures of silences; limits that say their unit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.fakes.bundle_data import write_bundle
from tests.fakes.started import Start

from vmtailor.analysis.comparison import gate_reports
from vmtailor.analysis.comparison.boot_differences import compare_sides
from vmtailor.analysis.comparison.budgets import Judged, judge, metrics_of, parse_budget
from vmtailor.analysis.comparison.sides import Saved, load_side
from vmtailor.base.errors import UserInputError

LOG = """[    0.000000] Linux version 6.1.0 (gcc) #1
[    0.100000] Memory: 100K/200K available
[    1.100000] Sending DHCP requests ., OK
[    3.100000] IP-Config: Got DHCP answer from 192.0.2.1, my address is 192.0.2.9
[    3.200000] a quiet driver
[    3.700000] Run /sbin/init as init process
"""


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("kernel_us < 2", "kernel_us < 2s"),
        ("phase_ready_us <= 9000", "phase_ready_us <= 9000us"),
        ("wait_ns_p90<=5", "wait_ns_p90<=5s"),
        ("ready_ms_max == 1_500", "ready_ms_max == 1_500ms"),
        ("kernel_us <= 500k", "kernel_us <= 500ms"),
    ],
)
def test_a_time_has_a_unit_and_the_refusal_has_the_spelling(text: str, spelling: str) -> None:
    with pytest.raises(UserInputError, match="has no unit, and the figure counts") as refused:
        parse_budget(text)
    assert f"'{spelling}'" in refused.value.hint
    for one in re.findall(r"'([^']+)'", refused.value.hint):
        assert parse_budget(one).limit


@pytest.mark.parametrize(
    "text", ["kernel_us >= 0", "ready_s <= 3", "ready_wall <= 1.1", "boots <= 2", "x_us <= +5% of y"]
)
def test_what_needs_no_unit(text: str) -> None:
    assert parse_budget(text).text == text


@pytest.mark.parametrize("text", ["kernel_bytes <= 4s", "init_instructions_net <= 3ms", "kernel_us <= 4MB"])
def test_a_unit_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(UserInputError):
        parse_budget(text)


def test_silences_are_figures_by_their_titles_and_kinds(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "dmesg"
    log.write_text(LOG)
    document = json.loads(start("analyze", log, "--json")[1])
    shown = {spot["name"]: spot["exclusive_us"] for spot in document["hotspots"] if spot["kind"] == "gap"}
    assert shown.keys() >= {"after: a quiet driver", "waiting for DHCP"} and len(shown) == 4
    for name, us in shown.items():
        metric = f"gap_{name.replace(': ', '_').replace(' ', '_')}_us"
        assert judge(parse_budget(f"{metric} == {us}us"), metrics_of(document), None).kept, metric
    for budget, kept in (
        ("gap_dhcp_us <= 2200ms", True), ("gap_dhcp_own_us <= 2s", False), ("gap_dhcp_duration_us == 2100ms", True),
        ("gap_waiting_for_DHCP_us == 2.1s", True), ("gap_raid6_us <= 0", True), ("gap_fsck_us <= 1s", True),
        ("gap_no_such_kind_us <= 1s", False),
    ):  # fmt: skip
        assert judge(parse_budget(budget), metrics_of(document), None).kept is kept, budget
    # Of a log that times nothing, nothing is known to be absent.
    assert "gap_raid6_us" not in metrics_of({"schema": "vmtailor/timeline/2", "phases": [], "gaps": []})
    assert "gap_raid6_us" not in metrics_of({"schema": "vmtailor/timeline/2", "phases": [{"name": "kernel"}]})
    odd = {"schema": "vmtailor/timeline/2", "phases": [{"name": "kernel"}], "gaps": [5, {"start_us": "x"}, {}]}
    assert metrics_of(odd)["gap_dhcp_us"] == [0.0]


JUDGED = [
    Judged(parse_budget("kernel_us <= 500ms"), 400_000.0, 500_000.0, True),
    Judged(parse_budget("init_instructions <= 3M"), 31_000_000.0, 3_000_000.0, False),
    Judged(parse_budget("ready_s <= 2s"), None, 2.0, False, "there is none"),
]
HOSTILE = [("crashed", "50% \r\n::set-env name=PATH::/tmp\x00\x1b]0;x\x07<&>")]


@pytest.mark.attack
def test_annotations_are_one_line_each_and_cannot_be_continued() -> None:
    found = list(gate_reports.github_lines("a\n::warning::b", JUDGED, HOSTILE))
    assert [line.split(" ")[0] for line in found] == ["::error", "::error", "::warning"]
    assert all(
        line.isprintable() and line.startswith(f"::{line[2:].split(' ')[0]} title=vmtailor gate::") for line in found
    )
    assert "31,000,000, the limit 3,000,000" in found[0] and "there is none" in found[1]
    assert "50%25 \\x0d\\x0a::set-env" in found[2]


def test_junit_has_a_case_for_each_budget_and_is_xml_whatever_it_is_told() -> None:
    suites = ElementTree.fromstring(gate_reports.junit("run\x01.json", JUDGED, HOSTILE))
    assert (suites.get("tests"), suites.get("failures")) == ("3", "2")
    (suite,) = suites
    assert suite.get("name") == "run\ufffd.json"
    cases = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert cases["kernel_us <= 500ms"] is None
    broken, missing = cases["init_instructions <= 3M"], cases["ready_s <= 2s"]
    assert broken is not None and broken.get("type") == "broken" and "31,000,000" in (broken.text or "")
    assert missing is not None and missing.get("type") == "missing"
    said = suite.findtext("system-out")
    assert said is not None and "<&>" in said and "\x1b" not in said
    assert ElementTree.fromstring(gate_reports.junit("x", JUDGED[:1], [])).find("testsuite/system-out") is None


@pytest.mark.parametrize("as_json", [False, True])
def test_the_verb_writes_them_where_it_is_asked_to(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    log, junit = tmp_path / "dmesg", tmp_path / "junit.xml"
    log.write_text(LOG.replace("[    0.100000]", "[    0.100000] Kernel panic - not syncing: x\n[    0.100000]"))
    more = ("--json",) if as_json else ()
    words = ("gate", log, "kernel_us <= 1s", *more)
    code, out, err = start(*words, "--junit", junit)
    assert code == 1 and "::error" not in out + err
    names = [case.get("name") for case in ElementTree.parse(junit).iter("testcase")]
    assert names == ["kernel_us <= 1s", "crashed <= 0"]
    for asked in (("--annotate",), ()):
        code, out, err = start(*words, *asked)
        told = err if as_json else out
        assert code == 1 and told.count("::error title=vmtailor gate::") == 2 and "::warning" in told
        if as_json:
            answer = json.loads(out)
            assert answer["schema"] == "vmtailor/gate/4" and "crashed" in {one["code"] for one in answer["warnings"]}
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    code, _, err = start(*words, "--junit", tmp_path / "none" / "x" / "junit.xml" / "")
    assert code == 1 or "cannot be" in err


def test_the_examples_of_the_help_work_on_a_bundle(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bundle", "OLD"):
        write_bundle(tmp_path / name)
    page = " ".join(start("gate", "--help")[1].split())
    (told,) = re.findall(r"Hold it against ('.*?')\.", page)
    of_bundle = [one for one in re.findall(r"'([^']+)'", told) if "kernel_us" not in one]
    assert len(of_bundle) == 2
    code, out, err = start("gate", "bundle", *(one.replace("30M", "900M") for one in of_bundle))
    assert code == 0 and out.count("kept") == 2, err
    hint = start("gate", "bundle")[2]
    (example,) = re.findall(r"vmtailor gate bundle '([^']+)'", hint)
    assert start("gate", "bundle", example.replace("30M", "900M"))[0] == 0


BOARD = """[    0.000000] Linux version 6.1.0 (gcc) #1
[    0.000000] Machine model: {}
[    1.500000] Run /sbin/init as init process
"""


def test_boots_of_different_machines_are_said_to_be_that(start: Start, tmp_path: Path) -> None:
    for name, model in (
        ("one", "Raspberry Pi 2 Model B"),
        ("same", "Raspberry Pi 2 Model B"),
        ("other", "Pine64 Rock64"),
    ):
        (tmp_path / name).write_text(BOARD.format(model))
    out = start("compare", tmp_path / "one", tmp_path / "other", "--json")[1]
    (warning,) = [one for one in json.loads(out)["warnings"] if one["code"] == "different-machines"]
    assert "different machines" in warning["text"]
    assert "Raspberry Pi 2 Model B" in warning["text"] and "Pine64 Rock64" in warning["text"]
    assert "different-machines" not in start("compare", tmp_path / "one", tmp_path / "same", "--json")[1]
    # A side that has one of each is like both.
    both = start("compare", tmp_path / "one", tmp_path / "other", "--after", tmp_path / "same", "--json")[1]
    assert "different-machines" not in both


def test_machines_are_compared_by_what_both_sides_tell() -> None:
    samples = {("figure", "x", "bytes"): [1.0]}

    def side(**facts: str) -> Saved:
        return Saved(samples=samples, machines={name: {value} for name, value in facts.items()})

    def codes(left: Saved, right: Saved) -> list[str]:
        return [one.text for one in compare_sides(left, right, ("a", "b")).warnings]

    (told,) = codes(side(cpus="1", model="max"), side(cpus="2", model="host"))
    assert "cpus 1 of a, 2 of b; model max of a, host of b" in told
    assert codes(side(cpus="1"), side(model="host")) == codes(side(), side()) == []


def test_the_machine_of_a_fit_is_told_by_its_conditions(start: Start, tmp_path: Path) -> None:
    machines = load_side([write_bundle(tmp_path)]).machines
    assert machines["machine"] == {"microvm"} and machines["CPU model"] == {"max"} and machines["processors"] == {"1"}
