# SPDX-License-Identifier: Apache-2.0
"""Named volumes with the real mkfs.ext4: made without root, sparse, held by one machine at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vmtailor.base import process
from vmtailor.base.errors import AnswerNo, HostError, UserInputError
from vmtailor.cli.main import app
from vmtailor.drivers.shares import volumes
from vmtailor.model.machine import DiskMode

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "vmtailor" / "volumes"


def test_a_volume_is_a_file_system_that_takes_what_is_written(state: Path) -> None:
    assert volumes.names() == ()
    assert volumes.create("data", 64 << 20) and not volumes.create("data", 64 << 20)
    disk = state / "data" / "disk.raw"
    found = disk.stat()
    assert found.st_size == 64 << 20 and found.st_blocks * 512 < 8 << 20
    assert found.st_mode & 0o777 == 0o600 and state.stat().st_mode & 0o777 == 0o700
    checked = process.run([process.require_tool("e2fsck", "e2fsprogs"), "-fn", str(disk)], timeout_s=60, ok=range(9))
    assert checked.returncode == 0, checked.text
    about = volumes.state("data")
    assert about.volume.size_bytes == 64 << 20 and not about.in_use and about.path == disk


def test_one_machine_has_it_at_a_time() -> None:
    with volumes.in_use("data") as disk:
        assert disk.mode is DiskMode.WRITTEN and Path(disk.path).stat().st_size == volumes.USUAL_BYTES
        assert volumes.state("data").in_use
        with pytest.raises(UserInputError, match="in use by a running machine"), volumes.in_use("data"):
            pass
        with pytest.raises(UserInputError, match="in use by a running machine"):
            volumes.remove("data")
    volumes.remove("data")
    assert volumes.names() == ()


def test_what_was_left_half_made_is_made_anew(state: Path) -> None:
    volumes.create("data", 8 << 20)
    left = state / ".new-other"
    left.mkdir()
    (left / "disk.raw").write_text("half")
    assert volumes.create("other", 8 << 20) and volumes.names() == ("data", "other") and not left.exists()


@pytest.mark.attack
def test_a_disk_that_became_a_link_is_not_opened(state: Path, tmp_path: Path) -> None:
    volumes.create("data", 8 << 20)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (state / "data" / "disk.raw").unlink()
    (state / "data" / "disk.raw").symlink_to(victim)
    with pytest.raises(HostError, match="cannot be opened"), volumes.in_use("data"):
        pass
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["x", "..", "a/b", "-a", "a" * 129, "a b", "", "a\n"])
def test_names_lead_nowhere(name: str) -> None:
    for use in (volumes.create, volumes.remove, volumes.state):
        with pytest.raises(UserInputError, match="not the name of a volume"):
            use(name)


def test_the_verb() -> None:
    def said(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["volume", *words])
        assert result.exit_code == code, result.output
        return result.stdout

    assert said("create", "data", "--size", "16M", "--label", "a=b") == "data\n"
    (made,) = said("create", "--size", "8M").split()
    assert len(made) == 64 and set(said("ls", "-q").split()) == {"data", made}
    (row,) = json.loads(said("inspect", "data"))
    assert (row["Name"], row["Size"], row["Labels"], row["InUse"]) == ("data", 16 << 20, {"a": "b"}, False)
    assert len(json.loads(said("ls", "--json"))["volumes"]) == 2 and "data" in said("ls")
    assert said("rm", "data", made).split() == ["data", made] and said("rm", "--force", "data") == ""
    for words in (("rm", "data"), ("inspect", "data")):
        assert isinstance(CliRunner().invoke(app, ["volume", *words]).exception, AnswerNo)  # 1, as in docker
    wrong: tuple[tuple[str, ...], ...] = (("rm",), ("ls", "x1"), ("create", "aa", "bb"), ("rm", "aa", "--size", "1G"))
    for asked in wrong:
        assert isinstance(CliRunner().invoke(app, ["volume", *asked]).exception, UserInputError)
    assert volumes.names() == ()
