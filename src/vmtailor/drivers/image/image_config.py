# SPDX-License-Identifier: Apache-2.0
"""Read a manifest and an image configuration, in OCI's and Docker's schema. Both are untrusted: the type of each value
is checked before it is used."""

from __future__ import annotations

import re
from typing import Any

from vmtailor.drivers.image.allowance import LAYERS
from vmtailor.drivers.image.documents import BadConfig, shown
from vmtailor.drivers.image.signals import name_of
from vmtailor.model.image import HealthCheck, ImageConfig, Port

#: The longest word that the kernel gives to a program (MAX_ARG_STRLEN less its NUL), and the longest list of ours.
WORD_BYTES = 131_071
WORDS_BYTES = 1 << 20
#: Ports that are listed, ranges written out, repetitions counted.
PORTS = 200_000
_INT64_MAX = 2**63 - 1
_ID_MAX = 2**32 - 2
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE | re.ASCII)


def digests_of(manifest: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the digests of configuration and layers, lowest first."""
    if "manifests" in manifest:
        raise BadConfig("a list of manifests where one manifest should be")
    if manifest.get("schemaVersion") != 2:
        raise BadConfig(f"a manifest of schema version {shown(manifest.get('schemaVersion'))}; 2 is needed")
    config, layers = manifest.get("config"), manifest.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise BadConfig("the manifest has no configuration or no layers")
    if len(layers) > LAYERS:
        raise BadConfig(f"the manifest has {len(layers)} layers; at most {LAYERS} are read")
    found = [item.get("digest") if isinstance(item, dict) else None for item in (config, *layers)]
    for digest in found:
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise BadConfig(f"{shown(digest)} is not a SHA-256 digest")
    names = [str(digest) for digest in found]
    return names[0], tuple(names[1:])


def diff_ids_of(config: dict[str, Any], layers: int) -> tuple[str, ...]:
    """Return the digests of the uncompressed layers. Raises BadConfig when they are not as many as the layers."""
    rootfs = config.get("rootfs")
    found = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(found, list) or len(found) != layers:
        raise BadConfig(f"the configuration does not name the content of its {layers} layers")
    for digest in found:
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise BadConfig(f"{shown(digest)} is not a SHA-256 digest")
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
        user=_user(_text(inner, "User")),
        exposed_ports=_ports(_keys(inner, "ExposedPorts")),
        volumes=_keys(inner, "Volumes"),
        stop_signal=signal_name(_text(inner, "StopSignal") or "SIGTERM"),
        health_check=_health_check(inner.get("Healthcheck"), shell),
        labels=_labels(inner.get("Labels")),
    )


def signal_name(text: str) -> str:
    """Return a signal as `SIGNAME`; names with and without SIG, numbers, SIGRTMIN+N and SIGRTMAX-N are understood.
    Raises BadConfig."""
    name = name_of(text)
    if name is None:
        raise BadConfig(f"{shown(text, 40)} is not a signal")
    return name


def _checked(value: Any, key: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise BadConfig(f"{key} holds {shown(value)}, which is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadConfig(f"{key} holds half a character") from None
    return value


def _word(value: Any, key: str) -> str:
    """Return a text that a program is given, which has its limits."""
    size = len(_checked(value, key).encode())
    if size > WORD_BYTES:
        raise BadConfig(f"{key} holds a text of {size} bytes; no program can be given more than {WORD_BYTES}")
    return str(value)


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return "" if value is None else _word(value, key)


def _words(document: dict[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadConfig(f"{key} is not a list")
    words = tuple(_word(word, key) for word in value)
    if sum(len(word) + 1 for word in words) > WORDS_BYTES:
        raise BadConfig(f"{key} is longer than {WORDS_BYTES} bytes")
    return words


def _command(document: dict[str, Any], key: str, shell: tuple[str, ...]) -> tuple[str, ...]:
    value = document.get(key)
    if isinstance(value, str):  # the shell form, in images of the first Docker versions
        return (*shell, _word(value, key)) if value else ()
    return _words(document, key)


def _keys(document: dict[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise BadConfig(f"{key} is not an object")
    return tuple(sorted(_checked(name, key) for name in value))


def _user(text: str) -> str:
    """Return the user as it is written (`name`, `uid`, `name:group`, `uid:gid`), unless a number in it is not a
    user's."""
    for part in text.split(":"):
        if part.isascii() and part.isdigit() and (len(part) > 10 or int(part) > _ID_MAX):
            raise BadConfig(f"User is {shown(text, 40)}; users and groups have numbers up to {_ID_MAX}")
    return text


def _ports(names: tuple[str, ...]) -> tuple[Port, ...]:
    ports = set()
    listed = 0
    for name in names:
        match = _PORT.fullmatch(name)
        if match is None:
            raise BadConfig(f"ExposedPorts holds {shown(name, 40)}")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if not 1 <= first <= last <= 65535:
            raise BadConfig(f"ExposedPorts holds {shown(name, 40)}")
        listed += last - first + 1
        if listed > PORTS:
            raise BadConfig(f"ExposedPorts lists more than {PORTS} ports")
        ports |= {(number, (match.group(3) or "tcp").lower()) for number in range(first, last + 1)}
    return tuple(Port(number, protocol) for number, protocol in sorted(ports))


def _seconds(document: dict[str, Any], key: str, default: float) -> float:
    value = document.get(key) or 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _INT64_MAX:
        raise BadConfig(f"Healthcheck has {shown(value, 40)} as {key}, which is not a number of nanoseconds")
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
        raise BadConfig(f"Healthcheck tests {shown(test[0], 40)}; CMD, CMD-SHELL and NONE are known")
    retries = document.get("Retries") or 3
    if not isinstance(retries, int) or not 0 <= retries < 2**31:
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
