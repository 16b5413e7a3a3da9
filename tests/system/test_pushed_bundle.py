# SPDX-License-Identifier: Apache-2.0
"""A bundle goes through a registry, and runs from there as it did from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.program import assert_clear, assert_nothing_left, run_program
from tests.fakes.registry import registry

__all__ = ["registry"]
pytestmark = pytest.mark.system


def test_a_bundle_runs_from_a_registry(hello: Path, registry: str, tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "another-host")}
    name = f"docker://{registry}/team/hello:1"
    pushed = run_program(tmp_path, "push", hello, name)
    assert pushed.code == 0, pushed.stderr
    reference = pushed.stdout.strip()
    assert reference.startswith(f"docker://{registry}/team/hello@sha256:")
    here = run_program(tmp_path, "run", hello)
    for asked in (name, reference):
        there = run_program(tmp_path, "run", asked, env=env)
        assert_nothing_left(there)
        assert (there.code, there.stdout) == (here.code, here.stdout) == (3, here.stdout) and here.stdout
        assert there.stderr.startswith(f"bundle {reference}\n")
    assert "pull the bundle" not in there.stderr, "the second run took what the first one pulled"
    ended = run_program(tmp_path, "run", "--pull", "never", f"docker://{registry}/team/hello:2", env=env)
    assert_clear(ended, 125, "no bundle in the cache")
