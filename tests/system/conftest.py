# SPDX-License-Identifier: Apache-2.0
"""One image, fitted once in a session by the program itself; every test that needs a bundle uses that one.

On a fresh machine this is the session's only kernel compile. It goes into the user's cache, as any fit does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.program import Ended, run_program

from vmtailor.base import records
from vmtailor.base.natives import locate
from vmtailor.base.process import require_tool
from vmtailor.base.store import Store
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.pipeline import bundling
from vmtailor.stages.image import fetch
from vmtailor.stages.root import build_root

EXAMPLES = Path(__file__).parents[2] / "examples"
TALKER = Path(__file__).parents[1] / "guests" / "talker"
#: A whole fit on a slow machine, compile included, in seconds.
FIT_S = 3600.0


@dataclass(frozen=True)
class Hello:
    """The example `hello`, fitted. `document` is what `fit --json` printed; `arguments` repeat the fit, all but -o."""

    layout: Path
    bundle: Path
    document: dict[str, Any]
    arguments: tuple[str, ...]
    ended: Ended


@pytest.fixture(scope="session")
def hello_layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image, as an OCI layout."""
    layout = tmp_path_factory.mktemp("image") / "hello"
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), "hello", str(layout)], check=True, timeout=600)
    return layout


@pytest.fixture(scope="session")
def hello(hello_layout: Path, tmp_path_factory: pytest.TempPathFactory) -> Hello:
    """The image's bundle, from a fit through the command line."""
    folder = tmp_path_factory.mktemp("fit")
    exercise = EXAMPLES / "hello" / "exercise.toml"
    arguments = ("fit", f"oci:{hello_layout}", "--exercise", str(exercise), "--json", "--boots", "2")
    ended = run_program(folder, *arguments, "-o", folder / "bundle", timeout_s=FIT_S)
    assert ended.code == 0, f"the fit failed with {ended.code}:\n{ended.stdout}\n{ended.stderr}"
    return Hello(hello_layout, folder / "bundle", json.loads(ended.stdout), arguments, ended)


@pytest.fixture(scope="session")
def talker(hello: Hello, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of `hello` with another image in it."""
    folder = tmp_path_factory.mktemp("talker")
    layout = folder / "layout"
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), str(TALKER), str(layout)], check=True, timeout=300)
    store = Store(folder / "cache")
    image = fetch(f"oci:{layout}", store)
    made = folder / "bundle"
    shutil.copytree(hello.bundle, made)
    bundle = records.load(Bundle, made / RECORD)
    shutil.copyfile(build_root(image, bundle.root_format, locate(), store), made / bundle.root)
    bundling.seal(made, replace(bundle, image=image.config))
    return made


@pytest.fixture(scope="session")
def no_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment in which no machine boots and nothing is compiled: QEMU and make say what was tried, and fail."""
    folder = tmp_path_factory.mktemp("no-builds")
    real = require_tool("qemu-system-x86_64")
    qemu = folder / "qemu"
    qemu.write_text(
        f'#!/bin/sh\nfor word; do\n[ "$word" = -kernel ] && {{ echo qemu "$@" >> {folder}/tried; exit 1; }}\ndone\n'
        f'exec {real} "$@"\n'
    )
    tools = folder / "tools"
    tools.mkdir()
    make = tools / "make"
    # A kernel is made in another folder (O=); our own native parts may be looked over.
    make.write_text(
        f'#!/bin/sh\ncase "$*" in *" O="*) echo make "$@" >> {folder}/tried; exit 1;; esac\n'
        f'exec {require_tool("make")} "$@"\n'
    )
    for file in (qemu, make):
        file.chmod(0o755)
    yield {"VMTAILOR_QEMU": str(qemu), "PATH": f"{tools}:{os.environ['PATH']}"}
    tried = folder / "tried"
    assert not tried.exists(), tried.read_text()


@pytest.fixture(scope="session")
def lighttpd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the example `lighttpd`, as `make demo` makes it: its kernel has a network."""
    folder = tmp_path_factory.mktemp("lighttpd")
    layout, example = folder / "layout", EXAMPLES / "lighttpd"
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), "lighttpd", str(layout)], check=True, timeout=600)
    bundle = folder / "bundle"
    ended = run_program(
        folder,
        "fit",
        f"oci:{layout}",
        "--exercise",
        example / "exercise.toml",
        "--boots",
        "2",
        "-o",
        bundle,
        timeout_s=FIT_S,
    )
    assert ended.code == 0, f"the fit failed with {ended.code}:\n{ended.stdout}\n{ended.stderr}"
    return bundle
