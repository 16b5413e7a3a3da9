# SPDX-License-Identifier: Apache-2.0
"""The kinds of subject, chosen by the reference."""

from __future__ import annotations

from typing import Any

from vmtailor.pipeline.image_subject import ImageSubject
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import Subject
from vmtailor.pipeline.systems import subjects
from vmtailor.pipeline.systems.system_subject import SystemSubject


def kind_of(options: FitOptions) -> type[Subject[Any]]:
    """Return the kind of subject of the options. Raises as `is_system` does."""
    return SystemSubject if subjects.is_system(options) else ImageSubject
