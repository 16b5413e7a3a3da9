# SPDX-License-Identifier: Apache-2.0
"""The house: no file or folder imports another that imports it back, no folder of code is too full to look through, no
file too long to read, and what tells where things go names what is there."""

from __future__ import annotations

import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).parents[2]
#: Files of code that stand side by side.
MOST_FILES = 20
#: Lines of a file of code.
MOST_LINES = 500


def test_no_modules_import_each_other() -> None:
    """Imports within functions count, too. Raises CycleError with the circle."""
    graph = grimp.build_graph("vmtailor", cache_dir=None)
    order = TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    assert len(list(order.static_order())) > 200


def test_no_folders_import_each_other() -> None:
    """Of those that lie in one folder, the files beside them included. Raises CycleError with the circle."""
    graph = grimp.build_graph("vmtailor", cache_dir=None)
    for parent in sorted({name.rpartition(".")[0] for name in graph.modules if "." in name}):
        inside = [name for name in graph.modules if name.startswith(f"{parent}.")]
        order: TopologicalSorter[str] = TopologicalSorter()
        for name in inside:
            part = name.removeprefix(f"{parent}.").partition(".")[0]
            used = (other for other in graph.find_modules_directly_imported_by(name) if other.startswith(f"{parent}."))
            order.add(part, *({other.removeprefix(f"{parent}.").partition(".")[0] for other in used} - {part}))
        assert list(order.static_order())


def test_no_two_files_of_tests_have_one_name() -> None:
    """The folders of tests are no packages: pytest refuses the whole run, and a run of one folder does not tell."""
    names = Counter(path.name for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert len(names) > 100 and not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("folder", ["src", "native", "tools", "tests", "benchmarks"])
def test_no_file_of_code_is_too_long(folder: str) -> None:
    files = [path for path in (REPOSITORY / folder).rglob("*") if path.suffix in (".py", ".c", ".h", ".S", ".js")]
    lengths = {str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines()) for path in files}
    assert lengths and not {name: length for name, length in lengths.items() if length > MOST_LINES}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_where_things_go_names_what_is_there(page: str) -> None:
    named = set(
        re.findall(
            r"(?<![\w.$-])(?:[\w.-]+/)+(?:[\w-]+\.(?:py|toml|md|h)|qemu-system)?", (REPOSITORY / page).read_text()
        )
    )
    package = REPOSITORY / "src/vmtailor"
    below = (package / name for name in ("analysis", "drivers", "pipeline", "stages"))
    places = (REPOSITORY, package, *below, (REPOSITORY / page).parent)
    gone = {one for one in named if not any((place / one).exists() for place in places)}
    assert len(named) > 20 and not gone


@pytest.mark.parametrize(("folder", "ending"), [("src", "*.py"), ("native", "*.[chS]"), ("tools", "*.py")])
def test_no_folder_of_code_is_too_full(folder: str, ending: str) -> None:
    files = list((REPOSITORY / folder).rglob(ending))
    counted = Counter(path.parent.relative_to(REPOSITORY) for path in files)
    assert counted and not {str(where): count for where, count in counted.items() if count > MOST_FILES}
