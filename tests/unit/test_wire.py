# SPDX-License-Identifier: Apache-2.0
"""Frames: whole ones arrive, damage and forgery do not, and nothing makes the decoder fail or grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.drivers.guest.wire import (
    HEADER_BYTES,
    MAGIC,
    MAX_PAYLOAD,
    OPEN_KEY,
    Decoder,
    Frame,
    encode,
)

KEY = bytes(range(16))
kinds = st.sampled_from("HOEMNFXRDC")
payloads = st.binary(max_size=300)
#: What a console says, with starts of frames in it.
noise = st.lists(
    st.one_of(st.binary(max_size=40), st.just(MAGIC), st.just(MAGIC + b"O\0\x05\0")), max_size=4
).map(b"".join)  # fmt: skip


def feed(decoder: Decoder, data: bytes, sizes: list[int]) -> tuple[list[Frame], bytes]:
    """Everything that a decoder makes of bytes that come in pieces."""
    frames: list[Frame] = []
    text = b""
    at = 0
    for size in [*sizes, len(data)]:
        more, part = decoder.feed(data[at : at + size])
        frames, text, at = frames + more, text + part, at + size
    more, part = decoder.flush()
    return frames + more, text + part


@given(st.lists(st.tuples(kinds, payloads, noise)), st.lists(st.integers(1, 50)))
def test_every_frame_arrives_whatever_stands_between(items: list[tuple[str, bytes, bytes]], sizes: list[int]) -> None:
    line, said = b"", b""
    for sequence, (kind, payload, between) in enumerate(items):
        line += between + encode(kind, payload, sequence, KEY)
        said += between
    frames, text = feed(Decoder(KEY), line, sizes)
    assert [(frame.type, frame.payload) for frame in frames] == [(kind, payload) for kind, payload, _ in items]
    assert text == said


@given(st.binary(max_size=3000), st.lists(st.integers(1, 500)))
def test_any_bytes_are_text_and_none_is_lost(data: bytes, sizes: list[int]) -> None:
    frames, text = feed(Decoder(KEY), data, sizes)
    assert frames == []
    assert text == data


@given(payloads, st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_frame_is_no_frame(payload: bytes, at: int, flip: int) -> None:
    line = bytearray(encode("O", payload, 0, KEY))
    line[at % len(line)] ^= flip
    after = encode("X", b"0 0 ", 1, KEY)
    frames, _ = feed(Decoder(KEY), bytes(line) + after, [])
    assert [frame.type for frame in frames] == ["X"]


def test_what_is_held_is_bounded() -> None:
    decoder = Decoder(KEY)
    begin = MAGIC + b"O\0" + MAX_PAYLOAD.to_bytes(2, "little") + bytes(8)
    for _ in range(1000):
        decoder.feed(begin + bytes(100))
        assert len(decoder._held) < HEADER_BYTES + MAX_PAYLOAD


def test_a_length_beyond_the_limit_is_damage_at_once() -> None:
    decoder = Decoder(KEY)
    _, text = decoder.feed(MAGIC + b"O\0\xff\xff" + bytes(8))
    assert decoder.damaged == 1
    assert len(text) == HEADER_BYTES


@given(kinds, payloads)
def test_who_does_not_know_the_key_cannot_speak_once_init_has(kind: str, payload: bytes) -> None:
    decoder = Decoder(KEY)
    decoder.feed(encode("H", b"init 1", 0, KEY))
    frames, _ = decoder.feed(encode(kind, payload, 1, OPEN_KEY) + encode(kind, payload, 1, bytes(15) + b"\1"))
    assert frames == []
    assert decoder.damaged > 0


def test_before_that_only_what_stage_1_says_counts() -> None:
    decoder = Decoder(KEY)
    frames, _ = decoder.feed(b"".join(encode(kind, b"x", 0, OPEN_KEY) for kind in "HFXORED"))
    assert "".join(frame.type for frame in frames) == "HFD"


def test_a_container_cannot_hide_a_frame_in_its_output() -> None:
    inner = encode("X", b"0 0 ", 0, OPEN_KEY)
    frames, _ = Decoder(KEY).feed(encode("O", inner, 0, KEY))
    assert [frame.type for frame in frames] == ["O"]


def test_without_a_run_volume_the_open_key_is_enough() -> None:
    frames, _ = Decoder(None).feed(encode("X", b"3 0 ", 0))
    assert frames == [Frame("X", b"3 0 ", 0)]


def test_lost_frames_are_counted_and_a_new_program_begins_anew() -> None:
    decoder = Decoder(None)
    decoder.feed(encode("H", b"stage1 1", 0) + encode("D", b"", 1) + encode("H", b"init 1", 0))
    assert decoder.lost == 0
    decoder.feed(encode("M", b"", 4))
    assert decoder.lost == 3


def test_a_payload_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="2048"):
        encode("i", bytes(MAX_PAYLOAD + 1), 0)
