# SPDX-License-Identifier: Apache-2.0
"""What a manifest and an image configuration say, in OCI's and Docker's schema. Both are untrusted: each value is
checked for its type before it is used."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.model.image import HealthCheck, ImageConfig, Port

DOCUMENT_BYTES = 8 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PORT = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE)
_REALTIME = re.compile(r"(?:SIG)?(RTMIN(?:\+\d{1,2})?|RTMAX(?:-\d{1,2})?)")


class BadConfig(UserInputError):
    """The manifest or the configuration of an image makes no sense."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the image's description makes no sense: {what}", hint="build or fetch the image again")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size. Raises BadConfig."""
    try:
        if path.stat().st_size > DOCUMENT_BYTES:
            raise BadConfig(f"{path.name} is larger than {DOCUMENT_BYTES} bytes")
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadConfig(f"{path.name} is not JSON: {error}") from error
    except FileNotFoundError:
        raise BadConfig(f"{path.name} is missing") from None
    if not isinstance(document, dict):
        raise BadConfig(f"{path.name} is not an object")
    return document


def digests_of(manifest: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The digests of configuration and layers, lowest first."""
    if "manifests" in manifest:
        raise BadConfig("a list of manifests where one manifest should be")
    if manifest.get("schemaVersion") != 2:
        raise BadConfig(f"a manifest of schema version {manifest.get('schemaVersion')!r}; 2 is needed")
    config, layers = manifest.get("config"), manifest.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise BadConfig("the manifest has no configuration or no layers")
    found = [item.get("digest") if isinstance(item, dict) else None for item in (config, *layers)]
    for digest in found:
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise BadConfig(f"{str(digest)[:100]!r} is not a SHA-256 digest")
    names = [str(digest) for digest in found]
    return names[0], tuple(names[1:])


def diff_ids_of(config: dict[str, Any], layers: int) -> tuple[str, ...]:
    """The digests of the uncompressed layers. Raises BadConfig when they are not as many as the layers."""
    rootfs = config.get("rootfs")
    found = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(found, list) or len(found) != layers:
        raise BadConfig(f"the configuration does not name the content of its {layers} layers")
    for digest in found:
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise BadConfig(f"{str(digest)[:100]!r} is not a SHA-256 digest")
    return tuple(found)


def parse(document: dict[str, Any]) -> ImageConfig:
    """Read an image configuration whole. Raises BadConfig for values of the wrong type."""
    inner = document.get("config") or {}
    if not isinstance(inner, dict):
        raise BadConfig("`config` is not an object")
    shell = _words(inner, "Shell") or ("/bin/sh", "-c")
    return ImageConfig(
        architecture=_text(document, "architecture"),
        os=_text(document, "os") or "linux",
        entrypoint=_command(inner, "Entrypoint", shell),
        cmd=_command(inner, "Cmd", shell),
        env=tuple((key, value) for key, eq, value in (e.partition("=") for e in _words(inner, "Env")) if eq and key),
        working_dir=_text(inner, "WorkingDir") or "/",
        user=_text(inner, "User"),
        exposed_ports=_ports(_keys(inner, "ExposedPorts")),
        volumes=_keys(inner, "Volumes"),
        stop_signal=signal_name(_text(inner, "StopSignal") or "SIGTERM"),
        health_check=_health_check(inner.get("Healthcheck"), shell),
        labels=_labels(inner.get("Labels")),
    )


def signal_name(text: str) -> str:
    """A signal as `SIGNAME`; names with and without SIG, numbers, and SIGRTMIN+N are understood. Raises BadConfig."""
    upper = text.strip().upper()
    if upper.isascii() and upper.isdigit() and int(upper) in set(signal.Signals):
        return signal.Signals(int(upper)).name
    if match := _REALTIME.fullmatch(upper):
        return f"SIG{match.group(1)}"
    name = upper if upper.startswith("SIG") else f"SIG{upper}"
    if name in signal.Signals.__members__:
        return name
    raise BadConfig(f"{text[:40]!r} is not a signal")


def _checked(value: Any, key: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise BadConfig(f"{key} holds {str(value)[:100]!r}, which is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadConfig(f"{key} holds half a character") from None
    return value


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return "" if value is None else _checked(value, key)


def _words(document: dict[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadConfig(f"{key} is not a list")
    return tuple(_checked(word, key) for word in value)


def _command(document: dict[str, Any], key: str, shell: tuple[str, ...]) -> tuple[str, ...]:
    value = document.get(key)
    if isinstance(value, str):  # the shell form, in images of the first Docker versions
        return (*shell, _checked(value, key)) if value else ()
    return _words(document, key)


def _keys(document: dict[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise BadConfig(f"{key} is not an object")
    return tuple(sorted(_checked(name, key) for name in value))


def _ports(names: tuple[str, ...]) -> tuple[Port, ...]:
    ports = []
    for name in names:
        match = _PORT.fullmatch(name)
        if match is None:
            raise BadConfig(f"ExposedPorts holds {name[:40]!r}")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if not 1 <= first <= last <= 65535:
            raise BadConfig(f"ExposedPorts holds {name[:40]!r}")
        ports += [Port(number, (match.group(3) or "tcp").lower()) for number in range(first, last + 1)]
    return tuple(sorted(set(ports), key=lambda port: (port.number, port.protocol)))


def _seconds(document: dict[str, Any], key: str, default: float) -> float:
    value = document.get(key) or 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadConfig(f"Healthcheck has {str(value)[:40]!r} as {key}, which is no number of nanoseconds")
    return value / 1e9 or default


def _health_check(document: Any, shell: tuple[str, ...]) -> HealthCheck | None:
    if document is None:
        return None
    if not isinstance(document, dict):
        raise BadConfig("Healthcheck is not an object")
    test = _words(document, "Test")
    if not test or test[0] == "NONE":
        return None
    if test[0] == "CMD" and len(test) > 1:
        argv = test[1:]
    elif test[0] == "CMD-SHELL" and len(test) == 2:
        argv = (*shell, test[1])
    else:
        raise BadConfig(f"Healthcheck tests {test[0][:40]!r}; CMD, CMD-SHELL and NONE are known")
    retries = document.get("Retries") or 3
    if not isinstance(retries, int) or retries < 0:
        raise BadConfig("Healthcheck has no proper number of Retries")
    return HealthCheck(
        argv,
        interval_s=_seconds(document, "Interval", 30.0),
        timeout_s=_seconds(document, "Timeout", 30.0),
        start_period_s=_seconds(document, "StartPeriod", 0.0),
        retries=retries,
    )


def _labels(document: Any) -> tuple[tuple[str, str], ...]:
    if document is None:
        return ()
    if not isinstance(document, dict):
        raise BadConfig("Labels is not an object")
    return tuple(sorted((_checked(key, "Labels"), _checked(value, "Labels")) for key, value in document.items()))
