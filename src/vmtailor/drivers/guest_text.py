# SPDX-License-Identifier: Apache-2.0
"""What is inside frames, from bytes to records. A guest may say anything: what makes no sense becomes empty fields."""

from __future__ import annotations

from vmtailor.model.guest import Answer, GuestNote, Mark, StepResult

_MOST = 2**63


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(text: str, otherwise: int) -> int:
    try:
        value = int(text[:20], 10)
    except ValueError:
        return otherwise
    return value if -_MOST < value < 2**64 else otherwise


def parse_mark(payload: bytes, host_s: float) -> Mark | None:
    """`NAME CYCLES MONOTONIC REALTIME`; None when it is nothing of the kind."""
    words = _text(payload).split(" ")
    if len(words) != 4 or not words[0] or not all(word.isascii() and word.isdigit() for word in words[1:]):
        return None
    cycles, monotonic, realtime = (_number(word, 0) for word in words[1:])
    return Mark(words[0][:64], cycles, monotonic, realtime, host_s)


def parse_note(payload: bytes) -> GuestNote:
    """`SYMBOL NUL TEXT`."""
    symbol, separator, text = payload.partition(b"\0")
    if not separator:
        return GuestNote("", _text(payload))
    return GuestNote(_text(symbol), _text(text).rstrip("\n"))


def parse_exit(payload: bytes) -> tuple[int, int, str]:
    """`STATUS SIGNAL WHY`: exit status, signal (0: none), why it could not be executed."""
    words = [*_text(payload).split(" ", 2), "", "", ""]
    return _number(words[0], 255) & 255, _number(words[1], 0), words[2].strip()


def _answer(items: dict[str, str], name: str) -> Answer:
    return Answer(
        status=_number(items.get(f"{name}.status", ""), -1),
        exit_code=_number(items.get(f"{name}.exit", ""), -1),
        length=_number(items.get(f"{name}.length", ""), 0),
        sha256=items.get(f"{name}.sha256", ""),
        head=items.get(f"{name}.head", ""),
        error=items.get(f"{name}.error", ""),
    )


def parse_result(payload: bytes) -> StepResult:
    """`KEY=VALUE NUL ...`; missing keys have defaults."""
    items: dict[str, str] = {}
    for item in payload.split(b"\0"):
        key, _, value = item.partition(b"=")
        items.setdefault(_text(key), _text(value))
    done = max(0, _number(items.get("done", ""), 0))
    return StepResult(
        step=_number(items.get("step", ""), -1),
        kind=items.get("kind", ""),
        done=done,
        right=min(done, max(0, _number(items.get("right", ""), 0))),
        same=items.get("same") == "1",
        virtual_ns=_number(items.get("ns", ""), 0),
        first=_answer(items, "first"),
        wrong=_answer(items, "wrong") if "wrong.status" in items else None,
        why=items.get("why", ""),
    )
