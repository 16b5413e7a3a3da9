# SPDX-License-Identifier: Apache-2.0
"""A slot of a fleet's worker whose tasks are made up: run as a program in the slot's place, and as its task's.

The name of an entry says what its tasks do: `slow-…` takes half a second a part, `kill-…` kills its worker in `trace`,
`die-…` kills itself there, `never-…` does not end, `spare-…` says so of all parts between the first and the last. As a
task it imports nothing of ours, which takes seconds on a busy host."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

TASK = "task"
#: Parts between the first and the last.
BETWEEN = ("trace", "baseline", "plan", "kernel", "verify", "measure")


def answer_of(part: str, name: str) -> dict[str, Any]:
    """Do what the name says, and return what the answer has beside its outcome."""
    if part == "trace" and name.startswith("kill-"):
        os.kill(os.getppid(), signal.SIGKILL)
    if part == "trace" and name.startswith("die-"):
        sys.stderr.write("its last words\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("never-"):
        time.sleep(3600)
    if name.startswith("slow-"):
        time.sleep(0.5)
    if part == "prepare":
        return {"keys": [["trace", f"t-{name}"]], "spare": BETWEEN if name.startswith("spare-") else ()}
    if part == "plan":
        return {"keys": [["kernel", f"k-{name[-1]}"]]}
    return {"verified": True if part == "seal" else None}


def write_bundle(out: Path) -> None:
    """Write a bundle as the pipeline does: beside its place, and then there."""
    made = out.with_name(f".{out.name}-{os.getpid()}")
    made.mkdir()
    (made / "bundle.json").write_text(json.dumps({"name": out.name}))
    shutil.rmtree(out, ignore_errors=True)
    made.rename(out)


def main() -> None:
    """Serve as a slot, or do one task."""
    if sys.argv[1] == TASK:
        given = json.loads(sys.stdin.buffer.read())
        order = json.loads(base64.b64decode(given["order"]))
        answer = answer_of(order["part"], order["entry"]["name"])
        if order["part"] == "seal" and order["out"]:
            write_bundle(Path(order["out"]))
        document = {"schema": "vmtailor/fleet-answer/1", "outcome": "done", "seconds": 0.1, **answer}
        Path(sys.argv[2]).write_text(json.dumps(document))
        return
    from vmtailor.fleet.run import worker_slot

    worker_slot.task_program = (sys.executable, "-S", __file__, TASK)
    worker_slot.main()


if __name__ == "__main__":
    main()
