# SPDX-License-Identifier: Apache-2.0
"""The job of action.yml, and the action's own file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACTION = (ROOT / "action.yml").read_text()
_FAKE = """\
#!/bin/sh
printf '%s\\n' "$*" >> "$SAID"
[ "$1" = report ] && echo '### summary'
[ "$1" = "$FAILS" ] && exit 4
exit 0
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A tree with the job alone, and a program on PATH that says how it was called."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "ci_job.py").write_text((ROOT / "tools" / "ci_job.py").read_text())
    (tmp_path / "vmtailor").write_text(_FAKE)
    (tmp_path / "vmtailor").chmod(0o755)
    return tmp_path


def run(job: Path, **inputs: str) -> tuple[int, list[str], str, str]:
    """Return the exit status, the commands, the summary and what was printed as outputs."""
    place = {"SAID": job / "said", "GITHUB_STEP_SUMMARY": job / "summary", "GITHUB_OUTPUT": job / "output"}
    for file in place.values():
        file.write_text("")
    environment = {"PATH": f"{job}:/usr/bin:/bin", "FAILS": "", **{k: str(v) for k, v in place.items()}, **inputs}
    done = subprocess.run([sys.executable, job / "tools/ci_job.py"], env=environment, check=False)
    said, summary, output = (file.read_text() for file in place.values())
    return done.returncode, said.splitlines(), summary, output


def test_an_image_is_fitted_verified_held_and_summed_up(job: Path) -> None:
    inputs = {"VMTAILOR_IMAGE": "oci:a b;c", "VMTAILOR_EXERCISE": "x.toml", "VMTAILOR_BUDGETS": "b.txt"}
    more = {"VMTAILOR_FIT_OPTIONS": "--margin\nnone\n", "VMTAILOR_BASE_RUN": "old", "VMTAILOR_LAB": "true"}
    status, said, summary, output = run(job, **inputs, **more)
    assert status == 0 and output == "bundle=bundle\n"
    assert said == [
        "fit oci:a b;c -o bundle --exercise x.toml --margin none",
        "verify bundle --on qemu --lab",
        "gate bundle --budgets b.txt",
        "report bundle --markdown --against old",
    ]
    assert summary == "### summary\n\n- `vmtailor verify`: passed\n- `vmtailor gate`: passed\n"


def test_a_step_that_fails_fails_the_job_and_stands_in_the_summary(job: Path) -> None:
    status, said, summary, _ = run(job, VMTAILOR_IMAGE="oci:x", VMTAILOR_BUDGETS="b", FAILS="verify")
    assert status == 4 and [words.split()[0] for words in said] == ["fit", "verify", "gate", "report"]
    assert "- `vmtailor verify`: failed with status 4" in summary


def test_nothing_follows_a_fit_that_failed(job: Path) -> None:
    status, said, summary, output = run(job, VMTAILOR_IMAGE="oci:x", FAILS="fit")
    assert (status, len(said), summary, output) == (4, 1, "", "")


def test_without_an_image_nothing_is_started(job: Path) -> None:
    status, said, _, _ = run(job)
    assert (status, said) == (2, [])


def test_inputs_of_the_action_reach_the_job_by_the_environment_alone() -> None:
    """An expression within a script would let an input be a command of the shell."""
    inputs = set(re.findall(r"^  ([a-z-]+):$", ACTION.partition("outputs:")[0], re.MULTILINE))
    assert len(inputs) == 7
    named = set(re.findall(r"^        (VMTAILOR_[A-Z_]+): \$\{\{ inputs\.([a-z-]+) \}\}$", ACTION, re.MULTILINE))
    assert {name for _, name in named} == inputs
    assert all(variable == f"VMTAILOR_{name.upper().replace('-', '_')}" for variable, name in named)
    used = set(re.findall(r'"(VMTAILOR_[A-Z_]+)"', (ROOT / "tools/ci_job.py").read_text()))
    assert used == {variable for variable, _ in named}
    scripts = re.findall(r"run: (.+)", ACTION)
    assert len(scripts) == 3 and not any("${{" in script for script in scripts)
