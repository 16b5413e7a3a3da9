# SPDX-License-Identifier: Apache-2.0
"""`boot` on a fitted bundle: what its kernel costs, in exact rows, and changes tried on it, one that needs another
kernel among them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.program import assert_nothing_left, run_program
from tests.system.conftest import Fitted

from vmtailor.base.files import records
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.model.change import Figure

pytestmark = [pytest.mark.system, pytest.mark.slow]

#: The kernel is compiled once more, on a slow machine, in seconds.
COMPILE_S = 3600.0


def test_every_instruction_up_to_init_has_its_function_file_and_symbol(lighttpd: Fitted, tmp_path: Path) -> None:
    # Figures of a fit are taken without a network device, which costs half a million instructions.
    bundle = tmp_path / "bundle"
    shutil.copytree(lighttpd.bundle, bundle)
    seal(bundle, replace(records.load(Bundle, bundle / RECORD), network=False))
    ended = run_program(tmp_path, "boot", bundle, "--attribute", "-o", tmp_path / "out", timeout_s=COMPILE_S)
    assert ended.code == 0, ended.stderr
    cost = records.load(BootCost, tmp_path / "out" / "cost.json")
    assert cost.total == sum(f.instructions for f in cost.functions) + cost.early + cost.user + cost.unknown
    assert sum(f.instructions for f in cost.functions) >= 0.95 * cost.total
    # The fit counted the same machine without looking into it.
    assert cost.total == lighttpd.document["tailored"]["init_instructions"]
    files = {f.function: f.file for f in cost.functions}
    assert files["start_kernel"] == "init/main.c"
    assert cost.symbols and cost.initcalls and "loops that only emulation causes" in ended.stdout
    assert_nothing_left(ended)


def test_changes_are_tried_alone_and_together_and_judged_by_the_exercise(lighttpd: Fitted, tmp_path: Path) -> None:
    # Without its file system the root cannot be mounted; a symbol that the kernel has not changes nothing.
    changes = "EROFS_FS=n,SLAB_FREELIST_RANDOM=n,SOUND=n,random-trust,cron"
    words = ("--judge", "instructions", "-n", "1", "--try", changes, "--json", "-o", tmp_path / "out")
    ended = run_program(tmp_path, "boot", lighttpd.bundle, *words, timeout_s=COMPILE_S)
    assert ended.code == 0, ended.stderr
    document = json.loads(ended.stdout)
    trials = {one["id"]: one for one in document["trials"]}
    assert set(trials) >= {"EROFS_FS=n", "SLAB_FREELIST_RANDOM=n", "SOUND=n", "random-trust", "cron"}
    assert trials["EROFS_FS=n"]["verdict"] == "worse"
    assert "panic" in trials["EROFS_FS=n"]["problem"]
    assert trials["SOUND=n"]["problem"] == "the machine is like this already"
    assert "no units" in trials["cron"]["problem"]
    better = trials["SLAB_FREELIST_RANDOM=n"]
    saved = better["measured"][0]
    assert saved["figure"] == Figure.INIT_INSTRUCTIONS and saved["value"] < 0 and saved["low"] == saved["high"]
    series = records.load(BootSeries, tmp_path / "out" / "boots.json")
    assert len({boot.instructions for boot in series.of("base")}) == 1
    assert_nothing_left(ended)


def test_options_without_a_meaning_are_refused(lighttpd: Fitted, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "boot", lighttpd.bundle, "--sample", timeout_s=60)
    assert ended.code == 2 and "--sample" in ended.stderr
