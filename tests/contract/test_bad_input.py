# SPDX-License-Identifier: Apache-2.0
"""Bad input through the command line: one clear message, its exit code, nothing left behind, nothing half made."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.program import (
    Ended,
    assert_clear,
    assert_nothing_left,
    finish,
    interrupt,
    run_program,
    small_disk,
    started,
)
from tests.fakes.tars import directory, file, largest_blob, tar_of, write_layout

from vmtailor.stages.image_fetch import host_architecture

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(host_architecture() != "amd64", reason="the images made here are for amd64"),
]

CONFIG = {"Entrypoint": ["/prog"], "Env": ["PATH=/"]}


def layout(folder: Path, **config: object) -> Path:
    tar = tar_of(directory("srv"), file("prog", b"\x7fELF" + bytes(60), mode=0o755), file("data", os.urandom(200_000)))
    return write_layout(folder / "layout", [tar], {**CONFIG, **config})


def fit(folder: Path, reference: str | Path, *options: str | Path, **env: str) -> Ended:
    """`vmtailor fit` with a cache of its own, into a bundle that must not be there afterwards."""
    cache = {"XDG_CACHE_HOME": str(folder / "cache"), **env}
    ended = run_program(folder, "fit", reference, "-o", folder / "bundle", *options, env=cache)
    assert not (folder / "bundle").exists()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".bundle")] == []
    scratch = folder / "cache" / "vmtailor" / "scratch"
    assert not scratch.is_dir() or not any(scratch.iterdir())
    return ended


def corrupt(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "said"), [(corrupt, "does not match its digest"), (truncate, "damaged"), (Path.unlink, "layout")]
)
def test_a_damaged_layer(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    image = layout(tmp_path)
    damage(largest_blob(image))
    assert_clear(fit(tmp_path, f"oci:{image}"), 2, said)


def test_a_layer_that_is_no_archive(tmp_path: Path) -> None:
    image = write_layout(tmp_path / "layout", [b"this is no tar at all" * 100], CONFIG)
    assert_clear(fit(tmp_path, f"oci:{image}"), 2)


def test_a_damaged_archive_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "saved.tar").write_bytes(os.urandom(5000))
    assert_clear(fit(tmp_path, f"docker-archive:{tmp_path}/saved.tar"), 2)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = run_program(tmp_path, "fit", "docker-archive:-", "-o", tmp_path / "bundle", env=env, stdin=b"no archive")
    assert_clear(ended, 2)


def test_another_architecture(tmp_path: Path) -> None:
    tar = tar_of(file("prog", b"\x7fELF", mode=0o755))
    image = write_layout(tmp_path / "layout", [tar], CONFIG, architectures=("s390x",))
    assert_clear(fit(tmp_path, f"oci:{image}"), 2, "s390x", "amd64", "arm64")


def test_another_architecture_than_asked_for(tmp_path: Path) -> None:
    tar = tar_of(file("prog", b"\x7fELF", mode=0o755))
    image = write_layout(tmp_path / "layout", [tar], CONFIG, architectures=("amd64",))
    assert_clear(fit(tmp_path, f"oci:{image}", "--arch", "arm64"), 2, "arm64", "amd64")


def test_no_entry_point(tmp_path: Path) -> None:
    assert_clear(fit(tmp_path, f"oci:{layout(tmp_path, Entrypoint=[])}"), 2, "entry point")


def test_an_entry_point_that_is_not_there(tmp_path: Path) -> None:
    assert_clear(fit(tmp_path, f"oci:{layout(tmp_path, Entrypoint=['/nope'])}"), 2, "/nope")


def test_no_image_at_all(tmp_path: Path) -> None:
    assert_clear(fit(tmp_path, f"oci:{tmp_path}/nowhere"), 2)
    assert_clear(fit(tmp_path, "what-is-this"), 2, "what-is-this")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--memory", "lots"), "lots"),
        (("--memory", "1K"), "1K"),
        (("--cpus", "0"), "--cpus"),
        (("--repeat", "none"), "--repeat"),
        (("--machine", "vax"), "vax"),
        (("--root", "ntfs"), "ntfs"),
        (("--no-such-option",), "--no-such-option"),
        (("--exercise", "/nowhere/exercise.toml"), "/nowhere/exercise.toml"),
        (("-o", "/nowhere/at/all/bundle"), "/nowhere/at/all"),
        (("--entrypoint", "'unbalanced"), "entry point"),
        (("--entrypoint", ""), "entry point"),
    ],
)
def test_bad_options(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    assert_clear(fit(tmp_path, f"oci:{layout(tmp_path)}", *options), 2, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ready", "not TOML"),
        ('[ready]\nkind = "sometimes"', "ready.kind"),
        ('[ready]\nkind = "tcp"\nport = 70000', "ready.port"),
        ('[ready]\nkind = "exit"\n[[load]]\nkind = "http"\nport = 80', "load"),
        ("[raedy]\n", "raedy"),
        ('[ready]\nkind = "healthcheck"', "ready.kind"),
        ("\0", "not TOML"),
    ],
)
def test_a_bad_exercise(tmp_path: Path, text: str, said: str) -> None:
    exercise = tmp_path / "exercise.toml"
    exercise.write_text(text)
    assert_clear(fit(tmp_path, f"oci:{layout(tmp_path)}", "-x", exercise), 2, said, "exercise.toml")


def test_something_else_is_where_the_bundle_should_go(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("keep me")
    ended = run_program(tmp_path, "fit", f"oci:{layout(tmp_path)}", "-o", mine)
    assert_clear(ended, 2, "mine")
    assert (mine / "precious").read_text() == "keep me"


def path_with(folder: Path, *names: str) -> str:
    """A PATH with only some programs."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert found is not None, name
        (folder / name).symlink_to(found)
    return str(folder)


