# SPDX-License-Identifier: Apache-2.0
"""An image that nobody wrote an exercise for, with the margin that is chosen for it: nothing newly breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.system
@pytest.mark.slow
def test_python_keeps_what_worked(tmp_path: Path) -> None:
    """Some ten minutes; three where the kernel is in the cache."""
    argv = [sys.executable, str(ROOT / "tools/bench_margin.py"), "--quick", "--out", str(tmp_path / "bench")]
    subprocess.run(argv, check=True, timeout=5400)
    sys.path.insert(0, str(ROOT / "tools"))
    from bench_margin_probe import newly
    from bench_margin_table import ProbeCell, is_harmless

    from vmtailor.base.files import records

    folder = tmp_path / "bench" / "python"
    before = records.load(ProbeCell, folder / "probe-baseline.json").probed
    after = records.load(ProbeCell, folder / "probe-reachable+server.json").probed
    assert len(before.features) >= 300 and json.loads((folder / "fit-reachable+server.json").read_text())["verified"]
    assert after.ended
    assert [one for one in newly(before, after) if not is_harmless(one)] == []
