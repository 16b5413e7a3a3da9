# SPDX-License-Identifier: Apache-2.0
"""Published remedies: the file is sound, and a verdict follows from what boots say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.tools import load_tool

from vmtailor.model.boots import series


@pytest.fixture(scope="module")
def tool() -> Any:
    return load_tool("bench_remedies")


def spans(tool: Any, *values: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    return {title: seen for (_, _, title), seen in zip(tool.SPANS, values, strict=True)}


def said(tool: Any, *texts: str) -> tuple[Any, ...]:
    return tuple(tool.Message(text, text) for text in texts)


def test_the_file_says_of_each_remedy_how_it_is_tried_or_why_not(tool: Any, tmp_path: Path) -> None:
    found = tool.published()
    assert len(found.remedy) >= 14 and {one.machine for one in found.remedy} == set(found.machine)
    text = tool.REMEDIES.read_text()
    for old, new in (('change = "audit"', 'change = ""'), ('work = "host"', 'work = "nobody"'), ("said =", "sad =")):
        (tmp_path / "file").write_text(text.replace(old, new, 1))
        with pytest.raises(ValueError):
            tool.published(tmp_path / "file")


def test_messages_are_the_same_whatever_their_time_and_numbers(tool: Any) -> None:
    console = "SeaBIOS\n[    0.100000] usb 1-1: new device, address 5\r\n[   12.000001] usb 1-1: at 0xffff8880\nlogin:"
    assert [one.shape for one in tool.messages(console)] == ["usb #-#: new device, address #", "usb #-#: at #"]
    assert [one.shape for one in tool.messages("<5>Linux version 6.1\n<6>Memory: 12K")] == [
        "Linux version #.#",
        "Memory: #K",
    ]


def test_what_a_terminal_was_asked_before_a_message_is_part_of_it(tool: Any) -> None:
    before = tool.messages("\x1b[!p\x1b[6n[   16.470008] ready[709]: hello\n[    1.000000] X.509 certificate 7\n")
    assert [one.text for one in before] == ["\x1b[!p\x1b[6nready[709]: hello", "X.509 certificate 7"]
    after = tool.messages("[   16.1] ready[707]: hello\n[    1.1] X.509 certificate 8")
    (asks,) = (one for one in tool.published().remedy if one.machine == "debian-13")
    assert tool.proof(asks.lines, before, after) == (1, 1)
    assert tool.proof(r"X\.509", before, after) == (1, 0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((1.0, 4.0, 8.0), "real"),
        ((2.0, 5.0, 9.95), "less than boots of one machine differ by"),
        ((2.0, 5.0, 11.0), "costs more than it saves"),
        (None, "no container ran any more"),
    ],
)
def test_a_saving_is_real_where_it_is_larger_than_the_spread(
    tool: Any, after: tuple[float, ...] | None, expected: str
) -> None:
    usb = next(one for one in tool.published().remedy if one.what == "no USB")
    before = tool.Boots(
        spans(tool, (2.0, 2.1), (5.0, 5.1), (10.0, 10.2)), said(tool, "usbcore: registered", "usbhid: driver", "other")
    )
    ends = tool.Boots(spans(tool, *((end, end) for end in after)), said(tool, "other")) if after else None
    row = tool.judged(usb, before, ends)
    assert tool.verdict(row) == expected and row.there == 2 and row.gone == (2 if after else 0)


def test_hardware_that_is_not_there_proves_nothing(tool: Any) -> None:
    usb = next(one for one in tool.published().remedy if one.what == "no USB")
    boots = tool.Boots(spans(tool, (2.0, 2.1), (5.0, 5.1), (10.0, 10.2)), said(tool, "other"))
    after = tool.Boots(spans(tool, (1.0, 1.0), (3.0, 3.0), (5.0, 5.0)), ())
    assert tool.verdict(tool.judged(usb, boots, after)).startswith("cannot tell")


def test_what_a_remedy_brings_must_have_arrived(tool: Any) -> None:
    (brings,) = (one for one in tool.published().remedy if one.what.startswith("a credential by fw_cfg"))
    before = tool.Boots(spans(tool, (2.0, 2.1), (5.0, 5.1), (10.0, 10.2)), said(tool, "cloud-init: none"))
    for arrived, words in (("a credential arrived", "real"), ("another", "cannot tell: what it brings did not arrive")):
        after = tool.Boots(spans(tool, (1.0, 1.0), (3.0, 3.0), (5.0, 5.0)), said(tool, arrived))
        assert tool.verdict(tool.judged(brings, before, after)) == words


def test_each_row_has_a_folder_of_its_own_or_a_variant_of_its_machines_series(tool: Any) -> None:
    found = tool.published()
    titles = [(one.machine, tool.title_of(one), one.change) for one in found.remedy]
    assert len(set(titles)) == len(titles)
    assert {tool.title_of(one) for one in found.remedy if one.change} == {tool.CHANGES}
    assert tool.changes_of(found, "debian-13") == ["systemd-terminal"]
    assert {"lsm", "audit"} <= set(tool.changes_of(found, "cloud"))


def test_a_series_that_was_interrupted_is_not_read(tool: Any, tmp_path: Path) -> None:
    assert tool.DONE != series.RECORD
    (tmp_path / series.RECORD).write_text("{}")
    with pytest.raises(FileNotFoundError):
        tool.read(tmp_path)


def test_the_table_has_a_line_for_each(tool: Any) -> None:
    found = tool.published()
    boots = tool.Boots(spans(tool, (2.0, 2.1), (5.0, 5.1), (10.0, 10.2)), said(tool, "usbcore: registered"))
    rows = [tool.judged(one, boots, None if one.why else boots) for one in found.remedy]
    text = tool.table(found, dict.fromkeys(found.machine, boots), rows)
    assert all(one.what in text and one.said in text for one in found.remedy) and "2.05 ± 0.05" in text


def test_some_machines_alone(tool: Any) -> None:
    whole = tool.published()
    some = tool.of_machines(whole, ["cloud"])
    assert set(some.machine) == {"cloud"} and 0 < len(some.remedy) < len(whole.remedy)
    assert tool.of_machines(whole, None) == whole
    with pytest.raises(SystemExit, match="no machine moon: there are cloud"):
        tool.of_machines(whole, ["moon"])


def test_what_a_loader_waits_is_told_in_the_hosts_seconds(tool: Any) -> None:
    found = tool.published()
    menu = next(one for one in found.remedy if one.machine == "loader")
    before, after = (tool.Boots({tool.BEFORE: seen}, said(tool, "BOOT_IMAGE=#")) for seen in ((7.1, 7.2), (2.0, 2.1)))
    row = tool.judged(menu, before, after)
    assert tool.verdict(row) == "real: 5.10 s of the host, before the kernel"
    text = tool.table(tool.of_machines(found, ["loader"]), {"loader": before}, [row])
    assert "7.15 ± 0.05 s of the host before the kernel" in text and "| loader | – | – | – |" in text


def test_machines_of_one_kernel_share_a_disk(tool: Any, tmp_path: Path) -> None:
    found = tool.published()
    for name in ("cloud", "generic", "cloud-init"):
        (tmp_path / f"vm-{name}").mkdir()
        (tmp_path / f"vm-{name}" / "disk.raw").touch()
    machines = tool.Machines(tmp_path, 2, found)
    assert machines.disk("loader") == machines.disk("cloud") == tmp_path / "vm-cloud"
    assert machines.disk("cloud-init") == tmp_path / "vm-cloud-init"


def test_counted_series_run_beside_each_other_and_timed_ones_alone(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tool.published()
    machines = tool.Machines(tmp_path, 2, found)
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(machines, "booted", lambda name, remedy=None: seen.append((name, tool.title_of(remedy))))
    of_loader = next(one for one in found.remedy if one.machine == "loader")
    changed = [("cloud", one) for one in found.remedy if one.machine == "cloud" and one.change]
    machines.together([("cloud", None), ("loader", None), ("loader", of_loader), *changed], 1)
    assert seen == [("cloud", tool.AS_IT_IS), ("cloud", tool.CHANGES)]


def test_a_missing_boot_loader_is_told_before_anything_is_booted(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = tool.Machines(tmp_path, 2, tool.published())
    monkeypatch.setattr(tool.shutil, "which", lambda name: None)
    monkeypatch.setattr(machines, "disk", lambda name: pytest.fail("a disk was made"))
    with pytest.raises(SystemExit, match="grub-pc-bin"):
        machines.make(["cloud", "loader"])


def test_a_fitted_machine_has_no_milestone_of_a_ram_disk(tool: Any) -> None:
    found = tool.published()
    (quiet,) = (one for one in found.remedy if one.machine == "fitted")
    init, ready = (title for _, _, title in tool.SPANS[1:])
    before = tool.Boots({init: (0.2, 0.2), ready: (0.5, 0.5)}, said(tool, "Linux version #", "Memory: #"))
    row = tool.judged(
        quiet,
        before,
        tool.Boots(
            {init: (0.18, 0.18), ready: (0.48, 0.48)},
            (),
        ),
    )
    text = tool.table(found, {"fitted": before}, [row])
    assert "| – | 0.20 ± 0.00 | 0.50 ± 0.00 |" in text
    assert "| – | 0.020 | 0.020 | 2, 2 gone | real |" in text


def test_what_a_word_that_means_nothing_moves_is_no_saving(tool: Any) -> None:
    usb = next(one for one in tool.published().remedy if one.what == "no USB")
    alone = tool.Boots(spans(tool, (2.0, 2.0), (4.49, 4.49), (13.25, 13.27)), said(tool, "usbcore: registered"))
    moved = tool.Boots(spans(tool, (2.01,), (4.52,), (13.33,)), said(tool, "other"))
    after = tool.Boots(
        spans(tool, (2.0, 2.0), (4.49, 4.49), (13.22, 13.22)),
        (),
    )
    assert tool.verdict(tool.judged(usb, alone, after)) == "real"
    whole = tool.as_one([alone, moved])
    assert tool.verdict(tool.judged(usb, whole, after)) == "less than boots of one machine differ by"
    assert whole.messages == alone.messages


def test_controls_have_a_folder_each_and_are_no_rows(tool: Any) -> None:
    found = tool.controls("cloud")
    assert len({tool.title_of(one) for one in found}) == len(found) == len(tool.PLACEBO_WORDS)
    assert all(one.control and one.words for one in found)
    assert not any(one.control for one in tool.published().remedy)
