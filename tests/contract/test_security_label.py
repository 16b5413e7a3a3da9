# SPDX-License-Identifier: Apache-2.0
"""What programs make of a kernel without a security module: that there is no label, as data/harmless says."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract
LABEL = Path("/proc/self/attr/current")


@pytest.fixture(scope="module", autouse=True)
def without_label() -> None:
    """A host whose kernel has the file and no module that answers."""
    if not LABEL.exists():
        pytest.skip("this kernel has no security framework")
    try:
        label = LABEL.read_bytes()
    except OSError as error:
        assert error.errno == errno.EINVAL
    else:
        pytest.skip(f"this kernel has a security module: {label!r}")


def test_a_program_that_shows_labels_shows_none() -> None:
    ps = shutil.which("ps")
    if ps is None:
        pytest.skip("no ps")
    ended = subprocess.run([ps, "-o", "label=", "1"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "-", "")
