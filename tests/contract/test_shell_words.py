# SPDX-License-Identifier: Apache-2.0
"""The words that bash, zsh and fish complete, by their own machinery. None of them starts vmtailor."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vmtailor.cli.shells import scripts
from vmtailor.cli.shells.words import IMAGE_WORDS, all_words
from vmtailor.cli.verbs import VERBS

pytestmark = pytest.mark.contract

Complete = Callable[[str], set[str]]

#: Completes the pieces that readline would cut the line into.
_BASH = r"""
vmtailor() { echo 'vmtailor was started' >&2; exit 1; }
source "$1"
COMP_LINE=$2
COMP_POINT=${#COMP_LINE}
shift 2
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_vmtailor
printf '%s\n' "${COMPREPLY[@]}"
"""

#: Presses the tab key in a zsh on a terminal of its own, whose `compadd` prints what it adds.
_ZSH = r"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; unsetopt zle_bracketed_paste beep; fpath=('${(q)1}' $fpath); autoload -U compinit; compinit -D -u'
zpty -w z 'zstyle ":completion:*" insert-tab false; zstyle ":completion:*" verbose false'
zpty -w z 'compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-[OAD]\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits; local -A suffix; local one
    builtin compadd -A hits "$@"
    zparseopts -E -- S:=suffix
    for one in $hits; do print -r -- "<hit>$IPREFIX$one${suffix[-S]}</hit>"; done
    builtin compadd "$@"
}'
zpty -w z 'ended() { print -r -- "<end>"; exit; }; comppostfuncs=(ended)'
zpty -w z 'stty -echo; print -r -- "<be""gin>"'
zpty -r -m z seen '*<begin>*' || exit 1
zpty -w -n z "$2"$'\t'
zpty -r -m z seen '*<end>*' || exit 1
print -r -- $seen
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the three scripts as they are installed."""
    folder = tmp_path_factory.mktemp("scripts")
    for shell, place in scripts.PLACES.items():
        (folder / Path(place).name).with_suffix("").with_name(_file(shell)).write_text(scripts.script(shell))
    return folder


def _file(shell: str) -> str:
    return {"bash": "vmtailor", "zsh": "_vmtailor", "fish": "vmtailor.fish"}[shell]


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def complete(shell: str, written: Path, tmp_path: Path) -> Complete:
    """Return a function that completes a line in a folder with a bundle, an exercise, and a state with names."""
    state = tmp_path / "state" / "vmtailor"
    for name in ("names/web", "names/webby", "names/db", "names/$(touch hurt)", "volumes/data", "volumes/logs"):
        (state / name).mkdir(parents=True)
    here = tmp_path / "here"
    (here / "bundle").mkdir(parents=True)
    (here / "exercise.toml").touch()
    (here / "my file").touch()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_STATE_HOME": str(state.parent), "LC_ALL": "C.UTF-8",
        "TERM": "dumb", "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data"),
    }  # fmt: skip

    def completed(line: str) -> set[str]:
        command = _command(shell, written / _file(shell), line)
        ended = subprocess.run(
            command, cwd=here, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert ended.returncode == 0 and not ended.stderr, (ended.returncode, ended.stderr, ended.stdout)
        assert not (here / "hurt").exists()
        return _offered(shell, ended.stdout)

    return completed


def _command(shell: str, script: Path, line: str) -> list[str]:
    if shell == "bash":
        pieces = re.findall(r"[^\s=:]+|[=:]+", line) + ([""] if line[-1:].isspace() else [])
        return ["bash", "--norc", "--noprofile", "-c", _BASH, "bash", str(script), line, *pieces]
    if shell == "zsh":
        return ["zsh", "-f", "-c", _ZSH, "zsh", str(script.parent), line]
    return ["fish", "--no-config", "-c", f"source {shlex.quote(str(script))}; complete -C {shlex.quote(line)}"]


def _offered(shell: str, text: str) -> set[str]:
    if shell == "zsh":
        return set(re.findall(r"<hit>(.*?)</hit>", text))
    return {line.partition("\t")[0] for line in text.splitlines()} - {""}


def _bare(offered: set[str]) -> set[str]:
    """Return words without what shells add behind folders and prefixes, and without the option before them."""
    return {one.rpartition("=")[2].rstrip("/:") for one in offered}


def test_verbs_are_completed(complete: Complete) -> None:
    assert complete("vmtailor ") == {verb.name for verb in VERBS}
    assert complete("vmtailor re") == {"refit", "report", "restart", "rename"}


def test_options_are_those_of_the_verb(complete: Complete) -> None:
    assert complete("vmtailor --") >= {"--debug", "--version", "--help"}
    assert complete("vmtailor stop --t") == {"--timeout"}
    assert complete("vmtailor run --pub") == {"--publish", "--publish-all"}
    assert complete("vmtailor run --no-o") == {"--no-outbound"}
    assert complete("vmtailor ps --sig") == set()


def test_every_long_option_of_every_verb_is_offered(complete: Complete) -> None:
    for words in all_words():
        if words.verb in ("run", "fit", "bench", "volume", "rename"):
            longs = {name for flag in words.flags for name in flag.names if name.startswith("--")}
            assert complete(f"vmtailor {words.verb} --") == longs, words.verb


@pytest.mark.parametrize(
    "before",
    ["stop ", "kill -s HUP ", "logs -f ", "exec ", "rm db ", "stop -t 5 ", "stop --timeout=5 ", "inspect -- "],
)
def test_names_of_machines_are_completed_without_running_them(complete: Complete, before: str) -> None:
    assert complete(f"vmtailor {before}we") == {"web", "webby"}


def test_names_of_volumes(complete: Complete) -> None:
    assert complete("vmtailor volume rm ") == {"data", "logs"}
    assert complete("vmtailor volume ") == {"ls", "create", "inspect", "rm"}
    assert _bare(complete("vmtailor run -v da")) == {"data"}
    assert _bare(complete("vmtailor run -v ./bun")) in ({"./bundle"}, {"bundle"})
    assert complete("vmtailor run -v data:/v") == set()


def test_machines_and_files_are_copied(complete: Complete) -> None:
    assert "web:" in complete("vmtailor cp we")
    assert _bare(complete("vmtailor cp exer")) == {"exercise.toml"}
    assert complete("vmtailor cp web:/etc") == set()


def test_bundles_are_folders_and_images_may_be_files(complete: Complete) -> None:
    assert _bare(complete("vmtailor run ")) >= {"bundle", "oci", "docker"}
    assert _bare(complete("vmtailor run -p 8080:80 -e A=b --name web bun")) == {"bundle"}
    assert _bare(complete("vmtailor verify ")) == {"bundle"}
    assert _bare(complete("vmtailor explain ")) >= {"bundle"}
    assert complete("vmtailor fit oci-") == {"oci-archive:"}
    assert {one.rpartition(":")[2] for one in _bare(complete("vmtailor fit oci:bun"))} == {"bundle"}
    assert _bare(complete("vmtailor fit bundle -x exe")) == {"exercise.toml"}
    assert _bare(complete("vmtailor fit bundle --exercise=exe")) == {"exercise.toml"}


def test_a_bundle_is_sent_to_a_folder_an_archive_or_a_registry(complete: Complete) -> None:
    assert _bare(complete("vmtailor push bun")) == {"bundle"}
    assert complete("vmtailor push oci") == set(), "a bundle to send is a folder of this host"
    for before in ("bundle", "bundle other", "--authfile=x bundle"):
        prefixes = _bare(complete(f"vmtailor push {before} ")) & {one.rstrip("/:") for one in IMAGE_WORDS}
        assert prefixes == {"oci", "oci-archive", "docker"}
        assert _bare(complete(f"vmtailor push {before} bun")) == {"bundle"}
        assert {one.rpartition(":")[2] for one in _bare(complete(f"vmtailor push {before} oci:bun"))} == {"bundle"}
    archives = _bare(complete("vmtailor push bundle oci-archive:exe"))
    assert {one.rpartition(":")[2] for one in archives} == {"exercise.toml"}
    assert {one.rpartition(":")[2] for one in _bare(complete("vmtailor family build -o oci:bun"))} == {"bundle"}
    assert {one.rpartition(":")[2] for one in _bare(complete("vmtailor run --family=oci:bun"))} == {"bundle"}


def test_the_words_of_values(complete: Complete) -> None:
    assert complete("vmtailor fit --margin ") == {"none", "reachable", "server", "reachable+server"}
    assert complete("vmtailor verify --on ") == {"cloud-hypervisor", "firecracker", "libkrun", "qemu"}
    assert _bare(complete("vmtailor fit --keep ")) == {"folders", "folders-9p", "volumes"}
    assert {one.rpartition(",")[2] for one in complete("vmtailor fit --keep folders,vol")} == {"volumes"}
    assert complete("vmtailor kill -s U") == {"USR1", "USR2"}
    assert complete("vmtailor run --restart un") == {"unless-stopped"}
    assert _bare(complete("vmtailor boot --clock=w")) == {"wall"}
    assert complete("vmtailor completions ") == {"bash", "zsh", "fish"}
    assert "run-in-the-background" in complete("vmtailor help run")


def test_what_stands_behind_the_bundle_is_the_guests(complete: Complete) -> None:
    assert complete("vmtailor run bundle --pub") == set()
    assert complete("vmtailor exec -it web --e") == set()
    assert complete("vmtailor rm web --f") == {"--force"}
