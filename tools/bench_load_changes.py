# SPDX-License-Identifier: Apache-2.0
"""`make bench-load-changes`: what each change of data/changes/load saves a request of the examples, beside published
figures.

    tools/bench_load_changes.py [--only lighttpd redis] [--changes ID ...] [--out FOLDER]

Each image is fitted with the default margin. Its bundle is then booted with every change that is proposed alone, and
with all of these that were better together; then with every other change alone, since the page says what each costs.
Kernels, which take nearly all of the time, are compiled once and kept in the cache: an interrupted run goes on with the
next kernel. How many hours it needs is said first. OUT/changes.md has the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_page import publish, say

from vmtailor.analysis.changes.load_catalogue import LoadChange, catalogue
from vmtailor.drivers.kernel import load_profile
from vmtailor.model.change import ChangeKind, Figure

ROOT = Path(__file__).resolve().parent.parent
#: Images with the exercise that each is driven by.
IMAGES = {name: ROOT / "examples" / name for name in ("lighttpd", "nginx", "redis")}
#: Host seconds for a fit, a kernel and a boot on two cores.
FIT_S, KERNEL_S, BOOT_S = 900.0, 420.0, 15.0
_COMPILED = (ChangeKind.CONFIG, ChangeKind.COMPILER, ChangeKind.PATCH)


def compiles(change: LoadChange) -> bool:
    """Return whether a kernel is compiled for a change."""
    return any(setting.kind in _COMPILED for setting in change.candidate.change.settings)


def kernels(change: LoadChange) -> int:
    """Return the number of kernels that are compiled for a change: one by a profile takes another one to make it."""
    by_profile = any(setting.name == load_profile.FLAG for setting in change.candidate.change.settings)
    return compiles(change) + by_profile


def hours(images: int, changes: Sequence[LoadChange]) -> float:
    """Return the hours that it takes where nothing is in the cache."""
    return images * (FIT_S + sum(KERNEL_S * kernels(one) + BOOT_S for one in changes)) / 3600


def row(change: LoadChange, found: Sequence[dict[str, Any]]) -> str:
    """Return a change's row of the table. `found`: its trial on each image; empty where it has none."""
    cells = [_cell(trial) for trial in found]
    published = "; ".join(change.published) or "–"
    return "| " + " | ".join((f"`{change.id}`", *cells, "yes" if change.proposed else "no", published)) + " |"


def _cell(trial: dict[str, Any]) -> str:
    measured = {one["figure"]: one["value"] for one in trial.get("measured", ())}
    if Figure.REQUEST_KERNEL not in measured:
        return str(trial.get("problem", "not tried"))[:80] or "not tried"
    return f"{measured[Figure.REQUEST_KERNEL] / 1000:+.2f} k, {trial['verdict']}"


def table(changes: Sequence[LoadChange], documents: dict[str, dict[str, Any]]) -> str:
    """Return the table of all images: kernel instructions a request, more or less with each change."""
    lines = [
        "| change | " + " | ".join(documents) + " | proposed | published |",
        "| --- |" + " ---: |" * len(documents) + " --- | --- |",
    ]
    trials = {name: {one["id"]: one for one in document["trials"]} for name, document in documents.items()}
    lines += [row(one, [trials[name].get(one.id, {}) for name in documents]) for one in changes]
    together = [_cell(trials[name].get("together", {})) for name in documents]
    lines.append("| all that are proposed and were better, together | " + " | ".join(together) + " | | |")
    return "\n".join(lines) + "\n"


def _run(*words: object) -> str:
    return subprocess.run([sys.executable, "-m", "vmtailor", *map(str, words)], check=True, stdout=subprocess.PIPE,
                          text=True).stdout  # fmt: skip


def tried(name: str, changes: Sequence[LoadChange], out: Path) -> dict[str, Any]:
    """Fit an image, try every change on it, and return the document of the trials."""
    layout, bundle = out / f"{name}-image", out / name
    if not layout.exists():
        build = ROOT / "examples" / "build.py"
        subprocess.run([sys.executable, str(build), str(IMAGES[name]), str(layout)], check=True)
    _run("fit", f"oci:{layout}", "--exercise", IMAGES[name] / "exercise.toml", "-o", bundle)
    document = _tried(bundle, [one for one in changes if one.proposed], out / f"{name}-trials")
    others = _tried(bundle, [one for one in changes if not one.proposed], out / f"{name}-others")
    return merged(document, others)


def _tried(bundle: Path, changes: Sequence[LoadChange], out: Path) -> dict[str, Any]:
    if not changes:
        return {"trials": []}
    names = ",".join(one.id for one in changes)
    text = _run("boot", bundle, "--try", names, "--under", "load", "-n", 1, "--json", "-o", out)
    document: dict[str, Any] = json.loads(text)
    return document


def merged(proposed: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return both documents as one, without what changes that are not proposed save together."""
    alone = [trial for trial in others["trials"] if trial["id"] != "together"]
    return {**proposed, "trials": [*proposed["trials"], *alone]}


def main() -> int:
    """Try the changes, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=IMAGES, default=list(IMAGES))
    parser.add_argument("--changes", nargs="+", default=[], metavar="ID")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-load")
    parser.add_argument("--page", type=Path, default=None, help="write the table into this page, between its marks")
    asked = parser.parse_args()
    changes = [one for one in catalogue() if not asked.changes or one.id in asked.changes]
    say(f"at most {hours(len(asked.only), changes):.1f} hours on two cores, where the cache has nothing")
    asked.out.mkdir(parents=True, exist_ok=True)
    documents = {}
    for name in asked.only:
        documents[name] = tried(name, changes, asked.out)
    publish(asked.out, asked.page, "changes", table(changes, documents))
    return 0


if __name__ == "__main__":
    sys.exit(main())
