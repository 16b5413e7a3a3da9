# SPDX-License-Identifier: Apache-2.0
"""One image, fitted once in a session by the program itself; every test that needs a bundle uses that one, or its
kernel with another image.

On a fresh machine this is the session's only kernel compile. It goes into the user's cache, as any fit does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.program import Ended, run_program

from vmtailor.analysis.demands.demand import Demands
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.base.natives import locate
from vmtailor.base.process import require_tool
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.stages.image_fetch import fetch
from vmtailor.stages.root_volume import build_root

EXAMPLES = Path(__file__).parents[2] / "examples"
TALKER, KEEPER = (Path(__file__).parents[1] / "guests" / name for name in ("talker", "keeper"))
#: Targets of `export` that need more of a kernel than the usual board; one kernel has all of it.
TARGETS = (
    "libvirt",
    "disk",
    "libkrun:crun",
    "cloud-hypervisor",
    "firecracker:acpi",
    "firecracker:pci",
    "kubevirt",
    "urunc",
)
#: A whole fit on a slow machine, compile included, in seconds.
FIT_S = 3600.0


@dataclass(frozen=True)
class Fitted:
    """An example, fitted. `document` is what `fit --json` printed; `arguments` repeat the fit, all but -o."""

    layout: Path
    bundle: Path
    document: dict[str, Any]
    arguments: tuple[str, ...]
    ended: Ended


def layout_of(image: str | Path, folder: Path) -> Path:
    """An image of the examples, or of the tests, built as an OCI layout."""
    layout = folder / "layout"
    build = [sys.executable, str(EXAMPLES / "build.py"), str(image), str(layout)]
    subprocess.run(build, check=True, timeout=600)
    return layout


def with_image(bundle: Path, image: str | Path, folder: Path, **record: Any) -> Path:
    """A bundle with another image in it, made in `folder`; `record`: what else its record says."""
    store = Store(folder / "cache")
    fetched = fetch(f"oci:{layout_of(image, folder)}", store)
    made = folder / "bundle"
    shutil.copytree(bundle, made)
    before = records.load(Bundle, made / RECORD)
    shutil.copyfile(build_root(fetched, before.root_format, locate(), store), made / before.root)
    seal(made, replace(before, image=fetched.config, **record))
    return made


@pytest.fixture(scope="session")
def hello_layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest image, as an OCI layout."""
    return layout_of("hello", tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def lighttpd(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """The image of `make demo`, fitted through the command line: the one cold fit of a test run."""
    folder = tmp_path_factory.mktemp("fit")
    layout = layout_of("lighttpd", folder)
    exercise = EXAMPLES / "lighttpd" / "exercise.toml"
    arguments = ("fit", f"oci:{layout}", "--exercise", str(exercise), "--json", "--repeat", "2")
    ended = run_program(folder, *arguments, "-o", folder / "bundle", timeout_s=FIT_S)
    assert ended.code == 0, f"the fit failed with {ended.code}:\n{ended.stdout}\n{ended.stderr}"
    return Fitted(layout, folder / "bundle", json.loads(ended.stdout), arguments, ended)


@pytest.fixture(scope="session")
def hello(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel of `lighttpd` with the image `hello`, which has no network."""
    return with_image(lighttpd.bundle, "hello", tmp_path_factory.mktemp("hello"), network=False)


@pytest.fixture(scope="session")
def talker(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a program that says how it was started."""
    return with_image(lighttpd.bundle, TALKER, tmp_path_factory.mktemp("talker"), network=False)


@pytest.fixture(scope="session")
def foldered(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`lighttpd` on a second kernel, which can mount folders and volumes: minutes, where that is not cached."""
    made = tmp_path_factory.mktemp("foldered")
    refit = ("refit", lighttpd.bundle, "--keep", "folders,folders-9p,volumes", "-o", made / "bundle", "--repeat", "1")
    ended = run_program(made, *refit, timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr
    return made / "bundle"


@pytest.fixture(scope="session")
def exportable(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`lighttpd` on a kernel for the targets that need more than the usual board. Slow tests alone use it: minutes,
    where that is not cached."""
    made = tmp_path_factory.mktemp("exportable")
    refit = ("refit", lighttpd.bundle, "--for", ",".join(TARGETS), "-o", made / "bundle", "--repeat", "1")
    ended = run_program(made, *refit, timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr
    return made / "bundle"


@pytest.fixture(scope="session")
def keeper(foldered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shell on that kernel, whose machine keeps what it writes."""
    return with_image(foldered, KEEPER, tmp_path_factory.mktemp("keeper"))


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes plans lack a symbol that the container asks for: no demand names it any more."""

    def forgotten(symbol: str) -> None:
        add = Demands.add

        def forgetful(self: Demands, kind: Any, key: str, symbols: Sequence[str], *where: Any, **more: Any) -> None:
            add(self, kind, key, [name for name in symbols if name != symbol], *where, **more)

        monkeypatch.setattr(Demands, "add", forgetful)

    return forgotten


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
