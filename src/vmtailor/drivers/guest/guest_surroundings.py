# SPDX-License-Identifier: Apache-2.0
"""Records of a run's surroundings, for init (native/common/records.h). An init of a version before knows none."""

from __future__ import annotations

from vmtailor.model.boots.surroundings import GuestSurroundings

#: The value of setrlimit(2) that is no limit.
_NO_LIMIT = 2**64 - 1


def pairs(asked: GuestSurroundings) -> list[tuple[str, str]]:
    """Return the records, key and value; none for what is as usual."""
    texts = (
        ("+read-only", "1" if asked.read_only else None),
        ("+no-new-privileges", "1" if asked.no_new_privileges else None),
        ("+shm", _text(asked.shm_bytes)),
        ("+domain", asked.domain),
        ("+oom", _text(asked.oom_score_adj)),
        ("+layer", asked.layer),
        ("+rights", None if asked.rights is None else f"{asked.rights:x}"),
    )
    return [
        *((key, value) for key, value in texts if value is not None),
        *(("+host", line) for line in asked.hosts),
        *(("+resolver", line) for line in asked.resolver),
        *(("+group", group) for group in asked.groups),
        *(("+limit", f"{one.resource} {_limit(one.soft)} {_limit(one.hard)}") for one in asked.limits),
        *(("+tmpfs", f"{one.flags} {one.options or '-'} {one.path}") for one in asked.tmpfs),
        *(("+sysctl", f"{path} {value}") for path, value in asked.sysctls),
    ]


def known(init: bytes, asked: GuestSurroundings) -> bool:
    """Return whether an init can give a container these surroundings."""
    return all(b"\0%s\0" % key.encode() in init for key, _ in pairs(asked))


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _limit(value: int) -> int:
    return _NO_LIMIT if value == -1 else value
