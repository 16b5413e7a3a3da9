# SPDX-License-Identifier: Apache-2.0
"""The job of action.yml: fit an image, verify the bundle under KVM in the lab, hold budgets, and write a summary.

    VMTAILOR_IMAGE=oci:DIR [VMTAILOR_EXERCISE=FILE] [VMTAILOR_BUDGETS=FILE] [VMTAILOR_BASE_RUN=BUNDLE] tools/ci_job.py

Inputs come by the environment and never pass a shell. The summary goes to $GITHUB_STEP_SUMMARY, else to standard
output. The exit status is that of the first step that failed; the summary is written whatever fails after the fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_TREE = Path(__file__).resolve().parent.parent


def program() -> list[str]:
    """Return the words that start vmtailor: of this tree where it is set up, else as it is installed."""
    own = _TREE / ".venv" / "bin" / "vmtailor"
    return [str(own)] if own.exists() else ["vmtailor"]


def fit_command(inputs: Mapping[str, str], out: str) -> list[str]:
    """Return the command that fits the image. Each line of VMTAILOR_FIT_OPTIONS is one word."""
    words = ["fit", inputs["VMTAILOR_IMAGE"], "-o", out]
    if inputs.get("VMTAILOR_EXERCISE"):
        words += ["--exercise", inputs["VMTAILOR_EXERCISE"]]
    return [*words, *(line.strip() for line in inputs.get("VMTAILOR_FIT_OPTIONS", "").splitlines() if line.strip())]


def later_commands(inputs: Mapping[str, str], out: str) -> list[list[str]]:
    """Return the commands after the fit: verify in the lab, and gate."""
    found = []
    if inputs.get("VMTAILOR_LAB", "true") == "true":
        found.append(["verify", out, "--on", "qemu", "--lab"])
    if inputs.get("VMTAILOR_BUDGETS"):
        found.append(["gate", out, "--budgets", inputs["VMTAILOR_BUDGETS"]])
    return found


def summary_command(inputs: Mapping[str, str], out: str) -> list[str]:
    """Return the command that prints the summary, beside the base branch's where there is one."""
    against = ["--against", inputs["VMTAILOR_BASE_RUN"]] if inputs.get("VMTAILOR_BASE_RUN") else []
    return ["report", out, "--markdown", *against]


def main(inputs: Mapping[str, str]) -> int:
    """Run the job, and return its exit status."""
    if not inputs.get("VMTAILOR_IMAGE"):
        print("VMTAILOR_IMAGE is not set: name the image to fit", file=sys.stderr)
        return 2
    out = inputs.get("VMTAILOR_OUT") or "bundle"
    if status := _run(fit_command(inputs, out)):
        return status
    failed = 0
    lines = []
    for words in later_commands(inputs, out):
        status = _run(words)
        failed = failed or status
        lines.append(f"- `vmtailor {words[0]}`: {'passed' if status == 0 else f'failed with status {status}'}")
    shown = subprocess.run([*program(), *summary_command(inputs, out)], stdout=subprocess.PIPE, check=False)
    _write(inputs, shown.stdout.decode("utf-8", "replace") + "\n" + "\n".join(lines) + "\n")
    if place := inputs.get("GITHUB_OUTPUT"):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(f"bundle={out}\n")
    return failed or shown.returncode


def _run(words: Sequence[str]) -> int:
    return subprocess.run([*program(), *words], check=False).returncode


def _write(inputs: Mapping[str, str], text: str) -> None:
    place = inputs.get("GITHUB_STEP_SUMMARY")
    if not place:
        sys.stdout.write(text)
        return
    with Path(place).open("a", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(os.environ))
