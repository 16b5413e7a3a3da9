# SPDX-License-Identifier: Apache-2.0
"""Read a manifest and an image configuration, in OCI's and Docker's schema. Both are untrusted: the type of each value
is checked before it is used.

A value that container engines pass over is passed over, too, with a remark. Values that they refuse, and what no
program could be given, are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from vmtailor.base.text import is_number
from vmtailor.drivers.image.allowance import LAYERS
from vmtailor.drivers.image.documents import BadConfig, shown
from vmtailor.drivers.image.signals import name_of
from vmtailor.model.architecture import image_name
from vmtailor.model.image import HealthCheck, ImageConfig, Port

#: The longest word that the kernel gives to a program (MAX_ARG_STRLEN less its NUL), and the longest list of ours.
WORD_BYTES = 131_071
WORDS_BYTES = 1 << 20
#: Ports that are listed, ranges written out, repetitions counted.
PORTS = 200_000
_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
_ID_MAX = 2**32 - 2
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Keys that are read, in their spelling: programs written in Go, which engines are, take them in any case.
_KEYS = (
    "architecture", "os", "config", "rootfs", "diff_ids", "Entrypoint", "Cmd", "Env", "WorkingDir", "User", "Volumes",
    "ExposedPorts", "StopSignal", "Healthcheck", "Labels", "Shell", "Test", "Interval", "Timeout", "StartPeriod",
    "Retries",
)  # fmt: skip
_SPELLED = {key.casefold(): key for key in _KEYS}
#: Remarks of one kind that are written out.
_REMARKS = 3
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp|sctp))?", re.IGNORECASE | re.ASCII)


def digests_of(manifest: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the digests of configuration and layers, lowest first."""
    if "manifests" in manifest:
        raise BadConfig("a list of manifests where one manifest should be")
    if manifest.get("schemaVersion", 2) != 2:
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
    rootfs = _spelled(config, "the configuration").get("rootfs")
    found = _spelled(rootfs, "rootfs").get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(found, list) or len(found) != layers:
        raise BadConfig(f"the configuration does not name the content of its {layers} layers")
    for digest in found:
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise BadConfig(f"{shown(digest)} is not a SHA-256 digest")
    return tuple(found)


def parse(document: dict[str, Any], remarks: list[str] | None = None) -> ImageConfig:
    """Read an image configuration whole. `remarks` gets a sentence for each value that is passed over, as container
    engines do. The architecture is empty where the image does not say it. Raises BadConfig for values of the wrong
    type."""
    said = _Remarks([] if remarks is None else remarks)
    document = _spelled(document, "the configuration")
    inner = document.get("config") or {}
    if not isinstance(inner, dict):
        raise BadConfig("`config` is not an object")
    inner = _spelled(inner, "config")
    shell = _words(inner, "Shell") or ("/bin/sh", "-c")
    entrypoint = _command(inner, "Entrypoint", shell)
    return ImageConfig(
        architecture=image_name(_text(document, "architecture")),
        os=_text(document, "os").lower() or "linux",
        # With one empty word images take back the entry point that they were built on.
        entrypoint=() if entrypoint == ("",) else entrypoint,
        cmd=_command(inner, "Cmd", shell),
        env=_env(_words(inner, "Env"), said),
        working_dir=_text(inner, "WorkingDir") or "/",
        user=_user(_text(inner, "User")),
        exposed_ports=_ports(_keys(inner, "ExposedPorts"), said),
        volumes=_volumes(_keys(inner, "Volumes"), said),
        stop_signal=_stop_signal(_text(inner, "StopSignal"), said),
        health_check=_health_check(inner.get("Healthcheck"), shell, said),
        labels=_labels(inner.get("Labels")),
    )


class _Remarks:
    """Collects what is passed over. Of many of a kind the first are named."""

    def __init__(self, remarks: list[str]) -> None:
        self._remarks = remarks

    def add(self, text: str) -> None:
        self._remarks.append(text)

    def add_all(self, key: str, values: Iterable[str], why: str) -> None:
        found = list(values)
        if found:
            more = f" and {len(found) - _REMARKS} more" if len(found) > _REMARKS else ""
            self.add(f"{key} {', '.join(shown(value, 40) for value in found[:_REMARKS])}{more} ({why})")


