# SPDX-License-Identifier: Apache-2.0
"""`plan` and `build` take every kind of subject, and ask it while its files are open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.model.kernel import KernelFiles
from vmtailor.model.plan import Plan
from vmtailor.pipeline import kernel_trials, subject_kind
from vmtailor.pipeline.options import FitOptions


class Kind:
    """A kind of subject that tells whether it is open."""

    open = False

    @classmethod
    @contextmanager
    def prepare(cls, options: FitOptions) -> Iterator[Any]:
        assert options.reference == "disk:machine.raw"
        cls.open = True
        yield SimpleNamespace(trace=lambda: SimpleNamespace(planned=cls.planned))
        cls.open = False

    @classmethod
    def planned(cls) -> Any:
        assert cls.open
        return fit_run().plan


@pytest.mark.parametrize("verb", ["plan", "build"])
def test_a_system_is_planned_and_built_as_an_image_is(verb: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    files = KernelFiles(
        release="6.12",
        image="vmlinux",
        image_bytes=1,
        zstd_bytes=None,
        packed_bytes=1,
        config="config",
        system_map="System.map",
        sha256="00",
        compiler="gcc",
        objects_compiled=1,
        seconds=1.0,
    )

    def built(findings: Any, made: Any) -> KernelFiles:
        assert Kind.open and made == findings.planned()
        return files

    monkeypatch.setattr(subject_kind, "prepare", Kind.prepare)
    monkeypatch.setattr(kernel_trials, "built", built)
    code, out, err = start(verb, "disk:machine.raw", "--json")
    assert code == 0, err
    schema = Plan.SCHEMA if verb == "plan" else KernelFiles.SCHEMA
    assert json.loads(out)["schema"] == schema and not Kind.open
