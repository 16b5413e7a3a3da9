# SPDX-License-Identifier: Apache-2.0
"""The options of `docker run`: those that `vmtailor run` has, and its answers to the others."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum

from vmtailor.base import manual
from vmtailor.base.files import toml_files


class Parity(StrEnum):
    SAME = "same"
    DIFFERS = "differs"
    MISSING = "missing"


@dataclass(frozen=True)
class DockerOption:
    """Options of `docker run` that share one answer. `says`: a sentence. `own_hint`: the next step, where the kind has
    none."""

    names: tuple[str, ...]
    answer: Parity
    says: str
    own_hint: str

    @property
    def hint(self) -> str:
        return self.own_hint or f"{manual.command('run-and-docker-run')} has all options of docker run"


@dataclass(frozen=True)
class OptionGroup:
    title: str
    options: tuple[DockerOption, ...]


@functools.cache
def subjects() -> tuple[OptionGroup, ...]:
    """Return all options, by subject."""
    return tuple(
        OptionGroup(
            subject["title"],
            tuple(
                DockerOption(tuple(o["names"]), Parity(o["is"]), o["says"], o.get("hint", ""))
                for o in subject["options"]
            ),
        )
        for subject in toml_files.own_table("docker_run")["subject"]
    )


def known(name: str) -> DockerOption | None:
    """Return the option of `docker run` with this name; None when Docker has none either."""
    return next((o for subject in subjects() for o in subject.options if name in o.names), None)
