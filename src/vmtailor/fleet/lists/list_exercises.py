# SPDX-License-Identifier: Apache-2.0
"""Exercises of a list, looked at before any image is fetched."""

from __future__ import annotations

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host.exercise_table import EXAMPLE
from vmtailor.model.exercise import HOST_PORT
from vmtailor.model.image import HealthCheck, Image, ImageConfig, Port
from vmtailor.stages import exercise_file


def require_sound(text: str, origin: str, *, system: bool = False) -> None:
    """Raise UserInputError for an exercise that no image could have. What depends on the image, such as its ports, is
    not known yet. `system`: it drives a system with an init of its own."""
    if not text:
        return
    try:
        document = exercise_file.decoded(text.encode())
    except RecursionError:
        raise UserInputError(f"{origin} is not TOML that can be read: it is nested too deep", hint=EXAMPLE) from None
    except ValueError as error:
        raise UserInputError(f"{origin} is not TOML: {str(error)[:300]}", hint=EXAMPLE) from error
    if system:
        exercise_file.parse_system(document, origin)
    else:
        exercise_file.parse(document, _obliging(text), origin)


def _obliging(text: str) -> Image:
    """Return an image that has a health check, and exposes every port that an exercise asks for by `{port:N}`."""
    numbers = {int(found) for found in HOST_PORT.findall(text)} | {1}
    ports = tuple(Port(number) for number in sorted(numbers))
    config = ImageConfig("", exposed_ports=ports, health_check=HealthCheck(("true",)))
    return Image(reference="", digest="", config=config, archive="", archive_sha256="", entries=0, unpacked_bytes=0)
