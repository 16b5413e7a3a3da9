# SPDX-License-Identifier: Apache-2.0
"""Runtimes as tables of commands: what is read, refused, and filled in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.bench.model.instance import InstanceSpec, Limits, Volume
from vmtailor.bench.runtimes import description, host_runtime
from vmtailor.bench.runtimes.host_runtime import BenchImage, DescribedRuntime, able, groups_of, missing, unable
from vmtailor.bench.runtimes.instance_cgroups import Cgroups
from vmtailor.bench.runtimes.overlay_roots import Overlay, bundle_config
from vmtailor.bench.runtimes.stopwatch import timed

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = sorted((REPOSITORY / "examples/runtimes").glob("*.toml"))
LIMITED = InstanceSpec(
    "vt-1", ("/bench/bench", "report"), Limits(256 << 20, 1.5, 64, "0"), (Volume("/a", "/b"),), "/run/netns/bench0"
)
SMALL = b"""
name = "small"
title = "Small"
programs = ["small"]
packages = ["small"]
root = "image"
[commands]
run = ["small", "[memory]", "[volume]", "{image}", "{command}"]
start = ["small", "start"]
[options]
memory = ["-m", "{memory_bytes}"]
volume = ["-v", "{source}:{target}"]
"""


def strictly_filled(text: str, values: Mapping[str, str]) -> str:
    """As `filled` does it, but that a field without a value is an error."""
    return re.sub(r"\{([a-z_]+)\}", lambda field: values[field[1]], text)


def test_all_that_come_with_the_program_are_read() -> None:
    assert description.known()[0] == "native" and len(description.known()) == 7
    for name in description.known():
        assert description.load(name).name == name


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_all_examples_are_read(file: Path) -> None:
    assert description.load(str(file)).name == file.stem


@pytest.mark.parametrize("name", [*description.known(), *map(str, EXAMPLES)])
def test_every_field_of_every_command_is_filled(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (description, host_runtime):
        monkeypatch.setattr(module, "filled", strictly_filled)
    one = description.load(name)
    runtime = DescribedRuntime(one, tmp_path, Path("/enter"), Cgroups(tmp_path))
    runtime._image = BenchImage(tmp_path / "tree", tmp_path / "image.tar", "bench:1")
    for spec in (LIMITED, InstanceSpec("vt-2", ("/bench/bench", "hold"))):
        if one.root is not description.RootForm.IMAGE:  # those load it themselves, and have no root of ours
            runtime._placed[spec.name] = Overlay(tmp_path / spec.name, tmp_path / "tree")
        if one.limits == "cgroup":
            runtime._entries[spec.name] = [tmp_path / "cgroup.procs"]
        found = runtime.commands(spec)
        commands = [found.run, *found.create, found.start, *found.stop, *found.remove]
        for words in commands:
            assert words and not [word for word in words if re.fullmatch(r"\[[a-z_]+\]", word)]
            # An empty entry point is a word, too.
            assert all(word or before == "--entrypoint" for before, word in zip(("", *words), words, strict=False))
    values = {**runtime._values(), "network_name": "bench0"}
    daemon = (one.daemon.start, one.daemon.ready) if one.daemon is not None else ()
    network = (one.commands.network, one.commands.network_pid, one.commands.network_remove)
    for told in (*one.commands.load, *daemon, *network, one.version):
        assert len(description.fill(told, values, {}, {}, {})) == len(told)
    for text in (*one.environment.values(), *(part for file in one.file for part in (file.path, file.content))):
        assert strictly_filled(text, runtime._values())


@pytest.mark.parametrize("name", [*description.known(), *map(str, EXAMPLES)])
def test_a_word_with_spaces_stays_one_word(name: str, tmp_path: Path) -> None:
    """A command handed on as one text was split at every space by a runtime (LXC) that reads it as no shell does."""
    one = description.load(name)
    runtime = DescribedRuntime(one, tmp_path, Path("/enter"), Cgroups(tmp_path))
    runtime._image = BenchImage(tmp_path / "tree", tmp_path / "image.tar", "bench:1")
    command = ("/bin/sh", "-c", "while :; do echo 'it is'; done")
    spec = InstanceSpec("vt-1", command)
    words = runtime.run_words(spec)
    if one.root is description.RootForm.BUNDLE:
        assert bundle_config(spec)["process"]["args"] == list(command)
    elif shlex.join(command) in words:  # what hands it to a shell
        assert name.endswith("openvz.toml")
    else:
        assert words[-3:] == command


def test_what_a_program_leaves_where_it_is_started_is_the_scopes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    users.mkdir()
    monkeypatch.chdir(users)
    one = description.parse(SMALL.replace(b'run = ["small"', b'run = ["touch", "oom", "--"'), "small.toml")
    runtime = DescribedRuntime(one, tmp_path / "small", Path("/enter"), Cgroups(tmp_path))
    runtime.prepare(BenchImage(tmp_path / "tree", tmp_path / "image.tar", "bench:1"))
    spec = InstanceSpec("vt-1", ("ran",))
    assert timed(runtime.run_words(spec), deadline_s=10.0, **runtime.surroundings()).returncode == 0
    assert (tmp_path / "small" / "oom").exists() and not list(users.iterdir())


def test_roots_of_all_runtimes_are_made_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a folder lies on the disk costs a cold start a tenth: no runtime has a place of its own for that."""
    mounted: list[str] = []
    monkeypatch.setattr(Overlay, "_mount", lambda self, *words, at: mounted.append(str(at)))
    for name, root in (("one", "directory"), ("other", "bundle")):
        one = description.parse(
            SMALL.replace(b'"small"\ntitle', f'"{name}"\ntitle'.encode())
            .replace(b'root = "image"', f'root = "{root}"'.encode())
            .replace(b'"{image}"', b'"{root}", "{bundle}"'),
            f"{name}.toml",
        )
        runtime = DescribedRuntime(one, tmp_path / name, Path("/enter"), Cgroups(tmp_path), tmp_path / "instances")
        runtime.prepare(BenchImage(tmp_path / "tree", tmp_path / "image.tar", "bench:1"))
        spec = InstanceSpec(f"vt-{name}", ("ran",))
        runtime.place(spec)
        bundle = tmp_path / "instances" / spec.name
        assert runtime.run_words(spec)[1:3] == (mounted[-1], str(bundle)) and mounted[-1].startswith(f"{bundle}/")
        assert bundle.is_dir()
        runtime.clear(spec)
        assert not bundle.exists() and not (tmp_path / name / spec.name).exists()


