# SPDX-License-Identifier: Apache-2.0
"""The house: no file imports another that imports it back, and no folder of code is too full to look through."""

from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).parents[2]
#: Files of code that stand side by side.
MOST_FILES = 20


def test_no_modules_import_each_other() -> None:
    """Imports within functions count, too. Raises CycleError with the circle."""
    graph = grimp.build_graph("vmtailor", cache_dir=None)
    order = TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    assert len(list(order.static_order())) > 200


@pytest.mark.parametrize(("folder", "ending"), [("src", "*.py"), ("native", "*.[chS]"), ("tools", "*.py")])
def test_no_folder_of_code_is_too_full(folder: str, ending: str) -> None:
    files = [path for path in (REPOSITORY / folder).rglob(ending) if path.name != "__init__.py"]
    counted = Counter(path.parent.relative_to(REPOSITORY) for path in files)
    assert counted and not {str(where): count for where, count in counted.items() if count > MOST_FILES}
