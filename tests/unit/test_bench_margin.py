# SPDX-License-Identifier: Apache-2.0
"""The tables of `make bench-margin`, and that it goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from tests.fakes.tools import load_tool

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records


@pytest.fixture(scope="module")
def probe() -> ModuleType:
    return load_tool("bench_margin_probe")


@pytest.fixture(scope="module")
def table() -> ModuleType:
    return load_tool("bench_margin_table")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_tool("bench_margin")


SAID = """kernel noise: not a feature
flock ok
alarm hang
call:bpf fail:EPERM
read/proc/stat ok
flock fail:said twice
probe ended
"""


def test_what_a_probe_said(probe: ModuleType) -> None:
    features, ended = probe.parse(SAID)
    assert ended
    assert [(one.name, one.outcome.value, one.why) for one in features] == [
        ("flock", "ok", ""),
        ("alarm", "hangs", ""),
        ("call:bpf", "fails", "EPERM"),
        ("read/proc/stat", "ok", ""),
    ]
    assert not probe.parse(SAID.removesuffix("probe ended\n"))[1]


def said(probe: ModuleType, text: str) -> object:
    features, ended = probe.parse(text)
    return probe.Probed(features, ended, 1.0, (), "" if ended else "Kernel panic")


def test_only_what_worked_before_fails_newly(probe: ModuleType) -> None:
    before = said(probe, "a ok\nb fail:EPERM\nc ok\nd ok\ne hang\nprobe ended\n")
    after = said(probe, "a ok\nb fail:ENOSYS\nc fail:ENOSYS\n")
    found = probe.newly(before, after)
    assert [(one.name, one.outcome.value, one.why) for one in found] == [
        ("c", "fails", "ENOSYS"),
        ("d", "lost", "Kernel panic"),
    ]


def cell(table: ModuleType, **values: object) -> object:
    return replace(table.FitCell("k", 100.0, True, 0, 150, 700, 300, 5_200_000, 33_000_000, 17 << 20, "abc"), **values)


def test_tables(probe: ModuleType, table: ModuleType) -> None:
    before = table.ProbeCell("k", said(probe, "a ok\ncall:b ok\nread/c ok\nd hang\nprobe ended\n"))
    bad = table.ProbeCell("k", said(probe, "a hang\ncall:b fail:ENOSYS\nread/c ok\nd hang\nprobe ended\n"))
    good = replace(before)
    fits = {"none": cell(table, cached=True), "server": cell(table, failed="error: no space is left")}
    image = table.Measured("python", before, fits, {"none": bad, "reachable": good})
    head, rows = table.probe_table([image], ("none", "reachable", "server"))
    assert rows == [
        ["python", "none", "4", "1", "2", "1", "1", "0", "1", "0", "0"],
        ["python", "reachable", "4", "1", "0", "0", "0", "0", "0", "0", "0"],
    ]
    assert all(len(row) == len(head) for row in rows)
    assert table.named_table([image], "none")[1] == [
        ["python", "a", "hangs", ""],
        ["python", "call:b", "fails", "ENOSYS"],
    ]
    head, rows = table.price_table([image], ("none", "reachable", "server"))
    assert rows[0] == ["python", "none", "yes", "0", "150", "700", "300", "5.20", "33.0", "17", "100", "found"]
    assert rows[1][2] == "no: error: no space is left" and all(len(row) == len(head) for row in rows)
    text = table.document([image], ("none", "reachable"), "reachable", "conditions")
    assert "None.\n" in text
    assert "no image was fitted" in table.family_document({}, {}, "reachable", "conditions")
    text = table.family_document({"nginx": cell(table)}, {"jvm": cell(table, seconds=170.0)}, "reachable", "conditions")
    assert "all 1 images share one kernel" in text
    assert "| jvm | reachable | yes | 0 | 150 | 700 | 300 | 5.20 | 33.0 | 17 | 170 | compiled |" in text


def test_what_says_that_nothing_is_there_is_told_apart(probe: ModuleType, table: ModuleType) -> None:
    """Memory nodes of a machine that has one; a file of the process, another error and a hang are failures."""
    names = ("read/sys/devices/system/node/online", "call:memory_of_nodes", "read/proc/self/io", "call:landlock")
    before = said(probe, "".join(f"{name} ok\n" for name in names) + "probe ended\n")
    whys = ("fail:ENOENT", "fail:ENOSYS", "fail:ENOENT", "fail:ENOSYS")
    after = said(probe, "".join(f"{n} {why}\n" for n, why in zip(names, whys, strict=True)) + "probe ended\n")
    found = probe.newly(before, after)
    assert [one.name for one in found if table.is_harmless(one)] == list(names[:2])
    other = said(probe, f"{names[0]} fail:EACCES\n{names[1]} hang\n{names[2]} ok\n{names[3]} ok\nprobe ended\n")
    assert not any(table.is_harmless(one) for one in probe.newly(before, other))
    image = table.Measured("python", table.ProbeCell("k", before), {}, {"none": table.ProbeCell("k", after)})
    assert table.probe_table([image], ["none"])[1] == [["python", "none", "4", "0", "2", "0", "1", "1", "0", "0", "2"]]


def test_images_that_share_a_kernel(table: ModuleType) -> None:
    kernels = {"a": "one", "b": "one", "c": "two", "d": "three", "e": "four", "f": "one", "g": ""}
    _, rows, shared = table.family_table({name: cell(table, kernel=kernel) for name, kernel in kernels.items()})
    assert rows[0] == ["one", "3", "a, b, f"]
    assert len(rows) == 4 and shared == "5 of 6 images have one of the 3 most shared of 4 kernels"


def test_a_page_gets_its_tables_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = load_tool("bench_page")
    page = "before\n<!-- tables -->\nold\n<!-- end of tables -->\nafter\n"
    once = pages.into_page(page, "new")
    assert "old" not in once and pages.into_page(once, "new") == once and once.endswith("after\n")
    other = f"{once}<!-- family -->\n<!-- end of family -->\n"
    assert pages.into_page(other, "shared", "family").partition("<!-- family")[0] == once
    with pytest.raises(ValueError, match="no marks for family"):
        pages.into_page(once, "new", "family")
    (tmp_path / "page.md").write_text(page)
    pages.publish(tmp_path, tmp_path / "page.md", "tables", "new")
    assert (tmp_path / "page.md").read_text() == once and (tmp_path / "tables.md").read_text() == "new"
    assert capsys.readouterr().out == "new\n"


def test_it_goes_on_where_it_stopped(bench: ModuleType, table: ModuleType, probe: ModuleType, tmp_path: Path) -> None:
    wanted = bench.tasks(("go",), ("none", "server"), ("redis", "go"))
    assert [(one.image, one.margin, one.probe) for one in wanted] == [
        ("go", None, True),
        ("go", "none", False),
        ("go", "none", True),
        ("go", "server", False),
        ("go", "server", True),
        ("redis", bench.DEFAULT, False),
        ("go", bench.DEFAULT, False),
    ]
    assert bench.hours(wanted) > bench.hours(wanted[1:]) > 0
    here = bench.Bench(tmp_path, Store(tmp_path / "cache"), "code")
    for name in ("go", "redis"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "index.json").write_text(json.dumps(name))
    baseline, fit, after, *_ = wanted
    assert not any(here.is_there(one) for one in wanted)
    (tmp_path / "go").mkdir()
    records.save(table.ProbeCell(here.key(baseline), said(probe, SAID)), here.path(baseline))
    records.save(cell(table, key=here.key(fit), kernel="one"), here.path(fit))
    records.save(table.ProbeCell(here.key(after), said(probe, SAID)), here.path(after))
    assert [here.is_there(one) for one in wanted[:4]] == [True, True, True, False]
    # Another kernel: its probe is another one. Another program: everything is.
    records.save(cell(table, key=here.key(fit), kernel="two"), here.path(fit))
    assert [here.is_there(one) for one in wanted[:3]] == [True, True, False]
    assert not any(bench.Bench(tmp_path, Store(tmp_path / "cache"), "other").is_there(one) for one in wanted)
    # A fit that failed is tried again; a file that was cut short counts as none.
    records.save(cell(table, key=here.key(fit), failed="error: no space"), here.path(fit))
    assert not here.is_there(fit)
    here.path(baseline).write_bytes(here.path(baseline).read_bytes()[:50])
    assert not here.is_there(baseline)


def test_every_image_that_is_probed_is_there(bench: ModuleType, probe: ModuleType) -> None:
    for name, argv in probe.commands().items():
        assert (probe.BENCH / name / "image.toml").is_file()
        assert all(len(word.encode()) < 131072 for word in argv)
    for name in bench.FAMILY:
        assert (bench.described(name) / "image.toml").is_file()
    assert {*bench.QUICK, *bench.TIMED} <= set(probe.commands()) and len(set(bench.FAMILY)) == 10