def test_a_missing_tool(tmp_path: Path) -> None:
    reference = f"oci:{layout(tmp_path)}"
    nothing = path_with(tmp_path / "empty")
    assert_clear(fit(tmp_path, reference, PATH=nothing), 3, "qemu-system-x86_64", "apt-get install qemu-system-x86")
    only_qemu = path_with(tmp_path / "few", "qemu-system-x86_64")
    assert_clear(fit(tmp_path, reference, PATH=only_qemu), 3, "skopeo", "apt-get install skopeo")


@pytest.mark.parametrize("size", ["16k", "128k", "300k"])
def test_a_full_disk(tmp_path: Path, size: str) -> None:
    image = layout(tmp_path)
    with small_disk(tmp_path / "small", size) as small:
        ended = fit(tmp_path, f"oci:{image}", XDG_CACHE_HOME=str(small))
        assert_clear(ended, 3, "no space is left")
        left = [path for path in small.rglob("*") if path.name.startswith((".filling", "tmp", "."))]
        assert left == []


def test_a_full_folder_for_temporary_files(tmp_path: Path) -> None:
    image = layout(tmp_path)
    with small_disk(tmp_path / "tmp", "4k") as small:
        (small / "filler").write_bytes(bytes(4096))
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        ended = run_program(tmp_path, "fit", f"oci:{image}", "-o", tmp_path / "bundle", env=env)
        (small / "filler").unlink()
        assert list(small.iterdir()) == []
    assert ended.code == 3 and ended.stderr.count("error:") == 1 and "hint:" in ended.stderr, ended.stderr
    assert f"{small}, cannot be used: no space left on device" in ended.stderr


def test_a_folder_for_temporary_files_that_is_not_there(tmp_path: Path) -> None:
    assert_clear(
        fit(tmp_path, f"oci:{layout(tmp_path)}", TMPDIR=str(tmp_path / "nowhere")), 3, "nowhere", "no such file"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_while_the_image_is_fetched(tmp_path: Path, number: int) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    fake = tools / "skopeo"
    fake.write_text("#!/bin/sh\ntrap '' INT TERM\nsleep 1000 &\nwait\nsleep 1000\n")
    fake.chmod(0o755)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": f"{tools}:{os.environ['PATH']}"}
    image = layout(tmp_path)
    with started(tmp_path, "fit", f"oci:{image}", "-o", tmp_path / "bundle", env=env) as running:
        running.wait_for_program("sleep")
        interrupt(running, number)
        ended = finish(running, 20.0)
    assert ended.code == 130, ended.stderr
    assert "interrupted:" in ended.stderr and "Traceback" not in ended.stderr
    assert_nothing_left(ended)
    assert not (tmp_path / "bundle").exists()
    scratch = tmp_path / "cache" / "vmtailor" / "scratch"
    assert not any(scratch.iterdir())


@pytest.mark.parametrize("verb", ["run", "verify", "report", "explain"])
def test_a_bundle_that_is_none(tmp_path: Path, verb: str) -> None:
    code = 125 if verb == "run" else 2
    assert_clear(run_program(tmp_path, verb, tmp_path / "nowhere"), code, "nowhere")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "bundle.json").write_text("{")
    (broken / "run.json").write_text("{")
    assert_clear(run_program(tmp_path, verb, broken), code)


@pytest.mark.parametrize(
    "port", ["80:0", "a:b", "80-81:80", "70000:80", "80:80/sctp", "1.2.3:80:80", "300.1.1.1:80:80"]
)
def test_a_port_that_is_none(tmp_path: Path, port: str) -> None:
    assert_clear(run_program(tmp_path, "run", "-p", port, tmp_path / "nowhere"), 125, port)