def test_limits_and_volumes_become_words_only_where_they_are_asked_for() -> None:
    small = description.parse(SMALL, "small.toml")
    lists = {"command": ["run", "me"], "cgroups": []}
    full = description.fill(small.commands.run, {"image": "i"}, lists, groups_of(LIMITED), small.options)
    assert full == ("small", "-m", str(256 << 20), "-v", "/a:/b", "i", "run", "me")
    bare = description.fill(
        small.commands.run, {"image": "i"}, lists, groups_of(InstanceSpec("x", ("run", "me"))), small.options
    )
    assert bare == ("small", "i", "run", "me")


@given(st.text())
def test_what_a_field_stands_for_is_not_looked_at_again(text: str) -> None:
    assert description.fill(["{name}"], {"name": text, "image": "no"}, {}, {}, {}) == (text,)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b'name = "small"', b'name = "../up"', "lower-case"),
        (b'root = "image"', b'root = "hole"', "describes no runtime"),
        (b'"{image}"', b'"{colour}"', "no field {colour}"),
        (b'"[memory]"', b'"[colour]"', "no group"),
        (b'"{command}"', b'"-c={command}"', "stands alone"),
        (b"[options]", b"[options]\ncolour = []", "unknown keys: options.colour"),
        (b"[commands]", b"[commands]\nrn = []", "unknown keys: commands.rn"),
        (b"title =", b"title", "describes no runtime"),
        (b"[commands]", b'version = ["x", "{colour}"]\n[commands]', "no field {colour}"),
        (b"[commands]", b'[environment]\nA = "{colour}"\n[commands]', "no field {colour}"),
        (b"[commands]", b'[commands]\nload = [["x", "{command}"]]', "stands where there is none"),
        (b"[commands]", b'limits = "cgroup"\n[commands]', "neither {cgroups} nor {cgroup}"),
        (b"[commands]", b'private = ["/etc/../x"]\n[commands]', "by their whole paths"),
        (b"[commands]", b'private = ["/etc"]\n[commands]', "by their whole paths"),
    ],
)
def test_what_is_wrong_is_named(before: bytes, after: bytes, words: str) -> None:
    with pytest.raises(UserInputError, match=re.escape(words)):
        description.parse(SMALL.replace(before, after), "small.toml")


@pytest.mark.parametrize(
    ("before", "after", "key", "meant"),
    [
        (b"title =", b"titel =", "titel", "title"),
        (b"[commands]", b"[commands]\nstrat = []", "commands.strat", "start"),
        (b"[commands]", b'[[file]]\npath = "x"\ncontents = ""\n[commands]', "file.contents", "content"),
        (b"[commands]", b"[daemon]\nstart = []\nredy = []\n[commands]", "daemon.redy", "ready"),
        (b"[options]", b"[options]\nnetwrok = []", "options.netwrok", "network"),
        (b'"{image}"', b'"{imge}"', "{imge}", "image"),
        (b'"[memory]"', b'"[memroy]"', "[memroy]", "memory"),
    ],
)
def test_a_misspelt_key_has_the_one_that_was_meant(before: bytes, after: bytes, key: str, meant: str) -> None:
    with pytest.raises(UserInputError, match=re.escape(key)) as caught:
        description.parse(SMALL.replace(before, after, 1), "small.toml")
    assert f"did you mean {meant}?" in caught.value.hint


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(UserInputError, match=r"small\.toml"):
        description.parse(data, "small.toml")