def _spelled(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object with the known keys in their usual spelling. Raises BadConfig for a key in two spellings."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        spelled = _SPELLED.get(key.casefold(), key)
        if spelled in found:
            raise BadConfig(f"{name} says {shown(key, 60)} twice, in capitals and not")
        found[spelled] = value
    return found


def _env(words: tuple[str, ...], said: _Remarks) -> tuple[tuple[str, str], ...]:
    pairs = [word.partition("=") for word in words]
    said.add_all("Env", (name + eq for name, eq, _ in pairs if not eq or not name), "no variable")
    return tuple((name, value) for name, eq, value in pairs if eq and name)


def _volumes(names: tuple[str, ...], said: _Remarks) -> tuple[str, ...]:
    if sum(len(name) + 1 for name in names) > WORDS_BYTES:
        raise BadConfig(f"Volumes is longer than {WORDS_BYTES} bytes")
    said.add_all("Volumes", (name for name in names if not name), "no path")
    return tuple(name for name in names if name)


def _stop_signal(text: str, said: _Remarks) -> str:
    name = name_of(text or "SIGTERM")
    if name is None:
        said.add(f"StopSignal {shown(text, 40)} (no signal: SIGTERM is sent)")
    return name or "SIGTERM"


def _checked(value: Any, key: str) -> str:
    """Return a text. Engines read null as an empty one."""
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise BadConfig(f"{key} holds {shown(value)}, which is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadConfig(f"{key} holds half a character") from None
    return value


def _word(value: Any, key: str) -> str:
    """Return a text that a program is given, which has its limits."""
    text = _checked(value, key)
    size = len(text.encode())
    if size > WORD_BYTES:
        raise BadConfig(f"{key} holds a text of {size} bytes; no program can be given more than {WORD_BYTES}")
    return text


def _text(document: dict[str, Any], key: str) -> str:
    return _word(document.get(key), key)


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
        if is_number(part) and (len(part) > 10 or int(part) > _ID_MAX):
            raise BadConfig(f"User is {shown(text, 40)}; users and groups have numbers up to {_ID_MAX}")
    return text


def _ports(names: tuple[str, ...], said: _Remarks) -> tuple[Port, ...]:
    ports = set()
    listed, odd = 0, []
    for name in names:
        match = _PORT.fullmatch(name)
        first, last = (int(match.group(1)), int(match.group(2) or match.group(1))) if match else (0, 0)
        if match is None or not 1 <= first <= last <= 65535:
            odd.append(name)
            continue
        listed += last - first + 1
        if listed > PORTS:
            raise BadConfig(f"ExposedPorts lists more than {PORTS} ports")
        ports |= {(number, (match.group(3) or "tcp").lower()) for number in range(first, last + 1)}
    said.add_all("ExposedPorts", odd, "no port")
    return tuple(Port(number, protocol) for number, protocol in sorted(ports))


def _number(document: dict[str, Any], key: str, what: str) -> int:
    """Return a number that fits into 64 bits, as engines read it; 0 where there is none."""
    value = document.get(key) or 0
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise BadConfig(f"Healthcheck has {shown(value, 40)} as {key}, which is not a number{what}")
    return value


def _seconds(document: dict[str, Any], key: str, default: float, said: _Remarks) -> float:
    value = _number(document, key, " of nanoseconds")
    if value < 0:
        said.add(f"Healthcheck's {key} (less than 0)")
    return max(0, value) / 1e9 or default


def _health_check(document: Any, shell: tuple[str, ...], said: _Remarks) -> HealthCheck | None:
    if document is None:
        return None
    if not isinstance(document, dict):
        raise BadConfig("Healthcheck is not an object")
    document = _spelled(document, "Healthcheck")
    test = _words(document, "Test")
    interval, timeout, start = (
        _seconds(document, key, default, said)
        for key, default in (("Interval", 30.0), ("Timeout", 30.0), ("StartPeriod", 0.0))
    )
    retries = _number(document, "Retries", "")
    if not test or test[0] == "NONE":
        return None
    kind, words = test[0], test[1:]
    if kind not in ("CMD", "CMD-SHELL") or not words or not words[0]:
        said.add(f"Healthcheck {shown(' '.join(test), 60)} ({_no_check(kind)})")
        return None
    return HealthCheck(
        words if kind == "CMD" else (*shell, *words),
        interval_s=interval,
        timeout_s=timeout,
        start_period_s=start,
        retries=min(retries, _INT32_MAX) if retries > 0 else 3,
    )


def _no_check(kind: str) -> str:
    return "no command" if kind in ("CMD", "CMD-SHELL") else "it begins with none of CMD, CMD-SHELL and NONE"


def _labels(document: Any) -> tuple[tuple[str, str], ...]:
    if document is None:
        return ()
    if not isinstance(document, dict):
        raise BadConfig("Labels is not an object")
    return tuple(sorted((_checked(key, "Labels"), _checked(value, "Labels")) for key, value in document.items()))
