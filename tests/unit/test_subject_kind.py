# SPDX-License-Identifier: Apache-2.0
"""The content of an image tells its kind, and a registry is asked once for both."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.systems import elf
from tests.fakes.tars import directory, file, tar_of, write_layout

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import temporary
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.monitors import monitors
from vmtailor.model.architecture import of_host
from vmtailor.model.image import Image
from vmtailor.pipeline import fit, image_subject, subject_kind
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import subjects

REFERENCE = "docker://registry.example/some/image:1"
ROOT = tar_of(
    *(directory(name) for name in ("usr", "usr/bin", "usr/lib", "usr/lib/systemd")),
    file("usr/bin/prog", elf(), mode=0o755),
    file("usr/lib/systemd/systemd", elf(), mode=0o755),
)
INIT, PROGRAM = "/usr/lib/systemd/systemd", "/usr/bin/prog"
Published = Callable[[str], Path]


class Reached(Exception):
    """The fit goes on with an image that was fetched."""


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    """Gives the log of a skopeo whose registry has an image with this entry point: a line for each call."""
    log = tmp_path / "asked"

    def publish(entry: str) -> Path:
        layout = write_layout(tmp_path / "layout", [ROOT], {"Entrypoint": [entry]}, (of_host().image,))
        blobs = layout / "blobs/sha256"
        (one,) = json.loads((layout / "index.json").read_text())["manifests"]
        (blobs / one["digest"].removeprefix("sha256:")).rename(blobs / "manifest.json")
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "skopeo").write_text(
            "#!/bin/sh\n"
            'for word in "$@"; do last=$word; done\n'
            'case " $* " in\n'
            f'*" inspect "*) echo inspect >> {log}; exec cat {blobs}/manifest.json ;;\n'
            f'*" copy "*) echo copy >> {log}; exec cp -r {blobs} "${{last#dir:}}" ;;\n'
            "esac\n"
        )
        (tools / "skopeo").chmod(0o755)
        monkeypatch.setattr(type(monitors.usual()), "require_counting", lambda *_: None)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        return log

    return publish


@pytest.fixture
def options(tmp_path: Path) -> FitOptions:
    exercise = tmp_path / "exercise.toml"
    exercise.write_text('[ready]\nkind = "unit"\nunit = "multi-user.target"\n')
    return FitOptions(REFERENCE, tmp_path / "bundle", exercise, store=Store(tmp_path / "cache"))


def test_the_registry_is_asked_once_for_an_image(
    published: Published, options: FitOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = published(PROGRAM)

    def goes_on(asked: FitOptions, image: Image) -> Any:
        raise Reached(image.config.argv)

    monkeypatch.setattr(image_subject, "settled", goes_on)
    with pytest.raises(Reached, match=PROGRAM):
        fit.run_fit(options)
    assert log.read_text().split() == ["inspect", "copy"]
    with pytest.raises(Reached, match=PROGRAM):  # the cache has it: its digest alone is asked for
        fit.run_fit(options)
    assert log.read_text().split() == ["inspect", "copy", "inspect"]


def test_the_registry_is_asked_once_for_a_system(
    published: Published, options: FitOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = published(INIT)

    def provide(*_: object) -> Any:
        raise Reached("a kernel for its disk")

    monkeypatch.setattr(packaged_baseline, "provide", provide)
    with pytest.raises(Reached, match="a kernel for its disk"):
        fit.run_fit(options)
    assert log.read_text().split() == ["inspect", "copy"]


@pytest.mark.parametrize("named", [{"entrypoint": (PROGRAM,)}, {"cmd": (PROGRAM,)}])
def test_a_program_that_the_user_names_makes_it_an_image(
    published: Published, options: FitOptions, named: dict[str, Any]
) -> None:
    """Nothing is fetched to see its kind."""
    log = published(INIT)
    assert subject_kind.look(FitOptions(REFERENCE, store=options.store, **named)) == (False, None)
    assert subject_kind.look(FitOptions("docker-archive:-", store=options.store)) == (False, None)
    assert not log.exists()
    system, image = subject_kind.look(options)
    assert system and image is not None and image.config.argv == (INIT,)


def test_what_the_host_lacks_is_said_before_anything_is_fetched(
    published: Published, options: FitOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, order = published(PROGRAM), []

    def unusable() -> None:
        order.append("usable")

    def uncounted(architecture: str) -> None:
        order.append(architecture)
        raise HostError("nothing counts here", hint="install it")

    monkeypatch.setattr(temporary, "require_usable", unusable)
    monkeypatch.setattr(type(monitors.usual()), "require_counting", lambda _, architecture: uncounted(architecture))
    with pytest.raises(HostError, match="nothing counts here"):
        fit.run_fit(options)
    assert order == ["usable", of_host().name] and not log.exists()


def test_options_are_refused_for_the_kind_that_was_found(published: Published, options: FitOptions) -> None:
    log = published(PROGRAM)
    asked = FitOptions(REFERENCE, options.out, store=options.store, partition=1, asked=frozenset({"partition"}))
    with pytest.raises(UserInputError, match="--partition"):
        fit.run_fit(asked)
    assert log.read_text().split() == ["inspect", "copy"]


def test_a_disk_is_opened_where_it_lies(options: FitOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def on_disk(asked: FitOptions, image: Image | None) -> Iterator[Any]:
        assert image is None
        raise Reached(asked.reference)
        yield

    monkeypatch.setattr(subjects, "on_disk", on_disk)
    asked = FitOptions("disk:x.raw", options.out, options.exercise_file, store=options.store)
    with pytest.raises(Reached, match=r"disk:x\.raw"):
        fit.run_fit(asked)