def test_a_runtime_that_is_not_there_says_how_to_get_it() -> None:
    told = missing(description.parse(SMALL.replace(b'["small"]', b'["no-such-program"]', 1), "small.toml"))
    assert "no-such-program not found" in told and "small" in told
    assert missing(description.load("native")) == ""


def test_a_limit_that_a_runtime_cannot_set_is_no_limit_that_is_passed_over(tmp_path: Path) -> None:
    small = description.parse(SMALL, "small.toml")
    assert unable(small, LIMITED.limits) == ["processor time", "processors", "processes"]
    assert able(small, LIMITED.limits) == Limits(memory_bytes=256 << 20)  # that much can be asked of it
    driver = DescribedRuntime(small, tmp_path, tmp_path / "enter", Cgroups(tmp_path))
    with pytest.raises(HostError, match="small sets no limit to processor time, processors, processes"):
        driver.place(LIMITED)
    unnamed = description.parse(SMALL.replace(b'"[memory]", ', b""), "small.toml")
    assert "memory" in unable(unnamed, LIMITED.limits)
    for name in description.known():
        assert unable(description.load(name), LIMITED.limits) == []


def test_what_a_version_does_not_say_is_none(tmp_path: Path) -> None:
    silent = description.parse(SMALL.replace(b"[commands]", b'version = ["true"]\n[commands]'), "small.toml")
    assert DescribedRuntime(silent, tmp_path, tmp_path / "enter", Cgroups(tmp_path)).version() == ""


def test_names_that_are_not_known_are_refused() -> None:
    with pytest.raises(UserInputError, match="no runtime 'xen'"):
        description.load("xen")


def test_a_bundle_has_the_limits_the_network_and_the_volumes() -> None:
    config = bundle_config(LIMITED)
    assert config["linux"]["resources"]["memory"]["limit"] == 256 << 20
    assert config["linux"]["resources"]["cpu"] == {"quota": 150_000, "period": 100_000, "cpus": "0"}
    assert {"type": "network", "path": "/run/netns/bench0"} in config["linux"]["namespaces"]
    assert config["mounts"][-1]["destination"] == "/b" and config["process"]["args"] == ["/bench/bench", "report"]
    # What engines let no container do: to devices, and to the kernel's own files.
    assert config["linux"]["resources"]["devices"] == [{"allow": False, "access": "rwm"}]
    assert "/proc/kcore" in config["linux"]["maskedPaths"] and "/proc/sys" in config["linux"]["readonlyPaths"]
    assert {"type": "network"} in bundle_config(InstanceSpec("x", ("y",)))["linux"]["namespaces"]


def test_steps_use_only_words_that_their_programs_know() -> None:
    """What went wrong when they were first run: ctr creates in no cgroup, lxc-stop knows signals from a file alone, and
    runsc cannot wait for what has ended."""
    ctr, lxc, runsc = (description.load(name) for name in ("containerd", "lxc", "gvisor"))
    assert all("--cgroup" not in words for words in ctr.commands.create)
    (file,), (stop,) = lxc.file, lxc.commands.stop
    assert "lxc.signal.halt = SIGTERM" in file.content and stop[stop.index("--rcfile") + 1] == file.path
    assert all("wait" not in words for words in runsc.commands.stop)


@pytest.mark.parametrize("text", [b"a = " + b"[" * 5000, b"a = " + b"9" * 5000, b"a = '\xff'", b"name = 3"])
def test_what_is_no_description_is_refused_in_words(text: bytes) -> None:
    with pytest.raises(UserInputError, match=r"x\.toml describes no runtime") as error:
        description.parse(text, "x.toml")
    assert len(error.value.message) < 500


def test_nothing_is_mounted_through_what_an_image_has_there(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path / "one", tmp_path / "tree")
    overlay.root.mkdir(parents=True)
    there = tmp_path / "of-the-host"
    there.mkdir()
    assert overlay.folder("proc") == overlay.root / "proc" and (overlay.root / "proc").is_dir()
    assert overlay.folder("proc") == overlay.root / "proc"
    assert overlay.folder("/data/deep") == overlay.root / "data" / "deep"
    (overlay.root / "sys").symlink_to(there)
    (overlay.root / "gone").symlink_to(there / "gone")
    (overlay.root / "dev").write_text("")
    for name in ("sys", "gone", "dev", "/sys/deep", "/data/../sys"):
        with pytest.raises(HostError, match="it is a link or a file"):
            overlay.folder(name)
    assert list(there.iterdir()) == []
