# SPDX-License-Identifier: Apache-2.0
"""Credentials of registries, as their file has them: they go to workers, and what they hold is in no log."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import read_regular
from vmtailor.fleet.run.task_runner import Hidden, Needed

_MOST_BYTES = 1 << 20
#: Shorter texts than this are in every log.
_LEAST = 4


def read(authfile: Path | None) -> Needed:
    """Return what a file of credentials holds; nothing without one. Raises UserInputError for what is none."""
    if authfile is None:
        return Needed()
    data = read_regular(authfile, "the file of credentials", _MOST_BYTES, hint="skopeo login --authfile FILE makes one")
    try:
        document = json.loads(data)
        rows = document["auths"].values()
        secrets = tuple(Hidden(text) for row in rows for text in _texts(row) if len(text) >= _LEAST)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserInputError(
            f"{authfile} holds no credentials of registries", hint="skopeo login --authfile FILE makes one"
        ) from error
    return Needed(secrets, Hidden(data.decode("utf-8", "replace")))


def _texts(row: dict[str, Any]) -> Iterator[str]:
    for text in map(str, row.values()):
        yield text
        try:
            decoded = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        yield decoded
        yield decoded.partition(":")[2]
