# SPDX-License-Identifier: Apache-2.0
"""A fleet of two workers, with images whose kernel is there: bundles as `fit` writes them, a record that goes on."""

from __future__ import annotations

import contextlib
import json
import stat
import time
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import EXAMPLES, Fitted

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.fleet.model.fleet_record import FleetRecord, ImageStanding
from vmtailor.model.bundle import RUN
from vmtailor.model.fit_run import FitRun

pytestmark = pytest.mark.system
CANARY, SECRET = "canary-7f3a91", "secret-51d0c8e2"
#: Passes where the container has both variables; the value of one is not in it.
ASKS = """
[[load]]
kind = "command"
argv = ["/bin/sh", "-c", 'test ${#TOKEN} = 15 && test "${TOKEN#secret-}" != "$TOKEN" && echo "$MODE $TOKEN"']
[load.expect]
contains = "quiet secret-"
"""


def written_with(text: str, began: float) -> list[Path]:
    """Files of the cache that were written since then and hold a text; other tests may write there, too."""
    found = []
    for path in Store().root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            recent = stat.S_ISREG(status.st_mode) and status.st_ctime >= began and status.st_size < 64 << 20
            if recent and text.encode() in path.read_bytes():
                found.append(path)
    return found


@pytest.mark.attack
def test_a_fleet_fits_what_fit_fits_and_one_bad_image_costs_nothing(lighttpd: Fitted, tmp_path: Path) -> None:
    exercise = EXAMPLES / "lighttpd" / "exercise.toml"
    login = tmp_path / "auth.json"
    login.write_text(json.dumps({"auths": {"registry.invalid": {"auth": CANARY}}}))
    asks, secrets = tmp_path / "asks.toml", tmp_path / "secrets"
    asks.write_text(exercise.read_text().replace("[stop]", f"{ASKS}\n[stop]"))
    secrets.mkdir()
    (secrets / "web.env").write_text(f"TOKEN={SECRET}\n")
    given = 'env_file = "web.env"\nenvironment = { MODE = "quiet" }'
    began = time.time() - 1
    listed = tmp_path / "list.toml"
    rows = "".join(
        f'[[image]]\nname = "{name}"\nreference = "oci:{lighttpd.layout}"\nexercise = "{asked}"\n{more}\n'
        # A symbol is kept that is there: another fit, and the same kernel.
        for name, asked, more in (
            ("web", asks, f'keep = ["EROFS_FS"]\n{given}'),
            ("again", asks, f'keep = ["EROFS_FS"]\n{given}'),
            ("known", exercise, ""),
        )
    )
    listed.write_text(f'{rows}[[image]]\nname = "gone"\nreference = "oci:{tmp_path}/none"\n')
    out = tmp_path / "out"
    command = (
        "fleet", "fit", listed, "-o", out, "--on", "local:2", "--repeat", "2", "--authfile", login, "--json",
        "--secrets", secrets,
    )  # fmt: skip
    ended = run_program(tmp_path, *command, timeout_s=1200)
    assert ended.code == 1, ended.stderr
    found = records.load(FleetRecord, out / "fleet.json")
    standing = {one.entry.name: one.standing for one in found.images}
    assert standing == dict.fromkeys(("web", "again", "known"), ImageStanding.DONE) | {"gone": ImageStanding.FAILED}
    assert json.loads(ended.stdout)["schema"] == FleetRecord.SCHEMA
    alone = records.load(FitRun, lighttpd.bundle / RUN)
    for name in ("web", "again", "known"):
        run = records.load(FitRun, out / name / RUN)
        assert run.verified
        assert dict(run.plan.fragment) == dict(alone.plan.fragment), "one kernel, for whatever reasons"
        # Another exercise makes the run volume longer, and the kernel prints its size.
        exact = 0 if name == "known" else 1e-3
        assert run.tailored.init_instructions == pytest.approx(alone.tailored.init_instructions, rel=exact)
    assert [part.part for part in found.images[2].parts] == ["prepare", "seal"], "its fit is in the cache"
    assert found.images[2].kernel and {one.kernel for one in found.images[:3]} == {found.images[2].kernel}
    did = [{part.part: part.worker for part in one.parts} for one in found.images[:2]]
    shared = did[0].keys() - {"prepare", "seal"}
    assert shared >= {"trace", "plan", "verify"}
    assert all([bool(one[part]) for one in did].count(True) == 1 for part in shared), "what both want was done once"
    assert "none" in (out / "fleet.html").read_text()
    written = [path for path in out.rglob("*") if path.is_file()]
    assert not [path for path in written if CANARY.encode() in path.read_bytes()]
    assert CANARY not in ended.stdout + ended.stderr

    # The container had the value, and nothing that is kept has it.
    traced = b"".join(path.read_bytes() for path in written if "trace" in path.parts)
    assert "quiet ‹secret TOKEN›".encode() in traced
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    assert not written_with(SECRET, began)
    assert SECRET not in ended.stdout + ended.stderr

    (tmp_path / "none").symlink_to(lighttpd.layout)  # what failed is there now
    listed.write_text(listed.read_text().replace('"gone"', f'"gone"\nexercise = "{exercise}"'))
    again = run_program(tmp_path, *command, timeout_s=1200)
    assert again.code == 0, again.stderr
    assert records.load(FleetRecord, out / "fleet.json").all_done
    needs = run_program(tmp_path, "fleet", "refit", out, "--kernel", "5.0", "--dry-run")
    assert needs.stderr.count("5.0 is asked for") == 4
