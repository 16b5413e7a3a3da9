# SPDX-License-Identifier: Apache-2.0
"""Targets of `export`: their rows, and what is written of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.kernel import symbol_names
from vmtailor.drivers.targets import targets
from vmtailor.drivers.targets.target import ExportFolder, TargetRow
from vmtailor.model import architecture
from vmtailor.model.kernel_needs import KernelNeed

ROOT = Path(__file__).parents[2]
ROWS = {one.name: one for one in targets.every()}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_target_has_a_driver_a_page_and_says_what_was_tried(row: TargetRow) -> None:
    assert targets.named(row.name).row is row
    page = ROOT / "docs" / "how-to" / f"{row.page}.md"
    assert page.is_file() and f"{row.page}.md" in (page.parent / "export-a-bundle.md").read_text()
    assert f"`{row.name}`" in (page.parent / "export-a-bundle.md").read_text()
    assert all(one.tried or one.checked for one in map(row.of, row.variants or ("",)))
    assert set(row.architectures) <= set(architecture.names())


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_target_needs_symbols_that_kernels_have(row: TargetRow) -> None:
    ids = [need.id for need in row.need]
    assert len(ids) == len(set(ids))
    for need in row.need:
        assert set(need.symbols) <= set(symbol_names.shipped()[1])
        assert set(need.variants) <= set(row.variants) and set(need.architectures) <= set(row.architectures)


def test_a_need_lacks_what_a_configuration_has_otherwise() -> None:
    need = KernelNeed("x", "every machine", "why", {"PCI": "y", "ACPI": "y", "HZ": "100"})
    assert need.lacking({"PCI": "y", "ACPI": "m"}) == ("ACPI", "HZ=100")
    assert need.lacking({"PCI": "y", "ACPI": "y", "HZ": "100"}) == ()


@pytest.mark.parametrize("text", ["nothing", "qemu:nothing", "", "qemu:"])
def test_what_is_no_target_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(UserInputError) as error:
        targets.chosen(text)
    assert "known: " in error.value.hint


def test_an_export_is_written_into_its_own_folder_alone(tmp_path: Path) -> None:
    folder = ExportFolder(tmp_path)
    folder.text("a/b", "content", executable=True)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o755
    for name in ("/etc/x", "../x", "a/b"):
        with pytest.raises(AssertionError):
            folder.text(name, "")
