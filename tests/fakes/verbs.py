# SPDX-License-Identifier: Apache-2.0
"""Verbs as the command line calls them, for tests that give their options by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vmtailor.cli.verify import verify
from vmtailor.pipeline.reverify import VerifyRequest


def verify_verb(bundle: Path, *, json: bool = False, **asked: Any) -> None:
    """Do `vmtailor verify BUNDLE` with these options."""
    verify(VerifyRequest(bundle, **asked), json)
